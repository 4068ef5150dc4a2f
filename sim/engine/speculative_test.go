package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// all returns the settings with which all of n drafts are accepted.
func all(n int) *Speculation {
	return &Speculation{Tokens: n, Acceptance: slices.Repeat([]float64{1}, n)}
}

// none returns those with which no draft is.
func none(n int) *Speculation { return &Speculation{Tokens: n, Acceptance: make([]float64, n)} }

// TestDraftsByHand follows small workloads with drafts that are all accepted or all rejected through every step. A step
// takes 10 ms when it computes prompt tokens, and 5 ms more when it generates any.
func TestDraftsByHand(t *testing.T) {
	wide := func(s *Speculation) Options {
		return Options{MaxSeqs: 8, MaxBatchedTokens: 100, ReserveFull: true, Speculation: s}
	}
	narrow := Options{MaxSeqs: 3, MaxBatchedTokens: 7, Speculation: all(3)}
	roomy := kvcache.Options{BlockSize: 4, Blocks: 100, PrefixCaching: true}
	one := []arrival{{path: node(1, 4), input: 4, output: 10, cancel: Never}}
	for _, test := range []struct {
		name     string
		options  Options
		kv       kvcache.Options
		requests []arrival
		want     []string
		drafts   Drafts
	}{
		{"every draft stands", wide(all(3)), roomy, one, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"25ms r0 finished", // 9 tokens: 4, 4 and 1 of the 4 that the last step brings
		}, Drafts{Steps: 3, Tokens: 9, Accepted: 9}},
		{"no draft stands", wide(none(3)), roomy, one, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"55ms r0 finished",
		}, Drafts{Steps: 9, Tokens: 27}},
		{"a budget for less than all drafts", narrow, roomy, []arrival{
			{path: node(1, 4), input: 2, output: 9, cancel: Never},
			{path: node(2, 4), input: 2, output: 9, cancel: Never},
			{path: node(3, 4), input: 2, output: 2, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"0s r1 admitted",
			"0s r2 admitted",
			"10ms r0 first token",
			"10ms r1 first token",
			"10ms r2 first token",
			"20ms r0 finished", // 15 ms: r0 4, r1 3 tokens, r2 none of the budget of 7; 20 ms: the same again
			"25ms r1 finished", // 2 more of the 4 that it tries
			"25ms r2 finished",
		}, Drafts{Steps: 6, Tokens: 6 + 4 + 5, Accepted: 6 + 4 + 5}},
		{"drafts preempt", wide(none(3)), kvcache.Options{BlockSize: 4, Blocks: 4, PrefixCaching: true}, []arrival{
			{path: node(1, 3), input: 4, output: 3, cancel: Never},
			{path: node(2, 3), input: 8, output: 2, cancel: Never},
		}, []string{
			"0s r0 admitted", // 1 + 2 blocks
			"0s r1 admitted",
			"10ms r0 first token",
			"10ms r1 first token",
			"10ms r1 preempted", // 5 + 3 tokens of r0 fill its block 2; 9 + 3 of r1 want a third one
			"20ms r0 finished",  // its drafts at 15 ms took a block that r1 had left cached, so that r1 did not fit
			"20ms r1 admitted, 4 cached",
			"30ms r1 first token",
			"30ms r1 finished",
		}, Drafts{Steps: 2, Tokens: 6}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &workload{Options: test.options, kv: test.kv, requests: test.requests}
			got, e := playEngine(t, w, models.FixedSteps(10*ms, 5*ms))
			if lines := got.lines(); !slices.Equal(lines, test.want) {
				t.Errorf("got\n%q\nwant\n%q", lines, test.want)
			}
			if e.Stats.Drafts != test.drafts {
				t.Errorf("counted %+v, want %+v", e.Stats.Drafts, test.drafts)
			}
		})
	}
}

