package sim

import (
	"math/bits"
	"slices"
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/memory"
	"github.com/agentsim/agentsim/trace"
)

// desk is one frontend: the program scheduler, which may hold requests, and behind it the router with its queue. On
// its way to an engine a request passes
//
//	gate (router.max_programs) ──► table (ThunderAgent) ──► router, its queue ──► engine
//
// and stays where it is not let on. With disaggregated serving a router of prefill workers and one of their engines come
// before. A desk knows only the requests that came to it.
type desk struct {
	index  int
	router *router.Router
	table  *thunderagent.Table // nil: none
	pinned []int64             // by rank: the tokens that its table was told to do without

	prefill *router.Router // of the workers that only prefill; nil: none
}

// stage is where a request is on its way.
type stage uint8

const (
	nowhere         stage = iota
	atGate                // for a slot among router.max_programs
	atTable               // held by the program scheduler
	atPrefillRouter       // in the queue of the router of prefill workers
	atPrefill             // in the engine of one
	atRouter              // in the router's queue
	atEngine
)

// schedulerFull is why a program scheduler turns a request away; routers have reasons of their own.
const schedulerFull = "program scheduler full"

// newDesks builds the frontends, with or without program schedulers. Their tables ask the engines of the fleet for what
// requests have generated.
func (s *service) newDesks(p *Plan, schedulers bool) error {
	for i := range p.Router.Frontends {
		d := &desk{index: i}
		var err error
		if d.router, err = router.New(p.decodes(), p.pool(), p.Seed+uint64(i)); err != nil {
			return err
		}
		if p.prefill != nil {
			if d.prefill, err = router.New(p.prefill.Router.Settings, p.prefill.pool(), p.Seed+uint64(p.Router.Frontends+i)); err != nil {
				return err
			}
			s.prefillers = p.prefill.Ranks
			if s.watch.tell != nil {
				d.prefill.Observe(func(c router.Choice) { s.watch.tell(s.lives[c.Request.ID], Event{What: Routed, Choice: p.numbered(c)}) })
			}
		}
		d.router.Tokens = func(q *router.Request) int32 {
			l := s.lives[q.ID]
			if l.stage != atEngine { // placed just now
				return 0
			}
			return s.engines[l.worker].Tokens(s.now, &l.Request)
		}
		if s.watch.tell != nil {
			d.router.Observe(func(c router.Choice) { s.watch.tell(s.lives[c.Request.ID], Event{What: Routed, Choice: &c}) })
		}
		if p.scheduler != nil && schedulers {
			if d.table, err = thunderagent.New(*p.scheduler, p.tableCapacity(), s.generated(i+1)); err != nil {
				return err
			}
			d.table.Observe(s.watch.decisions)
			d.pinned = make([]int64, p.Ranks)
		}
		s.desks = append(s.desks, d)
	}
	return nil
}

// generated tells the table of a frontend what its requests have generated. They are a group in the engines.
func (s *service) generated(group int) thunderagent.Live {
	return thunderagent.Live{
		Worker:  func(worker int) int64 { return s.engines[worker].Generated(s.now, group) },
		Request: func(q *thunderagent.Request) int32 { return s.generatedBy(s.lives[q.ID]) },
	}
}

func (s *service) generatedBy(l *live) int32 {
	if l.stage != atEngine {
		return 0
	}
	return s.engines[l.worker].GeneratedBy(s.now, &l.Request)
}

// desk returns the frontend of a session.
func (s *service) desk(session uint64) *desk {
	if len(s.desks) == 1 {
		return s.desks[0]
	}
	h, _ := bits.Mul64(session*0x9e3779b97f4a7c15, uint64(len(s.desks)))
	return s.desks[h]
}

