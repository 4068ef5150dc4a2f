package sim

import (
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/trace"
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
	tools   map[string]*durations
	calls   map[uint64]toolCall // by session
	// queued is a moving average of how long requests waited for their admission by an engine.
	queued time.Duration
}

// toolCall is a tool that runs.
type toolCall struct {
	name  string
	since time.Duration
}

// durations are the latest times that a tool took, in order of length; ring has them in order of time.
type durations struct {
	sorted, ring []time.Duration
	next         int
}

const (
	maxDurations = 256
	// A tool that nobody has seen takes unseenTool in the mean: the bound of the preview code, which is its lease too.
	unseenTool = 2 * time.Second
)

func newContinuum(p *Plan) *continuum {
	return &continuum{plan: p, preview: p.Engine.Scheduling == "continuum-preview", tools: map[string]*durations{},
		calls: map[uint64]toolCall{}}
}

// waited notes how long a request waited in an engine for its admission.
func (c *continuum) waited(d time.Duration) { c.queued += (d - c.queued) / 16 }

// returned notes that a session's next call has come.
func (c *continuum) returned(now time.Duration, session uint64) {
	call, ok := c.calls[session]
	if !ok {
		return
	}
	delete(c.calls, session)
	d := c.tools[call.name]
	if d == nil {
		d = new(durations)
		c.tools[call.name] = d
	}
	d.add(now - call.since)
}

// lease notes that a session calls a tool and returns how long its tokens are to stay pinned, from the present time on;
// 0 is not at all.
func (c *continuum) lease(now time.Duration, session uint64, turn *trace.Turn, tokens int32) time.Duration {
	name := ""
	if len(turn.ToolCalls) > 0 {
		name = turn.ToolCalls[0].Name
	}
	c.calls[session] = toolCall{name, now}
	if c.preview {
		if c.tools[name].mean() < unseenTool {
			return unseenTool
		}
		return 0
	}
	n := int64(tokens)
	prefill := c.plan.Cost.Base(models.Batch{Prefills: 1, PrefillTokens: int(n), PrefillPairs: n * n, PrefillContext: n})
	benefit := (prefill.Duration() + c.queued).Seconds()
	share := float64(tokens) / float64(c.plan.Blocks*c.plan.Engine.BlockSize)
	return c.tools[name].best(benefit, share)
}

// add keeps a duration, in the place of the oldest when there are many.
func (d *durations) add(took time.Duration) {
	if len(d.ring) == maxDurations {
		old := d.ring[d.next]
		i, _ := slices.BinarySearch(d.sorted, old)
		d.sorted = slices.Delete(d.sorted, i, i+1)
		d.ring[d.next] = took
	} else {
		d.ring = append(d.ring, took)
	}
	d.next = (d.next + 1) % maxDurations
	i, _ := slices.BinarySearch(d.sorted, took)
	d.sorted = slices.Insert(d.sorted, i, took)
}

// mean is that of the durations kept, 0 of none.
func (d *durations) mean() time.Duration {
	if d == nil || len(d.ring) == 0 {
		return 0
	}
	sum := time.Duration(0)
	for _, took := range d.ring {
		sum += took / time.Duration(len(d.ring))
	}
	return sum
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
