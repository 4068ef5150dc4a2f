package recorder

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace/wire"
)

const (
	askStream = `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`
	usage     = `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}`
)

// Usage that the client did not ask for is asked for, recorded, and kept from the client, who sees all other bytes.
func TestUsageIsAskedFor(t *testing.T) {
	tokens := []string{`{"choices":[{"delta":{"content":"a"}}],"usage":null}`, `{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":null}`}
	lf := func(s string) string { return s }
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	cr := func(s string) string { return strings.ReplaceAll(s, "\n", "\r") }
	for _, test := range []struct {
		name      string
		ends      func(string) string
		sent, see string
		want      string
	}{
		{"", lf, events(tokens...) + events(usage) + wire.Done, events(tokens...) + wire.Done, "in=9 out=2"},
		{"crlf", crlf, events(tokens...) + events(usage) + wire.Done, events(tokens...) + wire.Done, "in=9 out=2"},
		{"cr", cr, events(tokens...) + events(usage) + wire.Done, events(tokens...) + wire.Done, "in=9 out=2"},
		{"comments", lf, ": a\n\n" + events(tokens...) + ": b\n\n" + events(usage) + ": c\n\n" + wire.Done, ": a\n\n" + events(tokens...) + ": c\n\n" + wire.Done, "in=9 out=2"},
		{"no [DONE]", lf, events(tokens...) + events(usage), events(tokens...), "in=9 out=2"},
		{"no last blank line", lf, events(tokens...) + strings.TrimSuffix(events(usage), "\n"), events(tokens...) + strings.TrimSuffix(events(usage), "\n"), "in=9 out=2"},
		{"a server that tells none", lf, events(tokens...) + wire.Done, events(tokens...) + wire.Done, "in=~ out=2"},
		{"usage beside the last token", lf, events(tokens[0], strings.Replace(tokens[1], "null", `{"prompt_tokens":9,"completion_tokens":2}`, 1)) + wire.Done,
			events(tokens[0], strings.Replace(tokens[1], "null", `{"prompt_tokens":9,"completion_tokens":2}`, 1)) + wire.Done, "in=9 out=2"},
	} {
		for _, size := range []int{1, 2, 3, 50, 1 << 20} {
			var asked []byte
			answer := answerWith(sse, test.ends(test.sent), size)
			p := newProxied(t, func(w http.ResponseWriter, q *http.Request) {
				asked, _ = io.ReadAll(q.Body)
				answer(w, q)
			}, nil)
			if _, got := post(t, p.url+"/v1/chat/completions", askStream); got != test.ends(test.see) {
				t.Errorf("%s in pieces of %d: the client sees\n%q, want\n%q", test.name, size, got, test.ends(test.see))
			}
			if want := strings.Replace(askStream, "{", `{"stream_options":{"include_usage":true},`, 1); string(asked) != want {
				t.Errorf("the upstream is asked %s, want %s", asked, want)
			}
			if row := summary(p.wait(t, 1)[0]); !strings.Contains(row, test.want) || !strings.HasPrefix(row, "completed") {
				t.Errorf("%s in pieces of %d: %s, want %s", test.name, size, row, test.want)
			}
		}
	}
}

// A client that asks for usage sees it.
func TestUsageThatWasAskedFor(t *testing.T) {
	answer := events(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`, usage, "[DONE]")
	p := newProxied(t, answerWith(sse, answer, 1<<20), nil)
	body := strings.Replace(askStream, "{", `{"stream_options":{"include_usage":true},`, 1)
	if _, got := post(t, p.url+"/v1/chat/completions", body); got != answer {
		t.Errorf("the client sees %q, want %q", got, answer)
	}
	p.wait(t, 1)
}

// A server that does not know stream_options is asked again in the client's words, and the client sees that answer.
func TestUsageIsRefused(t *testing.T) {
	var asked []string
	p := newProxied(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		asked = append(asked, string(body))
		if bytes.Contains(body, []byte("stream_options")) {
			http.Error(w, `{"error":{"message":"Unknown parameter: stream_options"}}`, http.StatusBadRequest)
			return
		}
		answerWith(sse, events(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`), 1<<20)(w, q)
	}, nil)
	if status, _ := post(t, p.url+"/v1/chat/completions", askStream); status != 200 || len(asked) != 2 || asked[1] != askStream {
		t.Errorf("status %d; the upstream was asked %q", status, asked)
	}
	if got, want := summary(p.wait(t, 1)[0]), "completed 200 m in=~ out=1 stop/stop gaps=0 ttft=true user_message"; got != want {
		t.Errorf("row %s, want %s", got, want)
	}
}

// Another refusal is the client's to see, and is not sent twice.
func TestOtherRefusals(t *testing.T) {
	calls := 0
	p := newProxied(t, func(w http.ResponseWriter, q *http.Request) {
		calls++
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "no such model")
	}, nil)
	if status, got := post(t, p.url+"/v1/chat/completions", askStream); status != 400 || got != "no such model" || calls != 1 {
		t.Errorf("status %d, %q after %d calls", status, got, calls)
	}
	if got, want := summary(p.wait(t, 1)[0]), "failed 400 m in=~ out=0 /error: refused gaps=0 ttft=false user_message"; got != want {
		t.Errorf("row %s, want %s", got, want)
	}
}

// No byte waits for another: the client has each piece of an answer before the upstream sends the next. Only the beginning
// of an event that may be the one with usage waits for its end, once the reason of the end was told.
func TestNothingIsHeldBack(t *testing.T) {
	pieces := []string{"data: {\"choi", "ces\":[{\"delta\":{\"content\":\"a\"}}]}\n", "\n", ": ping\n\n", "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"}
	next := make(chan bool)
	p := newProxied(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", sse)
		for _, piece := range pieces {
			_, _ = io.WriteString(w, piece)
			w.(http.Flusher).Flush()
			<-next
		}
	}, nil)
	a, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(askStream))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	for _, want := range pieces {
		got := make([]byte, len(want))
		late := time.AfterFunc(5*time.Second, func() { a.Body.Close() })
		if _, err := io.ReadFull(a.Body, got); err != nil || string(got) != want {
			t.Fatalf("read %q, %v; want %q", got, err, want)
		}
		late.Stop()
		next <- true
	}
	p.wait(t, 1)
}
