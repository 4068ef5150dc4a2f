package engine

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// Schedule starts the next steps at now, a step boundary with all arrivals of that instant in, and returns whom it
// admitted and preempted. The slice is reused. It fails when requests wait and nothing can ever run.
func (e *Engine) Schedule(now time.Duration) ([]Outcome, error) {
	e.outcomes = e.outcomes[:0]
	e.removeAborted()
	if e.start != now { // it was idle
		e.integrate(now, float64(e.pool.Used()))
		e.start, e.frac = now, 0
	}
	for {
		batch, preempted := e.scheduleStep(now)
		if batch.Decodes+batch.Prefills > 0 {
			e.launch(batch)
			return e.outcomes, nil
		}
		if !preempted {
			break
		}
	}
	if e.waiting.size > 0 {
		return e.outcomes, fmt.Errorf("worker %d at %v: request %d needs more than the %d free blocks: %w",
			e.Worker, now, e.waiting.head.ID, e.pool.Free(), errStuck)
	}
	return e.outcomes, nil
}

// scheduleStep fills one step: decodes, the request whose prompt is half computed, then waiting requests.
func (e *Engine) scheduleStep(now time.Duration) (models.Batch, bool) {
	step := e.pool.Step + 1
	need := int(e.needs[step%int64(len(e.needs))])
	preempted := false
	if need <= e.pool.Free() {
		e.pool.Take(need)
		e.pool.Step = step
	} else {
		preempted = e.crowdedDecodes(now, step)
	}
	batch := models.Batch{Decodes: len(e.finish)}
	budget := e.MaxBatchedTokens - batch.Decodes
	if r := e.partial; r != nil {
		chunk := min(r.target-r.computed, int32(budget))
		if e.pool.Grow(&r.table, r.computed+chunk) {
			budget -= e.addChunk(&batch, r, chunk)
		} else { // it is the last running request, so it is its own victim
			e.preempt(r, now)
			preempted = true
		}
	}
	if !preempted {
		e.admit(now, &batch, budget)
	}
	return batch, preempted
}

// crowdedDecodes gives decodes their blocks when there are too few, request by request in running order, preempting
// from the other end.
func (e *Engine) crowdedDecodes(now time.Duration, step int64) bool {
	preempted := false
	for r := e.running.head; r != nil; r = r.next {
		if r.state != decoding || step%int64(len(e.needs)) != e.residue(r) {
			continue
		}
		for e.pool.Free() == 0 {
			victim := e.running.tail
			e.preempt(victim, now)
			preempted = true
			if victim == r {
				e.pool.Step = step
				return true
			}
		}
		e.pool.Take(1)
	}
	e.pool.Step = step
	return preempted
}

// preempt frees the blocks of the last running request and puts it to the front of the waiting ones. What it has
// generated becomes part of what it prefills next.
func (e *Engine) preempt(r *Request, now time.Duration) {
	if r.state == decoding {
		r.computed = int32(r.base + e.pool.Step)
		r.generated = r.computed - r.Input + 1
		heap.Remove(&e.finish, r.heap)
		e.leaveDecode(r)
		r.target = r.Input + r.generated
		r.lastToken = now
	} else {
		e.partial = nil
	}
	e.running.remove(r)
	e.pool.Release(&r.table)
	r.high = max(r.high, r.computed)
	r.computed, r.state = 0, waiting
	r.Preemptions++
	e.waiting.pushFront(r)
	e.blocked = false
	e.Stats.Preemptions++
	e.outcomes = append(e.outcomes, Outcome{r, Preempted})
}

// admit starts waiting requests in order while the budget lasts. The first that does not fit blocks those behind.
func (e *Engine) admit(now time.Duration, batch *models.Batch, budget int) {
	size := int32(e.pool.BlockSize)
	for budget > 0 && !e.blocked && e.waiting.size > 0 && e.running.size < e.MaxSeqs {
		r := e.waiting.head
		e.warm(r)
		cached := e.pool.Lookup(r.Path, r.target/size)
		hits := min(cached, (r.target-1)/size) // the last token is always computed
		chunk := min(r.target-hits*size, int32(budget))
		reserve := hits*size + chunk
		if e.ReserveFull {
			reserve = r.target
		}
		if !e.pool.Admit(&r.table, hits, hits*size+chunk, reserve, e.StateBlocks) {
			e.blocked = hits == (r.target-1)/size || !e.pool.Filling(r.Path, hits)
			return
		}
		e.waiting.remove(r)
		e.running.pushBack(r)
		e.order++
		r.table.Order, r.state = e.order, prefilling
		r.computed = hits * size
		e.countAdmission(r, now, cached)
		budget -= e.addChunk(batch, r, chunk)
	}
}

