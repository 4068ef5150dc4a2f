// Package engine simulates the continuous batching of one worker: which requests each step computes, how long the
// step takes, and what it does to the KV cache.
//
// The scheduler is that of vLLM V1, version 0.19 (vllm/v1/core/sched/scheduler.py): running requests first, in the
// order of their admission; then waiting ones first come first served while tokens of the step's budget are left;
// prompts in chunks; a running request that gets no block preempts the last running one, which loses its blocks and
// goes to the front of the waiting ones.
//
// A step costs O(1), not O(batch). All decodes advance by one token, so the step of each request's last token is
// known when its decode begins and waits in a heap; a request needs a block every BlockSize steps, so needs are
// counted by residue; and the step time is linear in the sum of contexts, which grows by the number of decodes. A
// run of decode steps in which nothing else can happen is one leap. Only a step that preempts walks the batch.
package engine

import (
	"container/heap"
	"errors"
	"fmt"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace/report"
)

// Never is the time of the next step end of an engine that has nothing to do.
const Never time.Duration = 1<<63 - 1

// maxLeap bounds the steps of one leap.
const maxLeap = 4096

// Options are an engine's limits.
type Options struct {
	// MaxSeqs bounds the running requests, MaxBatchedTokens the tokens of a step. MaxBatchedTokens >= MaxSeqs, so
	// that every decode gets its token in every step.
	MaxSeqs, MaxBatchedTokens int
	// ReserveFull admits a request only when its whole prompt fits the free blocks now; otherwise its first chunk
	// is enough (vLLM: scheduler_reserve_full_isl).
	ReserveFull bool
	// StateBlocks is held by each running request besides its tokens' blocks (sliding windows, recurrent states).
	StateBlocks int32
	// Worker numbers the engine in the history that engines share.
	Worker int
}

// Kind is what happened to a request.
type Kind uint8

// The outcomes of steps.
const (
	Admitted   Kind = iota // first scheduled, or again after a preemption
	FirstToken             // its prefill is done; with the first token, unless it comes back from a preemption
	Finished
	Preempted
)

// Outcome tells what happened to a request at the step boundary at which it is returned.
type Outcome struct {
	Request *Request
	Kind    Kind
}

// Engine is one worker rank. Time is an argument: the caller calls EndStep when Next comes and Schedule after all
// arrivals of that instant are in.
type Engine struct {
	Options
	// Gaps, when set, gets the time between consecutive tokens of every request.
	Gaps *report.Gaps
	// Stats adds up what the engine did.
	Stats Stats

	cost    *models.StepCost
	pool    *kvcache.Pool
	history *History

	waiting, running list
	order            int64 // numbers admissions
	partial          *Request
	finish           finishHeap
	needs            []int32 // decodes that take a block in steps of each residue
	baseSum          int64   // of the bases of decodes: their contexts sum to baseSum + decodes*step
	window           window
	blocked          bool // the waiting head did not fit, and nothing that helps it has happened since
	aborts           []*Request

	// The steps in flight: steps of them from step pool.Step on, the first takes first, each further one slope
	// more. They begin at start plus frac/65536 ns.
	busy        bool
	steps       int64
	start       time.Duration
	frac        models.Fixed
	first       models.Fixed
	slope       models.Fixed
	emit        []*Request // their prefill ends with the step
	outcomes    []Outcome
	measured    time.Duration // up to which Stats' integrals go
	recomputing models.Fixed
}

// Stats adds up an engine's work. Times are of the GPU.
type Stats struct {
	Busy, Recompute             time.Duration
	Steps                       int64
	PrefillTokens, DecodeTokens int64
	Preemptions                 int64
	PeakUsed                    int // blocks
	// Evicted is the cached blocks taken for other tokens. Close fills it.
	Evicted int64
	// UsedBlockSeconds and CachedBlockSeconds integrate blocks in use, and free blocks that still hold tokens.
	UsedBlockSeconds, CachedBlockSeconds float64
}

// New returns an idle engine on an empty pool. It fails when the limits contradict each other.
func New(o Options, cost *models.StepCost, pool *kvcache.Pool, history *History) (*Engine, error) {
	if o.MaxSeqs < 1 || o.MaxBatchedTokens < o.MaxSeqs {
		return nil, fmt.Errorf("engine: max_num_batched_tokens is %d and max_num_seqs %d: want batched tokens >= seqs >= 1",
			o.MaxBatchedTokens, o.MaxSeqs)
	}
	e := &Engine{Options: o, cost: cost, pool: pool, history: history, needs: make([]int32, pool.BlockSize)}
	e.window.size = int64(cost.Window())
	return e, nil
}

// Pool is the engine's KV cache.
func (e *Engine) Pool() *kvcache.Pool { return e.pool }

