package engine

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// machine is what the driver needs of an engine: Engine and its slow twin have it.
type machine interface {
	Next() time.Duration
	Enqueue(now time.Duration, r *Request)
	Cancel(now time.Duration, r *Request)
	Tokens(now time.Duration, r *Request) int32
	Schedule(now time.Duration) ([]Outcome, error)
	EndStep() []Outcome
	truncate(now time.Duration)
	setState(now time.Duration, o kvcache.Owner, s kvcache.State)
}

// workload is requests for one engine, and when they come.
type workload struct {
	Options
	kv       kvcache.Options
	cost     int // index into costs
	requests []arrival
	// looks are times at which somebody reads the state of all requests.
	looks []time.Duration
	turns []turn
	// outside, when set, is what lies outside of the cache.
	outside *lies
}

type arrival struct {
	at            time.Duration
	path          []trace.Span
	input, output int32
	maxOutput     int32
	rank          int64
	session       uint64
	seed          uint64
	cancel        time.Duration // Never: its client waits
}

// costs are the step costs that workloads choose from.
var costs = []*models.StepCost{
	models.FixedSteps(10*time.Millisecond, 5*time.Millisecond),
	models.FixedSteps(3*time.Millisecond, 0),
	mustCost(0),
	mustCost(7),
}

// mustCost is the cost of Qwen3-14B on an H100, half its layers with windows of the given size.
func mustCost(window int) *models.StepCost {
	m, err := models.Lookup("qwen3-14b")
	if err != nil {
		panic(err)
	}
	gpu, err := models.LookupGPU("h100-sxm")
	if err != nil {
		panic(err)
	}
	model := *m
	if window > 0 {
		model.Window = models.Window{Tokens: window, Layers: model.Layers / 2}
	}
	cost, err := (&models.Deployment{Model: &model, GPU: gpu}).StepCostOf(narrow())
	if err != nil {
		panic(err)
	}
	return cost
}

// narrow is a profile whose envelope small workloads leave on all sides.
func narrow() *models.Profile {
	known, err := models.LookupProfile("h100-vllm")
	if err != nil {
		panic(err)
	}
	p := *known
	p.Envelope = &models.Envelope{Batch: models.Range{Least: 2, Most: 3}, Context: models.Range{Least: 6, Most: 9},
		NewTokens: models.Range{Least: 2, Most: 6}}
	return &p
}

// happening is an entry of a run's log.
type happening struct {
	at   time.Duration
	id   int32
	what string
	// The request's hit and re-admission hit tokens so far; of a look, its tokens.
	hit, readmitHit int32
}

// run is what a machine made of a workload.
type run struct {
	log      []happening
	requests []*Request
}

