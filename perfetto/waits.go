package perfetto

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// wait is what went on between a call and what it waited for.
type wait struct {
	call  int32
	since time.Duration
	trace.Gap
	stated bool // by a run of agentsim
}

// drawWaits draws what the session's calls waited for besides other calls: tools, parallel ones once, and people. The sum
// of either is that of the gaps from which reports are made.
func (p *picture) drawWaits(g *program, s *session, group uint64) {
	var waits []wait
	for n := s.first; n < s.last; n++ {
		if w := p.wait(n); p.calls[n].shown && w.Tool+w.Human > 0 {
			waits = append(waits, w)
		}
	}
	slices.SortStableFunc(waits, func(a, b wait) int { return cmp.Compare(a.since, b.since) })
	rows, busy := p.rows(group, "waiting", rankWaits), s.busy()
	for _, w := range waits {
		c := &p.calls[w.call]
		track := rows.take(w.since, c.start)
		for _, part := range w.parts(busy, c.start) {
			e := p.event(track, part.start, "tools", catToolTime)
			if part.human {
				e.name, e.categories = "user", labels{catHumanTime}
			}
			e.text("session_id", s.ID)
			e.id("next_request_id", c.ID)
			if c.critical {
				e.categories.add(catCritical)
				e.real("critical_share", g.critical.share(part.end-part.start))
			}
			p.slice(e, part.end)
		}
	}
}

func (p *plan) wait(n int32) wait {
	c := &p.calls[n]
	if r := run(c.Turn); r != nil && r.Gap != (trace.Gap{}) {
		return wait{n, c.start - r.Gap.Total(), r.Gap, true}
	}
	before, since := p.waitedFor(n)
	if before < 0 {
		return wait{call: n, since: since}
	}
	return wait{n, since, p.gap(n, since), false}
}

// waitPart is a time that went to tools or to people.
type waitPart struct {
	interval
	human bool
}

// parts returns the times that went to tools and to people, in order. Where the capture tells when tools ran, people had
// the rest; where only the lengths are told, tools come first and people last.
func (w *wait) parts(busy []interval, until time.Duration) []waitPart {
	ran := within(busy, w.since, until)
	if w.stated || len(ran) == 0 {
		ran = []interval{{w.since, w.since + w.Tool}}
	}
	var parts []waitPart
	at := w.since
	if w.stated || w.Other > 0 {
		at = until - w.Human
	}
	for _, v := range ran {
		if w.Human > 0 && v.start > at {
			parts = append(parts, waitPart{interval{at, v.start}, true})
		}
		if v.end > v.start {
			parts = append(parts, waitPart{v, false})
		}
		at = max(at, v.end)
	}
	if w.Human > 0 && until > at {
		parts = append(parts, waitPart{interval{at, until}, true})
	}
	return parts
}
