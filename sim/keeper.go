package sim

import (
	"container/heap"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/sim/memory"
	"github.com/agentsim/agentsim/trace"
)

// keeper carries out what the rules of a deployment make of the events of sessions. It knows of a session what a serving
// stack could, but for the durations of tools where kv.tools is recorded.
type keeper struct {
	r        *run
	rules    kvRules
	memory   *memory.Memory
	alone    exclusive
	stays    map[uint64]*stay // by session
	timers   timers
	outcomes [kvActions]Outcomes
	spans    []trace.Span
}

// stay is where the KV of a session lies between two of its requests.
type stay struct {
	key     uint64
	session int32
	call    int32
	worker  int
	owner   kvcache.Owner
	rank    int64 // of its pins
	path    []trace.Span
	blocks  int32
	tool    string
	due     time.Duration // when it is expected back; none: nobody knows
	number  uint64        // of the stay: timers of another are void

	leaving *memory.Departure
	left    int32         // blocks, of what is leaving
	since   time.Duration // when it was to leave
	keeps   []trace.Span  // of path: what the next prompt still has
	pinned  time.Duration // until
	// What the last action by has brought should let the next request find the first ready blocks.
	by      kvAction
	ready   int32
	brought int32 // of the ready ones, by that action
	// A prefetch was asked for, tries times before.
	asked bool
	tries int
}

// timer fires for a stay, if that goes on then.
type timer struct {
	at     time.Duration
	number uint64
	stay   *stay
}

type timers []timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].number < t[j].number
}
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)   { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	old := *t
	x := old[len(old)-1]
	*t = old[:len(old)-1]
	return x
}

func newKeeper(r *run) *keeper {
	return &keeper{r: r, rules: r.plan.rules, memory: r.service.memory, alone: newExclusive(r.w), stays: map[uint64]*stay{}}
}

// next is when a timer fires.
func (k *keeper) next() time.Duration {
	if k == nil || len(k.timers) == 0 {
		return engine.Never
	}
	return k.timers[0].at
}

// fire lets the timers of now go off.
func (k *keeper) fire() {
	if k == nil {
		return
	}
	for k.next() <= k.r.now {
		t := heap.Pop(&k.timers).(timer)
		if t.stay.number == t.number {
			k.tell(onToolDue, t.stay)
		}
	}
}

// completed tells of the end of a request, whose KV is cached on its worker, and returns whether that is being dropped.
func (k *keeper) completed(l *live) (dropped bool) {
	if k == nil {
		return false
	}
	c := &k.r.w.Calls[l.call]
	s := k.stays[l.Session]
	if s == nil {
		s = &stay{key: l.Session, session: c.Session}
		k.stays[l.Session] = s
	}
	computed := l.Input + max(l.Output-1, 0)
	*s = stay{key: s.key, session: s.session, call: l.call, worker: int(l.worker), owner: l.Owner, rank: int64(l.inst.begun), path: append(s.path[:0], l.Path...),
		blocks: computed / k.size(), number: l.seq}
	if c.Turn.Reasoning > 0 {
		k.tell(onThinkingEnd, s)
	}
	switch name, calls := k.r.toolOf(l.call); {
	case k.r.endsSession(l.call):
		ended := onSessionEnd
		if k.subagent(s) {
			ended = onSubagentEnd
		}
		k.tell(ended, s)
		k.forget(l.Session)
		return k.rules.has(ended, doDrop)
	case calls:
		s.tool = name
		k.expect(s)
		k.tell(onToolStart, s)
	default:
		k.tell(onTurnEnd, s)
	}
	return false
}

// expect estimates when a session's tool returns, and sets the timer for what is to be done before.
func (k *keeper) expect(s *stay) {
	var took time.Duration
	if k.r.plan.KV.Tools == "recorded" {
		next := k.r.next(s.call)
		if next < 0 {
			return
		}
		for _, e := range k.r.w.Successors(&k.r.w.Calls[s.call]) {
			if e.To == next {
				took, _ = k.r.arrivals.gap(&k.r.w.Calls[next], e.Delay)
			}
		}
	} else if took = k.r.tools.of(s.tool).median(); took == 0 {
		return
	}
	s.due = k.r.now + took
	if k.rules.on(onToolDue) {
		k.wake(s, max(k.r.now, s.due-k.roundTrip(s)))
	}
}

func (k *keeper) wake(s *stay, at time.Duration) { heap.Push(&k.timers, timer{at, s.number, s}) }

