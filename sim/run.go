// Package sim runs a workload on a simulated deployment: clients that follow the workload's dependency graph, a
// router, and engines with their KV caches, on one virtual clock of integer nanoseconds.
//
// At one instant things happen in a fixed order: step ends and the completions in them, clients giving up, programs
// and calls arriving, and last the scheduling of engines at a step boundary, so that an arrival at a step's end joins
// the next step. The result depends on nothing but the inputs.
package sim

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Options are about one run and not about what is simulated.
type Options struct {
	// Check verifies the conservation laws at every event. Slow.
	Check bool
	// Progress, when set, counts ended calls.
	Progress *atomic.Int64
	// private keeps programs from sharing any cached prefix, for running each as if alone.
	private bool
}

// Result is what became of a workload on a deployment.
type Result struct {
	Plan     *Plan
	Workload *trace.Workload
	Requests []report.Request
	Programs []report.Program
	Gaps     *report.Gaps
	Engines  []engine.Stats
	// Evicted is the number of cached KV blocks that each engine took for other tokens.
	Evicted []int64
	// Window is the measured part, End when the last event happened.
	Window report.Window
	End    time.Duration
	// Dropped counts calls that the deployment does not serve, Uncalled those never sent because time was up.
	Dropped, Uncalled int
}

// live is a call on its way through router and engine.
type live struct {
	engine.Request
	route  router.Request
	inst   *instance
	call   int32
	record int32 // index in run.requests
	worker int32
	seq    uint64 // tells reuses of the slot apart
	gone   bool   // the client gave up
}

// run is the state of a simulation.
type run struct {
	*fleet
	arrivals *arrivals
	w        *trace.Workload
	options  Options
	now      time.Duration
	agenda   agenda
	timeouts deadlines
	lives    []*live
	idle     []int32
	seq      uint64
	inFlight int
	requests []report.Request
	programs []report.Program
	cut      []*instance // programs that time was up for
	result   *Result
	// stop is when no more calls are sent; 0 for never.
	stop time.Duration
}

