package sim

import (
	"container/heap"
	"maps"
	"math"
	"path"
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
	keeps   []trace.Span  // of path: what the next prompt still has
	pinned  time.Duration // until
	// What the last action by has brought should let the next request find the first ready blocks.
	by      kvAction
	ready   int32
	brought int32 // of the ready ones, by a prefetch
	// A prefetch was asked for, tries times before.
	asked bool
	tries int
}

// A prefetch for which there is no room is tried again after twice firstRetry, then twice that, maxTries times.
const (
	firstRetry = 50 * time.Millisecond
	maxTries   = 3
)

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
		k.note(doDemote, late, s, 0)
	}
	if s.pinned > 0 && s.pinned < k.r.now {
		k.note(doPin, late, s, 0)
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
		k.note(s.by, wasted, s, 0)
	} else {
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
	for i := range inst.calls {
		k.forget(sessionKey(inst, k.r.w.Calls[int(inst.first)+i].Session))
	}
}

func (k *keeper) forget(session uint64) {
	if s := k.stays[session]; s != nil {
		s.number = 0
		if s.ready > 0 {
			k.note(s.by, wasted, s, 0)
		}
		delete(k.stays, session)
	}
	k.memory.Forget(session)
}

// size is the tokens of a block.
func (k *keeper) size() int32 { return int32(k.r.plan.Engine.BlockSize) }

func (k *keeper) subagent(s *stay) bool { return k.r.parents[s.session] != s.session }

// tell does what the rules say to an event of a session.
func (k *keeper) tell(e kvEvent, s *stay) {
	for i := range k.rules {
		if rule := &k.rules[i]; rule.on == e && k.matches(rule, s) {
			k.do(rule, s)
		}
	}
}

func (k *keeper) matches(rule *kvRule, s *stay) bool {
	if rule.Session != "" && (rule.Session == "subagent") != k.subagent(s) {
		return false
	}
	if rule.Tool != "" {
		if ok, _ := path.Match(rule.Tool, s.tool); !ok {
			return false
		}
	}
	if rule.longer == noTime && rule.shorter == noTime {
		return true
	}
	if s.due == 0 {
		return false
	}
	left := s.due - k.r.now
	bound := func(d time.Duration) time.Duration {
		if d == autoTime {
			return k.roundTrip(s)
		}
		return d
	}
	return (rule.longer == noTime || left > bound(rule.longer)) && (rule.shorter == noTime || left <= bound(rule.shorter))
}

// private are the full blocks of a stay that are its session's alone. The slice is good until the next call.
func (k *keeper) private(s *stay) []trace.Span {
	k.spans = k.alone.of(s.session, s.path, k.size(), k.spans[:0])
	if n := len(k.spans) - 1; n >= 0 && k.spans[n].To > s.blocks { // the last block is not full
		if k.spans[n].To = s.blocks; k.spans[n].From >= s.blocks {
			k.spans = k.spans[:n]
		}
	}
	return k.spans
}

// blocks counts those of spans.
func blocks(spans []trace.Span) int32 {
	n := int32(0)
	for _, s := range spans {
		n += s.To - s.From
	}
	return n
}

// do carries out an action.
func (k *keeper) do(rule *kvRule, s *stay) {
	if s.worker < 0 || rule.do == doFetch || rule.do == doMove { // there is nothing yet, or it is brought when a request asks for it
		return
	}
	if k.r.down[s.worker] {
		k.outcomes[rule.do].Refused++
		return
	}
	e := k.r.engines[s.worker]
	switch rule.do {
	case doPin:
		k.pin(rule, s)
	case doUnpin:
		e.Unpin(k.r.now, s.key)
	case doDemote:
		k.demote(s)
	case doPrefetch:
		k.bringBack(rule, s)
	case doDrop:
		k.drop(s, doDrop)
	case doEvictFirst, doEvictLast:
		k.reclass(rule, s)
	case doSpeculate:
		k.speculate(s)
	}
}

func (k *keeper) pin(rule *kvRule, s *stay) {
	ttl := rule.ttl
	if ttl == autoTime || ttl == noTime {
		if ttl = k.r.continuum.lease(s.tool, s.blocks*k.size()); ttl == 0 {
			return
		}
	}
	got := k.r.engines[s.worker].Pin(k.r.now, s.key, s.rank, s.path, s.blocks*k.size(), k.r.now+ttl)
	s.pinned = k.r.now + ttl
	k.count(doPin, s, int32(got), s.blocks)
}

func (k *keeper) demote(s *stay) {
	spans := k.private(s)
	if len(spans) == 0 || s.leaving != nil {
		return
	}
	k.r.engines[s.worker].Unpin(k.r.now, s.key)
	ended, number := false, s.number
	d := k.memory.Demote(k.r.now, s.worker, s.key, s.path, spans, k.departed(s, doDemote, blocks(spans), func() {
		if ended = true; s.number == number {
			s.leaving = nil
		}
	}))
	if d == nil {
		k.note(doDemote, refused, s, 0)
	} else if !ended {
		s.leaving = d
	}
	k.r.touch(s.worker, k.r.now)
}