// play runs a workload on a machine. At the times of cuts the machine's leaps are cut short, which must not show.
// after is called when a step has been scheduled.
func play(m machine, w *workload, cuts []time.Duration, after func(now time.Duration) error) (run, error) {
	type event struct {
		at      time.Duration
		kind    int // 0 arrival, 1 cancellation, 2 look, 3 cut, 4 prefetch, 5 hold, 6 its end, 7 turn
		request int
	}
	var events []event
	var r run
	for i, a := range w.requests {
		r.requests = append(r.requests, &Request{ID: int32(i), Session: a.session, Path: a.path, Input: a.input, Output: a.output, MaxOutput: a.maxOutput, Rank: a.rank, Priority: int32(max(0, 2-a.rank)), Group: int32(i % 3), Seed: a.seed,
			Owner: kvcache.Owner(i % owners)})
		events = append(events, event{a.at, 0, i})
		if a.cancel != Never {
			events = append(events, event{max(a.cancel, a.at), 1, i})
		}
	}
	for _, at := range w.looks {
		events = append(events, event{at, 2, 0})
	}
	for i, t := range w.turns {
		events = append(events, event{t.at, 7, i})
	}
	for _, at := range cuts {
		events = append(events, event{at, 3, 0})
	}
	var out *outside
	var holds []int // at the next step boundary
	if w.outside != nil {
		out = newOutside(w, m.(borrower))
		for i, p := range w.outside.prefetches {
			events = append(events, event{p.at, 4, i})
		}
		for i, h := range w.outside.holds {
			events = append(events, event{h.at, 5, i})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind)) })

	inside := map[*Request]bool{}
	note := func(now time.Duration, outcomes []Outcome) {
		for _, o := range outcomes {
			q := o.Request
			what := [...]string{"admitted", "first token", "finished", "preempted"}[o.Kind]
			r.log = append(r.log, happening{now, q.ID, what, q.Hit, q.ReadmitHit})
			if o.Kind == Finished {
				delete(inside, q)
			}
		}
	}
	for range 100_000 {
		now := m.Next()
		if len(events) > 0 {
			now = min(now, events[0].at)
		}
		if now = min(now, out.next()); now == Never {
			return r, nil
		}
		if m.Next() == now {
			note(now, m.EndStep())
		}
		out.advance(now)
		for ; len(events) > 0 && events[0].at == now; events = events[1:] {
			switch i := events[0].request; events[0].kind {
			case 0:
				q := r.requests[i]
				inside[q] = true
				m.Enqueue(now, q)
			case 1:
				if q := r.requests[i]; inside[q] {
					m.Cancel(now, q)
					delete(inside, q)
				}
			case 2:
				for _, q := range r.requests {
					if inside[q] {
						r.log = append(r.log, happening{now, q.ID, "has tokens", m.Tokens(now, q), 0})
					}
				}
			case 3:
				m.truncate(now)
			case 4:
				out.prefetch(now, i)
			case 5:
				m.truncate(now)
				holds = append(holds, i)
			case 6:
				out.machine.letGo(now, i)
			case 7:
				m.setState(now, w.turns[i].owner, w.turns[i].state)
			}
		}
		if m.Next() == now { // a leap was cut to a step that ends now
			note(now, m.EndStep())
		}
		if m.Next() == Never {
			for _, i := range holds {
				h := &w.outside.holds[i]
				out.machine.hold(i, h.path, h.limit)
				at, _ := slices.BinarySearchFunc(events, max(h.until, now+1), func(e event, t time.Duration) int { return cmp.Compare(e.at, t) })
				events = slices.Insert(events, at, event{max(h.until, now+1), 6, i})
			}
			holds = holds[:0]
			outcomes, err := m.Schedule(now)
			note(now, outcomes)
			if out != nil {
				r.log, out.log = append(r.log, out.log...), nil
			}
			if err != nil {
				return r, err
			}
			if err := after(now); err != nil {
				return r, fmt.Errorf("at %v: %w", now, err)
			}
		}
	}
	return r, fmt.Errorf("no end after 100,000 events")
}

// snapshot is what a twin has cached, and who has held how much until then.
type snapshot struct {
	resident map[slot]bool
	held     [owners]kvcache.Holding
}

// compareTwins plays a workload on an engine and its twin, and on an engine whose leaps are cut.
func compareTwins(w *workload, seed uint64) error {
	cached := map[time.Duration]snapshot{}
	slow := newTwin(w, costs[w.cost])
	want, err := play(slow, w, nil, func(now time.Duration) error {
		cached[now] = snapshot{slow.resident(), slow.diary().held}
		return nil
	})
	if err != nil {
		return fmt.Errorf("twin: %w", err)
	}
	r := rand.New(rand.NewPCG(seed, 2))
	var cuts []time.Duration
	for range r.IntN(30) {
		cuts = append(cuts, randomTime(r, slow.diary().ends))
	}
	slices.Sort(cuts)
	for _, cuts := range [][]time.Duration{nil, cuts} {
		if err := comparePlay(w, slow, want, cached, cuts, r.IntN(3) == 0); err != nil {
			return fmt.Errorf("leaps cut at %v: %w", cuts, err)
		}
	}
	return nil
}