// enter lets a request come to its desk.
func (s *service) enter(l *live) {
	if !s.gate.admit(l) {
		l.stage = atGate
		if s.watch.tell != nil {
			s.watch.tell(l, Event{What: Gated, Ahead: slices.Index(s.gate.waiting, l.inst), Running: s.gate.active})
		}
		return
	}
	d := s.desk(l.route.Session)
	if d.table == nil || !l.labelled {
		s.submit(d, l)
		return
	}
	l.stage = atTable
	l.ticket = thunderagent.Request{ID: l.ID, Session: l.route.Session, Input: l.Input,
		Final: l.final && s.plan.scheduler.Final != "swallow", Pin: -1}
	if s.plan.scheduler.SharedPrefixBudget { // which goes with clients that choose the worker
		l.ticket.Pin = l.pin
		// The table keeps the path for as long as the program has it, the request's own is used again after its end.
		l.ticket.Path, l.ticket.PromptBlocks = slices.Clone(l.Path), l.route.PromptBlocks
	}
	releases, err := d.table.Arrive(s.now, &l.ticket)
	if err != nil { // its limit on requests: all else was checked
		s.client.refused(l, schedulerFull)
		return
	}
	l.tracked = true
	s.release(d, releases)
}

// release submits what the program scheduler lets go.
func (s *service) release(d *desk, releases []thunderagent.Release) {
	for _, rel := range append([]thunderagent.Release(nil), releases...) { // refusing one asks the table again
		if rel.Swallowed {
			continue
		}
		l := s.lives[rel.Request.ID]
		l.route.Pinned, l.route.Preferred = rel.Worker, rel.Target
		l.route.PriorityJump += rel.PriorityJump.Seconds()
		l.held += rel.Held
		if !rel.Request.Final || s.plan.scheduler.Final == "release" { // else it has no program any more
			l.Group = int32(d.index) + 1
		}
		s.submit(d, l)
	}
}

// submit hands a request to the router, or first to that of the prefill workers.
func (s *service) submit(d *desk, l *live) {
	if s.splits() && s.plan.Disaggregation.Mode == "always" {
		s.sendToPrefill(d, l)
	} else {
		s.sendOn(d, l)
	}
}

// sendOn hands a request to the router of the workers that decode.
func (s *service) sendOn(d *desk, l *live) {
	l.stage, l.submitted = atRouter, s.now
	s.place(d, d.router.Submit(s.now, &l.route))
	if s.watch.tell != nil && l.seq != 0 && l.stage == atRouter {
		s.watch.tell(l, Event{What: Queued, Ahead: d.router.Waiting() - 1})
	}
}

// drain lets the routers dispatch what waits, once the step ends of this instant have freed workers.
func (s *service) drain() {
	for _, d := range s.desks {
		if d.prefill != nil && d.prefill.Waiting() > 0 {
			s.placePrefill(d, d.prefill.Drain(s.now))
		}
		if d.router.Waiting() > 0 {
			s.place(d, d.router.Drain(s.now))
		}
	}
}

// place does what the router decided.
func (s *service) place(d *desk, decisions []router.Decision) {
	var refused []router.Decision
	var apart []*live
	for _, dec := range decisions {
		l := s.lives[dec.Request.ID]
		if dec.Rejected != router.Placed {
			refused = append(refused, dec)
			continue
		}
		l.queued += s.now - l.submitted
		if s.prefillsApart(d, l, dec.Worker) {
			l.route.Preferred = int32(dec.Worker)
			apart = append(apart, l)
			continue
		}
		l.stage, l.worker = atEngine, int32(dec.Worker)
		s.client.placed(l)
		if l.tracked {
			d.table.Sent(s.now, &l.ticket, l.worker)
		}
		if l.prefill != nil { // what it was to prefill is done
			d.router.FirstToken(&l.route)
		}
		s.enqueue(l)
	}
	for _, l := range apart {
		d.router.FirstToken(&l.route)
		s.sendToPrefill(d, l)
	}
	for _, dec := range refused {
		s.client.refused(s.lives[dec.Request.ID], dec.Rejected.String())
	}
}

