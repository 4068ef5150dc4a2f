package thunderagent

import (
	"slices"
	"time"
)

// Complete ends a request that was answered: its program acts from now on, with a context of that many tokens; a
// negative number takes the prompt and what was generated. A marked program is paused before the session's next request
// is tried. Completing never resumes others; only ticks do. The result is valid until the next call.
func (t *Table) Complete(now time.Duration, r *Request, contextTokens int32) []Release {
	t.out = t.out[:0]
	e := t.entries[r.Session]
	if !r.tracked || e == nil {
		return t.out
	}
	if !r.released {
		return t.Abort(now, r)
	}
	if e.known {
		t.act(now, e, r, contextTokens)
	}
	t.untrack(e, r)
	t.try(now, e)
	return t.out
}

// act makes the program of e act, as r has ended.
func (t *Table) act(now time.Duration, e *entry, r *Request, contextTokens int32) {
	if r.Final {
		t.set(now, e, unknown())
		return
	}
	s := e.state
	s.tokens = t.size(e)
	if contextTokens >= 0 {
		s.tokens = int64(contextTokens)
	}
	s.acting, s.actingSince, s.marked = true, now, false
	marked := e.marked
	t.set(now, e, s)
	if marked {
		t.pause(now, e, MarkedBefore)
	}
}

// pause takes the worker from an acting program.
func (t *Table) pause(now time.Duration, e *entry, why Reason) {
	t.stats.Pauses++
	t.tell(now, Paused, why, e, nil, e.worker, t.settings.PauseThreshold)
	t.set(now, e, e.stopped())
}

// Abort ends a request that was not answered, held or released: its program is as it was before the request, which
// loses a mark and the time since; a program that the request began is gone. The result is valid until the next call.
func (t *Table) Abort(now time.Duration, r *Request) []Release {
	t.out = t.out[:0]
	e := t.entries[r.Session]
	if !r.tracked || e == nil {
		return t.out
	}
	if r.begun {
		t.tell(now, Restored, RequestAborted, e, r, e.worker, 1)
		prior := r.prior
		if !t.alive(prior.worker) { // lost in the meantime
			prior.worker, prior.confirmed = nowhere, false
		}
		t.set(now, e, prior)
	}
	t.untrack(e, r)
	t.try(now, e)
	return t.out
}

// untrack takes a request out of the table.
func (t *Table) untrack(e *entry, r *Request) {
	if e.current == r {
		e.current = nil
	} else {
		e.waiting = slices.DeleteFunc(e.waiting, func(q *Request) bool { return q == r })
	}
	*r = Request{ID: r.ID, Session: r.Session, Input: r.Input, Final: r.Final, Pin: r.Pin, Path: r.Path, PromptBlocks: r.PromptBlocks}
	t.requests--
}
