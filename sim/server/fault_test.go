package server

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace/wire"
)

// Each fault shows as the client of a real server would see it, and leaves all else as it should be.
func TestFaults(t *testing.T) {
	_, url := start(t, deployment(), Options{TimeScale: 20})
	whole := func(r *reply) bool {
		return r.status == 200 && r.err == nil && r.done && r.events == 6 && r.finish == "length" && r.counts()[2] == 6 && r.failure == nil
	}
	tests := []struct {
		fault string
		is    func(r *reply) bool
	}{
		{"", whole},
		{"slow:60ms", func(r *reply) bool { return whole(r) && r.first >= 60*time.Millisecond }},
		{"status:429;retry-after:7", func(r *reply) bool { return r.status == 429 && r.header.Get("Retry-After") == "7" }},
		{"status", func(r *reply) bool { return r.status == 503 }},
		{"refuse:min_tokens", func(r *reply) bool { return r.status == 400 && r.failure.Param == "min_tokens" }},
		{"no-answer", func(r *reply) bool { return r.status == 200 && r.body == "" && r.events == 0 }},
		{"plain", func(r *reply) bool {
			return strings.Contains(r.body, `"object":"chat.completion"`) && r.counts()[2] == 6
		}},
		{"output:2", func(r *reply) bool { return r.events == 2 && r.counts()[2] == 2 && r.done }},
		{"output:0", func(r *reply) bool { return r.events == 0 && r.counts()[2] == 0 && r.done }},
		{"truncate:3", func(r *reply) bool { return whole(r) && r.counts()[0] == 3 }},
		{"cut:2", func(r *reply) bool { return r.err != nil && !r.done && r.events == 1 }},
		{"error:2", func(r *reply) bool {
			return r.err == nil && r.events == 2 && r.failure != nil && r.failure.Message == "injected fault"
		}},
		{"error-event:2", func(r *reply) bool { return r.events == 2 && r.failure != nil }},
		{"group:2", func(r *reply) bool { return r.events == 3 && r.counts()[2] == 6 && len(r.tokens) == 6 }},
		{"group:4", func(r *reply) bool { return r.events == 2 && len(r.tokens) == 6 }},
		{"reasoning", func(r *reply) bool {
			return whole(r) && len(strings.Fields(r.reasoning)) == 3 && *r.usage.Reasoning == 3
		}},
		{"reasoning:reasoning", func(r *reply) bool { return whole(r) && len(strings.Fields(r.reasoning)) == 3 }},
		{"reasoning;group:2", func(r *reply) bool {
			return r.events == 4 && len(strings.Fields(r.reasoning)) == 3 && len(r.tokens) == 6
		}},
		{"tool-calls", func(r *reply) bool { return r.events == 6 && r.text == "" && r.finish == "tool_calls" }},
		{"no-role", whole}, {"finish-apart", whole},
		{"no-usage", func(r *reply) bool { return r.events == 6 && r.counts() == [3]int64{-1, -1, -1} && r.done }},
		{"usage-each", whole},
		{"wrong-usage:5", func(r *reply) bool { return r.events == 6 && r.counts()[2] == 11 }},
		{"warm", func(r *reply) bool { return whole(r) && r.counts()[1] == r.counts()[0] }},
		{"no-done", func(r *reply) bool { return r.events == 6 && !r.done && r.err == nil }},
		{"more-after", func(r *reply) bool { return r.events == 7 && r.done }},
		{"close", func(r *reply) bool { return whole(r) }},
		{"gzip", whole}, // Go's client decompresses, for it asked
		{"crlf", whole}, {"cr", whole}, {"bom", whole}, {"no-space", whole}, {"split", whole}, {"comment", whole},
		{"no-final-blank", whole}, {"multi-line", whole}, {"null-content", whole}, {"merge:4", whole},
		{"long-line:100000", whole},
		{"ping:1ms", whole},
		{"cr;bom;no-space;split;comment;usage-each;long-line:70000", whole},
	}
	for _, test := range tests {
		body := `{"messages":[{"role":"user","content":"a b c d e"}],"max_tokens":6,"min_tokens":6,"ignore_eos":true,"return_token_ids":true,` + streamed + `}`
		r := ask(t, url, "/v1/chat/completions", body, HeaderFault, test.fault)
		if !test.is(r) {
			t.Errorf("fault %q: %+v, usage %v, failure %v", test.fault, r, r.counts(), r.failure)
		}
	}
	if _, err := send(context.Background(), url, "/v1/completions", `{}`, HeaderFault, "reset"); err == nil {
		t.Error("fault reset: an answer came")
	}
}

// A stream that stalls stays open and silent, and its request goes when the client does.
func TestStall(t *testing.T) {
	_, url := start(t, deployment(), Options{TimeScale: 20})
	ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond)
	defer cancel()
	r, err := send(ctx, url, "/v1/completions", `{"prompt":"a","max_tokens":9,"ignore_eos":true,`+streamed+`}`, HeaderFault, "stall:3")
	if err != nil || r.events != 3 || r.end < 140*time.Millisecond {
		t.Errorf("%+v, %v; want 3 events and then nothing", r, err)
	}
}

