package engine

import (
	"time"

	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// Occupancy integrates the KV blocks of a cache over time: what is in use, what is free but still holds tokens, and the
// rest of the capacity, which holds nothing. All but Time are block-seconds.
//
// Of the blocks in use, prefills, decodes and pins, which what is being brought from outside counts as, have their parts in proportion to the tokens that they hold, so that
// what several hold in common counts once. A prefill that computes n tokens in a step, some of which had been computed
// before, has that share of its part under Recompute. What is left of Used is the decodes'.
type Occupancy struct {
	Time                       time.Duration
	Used, Cached               float64
	Prefill, Recompute, Pinned float64
}

// Blocks is how the KV blocks are held at time now: in use, pins included; by pins alone; free but still holding tokens.
func (e *Engine) Blocks(now time.Duration) (used, pinned, cached int) {
	grown := 0 // since the first of the steps in flight
	if e.busy {
		grown = min(e.kv.Fresh(), int(e.decodes*min(e.stepsDone(now), e.steps-1))/e.kv.BlockSize)
	}
	used = e.kv.Used() + grown
	return used, min(e.pins.blocks, used), e.kv.Cached()
}

// Held is the number of KV blocks that a request refers to; others may refer to the same.
func (e *Engine) Held(r *Request) int { return e.kv.Held(&r.table) }

// PinnedBy is that of a session's pin.
func (e *Engine) PinnedBy(session uint64) int {
	if p := e.pins.of[session]; p != nil {
		return p.blocks
	}
	return 0
}

// Claim claims the blocks that a path would find cached and nobody refers to, and returns their number.
func (e *Engine) Claim(path []trace.Span, claims kvcache.Claims) int {
	return e.cache.Claim(path, claims)
}

// Decode is the decodes' part of Used.
func (o Occupancy) Decode() float64 { return max(0, o.Used-o.Prefill-o.Recompute-o.Pinned) }

// Add adds the integrals of another engine.
func (o *Occupancy) Add(other Occupancy) {
	o.Time += other.Time
	o.Used += other.Used
	o.Cached += other.Cached
	o.Prefill += other.Prefill
	o.Recompute += other.Recompute
	o.Pinned += other.Pinned
}

// holders is the tokens held in the step in flight by its prefills: all of them, and those of recomputation.
type holders struct{ prefill, recompute float64 }

// addPrefill notes that a prefill computes n tokens behind past in the step, the first again of which it had before.
func (h *holders) addPrefill(past, n, again int64) {
	held := float64(past + n)
	h.prefill += held
	if n == 0 { // the decodes took all of the step's tokens
		return
	}
	h.recompute += held * float64(again) / float64(n)
}

// integrate extends the integrals over time to now, with so many blocks in use.
func (e *Engine) integrate(now time.Duration, used float64) {
	o, h := &e.Stats.Occupancy, &e.holders
	dt := (now - e.measured).Seconds()
	o.Time += now - e.measured
	o.Used += used * dt
	o.Cached += float64(e.kv.Cached()) * dt
	pinned := float64(e.pins.blocks+e.loads.blocks) * float64(e.kv.BlockSize)
	decodes := float64(e.baseSum + int64(len(e.finish))*e.kv.Step)
	if e.Speculation != nil {
		decodes = float64(e.verified.context)
	}
	if all := h.prefill + decodes + pinned; all > 0 && used > 0 {
		perToken := used * dt / all
		o.Prefill += (h.prefill - h.recompute) * perToken
		o.Recompute += h.recompute * perToken
		o.Pinned += pinned * perToken
	}
	e.measured = now
}

// look brings the integrals and the clock of the accounts up to now, before blocks change hands between steps. Those of steps
// in flight are counted when they end.
func (e *Engine) look(now time.Duration) {
	if !e.busy {
		e.integrate(now, float64(e.kv.Used()))
	}
	e.kv.Now = now
}
