package recorder

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/sim/server"
	"github.com/agentsim/agentsim/trace"
)

const chatPath = "/v1/chat/completions"

// hang waits until the proxy has gone.
func hang(w http.ResponseWriter, q *http.Request) {
	_, _ = io.Copy(io.Discard, q.Body)
	<-q.Context().Done()
}

// begin answers the first token and then does something.
func begin(then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		answerWith(sse, events(`{"choices":[{"delta":{"content":"a"}}]}`), 1<<20)(w, q)
		then(w, q)
	}
}

func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func refuse(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, `{"error":{"message":"busy"}}`, status)
	}
}

// Whatever goes wrong there is one row that says what, and the client sees what it would see without the proxy.
func TestFaultsOfUpstream(t *testing.T) {
	tests := []struct {
		name     string
		upstream http.HandlerFunc
		status   int // that the client sees
		want     string
	}{
		{"429", refuse(429), 429, "rejected 429 m in=~ out=0 /error: refused gaps=0 ttft=false user_message"},
		{"503", refuse(503), 503, "rejected 503 m in=~ out=0 /error: refused gaps=0 ttft=false user_message"},
		{"529", refuse(529), 529, "rejected 529 m in=~ out=0 /error: refused gaps=0 ttft=false user_message"},
		{"500", refuse(500), 500, "failed 500 m in=~ out=0 /error: refused gaps=0 ttft=false user_message"},
		{"the connection breaks before the answer", abort, 502, "failed 502 m in=~ out=0 /error: upstream not reached gaps=0 ttft=false user_message"},
		{"the connection breaks in the answer", begin(abort), 200, "failed 200 m in=~ out=1 /error: upstream broke off gaps=0 ttft=true user_message"},
		{"nothing comes", hang, 504, "failed 504 m in=~ out=0 /error: upstream timed out gaps=0 ttft=false user_message"},
		{"nothing more comes", begin(hang), 200, "failed 200 m in=~ out=1 /error: upstream timed out gaps=0 ttft=true user_message"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, test.upstream, func(o *Options) { o.IdleTimeout = 300 * time.Millisecond })
			if status, text := post(t, p.url+chatPath, askStream); status != test.status {
				t.Errorf("status %d %q, want %d", status, text, test.status)
			}
			if got := summary(p.wait(t, 1)[0]); got != test.want {
				t.Errorf("row %s, want %s", got, test.want)
			}
		})
	}
}

func TestUpstreamIsDown(t *testing.T) {
	p := newProxied(t, hang, func(o *Options) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		o.Upstream = &url.URL{Scheme: "http", Host: l.Addr().String()}
	})
	status, text := post(t, p.url+chatPath, askStream)
	var told struct{ Error struct{ Type string } }
	if err := json.Unmarshal([]byte(text), &told); err != nil || status != 502 || told.Error.Type != "upstream_error" {
		t.Errorf("status %d, %s", status, text)
	}
	if got, want := summary(p.wait(t, 1)[0]), "failed 502 m in=~ out=0 /error: upstream not reached gaps=0 ttft=false user_message"; got != want {
		t.Errorf("row %s, want %s", got, want)
	}
}

// Clients that go at any time leave one row, and the upstream hears that they have gone.
func TestClientGoes(t *testing.T) {
	for _, test := range []struct {
		name  string
		reads int // bytes of the answer, before it goes
		want  string
	}{
		{"before the answer", 0, "unfinished 0 m in=~ out=0 /cancelled gaps=0 ttft=false user_message"},
		{"in the answer", 10, "unfinished 200 m in=~ out=1 /cancelled gaps=0 ttft=true user_message"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			heard := make(chan bool)
			tell := func(w http.ResponseWriter, q *http.Request) {
				hang(w, q)
				close(heard)
			}
			upstream := tell
			if test.reads > 0 {
				upstream = begin(tell)
			}
			arrived := make(chan bool, 1)
			p := newProxied(t, func(w http.ResponseWriter, q *http.Request) { arrived <- true; upstream(w, q) }, nil)
			ctx, leave := context.WithCancel(context.Background())
			q, err := http.NewRequestWithContext(ctx, "POST", p.url+chatPath, strings.NewReader(askStream))
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-arrived
				if test.reads == 0 {
					leave()
				}
			}()
			if a, err := http.DefaultClient.Do(q); err == nil {
				_, _ = io.ReadFull(a.Body, make([]byte, test.reads))
				leave()
				a.Body.Close()
			}
			select {
			case <-heard:
			case <-time.After(5 * time.Second):
				t.Error("the upstream did not hear that the client has gone")
			}
			if got := summary(p.wait(t, 1)[0]); got != test.want {
				t.Errorf("row %s, want %s", got, test.want)
			}
		})
	}
}

