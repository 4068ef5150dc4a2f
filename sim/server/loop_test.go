package server

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/convert"
	"github.com/agentsim/agentsim/trace/wire"
)

// What a server does with requests that come at the times of a trace is what is predicted for the trace. The tolerance is
// for the machine, and grows with how late that makes the server: TestServiceIsTheRun compares the two without clock and network.
func TestServedAsPredicted(t *testing.T) {
	const block = 64
	var lines strings.Builder
	for i := range 60 { // families of six share their first ten blocks
		var ids []string
		for k := range 12 + i%5 {
			id := 1000*i + k
			if k < 10 {
				id = 100*(i%10) + k
			}
			ids = append(ids, fmt.Sprint(id))
		}
		fmt.Fprintf(&lines, `{"timestamp":%d,"input_length":%d,"output_length":%d,"hash_ids":[%s]}`+"\n", 40*i, block*len(ids), 10+i%20, strings.Join(ids, ","))
	}
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	capture, err := convert.Open(context.Background(), []string{file}, convert.Options{BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	if err := capture.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := capture.Compile(trace.OutputsNone)
	if err != nil {
		t.Fatal(err)
	}
	d := deployment()
	d.Cost.Prefill = 20 * time.Millisecond
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	res, err := sim.Run(context.Background(), w, p, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var want, got means
	for _, r := range res.Requests {
		want.add(r.FirstToken-r.Arrival, r.End-r.Arrival, int64(r.Hit), int64(r.Input))
	}

	s, url := start(t, d, Options{})
	begun := time.Now()
	var mu sync.Mutex
	var wait sync.WaitGroup
	for i := range w.Calls {
		c := &w.Calls[i]
		var tokens []uint32
		for _, h := range c.Turn.Hashes {
			for k := range block {
				tokens = append(tokens, uint32(h)*block+uint32(k))
			}
		}
		body := fmt.Sprintf(`{"prompt":[%s],"max_tokens":%d,"ignore_eos":true,%s}`, wire.AppendTokens(nil, tokens), c.Output, streamed)
		wait.Go(func() {
			time.Sleep(time.Until(begun.Add(w.Programs[c.Program].Start)))
			r, err := send(context.Background(), url, "/v1/completions", body)
			if err != nil || !r.done {
				t.Errorf("call %d: %+v, %v", i, r, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			got.add(r.first, r.end, r.counts()[1], r.counts()[0])
		})
	}
	wait.Wait()
	t.Logf("predicted %v, served %v", want, got)
	if got.n != want.n || got.input != want.input {
		t.Fatalf("%d requests of %d tokens, want %d of %d", got.n, got.input, want.n, want.input)
	}
	near := func(what string, got, want, tolerance float64) {
		if math.Abs(got-want) > tolerance {
			t.Errorf("%s is %.4f, predicted %.4f", what, got, want)
		}
	}
	n := float64(want.n)
	slack := 0.015 + 3*s.Lag().P99.Seconds()
	near("mean time to first token, s", got.first/n, want.first/n, slack)
	near("mean latency, s", got.end/n, want.end/n, slack)
	near("hit rate", float64(got.hit)/float64(got.input), float64(want.hit)/float64(want.input), 0.005)
}

// means adds up what clients saw.
type means struct {
	n          int
	first, end float64 // seconds
	hit, input int64
}

func (m *means) add(first, end time.Duration, hit, input int64) {
	m.n++
	m.first += first.Seconds()
	m.end += end.Seconds()
	m.hit += hit
	m.input += input
}
