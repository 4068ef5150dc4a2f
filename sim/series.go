package sim

import (
	"iter"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// sampler takes a Series of at most limit samples of a run whose length is not known beforehand: whenever there are that
// many, it drops every other one and doubles the step between them.
type sampler struct {
	report.Series
	limit int
	next  time.Duration
	// contexts are the tokens of sessions that have calls to come or under way, wanted their sum.
	contexts map[uint64]int64
	wanted   int64
}

// firstStep is the step at the beginning; runs are longer than limit such steps as a rule.
const firstStep = 100 * time.Millisecond

func newSampler(p *Plan, limit int) *sampler {
	return &sampler{Series: report.Series{Step: firstStep, Capacity: p.allBlocks() * int64(p.Engine.BlockSize)},
		limit: max(limit, 2), contexts: map[uint64]int64{}}
}

// add appends the sample that is due.
func (s *sampler) add(x report.Sample) {
	s.Samples = append(s.Samples, x)
	if len(s.Samples) == s.limit {
		half := s.Samples[:0]
		for i := 0; i < s.limit; i += 2 {
			half = append(half, s.Samples[i])
		}
		s.Samples = half
		s.Step *= 2
	}
	s.next = time.Duration(len(s.Samples)) * s.Step
}

// hold sets the tokens of a session's context; 0 forgets it.
func (s *sampler) hold(session uint64, tokens int64) {
	s.wanted += tokens - s.contexts[session]
	if tokens == 0 {
		delete(s.contexts, session)
	} else {
		s.contexts[session] = tokens
	}
}

// sample takes the samples that are due before until, when something happens next; until then all stays as it is but for
// what leaps of decode steps add.
func (r *run) sample(until time.Duration) {
	for s := r.sampler; s != nil && s.next < until; {
		s.add(r.state(s.next))
	}
}

// state is that of the run at a time up to which nothing more happens.
func (r *run) state(at time.Duration) report.Sample {
	s := report.Sample{Wanted: r.sampler.wanted, Programs: int64(r.living), Held: int64(len(r.gate.waiting))}
	size := int64(r.plan.Engine.BlockSize)
	for _, e := range r.engines {
		used, pinned, cached := e.Blocks(at)
		s.Running += int64(used-pinned) * size
		s.Pinned += int64(pinned) * size
		s.Cached += int64(cached) * size
		s.RequestsRunning += int64(e.Running())
	}
	s.RequestsWaiting = max(0, int64(r.inFlight)-s.RequestsRunning)
	if stats := r.schedulerStats(); stats != nil {
		s.Accounted, s.Held = stats.Used, s.Held+stats.PausedPrograms
	}
	return s
}

// holdContext notes what a session's context is when its request comes, and once it has ended.
func (r *run) holdContext(l *live, ended bool) {
	if r.sampler == nil {
		return
	}
	tokens := int64(l.Input)
	if ended {
		tokens += int64(l.Output)
		if r.endsSession(l.call) {
			tokens = 0
		}
	}
	r.sampler.hold(l.Session, tokens)
}

// endsSession tells whether a call is the last of its session.
func (r *run) endsSession(call int32) bool {
	c := &r.w.Calls[call]
	turns := r.w.Sessions[c.Session].Turns
	return len(turns) > 0 && turns[len(turns)-1] == c.Turn
}

// dropContexts forgets the contexts of a program that has ended.
func (r *run) dropContexts(inst *instance) {
	if r.sampler == nil {
		return
	}
	for key := range inst.sessions(r.w) {
		r.sampler.hold(key, 0)
	}
}

// sessions yields the keys of a program's sessions, each once for every call of it.
func (inst *instance) sessions(w *trace.Workload) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for i := range inst.calls {
			if !yield(sessionKey(inst, w.Calls[int(inst.first)+i].Session)) {
				return
			}
		}
	}
}

// sessionKey tells a session of a program's copy from all others.
func sessionKey(inst *instance, session int32) uint64 { return uint64(inst.copy)<<32 | uint64(session) }
