package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace/wire"
)

// deployment is one worker whose steps take 20 ms with prefill and 10 ms without, in blocks of 16 tokens.
func deployment() sim.Deployment {
	d := sim.Default()
	d.Model, d.Parallelism.Tensor, d.Load.Mode = "qwen3-14b", 1, "closed"
	d.Cost = sim.Cost{Profile: "fixed", Prefill: 10 * time.Millisecond, Decode: 10 * time.Millisecond}
	return d
}

// start serves a deployment for the time of a test.
func start(t testing.TB, d sim.Deployment, o Options) (*Server, string) {
	t.Helper()
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, h.URL
}

// reply is what a client saw of an answer.
type reply struct {
	status     int
	header     http.Header
	body       string // of an answer that was not streamed
	text       string
	reasoning  string
	tokens     []uint32
	prompt     []uint32
	events     int // that generate
	finish     string
	usage      wire.Usage
	failure    *wire.Error
	done       bool
	first, end time.Duration
	err        error // of reading
}

// ask sends a request and reads the answer to its end.
func ask(t testing.TB, url, path, body string, headers ...string) *reply {
	t.Helper()
	r, err := send(context.Background(), url, path, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func send(ctx context.Context, url, path, body string, headers ...string) (*reply, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	begun := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	r := &reply{status: resp.StatusCode, header: resp.Header}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		text, err := io.ReadAll(resp.Body)
		var c wire.Chunk
		if r.body, r.err = string(text), err; c.Parse(text) == nil {
			r.take(&c)
		}
		r.end = time.Since(begun)
		return r, nil
	}
	var stream wire.Stream
	buf := make([]byte, 8<<10)
	for {
		n, err := resp.Body.Read(buf)
		stream.Feed(buf[:n])
		if err == io.EOF {
			stream.End()
		}
		for e, ok := stream.Next(); ok; e, ok = stream.Next() {
			if e.Done() {
				r.done = true
				continue
			}
			var c wire.Chunk
			if err := c.Parse(e.Data); err != nil {
				return r, err
			}
			if c.Generates() && r.events == 0 {
				r.first = time.Since(begun)
			}
			r.take(&c)
		}
		if err != nil {
			if r.end = time.Since(begun); err != io.EOF {
				r.err = err
			}
			return r, nil
		}
	}
}

func (r *reply) take(c *wire.Chunk) {
	r.text += c.Text
	r.reasoning += c.Reasoning
	r.tokens = append(r.tokens, c.TokenIDs...)
	r.prompt = append(r.prompt, c.PromptTokenIDs...)
	r.usage.Update(c.Usage)
	if c.Generates() {
		r.events++
	}
	if c.Finish != "" {
		r.finish = c.Finish
	}
	if c.Err != nil {
		r.failure = c.Err
	}
}

// counts is the usage in figures: prompt, cached, completion.
func (r *reply) counts() [3]int64 {
	var n [3]int64
	for i, p := range []*int64{r.usage.Prompt, r.usage.Cached, r.usage.Completion} {
		if n[i] = -1; p != nil {
			n[i] = *p
		}
	}
	return n
}

// ids is a prompt of n token ids from a number on, as JSON.
func ids(from, n int) string {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(from + i)
	}
	return "[" + string(wire.AppendTokens(nil, tokens)) + "]"
}

const streamed = `"stream":true,"stream_options":{"include_usage":true}`

// The answer comes on the simulated clock: 20 ms of prefill, 10 ms a token.
func TestCompletion(t *testing.T) {
	_, url := start(t, deployment(), Options{})
	body := fmt.Sprintf(`{"model":"qwen3-14b","prompt":%s,"max_tokens":20,"min_tokens":20,"ignore_eos":true,"return_token_ids":true,%s}`, ids(1000, 100), streamed)
	r := ask(t, url, "/v1/completions", body)
	if r.status != 200 || !r.done || r.finish != "length" || r.events != 20 || len(r.tokens) != 20 || len(r.prompt) != 100 || r.counts() != [3]int64{100, 0, 20} {
		t.Errorf("answer %+v, usage %v", r, r.counts())
	}
	if want := 10 * time.Millisecond; r.first < want || r.first > want+20*time.Millisecond {
		t.Errorf("the first token came after %v, want %v", r.first, want)
	}
	if want := 200 * time.Millisecond; r.end < want || r.end > want+30*time.Millisecond {
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
		{`"trace_decode_token_ids":[5,6,7],"max_tokens":3,"return_token_ids":true`, "length", 3, 3},
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
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Millisecond)
	defer cancel()
	_, _ = send(ctx, url, "/v1/completions", `{"prompt":"a","max_tokens":10000,"ignore_eos":true,`+streamed+`}`)
	var running, streams int
	for range 100 {
		err := s.do(context.Background(), func(c *core) { running, streams = c.service.Load(0).Running, len(c.streams) })
		if err != nil {
			t.Fatal(err)
		}
		if running+streams == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if running+streams > 0 {
		t.Errorf("%d requests run and %d streams are there, want none", running, streams)
	}
	if m := scrape(t, url); m[`vllm:request_success_total{finished_reason="abort",model_name="qwen3-14b"}`] != 1 {
		t.Error("the abort is not counted")
	}
}

// scrape reads /metrics.
func scrape(t testing.TB, url string) map[string]float64 {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if line == "" || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("metrics line %q: %v", line, err)
		}
		all[line[:at]] = v
	}
	return all
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
		`vllm:time_to_first_token_seconds_bucket{le="0.01",}`:   3, // the simulated clock is exact
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
		s, url := start(t, d, Options{TimeScale: 50})
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