// comparePlay plays a workload on an engine and compares the run with that of its twin: the log, and when watch is
// set what is cached after each step that the engine schedules.
func comparePlay(w *workload, slow twin, want run, cached map[time.Duration]snapshot, cuts []time.Duration, watch bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	o := w.Options
	o.Groups = 2
	e, err := newOwned(w, costs[w.cost], o)
	if err != nil {
		return err
	}
	e.Gaps = new(report.Gaps)
	resident := map[slot]bool{}
	got, err := play(&quick{e, map[int]reading{}}, w, cuts, func(now time.Duration) error {
		if err := e.Check(); err != nil {
			return err
		}
		// Steps that take no time share their end, and then the twin's cache is known after the last only.
		expected, stepped := cached[now]
		if !watch || !stepped || w.cost == 1 {
			return nil
		}
		if pool, ok := e.cache.(*kvcache.Pool); ok { // where decodes register what they fill when somebody looks
			pool.Under(func(trace.Key) bool { return true })
		}
		for _, ev := range e.Events() {
			for at := ev.From; at < ev.To; at++ {
				if resident[slot{ev.Key, at}] = true; ev.Removed {
					delete(resident, slot{ev.Key, at})
				}
			}
		}
		if !maps.Equal(resident, expected.resident) {
			return fmt.Errorf("engine has cached %v, twin %v", resident, expected.resident)
		}
		e.countGrowth()
		return compareHoldings(e, now, expected.held)
	})
	for i := range max(len(got.log), len(want.log)) {
		if i >= len(got.log) && err != nil {
			return err
		}
		if i >= len(got.log) || i >= len(want.log) || got.log[i] != want.log[i] {
			return fmt.Errorf("entry %d of the logs differs: engine %v, twin %v", i, got.log[i:min(i+1, len(got.log))], want.log[i:min(i+1, len(want.log))])
		}
	}
	if err != nil {
		return err
	}
	for i, g := range got.requests {
		q := want.requests[i]
		if g.Admitted != q.Admitted || g.Computed != q.Computed || g.Readmit != q.Readmit || g.Preemptions != q.Preemptions ||
			g.Recomputed != q.Recomputed || g.Brought != q.Brought {
			return fmt.Errorf("request %d: engine computed %d tokens and re-admitted %d after %d preemptions, recomputing %+v; twin %d, %d, %d, %+v",
				i, g.Computed, g.Readmit, g.Preemptions, g.Recomputed, q.Computed, q.Readmit, q.Preemptions, q.Recomputed)
		}
	}
	s := e.Stats
	s.Recompute, s.Occupancy = 0, Occupancy{}
	diary := slow.diary()
	stats := diary.stats
	if w.outside != nil { // what requests hold that wait is not looked at in every step
		s.PeakUsed, stats.PeakUsed = 0, 0
	}
	if s != stats {
		return fmt.Errorf("engine counts %+v, twin %+v", s, stats)
	}
	e.Close(diary.at)
	if err := compareHoldings(e, diary.at, diary.held); err != nil {
		return err
	}
	if e.Evicted() != slow.evicted() {
		return fmt.Errorf("engine evicted %d blocks, twin %d", e.Evicted(), slow.evicted())
	}
	if e.Gaps.Count() != diary.gaps {
		return fmt.Errorf("engine counts %d gaps between tokens, twin %d", e.Gaps.Count(), diary.gaps)
	}
	if diary.gaps > 0 {
		// Gaps within a leap are taken as equal where they differ by less than a thousandth, and lose fractions of a ns.
		mean := float64(diary.gapSum) / float64(diary.gaps)
		if diff := e.Gaps.Mean() - mean; diff > 0.001*mean+1 || -diff > 0.001*mean+1 {
			return fmt.Errorf("engine's mean gap is %f ns, twin's %f", e.Gaps.Mean(), mean)
		}
	}
	return nil
}

// randomTime is a time within a run whose steps end at ends: in every third case one of these.
func randomTime(r *rand.Rand, ends []time.Duration) time.Duration {
	if len(ends) == 0 {
		return 0
	}
	if r.IntN(3) == 0 {
		return ends[r.IntN(len(ends))]
	}
	return time.Duration(r.Int64N(int64(ends[len(ends)-1]) + 1))
}

// randomWorkload is a few requests with shared prefixes for an engine of vLLM's or TensorRT-LLM's style with little room.
func randomWorkload(seed uint64) *workload {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &workload{cost: r.IntN(len(costs))}
	w.MaxSeqs = 1 + r.IntN(6)
	w.MaxBatchedTokens = max(w.MaxSeqs, 2+r.IntN(15))
	w.ReserveFull = r.IntN(2) == 0
	w.Async = seed%2 == 0
	if r.IntN(4) == 0 {
		w.StateBlocks = int32(1 + r.IntN(2))
	}
	w.kv = kvcache.Options{BlockSize: 1 + r.IntN(4), Blocks: 5 + r.IntN(20), PrefixCaching: r.IntN(8) > 0, FreeTailFirst: r.IntN(4) == 0}
	if r.IntN(3) == 0 {
		w.Style = TRTLLM
	}
	w.addRequests(r, int32(w.kv.Blocks)-w.StateBlocks, 6)
	w.rank(seed, w.Style == VLLM)
	return w
}

// rank gives the requests of every other workload ranks, where the engine can have them.
func (w *workload) rank(seed uint64, can bool) {
	if w.Ranked = can && seed%4 < 2; w.Ranked {
		for i := range w.requests {
			w.requests[i].rank = int64(seed>>2+uint64(i)*7) % 3
		}
	}
}