// departed counts an action that lets wanted blocks of a stay leave, and calls then when all have that do.
func (k *keeper) departed(s *stay, do kvAction, wanted int32, then func()) func(now time.Duration, n int, more bool) {
	left, of := int32(0), *s // which may be over by then
	return func(now time.Duration, n int, more bool) {
		if left += int32(n); !more {
			k.count(do, &of, left, wanted)
			k.r.tellStay(&of, Event{What: map[kvAction]What{doDemote: Demoted, doDrop: Dropped, doMove: Dropped}[do], Tokens: left * k.size()})
			then()
		}
	}
}

func (k *keeper) bringBack(rule *kvRule, s *stay) {
	if s.asked {
		return
	}
	e := k.r.engines[s.worker]
	cached := e.Cached(s.path, s.blocks)
	if cached == s.blocks {
		return // it has not left
	}
	s.asked = true
	until := max(s.due, k.r.now) + 2*max(s.due-k.r.now, time.Second)
	if rule.ttl > 0 {
		until = k.r.now + rule.ttl
	}
	q := &engine.Request{ID: -1, Session: s.key, Path: slices.Clone(s.path), Input: s.blocks * k.size(), Rank: s.rank, Owner: s.owner}
	number := s.number
	e.Prefetch(k.r.now, q, until, func(now time.Duration, tokens int32) {
		n := tokens / k.size()
		switch {
		case s.number != number:
			k.note(doPrefetch, late, s, 0)
		case n == 0 && s.tries < maxTries:
			k.note(doPrefetch, deferred, s, 0)
			s.tries++
			s.asked = false
			k.wake(s, now+firstRetry<<s.tries)
		default:
			k.count(doPrefetch, s, n, s.blocks-cached)
			if n == 0 {
				k.r.tellStay(s, Event{What: Prefetched, Why: "no room for it"})
			} else {
				s.by, s.ready, s.brought = doPrefetch, cached+n, n
			}
		}
	})
	k.r.touch(s.worker, k.r.now)
}

func (k *keeper) drop(s *stay, as kvAction) {
	spans := minus(k.private(s), s.keeps)
	if len(spans) == 0 {
		return
	}
	k.r.engines[s.worker].Unpin(k.r.now, s.key)
	k.memory.Drop(k.r.now, s.worker, spans, k.departed(s, as, blocks(spans), func() {}))
}

// minus takes from spans, in place, what another path has of them.
func minus(spans, path []trace.Span) []trace.Span {
	rest := spans[:0]
	for _, s := range spans {
		if i := slices.IndexFunc(path, func(p trace.Span) bool { return p.Key == s.Key }); i >= 0 {
			s.From = max(s.From, path[i].To)
		}
		if s.From < s.To {
			rest = append(rest, s)
		}
	}
	return rest
}

func (k *keeper) reclass(rule *kvRule, s *stay) {
	class := kvcache.High
	spans := append(k.spans[:0], s.path...)
	if k.spans = spans; rule.do == doEvictFirst {
		class = kvcache.Low
		spans = k.private(s)
	}
	if rule.on == onThinkingEnd { // what was generated, as far as the next prompt does not have it
		c := &k.r.w.Calls[s.call]
		from := max(c.Input, c.Identified) / k.size()
		for i := range spans {
			spans[i].From = max(spans[i].From, from)
		}
	}
	n := int32(0)
	for _, span := range spans {
		if span.From < span.To {
			k.r.engines[s.worker].SetClass(span, class)
			n += span.To - span.From
		}
	}
	if n > 0 {
		k.count(rule.do, s, n, n)
	}
}

// speculate lets the engine compute what is known of the next prompt before it comes: the prompt and the answer, without
// what was reasoned (Dynamo: nvext.agent_hints.speculative_prefill).
func (k *keeper) speculate(s *stay) {
	next := k.r.next(s.call)
	c := &k.r.w.Calls[s.call]
	if next < 0 || c.Turn.Compaction {
		return
	}
	n := &k.r.w.Calls[next]
	known := min(c.Input+c.Output-max(0, c.Turn.Reasoning), n.Input) / k.size()
	path := k.r.path(n, uint32(s.key>>32), nil)
	e := k.r.engines[s.worker]
	cached := e.Cached(path, known)
	if cached >= known || !e.Fits(known*k.size(), 0) {
		return
	}
	l := k.r.newLive()
	l.Path, l.Input, l.Session, l.Rank, l.Owner = path, known*k.size(), ^s.key, math.MaxInt64>>1, s.owner
	l.seq, l.gone, l.background = 0, true, true
	l.worker = int32(s.worker)
	k.count(doSpeculate, s, known-cached, known-cached)
	s.by, s.ready, s.brought = doSpeculate, known, 0
	e.Enqueue(k.r.now, &l.Request)
	k.r.touch(s.worker, k.r.now)
}
