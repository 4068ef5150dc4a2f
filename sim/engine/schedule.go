package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// scheduler is the rules by which an engine style fills steps.
type scheduler interface {
	// fill fills the next step. It tells whether another try, which takes no time, may find more than this one.
	fill(now time.Duration) (batch models.Batch, again bool, err error)
	// admits tells whether the next step boundary may start a waiting request.
	admits() bool
	// fits tells whether a request can ever run.
	fits(input, output int32) bool
	// computed notes that a step with prompt tokens of the request has ended, freed that blocks or a slot became free.
	computed(r *Request)
	freed()
	// spare is the number of blocks beyond its need that a step wants to find fresh.
	spare() int
	// room is the number of free blocks that running requests have not been promised.
	room() int
	// check verifies what only this style guarantees.
	check() error
}

// Schedule starts the next steps at now, a step boundary with all arrivals of that instant in, and returns whom it
// admitted and preempted. The slice is reused. It fails when requests wait and nothing can ever run.
func (e *Engine) Schedule(now time.Duration) ([]Outcome, error) {
	e.outcomes = e.outcomes[:0]
	e.kv.Now = now
	if e.start != now { // it was idle
		e.integrate(now, float64(e.kv.Used()))
		e.start, e.frac = now, 0
	}
	e.removeAborted()
	e.endLeases(now)
	if !e.Async || e.running.size == 0 { // or else the step to come was scheduled when the last one began
		e.land()
	}
	for again := true; again; {
		var batch models.Batch
		var err error
		if batch, again, err = e.style.fill(now); err != nil {
			return e.outcomes, err
		}
		again = again || e.coming.size > 0 || len(e.loads.landed) > 0
		e.welcome()
		e.land()
		if batch.Decodes+batch.Prefills > 0 {
			e.invite(now)
			e.launch(batch)
			return e.outcomes, nil
		}
		again = again || e.waiting.size > 0 && e.makeRoom()
	}
	e.invite(now)
	if e.waiting.size > 0 && e.loads.idle() {
		return e.outcomes, fmt.Errorf("worker %d at %v: request %d needs more than the %d free blocks: %w",
			e.Worker, now, e.waiting.head.ID, e.kv.Free(), errStuck)
	}
	return e.outcomes, nil
}

// welcome lets the requests that came too late for the step just scheduled wait for the next.
func (e *Engine) welcome() {
	for r := e.coming.head; r != nil; r = e.coming.head {
		e.coming.remove(r)
		e.wait(r)
	}
}

// begin moves a waiting request to the running ones. Its first computed tokens are cached, cached blocks in all.
func (e *Engine) begin(r *Request, now time.Duration, cached int32) {
	e.leaveWaiting(r)
	e.running.pushBack(r)
	e.order++
	r.table.Order, r.state = e.order, prefilling
	size := int32(e.kv.BlockSize)
	if r.Preemptions == 0 {
		r.Admitted, r.Hit, r.Brought = now, r.computed, r.fetched
		evicted, migrated := e.history.lost(e.Worker, r.Path, cached, r.target/size)
		r.again = Recomputed{Eviction: evicted * size, Migration: migrated * size}
	} else {
		r.ReadmitHit += r.computed
		r.Readmit += r.target
		r.again.Preemption = max(0, r.high-r.computed)
	}
	r.loaded, r.fetched, r.unloadable, r.aside = 0, 0, false, 0
	e.unpin(r.Session)
	e.outcomes = append(e.outcomes, Outcome{r, Admitted})
}

// evacuate takes all blocks from a running request and makes it wait again, in no queue yet. What it has generated
// becomes part of what it prefills next. The last undone of its tokens are those of the step that it is taken out of.
func (e *Engine) evacuate(r *Request, now time.Duration, undone int32) {
	if r.state == decoding {
		e.pauseDecode(r)
		r.computed -= undone
		r.generated -= undone
		r.target = r.Input + r.generated
	} else {
		e.partial = nil
	}
	e.running.remove(r)
	e.cache.Release(&r.table)
	r.high = max(r.high, r.computed)
	r.computed, r.state = 0, waiting
	r.Preemptions++
	e.Stats.Preemptions++
	e.outcomes = append(e.outcomes, Outcome{r, Preempted})
}

// pauseDecode takes a decoding request out of the decodes and notes how far it is.
func (e *Engine) pauseDecode(r *Request) {
	r.computed = int32(r.base + e.kv.Step)
	r.generated = r.computed - r.Input + 1
	e.stopDecode(r)
	if e.Speculation == nil && !slices.Contains(e.joined, r) {
		r.lastToken = e.decoded
	}
}