// A client that goes in the middle of its own request leaves a row too.
func TestClientGoesInItsRequest(t *testing.T) {
	p := newProxied(t, hang, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"model\"", chatPath)
	time.Sleep(20 * time.Millisecond)
	conn.Close()
	if got, want := summary(p.wait(t, 1)[0]), "unfinished 0  in=~ out=0 /cancelled gaps=0 ttft=false "; got != want {
		t.Errorf("row %s, want %s", got, want)
	}
}

// Credentials reach the upstream, and neither a record nor the log, even when all goes wrong.
func TestCredentialsArePassedAndNeverKept(t *testing.T) {
	const secret = "sk-canary-0123456789"
	headers := []string{"Authorization", "Bearer " + secret, "X-Api-Key", secret, "Cookie", "s=" + secret, "Proxy-Connection", "keep-alive"}
	var logged strings.Builder
	var mu sync.Mutex
	logf := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&logged, format+"\n", args...)
	}
	var seen http.Header
	for _, upstream := range []http.HandlerFunc{
		func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path == chatPath {
				seen = q.Header.Clone()
			}
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"message":"Incorrect API key: %s","code":"%s"}}`, secret, secret)
		},
		func(w http.ResponseWriter, q *http.Request) { fmt.Fprintf(w, `{"error":{"message":"key %s"}}`, secret) },
		abort,
	} {
		p := newProxied(t, upstream, func(o *Options) { o.Logf, o.AskTokens = logf, true })
		post(t, p.url+chatPath+"?key="+secret, askStream, headers...)
		row, err := json.Marshal(p.wait(t, 1)[0])
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(row, []byte("canary")) {
			t.Errorf("the row tells the secret: %s", row)
		}
	}
	for i := 0; i < 6; i += 2 {
		if got := seen.Get(headers[i]); got != headers[i+1] {
			t.Errorf("the upstream got %s: %q", headers[i], got)
		}
	}
	if strings.Contains(logged.String(), "canary") {
		t.Errorf("the log tells the secret: %s", logged.String())
	}
	if logged.Len() == 0 {
		t.Error("nothing was logged, so that this test sees nothing")
	}
}

// What is not recorded passes untouched: paths, queries, headers, bodies, upgrades.
func TestOthersPass(t *testing.T) {
	p := newProxied(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if q.Header.Get("Upgrade") != "" {
			conn, rw, _ := http.NewResponseController(w).Hijack()
			defer conn.Close()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = rw.Flush()
			line, _ := rw.ReadString('\n')
			_, _ = rw.WriteString("again " + line)
			_ = rw.Flush()
			return
		}
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %s %s %s", q.Method, q.URL.RequestURI(), body, q.Header.Get("Accept-Encoding"), q.Header.Get("X-Forwarded-For"))
	}, nil)
	for _, test := range []struct{ method, path string }{
		{"GET", "/v1/models?a=1;b=%zz"}, {"POST", "/v1/messages/count_tokens"}, {"GET", "/v1/responses/r1"}, {"DELETE", "/v1/completions"}, {"POST", "/v1/embeddings"},
	} {
		q, err := http.NewRequest(test.method, p.url+test.path, strings.NewReader(`{"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept-Encoding", "br")
		q.Header.Set("X-Forwarded-For", "10.1.1.1")
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(a.Body)
		a.Body.Close()
		if want := test.method + " " + test.path + ` {"stream":true} br 10.1.1.1`; string(text) != want || a.StatusCode != http.StatusTeapot || a.Header.Get("X-Answer") != "yes" {
			t.Errorf("status %d, %q, want %q", a.StatusCode, text, want)
		}
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(conn)
	for line := "x"; strings.TrimSpace(line) != ""; {
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(conn, "hello")
	if line, _ := in.ReadString('\n'); line != "again hello\n" {
		t.Errorf("an upgraded connection says %q", line)
	}
	p.wait(t, 0)
}

func TestUpstreamWithTLS(t *testing.T) {
	up := httptest.NewUnstartedServer(answerWith("application/json", `{"choices":[{"finish_reason":"stop"}]}`, 1<<20))
	up.Config.ErrorLog = log.New(io.Discard, "", 0) // of the client that does not trust it
	up.StartTLS()
	defer up.Close()
	roots := x509.NewCertPool()
	roots.AddCert(up.Certificate())
	for _, test := range []struct {
		roots *x509.CertPool
		want  int
	}{{roots, 200}, {x509.NewCertPool(), 502}} {
		p := newProxied(t, hang, func(o *Options) {
			o.Upstream, _ = url.Parse(up.URL)
			o.TLS = &tls.Config{RootCAs: test.roots}
		})
		if status, _ := post(t, p.url+chatPath, askStream); status != test.want {
			t.Errorf("status %d, want %d", status, test.want)
		}
		p.wait(t, 1)
	}
}

