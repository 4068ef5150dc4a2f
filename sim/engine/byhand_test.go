package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

const ms = time.Millisecond

// node returns the path of a request that lies in one tree node.
func node(id trace.NodeID, blocks int32) []trace.Span {
	return []trace.Span{{Key: trace.MakeKey(id, 0), From: 0, To: blocks}}
}

// below returns a path that goes on in a child node.
func below(path []trace.Span, id trace.NodeID, blocks int32) []trace.Span {
	from := path[len(path)-1].To
	return append(slices.Clone(path), trace.Span{Key: trace.MakeKey(id, 0), From: from, To: from + blocks})
}

// lines are a run's log as text: the time, the request, what happened, and for admissions the tokens found cached.
func (r run) lines() []string {
	var lines []string
	cached := map[int32]int32{}
	for _, h := range r.log {
		line := fmt.Sprintf("%v r%d %s", h.at, h.id, h.what)
		if sum := h.hit + h.readmitHit; sum > cached[h.id] {
			line += fmt.Sprintf(", %d cached", sum-cached[h.id])
			cached[h.id] = sum
		}
		lines = append(lines, line)
	}
	return lines
}

// playEngine runs a workload on a new engine and returns both.
func playEngine(t *testing.T, w *workload, cost *models.StepCost) (run, *Engine) {
	t.Helper()
	o := w.Options
	o.Groups = 2
	e, err := New(o, cost, w.kv, NewHistory(20))
	if err != nil {
		t.Fatal(err)
	}
	r, err := play(e, w, nil, func(time.Duration) error { return e.Check() })
	if err != nil {
		t.Fatal(err)
	}
	return r, e
}