// roundTrip is how long the KV of a session takes to the host and back if nothing else moves.
func (k *keeper) roundTrip(s *stay) time.Duration {
	o := k.r.plan.memory
	bytes := float64(blocks(k.private(s))) * float64(o.BlockBytes)
	return 2*o.Host.Latency + time.Duration(math.Round((bytes/o.Host.Read+bytes/o.Host.Write)*1e9))
}

// returned tells that the next request of a session has come to its frontend.
func (k *keeper) returned(l *live) {
	if k == nil {
		return
	}
	c := &k.r.w.Calls[l.call]
	s := k.stays[l.Session]
	if s == nil {
		if k.r.parents[c.Session] != c.Session {
			parent := sessionKey(l.inst, k.r.parents[c.Session])
			k.memory.Inherit(l.Session, parent)
			s = &stay{key: l.Session, session: c.Session, call: l.call, worker: -1}
			k.tell(onSubagentStart, s)
		}
		return
	}
	k.tell(onToolReturn, s)
	if k.r.w.Calls[s.call].Turn.Compaction {
		s.keeps = l.Path
		k.tell(onCompaction, s)
		s.keeps = nil
	}
	s.number = 0
	if s.leaving != nil {
		k.memory.Stay(s.worker, s.leaving)
		s.leaving = nil
		k.note(doDemote, late, s, s.left, s.since)
	}
	if s.pinned > 0 && s.pinned < k.r.now {
		k.note(doPin, late, s, 0, k.r.now)
	}
}

// placed tells where the next request of a session goes.
func (k *keeper) placed(l *live) {
	if k == nil {
		return
	}
	if s := k.stays[l.Session]; s != nil && s.worker != int(l.worker) {
		k.tell(onResume, s)
	}
}

// lost tells that a worker has gone, with the KV of the sessions that were there last.
func (k *keeper) lost(rank int) {
	if k == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(k.stays)) {
		if s := k.stays[key]; s.worker == rank {
			s.leaving, s.pinned = nil, 0
			k.tell(onWorkerLost, s)
		}
	}
}

// admitted tells that an engine has begun the next request of a session.
func (k *keeper) admitted(l *live) {
	if k == nil {
		return
	}
	k.memory.Ran(l.Session, int(l.worker))
	s := k.stays[l.Session]
	if s == nil {
		return
	}
	if int(l.worker) != s.worker {
		k.moved(s)
	}
	if s.ready == 0 {
		return
	}
	if int(l.worker) != s.worker || l.Hit-l.Brought < min(s.ready*k.size(), l.Input-k.size()) {
		k.note(s.by, wasted, s, s.brought, k.r.now)
	} else if s.by == doPrefetch {
		k.r.requests[l.record].Prefetched = min(s.brought*k.size(), l.Hit-l.Brought)
	}
	s.ready = 0
}

// moved drops what a session that goes on elsewhere has left behind, where the rules move it: what it could have brought is
// with it now.
func (k *keeper) moved(s *stay) {
	for i := range k.rules {
		if rule := &k.rules[i]; rule.on == onResume && rule.do == doMove && k.matches(rule, s) && s.worker >= 0 && !k.r.down[s.worker] {
			k.drop(s, doMove)
			return
		}
	}
}

// decided tells of a decision of a program scheduler.
func (k *keeper) decided(e *thunderagent.Event) {
	if k == nil {
		return
	}
	s := k.stays[e.Session]
	if s == nil || s.number == 0 {
		return
	}
	switch e.Kind {
	case thunderagent.Paused:
		k.tell(onPause, s)
	case thunderagent.Resumed, thunderagent.Forced:
		k.tell(onResume, s)
	}
}

// programEnded forgets the sessions of a program.
func (k *keeper) programEnded(inst *instance) {
	if k == nil {
		return
	}
	for key := range inst.sessions(k.r.w) {
		k.forget(key)
	}
}

func (k *keeper) forget(session uint64) {
	if s := k.stays[session]; s != nil {
		s.number = 0
		if s.ready > 0 {
			k.note(s.by, wasted, s, s.brought, k.r.now)
		}
		delete(k.stays, session)
	}
	k.memory.Forget(session)
}

// size is the tokens of a block.
func (k *keeper) size() int32 { return int32(k.r.plan.Engine.BlockSize) }

func (k *keeper) subagent(s *stay) bool { return k.r.parents[s.session] != s.session }
