package router

import "time"

// stickyTTL is how long a session may be idle under the sticky policies (Dynamo, dynamo-sticky-min-load).
const stickyTTL = 4 * time.Hour

// pickSticky binds a session's first request to the worker with the fewest active requests, any of them on a tie, and
// sends all later ones there whatever its load. A session that was idle for more than four hours is bound anew.
func (r *Router) pickSticky(now time.Duration, q *Request, draw uint64) (int, int32) {
	return r.stay(now, q, func() int {
		worker, _ := r.pickLeastLoaded(now, q, draw)
		return worker
	})
}

// pickProgramCount binds a session's first request to the worker to which the fewest sessions are bound, the lowest
// on a tie (ThunderAgent's router mode "default"; there a session lasts until it is released, here four idle hours).
func (r *Router) pickProgramCount(now time.Duration, q *Request, _ uint64) (int, int32) {
	return r.stay(now, q, func() int {
		return lowest(r.candidates, func(worker int) int64 { return r.homes.count[worker] })
	})
}

// stay returns the worker of q's session, and lets first choose it when there is none or it is not eligible.
func (r *Router) stay(now time.Duration, q *Request, first func() int) (int, int32) {
	r.homes.sweep(now)
	h := r.homes.by[q.Session]
	if h == nil || !r.eligible(h.worker) {
		h = r.homes.bind(q.Session, int32(first()))
	}
	h.used = now
	return int(h.worker), 0
}

// The load guard's bounds, in active requests (Dynamo, dynamo-soft-affinity-load-guard).
const (
	guardActive = 32 // up to so many a session stays whatever the load of others
	guardMargin = 2  // it moves only to a worker with so many fewer
)

// pickLoadGuard stays with the target, the preferred or bound worker, unless that has more than 32 active requests
// and the least loaded other worker at least two fewer. Without a target it takes the least loaded, the lowest on a
// tie.
func (r *Router) pickLoadGuard(now time.Duration, q *Request, _ uint64) (int, int32) {
	active := func(worker int) int64 { return r.loads[worker].requests }
	best := lowest(r.candidates, active)
	if target := int(r.target(now, q)); target >= 0 && (active(target) <= guardActive || active(target)-active(best) < guardMargin) {
		return target, 0
	}
	return best, 0
}
