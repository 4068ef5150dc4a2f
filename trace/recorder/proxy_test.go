package recorder

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// proxied is a Recorder between a client and an upstream that a test scripts.
type proxied struct {
	*Recorder
	url string

	mu   sync.Mutex
	rows []*trace.Record
}

// newProxied serves a Recorder in front of an upstream.
func newProxied(t testing.TB, upstream http.HandlerFunc, change func(*Options)) *proxied {
	t.Helper()
	p := new(proxied)
	up := httptest.NewServer(upstream)
	u, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Upstream: u, Run: "run", BlockSize: 4, Logf: t.Logf, Emit: func(r *trace.Record) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rows = append(p.rows, r)
	}}
	if change != nil {
		change(&o)
	}
	if p.Recorder, err = New(o); err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(p.Recorder)
	p.url = h.URL
	t.Cleanup(func() {
		h.CloseClientConnections()
		up.CloseClientConnections()
		h.Close()
		up.Close()
	})
	return p
}

// wait returns the rows once there are n, sees that there are no more, and closes the Recorder.
func (p *proxied) wait(t testing.TB, n int) []*trace.Record {
	t.Helper()
	count := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.rows)
	}
	for deadline := time.Now().Add(10 * time.Second); count() < n && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(5 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != n {
		t.Fatalf("%d rows, want %d", got, n)
	}
	if held := p.held.Load(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
	return p.rows
}

// post sends a body and returns what the client sees.
func post(t testing.TB, url, body string, headers ...string) (int, string) {
	t.Helper()
	q, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Logf("reading the answer: %v", err)
	}
	return a.StatusCode, string(text)
}

// answerWith is an upstream that answers in pieces of the given size, each in a write of its own.
func answerWith(kind, body string, size int) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", kind)
		for rest := body; rest != ""; {
			n := min(size, len(rest))
			_, _ = io.WriteString(w, rest[:n])
			w.(http.Flusher).Flush()
			rest = rest[n:]
		}
	}
}

// summary is a row in one line: what does not depend on the clock.
func summary(r *trace.Record) string {
	q, x := r.Request, r.Request.Agentsim
	var b strings.Builder
	input := "~" // told by nobody
	if !slices.Contains(x.Inferred, "input_tokens") {
		input = fmt.Sprint(*q.InputTokens)
	}
	fmt.Fprintf(&b, "%s %d %s in=%s out=%d", x.Status, x.HTTPStatus, q.Model, input, *q.OutputTokens)
	for _, n := range []struct {
		name  string
		value *int64
	}{{"cached", q.CachedTokens}, {"reasoning", x.ReasoningTokens}} {
		if n.value != nil {
			fmt.Fprintf(&b, " %s=%d", n.name, *n.value)
		}
	}
	if f := q.FinishReason; f != nil {
		fmt.Fprintf(&b, " %s/%s", f.FinishReason, f.Backend)
		for _, c := range f.ToolCalls {
			fmt.Fprintf(&b, " %d.%d:%s:%s", c.ChoiceIndex, c.ToolCallIndex, c.ID, c.Name)
		}
	}
	fmt.Fprintf(&b, " gaps=%d ttft=%v %s", len(x.TokenGapsUs), q.TTFTMs != nil, r.AgentContext.InputTrigger)
	return b.String()
}

const sse = "text/event-stream"

// events makes a stream of data lines.
func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

