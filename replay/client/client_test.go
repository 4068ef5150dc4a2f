package client_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/wire"
)

// Pieces of streams, as servers send them.
const (
	role   = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	text   = `data: {"choices":[{"index":0,"text":" tok","finish_reason":null}]}` + "\n\n"
	delta  = `data: {"choices":[{"index":0,"delta":{"content":" tok"},"finish_reason":null}]}` + "\n\n"
	think  = `data: {"choices":[{"index":0,"delta":{"reasoning":" hm"},"finish_reason":null}]}` + "\n\n"
	think2 = `data: {"choices":[{"index":0,"delta":{"reasoning_content":" hm"},"finish_reason":null}]}` + "\n\n"
	tool   = `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]},"finish_reason":null}]}` + "\n\n"
	finish = `data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}` + "\n\n"
	usage  = `data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}` + "\n\n"
	done   = "data: [DONE]\n\n"
)

// serve answers every request with a handler, once its body is read: only then does a server notice that a client is gone.
func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		h(w, q)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// stream answers with the parts, each in a write of its own.
func stream(w http.ResponseWriter, parts ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, p := range parts {
		io.WriteString(w, p)
		w.(http.Flusher).Flush()
	}
}

func newClient(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// ask sends one request for two tokens.
func ask(t testing.TB, c *client.Client) *client.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return c.Do(ctx, &client.Request{Model: "m", Prompt: prompts.Text(" five words of a prompt"), MaxTokens: 2, ID: "r-1"})
}

// Each stream has a symptom that another tool shows: numbers in comments are those of issues there.
func TestStreams(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	tests := []struct {
		name   string
		parts  []string
		events int32
		output int32
		cached int32
		kind   client.Kind // "" for a whole answer
	}{
		{"two tokens and usage", []string{text, text, finish, usage, done}, 2, 2, 4, ""},
		{"several events in one read", []string{text + text + finish + usage + done}, 2, 2, 4, ""},                      // aiperf#368
		{"an event over several reads", []string{text[:20], text[20:40], text[40:] + text, usage, done}, 2, 2, 4, ""},   // aiperf#368
		{"a role is no first token", []string{role, delta, delta, usage, done}, 2, 2, 4, ""},                            // vllm#3759
		{"reasoning counts", []string{role, think, think2, done}, 2, 2, trace.Unknown, ""},                              // guidellm#737
		{"tool calls count", []string{role, tool, tool, done}, 2, 2, trace.Unknown, ""},                                 //
		{"reasoning and text: the server's count alone", []string{role, think, delta, delta, usage, done}, 3, 2, 4, ""}, // aiperf#716
		{"usage of no choice is read", []string{text, usage, done}, 1, 2, 4, ""},                                        // sglang#23949
		{"no usage: events are counted", []string{text, text, text, finish, done}, 3, 3, trace.Unknown, ""},             // shown as not reported, never 0
		{"no [DONE] after a finish reason", []string{text, finish}, 1, 1, trace.Unknown, ""},                            //
		{"data after [DONE]", []string{text, finish, done, text, usage}, 1, 2, 4, ""},                                   // no token, but usage
		{"comments keep alive", []string{": ping\n\n", text, ": ping\n\n", finish, done}, 1, 1, trace.Unknown, ""},      //
		{"lines of 100 kB", []string{strings.Replace(text, " tok", long, 1), finish, done}, 1, 1, trace.Unknown, ""},    // bufio.Scanner
		{"CR LF", []string{strings.ReplaceAll(text+finish+done, "\n", "\r\n")}, 1, 1, trace.Unknown, ""},                //
		{"no last blank line", []string{text, finish, "data: [DONE]"}, 1, 1, trace.Unknown, ""},                         //
		{"an error in the stream", []string{text, `data: {"error":{"message":"out of memory"}}` + "\n\n"}, 1, 1, trace.Unknown, client.FailInBand},
		{"an error event", []string{text, "event: error\ndata: {\"detail\":\"gone\"}\n\n", done}, 1, 1, trace.Unknown, client.FailInBand},
		{"not JSON", []string{text, "data: {oops\n\n", done}, 1, 1, trace.Unknown, client.FailParse}, // aiperf#546
		{"200 and nothing", []string{finish, done}, 0, 0, trace.Unknown, client.FailEmpty},           // dynamo#3902
		{"200 and no byte", nil, 0, 0, trace.Unknown, client.FailCut},                                // dynamo#3902
		{"cut in an event", []string{text, text[:30]}, 1, 1, trace.Unknown, client.FailParse},        //
		{"cut between events", []string{text, text}, 2, 2, trace.Unknown, client.FailCut},            //
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) { stream(w, test.parts...) })
			a := ask(t, newClient(t, client.Options{URLs: []string{s.URL}}))
			kind := client.Kind("")
			if a.Err != nil {
				kind = a.Err.Kind
			}
			if kind != test.kind || a.Events != test.events || a.Output() != test.output || a.Cached != test.cached {
				t.Errorf("%d events, %d tokens, %d cached, failure %v; want %d, %d, %d, %q", a.Events, a.Output(), a.Cached, a.Err,
					test.events, test.output, test.cached, test.kind)
			}
			if (a.FirstToken == client.None) != (test.events == 0) || len(a.Gaps) != max(0, int(test.events)-1) {
				t.Errorf("first token at %v, %d gaps for %d events", a.FirstToken, len(a.Gaps), test.events)
			}
		})
	}
}

