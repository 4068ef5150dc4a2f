package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// Service is a deployment that takes requests one by one, on a clock that its caller moves: what `agentsim serve` runs on
// the wall clock. The caller submits and cancels requests, and calls Advance when Next comes, or sooner. It is not safe for
// concurrent use.
type Service struct {
	*service
	// Cached, when set, hears which blocks enter and leave the KV caches.
	Cached func(kvcache.Event)

	agenda   agenda
	decoding [][]*live       // by rank: requests past their prefill
	tokens   []time.Duration // by rank: when the next token comes out
	gone     []cancelled
	changes  []Change
}

// cancelled is a request whose client has gone; held is its place while an engine may still hold it.
type cancelled struct {
	request *Request
	held    *live
}

// Request is a request to a Service. The caller fills the fields up to Seed and leaves them alone until it has ended.
type Request struct {
	// Session tells which requests belong to one chain of turns, Parent the session that spawned it, Session itself for a
	// root. A program scheduler sees only those whose clients name their session.
	Session, Parent uint64
	Named, Final    bool
	// Path is where prompt and answer lie among all prompts, in KV blocks of the engine's size.
	Path []trace.Span
	// Input and Output are token counts; MaxOutput is the most that the client allows.
	Input, Output, MaxOutput int32
	Hints                    trace.Hints
	Seed                     uint64

	// Worker is the rank that serves it. Hit is its prompt tokens found cached, Generated its output tokens so far.
	Worker, Hit, Generated int32
	Preemptions            int32
	// Held is how long the program scheduler kept it, Queued how long the router.
	Held, Queued time.Duration

	live *live
}

// Change is something that happened to a request: it was Admitted, also again after a preemption; it has Progressed; or it
// has ended, being Completed, Denied by all workers, Failed with its worker, or Departed.
type Change struct {
	Request *Request
	What    What
	At      time.Duration
	// Before is what Generated was before, where it has grown. At is when it began to.
	Before int32
	// Why a request was refused.
	Why string
}

// NewService builds an idle deployment with empty caches. Decisions, when set, gets every decision of the program
// schedulers.
func NewService(p *Plan, decisions func(thunderagent.Event)) (*Service, error) {
	if limit, err := p.maxPrograms(); err != nil || limit > 0 {
		return nil, bad("router.max_programs", "only a trace tells which requests are of one program; want none")
	}
	if p.prefill != nil {
		return nil, bad("disaggregation.prefill_workers", "served live are only workers that prefill and decode; want 0")
	}
	if p.continuum() {
		return nil, bad("engine.scheduling", "%s needs to know of the tools that programs call, which only a trace tells", p.Engine.Scheduling)
	}
	if p.memory != nil {
		return nil, bad("kv", "only agentsim predict simulates tiers and policies; want no kv.host.capacity, and kv.policy lru")
	}
	s := &Service{decoding: make([][]*live, p.Ranks), tokens: make([]time.Duration, p.Ranks)}
	var err error
	if s.service, err = newService(p, s, 0, true, true, watch{decisions: decisions}); err != nil {
		return nil, fmt.Errorf("building deployment %q: %w", p.Name, err)
	}
	for i := range p.Faults {
		s.agenda.push(event{at: p.Faults[i].At, kind: evFault, call: int32(i)})
	}
	return s, nil
}

// Fits tells whether the deployment can ever serve a request of that size.
func (s *Service) Fits(input, output int32) bool {
	return int(input)+int(output) <= s.plan.MaxModelLen && s.engines[0].Fits(input, output)
}

// Submit takes a request that arrives at now. It reaches its frontend once the server's own work on it is done.
func (s *Service) Submit(now time.Duration, q *Request) {
	p := s.plan
	l := s.newLive()
	l.asked, q.live, q.Worker = q, l, -1
	l.Path, l.Input, l.Output, l.Seed = q.Path, q.Input, q.Output, q.Seed
	l.MaxOutput = min(q.MaxOutput, int32(p.MaxModelLen)-q.Input)
	l.Session, l.labelled, l.final = q.Session, q.Named, q.Final
	l.pin = int32(q.Parent % uint64(p.Ranks))
	l.address(p, q.Parent, q.Hints)
	s.agenda.push(event{at: max(now, s.now) + p.Cost.RequestDelay(int(q.Input)), kind: evRoute, call: l.ID})
}

// Cancel takes out a request whose client has gone, at the time of the last Advance. It does nothing when the request has
// ended. An Advance must follow.
func (s *Service) Cancel(q *Request) {
	l := q.live
	if l == nil {
		return
	}
	q.live = nil
	s.stopDecoding(l)
	c := cancelled{request: q}
	switch l.stage {
	case nowhere: // on its way to its frontend
		l.gone = true
	case atEngine:
		c.held = l
		fallthrough
	default:
		s.abandon(l)
	}
	s.gone = append(s.gone, c)
}

// Next is when the state changes next if nobody submits or cancels; engine.Never if it does not. While requests decode
// that is when the next token comes out.
func (s *Service) Next() time.Duration {
	at := s.soonest()
	for rank, list := range s.decoding {
		if len(list) > 0 {
			at = min(at, s.tokens[rank])
		}
	}
	return at
}

