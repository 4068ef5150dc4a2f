package thunderagent

import (
	"cmp"
	"slices"
	"time"
)

// resume gives paused programs workers again. It chooses them smallest first from the room of all workers together, and
// then places them largest first, each on the worker with the most room ("best-fit decreasing" in the sources; it is
// worst-fit). What was chosen and fits no single worker stays paused, though others might have had its share.
func (t *Table) resume(now time.Duration) {
	if len(t.paused) == 0 {
		return
	}
	rooms, total := t.rooms(now)
	slots, totalSlots := t.slots(rooms)
	for _, c := range t.choose(rooms, total, totalSlots) {
		w := roomiest(rooms, slots, c)
		if w == nowhere {
			continue
		}
		if rooms[w] -= c.need; rooms[w] <= t.settings.BufferPerProgram {
			rooms[w] = 0
		}
		if slots != nil && c.slot() {
			slots[w]--
		}
		t.wake(now, c.entry, w, RoomAgain, false)
	}
}

// rooms returns what is left of each worker below the resume ceiling, 0 if that is not worth a program, and the sum.
func (t *Table) rooms(now time.Duration) (rooms []int64, total int64) {
	rooms = slices.Clone(t.measure(now, t.settings.Decay.Resume))
	for w, used := range rooms {
		rooms[w] = 0
		if !t.usable(w) {
			continue
		}
		if room := share(t.workers[w].capacity, t.settings.resumeCeiling()) - used; room > t.settings.BufferPerProgram {
			rooms[w] = room
			total += room
		}
	}
	return rooms, total
}

// slots returns how many more programs may reason on each worker with room, and on all; nil without a limit.
func (t *Table) slots(rooms []int64) (slots []int64, total int64) {
	if t.settings.MaxPrograms == 0 {
		return nil, int64(len(t.paused))
	}
	limit := share(t.settings.MaxPrograms, t.settings.resumeCeiling())
	slots = make([]int64, len(rooms))
	for w, room := range rooms {
		if room > 0 {
			slots[w] = max(0, limit-t.workers[w].reasoning.programs)
			total += slots[w]
		}
	}
	return slots, total
}

// candidate is a program to resume, pause or mark.
type candidate struct {
	*entry
	size, need int64
	pin        int32
}

func (c candidate) slot() bool { return !c.acting }

func smallestFirst(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.session, b.session))
}

func largestFirst(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.session, b.session))
}

// choose returns the paused programs to place, largest first.
func (t *Table) choose(rooms []int64, total, slots int64) []candidate {
	var groups [3][]candidate
	for _, e := range t.paused {
		c := candidate{entry: e, size: t.pausedSize(e), pin: nowhere}
		if c.need = t.settings.need(c.size); c.need > total {
			continue
		}
		if len(e.waiting) > 0 {
			c.pin = e.waiting[0].Pin
		}
		if c.pin == nowhere || rooms[c.pin] >= c.need {
			g := t.group(e)
			groups[g] = append(groups[g], c)
		}
	}
	var chosen []candidate
	for _, group := range groups {
		for group = heapify(group); len(group) > 0; {
			var c candidate
			c, group = pop(group)
			if c.need > total {
				break // and all after it are larger
			}
			if c.slot() && slots == 0 {
				continue
			}
			total -= c.need
			if c.slot() {
				slots--
			}
			chosen = append(chosen, c)
		}
	}
	slices.SortFunc(chosen, largestFirst)
	return chosen
}

// group is the rank of a paused program: those with a request first, but after one turn only behind the others. That
// a program in its first turn goes before all that act, though it acts too, is [N].
func (t *Table) group(e *entry) int {
	switch {
	case t.settings.ResumeOrder == orderTurns && e.turns <= 1:
		return 1
	case e.acting:
		return 2
	}
	return 0
}

func (t *Table) pausedSize(e *entry) int64 {
	if t.settings.ResumeBySizeAtPause {
		return e.atPause
	}
	return e.tokens
}

// roomiest returns the worker with the most room of those that can take c, the first one on a tie.
func roomiest(rooms, slots []int64, c candidate) int32 {
	best := nowhere
	for w, room := range rooms {
		if room < max(c.need, 1) || c.pin != nowhere && int(c.pin) != w || slots != nil && c.slot() && slots[w] == 0 {
			continue
		}
		if best == nowhere || room > rooms[best] {
			best = int32(w)
		}
	}
	return best
}

// wake resumes the program of e on w and lets its held request go.
func (t *Table) wake(now time.Duration, e *entry, w int32, why Reason, forced bool) {
	t.stats.Resumes++
	kind, limit := Resumed, t.settings.resumeCeiling()
	if forced {
		kind, limit = Forced, 1
	}
	if len(e.waiting) > 0 {
		t.tell(now, kind, why, e, e.waiting[0], w, limit)
		t.release(now, e, w, why, forced)
		return
	}
	t.tell(now, kind, why, e, nil, w, limit)
	s := e.state
	s.paused, s.worker = false, w
	t.set(now, e, s)
}

// heapify makes a binary heap of candidates, smallest first. Few of many are taken, so sorting all would be a waste.
func heapify(h []candidate) []candidate {
	for i := len(h)/2 - 1; i >= 0; i-- {
		down(h, i)
	}
	return h
}

// pop returns the smallest candidate and the heap without it.
func pop(h []candidate) (candidate, []candidate) {
	least, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	down(h, 0)
	return least, h
}

func down(h []candidate, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && smallestFirst(h[child+1], h[child]) < 0 {
			child++
		}
		if smallestFirst(h[i], h[child]) <= 0 {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
