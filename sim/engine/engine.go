// Package engine simulates the continuous batching of one worker: which requests each step computes, how long the
// step takes, and what it does to the KV cache.
//
// Three styles differ in how they fill a step and when they cache blocks: vllm.go, sglang.go and trtllm.go say which
// rules they follow. What a step takes, and how requests pass through it, they share.
//
// A step costs O(1), not O(batch). All decodes advance by one token, so the step of each request's last token is
// known when its decode begins and waits in a heap; a request needs a block every BlockSize steps, so needs are
// counted by residue; and the step time is linear in the sum of contexts, which grows by the number of decodes. A
// run of decode steps in which nothing else can happen is one leap. Only a step that preempts walks the batch, one
// of TensorRT-LLM that tries a waiting request, and every step with speculative decoding.
package engine

import (
	"container/heap"
	"errors"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Never is the time of the next step end of an engine that has nothing to do.
const Never time.Duration = 1<<63 - 1

// maxLeap bounds the steps of one leap.
const maxLeap = 4096

// Style is whose rules an engine follows.
type Style uint8

// The styles. Each stands for the release that its file names.
const (
	VLLM Style = iota
	SGLang
	TRTLLM
)

// Options are an engine's limits.
type Options struct {
	Style Style
	// MaxSeqs bounds the running requests, MaxBatchedTokens the tokens of a step. MaxBatchedTokens >= MaxSeqs, so
	// that every decode gets its token in every step. SGLang's steps either prefill or decode; it bounds the tokens of
	// the former (chunked_prefill_size), and they may be fewer than MaxSeqs.
	MaxSeqs, MaxBatchedTokens int
	// SGLang has settings for SGLang alone.
	SGLang SGLangOptions
	// ReserveFull admits a request only when its whole prompt fits the free blocks now; otherwise its first chunk
	// is enough (vLLM: scheduler_reserve_full_isl).
	ReserveFull bool
	// StateBlocks is held by each running request besides its tokens' blocks (sliding windows, recurrent states).
	StateBlocks int32
	// Async schedules a step when the one before it begins (vLLM: async_scheduling, the default from 0.14), so that a
	// request that arrives during a step misses the next one as well. With nothing running it is taken at once.
	Async bool
	// Ranked lets waiting requests go in order of Rank, and takes blocks from the running one that is last in it (vLLM:
	// scheduling policy priority).
	Ranked bool
	// Groups is the number of groups whose requests' output tokens are counted; see Request.Group.
	Groups int
	// Speculation, when set, lets decodes verify draft tokens. Only vLLM's style has it.
	Speculation *Speculation
	// Lockstep makes the engine a rank of a Group, whose Start follows each Schedule and whose Align each other call.
	Lockstep bool
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
	// Source, when set, is where KV lies beside the cache. SGLang's style does without.
	Source *Source
	// Stats adds up what the engine did.
	Stats Stats

	cost    *models.StepCost
	kv      *kvcache.Ledger // of cache
	cache   cache
	style   scheduler
	history *History

	waiting, running list
	ranking          ranking // of waiting, when Ranked
	coming           list    // arrived too late for the step to be scheduled next
	arrivals         int64   // numbers arrivals
	order            int64   // numbers admissions
	partial          *Request
	finish           finishHeap
	needs            []int32 // decodes that take a block in steps of each residue
	baseSum          int64   // of the bases of decodes: their contexts sum to baseSum + decodes*step
	window           window
	clip             window // of output tokens to come, for SGLang
	ends             int64  // sum over decodes of the step in which they reach their longest output
	left             int    // decodes that ended since SGLang last looked
	aborts           []*Request
	loads            loads
	flush            bool // what aborts leave is not cached
	verified         verified

	// Of the decodes, those in joined began after the last step that generated, which ended at decoded.
	decoded time.Duration
	joined  []*Request
	// Decodes in stalled sit out the step in flight; sat tells that some did the one before.
	stalled []*Request
	sat     bool
	pins    pins

	progress progress

	// The steps in flight: steps of them from step kv.Step on, in which decodes generate. The first takes first, each
	// further one slope more. They begin at start plus frac/65536 ns.
	busy        bool
	steps       int64
	decodes     int64
	tokens      int64 // of the first
	start       time.Duration
	frac        models.Fixed
	first       models.Fixed
	slope       models.Fixed
	emit        []*Request // their prefill ends with the step
	outcomes    []Outcome
	measured    time.Duration // up to which Stats' integrals go
	recomputing models.Fixed
	holders     holders
	shape       shape
}

// Stats adds up an engine's work. Times are of the GPU.
type Stats struct {
	Busy, Recompute             time.Duration
	Steps                       int64
	PrefillTokens, DecodeTokens int64
	Preemptions                 int64
	Drafts                      Drafts
	// Pinned counts the pins of sessions' blocks, Unpinned those that ended early for want of room.
	Pinned, Unpinned int64
	PeakUsed         int // blocks
	// Evicted is the cached blocks taken for other tokens. Close fills it.
	Evicted   int64
	Occupancy Occupancy
	// Outside is the part of Busy in steps unlike those that the cost's profile was fitted to.
	Outside Outside
}

// cache is what the parts that all styles share need of a KV cache: kvcache.Pool and kvcache.Radix have it.
type cache interface {
	Take(blocks int)
	StartDecode(t *kvcache.Table, tokens int32)
	Finish(t *kvcache.Table, tokens int32)
	Release(t *kvcache.Table)
	Warm(path []trace.Span, owner kvcache.Owner, blocks int32) int
	Claim(path []trace.Span, claims kvcache.Claims) int
	Flush()
	Check() error
}

// New returns an idle engine with an empty KV cache. It fails when the limits contradict each other.
func New(o Options, cost *models.StepCost, kv kvcache.Options, history *History) (*Engine, error) {
	e := &Engine{Options: o, cost: cost, history: history}
	if err := o.Speculation.validate(o.Style); err != nil {
		return nil, err
	}
	if o.Style == SGLang {
		if err := e.useSGLang(kv); err != nil {
			return nil, err
		}
	} else if err := e.useVLLM(kv); err != nil {
		return nil, err
	}
	e.needs = make([]int32, kv.BlockSize)
	e.progress = newProgress(o.Groups)
	e.window.size = int64(cost.Window())
	return e, nil
}

// Evicted is the number of cached blocks that were taken for other tokens.
func (e *Engine) Evicted() int64 { return e.kv.Evicted }

// UsedBlocks is the number of KV blocks that requests hold.
func (e *Engine) UsedBlocks() int { return e.kv.Used() }

// Next is when the steps in flight end; Never when there are none.
func (e *Engine) Next() time.Duration {
	if !e.busy {
		return Never
	}
	return e.stepEnd(e.steps)
}

// Waiting and Running count the requests in the engine.
func (e *Engine) Waiting() int { return e.waiting.size + e.coming.size + e.loads.size - e.loads.lodged }

// Running counts the requests that hold blocks.
func (e *Engine) Running() int { return e.running.size }

// Fits tells whether a request can ever run here.
func (e *Engine) Fits(input, output int32) bool { return e.style.fits(input, output) }

// Enqueue adds a request that Fits. It joins the step after the one in flight. The caller asks Next again.
func (e *Engine) Enqueue(now time.Duration, r *Request) {
	r.target, r.table.Path, r.table.Class, r.table.Priority, r.table.Owner = r.Input, r.Path, kvcache.Normal, r.Priority, r.Owner
	e.arrivals++
	r.arrival = e.arrivals
	if e.await(r.Session, true) {
		r.Rank -= pinnedFirst
	}
	if r.limit = r.Output; r.MaxOutput > r.limit && e.style.fits(r.Input, r.MaxOutput) {
		r.limit = r.MaxOutput
	}
	if e.Async && e.running.size > 0 && (e.busy || e.start == now) {
		r.state = coming
		e.coming.pushBack(r)
		if e.busy {
			e.truncate(now)
		}
		return
	}
	e.wait(r)
	if e.busy && e.style.admits() {
		e.truncate(now)
	}
}

// Cancel removes a request that its client gave up: at once when it waits, with the step in flight when it runs. It is not
// counted in Generated any more.
func (e *Engine) Cancel(now time.Duration, r *Request) {
	e.look(now)
	e.discount(now, r)
	e.await(r.Session, false)
	switch r.state {
	case coming:
		e.coming.remove(r)
		r.state = idle
	case loading:
		e.cancelLoad(now, r)
	case waiting:
		e.leaveWaiting(r)
		e.unload(r)
		r.state = idle
		e.style.freed()
		if e.busy {
			e.truncate(now)
		}
	case prefilling, decoding, stalled:
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
	case e.busy && e.decodes > 0:
		return int32(r.base + e.kv.Step - 1 + e.stepsDone(now))
	default:
		return int32(r.base + e.kv.Step)
	}
}

// stepEnd is the end of the first n steps in flight.
func (e *Engine) stepEnd(n int64) time.Duration {
	return e.start + time.Duration((e.frac+e.span(n))/models.FixedPerNs)
}

// StepEnd is when the step that runs at now ends, the first of those in flight that is not over; Never when there is none.
func (e *Engine) StepEnd(now time.Duration) time.Duration {
	if !e.busy {
		return Never
	}
	return e.stepEnd(min(e.stepsDone(now)+1, e.steps))
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
	e.kv.Now = now
	e.settle(now)
	step := e.kv.Step
	for len(e.finish) > 0 && e.finish[0].last == step {
		r := heap.Pop(&e.finish).(*Request)
		e.leaveDecode(r)
		e.end(r)
	}
	if e.Speculation != nil {
		e.verify(now)
	}
	for _, r := range e.emit {
		e.endPrefill(r, now)
	}
	if e.partial != nil {
		e.style.computed(e.partial)
	}
	e.emit = e.emit[:0]
	return e.outcomes
}

// settle accounts for the steps in flight: blocks, tokens, gaps and times.
func (e *Engine) settle(now time.Duration) {
	used := e.kv.Used()
	n, size := e.steps-1, int64(len(e.needs)) // the first step took its blocks when it was scheduled
	taken := int(n / size * e.decodes)        // every decode takes one in size steps
	for i := range n % size {
		taken += int(e.needs[(e.kv.Step+1+i)%size])
	}
	e.cache.Take(taken)
	if e.decodes > 0 { // else a rank that has nothing to do runs along
		e.beginSteps()
	}
	e.countGaps(now)
	e.countOutside()
	total := e.frac + e.span(e.steps)
	e.frac = total % models.FixedPerNs
	s := &e.Stats
	s.Busy += now - e.start
	s.Recompute += time.Duration(e.recomputing / models.FixedPerNs)
	s.Steps += e.steps
	s.DecodeTokens += e.steps * e.decodes
	if e.decodes > 0 {
		e.progress.step(e.steps)
	}
	s.PeakUsed = max(s.PeakUsed, e.kv.Used())
	e.integrate(now, float64(used+e.kv.Used())/2)
	e.start, e.busy, e.recomputing, e.holders = now, false, 0, holders{}
}

// Cut ends the steps in flight with the one that runs now, so that Stats soon tells of all work up to now.
func (e *Engine) Cut(now time.Duration) {
	if e.busy {
		e.truncate(now)
	}
}

// Flush forgets all cached tokens that no request refers to, as a worker does that starts anew, and those of requests that
// were cancelled in the step in flight.
func (e *Engine) Flush(now time.Duration) {
	e.kv.Now = now
	e.integrate(now, float64(e.kv.Used()))
	for len(e.pins.leases) > 0 {
		e.unpin(e.pins.leases[0].session)
	}
	e.cache.Flush()
	e.flush = len(e.aborts) > 0
}

// Restart lets Stats and Accounts begin anew at now, between steps.
func (e *Engine) Restart(now time.Duration) {
	e.Stats = Stats{PeakUsed: e.kv.Used()}
	e.kv.Evicted, e.measured = 0, now
	if e.kv.Accounts != nil {
		e.countGrowth()
		e.kv.Accounts.Restart(now)
	}
}

// Close extends the integrals of Stats and Accounts to now, between steps, and returns Stats.
func (e *Engine) Close(now time.Duration) Stats {
	e.integrate(now, float64(e.kv.Used()))
	e.countGrowth()
	e.Stats.Evicted = e.kv.Evicted
	return e.Stats
}

// errStuck says that requests wait for blocks that nobody will free.
var errStuck = errors.New("requests wait for KV blocks that nothing running will free")

// blocksFor is the number of blocks that hold the given tokens.
func (e *Engine) blocksFor(tokens int32) int32 {
	size := int32(e.kv.BlockSize)
	return (tokens + size - 1) / size
}