// The dialects, streamed and whole.
var exchanges = []struct {
	name, path, request, kind, answer, want string
}{
	{"chat", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "application/json",
		`{"id":"c","model":"m-1","choices":[{"message":{"role":"assistant","content":"hello","tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"ls","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}}`,
		"completed 200 m in=9 out=3 cached=4 reasoning=1 tool_calls/stop 0.0:t1:ls gaps=0 ttft=false user_message answer=c"},
	{"chat streamed", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`, sse,
		events(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"delta":{"reasoning_content":"hm"}}]}`, `{"choices":[{"delta":{"content":"h\u00e9"}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"t1","function":{"name":"ls","arguments":"{"}}]}}]}`, `{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}`,
			`{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}`, `{"choices":[],"usage":{"prompt_tokens":9888,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":6752}}}`, `[DONE]`),
		"completed 200 m in=9888 out=4 cached=6752 tool_calls/stop 0.0:t1:ls gaps=3 ttft=true user_message"},
	{"completions streamed", "/v1/completions", `{"model":"m","prompt":"hi","stream":true,"stream_options":{"include_usage":true}}`, sse,
		events(`{"choices":[{"text":"a"}]}`, `{"choices":[{"text":"b","finish_reason":"length"}]}`, `{"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2}}`, `[DONE]`),
		"completed 200 m in=2 out=2 length/length gaps=1 ttft=true other"},
	{"a stream without usage and [DONE]", "/v1/completions", `{"model":"m","prompt":"hello there","stream":true}`, sse,
		events(`{"choices":[{"text":"a"}]}`, `{"choices":[{"text":"b","finish_reason":"stop"}]}`),
		"completed 200 m in=~ out=2 stop/stop gaps=1 ttft=true other"},
	{"messages", "/v1/messages", `{"model":"c","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t0","content":"x"}]}]}`, "application/json",
		`{"type":"message","role":"assistant","id":"m","model":"c","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"ls","input":{"p":1}}],"stop_reason":"tool_use","usage":{"input_tokens":3136,"cache_read_input_tokens":6752,"output_tokens":4}}`,
		"completed 200 c in=9888 out=4 cached=6752 tool_calls/stop 0.0:t:ls gaps=0 ttft=false tool_result answer=m"},
	{"messages streamed", "/v1/messages", `{"model":"c","messages":[{"role":"user","content":"hi"}],"stream":true}`, sse,
		"event: message_start\n" + events(`{"type":"message_start","message":{"id":"m1","role":"assistant","model":"c","usage":{"input_tokens":3136,"cache_read_input_tokens":6752,"output_tokens":1}}}`) +
			events(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`) +
			"event: ping\n" + events(`{"type":"ping"}`) +
			events(`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"ls","input":{}}}`, `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}`,
				`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}`, `{"type":"message_stop"}`),
		"completed 200 c in=9888 out=7 cached=6752 tool_calls/stop 0.0:t1:ls gaps=2 ttft=true user_message answer=m1"},
	{"responses", "/v1/responses", `{"model":"o","input":"hi"}`, "application/json",
		`{"object":"response","id":"r","model":"o","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hello"}]}],"usage":{"input_tokens":8,"input_tokens_details":{"cached_tokens":4},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":0}}}`,
		"completed 200 o in=8 out=4 cached=4 reasoning=0 stop/stop gaps=0 ttft=false user_message answer=r"},
	{"responses streamed", "/v1/responses", `{"model":"o","input":[{"type":"function_call_output","call_id":"c0","output":"x"}],"stream":true}`, sse,
		events(`{"type":"response.created","response":{"id":"r","status":"in_progress"}}`, `{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c1","name":"ls","arguments":""}}`,
			`{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{}"}`,
			`{"type":"response.completed","response":{"id":"r","status":"completed","usage":{"input_tokens":8,"input_tokens_details":{"cached_tokens":4},"output_tokens":4}}}`),
		"completed 200 o in=8 out=4 cached=4 tool_calls/stop 0.0:c1:ls gaps=1 ttft=true tool_result answer=r"},
	{"an error within a stream", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`, sse,
		events(`{"choices":[{"delta":{"content":"a"}}]}`, `{"error":{"message":"gone","code":500}}`, `[DONE]`),
		"failed 200 m in=~ out=1 /error: told in the answer gaps=0 ttft=true user_message"},
	{"a stream that ends early", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}}`, sse,
		events(`{"choices":[{"delta":{"content":"a"}}]}`), "failed 200 m in=~ out=1 /error: upstream broke off gaps=0 ttft=true user_message"},
	{"an answer that is none", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "text/html", `<html>`,
		"failed 200 m in=~ out=0 /error: upstream broke off gaps=0 ttft=false user_message"},
	{"a body that is none", "/v1/chat/completions", `{"model":`, "application/json", `{"choices":[{"finish_reason":"stop"}]}`,
		"completed 200  in=~ out=0 stop/stop gaps=0 ttft=false "},
}

// Every dialect gives its row, and the client the bytes of the upstream, however they are cut.
func TestExchanges(t *testing.T) {
	for _, test := range exchanges {
		for _, size := range []int{1, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s in pieces of %d", test.name, size), func(t *testing.T) {
				t.Parallel()
				p := newProxied(t, answerWith(test.kind, test.answer, size), nil)
				status, got := post(t, p.url+test.path, test.request)
				if got != test.answer || status != 200 {
					t.Errorf("status %d, the client sees\n%q, want\n%q", status, got, test.answer)
				}
				row := p.wait(t, 1)[0]
				got = summary(row)
				if id := row.Request.Agentsim.ResponseID; id != "" {
					got += " answer=" + id
				}
				if got != test.want {
					t.Errorf("row\n%s, want\n%s", got, test.want)
				}
			})
		}
	}
}
