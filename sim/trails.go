package sim

import (
	"time"

	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
)

// trail is where the tokens of a session lie whose latest request has ended or was preempted, on the worker on which it
// ran: what is still cached there is the session's.
type trail struct {
	session  uint64
	worker   int
	subagent bool
	path     []trace.Span
	index    int // among those of the worker
	state    trailState
}

// trailState is what a session is doing whose trail waits for it, in the order in which sessions claim blocks.
type trailState uint8

const (
	trailActive trailState = iota // its next request is on its way to a worker
	trailActing
	trailPaused
	trailStates
)

// trails are those of all sessions that go on.
type trails struct {
	of     map[uint64]*trail
	on     [][]*trail // by worker, in an order that depends on nothing but the run
	claims kvcache.Claims
}

func newTrails(workers int) trails {
	return trails{of: map[uint64]*trail{}, on: make([][]*trail, workers), claims: kvcache.Claims{}}
}

// put keeps the trail of a session in place of the one before.
func (t *trails) put(session uint64, worker int, subagent bool, path []trace.Span) {
	t.drop(session)
	x := &trail{session: session, worker: worker, subagent: subagent, path: append([]trace.Span(nil), path...), index: len(t.on[worker])}
	t.of[session], t.on[worker] = x, append(t.on[worker], x)
}

// drop forgets the trail of a session, if it has one.
func (t *trails) drop(session uint64) {
	x := t.of[session]
	if x == nil {
		return
	}
	on := t.on[x.worker]
	last := on[len(on)-1]
	on[x.index], last.index = last, x.index
	on[len(on)-1] = nil
	t.on[x.worker] = on[:len(on)-1]
	delete(t.of, session)
}

// kinds are figures of root sessions and of subagents.
type kinds struct{ root, subagent int }

func (k *kinds) add(subagent bool, n int) {
	if subagent {
		k.subagent += n
	} else {
		k.root += n
	}
}

// split divides n in proportion.
func (k kinds) split(n int) kinds {
	if k.root+k.subagent == 0 {
		return kinds{root: n}
	}
	part := int(int64(n) * int64(k.subagent) / int64(k.root+k.subagent))
	return kinds{n - part, part}
}

// blocks returns what the KV blocks of each engine hold at a time up to which nothing more happens.
//
// Blocks that are referred to are active, but for pins, whose sessions act. They count once: kinds have their parts in
// proportion to what their requests hold, shared blocks included. Blocks that nobody refers to are those of the session that
// would find them, first of active ones, then of acting and of paused ones; the rest is nobody's.
func (j *journal) blocks(at time.Duration) []events.KV {
	running := make([]kinds, len(j.r.engines))
	j.settleTrails()
	for _, l := range j.r.lives {
		if l.inEngine() {
			session := j.r.w.Calls[l.call].Session
			q, worker := l.at()
			running[worker].add(j.r.parents[session] != session, j.r.engines[worker].Held(q))
		}
	}
	all := make([]events.KV, len(j.r.engines))
	for worker, e := range j.r.engines {
		used, pins, cached := e.Blocks(at)
		var pinned kinds
		for _, x := range j.trails.on[worker] {
			pinned.add(x.subagent, e.PinnedBy(x.session))
		}
		var held [trailStates]kinds
		held[trailActive], held[trailActing] = running[worker].split(used-pins), pinned.split(pins)
		clear(j.trails.claims)
		for state := range trailStates {
			for _, x := range j.trails.on[worker] {
				if x.state == state {
					n := e.Claim(x.path, j.trails.claims)
					held[state].add(x.subagent, n)
					cached -= n
				}
			}
		}
		all[worker] = events.KV{Worker: int32(worker), Used: used, Cached: cached,
			Root:     events.Holding{Active: held[trailActive].root, Acting: held[trailActing].root, Paused: held[trailPaused].root},
			Subagent: events.Holding{Active: held[trailActive].subagent, Acting: held[trailActing].subagent, Paused: held[trailPaused].subagent}}
	}
	return all
}

// settleTrails finds out what the sessions with trails are doing now.
func (j *journal) settleTrails() {
	for _, on := range j.trails.on {
		for _, x := range on {
			x.state = trailActing
			if table := j.r.desk(x.session).table; table != nil {
				if p, known := table.Program(j.r.now, x.session); known && p.Paused {
					x.state = trailPaused
				}
			}
		}
	}
	for _, l := range j.r.lives {
		x := j.trails.of[l.Session]
		switch {
		case x == nil || l.seq == 0:
		case l.stage == atGate || l.stage == atTable:
			x.state = trailPaused
		case x.state == trailActing:
			x.state = trailActive
		}
	}
}
