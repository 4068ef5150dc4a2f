package thunderagent

import (
	"cmp"
	"slices"
	"time"
)

// resume gives paused programs workers again. It chooses them smallest first from the room of all workers together, and
// then places them largest first, each on the worker with the most room ("best-fit decreasing" in the sources; it is
// worst-fit). What was chosen and fits no single worker stays paused, though others might have had its share.
//
// A pinned request resumes on its pin only, as in later versions of [N]; 227ce2e4 takes any worker until Sent. Its pause
// pass of the same tick counts acting programs that have just been resumed unweighted; here they count as they do later.
func (t *Table) resume(now time.Duration) {
	if len(t.paused) == 0 {
		return
	}
	rooms, total := t.rooms(now)
	slots, totalSlots := t.slots(rooms)
	for _, c := range t.choose(rooms, total, totalSlots) {
		e, need := t.programs[c.index], t.settings.need(c.size)
		w := roomiest(rooms, slots, e, need)
		if w == nowhere {
			continue
		}
		if rooms[w] -= need; rooms[w] <= t.settings.BufferPerProgram {
			rooms[w] = 0
		}
		if slots != nil && e.takesSlot() {
			slots[w]--
		}
		t.wake(now, e, w, RoomAgain, false)
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

// candidate is a program to resume, pause or mark, with what it is ordered by. It holds no pointer, so that the garbage
// collector does not look at every move in a heap of them.
type candidate struct {
	size    int64
	session uint64
	index   int // in Table.programs
}

func (c candidate) less(d candidate) bool {
	return c.size < d.size || c.size == d.size && c.session < d.session
}

func smallestFirst(c, d candidate) int {
	if c.size != d.size {
		return cmp.Compare(c.size, d.size)
	}
	return cmp.Compare(c.session, d.session)
}

func largestFirst(c, d candidate) int {
	if c.size != d.size {
		return cmp.Compare(d.size, c.size)
	}
	return cmp.Compare(c.session, d.session)
}

// takesSlot tells whether a paused program reasons when it is resumed, and so counts for max_programs.
func (e *entry) takesSlot() bool { return !e.acting }

// pin returns the only worker for the request that waits first, or nowhere.
func (e *entry) pin() int32 {
	if len(e.waiting) > 0 {
		return e.waiting[0].Pin
	}
	return nowhere
}

// choose returns the paused programs to place, largest first.
func (t *Table) choose(rooms []int64, total, slots int64) []candidate {
	groups := &t.groups
	for g := range groups {
		groups[g] = groups[g][:0]
	}
	for _, e := range t.paused {
		c := candidate{t.pausedSize(e), e.session, e.index}
		need, pin := t.settings.need(c.size), e.pin()
		if need <= total && (pin == nowhere || need <= rooms[pin]) {
			g := t.group(e)
			groups[g] = append(groups[g], c)
		}
	}
	chosen := t.chosen[:0]
	for _, group := range groups {
		for group = heapify(group); len(group) > 0; {
			var c candidate
			c, group = pop(group)
			need := t.settings.need(c.size)
			if need > total {
				break // and all after it are larger
			}
			if t.programs[c.index].takesSlot() {
				if slots == 0 {
					continue
				}
				slots--
			}
			total -= need
			chosen = append(chosen, c)
		}
	}
	slices.SortFunc(chosen, largestFirst)
	t.chosen = chosen
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

// roomiest returns the worker with the most room of those that can take a paused program, the first one on a tie.
func roomiest(rooms, slots []int64, e *entry, need int64) int32 {
	best, most := nowhere, max(need, 1)-1
	pin, counts := e.pin(), slots != nil && e.takesSlot()
	for w, room := range rooms {
		if room > most && (pin == nowhere || int(pin) == w) && !(counts && slots[w] == 0) {
			best, most = int32(w), room
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
		if child+1 < len(h) && h[child+1].less(h[child]) {
			child++
		}
		if !h[child].less(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
