package router

import (
	"fmt"
	"slices"
	"time"
)

// Rejection configures when requests are refused with status 529: when all workers that could take one exceed a
// threshold. Workers that do are not picked while others do not. 0 is no threshold.
type Rejection struct {
	// DecodeBlocks is the share of a worker's KV blocks that active requests hold.
	DecodeBlocks float64 `yaml:"active_decode_blocks_threshold"`
	// PrefillTokens and PrefillFraction are the prefill load, in tokens and as a multiple of max_num_batched_tokens.
	PrefillTokens   int64   `yaml:"active_prefill_tokens_threshold"`
	PrefillFraction float64 `yaml:"active_prefill_tokens_threshold_frac"`
}

func (s *Rejection) check() error {
	return checkNumbers(
		number{"router.active_decode_blocks_threshold", s.DecodeBlocks, 0, 1},
		number{"router.active_prefill_tokens_threshold", float64(s.PrefillTokens), 0, maxTokens},
		number{"router.active_prefill_tokens_threshold_frac", s.PrefillFraction, 0, maxWeight},
	)
}

// Reason is why a request was not placed.
type Reason uint8

// The reasons. All but Placed mean that the request is refused for good.
const (
	Placed     Reason = iota
	Overloaded        // all workers that could take it exceed a threshold (HTTP 529)
	QueueFull         // its class of the queue is at a limit (HTTP 529)
	NoWorker          // no worker is left
	WorkerGone        // the one worker that it is bound to is not there
	Reasons           // their number
)

var reasons = [Reasons]string{"placed", "overloaded", "queue full", "no worker", "worker gone"}