func TestConnectionCutInTheMiddle(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w, text, text[:30])
		panic(http.ErrAbortHandler)
	})
	if a := ask(t, newClient(t, client.Options{URLs: []string{s.URL}})); a.Err == nil || a.Err.Kind != client.FailCut || a.Events != 1 {
		t.Errorf("%d events, failure %v; want 1, cut off", a.Events, a.Err)
	}
}

// A wait for the first token, gaps, and a slow usage chunk lie where they happened.
func TestTimesLieWhereThingsHappened(t *testing.T) {
	const wait = 30 * time.Millisecond
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(wait)
		stream(w, role)
		time.Sleep(wait)
		stream(w, text)
		time.Sleep(wait)
		stream(w, text)
		time.Sleep(wait)
		stream(w, usage, done)
	})
	a := ask(t, newClient(t, client.Options{URLs: []string{s.URL}}))
	for _, step := range []struct {
		name     string
		from, to time.Duration
	}{{"first byte", a.Sent, a.FirstByte}, {"first token", a.FirstByte, a.FirstToken}, {"last token", a.FirstToken, a.LastToken}, {"end", a.LastToken, a.End}} {
		if took := step.to - step.from; took < wait-5*time.Millisecond || took > wait+500*time.Millisecond {
			t.Errorf("%s after %v, want %v", step.name, took, wait)
		}
	}
	if len(a.Gaps) != 1 || a.Gaps[0] != a.LastToken-a.FirstToken {
		t.Errorf("gaps %v, want that between the tokens", a.Gaps)
	}
}

func TestAnswersInOnePiece(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"text":" tok tok","finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`)
	})
	if a := ask(t, newClient(t, client.Options{URLs: []string{s.URL}})); a.Err != nil || !a.Whole || a.Output() != 2 || a.FirstToken != client.None {
		t.Errorf("%+v: want 2 tokens and no first one", a)
	}
}

func TestUnaskedCompression(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/event-stream")
		z := gzip.NewWriter(w)
		io.WriteString(z, text+text+usage+done)
		z.Close()
	})
	if a := ask(t, newClient(t, client.Options{URLs: []string{s.URL}})); a.Err != nil || a.Output() != 2 {
		t.Errorf("%d tokens, failure %v", a.Output(), a.Err)
	}
}

// dynamo#13088: requests that hang for ever, without an error.
func TestSilentStreamsAreGivenUp(t *testing.T) {
	const limit = 200 * time.Millisecond
	for name, test := range map[string]struct {
		tokens int // before the silence, a quarter of the limit apart
		o      client.Options
	}{
		"before the first byte": {0, client.Options{FirstTimeout: limit}},
		"after a token":         {1, client.Options{IdleTimeout: limit}},
		"after many":            {8, client.Options{IdleTimeout: limit}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, q *http.Request) {
				for range test.tokens {
					stream(w, text)
					time.Sleep(limit / 4)
				}
				<-q.Context().Done()
			})
			test.o.URLs = []string{s.URL}
			if a := ask(t, newClient(t, test.o)); a.Err == nil || a.Err.Kind != client.FailIdle || int(a.Events) != test.tokens {
				t.Errorf("failure %v after %d tokens, want an idle timeout after %d", a.Err, a.Events, test.tokens)
			}
		})
	}
}

// A long prefill is no silence: the first byte may take longer than the gaps between tokens.
func TestFirstByteMayTakeLonger(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(100 * time.Millisecond)
		stream(w, text, finish, done)
	})
	if a := ask(t, newClient(t, client.Options{URLs: []string{s.URL}, IdleTimeout: 30 * time.Millisecond})); a.Err != nil {
		t.Error(a.Err)
	}
}

// aiperf (AgentX FAQ), vllm-omni#1374: the server closes idle connections; a request sent at that moment is no failure.
func TestHalfClosedConnectionsAreNoFailures(t *testing.T) {
	var n atomic.Int32
	s := serve(t, func(w http.ResponseWriter, q *http.Request) {
		if n.Add(1) == 2 { // the kept connection breaks before a byte is answered
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
			return
		}
		if q.Header.Get("X-Idempotency-Key") != "" {
			t.Error("the idempotency key is sent")
		}
		stream(w, text, finish, usage, done)
	})
	c := newClient(t, client.Options{URLs: []string{s.URL}})
	ask(t, c)
	a := ask(t, c)
	if a.Err != nil || a.Connections != 2 {
		t.Errorf("failure %v over %d connections; want none over 2", a.Err, a.Connections)
	}
}