// TestDraftsArriveTogether: the tokens of a step reach the client at one time.
func TestDraftsArriveTogether(t *testing.T) {
	e, err := New(Options{MaxSeqs: 1, MaxBatchedTokens: 100, Speculation: all(3)}, models.FixedSteps(10*ms, 5*ms),
		kvcache.Options{BlockSize: 4, Blocks: 100}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.Gaps = new(report.Gaps)
	w := &workload{requests: []arrival{{path: node(1, 4), input: 4, output: 9, cancel: Never}}}
	if _, err := play(e, w, nil, func(time.Duration) error { return nil }); err != nil {
		t.Fatal(err)
	}
	// 8 tokens in 2 steps of 5 ms: 5, 0, 0, 0, 5, 0, 0, 0.
	if g := e.Gaps; g.Count() != 8 || g.Mean() != 10e6/8 || g.Quantile(0.75) != 1.25e6 || g.Quantile(1) != 5e6 {
		t.Errorf("%d gaps of mean %v ns, 0.75-quantile %v, longest %v", g.Count(), g.Mean(), g.Quantile(0.75), g.Quantile(1))
	}
}

// TestDraftsEnterCacheLate: a block that accepted drafts fill enters the cache with the step that follows. With EAGLE the last
// cached block is computed again.
func TestDraftsEnterCacheLate(t *testing.T) {
	path := node(1, 5)
	for _, test := range []struct {
		output int32 // of the first request
		hidden bool
		hit    int32 // of the second
	}{
		// 4 prompt tokens. The first step computes tokens 5 to 8 of which only 5 is known when it is scheduled, the second
		// knows 9 and computes up to 12: with 9 tokens of output the request ends then.
		{5, false, 4},
		{9, false, 8},
		{9, true, 4},
	} {
		s := all(3)
		s.Model, s.Hidden = test.hidden, test.hidden
		got, _ := playEngine(t, &workload{
			Options: Options{MaxSeqs: 1, MaxBatchedTokens: 100, Speculation: s},
			kv:      kvcache.Options{BlockSize: 4, Blocks: 100, PrefixCaching: true},
			requests: []arrival{
				{path: path, input: 4, output: test.output, cancel: Never},
				{at: 100 * ms, path: path, input: 17, output: 1, cancel: Never},
			}}, models.FixedSteps(10*ms, 5*ms))
		if hit := got.requests[1].Hit; hit != test.hit {
			t.Errorf("after %d tokens of output, EAGLE %v: %d tokens hit, want %d", test.output, test.hidden, hit, test.hit)
		}
	}
}

// TestNoDraftsIsPlain: with 0 drafts the engine that walks its batch does what the one that leaps does.
func TestNoDraftsIsPlain(t *testing.T) {
	for seed := range uint64(1000) {
		w := randomWorkload(seed)
		w.Style = VLLM
		walking := *w
		walking.Speculation = none(0)
		var runs [2]run
		var engines [2]*Engine
		for i, w := range []*workload{w, &walking} {
			runs[i], engines[i] = playEngine(t, w, costs[w.cost])
		}
		if !slices.Equal(runs[0].log, runs[1].log) {
			t.Fatalf("seed %d: the logs differ:\n%v\n%v\n%v", seed, runs[0].log, runs[1].log, w)
		}
		a, b := engines[0].Stats, engines[1].Stats
		a.Occupancy = b.Occupancy // approximate within leaps
		if a != b {
			t.Fatalf("seed %d: the engine that leaps counts %+v, the other %+v\n%v", seed, a, b, w)
		}
	}
}

// TestAcceptance: drafts are accepted as often as asked for, each position's draw is its own, and does not depend on how
// many drafts there are.
func TestAcceptance(t *testing.T) {
	s := &Speculation{Tokens: 3, Acceptance: []float64{0.9, 0.5, 0.1}}
	const positions = 200_000
	counts, changes := [3]int{}, 0
	for at := range int32(positions) {
		n := s.accepted(42, at, 3)
		for i := range n {
			counts[i]++
		}
		if short := s.accepted(42, at, 1); short != min(n, 1) {
			t.Fatalf("of 3 drafts %d are accepted at %d, of 1 %d", n, at, short)
		}
		if s.accepted(43, at, 3) != n {
			changes++
		}
	}
	for i, n := range counts {
		if share := float64(n) / positions; math.Abs(share-s.Acceptance[i]) > 0.005 {
			t.Errorf("draft %d is accepted in %.3f of the steps, want %v", i+1, share, s.Acceptance[i])
		}
	}
	// Two draws differ with probability 1 - 0.1² - 0.4² - 0.4² - 0.1².
	if share := float64(changes) / positions; math.Abs(share-0.66) > 0.01 {
		t.Errorf("another seed changes %.3f of the draws, want 0.66", share)
	}
}

// BenchmarkDrafts is output tokens of a batch that verifies 3 drafts a step, at 0.8, 0.6 and 0.4.
func BenchmarkDrafts(b *testing.B) {
	for _, batch := range []int{16, 256} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			o := styled(VLLM, batch)
			o.Speculation = &Speculation{Tokens: 3, Acceptance: []float64{0.8, 0.6, 0.4}, Model: true}
			e, err := New(o, costs[2], kvcache.Options{BlockSize: 16, Blocks: 1 << 20, PrefixCaching: true}, nil)
			if err != nil {
				b.Fatal(err)
			}
			e.Gaps = new(report.Gaps)
			now, next := time.Duration(0), int32(0)
			for b.Loop() {
				for e.Running()+e.Waiting() < batch {
					next++
					e.Enqueue(now, &Request{ID: next, Path: node(trace.NodeID(next%100_000+1), 1<<10), Input: 1000, Output: 500, Seed: uint64(next)})
				}
				if _, err := e.Schedule(now); err != nil {
					b.Fatal(err)
				}
				now = e.Next()
				e.EndStep()
			}
			b.ReportMetric(float64(e.Stats.DecodeTokens)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