// soonest is when the next event is due.
func (s *Service) soonest() time.Duration {
	_, at := s.due.next()
	if !s.agenda.empty() {
		at = min(at, s.agenda.next())
	}
	return min(at, s.nextTick(), s.nextMove())
}

// Advance lets everything happen up to now, and returns what became of requests in the order in which it did. The slice is
// reused. An error is a fault of the simulation, which cannot go on.
func (s *Service) Advance(now time.Duration) ([]Change, error) {
	s.changes = s.changes[:0]
	for {
		tick := s.nextTick()
		at := s.soonest()
		if at > now {
			break
		}
		s.now = at
		s.endSteps()
		s.move()
		s.drain()
		if tick == at {
			s.tick()
		}
		for !s.agenda.empty() && s.agenda.next() <= at {
			s.handle(s.agenda.pop())
		}
		if err := s.boundary(); err != nil {
			return nil, err
		}
	}
	s.now = max(s.now, now)
	if err := s.boundary(); err != nil { // for those that were cancelled
		return nil, err
	}
	for rank := range s.decoding {
		s.count(rank)
	}
	s.depart()
	return s.changes, nil
}

// depart tells of the cancelled requests that no engine holds any more.
func (s *Service) depart() {
	s.gone = slices.DeleteFunc(s.gone, func(c cancelled) bool {
		if l := c.held; l != nil {
			if !l.Left() {
				return false
			}
			s.publish(int(l.worker)) // what it leaves in the cache
			s.freeLive(l)
		}
		s.changes = append(s.changes, Change{Request: c.request, What: Departed, At: s.now})
		return true
	})
}

// RankLoad is what a rank has to do.
type RankLoad struct {
	// Running requests hold KV blocks, Waiting ones do not yet.
	Running, Waiting int
	// Used counts the blocks that requests hold, of Blocks.
	Used, Blocks int
}

// Load returns the load of a rank.
func (s *Service) Load(rank int) RankLoad {
	e := s.engines[rank]
	return RankLoad{Running: e.Running(), Waiting: e.Waiting(), Used: e.UsedBlocks(), Blocks: s.plan.Blocks}
}

// Kept is the number of requests that program schedulers and routers keep from the engines.
func (s *Service) Kept() int {
	n := 0
	for _, l := range s.lives {
		if l.seq != 0 && (l.stage == atGate || l.stage == atTable || l.stage == atRouter) {
			n++
		}
	}
	return n
}

// Scheduler sums up the program schedulers of all frontends; nil without any.
func (s *Service) Scheduler() *thunderagent.Stats { return s.schedulerStats() }

// handle does what an event says.
func (s *Service) handle(e event) {
	if e.kind == evFault {
		s.strike(s.plan.Faults[e.call])
		return
	}
	l := s.lives[e.call]
	if l.gone {
		s.freeLive(l)
		return
	}
	l.cameAt = s.now
	s.begin(l)
}

// count notes the tokens that the requests of a rank have generated by now, if any came out since it looked last.
func (s *Service) count(rank int) {
	if s.now < s.tokens[rank] {
		return
	}
	at := s.tokens[rank]
	s.tokens[rank] = s.engines[rank].StepEnd(s.now)
	for _, l := range s.decoding[rank] {
		if n := s.generatedBy(l); n > l.asked.Generated {
			s.changes = append(s.changes, Change{Request: l.asked, What: Progressed, At: at, Before: l.asked.Generated})
			l.asked.Generated = n
		}
	}
}

func (s *Service) tell(l *live, what What) {
	s.changes = append(s.changes, Change{Request: l.asked, What: what, At: s.now})
}

func (s *Service) placed(l *live) {
	q := l.asked
	q.Worker, q.Held, q.Queued = l.worker, l.held, l.queued
}

func (s *Service) admitted(l *live) {
	l.asked.Hit = l.Hit
	s.tell(l, Admitted)
}

func (s *Service) firstToken(l *live) {
	if l.Output > 0 && !slices.Contains(s.decoding[l.worker], l) {
		s.decoding[l.worker] = append(s.decoding[l.worker], l)
	}
}

func (s *Service) finished(l *live) {
	q := l.asked
	s.changes = append(s.changes, Change{Request: q, What: Completed, At: s.now, Before: q.Generated})
	q.Generated, q.Preemptions = l.Output, l.Preemptions
	s.stopDecoding(l)
	s.leaveFor(l, true)
}

func (s *Service) refused(l *live, why string) {
	s.changes = append(s.changes, Change{Request: l.asked, What: Denied, At: s.now, Why: why})
	s.leaveFor(l, false)
}

// leaveFor ends a request.
func (s *Service) leaveFor(l *live, answered bool) {
	l.asked.live = nil
	s.end(l, answered)
}

func (s *Service) lost(l *live) {
	s.tell(l, Failed)
	s.Cancel(l.asked)
}

func (s *Service) preempted(*live) {}

func (s *Service) scheduled(int) {}

func (s *Service) stepped(worker int) { s.tokens[worker] = s.now }

func (s *Service) cached(ev kvcache.Event) {
	if s.Cached != nil {
		s.Cached(ev)
	}
}

func (s *Service) stopDecoding(l *live) {
	if l.stage == atEngine {
		list := &s.decoding[l.worker]
		*list = slices.DeleteFunc(*list, func(d *live) bool { return d == l })
	}
}
