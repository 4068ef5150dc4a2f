package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace/wire"
)

// The answer comes on the simulated clock: 20 ms of prefill, 10 ms a token.
func TestCompletion(t *testing.T) {
	_, url := start(t, deployment(), Options{})
	body := fmt.Sprintf(`{"model":"qwen3-14b","prompt":%s,"max_tokens":20,"min_tokens":20,"ignore_eos":true,"return_token_ids":true,%s}`, ids(1000, 100), streamed)
	r := ask(t, url, "/v1/completions", body)
	if r.status != 200 || !r.done || r.finish != "length" || r.events != 20 || len(r.tokens) != 20 || len(r.prompt) != 100 || r.counts() != [3]int64{100, 0, 20} {
		t.Errorf("answer %+v, usage %v", r, r.counts())
	}
	const slack = 250 * time.Millisecond // for a busy machine
	if want := 10 * time.Millisecond; r.first < want || r.first > want+slack {
		t.Errorf("the first token came after %v, want %v", r.first, want)
	}
	if want := 200 * time.Millisecond; r.end < want || r.end > want+slack {
		t.Errorf("the last token came after %v, want %v", r.end, want)
	}
	// The same prompt again: all but the block with its last token is cached.
	if r := ask(t, url, "/v1/completions", body); r.counts() != [3]int64{100, 96, 20} {
		t.Errorf("usage of the same prompt again is %v, want 96 of 100 tokens cached", r.counts())
	}
	// A prompt that goes on behind the answer finds the answer cached as well, but for its last token.
	next := "[" + string(wire.AppendTokens(nil, slices.Concat(r.prompt, r.tokens, r.prompt))) + "]"
	got := ask(t, url, "/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":1,%s}`, next, streamed))
	if got.counts() != [3]int64{220, 112, 1} {
		t.Errorf("usage of the next turn is %v, want 112 of 220 tokens cached", got.counts())
	}
}

// A chat whose answers are sent back as text finds them cached too.
func TestChat(t *testing.T) {
	_, url := start(t, deployment(), Options{TimeScale: 20})
	message := func(role, text string) string { return fmt.Sprintf(`{"role":%q,"content":%q}`, role, text) }
	first := message("user", strings.Repeat("some words to say ", 20))
	r := ask(t, url, "/v1/chat/completions", fmt.Sprintf(`{"messages":[%s],"max_tokens":64,"ignore_eos":true,%s}`, first, streamed))
	if !r.done || r.events != 64 || r.finish != "length" || r.counts()[1] != 0 {
		t.Fatalf("answer %+v, usage %v", r, r.counts())
	}
	total := r.counts()[0] + r.counts()[2]
	whole := ask(t, url, "/v1/chat/completions", fmt.Sprintf(`{"messages":[%s,%s,%s],"max_tokens":5}`, first, message("assistant", r.text), message("user", "go on")))
	if hit := whole.counts()[1]; hit < total-17 || hit > total {
		t.Errorf("%d tokens of the second turn are cached, want nearly the %d of the first and its answer", hit, total)
	}
	if !strings.Contains(whole.body, `"object":"chat.completion"`) || !strings.Contains(whole.body, `"role":"assistant"`) {
		t.Errorf("an answer that is not streamed is %s", whole.body)
	}
}

// Without ignore_eos answers end by themselves, within min_tokens and max_tokens; a seed makes them the same.
func TestLengths(t *testing.T) {
	_, url := start(t, deployment(), Options{TimeScale: 1000, OutputTokens: 30})
	tests := []struct {
		parameters, finish string
		least, most        int64
	}{
		{`"max_tokens":10000`, "stop", 1, 9999},
		{`"max_tokens":200,"min_tokens":190`, "", 190, 200},
		{`"max_tokens":7,"ignore_eos":true`, "length", 7, 7},
		{`"max_completion_tokens":3,"max_tokens":9,"ignore_eos":true`, "length", 3, 3},
		{`"trace_decode_token_ids":[5,6,7],"return_token_ids":true`, "length", 3, 3},
		{`"n":1`, "", 1, 16}, // the default of completions
	}
	for _, test := range tests {
		r := ask(t, url, "/v1/completions", `{"prompt":"a b c",`+test.parameters+`}`)
		if n := r.counts()[2]; r.status != 200 || n < test.least || n > test.most || test.finish != "" && r.finish != test.finish {
			t.Errorf("%s: status %d, %d tokens, finish %q; want %d to %d, %q", test.parameters, r.status, n, r.finish, test.least, test.most, test.finish)
		}
		if strings.Contains(test.parameters, "[5,6,7]") && !slices.Equal(r.tokens, []uint32{5, 6, 7}) {
			t.Errorf("forced tokens are %v", r.tokens)
		}
	}
	seeded := func() string {
		return ask(t, url, "/v1/completions", `{"prompt":"a b c","seed":4,"max_tokens":50}`).text
	}
	if a, b := seeded(), seeded(); a != b || a == "" {
		t.Errorf("the same seed gives %q and %q", a, b)
	}
}

func TestRefusals(t *testing.T) {
	d := deployment()
	d.Engine.MaxModelLen = 200
	_, url := start(t, d, Options{TimeScale: 100})
	tests := []struct {
		name, path, body string
		status           int
		message          string
	}{
		{"no JSON", "/v1/completions", `{`, 400, "request body"},
		{"no prompt", "/v1/completions", `{}`, 400, "prompt"},
		{"empty prompt", "/v1/completions", `{"prompt":[]}`, 400, "empty"},
		{"other model", "/v1/completions", `{"model":"gpt","prompt":"a"}`, 404, "The model `gpt` does not exist."},
		{"several prompts", "/v1/completions", `{"prompt":["a","b"]}`, 400, "2 prompts in one request"},
		{"several answers", "/v1/completions", `{"prompt":"a","n":2}`, 400, "n and best_of"},
		{"echo", "/v1/completions", `{"prompt":"a","echo":true}`, 400, "echo"},
		{"no messages", "/v1/chat/completions", `{"messages":[]}`, 400, "messages"},
		{"prompt beyond the context", "/v1/completions", `{"prompt":` + ids(5, 200) + `}`, 400, "This model's maximum context length is 200 tokens. However, your request has 200 input tokens."},
		{"answer beyond the context", "/v1/completions", `{"prompt":` + ids(5, 150) + `,"max_tokens":51}`, 400, "(51 > 200 - 150)"},
		{"max_tokens 0", "/v1/completions", `{"prompt":"a","max_tokens":0}`, 400, "at least 1"},
		{"min above max", "/v1/completions", `{"prompt":"a","max_tokens":2,"min_tokens":3}`, 400, "min_tokens"},
		{"no such path", "/v1/nothing", `{}`, 404, ""},
		{"a path out of the tree", "/../../etc/passwd", `{}`, 404, ""},
	}
	for _, test := range tests {
		r := ask(t, url, test.path, test.body)
		if got := wire.ParseError(r.status, []byte(r.body)); r.status != test.status || !strings.Contains(got.Message, test.message) {
			t.Errorf("%s: %v, want status %d and %q", test.name, got, test.status, test.message)
		}
	}
	if r := ask(t, url, "/v1/completions", `{"prompt":["a b"],"max_tokens":2}`); r.status != 200 {
		t.Errorf("a list of one prompt: status %d", r.status)
	}
}

// A client that goes away gives its place to others.
func TestDisconnect(t *testing.T) {
	s, url := start(t, deployment(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = send(ctx, url, "/v1/completions", `{"prompt":"a","max_tokens":10000,"ignore_eos":true,`+streamed+`}`)
	}()
	wait := func(want int) {
		t.Helper()
		running, streams := -1, -1
		for range 1000 {
			if err := s.do(t.Context(), func(c *core) { running, streams = c.service.Load(0).Running, len(c.streams) }); err != nil {
				t.Fatal(err)
			}
			if running == want && streams == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("%d requests run and %d streams are there, want %d", running, streams, want)
	}
	wait(1)
	cancel()
	wait(0)
	if m := scrape(t, url); m[`vllm:request_success_total{finished_reason="abort",model_name="qwen3-14b"}`] != 1 {
		t.Error("the abort is not counted")
	}
}

func TestMetrics(t *testing.T) {
	_, url := start(t, deployment(), Options{})
	for range 3 {
		ask(t, url, "/v1/completions", `{"prompt":`+ids(7, 100)+`,"max_tokens":10,"ignore_eos":true}`)
	}
	m := scrape(t, url)
	for name, want := range map[string]float64{
		`vllm:prompt_tokens_total{}`:                            300,
		`vllm:generation_tokens_total{}`:                        30,
		`vllm:prefix_cache_queries_total{}`:                     300,
		`vllm:prefix_cache_hits_total{}`:                        192, // 96 of each but the first
		`vllm:num_preemptions_total{}`:                          0,
		`vllm:num_requests_running{engine="0",}`:                0,
		`vllm:num_requests_waiting{engine="0",}`:                0,
		`vllm:kv_cache_usage_perc{engine="0",}`:                 0,
		`vllm:request_success_total{finished_reason="length",}`: 3,
		`vllm:time_to_first_token_seconds_count{}`:              3,
		`vllm:time_to_first_token_seconds_bucket{le="0.25",}`:   3, // 10 ms of prefill, and what the machine adds
		`vllm:inter_token_latency_seconds_count{}`:              27,
		`vllm:e2e_request_latency_seconds_count{}`:              3,
		`vllm:e2e_request_latency_seconds_bucket{le="+Inf",}`:   3,
	} {
		name = strings.Replace(name, "}", `model_name="qwen3-14b"}`, 1)
		if got, ok := m[name]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", name, got, ok, want)
		}
	}
}

func TestRoutes(t *testing.T) {
	_, url := start(t, deployment(), Options{Names: []string{"a/b", "c"}})
	get := func(path string) string {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
		return string(text)
	}
	if text := get("/v1/models"); !strings.Contains(text, `"id":"a/b"`) || !strings.Contains(text, `"max_model_len":40960`) || !strings.Contains(text, `"id":"c"`) {
		t.Errorf("models: %s", text)
	}
	get("/health")
	if text := get("/version"); !strings.Contains(text, `"version":"0.19"`) {
		t.Errorf("version: %s", text)
	}
	var tokens struct {
		Count  int
		Tokens []uint32
	}
	r := ask(t, url, "/tokenize", `{"prompt":"hello big world"}`)
	if err := json.Unmarshal([]byte(r.body), &tokens); err != nil || tokens.Count != 3 || !slices.Equal(tokens.Tokens, appendTokens(nil, "hello big world")) {
		t.Errorf("tokenize: %s", r.body)
	}
}

// Sessions that do not fit together take turns, by ThunderAgent's table, and only those that name themselves.
func TestSessions(t *testing.T) {
	for _, named := range []bool{true, false} {
		d := deployment()
		d.Router.Policy, d.Engine.KVBlocks = "thunderagent", "100"
		s, url := start(t, d, Options{TimeScale: 20})
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				var headers []string
				if named {
					headers = []string{wire.HeaderSession, fmt.Sprint("s", i), wire.HeaderFinal, "true"}
				}
				for turn := range 2 {
					r, err := send(context.Background(), url, "/v1/completions",
						fmt.Sprintf(`{"prompt":%s,"max_tokens":50,"ignore_eos":true}`, ids(1000*i, 900)), headers[:min(len(headers), 2+2*turn)]...)
					if err != nil || r.status != 200 {
						t.Errorf("session %d: %+v, %v", i, r, err)
					}
				}
			})
		}
		wait.Wait()
		deferred := int64(0)
		if err := s.do(context.Background(), func(c *core) { deferred = c.service.Scheduler().Deferred }); err != nil {
			t.Fatal(err)
		}
		if named != (deferred > 0) {
			t.Errorf("sessions named %v: %d requests were held", named, deferred)
		}
	}
}

// However many prompts there were, the server remembers those that its caches hold.
func TestMemoryIsBounded(t *testing.T) {
	d := deployment()
	d.Engine.KVBlocks = "101"
	s, url := start(t, d, Options{TimeScale: 1000})
	for i := range 200 {
		r := ask(t, url, "/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":20,"ignore_eos":true}`, ids(1000+i, 300)))
		if r.status != 200 {
			t.Fatalf("request %d: %+v", i, r)
		}
	}
	nodes, blocks := 0, 0
	if err := s.do(context.Background(), func(c *core) {
		for _, n := range c.prefixes.nodes {
			nodes++
			blocks += len(n.hashes)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if nodes == 0 || nodes > 10 || blocks > 200 {
		t.Errorf("%d nodes of %d blocks are remembered, want a few: the cache holds 100 blocks", nodes, blocks)
	}
}

// A server that has stopped says so.
func TestStopped(t *testing.T) {
	p, err := deployment().Resolve()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	defer h.Close()
	if r := ask(t, h.URL, "/v1/completions", `{"prompt":"a","max_tokens":5}`); r.status != 503 {
		t.Errorf("status %d, want 503", r.status)
	}
	if resp, err := http.Get(h.URL + "/metrics"); err != nil || resp.StatusCode != 503 {
		t.Errorf("metrics: %v, %v, want status 503", resp, err)
	}
}
