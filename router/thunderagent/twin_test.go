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
	session           uint64
	acting, paused    bool
	marked, confirmed bool
	worker, origin    int32
	turns             int32
	tokens, atPause   int64
	actingSince       time.Duration
	idleOrder         int // of equal acting times, the first to become idle
	demoted           time.Duration
	path              []trace.Span
	blocks            int64
}

type slowRequest struct {
	q        *Request
	released bool
	begun    bool
	prior    *slowProgram // a copy; nil if the request began the program
	held     bool
	heldAt   time.Duration
	order    int // of deferral
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
