package thunderagent

import (
	"math"
	"slices"
	"time"
)

// tick is a whole tick, or only the deadlines of held requests.
func (t *slow) tick(now time.Duration, whole bool) {
	t.out = nil
	if !whole {
		if t.s.ForceAt == "deadline" {
			t.force(now)
		}
		return
	}
	t.expire(now)
	fronts := slices.Clone(t.requests)
	for _, r := range fronts {
		if !r.released && t.front(r.q.Session) == r {
			t.try(now, r.q.Session)
		}
	}
	t.demote(now)
	if t.s.TickOrder == "pause-first" {
		t.pauseOver(now)
	}
	t.resume(now)
	t.force(now)
	if t.s.TickOrder == "resume-first" {
		t.pauseOver(now)
	}
}

func (t *slow) demote(now time.Duration) {
	for _, p := range t.programs {
		if p.paused || p.worker < 0 || !t.usable(int(p.worker)) || p.marked || t.s.SoftDemotePriorityJump == 0 {
			continue
		}
		of := float64(t.used(int(p.worker))) / float64(t.capacity[p.worker])
		if t.s.MaxPrograms > 0 {
			of = max(of, float64(t.reasoning(int(p.worker)))/float64(t.s.MaxPrograms))
		}
		if of >= t.s.SoftDemoteThreshold && of < t.s.PauseThreshold {
			p.demoted = now + seconds(t.s.SchedulerInterval)*3/2
		}
	}
}

func (t *slow) resume(now time.Duration) {
	type room struct {
		w           int
		left, slots int64
	}
	ceiling := max(0, t.s.PauseThreshold-t.s.ResumeHysteresis)
	var rooms []room
	total, slots := int64(0), int64(0)
	for _, w := range t.workers() {
		if !t.usable(w) {
			continue
		}
		left := floor(t.capacity[w], ceiling) - t.load(now, w, t.s.Decay.Resume)
		if left <= t.s.BufferPerProgram {
			continue
		}
		r := room{w, left, math.MaxInt32}
		if t.s.MaxPrograms > 0 {
			r.slots = max(0, floor(t.s.MaxPrograms, ceiling)-t.reasoning(w))
		}
		rooms = append(rooms, r)
		total += left
		slots += r.slots
	}
	byRoom := func(a, b room) int {
		if a.left != b.left {
			return int(b.left - a.left)
		}
		return a.w - b.w
	}
	slices.SortFunc(rooms, byRoom)
	group := func(p *slowProgram) int {
		if p.turns <= 1 && t.s.ResumeOrder == "turns" {
			return 1
		}
		if p.acting {
			return 2
		}
		return 0
	}
	size := func(p *slowProgram) int64 {
		if t.s.ResumeBySizeAtPause {
			return p.atPause
		}
		return p.tokens
	}
	pin := func(p *slowProgram) int {
		if r := t.front(p.session); r != nil {
			return int(r.q.Pin)
		}
		return -1
	}
	var paused, chosen []*slowProgram
	for _, p := range t.programs {
		if p.paused {
			paused = append(paused, p)
		}
	}
	slices.SortFunc(paused, func(a, b *slowProgram) int {
		if group(a) != group(b) {
			return group(a) - group(b)
		}
		if size(a) != size(b) {
			return int(size(a) - size(b))
		}
		return int(a.session) - int(b.session)
	})
	for _, p := range paused {
		need := t.need(size(p))
		pinFits := pin(p) < 0 || slices.ContainsFunc(rooms, func(r room) bool { return r.w == pin(p) && r.left >= need })
		if need > total || !pinFits || !p.acting && slots == 0 {
			continue
		}
		total -= need
		if !p.acting {
			slots--
		}
		chosen = append(chosen, p)
	}
	slices.SortFunc(chosen, func(a, b *slowProgram) int {
		if size(a) != size(b) {
			return int(size(b) - size(a))
		}
		return int(a.session) - int(b.session)
	})
	for _, p := range chosen {
		need := t.need(size(p))
		for i := range rooms {
			r := &rooms[i]
			if r.left < need || pin(p) >= 0 && pin(p) != r.w || !p.acting && r.slots == 0 {
				continue
			}
			r.left -= need
			if !p.acting {
				r.slots--
			}
			w := int32(r.w)
			if r.left <= t.s.BufferPerProgram {
				rooms = slices.Delete(rooms, i, i+1)
			}
			slices.SortFunc(rooms, byRoom)
			t.wake(now, p, w, RoomAgain, false)
			break
		}
	}
}

func (t *slow) wake(now time.Duration, p *slowProgram, w int32, why Reason, forced bool) {
	if r := t.front(p.session); r != nil {
		t.dispatch(now, r, w, why, forced)
	} else {
		p.paused, p.worker = false, w
	}
}

func (t *slow) force(now time.Duration) {
	if t.s.ResumeTimeout == 0 || !slices.Contains(t.alive, true) {
		return
	}
	var due []*slowRequest
	for _, r := range t.requests {
		if r.held && !r.released && now-r.heldAt >= seconds(t.s.ResumeTimeout) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *slowRequest) int { return a.order - b.order })
	for _, r := range due {
		p := t.program(r.q.Session)
		w := int32(-1)
		switch {
		case r.q.Pin >= 0:
			if t.alive[r.q.Pin] {
				w = r.q.Pin
			}
		case t.s.ForceTo == "origin" && p.origin >= 0 && t.alive[p.origin]:
			w = p.origin
		default:
			best := int64(0)
			for _, v := range t.workers() {
				if !t.usable(v) {
					continue
				}
				room := t.capacity[v] - t.load(now, v, t.s.Decay.Forced)
				if t.s.ForceTo == "origin" {
					room = 0
					for _, o := range t.programs {
						if !o.paused && o.worker == int32(v) {
							room--
						}
					}
				}
				if w < 0 || room > best {
					w, best = int32(v), room
				}
			}
		}
		t.wake(now, p, w, TimedOut, true)
	}
}

func (t *slow) pauseOver(now time.Duration) {
	bySize := func(a, b *slowProgram) int {
		if t.size(a) != t.size(b) {
			return int(t.size(a) - t.size(b))
		}
		return int(a.session) - int(b.session)
	}
	for _, w := range t.workers() {
		crowded := func(of float64) bool {
			return t.s.MaxPrograms > 0 && t.reasoning(w) > floor(t.s.MaxPrograms, of)
		}
		load := func() int64 { return t.load(now, w, t.s.Decay.Pause) }
		if !t.usable(w) || load() <= floor(t.capacity[w], t.s.PauseThreshold) && !crowded(t.s.PauseThreshold) {
			continue
		}
		target := floor(t.capacity[w], t.s.PauseTarget)
		var here []*slowProgram
		for _, p := range t.programs {
			if !p.paused && p.worker == int32(w) {
				here = append(here, p)
			}
		}
		slices.SortFunc(here, bySize)
		for _, p := range here {
			if p.acting && load() > target {
				p.origin, p.atPause = p.worker, p.tokens
				p.paused, p.worker, p.confirmed = true, -1, false
			}
		}
		if t.s.Mark == "none" || load() <= target && !crowded(t.s.PauseTarget) {
			continue
		}
		left := load()
		for _, p := range here {
			if p.marked {
				left -= t.need(t.size(p))
			}
		}
		for _, p := range here {
			if p.acting || p.paused || p.marked || t.s.Mark == "smallest-until-target" && left <= target {
				continue
			}
			p.marked = true
			left -= t.need(t.size(p))
		}
	}
}
