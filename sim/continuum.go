package sim

import (
	"math"
	"time"
)

// continuum decides how long a session's KV blocks stay pinned while its tool runs, after Continuum (arXiv 2511.02230):
// for the lease τ that makes
//
//	P(the tool returns within τ) · benefit − cost(τ)
//
// greatest. P is the distribution of what tools of this name took so far, exponential before there is any. The benefit
// is the time that the next call is spared: to prefill what would be lost, and to wait in the queue for it. The cost is
// the lease times the share of the KV cache that it withholds from others. Both are seconds of one worker.
//
// The authors' preview code (Hanchenli/vllm-continuum) is simpler: it pins where tools of this name took less than two
// seconds in the mean.
type continuum struct {
	plan    *Plan
	preview bool
	tools   *toolTimes
	// queued is a moving average of how long requests waited for their admission by an engine.
	queued time.Duration
}

// A tool that nobody has seen takes unseenTool in the mean: the bound of the preview code, which is its lease too.
const unseenTool = 2 * time.Second

func newContinuum(p *Plan, tools *toolTimes) *continuum {
	return &continuum{plan: p, preview: p.Engine.Scheduling == "continuum-preview", tools: tools}
}

// waited notes how long a request waited in an engine for its admission.
func (c *continuum) waited(d time.Duration) { c.queued += (d - c.queued) / 16 }

// lease returns how long the tokens of a session that calls a tool of this name are to stay pinned, from the present time
// on; 0 is not at all.
func (c *continuum) lease(name string, tokens int32) time.Duration {
	if c.preview {
		if c.tools.of(name).mean() < unseenTool {
			return unseenTool
		}
		return 0
	}
	benefit := (c.plan.prefillTime(0, tokens) + c.queued).Seconds()
	share := float64(tokens) / float64(c.plan.Blocks*c.plan.Engine.BlockSize)
	return c.tools.of(name).best(benefit, share)
}

// best is the lease of greatest gain for a benefit in seconds and a share of the cache that costs its lease.
func (d *durations) best(benefit, share float64) time.Duration {
	if d == nil || len(d.sorted) == 0 {
		// 1 − e^(−τ/m) grows by as much as the cost where e^(−τ/m) = share · m / benefit.
		mean := unseenTool.Seconds()
		if share <= 0 || share*mean >= benefit {
			return 0
		}
		return time.Duration(mean * math.Log(benefit/(share*mean)) * 1e9)
	}
	best, lease := 0.0, time.Duration(0)
	for i, took := range d.sorted {
		within := float64(i+1) / float64(len(d.sorted))
		if gain := within*benefit - took.Seconds()*share; gain > best {
			best, lease = gain, took
		}
	}
	return lease
}
