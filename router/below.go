package router

import "github.com/agentsim/agentsim/trace"

// Tier is a tier of a worker below its GPUs.
type Tier uint8

// The tiers whose hits count (Dynamo: host_cache_hit_weight, disk_cache_hit_weight).
const (
	Host Tier = iota
	Disk
	tiers
)

// StoredBelow reports that a tier of a worker holds blocks [s.From, s.To) of a node now. Picks see it at once.
func (r *Router) StoredBelow(worker int, t Tier, s trace.Span) {
	if r.cache == nil {
		return
	}
	if r.below[t] == nil {
		r.below[t], r.score.below[t] = newIndex(len(r.loads)), make([]int32, len(r.loads))
	}
	r.below[t].store(worker, s)
}

// RemovedBelow reports that it does not any more.
func (r *Router) RemovedBelow(worker int, t Tier, s trace.Span) {
	if r.below[t] != nil {
		r.below[t].remove(worker, s)
	}
}

// lookBelow sets score.below to what the tiers hold of q's prompt.
func (r *Router) lookBelow(q *Request) {
	for t, x := range r.below {
		if x != nil {
			x.overlap(q.Path, q.PromptBlocks, r.score.below[t])
		}
	}
}

// creditBelow is the credit for the blocks that a worker's tiers hold beyond the first overlap ones, which its GPUs hold.
func (r *Router) creditBelow(worker, overlap int32) float64 {
	credit, at := 0.0, overlap
	for t, weight := range [tiers]float64{r.settings.HostCacheHitWeight, r.settings.DiskCacheHitWeight} {
		if r.below[t] == nil {
			continue
		}
		if to := r.score.below[t][worker]; to > at {
			credit += float64(weight * float64(to-at))
			at = to
		}
	}
	return credit
}
