package sim

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
)

// twoRanks is fixed with two data-parallel ranks.
func twoRanks(model string) Deployment {
	d := fixed()
	d.Model, d.Parallelism.Tensor, d.Parallelism.Data = model, 1, 2
	return d
}

// TestRanksStepTogether: of two requests, one on each rank, the second arrives in the middle of a step. With experts it
// waits for that step's end, and its prefill holds up the first; ranks of a dense model are engines of their own.
//
//	experts                                              dense
//	 0 ms  A (8 tokens, 3 out): prefill of 10 ms           0 ms  A: 10 ms
//	 4 ms  B (6 tokens, 2 out) waits                       4 ms  B: 10 ms
//	10 ms  A decodes, B prefills: 10 ms                   10 ms  A decodes: 5 ms, and again at 15 ms
//	20 ms  A's second token, B's first; both decode: 5    14 ms  B decodes: 5 ms
//	25 ms  both end                                       20 ms  A has ended; B did at 19 ms
func TestRanksStepTogether(t *testing.T) {
	w := compile(t,
		session("a", 100, trace.Turn{Input: 8, Output: 3, Start: 0, End: 30 * ms}),
		session("b", 200, trace.Turn{Input: 6, Output: 2, Start: 4 * ms, End: 30 * ms}))
	for model, want := range map[string][][3]time.Duration{
		"qwen3-30b-a3b": {{0, 10 * ms, 25 * ms}, {4 * ms, 20 * ms, 25 * ms}},
		"qwen3-14b":     {{0, 10 * ms, 20 * ms}, {4 * ms, 14 * ms, 19 * ms}},
	} {
		res := mustRun(t, w, twoRanks(model))
		if d := cmp.Diff(want, times(res)); d != "" {
			t.Errorf("%s: %s", model, d)
		}
		if res.Requests[0].Worker == res.Requests[1].Worker {
			t.Errorf("%s: both on rank %d", model, res.Requests[0].Worker)
		}
	}
}

// TestGroupsAreApart: the ranks of one worker do not wait for those of another, nor is a leap of theirs cut.
func TestGroupsAreApart(t *testing.T) {
	var sessions []*trace.Session
	for i, id := range []string{"a", "b", "c", "d"} { // on ranks 0 to 3
		start := time.Duration(i) * 4 * ms
		sessions = append(sessions, session(id, uint64(i)*100+1, trace.Turn{Input: 8, Output: 3, Start: start, End: start + 30*ms}))
	}
	w := compile(t, sessions...)
	d := twoRanks("qwen3-30b-a3b")
	d.Workers = 2
	got := times(mustRun(t, w, d))
	want := [][3]time.Duration{
		{0, 10 * ms, 25 * ms},       // 0 to 10, with B's prefill to 20, to 25
		{4 * ms, 20 * ms, 30 * ms},  // 10 to 20, to 25, to 30
		{8 * ms, 18 * ms, 33 * ms},  // the same 8 ms later on the other worker
		{12 * ms, 28 * ms, 38 * ms}, //
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestSoloOfARank: a program alone is on one rank of its worker, and the others run along.
func TestSoloOfARank(t *testing.T) {
	w := compile(t, session("a", 100, trace.Turn{Input: 8, Output: 3, Start: 0, End: 30 * ms}))
	p, err := twoRanks("qwen3-30b-a3b").Resolve()
	if err != nil {
		t.Fatal(err)
	}
	solo, err := Solo(context.Background(), w, p, Options{Check: true})
	if err != nil || len(solo) != 1 || solo[0] != 20*ms {
		t.Errorf("alone it takes %v (%v), want 20ms", solo, err)
	}
}