// addChunk adds the next chunk tokens of a prefill to the step, whose blocks the request has, and returns chunk.
func (e *Engine) addChunk(batch *models.Batch, r *Request, chunk int32) int {
	n, past := int64(chunk), int64(r.computed)
	with := *batch
	with.Prefills++
	with.PrefillTokens += int(n)
	with.PrefillPairs += n * (2*past + n)
	with.PrefillContext += past + n
	again := int64(r.again.move(chunk, &r.Recomputed))
	e.holders.addPrefill(past, n, again)
	if again > 0 {
		e.recomputing += e.recomputeCost(*batch, with, n, past, again)
	}
	*batch = with
	r.computed += chunk
	r.chunk = chunk
	r.Computed += chunk
	e.Stats.PrefillTokens += n
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
	return e.cost.Marginal(without, with)
}

// launch puts the scheduled step in flight, and with it as many further decode steps as cannot be told apart.
func (e *Engine) launch(batch models.Batch) {
	step := e.kv.Step
	e.decodes = int64(batch.Decodes)
	e.tokens = batch.Tokens()
	e.first, e.slope = e.cost.Own(batch), 0
	if !e.Lockstep {
		e.first += e.cost.Shared(e.tokens)
	}
	if e.Speculation != nil {
		e.first += e.cost.PerContext()*models.Fixed(e.verified.context) + e.cost.PerWindow()*models.Fixed(e.verified.windowed)
	} else if e.decodes > 0 {
		below := e.window.below(step)
		e.first += e.cost.PerContext() * models.Fixed(e.baseSum+e.decodes*step)
		e.slope = e.cost.PerContext() * models.Fixed(e.decodes)
		if e.window.size > 0 {
			e.first += e.cost.PerWindow() * models.Fixed(e.window.sum(step))
			e.slope += e.cost.PerWindow() * models.Fixed(below)
		}
	}
	e.first = max(e.first, 1)
	e.shape = e.shapeOf(batch)
	e.busy, e.steps = true, 1
	if batch.Prefills > 0 || e.style.admits() || e.Speculation != nil {
		return // after a preemption the next step admits again
	}
	e.steps = min(maxLeap, e.finish[0].last-step+1, e.window.until(step))
	e.steps = 1 + e.stepsWithoutEviction(e.steps-1)
	for e.steps > 1 && e.tooLong() {
		e.steps /= 2
	}
	if l := e.pins.leases; len(l) > 0 && e.steps > 1 {
		e.truncate(l[0].until)
	}
}

// tooLong tells whether the steps in flight take longer than about 19 hours, half of what a Fixed holds.
func (e *Engine) tooLong() bool {
	n := float64(e.steps)
	return n*float64(e.first)+float64(n*(n-1)/2)*float64(e.slope) > 1<<62
}

// stepsWithoutEviction returns how many of the next n decode steps find enough blocks that hold nothing.
func (e *Engine) stepsWithoutEviction(n int64) int64 {
	fresh, size := int64(e.kv.Fresh()-e.style.spare()), int64(len(e.needs))
	// Every decode takes one block in size steps.
	if (n+size-1)/size*e.decodes <= fresh {
		return n
	}
	done := max(0, fresh) / e.decodes * size
	fresh -= done / size * e.decodes
	for done < n {
		if fresh -= int64(e.needs[(e.kv.Step+1+done)%size]); fresh < 0 {
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
			e.pauseDecode(r)
		case prefilling:
			if e.partial == r {
				e.partial = nil
			}
		case stalled:
		default: // it finished meanwhile
			continue
		}
		e.running.remove(r)
		e.cache.Finish(&r.table, r.computed)
		r.state = idle
		e.style.freed()
	}
	e.aborts = e.aborts[:0]
	if e.flush {
		e.cache.Flush()
		e.flush = false
	}
}

// warm makes the history of a request resident when it is first tried, as if somebody had just computed it.
func (e *Engine) warm(r *Request) {
	if r.History > 0 {
		size := int32(e.kv.BlockSize)
		r.Warmed = int32(e.cache.Warm(r.Path, r.Owner, r.History/size)) * size
		r.History = 0
	}
}

// Events returns the KV blocks that entered or left the cache since the last call, for a router's index.
func (e *Engine) Events() []kvcache.Event { return e.kv.DrainEvents() }
