package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// TestRecomputedOnce: a request that is preempted while it computes lost tokens again must not count those that it
// had not come to. Blocks of 1 token, 8 of them, no cache; steps of 4 tokens at most.
func TestRecomputedOnce(t *testing.T) {
	w := &workload{
		Options: Options{MaxSeqs: 2, MaxBatchedTokens: 4},
		kv:      kvcache.Options{BlockSize: 1, Blocks: 8},
		requests: []arrival{
			{path: node(1, 7), input: 1, output: 7, cancel: Never},
			{path: node(2, 6), input: 3, output: 4, cancel: Never},
		},
	}
	got, _ := playEngine(t, w, models.FixedSteps(10*ms, 5*ms))
	want := []string{
		"0s r0 admitted", // 1 + 3 tokens
		"0s r1 admitted",
		"10ms r0 first token", // then 2 + 4, 3 + 5
		"10ms r1 first token",
		"20ms r1 preempted", // r0 4: the 5 tokens of r1 are lost, its 3 generated ones become part of what it computes
		"25ms r1 admitted",  // r0 5 + 3 tokens of the 6, all lost before
		"40ms r1 preempted", // r0 6
		"50ms r0 finished",  // r0 7; tokens at 10, 15, 20, 25, 40, 45, 50
		"50ms r1 admitted",  // 4 of 6
		"70ms r1 first token",
		"70ms r1 finished",
	}
	if lines := got.lines(); !slices.Equal(lines, want) {
		t.Errorf("got\n%q\nwant\n%q", lines, want)
	}
	r1 := got.requests[1]
	if r1.Computed != 3+3+6 || r1.Recomputed != (Recomputed{Preemption: 3 + 5}) || r1.Readmit != 6+6 || r1.Preemptions != 2 {
		t.Errorf("r1 computed %d tokens, %+v of them again, re-admitted %d", r1.Computed, r1.Recomputed, r1.Readmit)
	}
}

// TestRecomputedByCause: requests one after the other on two workers that share a history. Blocks of 4 tokens, 3 on each
// worker.
func TestRecomputedByCause(t *testing.T) {
	history := NewHistory(4)
	var engines []*Engine
	for worker := range 2 {
		e, err := New(Options{MaxSeqs: 1, MaxBatchedTokens: 100, Worker: worker}, models.FixedSteps(ms, ms), kvcache.Options{BlockSize: 4, Blocks: 3, PrefixCaching: true}, history)
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
	}
	long, short := node(1, 3), node(2, 2)
	now := time.Duration(0)
	for i, step := range []struct {
		worker   int
		path     []trace.Span
		input    int32
		computed int32
		want     Recomputed
	}{
		{0, long, 12, 12, Recomputed{}},
		{0, short, 8, 8, Recomputed{}},                  // evicts the last 2 blocks of the long one
		{0, long, 12, 8, Recomputed{Eviction: 8}},       // the first block is hit
		{0, long, 12, 4, Recomputed{}},                  // all are cached; that the last is computed again is no loss
		{1, long, 12, 12, Recomputed{Migration: 12}},    // worker 0 has computed it
		{1, node(2, 1), 5, 5, Recomputed{Migration: 4}}, // the fifth token is in no full block
		{1, node(3, 1), 4, 4, Recomputed{}},             // new to both; evicts the last block of the long one
		{1, short, 8, 4, Recomputed{Migration: 4}},      // only worker 0 has computed its second block
		{1, long, 12, 12, Recomputed{Eviction: 12}},
	} {
		r := &Request{ID: int32(i), Path: step.path, Input: step.input, Output: 1}
		e := engines[step.worker]
		e.Enqueue(now, r)
		if _, err := e.Schedule(now); err != nil {
			t.Fatal(err)
		}
		now = e.Next()
		e.EndStep()
		if r.Computed != step.computed || r.Recomputed != step.want {
			t.Errorf("request %d computed %d tokens, of these again %+v; want %d, %+v", i, r.Computed, r.Recomputed, step.computed, step.want)
		}
	}
}