// randomDraftsWorkload is the same for vLLM with speculative decoding. In some the drafts of all requests do not fit the
// budget of a step.
func randomDraftsWorkload(seed uint64) *workload {
	w := randomWorkload(seed)
	r := rand.New(rand.NewPCG(seed, 4))
	w.Style = VLLM
	s := &Speculation{Tokens: r.IntN(5), Model: r.IntN(2) == 0}
	s.Hidden = s.Model && r.IntN(2) == 0
	share := 1.0
	for range s.Tokens {
		share *= []float64{0, 0.5, 0.8, 1}[r.IntN(4)]
		s.Acceptance = append(s.Acceptance, share)
	}
	w.Speculation = s
	w.kv.Blocks += (s.slots() + w.kv.BlockSize - 1) / w.kv.BlockSize
	for i := range w.requests {
		w.requests[i].maxOutput, w.requests[i].seed = 0, r.Uint64()
	}
	return w
}

// randomSGLangWorkload is the same for SGLang. Some have prompts that are long enough for the rule about prefixes in a
// batch, some room for outputs that are clipped.
func randomSGLangWorkload(seed uint64) *workload {
	r := rand.New(rand.NewPCG(seed, 3))
	w := &workload{cost: r.IntN(len(costs))}
	w.Style = SGLang
	w.MaxSeqs = 1 + r.IntN(6)
	w.kv = kvcache.Options{BlockSize: 1 + max(0, r.IntN(6)-2), Blocks: 8 + r.IntN(20), PrefixCaching: r.IntN(8) > 0}
	w.MaxBatchedTokens = w.kv.BlockSize + r.IntN(16)
	w.SGLang = SGLangOptions{MaxPrefillTokens: 1 + r.IntN(30), Conservativeness: []float64{0.1, 0.3, 1, 2}[r.IntN(4)],
		LongestPrefix: r.IntN(2) == 0}
	if r.IntN(4) == 0 {
		w.StateBlocks = int32(1 + r.IntN(2))
	}
	longest := int32(6)
	switch r.IntN(8) {
	case 0:
		w.kv.Blocks, longest = 60+r.IntN(100), 40
		w.MaxBatchedTokens, w.SGLang.MaxPrefillTokens = w.kv.BlockSize+r.IntN(200), 1+r.IntN(300)
	case 1:
		w.kv.Blocks = 5000 + r.IntN(10_000)
	}
	w.addRequests(r, min(int32(w.kv.Blocks)-w.StateBlocks-3, 200), longest)
	if w.kv.Blocks >= 5000 {
		for i := range w.requests {
			w.requests[i].maxOutput = int32(clipNewTokens - 10 + r.IntN([]int{40, 4000}[r.IntN(2)]))
		}
	}
	w.rank(seed, !w.SGLang.LongestPrefix)
	return w
}

// addRequests adds requests of at most most blocks, on nodes of at most longest, and lets things happen just when steps
// end.
func (w *workload) addRequests(r *rand.Rand, most, longest int32) {
	size := int32(w.kv.BlockSize)
	var paths [][]trace.Span // to the ends of nodes
	for i := range 1 + r.IntN(6) {
		var path []trace.Span
		from := int32(0)
		if i > 0 && r.IntN(4) > 0 {
			path = slices.Clone(paths[r.IntN(len(paths))])
			from = path[len(path)-1].To
		}
		if from == most {
			continue
		}
		to := from + 1 + int32(r.IntN(int(min(longest, most-from))))
		paths = append(paths, append(path, trace.Span{Key: trace.MakeKey(trace.NodeID(i+1), 0), From: from, To: to}))
	}
	for i := range 1 + r.IntN(12) {
		path := slices.Clone(paths[r.IntN(len(paths))])
		last := &path[len(path)-1]
		if r.IntN(3) == 0 { // it ends inside the node
			last.To -= int32(r.IntN(int(last.To - last.From)))
		}
		tokens := last.To * size
		if last.To < most {
			tokens += int32(r.IntN(int(size)))
		}
		output := int32(r.IntN(int(min(tokens, 12)) + 1))
		if r.IntN(4) == 0 { // it generates almost everything
			output = tokens
		}
		a := arrival{path: path, input: tokens - max(0, output-1), output: output, cancel: Never}
		if i > 0 && r.IntN(3) > 0 {
			a.at = w.requests[i-1].at + time.Duration(r.Int64N(int64(30*time.Millisecond)))
		}
		if r.IntN(6) == 0 {
			a.cancel = a.at + time.Duration(r.Int64N(int64(100*time.Millisecond)))
		}
		if w.Style != VLLM && r.IntN(2) == 0 {
			a.maxOutput = output + int32(r.IntN(20))
		}
		w.requests = append(w.requests, a)
	}
	// Run it once to learn when steps end, and let things happen at just these times.
	slow := newTwin(w, costs[w.cost])
	if _, err := play(slow, w, nil, func(time.Duration) error { return nil }); err != nil {
		return
	}
	for i := range w.requests {
		a := &w.requests[i]
		if r.IntN(3) == 0 {
			a.at = randomTime(r, slow.diary().ends)
		}
		if a.cancel != Never && r.IntN(2) == 0 {
			a.cancel = max(a.at, randomTime(r, slow.diary().ends))
		}
	}
	w.own(r, slow.diary().ends)
	for range r.IntN(6) {
		w.looks = append(w.looks, randomTime(r, slow.diary().ends))
	}
}

