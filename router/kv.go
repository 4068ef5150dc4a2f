package router

import (
	"math"
	"slices"
	"time"
)

// scores are one choice's figures, by worker.
type scores struct {
	overlap []int32        // leading prompt blocks that are resident
	guess   []int32        // leading prompt blocks that should be
	below   [tiers][]int32 // leading prompt blocks that tiers hold
	shared  []int32        // leading prompt blocks that active requests hold
	cost    []float64      // by candidate, in blocks
}

func newScores(workers int) scores {
	return scores{
		overlap: make([]int32, workers),
		guess:   make([]int32, workers),
		shared:  make([]int32, workers),
		cost:    make([]float64, workers),
	}
}

// pickKV takes the worker of least cost, or draws one when there is a temperature (Dynamo, lib/kv-router
// scheduling/selector.rs).
func (r *Router) pickKV(now time.Duration, q *Request, draw uint64) (int, int32) {
	r.lookup(now, q)
	r.share(q)
	r.weigh(q)
	worker := r.candidates[draft(r.score.cost, r.settings.Temperature, draw)]
	return int(worker), r.score.overlap[worker]
}

// weigh sets score.cost. With all loads in blocks,
//
//	cost    = prefill_load_scale * max(prefill - credit, 0) + decode + decode_active_request_weight * requests
//	prefill = active prefill + this prompt, cached or not
//	credit  = overlap_score_credit * overlap / (1 + decay * (active prefill - least active prefill) / this prompt)
//	          + host_cache_hit_weight * further blocks in the host + disk_cache_hit_weight * further ones on drives
//	decode  = distinct full prompt blocks of the active requests and this one
//
// Without track_prefill_tokens prefill is 0. Products are rounded before they are added, so that no architecture fuses
// them and all choose alike.
func (r *Router) weigh(q *Request) {
	s, size := &r.settings, float64(r.blockSize)
	leastPrefill := r.loads[r.candidates[0]].prefill
	for _, w := range r.candidates {
		leastPrefill = min(leastPrefill, r.loads[w].prefill)
	}
	promptBlocks := float64(r.blocks(q))

	r.score.cost = r.score.cost[:0]
	for _, w := range r.candidates {
		l := &r.loads[w]
		overlap := r.score.overlap[w]
		prefill := 0.0
		if s.TrackPrefillTokens {
			cached := int64(overlap) * r.blockSize
			uncached := max(int64(q.Input)-cached, 0)
			prefill = float64(l.prefill+uncached+cached) / size
		}
		excess := float64(l.prefill-leastPrefill) / size / promptBlocks
		credit := s.OverlapScoreCredit * (1 / (1 + float64(s.OverlapScoreCreditDecay*excess)))
		adjusted := max(prefill-float64(credit*float64(overlap))-r.creditBelow(w, overlap), 0)
		r.score.cost = append(r.score.cost, float64(s.PrefillLoadScale*adjusted)+r.decodeBlocks(int(w), q)+
			float64(s.DecodeActiveRequestWeight*float64(l.requests)))
	}
}

// share sets score.shared to the leading blocks of q's prompt that active requests hold already.
func (r *Router) share(q *Request) {
	if r.held != nil {
		r.held.shared(q.Path, q.PromptBlocks, r.score.shared)
	}
}

// decodeBlocks is the number of blocks that the active requests of a worker would hold with q.
func (r *Router) decodeBlocks(worker int, q *Request) float64 {
	if !r.settings.TrackActiveBlocks {
		return 0
	}
	return float64(r.loads[worker].blocks+int64(q.PromptBlocks-r.score.shared[worker])) + r.outputBlocks(worker)
}

// outputBlocks is the number of blocks beyond the prompts that the active requests of a worker hold. Those of a
// request with a known expected output count less as it nears that, down to nothing.
func (r *Router) outputBlocks(worker int) float64 {
	sum := 0.0
	if r.active == nil || r.Tokens == nil {
		return sum
	}
	for _, q := range r.active[worker] {
		tokens := int64(r.Tokens(q))
		blocks := float64(max(tokens/r.blockSize-int64(q.PromptBlocks), 0))
		if q.ExpectedOutput > 0 {
			blocks *= max(1-float64(max(tokens-int64(q.Input), 0))/float64(q.ExpectedOutput), 0)
		}
		sum += blocks
	}
	return sum
}

// draft returns the index of the least cost, any of them with equal probability on a tie. A temperature above 0 draws
// index i with probability proportional to exp(-(cost[i]-least) / ((greatest-least) * temperature)).
func draft(cost []float64, temperature float64, draw uint64) int {
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
