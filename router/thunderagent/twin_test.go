package thunderagent

import (
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// slow is the scheduler as its pseudo-steps read: one plain list of programs, one of requests, and every sum computed
// anew whenever it is wanted.
type slow struct {
	s        Settings
	capacity []int64
	alive    []bool
	// generated is what the engines say of a request that runs, and ran where it was sent.
	generated func(*Request) int32

	programs              []*slowProgram
	requests              []*slowRequest // in order of arrival
	ran                   map[uint64]int32
	first                 time.Duration // of the ticks; -1 before the first request
	out                   []Release
	evictions, migrations int
	idled                 int // counts sessions that became idle
	holds                 int // counts deferrals
}

type slowProgram struct {
	session               uint64
	acting, paused        bool
	marked, confirmed     bool
	worker, origin        int32
	turns                 int32
	tokens, atPause       int64
	actingSince, deferred time.Duration
	idleOrder             int // of equal acting times, the first to become idle
	demoted               time.Duration
	path                  []trace.Span
	blocks                int64
}

type slowRequest struct {
	q        *Request
	released bool
	begun    bool
	prior    *slowProgram // a copy; nil if the request began the program
	held     bool
	heldAt   time.Duration
	order    int // of deferral
	sentTo   int32
}

func (t *slow) program(session uint64) *slowProgram {
	for _, p := range t.programs {
		if p.session == session {
			return p
		}
	}
	return nil
}

func (t *slow) drop(session uint64) {
	t.programs = slices.DeleteFunc(t.programs, func(p *slowProgram) bool { return p.session == session })
}

func (t *slow) find(q *Request) *slowRequest {
	for _, r := range t.requests {
		if r.q == q {
			return r
		}
	}
	return nil
}

// current is the released request of a session, front the first that waits.
func (t *slow) current(session uint64) *slowRequest {
	for _, r := range t.requests {
		if r.q.Session == session && r.released {
			return r
		}
	}
	return nil
}

func (t *slow) front(session uint64) *slowRequest {
	for _, r := range t.requests {
		if r.q.Session == session && !r.released {
			return r
		}
	}
	return nil
}

func (t *slow) size(p *slowProgram) int64 {
	if r := t.current(p.session); r != nil {
		return p.tokens + int64(t.generated(r.q))
	}
	return p.tokens
}

func (t *slow) base() int64 {
	base := t.s.BufferPerProgram
	if t.s.SharedPrefixBudget {
		base += 256
	}
	return base
}

func (t *slow) need(tokens int64) int64 {
	need := tokens + t.base()
	if t.s.Rounding == "blocks" && need%t.s.BlockSize > 0 {
		need += t.s.BlockSize - need%t.s.BlockSize
	}
	return need
}

func floor(tokens int64, of float64) int64 { return int64(math.Floor(float64(tokens) * of)) }

// charge is what p counts on its worker, shared prompts aside.
func (t *slow) charge(p *slowProgram) int64 {
	switch {
	case !p.acting:
		return t.need(p.tokens) + t.size(p) - p.tokens
	case t.s.Rounding == "blocks":
		n := floor(p.tokens, t.s.ActingTokenWeight)
		return n - n%t.s.BlockSize
	}
	return floor(p.tokens, t.s.ActingTokenWeight) + t.base()
}

func (t *slow) used(w int) int64 {
	if !t.alive[w] {
		return 0
	}
	type block struct {
		key trace.Key
		at  int32
	}
	sum := int64(0)
	reasoning, acting := map[block]bool{}, map[block]bool{}
	for _, p := range t.programs {
		if p.paused || p.worker != int32(w) {
			continue
		}
		sum += t.charge(p)
		if !p.confirmed || p.blocks*t.s.BlockSize > p.tokens {
			continue
		}
		of := reasoning
		if p.acting {
			of = acting
			sum -= floor(p.blocks*t.s.BlockSize, t.s.ActingTokenWeight)
		} else {
			sum -= p.blocks * t.s.BlockSize
		}
		for _, span := range p.path {
			for at := span.From; at < span.To && int64(at) < p.blocks; at++ {
				of[block{span.Key, at}] = true
			}
		}
	}
	weighted, plain := int64(0), int64(0)
	for b := range acting {
		if !reasoning[b] || t.s.ActingTokenWeight > 1 {
			weighted++
		}
	}
	for b := range reasoning {
		if !acting[b] || t.s.ActingTokenWeight <= 1 {
			plain++
		}
	}
	return sum + plain*t.s.BlockSize + floor(weighted*t.s.BlockSize, t.s.ActingTokenWeight)
}

func (t *slow) decayed(now time.Duration, p *slowProgram) int64 {
	if !p.acting {
		return t.charge(p)
	}
	return floor(p.tokens, math.Exp2(-(now-p.actingSince).Seconds()/t.s.ActingDecayTau)) + t.base()
}

func (t *slow) load(now time.Duration, w int, decayed bool) int64 {
	if !decayed {
		return t.used(w)
	}
	sum := int64(0)
	for _, p := range t.programs {
		if !p.paused && p.worker == int32(w) && t.alive[w] {
			sum += t.decayed(now, p)
		}
	}
	return sum
}

func (t *slow) usable(w int) bool { return t.alive[w] && t.capacity[w] > 0 }

func (t *slow) reasoning(w int) (n int64) {
	for _, p := range t.programs {
		if !p.paused && !p.acting && p.worker == int32(w) {
			n++
		}
	}
	return n
}

// idle is the programs without a request, that idle longest first.
func (t *slow) idle() []*slowProgram {
	var idle []*slowProgram
	for _, p := range t.programs {
		if p.acting && t.current(p.session) == nil && t.front(p.session) == nil {
			idle = append(idle, p)
		}
	}
	slices.SortStableFunc(idle, func(a, b *slowProgram) int {
		if a.actingSince != b.actingSince {
			return int(a.actingSince - b.actingSince)
		}
		return a.idleOrder - b.idleOrder
	})
	return idle
}

func (t *slow) expire(now time.Duration) {
	for _, p := range t.idle() {
		if t.s.SessionRetention > 0 && now-p.actingSince >= seconds(t.s.SessionRetention) {
			t.drop(p.session)
			t.settle(p.session)
		}
	}
}

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
	t.requests = append(t.requests, &slowRequest{q: q, sentTo: -1})
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
		p.deferred = -1
	}
	p.paused, p.worker, p.confirmed = true, -1, false
	if !r.held {
		t.holds++
		r.held, r.heldAt, r.order, p.deferred = true, now, t.holds, now
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
	r := t.find(q)
	if ran, ok := t.ran[q.Session]; ok && ran != w {
		t.migrations++
	}
	t.ran[q.Session] = w
	r.sentTo = w
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
