package engine

import (
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// TestOutsideByHand: a prompt of 4 tokens and 7 tokens of output, alone, are a step of 4 prompt tokens and decodes at
// contexts 5 to 10. Whatever the leaps, the time outside is that of the steps named.
func TestOutsideByHand(t *testing.T) {
	all := models.Range{Least: 0, Most: 100}
	for _, c := range []struct {
		name                      string
		batch, context, newTokens models.Range
		any                       []int // the contexts of the steps outside; the prompt's is 4
		pick                      func(o Outside) time.Duration
		picked                    []int
	}{
		{"all is inside", all, all, all, nil, func(o Outside) time.Duration { return o.Context.Above }, nil},
		{"long contexts", all, models.Range{Least: 0, Most: 7}, all, []int{8, 9, 10},
			func(o Outside) time.Duration { return o.Context.Above }, []int{8, 9, 10}},
		{"short contexts", all, models.Range{Least: 7, Most: 10}, all, []int{4, 5, 6},
			func(o Outside) time.Duration { return o.Context.Below }, []int{4, 5, 6}},
		{"both ends of a leap", all, models.Range{Least: 6, Most: 8}, all, []int{4, 5, 9, 10},
			func(o Outside) time.Duration { return o.Context.Below + o.Context.Above }, []int{4, 5, 9, 10}},
		{"a small batch", models.Range{Least: 2, Most: 8}, all, all, []int{4, 5, 6, 7, 8, 9, 10},
			func(o Outside) time.Duration { return o.Batch.Below }, []int{4, 5, 6, 7, 8, 9, 10}},
		{"a long prompt, and contexts that are long anyway", all, models.Range{Least: 0, Most: 8}, models.Range{Least: 0, Most: 3},
			[]int{4, 9, 10}, func(o Outside) time.Duration { return o.NewTokens.Above }, []int{4}},
	} {
		profile := *narrow()
		profile.Envelope = &models.Envelope{Batch: c.batch, Context: c.context, NewTokens: c.newTokens}
		cost := priced(t, &profile)
		// Ends of the steps by context, rounded down as the clock is.
		ends := map[int]time.Duration{}
		at := cost.Base(models.Batch{Prefills: 1, PrefillTokens: 4, PrefillPairs: 16, PrefillContext: 4})
		ends[4] = time.Duration(at / models.FixedPerNs)
		for context := 5; context <= 10; context++ {
			at += cost.Base(models.Batch{Decodes: 1}) + cost.PerContext()*models.Fixed(context)
			ends[context] = time.Duration(at / models.FixedPerNs)
		}
		sum := func(contexts []int) (d time.Duration) {
			for _, context := range contexts {
				d += ends[context] - ends[context-1]
			}
			return d
		}
		w := &workload{Options: Options{MaxSeqs: 2, MaxBatchedTokens: 16}, kv: kvcache.Options{BlockSize: 16, Blocks: 4},
			requests: []arrival{{path: node(1, 1), input: 4, output: 7, cancel: Never}}}
		for _, cuts := range [][]time.Duration{nil, {ends[4] + 1, ends[6], ends[7] + 1}} {
			e, err := New(w.Options, cost, w.kv, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := play(e, w, cuts, func(time.Duration) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if e.Stats.Busy != ends[10] {
				t.Fatalf("%s: busy for %v, want %v", c.name, e.Stats.Busy, ends[10])
			}
			if o := e.Stats.Outside; o.Any != sum(c.any) || c.pick(o) != sum(c.picked) {
				t.Errorf("%s, leaps cut at %v: %+v outside, want %v in all and %v for the cause", c.name, cuts, o, sum(c.any), sum(c.picked))
			}
		}
	}
}

// Time begins anew with the measured window.
func TestOutsideRestarts(t *testing.T) {
	w := &workload{Options: Options{MaxSeqs: 2, MaxBatchedTokens: 16}, kv: kvcache.Options{BlockSize: 16, Blocks: 4},
		requests: []arrival{{path: node(1, 1), input: 4, output: 7, cancel: Never}}}
	e, err := New(w.Options, priced(t, narrow()), w.kv, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := play(e, w, nil, func(time.Duration) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if e.Stats.Outside.Any != e.Stats.Busy {
		t.Errorf("a batch of one is below two: %v of %v is outside", e.Stats.Outside.Any, e.Stats.Busy)
	}
	e.Restart(e.decoded)
	if got := e.Close(e.decoded).Outside; got != (Outside{}) {
		t.Errorf("%+v outside in an empty window", got)
	}
}

// priced is the cost of qwen3-14b on an H100 under a profile.
func priced(t *testing.T, p *models.Profile) *models.StepCost {
	t.Helper()
	model, err := models.Lookup("qwen3-14b")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := models.LookupGPU("h100-sxm")
	if err != nil {
		t.Fatal(err)
	}
	cost, err := (&models.Deployment{Model: model, GPU: gpu}).StepCostOf(p)
	if err != nil {
		t.Fatal(err)
	}
	return cost
}
