package thunderagent

import (
	"fmt"
	"math"
	"time"
)

// Arrive takes a request and returns those that may go to the router: this one, or none while it is held. The result
// is valid until the next call. An error leaves the request out of the table.
func (t *Table) Arrive(now time.Duration, r *Request) ([]Release, error) {
	t.out = t.out[:0]
	if err := t.check(r); err != nil {
		return nil, fmt.Errorf("request of session %d: %w", r.Session, err)
	}
	t.expire(now)
	t.makePlace(now, r)
	t.startTicks(now)
	e := t.entry(r.Session)
	t.idle.remove(e)
	t.requests++
	*r = Request{ID: r.ID, Session: r.Session, Input: r.Input, Final: r.Final, Pin: r.Pin, Path: r.Path, PromptBlocks: r.PromptBlocks, tracked: true}
	e.waiting = append(e.waiting, r)
	t.try(now, e)
	return t.out, nil
}

func (t *Table) check(r *Request) error {
	switch {
	case r.tracked:
		return fmt.Errorf("it is in the table already")
	case r.Input < 0 || r.PromptBlocks < 0:
		return fmt.Errorf("a prompt of %d tokens and %d blocks", r.Input, r.PromptBlocks)
	case r.Pin < nowhere || int(r.Pin) >= len(t.workers):
		return fmt.Errorf("pinned to worker %d of %d", r.Pin, len(t.workers))
	case t.settings.SharedPrefixBudget && r.Pin == nowhere && !r.Final:
		return fmt.Errorf("it is not pinned to a worker, as shared_prefix_budget requires")
	case t.requests >= t.settings.MaxTrackedRequests:
		return fmt.Errorf("%w: max_tracked_requests is %d", ErrRequestLimit, t.settings.MaxTrackedRequests)
	}
	return nil
}

// makePlace evicts the program that was idle longest if r may begin one too many. There is one: programs that are not
// idle have requests, and there are fewer of those than the limit.
func (t *Table) makePlace(now time.Duration, r *Request) {
	if e := t.entries[r.Session]; e != nil && e.known || len(t.programs) < t.settings.MaxTrackedRequests || t.endsAtStart(r) {
		return
	}
	if e := t.idle.head; e != nil {
		t.stats.Evicted++
		t.tell(now, Expired, TableFull, e, nil, e.worker, 1)
		t.forget(now, e)
	}
}

// endsAtStart tells whether r makes the table forget its program without checking anything.
func (t *Table) endsAtStart(r *Request) bool { return r.Final && t.settings.Final != finalRelease }

// try lets the first waiting request of a session go, or defers it, if none of the session runs. The reference tries
// the first requests of all sessions at each tick again: they are of paused programs, for which that changes nothing.
func (t *Table) try(now time.Duration, e *entry) {
	for e.current == nil && len(e.waiting) > 0 {
		r := e.waiting[0]
		if !t.endsAtStart(r) {
			t.begin(now, e, r)
			t.admit(now, e, r)
			return
		}
		w := e.worker
		t.stats.Admitted++
		t.tell(now, Admitted, LastRequest, e, r, w, 1)
		t.set(now, e, unknown())
		t.release(now, e, w, LastRequest, false)
		if t.settings.Final == finalSwallow {
			t.out[len(t.out)-1].Swallowed = true
			t.untrack(e, r)
		}
	}
	t.settle(e)
}

// begin makes the program of a session reason about r, once for each request.
func (t *Table) begin(now time.Duration, e *entry, r *Request) {
	if r.begun {
		return
	}
	r.begun, r.prior = true, e.state
	s := e.state
	s.known, s.acting, s.actingSince = true, false, none
	if s.turns < math.MaxInt32 {
		s.turns++
	}
	if r.Input > 0 { // a prompt of unknown size leaves the program as large as it was
		s.tokens = int64(r.Input)
	}
	s.confirmed = false
	if t.settings.SharedPrefixBudget {
		s.path, s.blocks = r.Path, int64(r.PromptBlocks)
	}
	t.set(now, e, s)
}

// admit lets r, the first waiting request of e, go to a worker, or defers it.
func (t *Table) admit(now time.Duration, e *entry, r *Request) {
	if e.paused {
		t.hold(now, e, r, ProgramPaused)
		return
	}
	if t.settings.SharedPrefixBudget && !t.fitsPinned(e, r) {
		t.hold(now, e, r, PinFull)
		return
	}
	w, why := e.worker, SameWorker
	switch {
	case !t.anyWorker(t.usable):
		why = NoCapacity
	case w != nowhere: // growth is left to the next tick
	case !r.prior.known && t.gateClosed():
		t.hold(now, e, r, BehindPaused)
		return
	default:
		w, why = t.place(now, e, r), Fits
		if w == nowhere && t.settings.PassUnplaceable && r.prior.known {
			why = FitsNowhere
		} else if w == nowhere && r.Pin != nowhere {
			t.hold(now, e, r, PinFull)
			return
		} else if w == nowhere {
			t.hold(now, e, r, FitsNowhere)
			return
		}
	}
	t.stats.Admitted++
	t.tell(now, Admitted, why, e, r, w, t.settings.AdmitCeiling)
	t.release(now, e, w, why, false)
}

