package thunderagent

import "time"

// NextTick returns when Tick wants to be called, now at the earliest, and whether it does: not while the table has no
// program. Any other call may change the answer.
func (t *Table) NextTick(now time.Duration) (time.Duration, bool) {
	if len(t.programs) == 0 {
		return 0, false
	}
	next := t.next
	if due, ok := t.deadline(); ok {
		next = min(next, due)
	}
	return max(next, now), true
}

// deadline returns when the next held request times out, if that is not left to a tick.
func (t *Table) deadline() (time.Duration, bool) {
	e := t.deferred.head
	if t.settings.ForceAt != forceAtDeadline || t.timeout == 0 || e == nil || !t.anyAlive() {
		return 0, false
	}
	return e.deferredSince + t.timeout, true
}

func (t *Table) anyAlive() bool { return t.anyWorker(func(w int) bool { return t.workers[w].alive }) }

// startTicks makes ticks come at whole intervals after the first request. Those that find no program do nothing, and
// are left out.
func (t *Table) startTicks(now time.Duration) {
	switch {
	case t.next == none:
		t.next = now + t.interval
	case t.next <= now && len(t.programs) == 0:
		t.passTick(now)
	}
}

// passTick moves the next tick past now.
func (t *Table) passTick(now time.Duration) {
	t.next += ((now-t.next)/t.interval + 1) * t.interval
}

// Tick resumes and pauses programs if a tick is due, and returns the held requests that may go to the router. The
// result is valid until the next call.
func (t *Table) Tick(now time.Duration) []Release {
	t.out = t.out[:0]
	if t.next == none || now < t.next {
		if due, ok := t.deadline(); ok && due <= now {
			t.force(now)
		}
		return t.out
	}
	t.passTick(now)
	t.expire(now)
	t.demote(now)
	if t.settings.TickOrder == pauseFirst {
		t.gauge()
		t.pauseOver(now)
	}
	t.resume(now)
	t.force(now)
	if t.settings.TickOrder == resumeFirst {
		t.gauge()
		t.pauseOver(now)
	}
	return t.out
}

// gauge keeps the peaks of use.
func (t *Table) gauge() {
	t.stats.Ticks++
	var used int64
	for w := range t.workers {
		u := t.Used(w)
		used += u
		if t.usable(w) {
			t.stats.MaxOver = max(t.stats.MaxOver, u-t.workers[w].capacity)
		}
	}
	t.stats.UsedPeak = max(t.stats.UsedPeak, used)
}

// demote gives the programs of workers that are nearly over the threshold a priority jump until after the next tick.
func (t *Table) demote(now time.Duration) {
	if t.settings.SoftDemotePriorityJump == 0 {
		return
	}
	until := now + t.interval*3/2
	for _, e := range t.programs {
		if e.worker == nowhere || e.marked || !t.usable(int(e.worker)) {
			continue
		}
		on := &t.workers[e.worker]
		of := float64(t.Used(int(e.worker))) / float64(on.capacity)
		if t.settings.MaxPrograms > 0 {
			of = max(of, float64(on.reasoning.programs)/float64(t.settings.MaxPrograms))
		}
		if t.settings.SoftDemoteThreshold <= of && of < t.settings.PauseThreshold {
			s := e.state
			s.demotedUntil = until
			t.set(now, e, s)
		}
	}
}

// force lets requests go that have been held for resume_timeout, whatever the room. It is a herd if many were deferred
// at once. With no worker alive they stay.
func (t *Table) force(now time.Duration) {
	due := func() bool {
		return t.timeout > 0 && t.deferred.head != nil && t.deferred.head.deferredSince+t.timeout <= now
	}
	if !due() || !t.anyAlive() {
		return
	}
	loads := t.measure(now, t.settings.Decay.Forced)
	for due() {
		e := t.deferred.head
		w := t.forcedTo(e, loads)
		t.stats.ForcedResumes++
		t.wake(now, e, w, TimedOut, true)
		if w != nowhere {
			loads[w] += t.settings.need(e.tokens)
		}
	}
}

// forcedTo returns the worker for a program that is forced, nowhere when none has published its capacity.
func (t *Table) forcedTo(e *entry, loads []int64) int32 {
	if pin := e.pin(); pin != nowhere {
		if t.alive(pin) {
			return pin
		}
		return nowhere // the router has to say no
	}
	origin := t.settings.ForceTo == forceToOrigin
	if origin && t.alive(e.origin) {
		return e.origin
	}
	best, most := nowhere, int64(0)
	for w := range t.workers {
		on := &t.workers[w]
		if !t.usable(w) {
			continue
		}
		room := on.capacity - loads[w]
		if origin {
			room = -on.reasoning.programs - on.acting.programs
		}
		if best == nowhere || room > most {
			best, most = int32(w), room
		}
	}
	return best
}
