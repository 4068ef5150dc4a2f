package sim

import (
	"math/bits"
	"slices"
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace/report"
)

// desk is one frontend: the program scheduler, which may hold requests, and behind it the router with its queue. On
// its way to an engine a request passes
//
//	gate (router.max_programs) ──► table (ThunderAgent) ──► router, its queue ──► engine
//
// and stays where it is not let on. A desk knows only the requests that came to it.
type desk struct {
	index  int
	router *router.Router
	table  *thunderagent.Table // nil: none
}

// stage is where a request is on its way.
type stage uint8

const (
	nowhere  stage = iota
	atGate         // for a slot among router.max_programs
	atTable        // held by the program scheduler
	atRouter       // in the router's queue
	atEngine
)

// schedulerFull is why a program scheduler turns a request away; routers have reasons of their own.
const schedulerFull = "program scheduler full"

// newDesks builds the frontends. Their tables ask the engines of the fleet for what requests have generated.
func (r *run) newDesks(p *Plan) error {
	for i := range p.Router.Frontends {
		d := &desk{index: i}
		var err error
		if d.router, err = router.New(p.Router.Settings, p.pool(), p.Seed+uint64(i)); err != nil {
			return err
		}
		d.router.Tokens = func(q *router.Request) int32 {
			l := r.lives[q.ID]
			if l.stage != atEngine { // placed just now
				return 0
			}
			return r.engines[l.worker].Tokens(r.now, &l.Request)
		}
		if r.options.Observe != nil {
			d.router.Observe(func(c router.Choice) { r.tell(r.lives[c.Request.ID], Event{What: Routed, Choice: &c}) })
		}
		if p.scheduler != nil && !r.options.private {
			if d.table, err = thunderagent.New(*p.scheduler, p.tableCapacity(), r.generated(i+1)); err != nil {
				return err
			}
			d.table.Observe(r.decided)
		}
		r.desks = append(r.desks, d)
	}
	return nil
}

// generated tells the table of a frontend what its requests have generated. They are a group in the engines.
func (r *run) generated(group int) thunderagent.Live {
	return thunderagent.Live{
		Worker:  func(worker int) int64 { return r.engines[worker].Generated(r.now, group) },
		Request: func(q *thunderagent.Request) int32 { return r.generatedBy(r.lives[q.ID]) },
	}
}

func (r *run) generatedBy(l *live) int32 {
	if l.stage != atEngine {
		return 0
	}
	return r.engines[l.worker].GeneratedBy(r.now, &l.Request)
}

// tableCapacity is what each rank publishes to the program scheduler: nothing with its gates off, and then it lets all go.
func (p *Plan) tableCapacity() []thunderagent.Capacity {
	c := make([]thunderagent.Capacity, p.Ranks)
	for i := range c {
		if p.Router.ThunderAgent.Gates != "none" {
			c[i].Tokens = int64(p.Blocks+p.nullBlocks()) * int64(p.Engine.BlockSize)
		}
	}
	return c
}

// desk returns the frontend of a session.
func (r *run) desk(session uint64) *desk {
	if len(r.desks) == 1 {
		return r.desks[0]
	}
	h, _ := bits.Mul64(session*0x9e3779b97f4a7c15, uint64(len(r.desks)))
	return r.desks[h]
}

// enter lets a request come to its desk.
func (r *run) enter(l *live) {
	if !r.gate.admit(l) {
		l.stage = atGate
		if r.options.Observe != nil {
			r.tell(l, Event{What: Gated, Ahead: slices.Index(r.gate.waiting, l.inst), Running: r.gate.active})
		}
		return
	}
	d := r.desk(l.route.Session)
	if d.table == nil || !l.labelled {
		r.submit(d, l)
		return
	}
	l.stage = atTable
	l.ticket = thunderagent.Request{ID: l.ID, Session: l.route.Session, Input: l.Input,
		Final: l.final && r.plan.scheduler.Final != "swallow", Pin: -1}
	if r.plan.scheduler.SharedPrefixBudget { // which goes with clients that choose the worker
		l.ticket.Pin = l.inst.program % int32(r.plan.Ranks)
		// The table keeps the path for as long as the program has it, the request's own is used again after its end.
		l.ticket.Path, l.ticket.PromptBlocks = slices.Clone(l.Path), l.route.PromptBlocks
	}
	releases, err := d.table.Arrive(r.now, &l.ticket)
	if err != nil { // its limit on requests: all else was checked
		r.refuse(l, schedulerFull)
		return
	}
	l.tracked = true
	r.release(d, releases)
}

// release submits what the program scheduler lets go.
func (r *run) release(d *desk, releases []thunderagent.Release) {
	for _, rel := range append([]thunderagent.Release(nil), releases...) { // refusing one asks the table again
		if rel.Swallowed {
			continue
		}
		l := r.lives[rel.Request.ID]
		l.route.Pinned, l.route.Preferred = rel.Worker, rel.Target
		l.route.PriorityJump += rel.PriorityJump.Seconds()
		l.held += rel.Held
		if !rel.Request.Final {
			l.Group = int32(d.index) + 1
		}
		r.submit(d, l)
	}
}

