package router

import (
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// scores are one Pick's figures, by worker.
type scores struct {
	overlap []int32   // leading prompt blocks that are resident
	shared  []int32   // leading prompt blocks that active requests hold
	cost    []float64 // in blocks
}

func newScores(workers int) scores {
	return scores{
		overlap: make([]int32, workers),
		shared:  make([]int32, workers),
		cost:    make([]float64, workers),
	}
}

// pickKV takes the worker of least cost, or draws one when there is a temperature (Dynamo, lib/kv-router
// scheduling/selector.rs).
func (r *Router) pickKV(now time.Duration, q *Request, draw uint64) (int, int32) {
	r.lookup(now, q)
	r.weigh(q)
	worker := choose(r.score.cost, r.settings.Temperature, draw)
	return worker, r.score.overlap[worker]
}

// lookup sets score.overlap to what the index knows of q's prompt at time now.
func (r *Router) lookup(now time.Duration, q *Request) {
	if r.cache == nil {
		return
	}
	for worker := range r.feeds {
		r.feeds[worker].apply(r.cache, worker, now-r.settings.EventDelay)
	}
	r.cache.overlap(q.Path, q.PromptBlocks, r.score.overlap)
}

// weigh sets score.cost. With all loads in blocks,
//
//	cost    = prefill_load_scale * max(prefill - credit, 0) + decode + decode_active_request_weight * requests
//	prefill = active prefill + this prompt, cached or not
//	credit  = overlap_score_credit * overlap / (1 + decay * (active prefill - least active prefill) / this prompt)
//	decode  = distinct full prompt blocks of the active requests and this one
//
// Products are rounded before they are added, so that no architecture fuses them and all choose alike.
func (r *Router) weigh(q *Request) {
	s, size := &r.settings, float64(r.blockSize)
	if r.held != nil {
		r.held.shared(q.Path, q.PromptBlocks, r.score.shared)
	}
	leastPrefill := r.loads[0].prefill
	for i := range r.loads {
		leastPrefill = min(leastPrefill, r.loads[i].prefill)
	}
	promptBlocks := float64(max((int64(q.Input)+r.blockSize-1)/r.blockSize, 1))

	for i := range r.loads {
		l := &r.loads[i]
		cached := int64(r.score.overlap[i]) * r.blockSize
		uncached := max(int64(q.Input)-cached, 0)
		prefill := float64(l.prefill+uncached+cached) / size

		excess := float64(l.prefill-leastPrefill) / size / promptBlocks
		credit := s.OverlapScoreCredit * (1 / (1 + float64(s.OverlapScoreCreditDecay*excess)))

		adjusted := max(prefill-float64(credit*float64(r.score.overlap[i])), 0)
		decode := l.blocks + int64(q.PromptBlocks-r.score.shared[i])
		r.score.cost[i] = float64(s.PrefillLoadScale*adjusted) + float64(decode) +
			float64(s.DecodeActiveRequestWeight*float64(l.requests))
	}
}

// choose returns the index of the least cost, any of them with equal probability on a tie. A temperature above 0 draws
// index i with probability proportional to exp(-(cost[i]-least) / ((greatest-least) * temperature)).
func choose(cost []float64, temperature float64, draw uint64) int {
	if temperature > 0 {
		if lowest, highest := slices.Min(cost), slices.Max(cost); lowest < highest {
			return sample(cost, lowest, highest, temperature, draw)
		}
	}
	return least(len(cost), func(i int) float64 { return cost[i] }, draw)
}

// sample draws from the softmax of costs that differ. It overwrites them with their cumulated weights.
func sample(cost []float64, lowest, highest, temperature float64, draw uint64) int {
	sum := 0.0
	for i, c := range cost {
		sum += math.Exp(-((c - lowest) / (highest - lowest)) / temperature)
		cost[i] = sum
	}
	point := float64(draw>>11) / (1 << 53) * sum
	for i, upTo := range cost {
		if point < upTo {
			return i
		}
	}
	return len(cost) - 1
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
