package router

import (
	"time"

	"github.com/agentsim/agentsim/trace"
)

// overlapRefreshAfter is how long the overlaps of a waiting request are used without another look at the index
// (Dynamo, lib/kv-router overlap_refresh).
const overlapRefreshAfter = 10 * time.Second

// useIndex makes the router know what workers hold.
func (r *Router) useIndex() {
	n := len(r.loads)
	switch s := &r.settings; {
	case !s.UseKVEvents:
		r.guess = newPredictions(s.TTL, n)
	case s.PredictedTTL > 0:
		r.guess = newPredictions(s.PredictedTTL, n)
		fallthrough
	default:
		r.feeds = make([]feed, n)
		r.cache = newIndex(n)
	}
}

// lookup sets score.overlap to what is known of q's prompt at time now, or was when it began to wait shortly ago.
func (r *Router) lookup(now time.Duration, q *Request) {
	r.lookBelow(q)
	if q.overlap != nil && now-q.since <= overlapRefreshAfter {
		copy(r.score.overlap, q.overlap)
		return
	}
	if r.cache != nil {
		for worker := range r.feeds {
			r.feeds[worker].apply(r.cache, worker, now-r.settings.EventDelay)
		}
		r.cache.overlap(q.Path, q.PromptBlocks, r.score.overlap)
	}
	if r.guess != nil {
		r.guess.expire(now)
		r.guess.index.overlap(q.Path, q.PromptBlocks, r.score.guess)
		for worker, blocks := range r.score.guess {
			if r.cache == nil || blocks > r.score.overlap[worker] {
				r.score.overlap[worker] = blocks
			}
		}
	}
}

// overlapOn returns how many leading blocks of q's prompt a worker is known to hold.
func (r *Router) overlapOn(now time.Duration, q *Request, worker int) int32 {
	if r.cache == nil && r.guess == nil {
		return 0
	}
	r.lookup(now, q)
	return r.score.overlap[worker]
}

// cached returns the most prompt tokens of q that a worker which could take it is known to hold.
func (r *Router) cached(now time.Duration, q *Request) int64 {
	if r.cache == nil && r.guess == nil {
		return 0
	}
	r.lookup(now, q)
	most := int32(0)
	for _, w := range r.workers {
		if q.exact < 0 || w == q.exact {
			most = max(most, r.score.overlap[w])
		}
	}
	return int64(most) * r.blockSize
}

// snapshot keeps the overlaps that were just looked up with q, which is going to wait.
func (r *Router) snapshot(q *Request) {
	if r.cache == nil && r.guess == nil {
		return
	}
	if last := len(r.snapshots) - 1; last >= 0 {
		q.overlap, r.snapshots = r.snapshots[last], r.snapshots[:last]
	} else {
		q.overlap = make([]int32, len(r.loads))
	}
	copy(q.overlap, r.score.overlap)
}

// forget takes the snapshot from q.
func (r *Router) forget(q *Request) {
	if q.overlap != nil {
		r.snapshots = append(r.snapshots, q.overlap)
		q.overlap = nil
	}
}

// evict forgets what a worker holds.
func (r *Router) evict(worker int) {
	if r.cache != nil {
		r.feeds[worker] = feed{}
		r.cache.clear(worker)
	}
	for _, x := range r.below {
		if x != nil {
			x.clear(worker)
		}
	}
	if r.guess != nil {
		r.guess.clear(worker)
	}
}

// WantsEvents tells whether Stored and Removed have any effect, so that engines need not report for nothing.
func (r *Router) WantsEvents() bool { return r.cache != nil }

// Stored reports that blocks [s.From, s.To) of a node became resident on worker in the engine step that ended at time
// at. Picks from at + event delay on see it. A worker's events come in order of time.
func (r *Router) Stored(at time.Duration, worker int, s trace.Span) {
	if r.cache != nil {
		r.feeds[worker].push(event{at, s, true})
	}
}

// Removed reports that worker no longer holds any copy of blocks [s.From, s.To) of a node. It is seen like Stored.
func (r *Router) Removed(at time.Duration, worker int, s trace.Span) {
	if r.cache != nil {
		r.feeds[worker].push(event{at, s, false})
	}
}

// event is a KV event on its way to the index.
type event struct {
	at     time.Duration
	span   trace.Span
	stored bool
}

// feed is a queue of one worker's events.
type feed struct {
	events []event
	head   int // events before it are applied
}

func (f *feed) push(e event) {
	// Applied events make room once they are half of the queue: each is moved at most once on average.
	if len(f.events) == cap(f.events) && 2*f.head >= len(f.events) {
		f.events = f.events[:copy(f.events, f.events[f.head:])]
		f.head = 0
	}
	f.events = append(f.events, e)
}

// apply brings to the index the events up to and including time upTo.
func (f *feed) apply(x *index, worker int, upTo time.Duration) {
	for ; f.head < len(f.events) && f.events[f.head].at <= upTo; f.head++ {
		if e := &f.events[f.head]; e.stored {
			x.store(worker, e.span)
		} else {
			x.remove(worker, e.span)
		}
	}
	if f.head == len(f.events) {
		f.events, f.head = f.events[:0], 0
	}
}
