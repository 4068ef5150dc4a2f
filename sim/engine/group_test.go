package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// rankMachine lets the driver play a workload on several ranks: request i is on rank i modulo their number.
type rankMachine struct {
	ranks []machine
	start func()       // puts the steps that all ranks have scheduled in flight
	align func()       // after a call on one of them
	check func() error // in the middle of steps
}

func (m *rankMachine) of(r *Request) machine { return m.ranks[int(r.ID)%len(m.ranks)] }

func (m *rankMachine) Next() time.Duration { return m.ranks[0].Next() }

func (m *rankMachine) Enqueue(now time.Duration, r *Request) {
	m.of(r).Enqueue(now, r)
	m.align()
}

func (m *rankMachine) Cancel(now time.Duration, r *Request) {
	m.of(r).Cancel(now, r)
	m.align()
}

func (m *rankMachine) Tokens(now time.Duration, r *Request) int32 { return m.of(r).Tokens(now, r) }

func (m *rankMachine) truncate(now time.Duration) {
	if m.Next() != Never {
		m.ranks[0].truncate(now)
		m.align()
	}
}

func (m *rankMachine) setState(now time.Duration, o kvcache.Owner, s kvcache.State) {
	for _, r := range m.ranks {
		r.setState(now, o, s)
	}
}

func (m *rankMachine) Schedule(now time.Duration) (all []Outcome, err error) {
	for _, r := range m.ranks {
		outcomes, err := r.Schedule(now)
		all = append(all, outcomes...)
		if err != nil {
			return all, err
		}
	}
	m.start()
	return all, nil
}

func (m *rankMachine) EndStep() (all []Outcome) {
	for _, r := range m.ranks {
		all = append(all, r.EndStep()...)
	}
	return all
}

// groupOf makes a group of engines under a workload's options, and tells of each one.
func groupOf(w *workload, cost *models.StepCost, ranks, size int) (*rankMachine, []*Engine, error) {
	var engines []*Engine
	m := &rankMachine{}
	for i := range ranks {
		o := w.Options
		o.Lockstep, o.Worker, o.Groups = true, i, 2
		e, err := newOwned(w, cost, o)
		if err != nil {
			return nil, nil, err
		}
		e.Gaps = new(report.Gaps)
		engines = append(engines, e)
		m.ranks = append(m.ranks, e)
	}
	g := NewGroup(engines, size)
	m.start, m.align = g.Start, g.Align
	m.check = func() error {
		for _, e := range engines {
			if err := e.Check(); err != nil {
				return err
			}
		}
		return g.Check()
	}
	return m, engines, nil
}

// slowGroup makes the twin of a group: the ranks are twins of engines, and every step takes as long as its formula says.
func slowGroup(w *workload, cost *models.StepCost, ranks, size int) (*rankMachine, []twin) {
	var twins []twin
	m := &rankMachine{align: func() {}}
	lockstep := *w
	lockstep.Lockstep = true
	for range ranks {
		twins = append(twins, newTwin(&lockstep, cost))
		m.ranks = append(m.ranks, twins[len(twins)-1])
	}
	m.start = func() {
		own, tokens, busy := models.Fixed(0), int64(size-ranks), false
		for _, t := range twins {
			if d := t.diary(); d.busy {
				own, tokens, busy = max(own, d.own), tokens+d.tokens, true
			} else {
				tokens++
			}
		}
		for _, t := range twins {
			if busy {
				t.diary().takes(own + cost.Shared(tokens))
			}
		}
	}
	return m, twins
}