// Next is when the steps in flight end; Never when there are none.
func (e *Engine) Next() time.Duration {
	if !e.busy {
		return Never
	}
	return e.stepEnd(e.steps)
}

// Waiting and Running count the requests in the engine.
func (e *Engine) Waiting() int { return e.waiting.size }

// Running counts the requests that hold blocks.
func (e *Engine) Running() int { return e.running.size }

// Fits tells whether a request can ever run here.
func (e *Engine) Fits(input, output int32) bool {
	tokens := int(input) + max(int(output)-1, 0)
	return (tokens+e.pool.BlockSize-1)/e.pool.BlockSize+int(e.StateBlocks) <= e.pool.Blocks
}

// Enqueue adds a request that Fits. It joins the step after the one in flight. The caller asks Next again.
func (e *Engine) Enqueue(now time.Duration, r *Request) {
	r.state, r.target, r.table.Path, r.table.Class = waiting, r.Input, r.Path, kvcache.Normal
	admissible := e.waiting.size == 0 && e.running.size < e.MaxSeqs
	e.waiting.pushBack(r)
	if e.busy && admissible {
		e.truncate(now)
	}
}

// Cancel removes a request that its client gave up: at once when it waits, with the step in flight when it runs.
func (e *Engine) Cancel(now time.Duration, r *Request) {
	switch r.state {
	case waiting:
		e.waiting.remove(r)
		r.state, e.blocked = idle, false
		if e.busy {
			e.truncate(now)
		}
	case prefilling, decoding:
		e.aborts = append(e.aborts, r)
		e.truncate(now)
	}
}

// Tokens is the number of the request's tokens that are computed at time now, the step in flight not counted.
func (e *Engine) Tokens(now time.Duration, r *Request) int32 {
	switch {
	case r.state == prefilling && e.busy:
		return r.computed - r.chunk
	case r.state != decoding:
		return r.computed
	case e.busy:
		return int32(r.base + e.pool.Step - 1 + e.stepsDone(now))
	default:
		return int32(r.base + e.pool.Step)
	}
}

// stepEnd is the end of the first n steps in flight.
func (e *Engine) stepEnd(n int64) time.Duration {
	return e.start + time.Duration((e.frac+e.span(n))/models.FixedPerNs)
}

// span is the duration of the first n steps in flight.
func (e *Engine) span(n int64) models.Fixed {
	return models.Fixed(n)*e.first + e.slope*models.Fixed(n*(n-1)/2)
}

