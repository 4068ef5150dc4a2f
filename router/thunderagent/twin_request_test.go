package thunderagent

import (
	"slices"
	"time"
)

// arrive tells whether the request was accepted.
func (t *slow) arrive(now time.Duration, q *Request) bool {
	t.out = nil
	if len(t.requests) >= t.s.MaxTrackedRequests || t.s.SharedPrefixBudget && q.Pin < 0 && !q.Final {
		return false
	}
	t.expire(now)
	if t.program(q.Session) == nil && len(t.programs) >= t.s.MaxTrackedRequests && !(q.Final && t.s.Final != "release") {
		oldest := t.idle()[0].session
		t.drop(oldest)
		t.settle(oldest)
		t.evictions++
	}
	if t.first < 0 {
		t.first = now
	}
	t.requests = append(t.requests, &slowRequest{q: q})
	t.try(now, q.Session)
	return true
}

func (t *slow) try(now time.Duration, session uint64) {
	r := t.front(session)
	if r == nil || t.current(session) != nil {
		return
	}
	p := t.program(session)
	if r.q.Final && t.s.Final != "release" {
		w := int32(-1)
		if p != nil {
			w = p.worker
		}
		t.drop(session)
		t.dispatch(now, r, w, LastRequest, false)
		if t.s.Final == "swallow" {
			t.out[len(t.out)-1].Swallowed = true
			t.remove(r)
			t.try(now, session)
			t.settle(session)
		}
		return
	}
	if !r.begun {
		r.begun = true
		if p == nil {
			p = &slowProgram{session: session, worker: -1, origin: -1}
			t.programs = append(t.programs, p)
		} else {
			prior := *p
			r.prior = &prior
		}
		p.acting, p.actingSince, p.confirmed = false, -1, false
		p.turns++
		if r.q.Input > 0 {
			p.tokens = int64(r.q.Input)
		}
		if t.s.SharedPrefixBudget {
			p.path, p.blocks = r.q.Path, int64(r.q.PromptBlocks)
		}
	}
	pin := r.q.Pin
	usable := slices.ContainsFunc(t.workers(), t.usable)
	switch {
	case p.paused:
		t.hold(now, p, r)
	case t.s.SharedPrefixBudget && pin >= 0 && t.usable(int(pin)) && t.used(int(pin))+t.need(p.tokens)-t.on(p, pin) > t.capacity[pin]:
		t.hold(now, p, r)
	case !usable:
		t.dispatch(now, r, p.worker, NoCapacity, false)
	case p.worker >= 0:
		t.dispatch(now, r, p.worker, SameWorker, false)
	case r.prior == nil && t.gate():
		t.hold(now, p, r)
	default:
		best := int32(-1)
		for _, w := range t.workers() {
			if !t.usable(w) || pin >= 0 && int(pin) != w || t.s.MaxPrograms > 0 && t.reasoning(w) >= t.s.MaxPrograms {
				continue
			}
			fits := floor(t.capacity[w], t.s.AdmitCeiling)-t.used(w) >= t.need(int64(r.q.Input))
			if fits && (best < 0 || t.load(now, w, t.s.Decay.Admission) < t.load(now, int(best), t.s.Decay.Admission)) {
				best = int32(w)
			}
		}
		switch {
		case best >= 0:
			t.dispatch(now, r, best, Fits, false)
		case t.s.PassUnplaceable && r.prior != nil:
			t.dispatch(now, r, -1, FitsNowhere, false)
		default:
			t.hold(now, p, r)
		}
	}
}

func (t *slow) workers() []int {
	all := make([]int, len(t.capacity))
	for w := range all {
		all[w] = w
	}
	return all
}

func (t *slow) on(p *slowProgram, w int32) int64 {
	if p.worker == w && !p.paused {
		return t.charge(p)
	}
	return 0
}

