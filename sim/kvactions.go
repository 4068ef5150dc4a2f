package sim

import (
	"math"
	"path"
	"slices"
	"time"

	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// A prefetch for which there is no room is tried again after twice firstRetry, then twice that, maxTries times.
const (
	firstRetry = 50 * time.Millisecond
	maxTries   = 3
)

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
	k.count(doPin, s, int32(got), s.blocks, k.r.now)
}

func (k *keeper) demote(s *stay) {
	spans := k.private(s)
	if len(spans) == 0 || s.leaving != nil {
		return
	}
	k.r.engines[s.worker].Unpin(k.r.now, s.key)
	ended, number := false, s.number
	s.left, s.since = 0, k.r.now
	d := k.memory.Demote(k.r.now, s.worker, s.key, s.path, spans, k.departed(s, doDemote, blocks(spans), func() {
		if ended = true; s.number == number {
			s.leaving = nil
		}
	}))
	if d == nil {
		k.note(doDemote, refused, s, 0, k.r.now)
	} else if !ended {
		s.leaving = d
	}
	k.r.touch(s.worker, k.r.now)
}

// departed counts an action that lets wanted blocks of a stay leave, and calls then when all have that do.
func (k *keeper) departed(s *stay, do kvAction, wanted int32, then func()) func(now time.Duration, n int, more bool) {
	left, of, since := int32(0), *s, k.r.now // the stay may be over by then
	what := Dropped
	if do == doDemote {
		what = Demoted
	}
	return func(now time.Duration, n int, more bool) {
		if left += int32(n); more {
			if s.number == of.number {
				s.left = left
			}
		} else {
			k.count(do, &of, left, wanted, since)
			k.r.tellStay(&of, Event{What: what, Tokens: left * k.size()})
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
	number, since := s.number, k.r.now
	e.Prefetch(k.r.now, q, until, func(now time.Duration, tokens int32) {
		n := tokens / k.size()
		switch {
		case s.number != number:
			k.note(doPrefetch, late, s, n, since)
		case n == 0 && s.tries < maxTries:
			k.note(doPrefetch, deferred, s, 0, since)
			s.tries++
			s.asked = false
			k.wake(s, now+firstRetry<<s.tries)
		default:
			k.count(doPrefetch, s, n, s.blocks-cached, since)
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
		k.count(rule.do, s, n, n, k.r.now)
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
	k.count(doSpeculate, s, known-cached, known-cached, k.r.now)
	s.by, s.ready, s.brought = doSpeculate, known, known-cached
	e.Enqueue(k.r.now, &l.Request)
	k.r.touch(s.worker, k.r.now)
}