// fitsPinned tells whether a pinned program fits on its worker with the prompt that it has now. With a shared budget
// that holds for each turn, not for the first only.
func (t *Table) fitsPinned(e *entry, r *Request) bool {
	if !t.alive(r.Pin) || !t.usable(int(r.Pin)) {
		return true // left to the router
	}
	others := t.Used(int(r.Pin))
	if e.worker == r.Pin {
		others -= t.settings.need(e.tokens)
	}
	return others+t.settings.need(e.tokens) <= t.workers[r.Pin].capacity
}

func (t *Table) gateClosed() bool {
	switch t.settings.Gate {
	case gateAnyPaused:
		return len(t.paused) > 0
	case gateWaitingOnly:
		return t.deferred.head != nil
	}
	return t.settings.Gate == gateAlways
}

// place returns the least used of the workers that have room for r, or nowhere.
func (t *Table) place(now time.Duration, e *entry, r *Request) int32 {
	need := t.settings.need(int64(r.Input))
	var rank []int64
	if t.settings.Decay.Admission {
		rank = t.measure(now, true)
	}
	best, least := nowhere, int64(0)
	for w := range t.workers {
		if !t.usable(w) || r.Pin != nowhere && int(r.Pin) != w {
			continue
		}
		on := &t.workers[w]
		used := t.Used(w)
		full := t.settings.MaxPrograms > 0 && on.reasoning.programs >= t.settings.MaxPrograms
		if full || share(on.capacity, t.settings.AdmitCeiling)-used < need {
			continue
		}
		if rank != nil {
			used = rank[w]
		}
		if best == nowhere || used < least {
			best, least = int32(w), used
		}
	}
	return best
}

// emptiest returns the worker with the most room for a new program, the first of equals, or nowhere.
func (t *Table) emptiest() int32 {
	best, most := nowhere, int64(0)
	for w := range t.workers {
		room := share(t.workers[w].capacity, t.settings.AdmitCeiling) - t.Used(w)
		if t.usable(w) && (best == nowhere || room > most) {
			best, most = int32(w), room
		}
	}
	return best
}

// hold defers r, the first waiting request of e.
func (t *Table) hold(now time.Duration, e *entry, r *Request, why Reason) {
	if r.held {
		return
	}
	t.stats.Deferred++
	if t.observe != nil {
		w := r.Pin
		if why == FitsNowhere {
			w = t.emptiest()
		}
		t.tell(now, Deferred, why, e, r, w, t.settings.AdmitCeiling)
	}
	r.held, r.heldAt = true, now
	s := e.stopped()
	s.deferredSince = now
	t.set(now, e, s)
}

// release lets the first waiting request of e go, and its program run on w. A pin takes precedence.
func (t *Table) release(now time.Duration, e *entry, w int32, why Reason, forced bool) {
	r := e.waiting[0]
	e.waiting = e.waiting[1:]
	e.current, r.released = r, true
	out := Release{Request: r, Worker: r.Pin, Target: nowhere, Forced: forced, Reason: why}
	if r.Pin != nowhere {
		if w = r.Pin; !t.alive(w) {
			w = nowhere
		}
	} else if t.settings.Placement == placePin {
		out.Worker = w
	} else {
		out.Target = w
	}
	if r.held {
		out.Held = now - r.heldAt
		out.PriorityJump = seconds(t.settings.ResumePriorityBoost)
		t.stats.LongestWait = max(t.stats.LongestWait, out.Held)
		t.stats.Waits.add(e.tokens, out.Held)
	}
	if e.demotedUntil > now {
		out.PriorityJump += seconds(t.settings.SoftDemotePriorityJump)
	}
	if e.known {
		s := e.state
		s.paused, s.deferredSince, s.worker = false, none, w
		t.set(now, e, s)
	}
	t.out = append(t.out, out)
}

// Sent tells which worker the router has sent a released request to: that is where its program is now.
func (t *Table) Sent(now time.Duration, r *Request, worker int32) {
	e := t.entries[r.Session]
	if e == nil || e.current != r {
		return
	}
	if !t.alive(worker) {
		worker = nowhere
	} else {
		if e.ran != nowhere && e.ran != worker {
			t.stats.Migrations++
			t.tell(now, Migrated, OtherWorker, e, r, worker, 1)
		}
		e.ran = worker
	}
	if e.known {
		s := e.state
		s.worker, s.confirmed = worker, worker != nowhere
		t.set(now, e, s)
	}
}