func (t *slow) gate() bool {
	switch t.s.Gate {
	case "any-paused":
		return slices.ContainsFunc(t.programs, func(p *slowProgram) bool { return p.paused })
	case "waiting-only":
		return slices.ContainsFunc(t.programs, func(p *slowProgram) bool { return p.paused && t.front(p.session) != nil })
	}
	return t.s.Gate == "always"
}

func (t *slow) hold(now time.Duration, p *slowProgram, r *slowRequest) {
	if !p.paused {
		p.origin, p.atPause = p.worker, p.tokens
	}
	p.paused, p.worker, p.confirmed = true, -1, false
	if !r.held {
		t.holds++
		r.held, r.heldAt, r.order = true, now, t.holds
	}
}

func (t *slow) jump(now time.Duration, r *slowRequest, p *slowProgram) time.Duration {
	jump := time.Duration(0)
	if r.held {
		jump += seconds(t.s.ResumePriorityBoost)
	}
	if p != nil && p.demoted > now {
		jump += seconds(t.s.SoftDemotePriorityJump)
	}
	return jump
}

func (t *slow) dispatch(now time.Duration, r *slowRequest, w int32, why Reason, forced bool) {
	p := t.program(r.q.Session)
	r.released = true
	out := Release{Request: r.q, Worker: r.q.Pin, Target: -1, Forced: forced, Reason: why, PriorityJump: t.jump(now, r, p)}
	if r.q.Pin < 0 && t.s.Placement == "pin" {
		out.Worker = w
	} else if r.q.Pin < 0 {
		out.Target = w
	} else if w = r.q.Pin; !t.alive[w] {
		w = -1
	}
	if r.held {
		out.Held = now - r.heldAt
	}
	if p != nil {
		p.paused, p.worker = false, w
	}
	t.out = append(t.out, out)
}

func (t *slow) sent(q *Request, w int32) {
	if ran, ok := t.ran[q.Session]; ok && ran != w {
		t.migrations++
	}
	t.ran[q.Session] = w
	if p := t.program(q.Session); p != nil {
		p.worker, p.confirmed = w, true
	}
}

func (t *slow) remove(r *slowRequest) {
	t.requests = slices.DeleteFunc(t.requests, func(o *slowRequest) bool { return o == r })
}

func (t *slow) complete(now time.Duration, q *Request, context int32) {
	t.out = nil
	r := t.find(q)
	if p := t.program(q.Session); p != nil && r.begun {
		if context >= 0 {
			p.tokens = int64(context)
		} else {
			p.tokens = t.size(p)
		}
		p.acting, p.actingSince = true, now
		if p.marked {
			p.marked = false
			p.origin, p.atPause = p.worker, p.tokens
			p.paused, p.worker, p.confirmed = true, -1, false
		}
		if q.Final {
			t.drop(q.Session)
		}
	}
	t.finish(now, r)
}

func (t *slow) abort(now time.Duration, q *Request) {
	t.out = nil
	r := t.find(q)
	if r.begun {
		t.drop(q.Session)
		if r.prior != nil {
			p := *r.prior
			if p.worker >= 0 && !t.alive[p.worker] {
				p.worker, p.confirmed = -1, false
			}
			t.programs = append(t.programs, &p)
		}
	}
	t.finish(now, r)
}

func (t *slow) finish(now time.Duration, r *slowRequest) {
	t.remove(r)
	t.try(now, r.q.Session)
	t.settle(r.q.Session)
}

// settle notes that a session has no request any more, or forgets it if it has no program either.
func (t *slow) settle(session uint64) {
	if t.front(session) != nil || t.current(session) != nil {
		return
	}
	if p := t.program(session); p != nil {
		t.idled++
		p.idleOrder = t.idled
	} else {
		delete(t.ran, session)
	}
}

func (t *slow) removeWorker(w int) {
	t.alive[w] = false
	for _, p := range t.programs {
		if p.worker == int32(w) {
			p.worker, p.confirmed = -1, false
		}
	}
}
