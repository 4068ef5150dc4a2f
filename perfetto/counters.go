package perfetto

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// change is a step of a counter.
type change struct {
	at     time.Duration
	by     int32
	worker int32 // of a counter that each worker has
}

// drawCounters draws what follows from the calls, in scope or not, whatever trace they are of: programs that live, requests
// that run and wait, tokens per second and cache hits. A sidecar knows the first of them better, and the workers.
func (p *picture) drawCounters() {
	list := make([]change, 0, 2*len(p.calls))
	if !p.countsPrograms {
		for i := range p.programs {
			list = append(list, change{at: p.programs[i].start, by: +1}, change{at: p.programs[i].end, by: -1})
		}
		p.drawChanges(p.top, "programs live", rankCounters, list)
	}
	list = list[:0]
	for i := range p.calls {
		if c := &p.calls[i]; !c.endless {
			list = append(list, change{at: c.admitted(), by: +1}, change{at: c.end, by: -1})
		}
	}
	p.drawChanges(p.top, "requests running", rankCounters+4, list)
	list = list[:0]
	for i := range p.calls {
		if c := &p.calls[i]; !c.endless && c.Detail != nil && c.Detail.PrefillWait != trace.NoTime {
			list = append(list, change{at: c.start, by: +1}, change{at: c.admitted(), by: -1})
		}
	}
	p.drawChanges(p.top, "requests waiting", rankCounters+5, list)
	p.drawQueueDepth()
	p.drawTokenRate()
	p.drawHitRate()
	if !p.showsWorkers {
		p.drawWorkers(list[:0])
	}
}

// admitted is when the prefill began, as far as that is told.
func (c *call) admitted() time.Duration {
	if c.Detail != nil && c.Detail.PrefillWait != trace.NoTime {
		return min(c.start+c.Detail.PrefillWait, c.end)
	}
	return c.start
}

// drawWorkers draws the requests that run on each worker.
func (p *picture) drawWorkers(list []change) {
	numbers := map[place]int32{}
	for i, w := range p.view.workers {
		numbers[w] = int32(i)
	}
	for i := range p.calls {
		c := &p.calls[i]
		if w, ok := servedBy(c.Turn); ok && !c.endless && p.draws(w) {
			list = append(list, change{c.admitted(), +1, numbers[w]}, change{c.end, -1, numbers[w]})
		}
	}
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(a.worker, b.worker) })
	for len(list) > 0 {
		n := list[0].worker
		end := slices.IndexFunc(list, func(c change) bool { return c.worker != n })
		if end < 0 {
			end = len(list)
		}
		group := p.group(p.top, fmt.Sprintf("worker %v", p.view.workers[n]), rankWorkers+n, "")
		p.drawChanges(group, "requests running", 0, list[:end])
		list = list[end:]
	}
}

// drawChanges draws a counter that begins at 0, or at what it is when the scope begins. Changes at one time are one.
func (p *picture) drawChanges(group uint64, name string, rank int32, list []change) {
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	g := p.gauge(group, name, "", rank)
	var value float64
	for i, c := range list {
		if i > 0 && list[i-1].at < p.From && c.at > p.From {
			g.set(p.From, value)
		}
		value += float64(c.by)
		if last := i == len(list)-1; (last || list[i+1].at != c.at) && p.sees(c.at, c.at) {
			g.set(c.at, value)
		}
	}
}

// drawQueueDepth draws the router's queue as calls found it.
func (p *picture) drawQueueDepth() {
	var found []int32
	for i := range p.calls {
		if c := &p.calls[i]; c.Detail != nil && c.Detail.QueueDepth >= 0 && p.sees(c.start, c.start) {
			found = append(found, int32(i))
		}
	}
	if len(found) == 0 {
		return
	}
	slices.SortStableFunc(found, func(a, b int32) int { return cmp.Compare(p.calls[a].start, p.calls[b].start) })
	g := p.gauge(p.top, "router queue depth", "", rankCounters+6)
	for _, n := range found {
		g.set(p.calls[n].start, float64(p.calls[n].Detail.QueueDepth))
	}
}

// maxBuckets bounds the samples of a rate.
const maxBuckets = 10_000

// bucketWidth is a second, or longer for long captures.
func (p *picture) bucketWidth() (width time.Duration, buckets int) {
	end := p.latest()
	width = time.Second
	for end/width >= maxBuckets {
		width *= 2
	}
	return width, int(end/width) + 1
}

// drawTokenRate draws the generated tokens per second: those of a call are spread evenly from its first token to its end.
func (p *picture) drawTokenRate() {
	width, n := p.bucketWidth()
	rates := make([]float64, n)
	told := false
	for i := range p.calls {
		c := &p.calls[i]
		if c.firstToken == trace.NoTime || c.endless || c.Output == 0 {
			continue
		}
		told = true
		from, to := c.firstToken, max(c.end, c.firstToken+1)
		perNano := float64(c.Output) / float64(to-from)
		for at := from; at < to; {
			b := int(at / width)
			next := min(to, time.Duration(b+1)*width)
			rates[min(b, n-1)] += perNano * float64(next-at)
			at = next
		}
	}
	if !told {
		return
	}
	g := p.gauge(p.top, "output tokens per second", "", rankCounters+7)
	for b, tokens := range rates {
		if at := time.Duration(b) * width; p.sees(at, at+width) {
			g.set(at, tokens/width.Seconds())
		}
	}
}

// drawHitRate draws the share of prompt tokens that the prefix cache had, of the calls that got their first token in each
// stretch of time, or that began in it where that is not told.
func (p *picture) drawHitRate() {
	width, n := p.bucketWidth()
	type bucket struct{ hit, input int64 }
	buckets := make([]bucket, n)
	told := false
	for i := range p.calls {
		c := &p.calls[i]
		if c.Cached == trace.Unknown || c.Input == 0 {
			continue
		}
		told = true
		b := &buckets[min(max(c.start, c.firstToken)/width, time.Duration(n-1))]
		b.hit, b.input = b.hit+int64(c.Cached), b.input+int64(c.Input)
	}
	if !told {
		return
	}
	g := p.gauge(p.top, "cache hit rate", "%", rankCounters+8)
	for i, b := range buckets {
		if at := time.Duration(i) * width; b.input > 0 && p.sees(at, at+width) {
			g.set(at, 100*float64(b.hit)/float64(b.input))
		}
	}
}
