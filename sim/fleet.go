package sim

import (
	"slices"
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/sim/memory"
)

// fleet is the engines of a deployment, and when each is next due.
type fleet struct {
	plan    *Plan
	engines []*engine.Engine
	groups  []*engine.Group // of each worker's ranks, where these step together
	history *engine.History
	due     timetable
	// dirty are the engines to schedule at the present instant.
	dirty  []int
	marked []bool
}

// newFleet builds the fleet for a prefix tree of the given number of nodes; with 0 it keeps no history. The engines tell
// of KV events and keep accounts of who holds KV blocks if anybody wants them.
func newFleet(p *Plan, nodes int, events, accounts bool) (*fleet, error) {
	f := &fleet{plan: p, marked: make([]bool, p.Ranks)}
	if nodes > 0 {
		f.history = engine.NewHistory(nodes)
	}
	for i := range p.Ranks {
		e, err := p.of(i).newEngine(i, events, accounts, f.history)
		if err != nil {
			return nil, err
		}
		f.engines = append(f.engines, e)
	}
	if p.lockstep() {
		for ranks := range slices.Chunk(f.engines, p.Parallelism.Data) {
			f.groups = append(f.groups, engine.NewGroup(ranks, p.Parallelism.Data))
		}
	}
	f.due = newTimetable(p.Ranks)
	return f, nil
}

// lockstep tells whether the data-parallel ranks of a worker step together: they share experts. Those of a dense model are
// independent engines.
func (p *Plan) lockstep() bool { return p.Parallelism.Data > 1 && p.Hardware.Model.MoELayers() > 0 }

// newEngine builds the engine of a rank.
func (p *Plan) newEngine(rank int, events, accounts bool, history *engine.History) (*engine.Engine, error) {
	kv := kvcache.Options{BlockSize: p.Engine.BlockSize, Blocks: p.Blocks, PrefixCaching: p.Engine.PrefixCaching, Events: events,
		Accounting: accounts, Evictions: p.memory != nil && p.memory.Writing == memory.Back}
	o := engine.Options{MaxSeqs: p.Engine.MaxNumSeqs, MaxBatchedTokens: p.Engine.MaxNumBatchedTokens,
		StateBlocks: p.StateBlocks, Ranked: p.ranked(), Groups: p.groups(), Worker: rank, Lockstep: p.lockstep()}
	switch p.Engine.Kind {
	case "vllm":
		o.ReserveFull = p.Engine.Admission == "full"
		o.Async = p.Async
		o.Speculation, o.MaxBatchedTokens = p.speculation, p.stepTokens()
		kv.FreeTailFirst = p.Engine.atLeast(24)
	case "trtllm":
		o.Style = engine.TRTLLM
	case "sglang":
		o.Style = engine.SGLang
		o.SGLang = engine.SGLangOptions{MaxPrefillTokens: p.Engine.MaxPrefillTokens,
			Conservativeness: p.Engine.ScheduleConservativeness, LongestPrefix: p.Engine.Scheduling == "lpm"}
		if ranks := p.Parallelism.Data; ranks > 1 { // attention data parallelism (server_args.py)
			o.MaxBatchedTokens /= ranks
			o.SGLang.Conservativeness *= 0.3
		}
	}
	return engine.New(o, p.Cost, kv, history)
}

// ranked tells whether the engines take waiting requests in order of their ranks.
func (p *Plan) ranked() bool {
	return p.Engine.Scheduling == "priority" || p.continuum()
}

// continuum tells whether the engines pin KV while tools run.
func (p *Plan) continuum() bool {
	return p.Engine.Scheduling == "continuum" || p.Engine.Scheduling == "continuum-preview"
}

// pool is what the routers know of the engines that decode.
func (p *Plan) pool() router.Pool {
	return router.Pool{Workers: p.decodeRanks(), BlockSize: p.Engine.BlockSize, MaxBatchedTokens: p.Engine.MaxNumBatchedTokens, KVBlocks: p.Blocks}
}

// groups is the number of program schedulers that ask the engines what their requests have generated.
func (p *Plan) groups() int {
	if p.scheduler == nil {
		return 0
	}
	return p.Router.Frontends
}

// touch notes that an engine got or lost a request at now, and schedules it, with its group, at this instant if it is at a
// step boundary.
func (f *fleet) touch(worker int, now time.Duration) {
	from, to := worker, worker+1
	if f.groups != nil {
		size := f.plan.Parallelism.Data
		f.groups[worker/size].Align()
		from = worker - worker%size
		to = min(from+size, len(f.engines))
	}
	for i := from; i < to; i++ {
		next := f.engines[i].Next()
		if next == engine.Never || next == now {
			f.mark(i)
		}
		f.due.set(i, next)
	}
}

func (f *fleet) mark(worker int) {
	if !f.marked[worker] {
		f.marked[worker] = true
		f.dirty = append(f.dirty, worker)
	}
}

// schedule starts the next steps of all dirty engines, in order of worker. All ranks of a group are dirty, or none.
func (f *fleet) schedule(now time.Duration, each func(worker int, outcomes []engine.Outcome)) error {
	slices.Sort(f.dirty)
	for _, w := range f.dirty {
		f.marked[w] = false
		outcomes, err := f.engines[w].Schedule(now)
		if err != nil {
			return err
		}
		each(w, outcomes)
		if size := f.plan.Parallelism.Data; f.groups != nil && ((w+1)%size == 0 || w+1 == len(f.engines)) {
			f.groups[w/size].Start()
		}
	}
	for _, w := range f.dirty {
		f.due.set(w, f.engines[w].Next())
	}
	f.dirty = f.dirty[:0]
	return nil
}

// timetable is a binary heap of workers by the time when they are due.
type timetable struct {
	at    []time.Duration // by worker
	heap  []int32
	place []int32 // by worker: index in heap
}

func newTimetable(n int) timetable {
	t := timetable{at: make([]time.Duration, n), heap: make([]int32, n), place: make([]int32, n)}
	for i := range n {
		t.at[i], t.heap[i], t.place[i] = engine.Never, int32(i), int32(i)
	}
	return t
}

// next returns the worker that is due first, the lowest of equals.
func (t *timetable) next() (int, time.Duration) {
	w := t.heap[0]
	return int(w), t.at[w]
}

func (t *timetable) less(a, b int32) bool {
	return t.at[a] < t.at[b] || t.at[a] == t.at[b] && a < b
}

func (t *timetable) set(worker int, at time.Duration) {
	w := int32(worker)
	if t.at[w] == at {
		return
	}
	t.at[w] = at
	i := int(t.place[w])
	for i > 0 && t.less(w, t.heap[(i-1)/2]) {
		t.move(i, t.heap[(i-1)/2])
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			break
		}
		if child+1 < len(t.heap) && t.less(t.heap[child+1], t.heap[child]) {
			child++
		}
		if !t.less(t.heap[child], w) {
			break
		}
		t.move(i, t.heap[child])
		i = child
	}
	t.move(i, w)
}

func (t *timetable) move(i int, w int32) {
	t.heap[i] = w
	t.place[w] = int32(i)
}