// stepsDone is how many of the steps in flight have ended by now.
func (e *Engine) stepsDone(now time.Duration) int64 {
	if !e.busy {
		return 0
	}
	lo, hi := int64(0), e.steps
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if e.stepEnd(mid) <= now {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// truncate ends a leap with the step that is in flight now, or has just ended.
func (e *Engine) truncate(now time.Duration) {
	done := e.stepsDone(now)
	if done == 0 || e.stepEnd(done) < now {
		done++
	}
	e.steps = min(e.steps, done)
}

// EndStep ends the steps in flight, at Next, and returns what they brought. The slice is reused.
func (e *Engine) EndStep() []Outcome {
	e.outcomes = e.outcomes[:0]
	now := e.stepEnd(e.steps)
	e.settle(now)
	step := e.pool.Step
	for len(e.finish) > 0 && e.finish[0].last == step {
		r := heap.Pop(&e.finish).(*Request)
		e.leaveDecode(r)
		e.end(r)
	}
	for _, r := range e.emit {
		e.endPrefill(r, now)
	}
	e.emit = e.emit[:0]
	return e.outcomes
}

// settle accounts for the steps in flight: blocks, tokens, gaps and times.
func (e *Engine) settle(now time.Duration) {
	used := e.pool.Used()
	n, size := e.steps-1, int64(len(e.needs)) // the first step took its blocks when it was scheduled
	taken := int(n/size) * len(e.finish)      // every decode takes one in size steps
	for i := range n % size {
		taken += int(e.needs[(e.pool.Step+1+i)%size])
	}
	e.pool.Take(taken)
	e.pool.Step += e.steps - 1
	e.countGaps()
	total := e.frac + e.span(e.steps)
	e.frac = total % models.FixedPerNs
	s := &e.Stats
	s.Busy += now - e.start
	s.Recompute += time.Duration(e.recomputing / models.FixedPerNs)
	s.Steps += e.steps
	s.DecodeTokens += e.steps * int64(len(e.finish))
	s.PeakUsed = max(s.PeakUsed, e.pool.Used())
	e.integrate(now, float64(used+e.pool.Used())/2)
	e.start, e.busy, e.recomputing = now, false, 0
}

// integrate extends the integrals over time to now.
func (e *Engine) integrate(now time.Duration, used float64) {
	dt := (now - e.measured).Seconds()
	e.Stats.UsedBlockSeconds += used * dt
	e.Stats.CachedBlockSeconds += float64(e.pool.Cached()) * dt
	e.measured = now
}

// Cut ends the steps in flight with the one that runs now, so that Stats soon tells of all work up to now.
func (e *Engine) Cut(now time.Duration) {
	if e.busy {
		e.truncate(now)
	}
}

// Restart lets Stats begin anew at now, between steps.
func (e *Engine) Restart(now time.Duration) {
	e.Stats = Stats{PeakUsed: e.pool.Used()}
	e.pool.Evicted, e.measured = 0, now
}

// Close extends the integrals of Stats to now, between steps, and returns Stats.
func (e *Engine) Close(now time.Duration) Stats {
	e.integrate(now, float64(e.pool.Used()))
	e.Stats.Evicted = e.pool.Evicted
	return e.Stats
}

// countGaps adds the gaps between the tokens of the steps in flight. Step times within a leap differ little, so a
// leap is cut where they differ by a thousandth.
func (e *Engine) countGaps() {
	if e.Gaps == nil || len(e.finish) == 0 {
		return
	}
	delay := e.cost.TokenDelay()
	for from := int64(0); from < e.steps; {
		n := e.steps - from
		at := e.first + e.slope*models.Fixed(from)
		if e.slope > 0 {
			n = min(n, 1+int64(at/1000/e.slope))
		}
		mean := (e.span(from+n) - e.span(from)) / models.Fixed(n)
		e.Gaps.Add(time.Duration(mean/models.FixedPerNs)+delay, n*int64(len(e.finish)))
		from += n
	}
}

// endPrefill emits the first token of a request, or the next one after a preemption, and starts its decode.
func (e *Engine) endPrefill(r *Request, now time.Duration) {
	if r.Output > 0 {
		r.generated++
	}
	if r.Preemptions > 0 && r.generated > 1 && e.Gaps != nil {
		e.Gaps.Add(now-r.lastToken+e.cost.TokenDelay(), 1)
	}
	e.history.computed(e.Worker, r.Path, r.target/int32(e.pool.BlockSize))
	e.outcomes = append(e.outcomes, Outcome{r, FirstToken})
	if r.generated >= r.Output {
		e.end(r)
		return
	}
	step := e.pool.Step
	r.state, e.blocked = decoding, false // what it fills may be what a waiting one lacks
	r.base = int64(r.target) - step
	r.last = step + int64(r.Output-r.generated)
	e.pool.StartDecode(&r.table, r.target)
	heap.Push(&e.finish, r)
	e.baseSum += r.base
	e.needs[e.residue(r)]++
	e.window.enter(r.base, step)
}

// residue is the step number, modulo the block size, in which a decoding request needs a block: when the tokens
// before that step fill its blocks.
func (e *Engine) residue(r *Request) int64 {
	n := int64(len(e.needs))
	return ((1-r.base)%n + n) % n
}

// leaveDecode takes a request that is no longer in the heap out of the decodes.
func (e *Engine) leaveDecode(r *Request) {
	e.baseSum -= r.base
	e.needs[e.residue(r)]--
	e.window.leave(r.base, e.pool.Step)
}

// end finishes a request and frees its blocks.
func (e *Engine) end(r *Request) {
	e.running.remove(r)
	e.pool.Release(&r.table)
	r.state, e.blocked = idle, false
	e.history.computed(e.Worker, r.Path, (r.Input+max(r.Output-1, 0))/int32(e.pool.BlockSize))
	e.outcomes = append(e.outcomes, Outcome{r, Finished})
}

// errStuck says that requests wait for blocks that nobody will free.
var errStuck = errors.New("requests wait for KV blocks that nothing running will free")

// Check verifies the engine's invariants: each prefilling or decoding request holds exactly the blocks of its tokens,
// no more than MaxSeqs run, and the aggregates equal sums over the batch.
func (e *Engine) Check() error {
	if err := e.pool.Check(); err != nil {
		return err
	}
	if e.running.size > e.MaxSeqs {
		return fmt.Errorf("engine: %d requests run, more than max_num_seqs %d", e.running.size, e.MaxSeqs)
	}
	decodes, sum := 0, int64(0)
	for r := e.running.head; r != nil; r = r.next {
		tokens := int(r.computed)
		if r.state == decoding {
			decodes++
			sum += r.base
			tokens = int(r.base + e.pool.Step)
		}
		want := (tokens+e.pool.BlockSize-1)/e.pool.BlockSize + int(e.StateBlocks)
		if held := e.pool.Held(&r.table); held != want {
			return fmt.Errorf("engine: request %d holds %d blocks for %d tokens, want %d", r.ID, held, tokens, want)
		}
	}
	if decodes != len(e.finish) || sum != e.baseSum {
		return fmt.Errorf("engine: aggregates count %d decodes with base sum %d, the batch has %d with %d", len(e.finish), e.baseSum, decodes, sum)
	}
	return nil
}