// Run simulates a workload on a deployment. It fails when the context ends or the simulation cannot go on; the error
// names what is stuck.
func Run(ctx context.Context, w *trace.Workload, p *Plan, o Options) (*Result, error) {
	gaps := new(report.Gaps)
	nodes := w.Nodes()
	if o.private {
		nodes = 0
	}
	f, err := newFleet(p, nodes)
	if err != nil {
		return nil, fmt.Errorf("building deployment %q: %w", p.Name, err)
	}
	r := &run{fleet: f, arrivals: newArrivals(p, w), w: w, options: o,
		result: &Result{Plan: p, Workload: w, Gaps: gaps}}
	if p.Load.Duration > 0 {
		r.stop = p.Load.Warmup + p.Load.Duration
		r.result.Window = report.Window{From: p.Load.Warmup, To: r.stop}
	}
	r.requests = make([]report.Request, 0, len(w.Calls))
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

// openDoors schedules the first programs.
func (r *run) openDoors() {
	if r.arrivals.mode != "concurrency" {
		r.scheduleStart()
		return
	}
	for range r.plan.Load.Concurrency {
		r.agenda.push(event{kind: evSlot})
	}
}

// scheduleStart puts the next program on the agenda, in the modes in which time decides.
func (r *run) scheduleStart() {
	if r.arrivals.more() {
		if at := r.arrivals.scheduled(); r.stop == 0 || at < r.stop {
			r.agenda.push(event{at: max(at, r.now), kind: evStart})
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
		worker, at := r.due.next()
		if !r.agenda.empty() {
			at = min(at, r.agenda.next())
		}
		if !r.timeouts.empty() {
			at = min(at, r.timeouts.list[r.timeouts.head].at)
		}
		if at == engine.Never {
			if r.inFlight > 0 {
				return fmt.Errorf("%d requests wait at %v and nothing is left to happen", r.inFlight, r.now)
			}
			return nil
		}
		r.now = at
		for worker, at = r.due.next(); at == r.now; worker, at = r.due.next() {
			r.endStep(worker)
		}
		for !r.timeouts.empty() && r.timeouts.list[r.timeouts.head].at == r.now {
			r.giveUp()
		}
		for !r.agenda.empty() && r.agenda.next() == r.now {
			r.handle(r.agenda.pop())
		}
		if err := r.boundary(); err != nil {
			return err
		}
	}
}

// boundary schedules the engines that are at a step boundary now. Arrivals may have cut a leap short at this very
// instant; such an engine ends its step first.
func (r *run) boundary() error {
	for _, w := range r.dirty {
		if r.engines[w].Next() == r.now {
			r.endStep(w)
		}
	}
	if err := r.schedule(r.now, r.scheduled); err != nil {
		return err
	}
	if r.options.Check {
		return r.check()
	}
	return nil
}

// endStep ends the steps of an engine and marks it for scheduling.
func (r *run) endStep(worker int) {
	e := r.engines[worker]
	if e.Gaps = r.result.Gaps; !r.measured(r.now) {
		e.Gaps = nil
	}
	outcomes := e.EndStep()
	r.due.set(worker, engine.Never)
	r.mark(worker)
	delay := r.plan.Cost.TokenDelay()
	for _, o := range outcomes {
		l := r.lives[o.Request.ID]
		if l.gone {
			continue
		}
		rec := &r.requests[l.record]
		switch o.Kind {
		case engine.FirstToken:
			r.router(l.route.Session).FirstToken(&l.route)
			if l.Output > 0 && rec.FirstToken == report.None {
				rec.FirstToken = r.now + delay
			}
		case engine.Finished:
			r.complete(l, r.now+delay*time.Duration(l.Output))
		}
	}
	r.publish(worker, r.now)
}

// measured tells whether a time is in the measured window.
func (r *run) measured(t time.Duration) bool {
	w := r.result.Window
	return w == report.Window{} || w.From <= t && t < w.To
}

// scheduled notes admissions.
func (r *run) scheduled(outcomes []engine.Outcome) {
	for _, o := range outcomes {
		if o.Kind != engine.Admitted {
			continue
		}
		if l := r.lives[o.Request.ID]; !l.gone {
			if rec := &r.requests[l.record]; rec.Admitted == report.None {
				rec.Admitted = r.now
				rec.Hit = l.Hit
				rec.Warm = min(rec.Warm, l.Hit)
			}
		}
	}
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
	}
}

// start begins the next program: its calls that wait for nothing arrive as recorded.
func (r *run) start() {
	inst := r.arrivals.begin()
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

// send puts a call on its way to the router; the frontend's own work comes before.
func (r *run) send(inst *instance, call int32, at time.Duration) {
	c := &r.w.Calls[call]
	if r.arrivals.mode == "recorded" && c.Offset != trace.NoTime {
		at = max(at, inst.begun+r.arrivals.scale(c.Offset))
	}
	if r.stop > 0 && at >= r.stop {
		r.uncalled(inst)
		return
	}
	if inst.record.First == report.None || at < inst.record.First {
		inst.record.First = at
	}
	for _, edge := range r.w.Successors(c) {
		if edge.OnDispatch {
			r.satisfy(inst, edge, at)
		}
	}
	switch r.arrivals.treatment(call) {
	case drop:
		r.result.Dropped++
		r.agenda.push(event{at: at, kind: evDone, call: call, inst: inst})
	case fold:
		r.result.Dropped++
		took := time.Duration(0)
		if t := c.Turn; t.End != trace.NoTime && t.Start != trace.NoTime {
			took = max(0, t.End-t.Start)
		}
		r.agenda.push(event{at: at + took, kind: evDone, call: call, inst: inst})
	default:
		r.agenda.push(event{at: at + r.plan.Cost.RequestDelay(int(c.Input)), kind: evRoute, call: call, inst: inst})
	}
}

// resend puts another attempt of a call on its way. It goes on with the record of the first.
func (r *run) resend(l *live, attempt uint8) {
	delay := r.plan.Cost.RequestDelay(int(r.w.Calls[l.call].Input))
	r.agenda.push(event{at: r.now + delay, kind: evRoute, call: l.call, inst: l.inst, attempt: attempt, record: l.record})
}

// dispatch routes a call to a worker and enqueues it, or rejects it.
func (r *run) dispatch(e event) {
	c := &r.w.Calls[e.call]
	sent := r.now - r.plan.Cost.RequestDelay(int(c.Input))
	rec := report.Request{Turn: e.call, Program: c.Program, Copy: e.inst.copy, Session: c.Session, Worker: -1,
		Retries: e.attempt, Arrival: sent, Admitted: report.None,
		FirstToken: report.None, End: report.None, Input: c.Input, Output: c.Output}
	l := r.newLive()
	l.inst, l.call, l.record = e.inst, e.call, e.record
	if e.attempt == 0 {
		l.record = int32(len(r.requests))
		r.requests = append(r.requests, rec)
	} else { // the client has waited since its first attempt
		rec.Arrival = r.requests[l.record].Arrival
	}
	defer func() { r.requests[l.record] = rec }()
	if r.plan.MaxModelLen < int(c.Input)+int(c.Output) || !r.engines[0].Fits(c.Input, c.Output) {
		rec.Status, rec.End = report.Rejected, r.now
		r.freeLive(l)
		e.inst.lost = true
		r.callEnded(e.inst, e.call, r.now)
		return
	}
	copy := e.inst.copy
	if r.options.private {
		copy = uint32(e.inst.program) + 1
	}
	l.Path = r.path(c, copy, l.Path[:0])
	l.Input, l.Output = c.Input, c.Output
	l.route = router.Request{Session: uint64(e.inst.copy)<<32 | uint64(c.Session), Input: c.Input,
		PromptBlocks: c.Input / int32(r.plan.Engine.BlockSize), Path: l.Path}
	rt := r.router(l.route.Session)
	worker, overlap := rt.Pick(r.now, &l.route)
	rt.Dispatched(&l.route, worker, overlap)
	l.worker, rec.Worker = int32(worker), int32(worker)
	if history := e.inst.history(e.call, c); history > 0 && r.plan.Deployment.Workload.WarmStart {
		rec.Warm = r.engines[worker].Warm(&l.Request, history)
	}
	r.inFlight++
	if timeout := r.plan.Client.Timeout; timeout > 0 {
		r.timeouts.add(deadline{max(r.now, sent+timeout), l.ID, l.seq})
	}
	r.engines[worker].Enqueue(r.now, &l.Request)
	r.touch(worker, r.now)
}

// path returns the spans of a call. Without sharing every node is salted.
func (r *run) path(c *trace.Call, copy uint32, buf []trace.Span) []trace.Span {
	buf = r.w.Path(c.End, c.Computed(), r.plan.Engine.BlockSize, copy, buf)
	if r.options.private {
		for i := range buf {
			buf[i].Key = trace.MakeKey(buf[i].Key.Node(), copy)
		}
	}
	return buf
}

func (r *run) newLive() *live {
	r.seq++
	if n := len(r.idle); n > 0 {
		l := r.lives[r.idle[n-1]]
		r.idle = r.idle[:n-1]
		*l = live{Request: engine.Request{ID: l.ID, Path: l.Path}, seq: r.seq}
		return l
	}
	l := &live{Request: engine.Request{ID: int32(len(r.lives))}, seq: r.seq}
	r.lives = append(r.lives, l)
	return l
}

func (r *run) freeLive(l *live) {
	l.seq = 0
	r.idle = append(r.idle, l.ID)
}

// complete records a call whose last token the client sees at end.
func (r *run) complete(l *live, end time.Duration) {
	rec := &r.requests[l.record]
	rec.Status, rec.End = report.Completed, end
	r.copyCounts(l, rec)
	r.router(l.route.Session).Done(&l.route)
	r.inFlight--
	inst, call := l.inst, l.call
	inst.record.Model += end - rec.Arrival
	inst.record.Queued += rec.Admitted - rec.Arrival
	r.freeLive(l)
	r.callEnded(inst, call, end)
}

func (r *run) copyCounts(l *live, rec *report.Request) {
	rec.Hit, rec.Computed = l.Hit, l.Computed
	rec.ReadmitHit, rec.Readmit, rec.Preemptions = l.ReadmitHit, l.Readmit, l.Preemptions
	rec.RecomputedEviction, rec.RecomputedPreemption, rec.RecomputedMigration =
		l.Recomputed.Eviction, l.Recomputed.Preemption, l.Recomputed.Migration
}

// dropStale removes deadlines of calls that have ended.
func (r *run) dropStale() {
	for !r.timeouts.empty() {
		d := &r.timeouts.list[r.timeouts.head]
		if r.lives[d.live].seq == d.seq {
			return
		}
		r.timeouts.head++
	}
}

// giveUp makes the client of the earliest deadline hang up, and try again when it has retries left.
func (r *run) giveUp() {
	d := r.timeouts.list[r.timeouts.head]
	r.timeouts.head++
	l := r.lives[d.live]
	if l.seq != d.seq {
		return
	}
	rec := &r.requests[l.record]
	rec.Status, rec.End = report.Failed, r.now
	r.copyCounts(l, rec)
	r.router(l.route.Session).Done(&l.route)
	r.engines[l.worker].Cancel(r.now, &l.Request)
	r.touch(int(l.worker), r.now)
	r.inFlight--
	l.gone, l.seq = true, 0 // the slot is not reused: the engine may hold the request until its step ends
	if int(rec.Retries) < r.plan.Client.Retries {
		r.resend(l, rec.Retries+1)
		return
	}
	l.inst.lost = true
	r.callEnded(l.inst, l.call, r.now)
}

// callEnded lets go those that wait for the call, which ended at end, now or a little later.
func (r *run) callEnded(inst *instance, call int32, end time.Duration) {
	inst.record.Last = max(inst.record.Last, end)
	if r.options.Progress != nil {
		r.options.Progress.Add(1)
	}
	for _, edge := range r.w.Successors(&r.w.Calls[call]) {
		if !edge.OnDispatch {
			r.satisfy(inst, edge, end)
		}
	}
	if inst.left--; inst.left == 0 {
		r.programEnded(inst, end)
	}
}

// satisfy counts one edge into a call, whose other end came at time at, and sends the call with the last one.
func (r *run) satisfy(inst *instance, edge trace.Edge, at time.Duration) {
	p := &inst.calls[edge.To-inst.first]
	if inst.skip != nil && inst.skip[edge.To-inst.first] {
		return
	}
	c := &r.w.Calls[edge.To]
	p.ready = max(p.ready, at+r.arrivals.gap(c, edge.Delay))
	if p.waits--; p.waits == 0 {
		g := c.Turn.Gap
		if total := g.Total(); total > 0 {
			waited := float64(p.ready - at)
			inst.record.Tool += time.Duration(waited * float64(g.Tool) / float64(total))
			inst.record.Human += time.Duration(waited * float64(g.Human) / float64(total))
		}
		r.send(inst, edge.To, p.ready)
	}
}

// uncalled counts a call that is not sent because time is up; nothing that waits for it is sent either.
func (r *run) uncalled(inst *instance) {
	r.result.Uncalled++
	if !inst.cut {
		inst.cut = true
		r.cut = append(r.cut, inst)
	}
}

// programEnded records a program and frees its slot.
func (r *run) programEnded(inst *instance, end time.Duration) {
	inst.record.Completed = !inst.lost
	r.programs = append(r.programs, inst.record)
	if r.arrivals.mode == "concurrency" {
		r.agenda.push(event{at: end, kind: evSlot})
	}
}

// finish gathers the result.
func (r *run) finish() *Result {
	res := r.result
	for _, inst := range r.cut {
		r.programs = append(r.programs, inst.record)
	}
	res.Requests, res.Programs, res.End = r.requests, r.programs, r.now
	for _, e := range r.engines {
		e.Close(r.now)
		res.Engines = append(res.Engines, e.Stats)
		res.Evicted = append(res.Evicted, e.Pool().Evicted)
	}
	return res
}

var errConservation = errors.New("a conservation law is broken")

// check verifies the KV pools and what the requests add up to.
func (r *run) check() error {
	for i, e := range r.engines {
		if err := e.Check(); err != nil {
			return fmt.Errorf("worker %d at %v: %w: %w", i, r.now, errConservation, err)
		}
	}
	running := 0
	for _, e := range r.engines {
		running += e.Waiting() + e.Running()
	}
	if r.inFlight > running {
		return fmt.Errorf("at %v: %w: %d requests are in flight but engines hold %d", r.now, errConservation, r.inFlight, running)
	}
	return nil
}

// checkRequests verifies that every request has ended, and that each prompt token of those that were not preempted
// was found or computed once.
func (r *run) checkRequests() error {
	for i := range r.requests {
		q := &r.requests[i]
		if q.Status == report.Unfinished {
			return fmt.Errorf("%w: request %d has not ended", errConservation, q.Turn)
		}
		if q.Status == report.Completed && q.Preemptions == 0 && q.Hit+q.Computed != q.Input {
			return fmt.Errorf("%w: request %d found %d and computed %d of %d prompt tokens", errConservation, q.Turn, q.Hit, q.Computed, q.Input)
		}
	}
	return nil
}
