package server

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
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
	calls      []wire.ToolCall // with their arguments joined
	tokens     []uint32
	prompt     []uint32
	events     int // that generate
	finish     string
	stop       string // the stop string that ended it
	usage      wire.Usage
	failure    *wire.Error
	done       bool // [DONE] came
	ended      bool // message_stop came
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
	for _, part := range c.ToolCalls {
		if part.Name != "" {
			r.calls = append(r.calls, wire.ToolCall{Index: part.Index, ID: part.ID, Name: part.Name})
		}
		if n := len(r.calls); n > 0 {
			r.calls[n-1].Arguments += part.Arguments
		}
	}
	r.tokens = append(r.tokens, c.TokenIDs...)
	r.prompt = append(r.prompt, c.PromptTokenIDs...)
	r.usage.Update(c.Usage)
	if c.Generates() {
		r.events++
	}
	if c.Finish != "" {
		r.finish, r.stop = c.Finish, c.Stop
	}
	r.ended = r.ended || c.End
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

// scrape reads /metrics. AIPerf 0.13 reads counters, gauges and histograms, and leaves summaries out.
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
		if strings.HasPrefix(line, "# TYPE ") && !slices.Contains([]string{"counter", "gauge", "histogram"}, line[at+1:]) {
			t.Errorf("metrics line %q: want a counter, gauge or histogram", line)
		}
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
