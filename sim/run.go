// Package sim runs a workload on a simulated deployment: clients that follow the workload's dependency graph, a
// router, and engines with their KV caches, on one virtual clock of integer nanoseconds.
//
// At one instant things happen in a fixed order: step ends and the completions in them, clients giving up, what waits in
// the routers' queues, the ticks of program schedulers, faults, programs and calls arriving, and last the scheduling of
// engines at a step boundary, so that an arrival at a step's end joins the next step. The result depends on nothing but the inputs.
package sim

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
	"github.com/agentsim/agentsim/trace/report"
)

// Options are about one run and not about what is simulated.
type Options struct {
	// Check verifies the conservation laws at every event. Slow.
	Check bool
	// Progress, when set, counts ended calls.
	Progress *atomic.Int64
	// Decisions, when set, gets every decision of the program schedulers, and Observe what else happens to calls.
	Decisions func(thunderagent.Event)
	Observe   func(Event)
	// Ticks, when set, is shown the table of a frontend before and after each of its ticks. It must not change it.
	Ticks func(frontend int, at time.Duration, before bool, t *thunderagent.Table)
	// Events, when set, gets the events of the whole run for its sidecar, in order.
	Events func(*events.Event)
	// Accounts makes Result.Held tell how many KV blocks each session held for how long.
	Accounts bool
	// Samples is the most samples of the run's state to take, for Result.Series; 0 takes none.
	Samples int
	// private keeps programs from sharing any cached prefix, for running each as if alone. hold keeps their calls
	// back as mode recorded does.
	private, hold bool
}

// run is the state of a simulation, and the client of its service.
type run struct {
	*service
	continuum *continuum // nil: none
	tools     *toolTimes // nil: nobody asks for them
	keeper    *keeper    // nil: none
	sampler   *sampler   // nil: none
	journal   *journal   // nil: none
	holdings  *holdings  // nil: none
	living    int        // programs that have begun and not ended
	finals    marks      // whether the trace marks the ends of sessions
	parents   []int32    // by session: its parent, or itself
	// idleTicks counts ticks since anything else happened.
	idleTicks int
	arrivals  *arrivals
	w         *trace.Workload
	options   Options
	agenda    agenda
	timeouts  deadlines
	requests  []report.Request
	programs  []report.Program
	cut       []*instance // programs that time was up for, or that are held for ever
	// fruitless counts the programs that ended since a call was last served or set to a later time.
	fruitless int
	// borders are those of the window that are to come; passed counts, by engine, those that its steps have passed.
	borders []time.Duration
	passed  []int
	result  *Result
	before  *KVUse // when the window began; nil: nothing
	// stop is when no more calls are sent; 0 for never.
	stop time.Duration
}

// Run simulates a workload on a deployment. It fails when the context ends or the simulation cannot go on; the error
// names what is stuck.
func Run(ctx context.Context, w *trace.Workload, p *Plan, o Options) (*Result, error) {
	r, err := newRun(w, p, o)
	if err != nil {
		return nil, err
	}
	r.openDoors()
	err = r.loop(ctx)
	if err == nil && o.Check {
		err = r.checkRequests()
	}
	if err != nil {
		return nil, fmt.Errorf("simulating deployment %q: %w", p.Name, err)
	}
	return r.finish(), nil
}

// newRun returns a run in which nothing has happened.
func newRun(w *trace.Workload, p *Plan, o Options) (*run, error) {
	nodes := w.Nodes()
	if o.private {
		nodes = 0
	}
	r := &run{arrivals: newArrivals(p, w), parents: w.Parents(), w: w, options: o,
		result: &Result{Plan: p, Workload: w, Gaps: new(report.Gaps)}}
	seen := watch{decisions: r.decided, ticks: o.Ticks, accounts: o.Accounts}
	if o.Decisions == nil && o.Events == nil && !o.Accounts && len(p.rules) == 0 {
		seen.decisions = nil
	}
	if o.Observe != nil {
		seen.tell = r.tell
	}
	var err error
	if r.service, err = newService(p, r, nodes, false, !o.private, seen); err != nil {
		return nil, fmt.Errorf("building deployment %q: %w", p.Name, err)
	}
	r.arrivals.hold = r.arrivals.hold || o.hold
	if !o.private {
		if r.gate.limit, err = p.maxPrograms(); err != nil {
			return nil, err
		}
		if p.continuum() || len(p.rules) > 0 {
			r.tools = newToolTimes()
			r.continuum = newContinuum(p, r.tools)
		}
		if p.memory != nil && len(p.rules) > 0 {
			r.keeper = newKeeper(r)
		}
	}
	if o.Observe != nil && r.memory != nil {
		r.memory.Landed = r.landed
	}
	if o.Events != nil {
		r.journal = newJournal(r)
	}
	if o.Accounts {
		r.holdings = newHoldings(r)
	}
	if p.Load.Duration > 0 {
		r.stop = p.Load.Warmup + p.Load.Duration
		r.result.Window = report.Window{From: p.Load.Warmup, To: r.stop}
		r.borders = []time.Duration{p.Load.Warmup, r.stop}
	}
	if o.Samples > 0 {
		r.sampler = newSampler(p, o.Samples)
	}
	r.requests = make([]report.Request, 0, len(w.Calls))
	r.passed, r.result.Engines = make([]int, p.Ranks), make([]engine.Stats, p.Ranks)
	for i := range r.passed {
		r.passBorders(i) // at 0 already where there is no warm-up
	}
	return r, nil
}