// submit hands a request to the router.
func (r *run) submit(d *desk, l *live) {
	l.stage, l.submitted = atRouter, r.now
	r.place(d, d.router.Submit(r.now, &l.route))
	if r.options.Observe != nil && l.seq != 0 && l.stage == atRouter {
		r.tell(l, Event{What: Queued, Ahead: d.router.Waiting() - 1})
	}
}

// drain lets the routers dispatch what waits, once the step ends of this instant have freed workers.
func (r *run) drain() {
	for _, d := range r.desks {
		if d.router.Waiting() > 0 {
			r.place(d, d.router.Drain(r.now))
		}
	}
}

// place does what the router decided.
func (r *run) place(d *desk, decisions []router.Decision) {
	var refused []router.Decision
	for _, dec := range decisions {
		l := r.lives[dec.Request.ID]
		if dec.Rejected != router.Placed {
			refused = append(refused, dec)
			continue
		}
		r.fruitless = 0
		l.stage, l.worker = atEngine, int32(dec.Worker)
		l.queued += r.now - l.submitted
		r.requests[l.record].Worker = l.worker
		if l.tracked {
			d.table.Sent(r.now, &l.ticket, l.worker)
		}
		if r.options.Observe != nil {
			e := r.engines[dec.Worker]
			r.tell(l, Event{What: Enqueued, Ahead: e.Waiting(), Running: e.Running()})
		}
		r.engines[dec.Worker].Enqueue(r.now, &l.Request)
		r.touch(dec.Worker, r.now)
	}
	for _, dec := range refused {
		r.refuse(r.lives[dec.Request.ID], dec.Rejected.String())
	}
}

// leave takes a request that ended from its desk; answered requests leave their programs acting.
func (r *run) leave(l *live, answered bool) {
	d := r.desk(l.route.Session)
	if l.stage == atGate {
		r.gate.forget(l)
	}
	if l.stage >= atRouter {
		d.router.Done(r.now, &l.route)
	}
	if l.tracked {
		l.tracked = false
		if answered {
			r.release(d, d.table.Complete(r.now, &l.ticket, l.Input+l.Output))
			r.bidFarewell(d, l)
		} else {
			r.release(d, d.table.Abort(r.now, &l.ticket))
		}
	}
}

// bidFarewell sends what ends a session, after its last answer, where the scheduler wants a request of its own for that.
func (r *run) bidFarewell(d *desk, l *live) {
	if l.final && r.plan.scheduler.Final == "swallow" {
		last := thunderagent.Request{Session: l.route.Session, Final: true, Pin: -1}
		if releases, err := d.table.Arrive(r.now, &last); err == nil {
			r.release(d, releases)
		}
	}
}

// stay counts the time that a request which goes no further was kept where it is.
func (l *live) stay(now time.Duration) {
	switch l.stage {
	case atGate, atTable: // nothing else lies before
		l.held = now - l.cameAt
	case atRouter:
		l.queued += now - l.submitted
	}
}

// refuse ends a request that no worker takes.
func (r *run) refuse(l *live, why string) {
	rec := &r.requests[l.record]
	rec.Status, rec.End = report.Rejected, r.now
	l.stay(r.now)
	rec.Held, rec.RouterQueued = rec.Held+l.held, rec.RouterQueued+l.queued
	r.result.refuse(why)
	if r.options.Observe != nil {
		r.tell(l, Event{What: Denied, Why: why})
	}
	r.leave(l, false)
	r.inFlight--
	inst, call := l.inst, l.call
	r.freeLive(l)
	inst.lost = true
	r.callEnded(inst, call, r.now)
}

// nextTick is when a program scheduler is due next, engine.Never when none is. With nothing else to come, ticks matter
// only while they hold requests.
func (r *run) nextTick() time.Duration {
	at := engine.Never
	for _, d := range r.desks {
		if d.table == nil {
			continue
		}
		if due, ok := d.table.NextTick(r.now); ok {
			at = min(at, due)
		}
	}
	return at
}

// tick lets the program schedulers that are due look at their tables.
func (r *run) tick() {
	for _, d := range r.desks {
		if d.table == nil {
			continue
		}
		if due, ok := d.table.NextTick(r.now); ok && due == r.now {
			if r.options.Ticks != nil {
				r.options.Ticks(d.index, r.now, true, d.table)
			}
			released := d.table.Tick(r.now)
			if r.options.Ticks != nil {
				r.options.Ticks(d.index, r.now, false, d.table)
			}
			r.release(d, released)
		}
	}
}

// publish passes the KV events of an engine's step to the routers.
func (r *run) publish(worker int) {
	events := r.engines[worker].Events()
	if r.down[worker] {
		return
	}
	for _, ev := range events {
		for _, d := range r.desks {
			if ev.Removed {
				d.router.Removed(r.now, worker, ev.Span)
			} else {
				d.router.Stored(r.now, worker, ev.Span)
			}
		}
	}
}

// schedulerStats sums up the tables of all desks; nil when there are none.
func (r *run) schedulerStats() *thunderagent.Stats {
	if r.desks[0].table == nil {
		return nil
	}
	var sum thunderagent.Stats
	for _, d := range r.desks {
		sum.Add(d.table.Stats(r.now))
	}
	return &sum
}

// kept counts the requests that desks keep from the engines.
func (r *run) kept() int {
	n := 0
	for _, l := range r.lives {
		if l.seq != 0 && (l.stage == atGate || l.stage == atTable || l.stage == atRouter) {
			n++
		}
	}
	return n
}