// dynamo#11662: a field that a server does not know is answered by 400 before it reaches a worker.
func TestRefusedFieldsAreLeftOut(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, q *http.Request) {
		text0, _ := io.ReadAll(q.Body)
		body, err := wire.ParseRequest(text0)
		switch {
		case err != nil:
			t.Error(err)
		case body.IgnoreEOS:
			http.Error(w, `{"error":{"message":"unknown field 'ignore_eos'","type":"invalid_request_error"}}`, http.StatusBadRequest)
		case body.MinTokens != nil:
			http.Error(w, `{"detail":"extra fields not permitted: min_tokens"}`, http.StatusUnprocessableEntity)
		case body.MaxTokens == nil || *body.MaxTokens != 2:
			t.Errorf("max_tokens is %v", body.MaxTokens)
		default:
			stream(w, text, text, usage, done)
		}
	})
	c := newClient(t, client.Options{URLs: []string{s.URL}})
	if a := ask(t, c); a.Err != nil || a.Output() != 2 {
		t.Fatalf("%d tokens, failure %v", a.Output(), a.Err)
	}
	if got := strings.Join(c.Dropped(), " "); got != "min_tokens ignore_eos" {
		t.Errorf("left out: %s", got)
	}
}

func TestStatusesBecomeKinds(t *testing.T) {
	for _, test := range []struct {
		status int
		body   string
		want   client.Kind
	}{
		{429, `{"error":{"message":"slow down"}}`, client.FailStatus},
		{503, "no worker", client.FailStatus},
		{302, "", client.FailStatus}, // a redirect is not followed: it could carry the key to another host
		{400, `{"error":{"message":"maximum context length is 10 tokens","code":400}}`, client.FailContext},
		{400, `{"error":{"message":"max_tokens is too large: the maximum context length is 10 tokens"}}`, client.FailContext},
		{500, `<html>`, client.FailStatus},
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(test.status)
			io.WriteString(w, test.body)
		})
		a := ask(t, newClient(t, client.Options{URLs: []string{s.URL}}))
		if a.Err == nil || a.Err.Kind != test.want || a.Status != test.status || a.RetryAfter != "7" {
			t.Errorf("status %d: %v, want %s", test.status, a.Err, test.want)
		}
	}
}

// Retries are off unless asked for; the latency of a retried request begins with its first attempt.
func TestRetriesHonourRetryAfter(t *testing.T) {
	for retries, want := range map[int]int{0: 429, 1: 429, 2: 200} {
		var n atomic.Int32
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1) <= 2 {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			time.Sleep(20 * time.Millisecond)
			stream(w, text, finish, done)
		})
		c := newClient(t, client.Options{URLs: []string{s.URL}, Retries: retries})
		begun := c.Now()
		a := ask(t, c)
		if a.Status != want || int(n.Load()) != min(retries+1, 3) || a.Sent-begun > a.End-a.Sent+10*time.Millisecond {
			t.Errorf("%d retries: status %d after %d attempts, sent %v after the beginning", retries, a.Status, n.Load(), a.Sent-begun)
		}
	}
}

// A server may repeat the key in what it complains of, even cut in half by the bound on texts.
func TestKeysAreTakenOutOfErrors(t *testing.T) {
	const key = "sk-very-secret-0123456789"
	for _, pad := range []int{0, 470, 480, 490, 499} {
		s := serve(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Retry-After", q.Header.Get("Authorization"))
			http.Error(w, strings.Repeat(".", pad)+q.Header.Get("Authorization"), http.StatusUnauthorized)
		})
		c := newClient(t, client.Options{URLs: []string{s.URL}, Key: key})
		a := ask(t, c)
		_, err := c.Models(t.Context(), 0)
		said := fmt.Sprintf("%+v %v %v", a, a.Err, err)
		if a.Status != 401 || strings.Contains(said, "very-secret") {
			t.Errorf("status %d, said %s", a.Status, said)
		}
	}
}

func TestURLs(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:8000", "ftp://host", "http://", "http://me:secret@host", "http://host?key=secret", "http://host/#secret"} {
		_, err := client.New(client.Options{URLs: []string{bad}})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
	c := newClient(t, client.Options{URLs: []string{"http://h:1/v1/", "https://h/proxy"}})
	if c.Base(0) != "http://h:1" || c.Base(1) != "https://h/proxy" {
		t.Errorf("bases %s and %s", c.Base(0), c.Base(1))
	}
}

func TestCountTokens(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/tokenize" {
			http.NotFound(w, q)
			return
		}
		fmt.Fprint(w, `{"count":5,"max_model_len":10}`)
	})
	c := newClient(t, client.Options{URLs: []string{s.URL}})
	if n, err := c.CountTokens(t.Context(), 0, "m", "five words"); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := c.Models(t.Context(), 0); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("models: %v, want ErrNotFound", err)
	}
}
