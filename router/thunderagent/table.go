package thunderagent

import (
	"time"

	"github.com/agentsim/agentsim/trace"
)

// entry is a session: its program, if it has one, and its requests.
type entry struct {
	session uint64
	state              // of the program
	current *Request   // released and not ended
	waiting []*Request // in order of arrival; the first may be deferred, the others wait for it

	ran         int32         // worker of the last request that was sent, or nowhere
	pausedSince time.Duration // if paused
	pausedFor   time.Duration // before that

	index, pausedIndex int // in Table.programs and Table.paused
	links              [2]link
}

// state is what a request changes of its program, and what is restored when it is aborted.
//
//	                       request arrives           request ends           tick
//	unknown                reasoning, or deferred
//	reasoning on a worker  waits behind the other    acting; marked: paused may be marked
//	acting on a worker     reasoning, unchecked                             may be paused
//	paused, acting         deferred                                         may be resumed, acting
//	deferred               waits behind the other                           may be resumed, reasoning
//
// Acting programs, paused or not, are forgotten when they have been idle for too long. A deferred program is paused and
// reasoning: its first waiting request is held.
type state struct {
	known     bool  // the session has a program
	acting    bool  // as opposed to reasoning
	paused    bool  // has no worker and no charge
	marked    bool  // is to be paused when its request ends
	confirmed bool  // the current request was sent: its prompt is where worker says
	worker    int32 // assigned, or nowhere: until Sent says where an unplaced request went, or after the worker is lost
	origin    int32 // worker from which it was last paused, or nowhere
	turns     int32
	tokens    int64 // prompt of the current request, or the context after the last
	atPause   int64 // tokens when it was last paused

	actingSince   time.Duration // none unless acting
	deferredSince time.Duration // none unless deferred
	demotedUntil  time.Duration

	path   []trace.Span
	blocks int64 // of path that may be shared
}

func unknown() state {
	return state{worker: nowhere, origin: nowhere, actingSince: none, deferredSince: none}
}

// stopped returns the state as it is when the program is paused.
func (s state) stopped() state {
	if !s.paused {
		s.origin, s.atPause = s.worker, s.tokens
	}
	s.paused, s.worker, s.confirmed = true, nowhere, false
	return s
}

// entry returns the entry of a session, a new one if it has none.
func (t *Table) entry(session uint64) *entry {
	e := t.entries[session]
	if e == nil {
		e = &entry{session: session, state: unknown(), ran: nowhere}
		t.entries[session] = e
	}
	return e
}

// settle puts an entry whose requests have changed in the idle list, or removes it if nothing is left of it.
func (t *Table) settle(e *entry) {
	if e.current != nil || len(e.waiting) > 0 {
		return
	}
	if !e.known {
		delete(t.entries, e.session)
	} else if e.acting && !t.idle.has(e) {
		t.idle.insert(e, e.actingSince)
	}
}

// set gives the program of e a new state and keeps all sums and lists in step. Nothing else changes a state.
func (t *Table) set(now time.Duration, e *entry, s state) {
	t.charge(e, -1)
	was := e.state
	e.state = s
	t.charge(e, +1)
	if was.known != s.known {
		if s.known {
			t.startTicks(now)
			e.index, t.programs = push(t.programs, e)
		} else {
			t.programs = remove(t.programs, e.index, func(e *entry) *int { return &e.index })
			t.idle.remove(e)
		}
	}
	if was.paused != s.paused {
		if s.paused {
			e.pausedIndex, t.paused = push(t.paused, e)
			e.pausedSince = now
			t.stats.PausedPeak = max(t.stats.PausedPeak, int64(len(t.paused)))
		} else {
			t.paused = remove(t.paused, e.pausedIndex, func(e *entry) *int { return &e.pausedIndex })
			e.pausedFor += now - e.pausedSince
			t.stats.Paused += now - e.pausedSince
		}
	}
	if was.deferredSince != s.deferredSince {
		t.deferred.remove(e)
		if s.deferredSince != none {
			t.deferred.insert(e, s.deferredSince)
		}
	}
}

// forget removes the program of e. Requests of the session stay.
func (t *Table) forget(now time.Duration, e *entry) {
	t.set(now, e, unknown())
	t.settle(e)
}

// expire forgets programs that have acted for as long as sessions are retained.
func (t *Table) expire(now time.Duration) {
	for t.retention > 0 && t.idle.head != nil && t.idle.head.actingSince+t.retention <= now {
		e := t.idle.head
		t.stats.Expired++
		t.tell(now, Expired, IdleTooLong, e, nil, e.worker, 1)
		t.forget(now, e)
	}
}

func push(s []*entry, e *entry) (int, []*entry) { return len(s), append(s, e) }

// remove takes the entry at index out of s by moving the last one there.
func remove(s []*entry, index int, of func(*entry) *int) []*entry {
	last := len(s) - 1
	s[index] = s[last]
	*of(s[index]) = index
	s[last] = nil
	return s[:last]
}

// list is a doubly linked list through entries, by time and then in the order in which they came. An entry is in each
// list at most once.
type list struct {
	head, tail *entry
	of         int // which links
}

type link struct {
	prev, next *entry
	since      time.Duration
	in         bool
}

const (
	deferredLinks = iota
	idleLinks
)

func (l *list) has(e *entry) bool { return e.links[l.of].in }

// insert puts e behind the last entry that is not after it. That is the tail, but for programs that an abort puts back.
func (l *list) insert(e *entry, since time.Duration) {
	prev := l.tail
	for prev != nil && prev.links[l.of].since > since {
		prev = prev.links[l.of].prev
	}
	next := l.head
	if prev == nil {
		l.head = e
	} else {
		next = prev.links[l.of].next
		prev.links[l.of].next = e
	}
	if next == nil {
		l.tail = e
	} else {
		next.links[l.of].prev = e
	}
	e.links[l.of] = link{prev: prev, next: next, since: since, in: true}
}

// remove does nothing when e is not in the list.
func (l *list) remove(e *entry) {
	at := e.links[l.of]
	if !at.in {
		return
	}
	if at.prev == nil {
		l.head = at.next
	} else {
		at.prev.links[l.of].next = at.next
	}
	if at.next == nil {
		l.tail = at.prev
	} else {
		at.next.links[l.of].prev = at.prev
	}
	e.links[l.of] = link{}
}