// compareGroups plays a workload on a group of engines, whole leaps and cut ones, and on its twin.
func compareGroups(w *workload, cost *models.StepCost, ranks, size int, seed uint64) error {
	slow, twins := slowGroup(w, cost, ranks, size)
	want, err := play(slow, w, nil, func(time.Duration) error { return nil })
	if err != nil {
		return fmt.Errorf("twin: %w", err)
	}
	r := rand.New(rand.NewPCG(seed, 5))
	var cuts []time.Duration
	for range r.IntN(30) {
		cuts = append(cuts, randomTime(r, twins[0].diary().ends))
	}
	slices.Sort(cuts)
	for _, cuts := range [][]time.Duration{nil, cuts} {
		group, engines, err := groupOf(w, cost, ranks, size)
		if err != nil {
			return err
		}
		got, err := play(group, w, cuts, func(time.Duration) error { return group.check() })
		if err != nil {
			return err
		}
		if i := firstDifference(got.log, want.log); i >= 0 {
			return fmt.Errorf("leaps cut at %v: entry %d of the logs differs: engines %v, twins %v", cuts, i, got.log[i:min(i+1, len(got.log))], want.log[i:min(i+1, len(want.log))])
		}
		for i, e := range engines {
			s, d := e.Stats, twins[i].diary()
			s.Recompute, s.Occupancy = 0, Occupancy{}
			if s != d.stats || e.Gaps.Count() != d.gaps {
				return fmt.Errorf("rank %d counts %+v and %d gaps, its twin %+v and %d", i, s, e.Gaps.Count(), d.stats, d.gaps)
			}
			e.Close(d.at)
			if err := compareHoldings(e, d.at, d.held); err != nil {
				return fmt.Errorf("leaps cut at %v: rank %d: %w", cuts, i, err)
			}
		}
	}
	return nil
}

// firstDifference is where two logs differ, -1 for nowhere.
func firstDifference(a, b []happening) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// groupCosts are the step costs that groups are compared under: a constant one, that of a model with experts, and one by
// which contexts are all that matters, so that which rank is the slowest changes in the middle of leaps.
var groupCosts = []*models.StepCost{costs[0], expertsCost(), contextCost()}

// expertsCost is the cost of Qwen3-30B-A3B on four data ranks.
func expertsCost() *models.StepCost {
	model, err := models.Lookup("qwen3-30b-a3b")
	if err != nil {
		panic(err)
	}
	gpu, err := models.LookupGPU("h100-sxm")
	if err != nil {
		panic(err)
	}
	cost, err := (&models.Deployment{Model: model, GPU: gpu, Parallelism: models.Parallelism{Data: 4, Expert: 4}}).StepCost("h100-vllm")
	if err != nil {
		panic(err)
	}
	return cost
}

// contextCost is 1 ms per step, and 10 µs per token of context.
func contextCost() *models.StepCost {
	host, err := models.LookupProfile("physical")
	if err != nil {
		panic(err)
	}
	none := func(float64) float64 { return 0 }
	cost, err := (&models.StepTable{Tokens: none, Sequences: none, AttentionUs: 1000, ContextNs: 10_000}).StepCost(host)
	if err != nil {
		panic(err)
	}
	return cost
}

// TestGroupTwins compares groups of ranks with their slow twins on random workloads.
func TestGroupTwins(t *testing.T) {
	workloads := uint64(3000)
	if testing.Short() {
		workloads = 300
	}
	for seed := range workloads {
		w := []func(uint64) *workload{randomWorkload, randomSGLangWorkload, randomDraftsWorkload}[seed%3](seed)
		cost := groupCosts[seed/3%uint64(len(groupCosts))]
		ranks := 2 + int(seed/9)%3
		if err := compareGroups(w, cost, ranks, ranks+int(seed%2), seed); err != nil {
			t.Fatalf("seed %d, %d ranks: %v\n%v", seed, ranks, err, w)
		}
	}
}