// openDoors schedules the first programs.
func (r *run) openDoors() {
	if !r.options.private {
		for i := range r.plan.Faults {
			r.agenda.push(event{at: r.plan.Faults[i].At, kind: evFault, call: int32(i)})
		}
	}
	slots := r.arrivals.atOnce()
	if slots == 0 {
		r.scheduleStart()
	}
	for i := range slots {
		r.agenda.push(event{at: time.Duration(i) * (r.plan.Load.Ramp / time.Duration(slots)), kind: evSlot})
	}
}

// scheduleStart puts the next program on the agenda, in the modes in which time decides.
func (r *run) scheduleStart() {
	if r.arrivals.more() {
		if at := r.arrivals.scheduled(); r.stop == 0 || at < r.stop {
			r.agenda.push(event{at: at, kind: evStart})
		}
	}
}

// loop runs until nothing is left to happen.
func (r *run) loop(ctx context.Context) error {
	for i := 0; ; i++ {
		if i&4095 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r.dropStale()
		_, at := r.due.next()
		if !r.agenda.empty() {
			at = min(at, r.agenda.next())
		}
		if !r.timeouts.empty() {
			at = min(at, r.timeouts.list[r.timeouts.head].at)
		}
		tick := r.nextTick()
		if at == engine.Never && r.inFlight == 0 {
			return nil
		}
		at = min(at, r.nextMove(), r.keeper.next())
		if at == engine.Never {
			if tick == engine.Never && !slices.Contains(r.down[:r.plan.decodeRanks()], false) {
				return nil // what waits for a worker to return stays unfinished
			}
			if tick == engine.Never {
				return fmt.Errorf("%d requests wait at %v and nothing is left to happen", r.inFlight, r.now)
			}
			if r.idleTicks++; r.idleTicks > r.plan.patience {
				return nil // what is held stays unfinished
			}
		} else if at < tick {
			r.idleTicks = 0
		}
		at = min(at, tick)
		if len(r.borders) > 0 {
			at = min(at, r.borders[0])
		}
		if at < r.now {
			return fmt.Errorf("the clock overflows after %v: times of the trace or of the load are too long", r.now)
		}
		r.sample(at)
		r.journal.sample(at)
		r.now = at
		r.endSteps()
		r.move()
		r.keeper.fire()
		if len(r.borders) > 0 && r.borders[0] == r.now {
			r.borders = r.borders[1:]
			r.cutSteps()
			r.countKV()
		}
		for !r.timeouts.empty() && r.timeouts.list[r.timeouts.head].at == r.now {
			r.giveUp()
		}
		r.drain()
		if tick == r.now {
			r.tick()
		}
		for !r.agenda.empty() && r.agenda.next() == r.now {
			r.handle(r.agenda.pop())
			if r.arrivals.total < 0 && r.fruitless > len(r.arrivals.order)+r.plan.Load.Concurrency {
				return fmt.Errorf("at %v: the last %d programs ended without a call that this deployment can serve", r.now, r.fruitless)
			}
		}
		if err := r.boundary(); err != nil {
			return err
		}
		if r.options.Check {
			if err := r.check(); err != nil {
				return err
			}
		}
	}
}

// placed notes where a request went.
func (r *run) placed(l *live) {
	r.fruitless = 0
	r.holdings.placed(l)
	if l.stage == atPrefill {
		return
	}
	r.requests[l.record].Worker = l.worker
	r.keeper.placed(l)
}

// firstToken notes when the client sees the first token.
func (r *run) firstToken(l *live) {
	if rec := &r.requests[l.record]; l.Output > 0 && rec.FirstToken == report.None {
		rec.FirstToken = r.now + r.plan.Cost.TokenDelay()
	}
	r.journal.firstToken(l)
}

func (r *run) finished(l *live) {
	r.complete(l, r.now+r.plan.Cost.TokenDelay()*time.Duration(l.Output))
}

// preempted notes that a request waits again.
func (r *run) preempted(l *live) { r.journal.preempted(l) }

// scheduled notes that an engine begins a step.
func (r *run) scheduled(worker int) { r.journal.begin(worker) }

