package perfetto

import (
	"time"

	"github.com/agentsim/agentsim/trace"
)

// criticalPath is the chain of calls and waits that decides when a program ends: back from the call that ends last, each
// time to what that call waited for last.
type criticalPath struct {
	calls int
	// length is the time from the start of its first call to the end of its last one; model and gap are its parts.
	length, model time.Duration
	gap           trace.Gap
}

// share is a part of the path, from 0 to 1.
func (c *criticalPath) share(part time.Duration) float64 {
	if c.length <= 0 {
		return 0
	}
	return float64(part) / float64(c.length)
}

// findCritical marks the calls on the program's critical path and adds up its parts.
func (p *plan) findCritical(g *program) {
	from, to := p.sessions[g.first].first, p.sessions[g.last-1].last
	at := from
	for n := from; n < to; n++ {
		if p.calls[n].end > p.calls[at].end {
			at = n
		}
	}
	path := &g.critical
	until := p.calls[at].end // up to where the call counts
	for {
		c := &p.calls[at]
		c.critical = true
		path.calls++
		path.model += max(until-c.start, 0)
		path.length += max(until-c.start, 0)
		before, since := p.waitedFor(at)
		if before < 0 || p.calls[before].critical || p.calls[before].start > c.start {
			return
		}
		gap := clip(p.gap(at, since), c.start-since)
		path.gap.Tool += gap.Tool
		path.gap.Human += gap.Human
		path.gap.Other += gap.Other
		path.length += gap.Total()
		at, until = before, since
	}
}

// waitedFor returns the call that a call waited for last, -1 for none, and since when it did not any more.
func (p *plan) waitedFor(n int32) (before int32, since time.Duration) {
	c := &p.calls[n]
	before, since = -1, c.start
	for _, d := range c.Deps {
		at := p.index[d.Turn]
		end := p.calls[at].end
		if d.OnDispatch {
			end = p.calls[at].start
		}
		if end = min(end, c.start); before < 0 || end > since {
			before, since = at, end
		}
	}
	return before, since
}

// gap splits the time between what a call waited for and its start: as a run of agentsim wrote it down, or as the capture
// infers it.
func (p *plan) gap(n int32, since time.Duration) trace.Gap {
	c := &p.calls[n]
	if r := run(c.Turn); r != nil && r.Gap != (trace.Gap{}) {
		return r.Gap
	}
	return clip(c.Gap, c.start-since)
}

// clip makes the parts of a gap add up to a total. What is missing is other time.
func clip(g trace.Gap, total time.Duration) trace.Gap {
	g.Tool = min(g.Tool, total)
	g.Human = min(g.Human, total-g.Tool)
	g.Other = total - g.Tool - g.Human
	return g
}