func (r Reason) String() string {
	if r < Reasons {
		return reasons[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Decision is what becomes of a request: it goes to Worker, which is known to hold the first Overlap blocks of its
// prompt, or it is rejected.
type Decision struct {
	Request  *Request
	Worker   int
	Overlap  int32
	Rejected Reason
}

// Submit takes a request that arrived and books it on the worker that should serve it, or lets it wait: then a later
// Drain decides. A request that waits or runs already leaves there first. The decisions are valid until the next call.
//
// The worker is the pinned one or that of a hard affinity; else the preferred one or that of a soft affinity while it
// is eligible; else the policy's choice. Requests wait only where the queue has a threshold, behind those of their
// class that wait already, and while all workers that could take them are busy.
func (r *Router) Submit(now time.Duration, q *Request) []Decision {
	r.decisions = r.decisions[:0]
	r.Done(now, q)
	q.exact = r.exact(now, q)
	if q.exact >= 0 && !r.present(q.exact) {
		return r.reject(q, WorkerGone)
	}
	cached := int64(-1)
	if r.settings.sized(q.Class) {
		cached = r.cached(now, q)
	}
	c := r.queue.classes[r.settings.class(q.Class, max(int64(q.Input)-max(cached, 0), 0))]
	if !c.queues() || c.requests == 0 && r.free(&c.Class, q.exact) {
		r.place(now, q)
		return r.decisions
	}
	if reason := c.full(len(r.workers)); reason != Placed {
		return r.reject(q, reason)
	}
	if cached < 0 {
		cached = r.cached(now, q)
	}
	r.snapshot(q)
	r.queue.push(now, q, c, q.exact, cached)
	return nil
}

// Drain decides for requests that wait, as far as workers are free. Call it after FirstToken, Done, Remove and Add;
// while nothing waits it costs nothing. The decisions are valid until the next call.
func (r *Router) Drain(now time.Duration) []Decision {
	r.decisions = r.decisions[:0]
	if r.lost {
		r.lost = false
		r.rejectLost()
	}
	for q := r.queue.next(r.free); q != nil; q = r.queue.next(r.free) {
		r.place(now, q)
	}
	return r.decisions
}

// Waiting is the number of requests in the queue.
func (r *Router) Waiting() int { return r.queue.size }

// rejectLost rejects requests that wait for workers that are not there.
func (r *Router) rejectLost() {
	for _, c := range r.queue.classes {
		for _, l := range c.lanes {
			for l.exact >= 0 && !r.present(l.exact) && len(l.requests) > 0 {
				q := l.requests[0]
				r.queue.remove(q)
				r.reject(q, WorkerGone)
			}
		}
	}
}

func (r *Router) reject(q *Request, reason Reason) []Decision {
	r.forget(q)
	r.decisions = append(r.decisions, Decision{Request: q, Worker: -1, Rejected: reason})
	return r.decisions
}

// place dispatches q at once, or rejects it.
func (r *Router) place(now time.Duration, q *Request) {
	switch {
	case len(r.workers) == 0:
		r.reject(q, NoWorker)
		return
	case !r.admit(q.exact):
		r.reject(q, Overloaded)
		return
	}
	worker, overlap := r.choose(now, q)
	r.tell(now, q, worker, overlap)
	r.forget(q)
	r.dispatch(q, worker, overlap)
	if r.guess != nil {
		r.guess.add(now, q.worker, q.Path, q.PromptBlocks)
	}
	r.bind(now, q)
	r.decisions = append(r.decisions, Decision{Request: q, Worker: worker, Overlap: overlap})
}

// choose returns the worker of a request for which some are eligible, and how many leading blocks of its prompt the
// worker is known to hold.
//
// Every choice draws one random number, whether it needs it or not, so the n-th choice of two routers with one seed
// sees the same number however their policies and loads differ.
func (r *Router) choose(now time.Duration, q *Request) (worker int, overlap int32) {
	draw := r.random.Uint64()
	target := q.exact
	if target < 0 && !r.policy.moves {
		target = r.target(now, q)
	}
	if target >= 0 {
		return int(target), r.overlapOn(now, q, int(target))
	}
	return r.policy.pick(r, now, q, draw)
}

// target returns the preferred worker of q, else that of its soft affinity, when it is eligible; else -1.
func (r *Router) target(now time.Duration, q *Request) int32 {
	if r.eligible(q.Preferred) {
		return q.Preferred
	}
	if h := r.affinity.find(now, r.affinityKey(q)); h != nil && r.eligible(h.worker) {
		return h.worker
	}
	return -1
}

// free tells whether the class may dispatch to a worker, -1 for any.
func (r *Router) free(c *Class, exact int32) bool {
	batch := int64(r.pool.MaxBatchedTokens)
	if exact >= 0 {
		return !c.busy(r.loads[exact].prefill, batch)
	}
	busy := 0
	for _, w := range r.workers {
		if c.busy(r.loads[w].prefill, batch) {
			busy++
		} else if c.BusyWorkerRatio == nil {
			return true
		}
	}
	return !c.allBusy(busy, len(r.workers))
}

// admit sets the candidates of a choice to the workers below the rejection thresholds. It tells whether there are
// any, or whether the exact worker is one.
func (r *Router) admit(exact int32) bool {
	if r.settings.Rejection == (Rejection{}) {
		return true
	}
	r.candidates = r.candidates[:0]
	for _, w := range r.workers {
		if !r.overloaded(int(w)) {
			r.candidates = append(r.candidates, w)
		}
	}
	if exact >= 0 {
		return r.eligible(exact)
	}
	return len(r.candidates) > 0
}

// overloaded tells whether a worker exceeds a rejection threshold.
func (r *Router) overloaded(worker int) bool {
	s, l := &r.settings.Rejection, &r.loads[worker]
	blocks, prefill := float64(l.blocks)+r.outputBlocks(worker), float64(l.prefill)
	return s.DecodeBlocks > 0 && r.pool.KVBlocks > 0 && blocks > s.DecodeBlocks*float64(r.pool.KVBlocks) ||
		s.PrefillTokens > 0 && l.prefill > s.PrefillTokens ||
		s.PrefillFraction > 0 && prefill > s.PrefillFraction*float64(r.pool.MaxBatchedTokens)
}

// eligible tells whether a worker is among the candidates of a choice.
func (r *Router) eligible(worker int32) bool {
	_, found := slices.BinarySearch(r.candidates, worker)
	return found
}

// present tells whether a worker is there.
func (r *Router) present(worker int32) bool {
	_, found := slices.BinarySearch(r.workers, worker)
	return found
}

// Remove takes a worker away: nothing is placed there any more, what it held is forgotten, and sessions that were
// bound to it are free. The load booked there stays until Done. Requests that wait for this worker alone are rejected
// by the next Drain. Removing a worker that is not there does nothing.
func (r *Router) Remove(worker int) {
	i, found := slices.BinarySearch(r.workers, int32(worker))
	if !found {
		return
	}
	r.workers = slices.Delete(r.workers, i, i+1)
	r.candidates = append(r.candidates[:0], r.workers...)
	r.lost = true
	r.unbind(int32(worker))
	r.evict(worker)
}

// Add brings a worker of the pool back, with nothing cached. Adding one that is there does nothing.
func (r *Router) Add(worker int) {
	i, found := slices.BinarySearch(r.workers, int32(worker))
	if found || worker < 0 || worker >= len(r.loads) {
		return
	}
	r.workers = slices.Insert(r.workers, i, int32(worker))
	r.candidates = append(r.candidates[:0], r.workers...)
}
