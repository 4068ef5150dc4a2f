package engine

import (
	"container/heap"
	"time"
)

// endPrefill emits the first token of a request, or the next one after a preemption, and starts its decode.
func (e *Engine) endPrefill(r *Request, now time.Duration) {
	if r.Output > 0 {
		r.generated++
		e.progress.add(r, 0, 1)
	}
	if r.Preemptions > 0 && r.generated > 1 && e.Gaps != nil {
		e.Gaps.Add(now-r.lastToken+e.cost.TokenDelay(), 1)
	}
	r.lastToken = now
	e.style.computed(r)
	e.history.computed(e.Worker, r.Path, r.target/int32(e.kv.BlockSize))
	e.outcomes = append(e.outcomes, Outcome{r, FirstToken})
	if r.generated >= r.Output {
		e.end(r)
		return
	}
	e.beginDecode(r, r.target)
}

// beginDecode adds a request with so many tokens computed to the decodes.
func (e *Engine) beginDecode(r *Request, tokens int32) {
	step := e.kv.Step
	r.state = decoding
	r.base = int64(tokens) - step
	if e.Speculation != nil {
		return
	}
	r.last = step + int64(r.Output-r.generated)
	e.cache.StartDecode(&r.table, tokens)
	heap.Push(&e.finish, r)
	e.progress.add(r, 1, 0)
	e.baseSum += r.base
	e.needs[e.residue(r)]++
	e.window.enter(r.base, step)
	e.ends += r.last + int64(r.limit-r.Output)
	e.clip.enter(r.clipBase(), step)
	e.joined = append(e.joined, r)
}

// residue is the step number, modulo the block size, in which a decoding request needs a block: when the tokens
// before that step fill its blocks.
func (e *Engine) residue(r *Request) int64 {
	n := int64(len(e.needs))
	return ((1-r.base)%n + n) % n
}

// stopDecode takes a request that has not ended out of the decodes.
func (e *Engine) stopDecode(r *Request) {
	if e.Speculation == nil {
		heap.Remove(&e.finish, r.heap)
		e.leaveDecode(r)
	}
}

// leaveDecode takes a request that is no longer in the heap out of the decodes.
func (e *Engine) leaveDecode(r *Request) {
	e.progress.add(r, -1, 0)
	e.baseSum -= r.base
	e.needs[e.residue(r)]--
	e.window.leave(r.base, e.kv.Step)
	e.ends -= r.last + int64(r.limit-r.Output)
	e.clip.leave(r.clipBase(), e.kv.Step)
	e.left++
}

// end finishes a request and frees its blocks.
func (e *Engine) end(r *Request) {
	e.running.remove(r)
	e.progress.add(r, 0, -int64(r.Output))
	tokens := r.Input + max(r.Output-1, 0)
	e.cache.Finish(&r.table, tokens)
	r.state = idle
	e.style.freed()
	e.history.computed(e.Worker, r.Path, tokens/int32(e.kv.BlockSize))
	e.outcomes = append(e.outcomes, Outcome{r, Finished})
}