// decided passes a decision on.
func (r *run) decided(e thunderagent.Event) {
	if r.options.Decisions != nil {
		r.options.Decisions(e)
	}
	r.keeper.decided(&e)
	r.journal.decided(&e)
	r.holdings.decided(&e)
}

// stepped passes the borders of the window that are behind an engine.
func (r *run) stepped(worker int) {
	r.journal.end(worker)
	r.passBorders(worker)
}

// cached is for clients whose tree of prompts grows.
func (r *run) cached(kvcache.Event) {}

// cutSteps lets all engines pass a border of the window as soon as the step in flight ends.
func (r *run) cutSteps() {
	for worker, e := range r.engines {
		if e.Next() == engine.Never {
			r.passBorders(worker)
		}
		e.Cut(r.now)
		r.touch(worker, r.now)
	}
}

// passBorders takes an engine's stats when it is between steps and a border of the window is behind it.
func (r *run) passBorders(worker int) {
	w := r.result.Window
	e, passed := r.engines[worker], &r.passed[worker]
	if *passed == 0 && r.now >= w.From {
		*passed = 1
		e.Restart(r.now)
		e.Gaps = r.result.Gaps
		r.journal.count(worker)
	}
	if *passed == 1 && w != (report.Window{}) && r.now >= w.To {
		*passed = 2
		e.Gaps = nil
		r.close(worker)
	}
}

// close ends the measures of an engine.
func (r *run) close(worker int) {
	r.result.Engines[worker] = r.engines[worker].Close(r.now)
	r.holdings.close(worker, r.now)
}

// admitted notes the first admission of a request.
func (r *run) admitted(l *live) {
	r.journal.admitted(l)
	r.keeper.admitted(l)
	rec := &r.requests[l.record]
	if rec.Admitted != report.None {
		return
	}
	q, _ := l.at()
	rec.Admitted = r.now
	rec.Hit, rec.Brought = q.Hit, q.Brought
	if r.continuum != nil {
		r.continuum.waited(r.now - l.submitted - l.queued)
	}
	rec.Warm = min(q.Warmed, q.Hit)
}

// handle does what an event says.
func (r *run) handle(e event) {
	switch e.kind {
	case evSlot:
		if r.arrivals.more() && (r.stop == 0 || r.now < r.stop) {
			r.start()
		}
	case evStart:
		r.start()
		r.scheduleStart()
	case evDone:
		r.callEnded(e.inst, e.call, r.now)
	case evRoute:
		r.dispatch(e)
	case evFault:
		f := r.plan.Faults[e.call]
		r.strike(f)
		r.journal.fault(f)
		for i := range r.plan.Parallelism.Data {
			if rank := f.Worker*r.plan.Parallelism.Data + i; r.down[rank] {
				r.keeper.lost(rank)
			}
		}
	}
}

// start begins the next program: its calls that wait for nothing arrive as recorded.
func (r *run) start() {
	inst := r.arrivals.begin()
	r.living++
	inst.begun = r.now
	if inst.skip != nil {
		r.skipCalls(inst)
	}
	for i := range inst.calls {
		call := inst.first + int32(i)
		c := &r.w.Calls[call]
		if inst.calls[i].waits > 0 || inst.skip != nil && inst.skip[i] {
			continue
		}
		at := r.now
		if c.Offset != trace.NoTime && inst.skip == nil {
			at += r.arrivals.scale(c.Offset)
		}
		r.send(inst, call, max(at, inst.calls[i].ready))
	}
	if inst.left == 0 {
		r.programEnded(inst, r.now)
	}
}

// skipCalls counts the calls before a snapshot's beginning as ended.
func (r *run) skipCalls(inst *instance) {
	for i := range inst.calls {
		if !inst.skip[i] {
			continue
		}
		inst.left--
		c := &r.w.Calls[inst.first+int32(i)]
		for _, edge := range r.w.Successors(c) {
			inst.calls[edge.To-inst.first].waits--
			if to := &r.w.Calls[edge.To]; to.Session == c.Session {
				inst.warm[edge.To-inst.first] = min(c.Computed(), to.Input)
			}
		}
	}
}

// finish gathers the result.
func (r *run) finish() *Result {
	res := r.result
	for _, l := range r.lives {
		if l.seq != 0 { // it is held for ever
			r.cutShort(l.inst)
			r.copyCounts(l, &r.requests[l.record])
		}
	}
	for _, inst := range r.cut {
		r.programs = append(r.programs, inst.record)
	}
	res.Requests, res.Programs, res.End = r.requests, r.programs, r.now
	res.Scheduler = r.schedulerStats()
	if r.sampler != nil {
		r.sample(r.now + 1)
		res.Series = &r.sampler.Series
	}
	r.journal.take(r.now)
	r.closeKV()
	for i := range r.engines {
		if r.passed[i] == 1 { // the run ended first
			r.close(i)
		}
	}
	res.Held = r.holdings.result()
	return res
}
