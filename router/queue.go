package router

import (
	"container/heap"
	"time"
)

// queue holds requests that wait, by class. Classes take turns by deficit round robin: in its turn a class gains its
// quantum of tokens and dispatches while the cost of its next request is covered (Dynamo, lib/kv-router policy_queue).
type queue struct {
	classes []*classQueue
	turn    int // the class whose turn is next
	carry   int // the class whose turn goes on; -1 none
	seq     uint64
	size    int
	heads   []*Request // scratch of next
}

// classQueue is what waits in one class, in lanes: the first for any worker, the others for exactly one.
type classQueue struct {
	Class
	lanes   []*lane
	deficit int64

	requests, tokens, cached int64 // of what waits
}

// lane is a heap of requests in the order in which they go.
type lane struct {
	exact    int32 // the worker they are for; -1 any
	requests []*Request
}

// waiting is what the queue keeps with a request. All but place is a snapshot from when it came.
type waiting struct {
	class *classQueue // nil: does not wait
	lane  *lane
	place int // in the lane
	since time.Duration
	seq   uint64
	score float64
	// cached is the most prompt tokens that one worker held, cost the other ones, at least 1.
	cached, cost int64
	overlap      []int32 // by worker
}

func newQueue(classes []Class) *queue {
	q := &queue{carry: -1, heads: make([]*Request, len(classes))}
	for _, c := range classes {
		q.classes = append(q.classes, &classQueue{Class: c, lanes: []*lane{{exact: -1}}})
	}
	return q
}

// score orders the waiting requests of one strict priority, the highest first. The jump is in seconds.
func score(policy string, jump float64, now time.Duration, cost int64) float64 {
	if !(jump > 0) { // NaN too
		jump = 0
	}
	switch policy {
	case "wspt":
		return (1 + jump) / float64(cost)
	case "lcfs":
		return jump + now.Seconds()
	}
	return jump - now.Seconds()
}

// push makes q wait in class c, for any worker or for one, with the given number of cached prompt tokens.
func (w *queue) push(now time.Duration, q *Request, c *classQueue, exact int32, cached int64) {
	q.class, q.since, q.seq = c, now, w.seq
	q.cached = min(cached, int64(q.Input))
	q.cost = max(int64(q.Input)-q.cached, 1)
	q.score = score(c.Policy, q.PriorityJump, now, q.cost)
	w.seq++
	w.size++
	c.requests++
	c.tokens += int64(q.Input)
	c.cached += q.cached
	q.lane = c.lane(exact)
	heap.Push(q.lane, q)
}

// remove takes q out, wherever it stands.
func (w *queue) remove(q *Request) {
	c := q.class
	heap.Remove(q.lane, q.place)
	w.size--
	c.requests--
	c.tokens -= int64(q.Input)
	c.cached -= q.cached
	if c.requests == 0 {
		c.deficit = 0
	}
	q.class, q.lane = nil, nil
}

// next takes out the request that is to be dispatched next; nil when the heads of all lanes wait for workers. Free
// tells whether a class may dispatch to a worker, -1 for any.
func (w *queue) next(free func(c *Class, exact int32) bool) *Request {
	if w.size == 0 {
		return nil
	}
	any := false
	for i, c := range w.classes {
		w.heads[i] = c.head(free)
		any = any || w.heads[i] != nil
	}
	if !any {
		return nil
	}
	if i := w.carry; i >= 0 && w.affordable(i) {
		return w.take(i)
	}
	w.carry = -1
	for n := range w.classes {
		i := (w.turn + n) % len(w.classes)
		if w.heads[i] == nil {
			continue
		}
		if c := w.classes[i]; c.deficit < w.heads[i].cost {
			c.deficit += c.Quantum
		}
		if w.affordable(i) {
			return w.take(i)
		}
	}
	w.skipRounds()
	for n := 0; ; n++ {
		if i := (w.turn + n) % len(w.classes); w.affordable(i) {
			return w.take(i)
		}
	}
}

// skipRounds gives all classes with a head the quanta of as many rounds as it takes until one can dispatch.
func (w *queue) skipRounds() {
	rounds := int64(0)
	for i, c := range w.classes {
		if head := w.heads[i]; head != nil {
			if n := (head.cost - c.deficit + c.Quantum - 1) / c.Quantum; rounds == 0 || n < rounds {
				rounds = n
			}
		}
	}
	for i, c := range w.classes {
		if w.heads[i] != nil {
			c.deficit += rounds * c.Quantum
		}
	}
}

func (w *queue) affordable(i int) bool {
	return w.heads[i] != nil && w.heads[i].cost <= w.classes[i].deficit
}

// take takes out the head of class i and charges for it.
func (w *queue) take(i int) *Request {
	q, c := w.heads[i], w.classes[i]
	c.deficit -= q.cost
	w.remove(q)
	w.turn, w.carry = (i+1)%len(w.classes), i
	return q
}

// lane returns the lane of an exact worker, -1 for any.
func (c *classQueue) lane(exact int32) *lane {
	for _, l := range c.lanes {
		if l.exact == exact {
			return l
		}
	}
	l := &lane{exact: exact}
	c.lanes = append(c.lanes, l)
	return l
}

// head returns the first of the lanes' heads that a worker is free for; nil when there is none.
func (c *classQueue) head(free func(*Class, int32) bool) *Request {
	var first *Request
	for _, l := range c.lanes {
		if len(l.requests) > 0 && (first == nil || before(l.requests[0], first)) && free(&c.Class, l.exact) {
			first = l.requests[0]
		}
	}
	return first
}

// full returns the reason why no further request may wait, where there are so many workers.
func (c *classQueue) full(workers int) Reason {
	for _, limit := range []struct {
		perWorker *int64
		waiting   int64
	}{{c.RequestLimit, c.requests}, {c.TokenLimit, c.tokens}, {c.CachedLimit, c.cached}} {
		if limit.perWorker != nil && limit.waiting >= *limit.perWorker*int64(workers) {
			return QueueFull
		}
	}
	return Placed
}

// before tells whether a goes before b: by strict priority, then by score, then by arrival.
func before(a, b *Request) bool {
	if a.StrictPriority != b.StrictPriority {
		return a.StrictPriority > b.StrictPriority
	}
	if a.score != b.score {
		return a.score > b.score
	}
	return a.seq < b.seq
}

// Len, Less, Swap, Push and Pop make a lane a heap.Interface.
func (l *lane) Len() int           { return len(l.requests) }
func (l *lane) Less(i, j int) bool { return before(l.requests[i], l.requests[j]) }

func (l *lane) Swap(i, j int) {
	l.requests[i], l.requests[j] = l.requests[j], l.requests[i]
	l.requests[i].place, l.requests[j].place = i, j
}

func (l *lane) Push(x any) {
	q := x.(*Request)
	q.place = len(l.requests)
	l.requests = append(l.requests, q)
}

func (l *lane) Pop() any {
	last := len(l.requests) - 1
	q := l.requests[last]
	l.requests[last] = nil
	l.requests = l.requests[:last]
	return q
}
