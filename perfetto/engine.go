package perfetto

import (
	"fmt"
	"math"
	"time"

	"github.com/agentsim/agentsim/trace/events"
)

// engine is the tracks of a worker, as a sidecar tells of it.
type engine struct {
	gauges
	steps, marks uint64
	until        time.Duration // of the last step
	before       events.Gauge  // the last reading, and when that was
	beforeAt     time.Duration
	transfers    map[string]*transferRows // by direction
	links        linkUse
}

// open makes the worker's group.
func (w *engine) open(p *picture, n int32, about events.Worker) {
	text := fmt.Sprintf("%d GPUs, %d KV blocks", about.GPUs, about.Blocks)
	if about.Host > 0 {
		text += fmt.Sprintf(", %d in host memory", about.Host)
	}
	if about.Disk > 0 {
		text += fmt.Sprintf(", %d on disk", about.Disk)
	}
	if about.URL != "" {
		text = about.URL
	}
	group := p.group(p.top, fmt.Sprintf("worker %d", n), rankWorkers+n, text)
	*w = engine{gauges: gauges{picture: p, group: group, rank: 2}, until: math.MinInt64, transfers: map[string]*transferRows{},
		links: linkUse{gauges{picture: p, group: group, rank: rankLinks}, map[string]time.Duration{}}}
}

// gauges are the counters of a group, each of which is made when it is first something else than 0.
type gauges struct {
	*picture
	group uint64
	rank  int32 // of the first
	list  map[string]*gauge
}

// set sets a counter.
func (g *gauges) set(at time.Duration, name, unit string, value float64) {
	c := g.list[name]
	if g.noCounters || math.IsNaN(value) || math.IsInf(value, 0) || c == nil && value == 0 {
		return
	}
	if c == nil {
		if g.list == nil {
			g.list = map[string]*gauge{}
		}
		c = g.gauge(g.group, name, unit, g.rank+int32(len(g.list)))
		g.list[name] = c
	}
	c.set(at, value)
}

// batch sets the counters of what a step works on.
func (w *engine) batch(at time.Duration, e *events.Step) {
	steps := float64(max(e.Steps, 1))
	w.set(at, "batch occupancy (requests running)", "", float64(e.Running))
	w.set(at, "requests waiting", "", float64(e.Waiting))
	w.set(at, "prefill tokens per step", "", float64(e.Prefill)/steps)
	w.set(at, "decode tokens per step", "", float64(e.Decode)/steps)
}

// step draws a step, or a run of equal ones, between two times.
func (w *engine) step(start, end time.Duration, e *events.Step) {
	if w.steps == 0 {
		w.steps = w.row(w.group, "steps", 0)
	}
	overlap := max(0, w.until-start) // of steps that should follow each other
	if w.until < 0 {
		overlap = 0
	}
	if overlap > 0 {
		start, end = w.until, max(end, w.until)
	} else if w.until >= 0 && start > w.until {
		w.batch(w.until, &events.Step{Waiting: e.Waiting - e.Admitted})
	}
	w.batch(start, e)
	name := "mixed"
	switch {
	case e.Prefill == 0:
		name = "decode"
	case e.Decode == 0:
		name = "prefill"
	}
	out := w.event(w.steps, start, name, catStep)
	out.number("steps", e.Steps)
	out.ms("mean_step_ms", e.Mean())
	out.number("running", int64(e.Running))
	out.number("waiting", int64(e.Waiting))
	out.number("prefill_tokens", e.Prefill)
	out.number("decode_tokens", e.Decode)
	out.number("output_tokens", e.Output)
	if e.Admitted > 0 {
		out.number("admitted", int64(e.Admitted))
		out.number("queried_tokens", e.Queried)
		out.number("hit_tokens", e.Hit)
	}
	out.given("evicted_blocks", e.Evicted)
	if overlap > 0 {
		out.ms("overlap_ms", overlap)
	}
	w.slice(out, end)
	w.until = end
	if e.Evicted > 0 {
		out := w.mark(end, "eviction", catEviction)
		out.number("blocks", e.Evicted)
		w.instant(out)
	}
}

// close ends the counters of a batch, and of links.
func (w *engine) close() {
	if w.steps != 0 {
		w.batch(w.until, &events.Step{})
	}
	w.links.close()
}

// mark makes an instant on the worker's row of those.
func (w *engine) mark(at time.Duration, name, category string) *event {
	if w.marks == 0 {
		w.marks = w.row(w.group, "preemptions and evictions", 1)
	}
	return w.event(w.marks, at, name, category)
}

func (w *engine) preemption(at time.Duration, e *events.Preemption) {
	out := w.mark(at, "preemption", catPreemption)
	out.text("session_id", e.Session)
	out.id("request_id", e.Request)
	w.instant(out)
}

func (w *engine) fault(at time.Duration, e *events.Fault) {
	out := w.mark(at, "fault", catFault)
	out.text("action", e.Action)
	w.instant(out)
}

// blocks sets the counters of what the KV cache holds.
func (w *engine) blocks(at time.Duration, e *events.KV) {
	for _, c := range []struct {
		name  string
		count int
	}{
		{"KV used by requests", e.Used},
		{"KV of roots, active", e.Root.Active}, {"KV of roots, acting", e.Root.Acting}, {"KV of roots, paused", e.Root.Paused},
		{"KV of subagents, active", e.Subagent.Active}, {"KV of subagents, acting", e.Subagent.Acting},
		{"KV of subagents, paused", e.Subagent.Paused},
		{"KV cached", e.Cached},
	} {
		w.set(at, c.name, "blocks", float64(c.count))
	}
}

// reading sets the counters of a server's own metrics. Rates are since the reading before.
func (w *engine) reading(at time.Duration, e *events.Gauge) {
	set := func(name, unit string, v *float64, factor float64) {
		if v != nil {
			w.set(at, name, unit, *v*factor)
		}
	}
	set("batch occupancy (requests running)", "", e.Running, 1)
	set("requests waiting", "", e.Waiting, 1)
	set("KV utilization", "%", e.KVUtilization, 100)
	set("preemptions", "", e.Preemptions, 1)
	since := func(now, before *float64) float64 {
		if now == nil || before == nil || *now < *before { // the server began anew
			return math.NaN()
		}
		return *now - *before
	}
	seconds := (at - w.beforeAt).Seconds()
	w.set(at, "cache hit rate", "%", 100*since(e.Hit, w.before.Hit)/since(e.Queried, w.before.Queried))
	w.set(at, "prompt tokens per second", "", since(e.Prompt, w.before.Prompt)/seconds)
	w.set(at, "output tokens per second", "", since(e.Generated, w.before.Generated)/seconds)
	w.before, w.beforeAt = *e, at
}
