package sim

import (
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/report"
)

// send puts a call on its way to the router; the frontend's own work comes before.
func (r *run) send(inst *instance, call int32, at time.Duration) {
	c := &r.w.Calls[call]
	if r.stop > 0 && at >= r.stop {
		r.uncalled(inst)
		return
	}
	if at > r.now {
		r.fruitless = 0
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
func (r *run) resend(call int32, inst *instance, record int32, attempt uint8) {
	delay := r.plan.Cost.RequestDelay(int(r.w.Calls[call].Input))
	r.agenda.push(event{at: r.now + delay, kind: evRoute, call: call, inst: inst, attempt: attempt, record: record})
}

// dispatch takes a call that reached its frontend, or rejects it when no engine can ever serve it.
func (r *run) dispatch(e event) {
	c := &r.w.Calls[e.call]
	sent := r.now - r.plan.Cost.RequestDelay(int(c.Input))
	rec := report.Request{Turn: e.call, Program: c.Program, Copy: e.inst.copy, Session: c.Session, Worker: -1,
		Retries: e.attempt, Arrival: sent, Admitted: report.None,
		FirstToken: report.None, End: report.None, Input: c.Input, Output: c.Output}
	record := e.record
	if e.attempt == 0 {
		p := &e.inst.calls[e.call-e.inst.first]
		rec.Waited, rec.Tool, rec.Human = p.waited, p.tool, p.human
		record = int32(len(r.requests))
		r.requests = append(r.requests, rec)
		if r.plan.prefill != nil {
			r.result.Handovers = append(r.result.Handovers, noHandover())
		}
	} else { // the client has waited since its first attempt
		rec.Arrival = r.requests[record].Arrival
		first := &r.requests[record]
		rec.Held, rec.RouterQueued = first.Held, first.RouterQueued
		rec.Waited, rec.Tool, rec.Human = first.Waited, first.Tool, first.Human
	}
	if r.rejects(c) {
		rec.Status, rec.End = report.Rejected, r.now
		r.requests[record] = rec
		if r.options.Observe != nil {
			r.options.Observe(Event{At: r.now, What: Denied, Call: e.call, Copy: e.inst.copy, Slot: -1, Worker: -1,
				Why: "longer than the model or the KV cache of a worker takes", Attempt: e.attempt})
		}
		e.inst.lost = true
		r.callEnded(e.inst, e.call, r.now)
		return
	}
	r.requests[record] = rec
	if r.plan.prefill != nil {
		r.result.Handovers[record] = noHandover()
	}
	if r.now > sent { // or else programs that are refused could follow each other at one instant for ever
		r.fruitless = 0
	}
	l := r.newLive()
	l.inst, l.call, l.record, l.cameAt = e.inst, e.call, record, r.now
	r.prepare(l, c)
	r.holdContext(l, false)
	r.keeper.returned(l)
	r.holdings.arrived(l)
	if timeout := r.plan.Client.Timeout; timeout > 0 {
		r.timeouts.add(deadline{max(r.now, sent+timeout), l.ID, l.seq})
	}
	if r.options.Observe != nil {
		r.tell(l, Event{What: Arrived})
	}
	r.begin(l)
}

// prepare fills in what engine, router and program scheduler need to know of a call.
func (r *run) prepare(l *live, c *trace.Call) {
	p := r.plan
	copy := l.inst.copy
	if r.options.private {
		copy = uint32(l.inst.program) + 1
	}
	l.Path = r.path(c, copy, l.Path[:0])
	l.Input, l.Output = c.Input, c.Output
	l.Seed = hash.Combine(p.Seed, uint64(l.inst.copy)<<32|uint64(l.call))
	l.MaxOutput = int32(min(p.Client.MaxTokens, p.MaxModelLen-int(c.Input)))
	if p.Deployment.Workload.WarmStart {
		l.History = l.inst.history(l.call, c)
	}
	l.Session = sessionKey(l.inst, c.Session)
	l.address(p, sessionKey(l.inst, r.parents[c.Session]), p.hints(r.w, l.call))
	if p.continuum() {
		l.Rank = int64(l.inst.begun)
	}
	l.labelled = r.labelled(l, c)
	l.final = r.final(l.call, c)
	l.pin = l.inst.program % int32(p.Ranks)
	if r.tools != nil {
		r.tools.returned(r.now, l.Session)
	}
}

// rejects tells whether a call can never be served, and counts why.
func (r *run) rejects(c *trace.Call) bool {
	switch {
	case r.plan.MaxModelLen < int(c.Input)+int(c.Output):
		r.result.TooLong.add(c)
	case !r.engines[0].Fits(c.Input, c.Output):
		r.result.TooLarge.add(c)
	default:
		return false
	}
	return true
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

// refused ends a call that no worker takes.
func (r *run) refused(l *live, why string) {
	rec := &r.requests[l.record]
	rec.Status, rec.End = report.Rejected, r.now
	l.stay(r.now)
	rec.Held, rec.RouterQueued = rec.Held+l.held, rec.RouterQueued+l.queued
	r.copyCounts(l, rec)
	r.result.refuse(why)
	if r.options.Observe != nil {
		r.tell(l, Event{What: Denied, Why: why})
	}
	inst, call := l.inst, l.call
	r.end(l, false)
	inst.lost = true
	r.callEnded(inst, call, r.now)
}

// complete records a call whose last token the client sees at end.
func (r *run) complete(l *live, end time.Duration) {
	rec := &r.requests[l.record]
	rec.Status, rec.End = report.Completed, end
	rec.Held, rec.RouterQueued = rec.Held+l.held, rec.RouterQueued+l.queued
	r.copyCounts(l, rec)
	if r.options.Observe != nil {
		r.tell(l, Event{What: Completed})
	}
	inst, call := l.inst, l.call
	inst.record.Model += end - rec.Arrival
	inst.record.Queued += rec.Admitted - rec.Arrival - rec.Held
	inst.record.Paused += rec.Held
	r.holdContext(l, true)
	r.journal.completed(l)
	r.retain(l)
	if dropped := r.keeper.completed(l); r.memory != nil && !dropped {
		computed := l.Input + max(l.Output-1, 0)
		r.memory.Used(int(l.worker), l.Path, computed)
		r.memory.Computed(r.now, int(l.worker), l.Session, l.Path, computed, l.Input)
	}
	r.end(l, true)
	r.callEnded(inst, call, end)
}

// retain pins the KV of a session that calls a tool, for as long as continuum says.
func (r *run) retain(l *live) {
	if r.tools == nil || l.final {
		return
	}
	name, calls := r.toolOf(l.call)
	if !calls {
		return
	}
	r.tools.called(r.now, l.Session, name)
	if !r.plan.continuum() {
		return
	}
	if lease := r.continuum.lease(name, l.Input+l.Output); lease > 0 {
		r.engines[l.worker].Pin(r.now, l.Session, int64(l.inst.begun), l.Path, l.Input+max(l.Output-1, 0), r.now+lease)
		if r.options.Observe != nil {
			r.tell(l, Event{What: Leased, Until: r.now + lease})
		}
	}
}

func (r *run) copyCounts(l *live, rec *report.Request) {
	rec.Hit, rec.Brought, rec.Computed = l.Hit, l.Brought, l.Computed
	rec.ReadmitHit, rec.Readmit, rec.Preemptions = l.ReadmitHit, l.Readmit, l.Preemptions
	rec.RecomputedEviction, rec.RecomputedPreemption, rec.RecomputedMigration =
		l.Recomputed.Eviction, l.Recomputed.Preemption, l.Recomputed.Migration
	if q := l.prefill; q != nil {
		r.result.Handovers[l.record] = q.done
		rec.Hit, rec.Brought = q.Hit, q.Brought // what is handed over was computed for the request
		rec.Computed += q.Computed
		rec.ReadmitHit, rec.Readmit, rec.Preemptions = rec.ReadmitHit+q.ReadmitHit, rec.Readmit+q.Readmit, rec.Preemptions+q.Preemptions
		rec.RecomputedEviction += q.Recomputed.Eviction
		rec.RecomputedPreemption += q.Recomputed.Preemption
		rec.RecomputedMigration += q.Recomputed.Migration
	}
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
	if stage := l.stage; !r.fail(l, "its client gave up (client.timeout)") {
		r.result.GaveUp.add(stage)
	}
}

// callEnded lets go those that wait for the call, which ended at end, now or a little later.
func (r *run) callEnded(inst *instance, call int32, end time.Duration) {
	inst.record.Last = max(inst.record.Last, end)
	r.holdings.ended(inst, call)
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
	gap, people := r.arrivals.gap(c, edge.Delay)
	if r.arrivals.held(c) {
		p.ready = max(p.ready, at, inst.begun+r.arrivals.scale(c.Offset))
	} else {
		p.ready = max(p.ready, at+gap)
	}
	if p.waits--; p.waits == 0 {
		p.waited = p.ready - at
		p.human = time.Duration(float64(p.waited) * people)
		if g := c.Turn.Gap; g.Tool > 0 {
			p.tool = time.Duration(float64(p.waited-p.human) * float64(g.Tool) / float64(g.Tool+g.Other))
		}
		inst.record.Human += p.human
		inst.record.Tool += p.tool
		r.holdings.waiting(inst, edge.To, p)
		r.send(inst, edge.To, p.ready)
	}
}

// uncalled counts a call that is not sent because time is up; nothing that waits for it is sent either. Its program leaves
// its place to others: they are not to wait for what does not come.
func (r *run) uncalled(inst *instance) {
	r.result.Uncalled++
	if !inst.cut {
		r.cutShort(inst)
		r.open(inst)
	}
}

// cutShort notes that a program will not end.
func (r *run) cutShort(inst *instance) {
	if !inst.cut {
		inst.cut = true
		r.cut = append(r.cut, inst)
	}
}

// programEnded records a program and frees its slot.
func (r *run) programEnded(inst *instance, end time.Duration) {
	r.fruitless++
	r.living--
	r.dropContexts(inst)
	r.journal.forget(inst)
	r.keeper.programEnded(inst)
	r.holdings.programEnded(inst)
	r.tools.programEnded(inst, r.w)
	r.open(inst)
	inst.record.Completed = !inst.lost
	r.programs = append(r.programs, inst.record)
	if r.arrivals.atOnce() > 0 {
		r.agenda.push(event{at: end, kind: evSlot})
	}
}