// TestByHand follows small workloads through every step. A step takes 10 ms when it computes prompt tokens, and 5 ms
// more when it generates any.
func TestByHand(t *testing.T) {
	wide := Options{MaxSeqs: 8, MaxBatchedTokens: 8192, ReserveFull: true}
	roomy := kvcache.Options{BlockSize: 16, Blocks: 100, PrefixCaching: true}
	chunked := Options{MaxSeqs: 8, MaxBatchedTokens: 100, ReserveFull: true}
	tight := Options{MaxSeqs: 8, MaxBatchedTokens: 8, ReserveFull: true}
	tightByChunk := Options{MaxSeqs: 8, MaxBatchedTokens: 8}
	pair := []arrival{
		{path: node(1, 3), input: 8, output: 5, cancel: Never},
		{path: node(2, 4), input: 16, output: 1, cancel: Never},
	}
	for _, test := range []struct {
		name     string
		options  Options
		kv       kvcache.Options
		requests []arrival
		want     []string
	}{
		{"a prefill joins a decode", wide, roomy, []arrival{
			{at: 0, path: node(1, 6), input: 100, output: 3, cancel: Never},
			{at: 4 * ms, path: node(2, 3), input: 50, output: 2, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token", // 0 + 10
			"10ms r1 admitted",    // it waited for the step in flight
			"25ms r1 first token", // 10 + 10 + 5: r0's second token is in this step
			"30ms r0 finished",    // 25 + 5: the last tokens of both
			"30ms r1 finished",
		}},
		{"a prefill misses a step that is scheduled already", Options{MaxSeqs: 8, MaxBatchedTokens: 8192, ReserveFull: true, Async: true}, roomy, []arrival{
			{at: 0, path: node(1, 6), input: 100, output: 4, cancel: Never},
			{at: 4 * ms, path: node(2, 3), input: 50, output: 2, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"15ms r1 admitted",    // the step from 10 to 15 was scheduled at 0
			"30ms r1 first token", // 15 + 10 + 5: r0's third token
			"35ms r0 finished",
			"35ms r1 finished",
		}},
		{"a prompt in chunks", chunked, roomy, []arrival{
			{path: node(1, 15), input: 250, output: 2, cancel: Never},
			{path: node(2, 1), input: 30, output: 1, cancel: Never},
		}, []string{
			"0s r0 admitted",      // 100 of 250 tokens; the next step takes 100 more
			"20ms r1 admitted",    // r0's last 50 leave 50 of the budget
			"30ms r0 first token", // 3 steps of 10
			"30ms r1 first token",
			"30ms r1 finished",
			"35ms r0 finished",
		}},
		{"arrivals at a step's end and just after", wide, roomy, []arrival{
			{at: 0, path: node(1, 1), input: 16, output: 4, cancel: Never},
			{at: 15 * ms, path: node(2, 1), input: 16, output: 1, cancel: Never},
			{at: 15*ms + 1, path: node(3, 1), input: 16, output: 1, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"15ms r1 admitted", // the step from 10 to 15 has ended: r1 is in the next
			"30ms r1 first token",
			"30ms r1 finished",
			"30ms r2 admitted", // a nanosecond too late for the step that began at 15
			"45ms r0 finished", // tokens at 10, 15, 30 and 45
			"45ms r2 first token",
			"45ms r2 finished",
		}},
		{"the last running one is preempted and recomputed", wide, kvcache.Options{BlockSize: 4, Blocks: 5, PrefixCaching: true}, []arrival{
			{path: node(1, 3), input: 7, output: 6, cancel: Never},
			{path: node(2, 3), input: 7, output: 6, cancel: Never},
		}, []string{
			"0s r0 admitted", // 2 blocks each
			"0s r1 admitted",
			"10ms r0 first token",
			"10ms r1 first token",
			"15ms r1 preempted", // both have 8 tokens and need a third block; r0 takes the last one, r1 is its own victim
			// r1 has 9 tokens now, 7 of its prompt and 2 generated: 3 blocks, of which 2 are cached. 2 are free: it waits.
			"35ms r0 finished",           // tokens at 10, 15, 20, 25, 30, 35
			"35ms r1 admitted, 8 cached", // it computes one token to get its third
			"45ms r1 first token",
			"60ms r1 finished", // tokens 4 to 6 at 50, 55, 60
		}},
		{"a preempted prompt without cache", wide, kvcache.Options{BlockSize: 4, Blocks: 5}, []arrival{
			{path: node(1, 3), input: 7, output: 6, cancel: Never},
			{path: node(2, 3), input: 7, output: 6, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"0s r1 admitted",
			"10ms r0 first token",
			"10ms r1 first token",
			"15ms r1 preempted",
			"35ms r0 finished",
			"35ms r1 admitted", // it computes 9 tokens
			"45ms r1 first token",
			"60ms r1 finished",
		}},
		{"the whole prompt must fit", tight, kvcache.Options{BlockSize: 4, Blocks: 6, PrefixCaching: true}, pair, []string{
			"0s r0 admitted", // 8 tokens use up the budget
			"10ms r0 first token",
			// r0 takes a third block for its ninth token. r1 needs 4, and 3 are free.
			"30ms r0 finished", // tokens at 10, 15, 20, 25, 30
			"30ms r1 admitted",
			"50ms r1 first token", // 16 tokens by 8
			"50ms r1 finished",
		}},
		{"the first chunk must fit", tightByChunk, kvcache.Options{BlockSize: 4, Blocks: 6, PrefixCaching: true}, pair, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"10ms r1 admitted",           // 8 - 1 tokens of the budget: 7, 2 blocks of 3
			"25ms r1 preempted",          // the next 7 need 2 blocks more, and 1 is free
			"30ms r1 admitted, 4 cached", // one of its blocks was full. 7 tokens more make 11: 3 blocks, and 3 are free
			"45ms r1 preempted",          // the last 5 need a fourth
			"50ms r0 finished",           // tokens at 10, 25, 30, 45, 50
			"50ms r1 admitted, 8 cached", // two full blocks this time
			"60ms r1 first token",
			"60ms r1 finished",
		}},
		{"a cached prompt computes its last block again", wide, kvcache.Options{BlockSize: 4, Blocks: 3, PrefixCaching: true}, []arrival{
			{at: 0, path: node(1, 2), input: 8, output: 1, cancel: Never},
			{at: 20 * ms, path: node(1, 2), input: 8, output: 1, cancel: Never},
			{at: 40 * ms, path: node(2, 1), input: 4, output: 1, cancel: Never},
			{at: 60 * ms, path: below(node(1, 2), 3, 1), input: 9, output: 1, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"10ms r0 finished",
			"20ms r1 admitted, 4 cached", // 8 are, but its last token must be computed, and with it a block: the third
			"30ms r1 first token",
			"30ms r1 finished",
			// Of the blocks, r0's second was freed first, then r1's copy of it, then the first.
			"40ms r2 admitted", // it takes r0's second block
			"50ms r2 first token",
			"50ms r2 finished",
			"60ms r3 admitted, 8 cached", // the copy is there
			"70ms r3 first token",
			"70ms r3 finished",
		}},
		{"a client hangs up", wide, roomy, []arrival{
			{at: 0, path: node(1, 2), input: 16, output: 10, cancel: 17 * ms},
			{at: 0, path: node(2, 2), input: 16, output: 3, cancel: Never},
			{at: 12 * ms, path: node(3, 1), input: 16, output: 1, cancel: 13 * ms},
		}, []string{
			"0s r0 admitted",
			"0s r1 admitted",
			"10ms r0 first token",
			"10ms r1 first token",
			// r2 leaves the queue before the step from 10 to 15 ends. r0 is in the step from 15 to 20 until that ends.
			"20ms r1 finished",
		}},
		// A step that preempts admits nobody, but the one after it may.
		{"back after a step", tightByChunk, kvcache.Options{BlockSize: 2, Blocks: 6, PrefixCaching: true}, []arrival{
			{at: 0, path: node(1, 6), input: 7, output: 6, cancel: Never},
			{at: 10 * ms, path: node(1, 6), input: 6, output: 7, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"10ms r1 admitted, 4 cached", // its third block is a copy of r0's: 5 of 6 are in use
			"25ms r1 first token",
			"25ms r1 preempted",          // r0 goes from 8 tokens to 9 and takes the sixth; r1 goes from 6 to 7
			"30ms r1 admitted, 6 cached", // r0 has three of its four blocks, its copy has become free
			"45ms r1 first token",        // its second, in truth
			"45ms r1 preempted",          // r0 goes from 10 to 11
			"55ms r0 finished",           // tokens at 10, 25, 30, 45, 50, 55
			"55ms r1 admitted, 6 cached",
			"65ms r1 first token",
			"85ms r1 finished", // tokens 4 to 7 at 70, 75, 80, 85
		}},
		// What a waiting request lacks may be filled by a decode, without anything being freed.
		{"fits once a decode has filled a block", Options{MaxSeqs: 8, MaxBatchedTokens: 8192, ReserveFull: true},
			kvcache.Options{BlockSize: 4, Blocks: 3, PrefixCaching: true}, []arrival{
				{at: 0, path: node(1, 2), input: 5, output: 5, cancel: Never},
				{at: 10 * ms, path: below(node(1, 2), 2, 1), input: 9, output: 1, cancel: Never},
			}, []string{
				"0s r0 admitted", // 2 blocks
				"10ms r0 first token",
				// r1 needs 3 blocks. One is r0's first: it lacks 2, and 1 is free. At 20 r0 goes from 7 tokens to 8 and
				// fills its second block.
				"20ms r1 admitted, 8 cached",
				"35ms r1 first token",
				"35ms r1 finished",
				"40ms r0 finished", // tokens at 10, 15, 20, 35; its ninth token takes r1's block
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &workload{Options: test.options, kv: test.kv, requests: test.requests}
			got, _ := playEngine(t, w, models.FixedSteps(10*ms, 5*ms))
			if lines := got.lines(); !slices.Equal(lines, test.want) {
				t.Errorf("got\n%q\nwant\n%q", lines, test.want)
			}
		})
	}
}

// TestRealCostByHand: a prompt of 2000 and 3 tokens with llama-3.1-8b in bf16 on an H100, profile h100-vllm. What a step
// takes is worked out in package models; here, that a run is its three steps: the prompt, and a token after 2001 and
// 2002 tokens of context. A step ends in whole ns, and what is beyond counts in the next.
func TestRealCostByHand(t *testing.T) {
	model, err := models.Lookup("llama-3.1-8b")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := models.LookupGPU("h100-sxm")
	if err != nil {
		t.Fatal(err)
	}
	cost, err := (&models.Deployment{Model: model, GPU: gpu}).StepCost("h100-vllm")
	if err != nil {
		t.Fatal(err)
	}
	prompt := cost.Base(models.Batch{Prefills: 1, PrefillTokens: 2000, PrefillPairs: 2000 * 2000, PrefillContext: 2000})
	token := cost.Base(models.Batch{Decodes: 1})
	end := func(sum models.Fixed) time.Duration { return time.Duration(sum / models.FixedPerNs) }
	first := end(prompt)
	second := end(prompt + token + 2001*cost.PerContext())
	third := end(prompt + 2*token + 4003*cost.PerContext())
	w := &workload{
		Options:  Options{MaxSeqs: 8, MaxBatchedTokens: 8192, ReserveFull: true},
		kv:       kvcache.Options{BlockSize: 16, Blocks: 1000, PrefixCaching: true},
		requests: []arrival{{path: node(1, 125), input: 2000, output: 3, cancel: Never}},
		looks:    []time.Duration{second - 1, second},
	}
	got, e := playEngine(t, w, cost)
	want := []happening{
		{at: 0, what: "admitted"},
		{at: first, what: "first token"},
		{at: second - 1, what: "has tokens", hit: 2000},
		{at: second, what: "has tokens", hit: 2001},
		{at: third, what: "finished"},
	}
	if !slices.Equal(got.log, want) {
		t.Errorf("got %v, want %v", got.log, want)
	}
	if s := e.Stats; s.Busy != third || s.Steps != 3 || s.PrefillTokens != 2000 || s.DecodeTokens != 2 || s.PeakUsed != 126 {
		t.Errorf("stats are %+v", s)
	}
}

// TestLongSteps lets a leap of an hour a step take its time: 99 decodes after a prefill of an hour, although a Fixed
// holds 39 hours.
func TestLongSteps(t *testing.T) {
	w := &workload{Options: Options{MaxSeqs: 8, MaxBatchedTokens: 64, ReserveFull: true},
		kv:       kvcache.Options{BlockSize: 16, Blocks: 100, PrefixCaching: true},
		requests: []arrival{{path: node(1, 9), input: 10, output: 100, cancel: Never}}}
	r, _ := playEngine(t, w, models.FixedSteps(time.Hour, time.Hour))
	lines := r.lines()
	if want := "100h0m0s r0 finished"; lines[len(lines)-1] != want {
		t.Errorf("the run ends with %q, want %q", lines[len(lines)-1], want)
	}
}