// leave takes a request that ended from its desk; answered requests leave their programs acting.
func (s *service) leave(l *live, answered bool) {
	d := s.desk(l.route.Session)
	if l.stage == atGate {
		s.gate.forget(l)
	}
	if l.stage > atTable {
		d.router.Done(s.now, &l.route)
	}
	if l.prefill != nil {
		d.prefill.Done(s.now, &l.prefill.route)
		s.memory.Withdraw(s.now, &l.Request)
	}
	if l.tracked {
		l.tracked = false
		if answered {
			s.release(d, d.table.Complete(s.now, &l.ticket, l.Input+l.Output))
			s.bidFarewell(d, l)
		} else {
			s.release(d, d.table.Abort(s.now, &l.ticket))
		}
	}
}

// bidFarewell sends what ends a session, after its last answer, where the scheduler wants a request of its own for that.
func (s *service) bidFarewell(d *desk, l *live) {
	if l.final && s.plan.scheduler.Final == "swallow" {
		last := thunderagent.Request{Session: l.route.Session, Final: true, Pin: -1}
		if releases, err := d.table.Arrive(s.now, &last); err == nil {
			s.release(d, releases)
		}
	}
}

// stay counts the time that a request which goes no further was kept where it is.
func (l *live) stay(now time.Duration) {
	switch l.stage {
	case atGate, atTable: // nothing else lies before
		l.held = now - l.cameAt
	case atPrefillRouter, atRouter:
		l.queued += now - l.submitted
	}
}

// nextTick is when a program scheduler is due next, engine.Never when none is. With nothing else to come, ticks matter
// only while they hold requests.
func (s *service) nextTick() time.Duration {
	at := engine.Never
	for _, d := range s.desks {
		if d.table == nil {
			continue
		}
		if due, ok := d.table.NextTick(s.now); ok {
			at = min(at, due)
		}
	}
	return at
}

// tick lets the program schedulers that are due look at their tables.
func (s *service) tick() {
	for _, d := range s.desks {
		if d.table == nil {
			continue
		}
		if due, ok := d.table.NextTick(s.now); ok && due == s.now {
			s.withhold(d)
			if s.watch.ticks != nil {
				s.watch.ticks(d.index, s.now, true, d.table)
			}
			released := d.table.Tick(s.now)
			if s.watch.ticks != nil {
				s.watch.ticks(d.index, s.now, false, d.table)
			}
			s.release(d, released)
		}
	}
}

// publish passes the KV events of an engine's step to the routers, unless its worker is gone, and to the client.
func (s *service) publish(worker int) {
	for _, ev := range s.engines[worker].Events() {
		s.client.cached(ev)
		if s.down[worker] {
			continue
		}
		for _, d := range s.desks {
			of, number := s.routerOf(d, worker)
			if ev.Removed {
				of.Removed(s.now, number, ev.Span)
			} else {
				of.Stored(s.now, number, ev.Span)
			}
		}
	}
}

// publishBelow passes on to the routers what a tier of an engine's worker holds now, or does not any more.
func (s *service) publishBelow(worker int, l memory.Level, span trace.Span, held bool) {
	tier := router.Host
	switch {
	case s.down[worker] || l != memory.Host && l != memory.Disk:
		return
	case l == memory.Disk:
		tier = router.Disk
	}
	for _, d := range s.desks {
		of, number := s.routerOf(d, worker)
		if held {
			of.StoredBelow(number, tier, span)
		} else {
			of.RemovedBelow(number, tier, span)
		}
	}
}

// schedulerStats sums up the tables of all desks; nil when there are none.
func (s *service) schedulerStats() *thunderagent.Stats {
	if s.desks[0].table == nil {
		return nil
	}
	var sum thunderagent.Stats
	for _, d := range s.desks {
		sum.Add(d.table.Stats(s.now))
	}
	return &sum
}
