package router

import (
	"maps"
	"time"
)

// A home is the worker to which a session is bound.
type home struct {
	worker int
	used   time.Duration // when the session was last picked for
}

// Idle bindings are dropped by a sweep that runs with a Pick, as in Dynamo's dynamo-sticky-min-load.
const (
	homeMaxIdle    = 4 * time.Hour
	homeSweepEvery = time.Minute
)

// pickSticky binds a session's first request to the worker with the fewest active requests, any of them on a tie, and
// sends all later ones there whatever its load. A session that was idle for more than four hours is bound anew.
func (r *Router) pickSticky(now time.Duration, q *Request, draw uint64) (int, int32) {
	if now-r.swept >= homeSweepEvery {
		r.swept = now
		maps.DeleteFunc(r.homes, func(_ uint64, h *home) bool { return now-h.used > homeMaxIdle })
	}
	h := r.homes[q.Session]
	if h == nil {
		worker, _ := r.pickLeastLoaded(now, q, draw)
		h = &home{worker: worker}
		r.homes[q.Session] = h
	}
	h.used = now
	return h.worker, 0
}