// TestRecomputedAsFarAsItCame: of 12 lost tokens a request whose client gives up in its second step of 4 has computed 8
// again, though all were lost to it when it began.
func TestRecomputedAsFarAsItCame(t *testing.T) {
	history := NewHistory(2)
	history.computed(1, node(1, 3), 3) // another worker had them
	e, err := New(Options{MaxSeqs: 1, MaxBatchedTokens: 4, Groups: 1}, models.FixedSteps(ms, ms), kvcache.Options{BlockSize: 4, Blocks: 4, PrefixCaching: true}, history)
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{Path: node(1, 3), Input: 12, Output: 1}
	e.Enqueue(0, r)
	for now := range 2 {
		if _, err := e.Schedule(time.Duration(now) * ms); err != nil {
			t.Fatal(err)
		}
		if now == 0 {
			e.EndStep()
		}
	}
	if lost := r.Lost(); lost != (Recomputed{Migration: 12}) {
		t.Errorf("%+v was lost, want all", lost)
	}
	e.Cancel(ms, r)
	if r.Computed != 8 || r.Recomputed != (Recomputed{Migration: 8}) {
		t.Errorf("computed %d tokens, %+v of them again, want 8 and 8", r.Computed, r.Recomputed)
	}
}

// TestCancelledIsNotGenerated: two requests decode, one of them gives up within a step; its tokens leave the sum at once.
func TestCancelledIsNotGenerated(t *testing.T) {
	e, err := New(Options{MaxSeqs: 2, MaxBatchedTokens: 8, Groups: 1}, models.FixedSteps(ms, ms), kvcache.Options{BlockSize: 4, Blocks: 40}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, b := &Request{Path: node(1, 10), Input: 2, Output: 30, Group: 1}, &Request{ID: 1, Path: node(2, 10), Input: 2, Output: 30, Group: 1}
	e.Enqueue(0, a)
	e.Enqueue(0, b)
	for _, at := range []time.Duration{0, ms} { // prefill, then a leap of decode steps
		if _, err := e.Schedule(at); err != nil {
			t.Fatal(err)
		}
		if at == 0 {
			e.EndStep()
		}
	}
	now := 4*ms + ms/2
	if n := e.Generated(now, 1); n != 8 { // 1 of the prefill and 3 of decode steps, each
		t.Fatalf("%d tokens generated, want 8", n)
	}
	e.Cancel(now, a)
	for _, at := range []time.Duration{now, 5 * ms} {
		if n, want := e.Generated(at, 1), int64(at/ms); n != want {
			t.Errorf("%d tokens generated at %v, want %d", n, at, want)
		}
	}
	e.EndStep()
	if err := e.Check(); err != nil {
		t.Error(err)
	}
}

// TestTokensOfIdlePrompt: r1 gets no block for its 28th token at 145 ms and is its own victim, for r2, which came last, ranks
// first. So the step from there to 150 ms leaves out r2's prompt, of which the one before has computed 11 tokens.
func TestTokensOfIdlePrompt(t *testing.T) {
	shared := []trace.Span{{Key: trace.MakeKey(1, 0), From: 0, To: 6}}
	first := node(2, 2)
	w := &workload{
		Options: Options{MaxSeqs: 5, MaxBatchedTokens: 5, StateBlocks: 2, Async: true, Ranked: true},
		kv:      kvcache.Options{BlockSize: 3, Blocks: 23, PrefixCaching: true},
		requests: []arrival{
			{path: shared, input: 1, output: 18, rank: 1, cancel: Never},
			{path: below(shared, 3, 3), input: 26, output: 4, rank: 2, cancel: Never},
			{at: 4 * ms, path: below(first, 4, 6), input: 19, output: 6, cancel: Never},
			{path: first, input: 1, output: 8, rank: 1, cancel: Never},
		},
		looks: []time.Duration{140 * ms, 147 * ms},
	}
	got, _ := playEngine(t, w, models.FixedSteps(10*ms, 5*ms))
	var tokens []int32
	for _, h := range got.log {
		if h.id == 2 && h.what == "has tokens" {
			tokens = append(tokens, h.hit)
		}
	}
	if want := []int32{8, 11}; !slices.Equal(tokens, want) {
		t.Errorf("r2 has %d tokens while its prompt is computed, want %d", tokens, want)
	}
	if !slices.Contains(got.lines(), "145ms r1 preempted") {
		t.Errorf("r1 was to lose its blocks:\n%q", got.lines())
	}
}
