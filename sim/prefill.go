package sim

import (
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace/report"
)

// prefill is the part of a request that a prefill worker serves: the same prompt, with one token to generate that nobody
// sees (Dynamo's and vLLM's proxies send max_tokens 1). Its way is
//
//	router of prefill workers ──► prefill engine ──► router ──► decode engine: KV transfer, last prompt token, answer
type prefill struct {
	engine.Request
	route  router.Request
	worker int32 // its rank, once that is settled
	done   Handover
}

// Handover is what became of a request before the worker that decodes it had its prompt. Times that did not come are
// report.None.
type Handover struct {
	// Worker is the rank that prefilled it, -1 if it was prefilled where it was decoded.
	Worker int32
	// Ended is when its prefill ended there. From Began to Came its KV was on the way, Blocks of it; if there was nothing to
	// move, or the transfer failed, it did not.
	Ended, Began, Came time.Duration
	Blocks             int32
	// Found is the prompt tokens that the worker which decodes it had when it admitted the request first, Cached those that it
	// had before anything was brought.
	Found, Cached int32
}

func noHandover() Handover {
	return Handover{Worker: -1, Ended: report.None, Began: report.None, Came: report.None}
}

// at returns what an engine has of a request, and the rank of that.
func (l *live) at() (*engine.Request, int32) {
	if l.stage == atPrefill {
		return &l.prefill.Request, l.prefill.worker
	}
	return &l.Request, l.worker
}

// inEngine tells whether a request is in an engine.
func (l *live) inEngine() bool { return l.stage == atPrefill || l.stage == atEngine }

// splits tells whether requests go to a prefill worker before they are routed to one that decodes. Without any left they
// do not (Dynamo falls back to decode workers alone).
func (s *service) splits() bool { return s.plan.prefill != nil && s.prefillers > 0 }

// prefillsApart tells whether a request that was routed to a decode worker is to go to a prefill worker first: with conditional
// disaggregation what lacks much of its prompt there (Dynamo: max_local_prefill_length and max_prefill_queue_size).
func (s *service) prefillsApart(d *desk, l *live, rank int) bool {
	x := &s.plan.Disaggregation
	if !s.splits() || x.Mode != "conditional" || l.prefill != nil {
		return false
	}
	size := int32(s.plan.Engine.BlockSize)
	if l.Input-size*s.engines[rank].Cached(l.Path, l.Input/size) <= int32(x.MaxLocalPrefill) {
		return false
	}
	waiting := d.prefill.Waiting()
	for _, e := range s.engines[s.plan.decodeRanks():] {
		waiting += e.Waiting()
	}
	return x.MaxQueue == 0 || waiting < x.MaxQueue
}

// routerOf returns the router of a desk that knows of a rank, and the rank's number there.
func (s *service) routerOf(d *desk, rank int) (*router.Router, int) {
	if first := s.plan.decodeRanks(); rank >= first {
		return d.prefill, rank - first
	}
	return d.router, rank
}

// numbered returns a choice among prefill workers with the numbers that the deployment has for them.
func (p *Plan) numbered(c router.Choice) *router.Choice {
	c.Worker += p.decodeRanks()
	for i := range c.Options {
		c.Options[i].Worker += int32(p.decodeRanks())
	}
	return &c
}

// wantsEvents tells whether a router listens to what enters and leaves KV caches.
func (d *desk) wantsEvents() bool {
	return d.router.WantsEvents() || d.prefill != nil && d.prefill.WantsEvents()
}

// sendToPrefill hands a request to the router of the prefill workers.
func (s *service) sendToPrefill(d *desk, l *live) {
	q := &prefill{worker: -1, done: noHandover()}
	q.Request = engine.Request{ID: l.ID, Session: l.Session, Path: l.Path, Input: l.Input, Output: 1, History: l.History,
		Rank: l.Rank, Priority: l.Priority, Seed: l.Seed}
	r := &l.route
	q.route = router.Request{ID: r.ID, Session: r.Session, Parent: r.Parent, Input: r.Input, PromptBlocks: r.PromptBlocks, Path: r.Path,
		Pinned: -1, Preferred: -1, StrictPriority: r.StrictPriority, PriorityJump: r.PriorityJump, Class: r.Class}
	l.prefill = q
	l.stage, l.submitted = atPrefillRouter, s.now
	s.placePrefill(d, d.prefill.Submit(s.now, &q.route))
}

// placePrefill does what the router of the prefill workers decided.
func (s *service) placePrefill(d *desk, decisions []router.Decision) {
	var refused []router.Decision
	for _, dec := range decisions {
		l := s.lives[dec.Request.ID]
		if dec.Rejected != router.Placed {
			refused = append(refused, dec)
			continue
		}
		rank := s.plan.decodeRanks() + dec.Worker
		l.stage, l.prefill.worker, l.prefill.done.Worker = atPrefill, int32(rank), int32(rank)
		l.queued += s.now - l.submitted
		s.client.placed(l)
		s.enqueue(l)
	}
	for _, dec := range refused {
		s.client.refused(s.lives[dec.Request.ID], dec.Rejected.String())
	}
}

// prefillWhereDecoded sends all requests on that wait for a prefill worker: there is none left.
func (s *service) prefillWhereDecoded() {
	for _, l := range s.lives {
		if l.seq != 0 && l.stage == atPrefillRouter {
			d := s.desk(l.route.Session)
			d.prefill.Done(s.now, &l.prefill.route)
			l.queued += s.now - l.submitted
			l.prefill = nil
			s.sendOn(d, l)
		}
	}
}

// enqueue hands a request to the engine that it was routed to.
func (s *service) enqueue(l *live) {
	q, rank := l.at()
	if s.watch.tell != nil {
		e := s.engines[rank]
		s.watch.tell(l, Event{What: Enqueued, Ahead: e.Waiting(), Running: e.Running()})
	}
	s.engines[rank].Enqueue(s.now, q)
	s.touch(int(rank), s.now)
}

// prefilled sends a request on whose prompt a prefill worker has computed. That keeps the KV until it is read.
func (s *service) prefilled(l *live) {
	q := l.prefill
	q.done.Ended = s.now
	if s.watch.tell != nil {
		s.watch.tell(l, Event{What: Prefilled})
	}
	s.memory.Computed(s.now, int(q.worker), l.Session, q.Path, q.Input, q.Input)
	s.memory.Offer(s.now, int(q.worker), &l.Request)
	d := s.desk(l.route.Session)
	d.prefill.Done(s.now, &q.route)
	s.sendOn(d, l)
}

// began notes that the engine which decodes a prompt has it, or what it was to have.
func (s *service) began(l *live) {
	s.memory.Withdraw(s.now, &l.Request)
	if l.Preemptions == 0 {
		l.prefill.done.Found, l.prefill.done.Cached = l.Hit, l.Hit-l.Brought
	}
}

// handed notes that the KV of a prompt has come to the worker that decodes it.
func (s *service) handed(now time.Duration, q *engine.Request, began time.Duration, blocks int32) {
	l := s.lives[q.ID]
	h := &l.prefill.done
	h.Began, h.Came, h.Blocks = began, now, blocks
	if s.watch.tell != nil {
		s.watch.tell(l, Event{What: HandedOver, Took: now - began})
	}
}