// A server that restarts breaks all connections, is away for a while, and comes back with an empty cache and counters at 0.
func TestRestart(t *testing.T) {
	_, url := start(t, deployment(), Options{})
	body := `{"prompt":` + ids(5, 100) + `,"max_tokens":100,"ignore_eos":true,` + streamed + `}`
	broken := make(chan *reply, 1)
	go func() {
		r, _ := send(context.Background(), url, "/v1/completions", body)
		broken <- r
	}()
	time.Sleep(60 * time.Millisecond)
	if _, err := send(context.Background(), url, "/v1/completions", body, HeaderFault, "restart:1s"); err == nil {
		t.Error("the request that restarts the server was answered")
	}
	if r := <-broken; r == nil || r.err == nil || r.done {
		t.Errorf("a request under way saw %+v, want a broken connection", r)
	}
	if r := ask(t, url, "/v1/completions", body); r.status != 503 || r.header.Get("Retry-After") == "" {
		t.Errorf("while it restarts: status %d", r.status)
	}
	if resp, err := http.Get(url + "/health"); err != nil || resp.StatusCode != 503 {
		t.Errorf("health while it restarts: %v, %v", resp, err)
	}
	for i := 0; ; i++ {
		resp, err := http.Get(url + "/health")
		if err == nil && resp.StatusCode == 200 {
			break
		}
		if i > 500 {
			t.Fatalf("health after the restart: %v, %v", resp, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if m := scrape(t, url); m[`vllm:prompt_tokens_total{model_name="qwen3-14b"}`] != 0 {
		t.Error("counters outlive a restart")
	}
	if r := ask(t, url, "/v1/completions", strings.Replace(body, `"max_tokens":100`, `"max_tokens":2`, 1)); r.status != 200 || r.counts()[1] != 0 {
		t.Errorf("after the restart: status %d, usage %v, want nothing cached", r.status, r.counts())
	}
}

// Faults of the server hit one of N requests.
func TestFaultEvery(t *testing.T) {
	f, err := ParseFaults("status:500,every=3; no-usage")
	if err != nil {
		t.Fatal(err)
	}
	_, url := start(t, deployment(), Options{TimeScale: 100, Faults: f})
	var got []int
	for range 6 {
		got = append(got, ask(t, url, "/v1/completions", `{"prompt":"a","max_tokens":1}`).status)
	}
	if want := []int{200, 200, 500, 200, 200, 500}; !equal(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
	}
}

func equal(a, b []int) bool {
	for i := range b {
		if len(a) != len(b) || a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestParseFault(t *testing.T) {
	for _, bad := range []string{"nope", "status:x", "status:-1", "slow:5", "crlf:1", "status:500,often", "status:500,every=0", "retry-after:\n"} {
		if _, err := ParseFault(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	help := FaultHelp()
	for name := range kinds {
		if _, err := ParseFault(name); err != nil {
			t.Errorf("default of %s: %v", name, err)
		}
		if !strings.Contains(help, "  "+name) {
			t.Errorf("the help lacks %s", name)
		}
	}
	r := ask(t, func() string { _, url := start(t, deployment(), Options{}); return url }(), "/v1/completions", `{}`, HeaderFault, "nope")
	if e := wire.ParseError(r.status, []byte(r.body)); r.status != 400 || !strings.Contains(e.Message, HeaderFault) {
		t.Errorf("an unknown fault in a header: %v", e)
	}
}

func FuzzParseFaults(f *testing.F) {
	f.Add("slow:5ms,every=3; status:429;;crlf")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseFaults(text)
		if err == nil {
			behave(3, list)
		}
	})
}

// FuzzRead: no body may crash the server.
func FuzzRead(f *testing.F) {
	d := deployment()
	d.Engine.MaxModelLen = 500
	p, err := d.Resolve()
	if err != nil {
		f.Fatal(err)
	}
	s, err := New(p, Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"prompt":[1,2],"max_tokens":3,"seed":1,"priority":-5,"cache_salt":"a","nvext":{"agent_hints":{"osl":9}}}`), uint8(wire.Completions))
	f.Add([]byte(`{"messages":[{"role":"user","content":"a"}],"tools":[{}],"min_tokens":2,"stop":["a","b"]}`), uint8(wire.Chat))
	f.Add([]byte(`{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a"}],"max_tokens":9,"stop_sequences":["a"]}`), uint8(wire.Messages))
	f.Fuzz(func(t *testing.T, body []byte, d uint8) {
		dialect := wire.Dialect(d % 3)
		r := httptest.NewRequest("POST", "/", bytes.NewReader(body))
		j, e := s.read(r, dialect, 0, 1, newBehaviour())
		if (j == nil) == (e == nil) {
			t.Fatalf("%q: job %v, error %v", body, j, e)
		}
		if j != nil && (j.stream.request.Input < 1 || j.stream.request.Output < 1 || int(j.stream.request.Input+j.stream.request.Output) > 500) {
			t.Fatalf("%q: a request of %d + %d tokens", body, j.stream.request.Input, j.stream.request.Output)
		}
	})
}

// A deployment whose tokens take a while from the engine to the client delays each of them, and nobody else.
func TestTokensWait(t *testing.T) {
	p, err := deployment().Resolve()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	j := &job{Answer: wire.Answer{Stream: true}, body: &wire.Request{}, behaviour: newBehaviour(), stream: &stream{}}
	j.stream.request.Output = 3
	rec := httptest.NewRecorder()
	begun := s.clock.now()
	if !s.writeTokens(context.Background(), j.writer(rec), []time.Duration{begun, begun + 20*time.Millisecond, begun + 40*time.Millisecond}) {
		t.Fatal("the answer does not go on")
	}
	if took := s.clock.now() - begun; took < 40*time.Millisecond || strings.Count(rec.Body.String(), "data: ") != 3 {
		t.Errorf("tokens that are due after 40 ms came after %v: %q", took, rec.Body)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if s.writeTokens(gone, j.writer(rec), []time.Duration{s.clock.now() + time.Hour}) {
		t.Error("tokens are written for a client that has gone")
	}
}