// countAdmission notes what a request found cached and what it computes again. The cache held cached leading blocks.
func (e *Engine) countAdmission(r *Request, now time.Duration, cached int32) {
	size := int32(e.pool.BlockSize)
	if r.Preemptions == 0 {
		r.Admitted, r.Hit = now, r.computed
		evicted, migrated := e.history.lost(e.Worker, r.Path, cached, r.target/size)
		r.Recomputed.Eviction += evicted * size
		r.Recomputed.Migration += migrated * size
		r.recompute = (evicted + migrated) * size
	} else {
		r.ReadmitHit += r.computed
		r.Readmit += r.target
		r.recompute = max(0, r.high-r.computed)
	}
	e.outcomes = append(e.outcomes, Outcome{r, Admitted})
}

// addChunk adds the next chunk tokens of a prefill to the step, whose blocks the request has, and returns chunk.
func (e *Engine) addChunk(batch *models.Batch, r *Request, chunk int32) int {
	n, past := int64(chunk), int64(r.computed)
	with := *batch
	with.Prefills++
	with.PrefillTokens += int(n)
	with.PrefillPairs += n * (2*past + n)
	with.PrefillContext += past + n
	if again := int64(min(r.recompute, chunk)); again > 0 {
		e.recomputing += e.recomputeCost(*batch, with, n, past, again)
		r.recompute -= int32(again)
		if r.Preemptions > 0 {
			r.Recomputed.Preemption += int32(again)
		}
	}
	*batch = with
	r.computed += chunk
	r.chunk = chunk
	r.Computed += chunk
	e.Stats.PrefillTokens += n
	e.blocked = false
	if e.partial = r; r.computed == r.target {
		e.partial = nil
		e.emit = append(e.emit, r)
	}
	return int(n)
}

// recomputeCost is what the step would save if the first again of n tokens behind past were cached.
func (e *Engine) recomputeCost(without, with models.Batch, n, past, again int64) models.Fixed {
	if n -= again; n > 0 {
		past += again
		without.Prefills++
		without.PrefillTokens += int(n)
		without.PrefillPairs += n * (2*past + n)
		without.PrefillContext += past + n
	}
	return max(0, e.cost.Base(with)-e.cost.Base(without))
}

// launch puts the scheduled step in flight, and with it as many further decode steps as cannot be told apart.
func (e *Engine) launch(batch models.Batch) {
	step := e.pool.Step
	decodes := int64(batch.Decodes)
	below := e.window.below(step)
	context := e.baseSum + decodes*step
	e.first = e.cost.Base(batch) + e.cost.PerContext()*models.Fixed(context)
	e.slope = e.cost.PerContext() * models.Fixed(decodes)
	if e.window.size > 0 {
		e.first += e.cost.PerWindow() * models.Fixed(e.window.sum(step))
		e.slope += e.cost.PerWindow() * models.Fixed(below)
	}
	e.first = max(e.first, 1)
	e.busy, e.steps = true, 1
	if batch.Prefills > 0 || e.waiting.size > 0 && !e.blocked && e.running.size < e.MaxSeqs {
		return // after a preemption the next step admits again
	}
	e.steps = min(maxLeap, e.finish[0].last-step+1, e.window.until(step))
	e.steps = 1 + e.stepsWithoutEviction(e.steps-1)
	for e.steps > 1 && e.tooLong() {
		e.steps /= 2
	}
}

// tooLong tells whether the steps in flight take longer than about 19 hours, half of what a Fixed holds.
func (e *Engine) tooLong() bool {
	n := float64(e.steps)
	return n*float64(e.first)+float64(n*(n-1)/2)*float64(e.slope) > 1<<62
}

// stepsWithoutEviction returns how many of the next n decode steps find enough blocks that hold nothing.
func (e *Engine) stepsWithoutEviction(n int64) int64 {
	fresh, size, decodes := int64(e.pool.Fresh()), int64(len(e.needs)), int64(len(e.finish))
	// Every decode takes one block in size steps.
	if (n+size-1)/size*decodes <= fresh {
		return n
	}
	done := fresh / decodes * size
	fresh -= done / size * decodes
	for done < n {
		if fresh -= int64(e.needs[(e.pool.Step+1+done)%size]); fresh < 0 {
			break
		}
		done++
	}
	return min(done, n)
}

// removeAborted takes out running requests whose clients gave up.
func (e *Engine) removeAborted() {
	for _, r := range e.aborts {
		switch r.state {
		case decoding:
			heap.Remove(&e.finish, r.heap)
			e.leaveDecode(r)
		case prefilling:
			if e.partial == r {
				e.partial = nil
			}
		default: // it finished meanwhile
			continue
		}
		e.running.remove(r)
		e.pool.Release(&r.table)
		r.state, e.blocked = idle, false
	}
	e.aborts = e.aborts[:0]
}

// warm makes the history of a request resident when it is first tried, as if somebody had just computed it.
func (e *Engine) warm(r *Request) {
	if r.History > 0 {
		size := int32(e.pool.BlockSize)
		r.Warmed = int32(e.pool.Warm(r.Path, r.History/size)) * size
		r.History = 0
	}
}

// Events returns the KV blocks that entered or left the cache since the last call, for a router's index.
func (e *Engine) Events() []kvcache.Event { return e.pool.DrainEvents() }
