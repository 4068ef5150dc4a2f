package sim

import (
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/sim/memory"
	"github.com/agentsim/agentsim/trace"
)

// service is a deployment at work: the frontends and engines that requests pass through, whoever sends them and whatever
// moves the clock. A run drives one through a workload on a virtual clock, a Service is driven from outside.
type service struct {
	*fleet
	client client
	watch  watch
	desks  []*desk
	memory *memory.Memory // nil: none
	gate   gate
	down   []bool // by rank: its worker is gone
	// prefillers is how many ranks that only prefill are there.
	prefillers int
	now        time.Duration

	lives    []*live
	idle     []int32
	seq      uint64
	inFlight int
}

// client sends requests to a service and hears what becomes of them. It ends those that are finished, refused or lost.
type client interface {
	placed(l *live)              // it goes to the engine that l.at tells
	admitted(l *live)            // an engine has begun it, for the first time or again
	preempted(l *live)           // an engine has taken its KV blocks
	firstToken(l *live)          // its prefill has ended, for the first time or again
	finished(l *live)            // its last token came out
	refused(l *live, why string) // no worker takes it
	lost(l *live)                // its worker is gone
	scheduled(worker int)        // an engine has filled its next step, if there is anything to do
	stepped(worker int)          // an engine is at a step boundary
	cached(ev kvcache.Event)     // blocks entered or left a cache
}

// watch is who else hears of what happens; nil functions hear nothing.
type watch struct {
	tell      func(*live, Event)
	decisions func(thunderagent.Event)
	accounts  bool // the engines keep accounts of who holds KV blocks
	ticks     func(desk int, at time.Duration, before bool, table *thunderagent.Table)
}

// live is a request on its way through a desk and an engine.
type live struct {
	engine.Request
	route  router.Request
	ticket thunderagent.Request
	worker int32
	pin    int32  // the worker that its client chose, for a program scheduler with a shared budget
	seq    uint64 // tells reuses of the slot apart
	gone   bool   // it failed, but the engine may hold it until its step ends
	// background requests are nobody's: they only fill the cache. They are gone from the start.
	background bool

	stage    stage
	prefill  *prefill // nil: no prefill worker serves it
	labelled bool     // it names its session
	final    bool     // it is the last of its session
	tracked  bool     // it is in the table of its desk
	// cameAt is when it came to its desk, submitted when to the router. It was held and queued for so long.
	cameAt, submitted, held, queued time.Duration

	// Of a run: the program and the call that it is of, and its index in run.requests.
	inst   *instance
	call   int32
	record int32
	// Of a Service.
	asked *Request
}

// newService builds a deployment for a client. Its tree of prompts has the given number of nodes: with 0 it keeps no
// history of what was computed where. With events the engines tell of their caches whether a router listens or not; without
// schedulers there is no program scheduler.
func newService(p *Plan, c client, nodes int, events, schedulers bool, w watch) (*service, error) {
	s := &service{client: c, watch: w, down: make([]bool, p.Ranks)}
	err := s.newDesks(p, schedulers)
	if err == nil {
		s.fleet, err = newFleet(p, nodes, events || s.desks[0].wantsEvents(), w.accounts)
	}
	if err == nil && p.memory != nil {
		if s.memory, err = memory.New(*p.memory, s.engines); err == nil {
			s.memory.Handed = s.handed
			if s.desks[0].wantsEvents() {
				s.memory.Changed = s.publishBelow
			}
		}
	}
	return s, err
}

// nextMove is when something in the memory below the GPUs happens next.
func (s *service) nextMove() time.Duration {
	if s.memory == nil {
		return engine.Never
	}
	return s.memory.Next()
}

// move lets happen there what happens now.
func (s *service) move() {
	if s.memory != nil {
		s.memory.Advance(s.now)
	}
}

// newLive returns a request that nothing knows of.
func (s *service) newLive() *live {
	s.seq++
	if n := len(s.idle); n > 0 {
		l := s.lives[s.idle[n-1]]
		s.idle = s.idle[:n-1]
		*l = live{Request: engine.Request{ID: l.ID, Path: l.Path}, seq: s.seq}
		return l
	}
	l := &live{Request: engine.Request{ID: int32(len(s.lives))}, seq: s.seq}
	s.lives = append(s.lives, l)
	return l
}