// TestGroupOfOne: a rank without others steps like an engine that belongs to no group.
func TestGroupOfOne(t *testing.T) {
	for seed := range uint64(300) {
		w := randomWorkload(seed)
		group, _, err := groupOf(w, costs[w.cost], 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := play(group, w, nil, func(time.Duration) error { return group.check() })
		if err != nil {
			t.Fatal(err)
		}
		want, _ := playEngine(t, w, costs[w.cost])
		if !slices.Equal(got.log, want.log) {
			t.Fatalf("seed %d: the logs differ:\n%v\n%v\n%v", seed, got.log, want.log, w)
		}
	}
}

// TestGroupByHand: r0 is on rank 0, r1 on rank 1. A step takes 10 ms when a rank computes prompt tokens, 5 ms when it
// decodes, 15 ms for both.
func TestGroupByHand(t *testing.T) {
	w := &workload{
		Options: Options{MaxSeqs: 8, MaxBatchedTokens: 100, ReserveFull: true},
		kv:      kvcache.Options{BlockSize: 4, Blocks: 100, PrefixCaching: true},
		requests: []arrival{
			{path: node(1, 3), input: 4, output: 6, cancel: Never},
			{at: 12 * ms, path: node(2, 2), input: 4, output: 2, cancel: Never},
		},
	}
	group, engines, err := groupOf(w, models.FixedSteps(10*ms, 5*ms), 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	got, err := play(group, w, nil, func(time.Duration) error { return group.check() })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0s r0 admitted",
		"10ms r0 first token", // rank 1 has run along
		"15ms r1 admitted",    // it waited for rank 0's step
		"25ms r1 first token", // rank 0's third token comes as late: its step would have taken 5 ms
		"30ms r1 finished",
		"40ms r0 finished", // its tokens come at 10, 15, 25, 30, 35 and 40
	}
	if lines := got.lines(); !slices.Equal(lines, want) {
		t.Errorf("got\n%q\nwant\n%q", lines, want)
	}
	for i, e := range engines {
		if e.Stats.Steps != 6 || e.Stats.Busy != 40*ms {
			t.Errorf("rank %d took %d steps in %v, want 6 in 40ms", i, e.Stats.Steps, e.Stats.Busy)
		}
	}
}

// TestGroupSharesExperts: the experts meet the tokens of all ranks, one of each idle rank.
func TestGroupSharesExperts(t *testing.T) {
	cost := expertsCost()
	w := &workload{
		Options: Options{MaxSeqs: 8, MaxBatchedTokens: 100},
		kv:      kvcache.Options{BlockSize: 4, Blocks: 100},
		requests: []arrival{
			{path: node(1, 20), input: 80, output: 1, cancel: Never},
			{path: node(2, 5), input: 20, output: 1, cancel: Never},
		},
	}
	group, engines, err := groupOf(w, cost, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := play(group, w, nil, func(time.Duration) error { return group.check() }); err != nil {
		t.Fatal(err)
	}
	step := cost.Own(models.Batch{Prefills: 1, PrefillTokens: 80, PrefillPairs: 80 * 80, PrefillContext: 80}) + cost.Shared(80+20+1+1)
	for i, e := range engines {
		if diff := e.Stats.Busy - step.Duration(); diff.Abs() > 1 {
			t.Errorf("rank %d was busy for %v, want %v", i, e.Stats.Busy, step.Duration())
		}
	}
}

// BenchmarkGroup is output tokens of 8 ranks that decode 64 requests each, with a new request of 1000 + 500 tokens for each
// that ends.
func BenchmarkGroup(b *testing.B) {
	const ranks, batch = 8, 64
	w := &workload{Options: styled(VLLM, batch), kv: kvcache.Options{BlockSize: 16, Blocks: 1 << 20, PrefixCaching: true}}
	group, engines, err := groupOf(w, expertsCost(), ranks, ranks)
	if err != nil {
		b.Fatal(err)
	}
	now, next := time.Duration(0), int32(0)
	for b.Loop() {
		for rank, e := range engines {
			for e.Running()+e.Waiting() < batch {
				next++
				// Outputs end at different times, as they do at work.
				e.Enqueue(now, &Request{ID: next*ranks + int32(rank), Path: node(trace.NodeID(next%100_000+1), 1<<10), Input: 1000, Output: 400 + next*37%200})
			}
		}
		if _, err := group.Schedule(now); err != nil {
			b.Fatal(err)
		}
		now = group.Next()
		group.EndStep()
	}
	tokens := int64(0)
	for _, e := range engines {
		tokens += e.Stats.DecodeTokens
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}
