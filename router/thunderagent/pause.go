package thunderagent

import (
	"slices"
	"time"
)

// pauseOver pauses acting programs of workers that are used beyond the threshold, smallest first, until the target is
// met, and marks reasoning ones if that does not meet it. A request that runs is never interrupted.
func (t *Table) pauseOver(now time.Duration) {
	loads := t.measure(now, t.settings.Decay.Pause)
	over := make([]*overused, len(t.workers))
	found := false
	for w := range t.workers {
		if t.usable(w) && (loads[w] > share(t.workers[w].capacity, t.settings.PauseThreshold) || t.crowded(w, t.settings.PauseThreshold)) {
			over[w], found = &overused{load: loads[w]}, true
		}
	}
	if !found {
		return
	}
	for _, e := range t.programs {
		if e.worker != nowhere && over[e.worker] != nil {
			over[e.worker].add(t, e)
		}
	}
	for w, o := range over {
		if o != nil {
			t.shed(now, w, o)
		}
	}
}

// overused is a worker to be relieved, and its programs.
type overused struct {
	load              int64
	marked            int64 // tokens that programs marked before will free
	acting, reasoning []candidate
}

func (o *overused) add(t *Table, e *entry) {
	c := candidate{t.size(e), e.session, e.index}
	switch {
	case e.acting:
		o.acting = append(o.acting, c)
	case e.marked:
		o.marked += t.settings.need(c.size)
	default:
		o.reasoning = append(o.reasoning, c)
	}
}

// crowded tells whether more programs reason on a worker than a share of max_programs.
func (t *Table) crowded(w int, of float64) bool {
	return t.settings.MaxPrograms > 0 && t.workers[w].reasoning.programs > share(t.settings.MaxPrograms, of)
}

// shed relieves worker w.
func (t *Table) shed(now time.Duration, w int, o *overused) {
	target := share(t.workers[w].capacity, t.settings.PauseTarget)
	for acting := heapify(o.acting); o.load > target && len(acting) > 0; {
		var c candidate
		c, acting = pop(acting)
		e := t.programs[c.index]
		if t.settings.Decay.Pause {
			o.load -= t.settings.decayedCharge(e.tokens, now-e.actingSince)
			t.pause(now, e, OverThreshold)
		} else {
			t.pause(now, e, OverThreshold)
			o.load = t.Used(w)
		}
	}
	if t.settings.Mark == markNone || o.load <= target && !t.crowded(w, t.settings.PauseTarget) {
		return
	}
	left := o.load - o.marked
	slices.SortFunc(o.reasoning, smallestFirst)
	for _, c := range o.reasoning {
		if t.settings.Mark == markUntilTarget && left <= target {
			return
		}
		left -= t.settings.need(c.size)
		t.stats.Marks++
		e := t.programs[c.index]
		t.tell(now, Marked, OverThreshold, e, e.current, int32(w), t.settings.PauseThreshold)
		s := e.state
		s.marked = true
		t.set(now, e, s)
	}
}

// size returns the tokens of a program now, with what its running request has generated.
func (t *Table) size(e *entry) int64 {
	if e.known && e.current != nil {
		return e.tokens + int64(t.live.Request(e.current))
	}
	return e.tokens
}
