package engine

import (
	"slices"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// Source is where requests find KV that the cache of their GPUs lacks: in a lower tier, or on another worker. A waiting
// request whose turn it is gets blocks for what can be brought and waits aside until it is there, while those behind it go
// on; then it comes before all that were not set aside (vLLM 0.19: load_kv_async, WAITING_FOR_REMOTE_KVS and skipped_waiting
// in vllm/v1/core/sched/scheduler.py). Two things differ from there: others hit what has come from the next step on, and not
// only once the request itself is tried; and a request whose load has failed computes instead of failing or loading again.
type Source struct {
	// Reach returns how many leading tokens of the request would be there if what can be had from outside were brought:
	// hits blocks are cached and at most limit are wanted. No more than hits hold means that nothing can be had. With
	// coming some are on their way to the cache already, for something else, and the request waits for those; Landed follows.
	Reach func(now time.Duration, r *Request, hits, limit int32) (tokens int32, coming bool)
	// Load begins to bring tokens [from, to) of the request's path into blocks that are taken for them; Landed follows.
	Load func(now time.Duration, r *Request, from, to int32)
	// Cancel tells that a request has gone for which Landed was to follow.
	Cancel func(now time.Duration, r *Request)
}

// loads are the requests of an engine that wait for KV from outside, and what they hold.
type loads struct {
	list   // in state loading
	landed []landed
	guests []*Request // of Prefetch, since the last step was scheduled
	lodged int        // of the list, those that are guests
	blocks int        // held by those in the list, and by waiting ones that have what they loaded
	holds  int        // blocks that Hold keeps
}

// landed is a request of which the first tokens are there now.
type landed struct {
	*Request
	tokens int32
}

// idle tells that nothing happens outside that frees blocks.
func (l *loads) idle() bool { return l.size == 0 && l.holds == 0 }

// Landed tells that what Reach or Load has promised has come: the request's first tokens. When they are fewer than Load was
// to bring, it has failed, and brought nothing.
func (e *Engine) Landed(now time.Duration, r *Request, tokens int32) {
	e.loads.landed = append(e.loads.landed, landed{r, tokens})
	e.Cut(now)
}

// reach is Source.Reach for a request that has not failed to load, at most limit blocks.
func (e *Engine) reach(now time.Duration, r *Request, hits, limit int32) (tokens int32, coming bool) {
	if e.Source == nil || r.unloadable {
		return 0, false
	}
	return e.Source.Reach(now, r, hits, limit)
}

// setAside lets a waiting request wait for Landed.
func (e *Engine) setAside(r *Request) {
	e.leaveWaiting(r)
	if r.aside == 0 {
		e.order++
		r.aside = e.order
	}
	e.loads.pushBack(r)
	r.state = loading
}

// load begins to bring tokens of a request, whose table has blocks for them and refers to hits cached ones.
func (e *Engine) load(now time.Duration, r *Request, hits, tokens int32) {
	e.loads.blocks += e.kv.Held(&r.table)
	r.loaded = tokens
	r.fetched = tokens - hits*int32(e.kv.BlockSize)
	e.Source.Load(now, r, tokens-r.fetched, tokens)
}

// land lets the requests go on that got what they waited for, at a step boundary.
func (e *Engine) land() {
	for _, l := range e.loads.landed {
		r := l.Request
		if r.state != loading {
			continue // it was cancelled
		}
		e.loads.remove(r)
		if l.tokens < r.loaded {
			e.unload(r)
			r.unloadable = true
		} else if r.loaded > 0 {
			e.pool().Fill(&r.table, r.loaded)
		}
		if r.guest != nil {
			e.lodge(r)
		} else {
			e.waitFirst(r)
		}
		e.style.freed()
	}
	e.loads.landed = e.loads.landed[:0]
}

// waitFirst puts a request that was set aside or preempted among the waiting ones: where its rank belongs, or before all
// but those that were set aside, earlier than it if it was too.
func (e *Engine) waitFirst(r *Request) {
	next := e.waiting.head
	for next != nil && next.aside > 0 && (r.aside == 0 || next.aside < r.aside) {
		next = next.next
	}
	if e.Ranked || next == nil {
		e.wait(r)
		return
	}
	r.state = waiting
	e.waiting.insert(r, next)
}

// unload takes from a request that waits what it has loaded.
func (e *Engine) unload(r *Request) {
	if r.loaded > 0 {
		e.loads.blocks -= e.kv.Held(&r.table)
		e.cache.Release(&r.table)
		r.loaded, r.fetched = 0, 0
	}
}

// surrender makes the last waiting request that has loaded give its blocks up for the others, and tells whether there was
// one. It is for when nothing else will free any: one request runs and lacks them, or none runs and none are on their way. vLLM
// would wait, or preempt that one, for ever.
func (e *Engine) surrender() bool {
	if e.running.size > 1 || e.running.size == 0 && !e.loads.idle() {
		return false
	}
	for r := e.waiting.tail; r != nil; r = r.prev {
		if r.loaded > 0 {
			e.unload(r)
			e.style.freed()
			return true
		}
	}
	return false
}

// cancelLoad removes a request that was set aside.
func (e *Engine) cancelLoad(now time.Duration, r *Request) {
	e.loads.remove(r)
	e.Source.Cancel(now, r)
	e.unload(r)
	r.state = idle
	e.style.freed()
}

// guest is what is brought for a session that has no request yet.
type guest struct {
	until time.Duration
	began func(now time.Duration, tokens int32)
}

// Prefetch brings what lies outside of the first Input tokens of a path into the cache, from the next step boundary on if
// there is room then, and pins the tokens for the session as Pin does. Began is told how many tokens are on their way: 0
// when there is no room or nothing to bring.
func (e *Engine) Prefetch(now time.Duration, r *Request, until time.Duration, began func(now time.Duration, tokens int32)) {
	r.guest = &guest{until, began}
	r.target, r.table.Path, r.table.Class, r.table.Owner = r.Input, r.Path, kvcache.Normal, r.Owner
	e.loads.guests = append(e.loads.guests, r)
	e.Cut(now)
}

// Guest tells whether a request is one of Prefetch.
func (r *Request) Guest() bool { return r.guest != nil }

// invite begins the loads of Prefetch.
func (e *Engine) invite(now time.Duration) {
	size := int32(e.kv.BlockSize)
	for _, r := range e.loads.guests {
		pool := e.pool()
		limit := r.target / size
		hits := pool.Lookup(r.Path, limit)
		tokens, coming := e.reach(now, r, hits, limit)
		tokens -= tokens % size
		promised := int32(e.kv.Free() - e.style.room())
		if coming || tokens <= hits*size || !pool.Reserve(&r.table, hits, tokens, tokens/size+promised, 0) {
			r.guest.began(now, 0)
			continue
		}
		r.guest.began(now, tokens-hits*size)
		r.state = loading
		e.loads.pushBack(r)
		e.loads.lodged++
		e.load(now, r, hits, tokens)
		e.style.freed() // a waiting request may wait for it instead
	}
	e.loads.guests = e.loads.guests[:0]
}

// lodge pins what was brought for a guest.
func (e *Engine) lodge(r *Request) {
	r.state = idle
	e.loads.lodged--
	if r.loaded == 0 {
		return
	}
	e.loads.blocks -= e.kv.Held(&r.table)
	r.loaded, r.fetched = 0, 0
	e.unpin(r.Session)
	held, blocks := e.pool().Keep(&r.table)
	e.lease(r.Session, r.Rank, held, blocks, r.guest.until)
}

// pool is the cache of an engine of vLLM's or TensorRT-LLM's style. What follows is for these alone.
func (e *Engine) pool() *kvcache.Pool { return e.cache.(*kvcache.Pool) }

// Hold keeps the cached leading blocks of a path, at most limit and no more than running requests can spare, while they are
// read, and returns how many there are.
func (e *Engine) Hold(now time.Duration, path []trace.Span, limit int32) (*kvcache.Pin, int) {
	e.look(now)
	held, blocks := e.pool().Pin(slices.Clone(path), limit, e.style.room())
	e.loads.holds += blocks
	return held, blocks
}

// Cached is how many leading blocks of a path are in the cache, at most limit.
func (e *Engine) Cached(path []trace.Span, limit int32) int32 {
	return e.pool().Lookup(path, limit)
}

// Here is how many blocks of a path are in the cache, wherever on it.
func (e *Engine) Here(path []trace.Span) int { return e.pool().Here(path) }

// Drop takes blocks from the cache that nobody refers to, and returns how many it took and how many it had to leave.
func (e *Engine) Drop(now time.Duration, s trace.Span) (dropped, left int) {
	e.look(now)
	return e.pool().Drop(s)
}

// SetClass changes the eviction class of cached blocks.
func (e *Engine) SetClass(s trace.Span, class kvcache.Class) {
	e.pool().SetClass(s, class)
}

// Evictions returns the blocks that the cache has lost to other tokens since the last call, if its options say so. The slice
// is reused by the next step.
func (e *Engine) Evictions() []trace.Span { return e.kv.DrainLost() }

// longestStall is about 19 hours, half of what a Fixed holds.
const longestStall time.Duration = 1 << 62 / models.FixedPerNs

// Stall makes the step that was just scheduled begin later by d, or by longestStall.
func (e *Engine) Stall(d time.Duration) {
	if d = min(d, longestStall); d > 0 && e.busy {
		e.steps = 1
		e.first += models.Fixed(d) * models.FixedPerNs
	}
}

// LetGo ends a Hold of so many blocks.
func (e *Engine) LetGo(now time.Duration, held *kvcache.Pin, blocks int) {
	e.look(now)
	e.pool().Unpin(held)
	e.loads.holds -= blocks
	e.style.freed()
	if e.busy && e.style.admits() {
		e.truncate(now)
	}
}
