package thunderagent

import (
	"fmt"
	"math"
	"time"
)

// Capacity is what one worker can hold, in tokens of KV. 0 is not published: such a worker is never chosen here, but
// the router may use it.
type Capacity struct {
	// Tokens of the GPU: KV blocks times block size.
	Tokens int64
	// HostTokens of the host tier, which count with Settings.HostTier only.
	HostTokens int64
}

// worker is the account of one worker. Sums are over the programs assigned to it and not paused.
type worker struct {
	alive     bool
	capacity  int64
	reasoning account
	acting    account
	shared    footprint
}

type account struct {
	programs int64
	tokens   int64 // charged, less what running requests have generated
}

// SetWorker says that a worker is there, and what it holds. An index beyond those known adds workers.
func (t *Table) SetWorker(w int, c Capacity) error {
	if w < 0 || w >= maxWorkers {
		return fmt.Errorf("set worker %d: not within 0..%d", w, maxWorkers-1)
	}
	if c.Tokens < 0 || c.Tokens > maxTokens || c.HostTokens < 0 || c.HostTokens > maxTokens {
		return fmt.Errorf("set worker %d: capacity %+v is not within 0..%d tokens", w, c, int64(maxTokens))
	}
	for len(t.workers) <= w {
		t.workers = append(t.workers, worker{})
		t.loads = append(t.loads, 0)
	}
	to := &t.workers[w]
	to.alive, to.capacity = true, t.settings.Budget(c)
	return nil
}

// Budget is what of a capacity the programs on a worker may hold, before the thresholds.
func (s *Settings) Budget(c Capacity) int64 {
	if s.HostTier && c.Tokens > 0 {
		return c.Tokens + c.HostTokens
	}
	return c.Tokens
}

// RemoveWorker says that a worker is gone. Its programs lose their assignment; their next request is placed anew,
// past the gate for new programs. The caller aborts the requests that ran there. With no worker left, requests of
// programs that are not paused go out unplaced, as before the first capacity is known, and held ones stay held until a
// worker comes.
func (t *Table) RemoveWorker(now time.Duration, w int) {
	if !t.alive(int32(w)) {
		return
	}
	t.workers[w].alive = false
	for _, e := range t.programs {
		if e.worker == int32(w) {
			s := e.state
			s.worker, s.confirmed = nowhere, false
			t.set(now, e, s)
		}
	}
}

// Used returns the tokens charged to a worker: what its programs hold, a buffer for each, and what their requests have
// generated so far.
func (t *Table) Used(w int) int64 {
	if !t.alive(int32(w)) {
		return 0
	}
	on := &t.workers[w]
	return on.reasoning.tokens + on.acting.tokens - on.shared.saved(&t.settings) + t.live.Worker(w)
}

func (t *Table) alive(w int32) bool { return w >= 0 && int(w) < len(t.workers) && t.workers[w].alive }

// usable tells whether the table may place programs on a worker.
func (t *Table) usable(w int) bool { return t.workers[w].alive && t.workers[w].capacity > 0 }

// anyWorker tells whether f holds for one.
func (t *Table) anyWorker(f func(w int) bool) bool {
	for w := range t.workers {
		if f(w) {
			return true
		}
	}
	return false
}

// charge adds the program of e to its worker's account, or with sign -1 takes it off.
func (t *Table) charge(e *entry, sign int64) {
	if e.worker == nowhere || e.paused {
		return
	}
	on := &t.workers[e.worker]
	a, tokens := &on.reasoning, t.settings.need(e.tokens)
	if e.acting {
		a, tokens = &on.acting, t.settings.actingCharge(e.tokens)
	}
	a.programs += sign
	a.tokens += sign * tokens
	if e.confirmed && e.blocks > 0 && e.blocks*t.settings.BlockSize <= e.tokens {
		on.shared.add(&t.settings, e, sign)
	}
}

// growthReserve is what each program reserves with SharedPrefixBudget [N].
const growthReserve = 256

// base is what a program counts beside its tokens.
func (s *Settings) base() int64 {
	if s.SharedPrefixBudget {
		return s.BufferPerProgram + growthReserve
	}
	return s.BufferPerProgram
}

// need is what a reasoning program of that many tokens is charged, and what any program needs to enter.
func (s *Settings) need(tokens int64) int64 {
	n := tokens + s.base()
	if s.Rounding == roundBlocks {
		n = (n + s.BlockSize - 1) / s.BlockSize * s.BlockSize
	}
	return n
}

func (s *Settings) actingCharge(tokens int64) int64 {
	n := share(tokens, s.ActingTokenWeight)
	if s.Rounding == roundBlocks {
		return n / s.BlockSize * s.BlockSize
	}
	return n + s.base()
}

// decayedCharge is the charge of a program that has acted since.
func (s *Settings) decayedCharge(tokens int64, idle time.Duration) int64 {
	return share(tokens, math.Exp2(-idle.Seconds()/s.ActingDecayTau)) + s.base()
}

// share is a product in float64, truncated, as the reference computes all its limits.
func share(tokens int64, of float64) int64 { return int64(float64(tokens) * of) }

func (s *Settings) resumeCeiling() float64 { return max(0, s.PauseThreshold-s.ResumeHysteresis) }

// measure fills loads with the use of all workers, decayed or not. Decayed tokens count as whole numbers for each
// program: after 41 halvings none is left of maxTokens, so only those that began to act lately are looked at.
func (t *Table) measure(now time.Duration, decayed bool) []int64 {
	for w := range t.workers {
		t.loads[w] = t.Used(w)
	}
	if !decayed {
		return t.loads
	}
	for w := range t.workers {
		if on := &t.workers[w]; on.alive {
			t.loads[w] = on.reasoning.tokens + t.live.Worker(w) + on.acting.programs*t.settings.base()
		}
	}
	horizon := seconds(min(41*t.settings.ActingDecayTau, maxSeconds))
	for e := t.idle.tail; e != nil && now-e.actingSince <= horizon; e = e.links[idleLinks].prev {
		if e.worker != nowhere {
			t.loads[e.worker] += t.settings.decayedCharge(e.tokens, now-e.actingSince) - t.settings.base()
		}
	}
	return t.loads
}
