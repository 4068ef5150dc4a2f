package router

import (
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// The two-tier policy's bounds (Dynamo, dynamo-two-tier-cost-fn).
const (
	spreadRequests = 32  // the load tier needs a greater spread of active requests,
	spreadRatio    = 1.1 // and the greatest to be more than that multiple of the least
	hitShare       = 0.5 // the cache tier needs more than that share of the prompt's blocks
)

// pickTwoTier takes the least loaded worker when loads differ much; else, when a worker holds more than half of the
// prompt, the least loaded of those that hold most; else the least loaded. Ties go to the lowest.
func (r *Router) pickTwoTier(now time.Duration, q *Request, _ uint64) (int, int32) {
	r.lookup(now, q)
	overlap := r.score.overlap
	active := func(worker int) int64 { return r.loads[worker].requests }
	best := lowest(r.candidates, active)
	most, deepest := active(best), int32(0)
	for _, w := range r.candidates {
		most = max(most, active(int(w)))
		deepest = max(deepest, overlap[w])
	}
	uneven := most-active(best) > spreadRequests && float64(most) > spreadRatio*float64(active(best))
	if !uneven && float64(deepest) > hitShare*float64(r.blocks(q)) {
		best = lowest(r.candidates, func(worker int) int64 {
			if overlap[worker] < deepest {
				return most + 1
			}
			return active(worker)
		})
	}
	return best, overlap[best]
}

// pickLMetric takes the least product of the prompt tokens to compute and the active requests, this one included; both
// are at least 1, and ties go to the lowest. Workers that hold a prompt which has become a hot spot are left out
// (arXiv 2603.15202; Dynamo, lmetric).
func (r *Router) pickLMetric(now time.Duration, q *Request, _ uint64) (int, int32) {
	r.lookup(now, q)
	cost := func(worker int) int64 {
		uncached := int64(q.Input) - int64(r.score.overlap[worker])*r.blockSize
		return max(uncached, 1) * (r.loads[worker].requests + 1)
	}
	best := lowest(r.candidates, cost)
	if class, ok := hotClass(q); ok {
		holds := func(worker int32) bool { return r.score.overlap[worker] >= hotBlocks }
		holders := 0
		for _, w := range r.candidates {
			if holds(w) {
				holders++
			}
		}
		if r.hot.alarm(class, holders, len(r.candidates)-holders, holds(int32(best))) {
			r.others = slices.DeleteFunc(append(r.others[:0], r.candidates...), holds)
			best = lowest(r.others, cost)
		}
	}
	return best, r.score.overlap[best]
}

const (
	hotBlocks = 4    // prompts with so many leading blocks in common are one class
	hotWindow = 1000 // the choices over which the share of a class counts
)

// hotspots finds classes of prompts that come more often than the workers that hold them can bear.
type hotspots struct {
	recent  []trace.Key // the classes of the latest choices, a ring
	next    int
	classes map[trace.Key]*hotspot
}

type hotspot struct {
	arrivals int // in the window
	streak   int // choices of a holder in a row while there was cause for alarm
}

// hotClass returns the node in which the last of the class's blocks lies; false when the prompt is shorter.
func hotClass(q *Request) (trace.Key, bool) {
	if q.PromptBlocks < hotBlocks {
		return 0, false
	}
	for _, s := range q.Path {
		if s.To >= hotBlocks {
			return s.Key, true
		}
	}
	return 0, false
}

// alarm counts a choice and tells whether the holders of its class are to be left out. There is cause for alarm when
// the share x of the class in the window is so high that x/(1-x) > holders/others; the holders are left out from the
// 2·holders-th time in a row that one of them would be chosen.
func (h *hotspots) alarm(class trace.Key, holders, others int, chosen bool) bool {
	if len(h.recent) < hotWindow {
		h.recent = append(h.recent, class)
	} else {
		old := h.classes[h.recent[h.next]]
		if old.arrivals--; old.arrivals == 0 {
			delete(h.classes, h.recent[h.next])
		}
		h.recent[h.next] = class
		h.next = (h.next + 1) % hotWindow
	}
	c := h.classes[class]
	if c == nil {
		c = &hotspot{}
		h.classes[class] = c
	}
	c.arrivals++
	if holders == 0 || others == 0 || c.arrivals*others <= (len(h.recent)-c.arrivals)*holders || !chosen {
		c.streak = 0
		return false
	}
	c.streak++
	return c.streak >= 2*holders
}

// pickThunderAgent takes the least load in tokens: tokens to prefill of active requests, and the blocks that they and
// this request hold; the lowest on a tie (Dynamo, router plugin thunderagent, worker_selection).
func (r *Router) pickThunderAgent(now time.Duration, q *Request, _ uint64) (int, int32) {
	r.lookup(now, q)
	r.share(q)
	best := lowest(r.candidates, func(worker int) float64 { return r.heldTokens(worker, q) })
	return best, r.score.overlap[best]
}

// heldTokens is the load of a worker in tokens with q.
func (r *Router) heldTokens(worker int, q *Request) float64 {
	return float64(r.loads[worker].prefill) + r.decodeBlocks(worker, q)*float64(r.blockSize)
}

// weighTokens sets score.cost to the loads that pickThunderAgent compares.
func (r *Router) weighTokens(q *Request) {
	r.score.cost = r.score.cost[:0]
	for _, w := range r.candidates {
		r.score.cost = append(r.score.cost, r.heldTokens(int(w), q))
	}
}