// String shows a workload so that it can be made a test.
func (w *workload) String() string {
	o := w.Options
	o.Speculation = nil
	s := fmt.Sprintf("%+v with drafts %+v on %+v, cost %d, looks at %v\n", o, w.Speculation, w.kv, w.cost, w.looks)
	for _, t := range w.turns {
		s += fmt.Sprintf("  owner %d at %v: state %d\n", t.owner, t.at, t.state)
	}
	for i, a := range w.requests {
		s += fmt.Sprintf("  request %d at %v: %d + %d (%d) tokens on %v, seed %#x", i, a.at, a.input, a.output, a.maxOutput, a.path, a.seed)
		if a.cancel != Never {
			s += fmt.Sprintf(", cancelled at %v", a.cancel)
		}
		s += "\n"
	}
	return s + w.outside.String()
}

// shrinkWorkload removes what a failure does not need.
func shrinkWorkload(w *workload, seed uint64) *workload {
	for again := true; again; {
		again = false
		try := func(change func(w *workload)) {
			smaller := *w
			smaller.requests, smaller.looks, smaller.turns = slices.Clone(w.requests), slices.Clone(w.looks), slices.Clone(w.turns)
			change(&smaller)
			if smaller.String() != w.String() && compareTwins(&smaller, seed) != nil {
				w, again = &smaller, true
			}
		}
		for i := len(w.requests) - 1; i >= 0; i-- {
			try(func(w *workload) { w.requests = slices.Delete(w.requests, i, i+1) })
		}
		for i := len(w.turns) - 1; i >= 0; i-- {
			try(func(w *workload) { w.turns = slices.Delete(w.turns, i, i+1) })
		}
		try(func(w *workload) { w.looks = nil })
		if w.outside != nil {
			for _, change := range w.outside.smaller() {
				try(func(w *workload) {
					less := *w.outside
					change(&less)
					w.outside = &less
				})
			}
		}
		try(func(w *workload) { w.StateBlocks = 0 })
		try(func(w *workload) { w.cost = 0 })
		try(func(w *workload) { w.kv.FreeTailFirst = false })
		try(func(w *workload) { w.SGLang.LongestPrefix = false })
		if s := w.Speculation; s != nil {
			try(func(w *workload) { w.Speculation = nil })
			try(func(w *workload) {
				w.Speculation = &Speculation{Tokens: s.Tokens, Acceptance: s.Acceptance, Model: s.Model}
			})
			try(func(w *workload) { w.Speculation = &Speculation{Tokens: s.Tokens, Acceptance: s.Acceptance} })
		}
		for i := range w.requests {
			try(func(w *workload) { w.requests[i].cancel = Never })
			try(func(w *workload) { w.requests[i].maxOutput = 0 })
			try(func(w *workload) { w.requests[i].at = 0 })
			try(func(w *workload) { w.requests[i].at = w.requests[i].at.Truncate(time.Millisecond) })
		}
	}
	return w
}

// TestTwins compares the engine with its slow twins on random workloads.
func TestTwins(t *testing.T) {
	workloads := uint64(10_000)
	if testing.Short() {
		workloads = 500
	}
	for name, random := range map[string]func(seed uint64) *workload{
		"vllm and trtllm": randomWorkload, "sglang": randomSGLangWorkload, "vllm with drafts": randomDraftsWorkload,
		"vllm and trtllm with KV outside": randomOutsideWorkload} {
		t.Run(name, func(t *testing.T) {
			for seed := range workloads {
				w := random(seed)
				if err := compareTwins(w, seed); err != nil {
					w = shrinkWorkload(w, seed)
					t.Fatalf("seed %d: %v\n%v", seed, compareTwins(w, seed), w)
				}
			}
		})
	}
}