// address fills in what router and engine make of a request's session, the session that spawned it, and hints. Session,
// lengths and path are there.
func (l *live) address(p *Plan, parent uint64, h trace.Hints) {
	priority := min(max(h.Priority, -maxPriority), maxPriority)
	l.route = router.Request{ID: l.ID, Session: l.Session, Parent: parent, Input: l.Input,
		PromptBlocks: l.Input / int32(p.Engine.BlockSize), Path: l.Path, Pinned: -1, Preferred: -1, ExpectedOutput: max(0, h.OSL),
		StrictPriority: h.StrictPriority, PriorityJump: float64(priority), Class: h.PolicyClass}
	if p.Engine.Scheduling == "priority" {
		l.Rank = -int64(priority)
	}
	if p.Engine.KVEviction == "priority" {
		l.Priority = priority
	}
}

func (s *service) freeLive(l *live) {
	l.seq = 0
	s.idle = append(s.idle, l.ID)
}

// begin lets a request come to its desk.
func (s *service) begin(l *live) {
	s.inFlight++
	s.enter(l)
}

// end takes a request that is in no engine, or no longer, out of the service.
func (s *service) end(l *live, answered bool) {
	s.leave(l, answered)
	s.inFlight--
	s.freeLive(l)
}

// abandon takes a request out of the service wherever it is.
func (s *service) abandon(l *live) {
	if !l.inEngine() {
		s.end(l, false)
		return
	}
	q, rank := l.at()
	s.engines[rank].Cancel(s.now, q)
	s.touch(int(rank), s.now)
	s.leave(l, false)
	s.inFlight--
	l.gone, l.seq = true, 0 // the slot is not reused: the engine may hold the request until its step ends
}

// endStep ends the steps of an engine and marks it for scheduling.
func (s *service) endStep(worker int) {
	outcomes := s.engines[worker].EndStep()
	s.due.set(worker, engine.Never)
	s.mark(worker)
	s.publish(worker)
	for _, o := range outcomes {
		l := s.lives[o.Request.ID]
		if l.gone {
			if l.background && o.Kind == engine.Finished {
				s.freeLive(l)
			}
			continue
		}
		if l.stage == atPrefill {
			if o.Kind == engine.Finished {
				s.prefilled(l)
			}
			continue
		}
		switch o.Kind {
		case engine.FirstToken:
			if s.watch.tell != nil {
				s.watch.tell(l, Event{What: FirstToken})
			}
			s.desk(l.route.Session).router.FirstToken(&l.route)
			if s.memory != nil && s.engines[worker].GeneratedBy(s.now, &l.Request) <= 1 { // not for the second time
				s.memory.Computed(s.now, worker, l.Session, l.Path, l.Input, l.Input)
			}
			s.client.firstToken(l)
		case engine.Finished:
			s.client.finished(l)
		}
	}
	s.client.stepped(worker)
}

// endSteps ends all steps that end now.
func (s *service) endSteps() {
	for worker, due := s.due.next(); due == s.now; worker, due = s.due.next() {
		s.endStep(worker)
	}
}

// boundary schedules the engines that are at a step boundary now. Arrivals may have cut a leap short at this very
// instant; such an engine ends its step first.
func (s *service) boundary() error {
	if s.memory != nil {
		for _, rank := range s.memory.Touched() {
			s.touch(rank, s.now)
		}
	}
	for i := 0; i < len(s.dirty); i++ { // which grows by what a step's end lets go
		if w := s.dirty[i]; s.engines[w].Next() == s.now {
			s.endStep(w)
			s.drain()
		}
	}
	return s.schedule(s.now, s.begun)
}

// begun tells what the scheduling of a step did.
func (s *service) begun(worker int, outcomes []engine.Outcome) {
	if s.memory != nil {
		s.engines[worker].Stall(s.memory.Evicted(s.now, worker, s.engines[worker].Evictions()))
	}
	for _, o := range outcomes {
		l := s.lives[o.Request.ID]
		if l.gone {
			continue
		}
		if s.watch.tell != nil {
			s.watch.tell(l, Event{What: map[engine.Kind]What{engine.Admitted: Admitted, engine.Preempted: Preempted}[o.Kind]})
		}
		if o.Kind == engine.Admitted {
			if l.stage == atEngine && l.prefill != nil {
				s.began(l)
			}
			s.client.admitted(l)
		} else {
			s.client.preempted(l)
		}
	}
	s.client.scheduled(worker)
}