// The faults of the stand-in server: a client sees the same bytes through the proxy, and there is a row for each.
func TestFaultsOfServer(t *testing.T) {
	d := sim.Default()
	d.Model, d.Parallelism.Tensor, d.Load.Mode = "qwen3-14b", 1, "closed"
	d.Cost = sim.Cost{Profile: "fixed", Prefill: time.Millisecond, Decode: time.Millisecond}
	plan, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(plan, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { stop(); <-ended }()
	direct := httptest.NewServer(s)
	defer direct.Close()
	p := newProxied(t, s.ServeHTTP, nil)
	const body = `{"model":"qwen3-14b","messages":[{"role":"user","content":"hi"}],"max_tokens":8,"ignore_eos":true,"seed":1,"stream":true,"stream_options":{"include_usage":true}}`
	const good = "completed 200 qwen3-14b in=~ out=8 cached=0 length/length gaps=7 ttft=true user_message"
	faults := []struct{ fault, want string }{
		{"", good}, {"crlf", good}, {"cr", good}, {"bom", good}, {"split", good}, {"comment", good}, {"no-space", good}, {"multi-line", good},
		{"no-final-blank", good}, {"no-done", good}, {"more-after", good}, {"long-line:100000", good}, {"null-content", good}, {"merge:3", good}, {"ping:1ms", good},
		{"reasoning", "completed 200 qwen3-14b in=~ out=8 cached=0 reasoning=4 length/length gaps=7 ttft=true user_message"},
		{"gzip", "completed 200 qwen3-14b in=~ out=8 cached=0 length/length gaps=0 ttft=false user_message"},
		{"plain", "completed 200 qwen3-14b in=~ out=8 cached=0 length/length gaps=0 ttft=false user_message"},
		{"no-answer", "failed 200 qwen3-14b in=~ out=0 /error: upstream broke off gaps=0 ttft=false user_message"},
		{"no-usage", "completed 200 qwen3-14b in=~ out=8 length/length gaps=7 ttft=true user_message"},
		{"cut:2", "failed 200 qwen3-14b in=~ out=1 /error: upstream broke off gaps=0 ttft=true user_message"},
		{"error:2", "failed 200 qwen3-14b in=~ out=2 /error: told in the answer gaps=1 ttft=true user_message"},
		{"error-event:2", "failed 200 qwen3-14b in=~ out=2 /error: told in the answer gaps=1 ttft=true user_message"},
		{"reset", "failed 502 qwen3-14b in=~ out=0 /error: upstream not reached gaps=0 ttft=false user_message"},
	}
	var wants []string
	for _, f := range faults {
		_, through := post(t, p.url+chatPath, body, server.HeaderFault, f.fault)
		if f.fault != "reset" {
			if _, want := post(t, direct.URL+chatPath, body, server.HeaderFault, f.fault); mask(through) != mask(want) && f.fault != "gzip" {
				t.Errorf("%s: through the proxy\n%q, directly\n%q", f.fault, through, want)
			}
		}
		wants = append(wants, f.want)
	}
	rows := p.wait(t, len(faults))
	slices.SortFunc(rows, func(a, b *trace.Record) int { return strings.Compare(a.Request.RequestID, b.Request.RequestID) })
	for i, row := range rows {
		got := summary(row)
		if at := strings.Index(wants[i], "in=~"); !strings.Contains(got, "in=~") && at >= 0 { // the number of tokens is the server's affair
			_, rest, _ := strings.Cut(got[at:], " ")
			got = got[:at] + "in=~ " + rest
		}
		if got != wants[i] {
			t.Errorf("%s: row\n%s, want\n%s", faults[i].fault, got, wants[i])
		}
	}
}

// mask hides the parts of an answer that differ from request to request: its id, its time and what was cached.
func mask(text string) string {
	text = strings.ReplaceAll(text, ": ping\n\n", "") // when the clock says so
	for _, key := range []string{`"id":"chatcmpl-`, `"created":`, `"cached_tokens":`} {
		var b strings.Builder
		for rest := text; ; {
			before, after, found := strings.Cut(rest, key)
			b.WriteString(before)
			if !found {
				break
			}
			b.WriteString(key)
			rest = strings.TrimLeft(after, "0123456789abcdef")
		}
		text = b.String()
	}
	return text
}
