package perfetto

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// tool is the execution of a tool, as a harness reported it or as it follows from the calls around it.
type tool struct {
	trace.ToolSpan
	inferred bool
	endless  bool // it is not told how long it took
	// from is the call that asked for it, to the one that got its result; -1 for none.
	from, to int32
	// place is that of an inferred one among the tools that its call asked for.
	place int
}

// unnamed is the class of a tool of which only its time is known.
const unnamed = "tool"

// tools adds the tools of a session to an empty list, by start and by the call that asked.
func (p *plan) tools(list []tool, s *session) []tool {
	list = p.reported(list, s)
	reported, served := map[string]bool{}, map[int32]bool{}
	for i := range list {
		reported[list[i].ID] = true
		served[list[i].to] = true
	}
	for n := s.first; n < s.last; n++ {
		list = p.inferred(list, s, n, reported, served)
	}
	slices.SortStableFunc(list, func(a, b tool) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.from, b.from)) })
	return list
}

// reported returns the tools that a harness reported. One belongs to the call that asked for its id, else to the last one
// that had ended before it began, and its result goes to the first call that began after it.
func (p *plan) reported(list []tool, s *session) []tool {
	if len(s.Tools) == 0 {
		return list
	}
	asked := map[string]int32{}
	byEnd := make([]int32, 0, s.last-s.first)
	for n := s.first; n < s.last; n++ {
		byEnd = append(byEnd, n)
		for _, c := range p.calls[n].ToolCalls {
			if _, ok := asked[c.ID]; !ok && c.ID != "" {
				asked[c.ID] = n
			}
		}
	}
	slices.SortStableFunc(byEnd, func(a, b int32) int { return cmp.Compare(p.calls[a].end, p.calls[b].end) })
	ended := int32(-1)
	for _, span := range s.Tools {
		t := tool{ToolSpan: span, to: -1}
		t.Class = cmp.Or(t.Class, unnamed)
		if t.End == trace.NoTime {
			t.endless, t.End = true, t.Start
		}
		t.End = max(t.End, t.Start)
		for len(byEnd) > 0 && p.calls[byEnd[0]].end <= t.Start+p.capture.Resolution {
			ended, byEnd = byEnd[0], byEnd[1:]
		}
		t.from = ended
		if n, ok := asked[t.ID]; ok {
			t.from = n
		}
		if t.from >= 0 && p.calls[t.from].start > t.Start {
			t.from = -1
		}
		if !t.endless {
			t.to = p.next(s, max(t.Start, t.End-p.capture.Resolution), t.from)
		}
		list = append(list, t)
	}
	return list
}

// next is the first call of a session behind another one that began at a time or later; -1 for none.
func (p *plan) next(s *session, at time.Duration, after int32) int32 {
	calls := p.calls[s.first:s.last]
	i, _ := slices.BinarySearchFunc(calls, at, func(c call, at time.Duration) int { return cmp.Compare(c.start, at) })
	if n := max(s.first+int32(i), after+1); n < s.last {
		return n
	}
	return -1
}

// inferred adds the tools that a call asked for and nobody reported. They ran from its end on, for the tool time before the
// session's next call, or up to that call where nothing tells the parts of the wait. Parallel ones cannot be told apart.
func (p *plan) inferred(list []tool, s *session, n int32, reported map[string]bool, served map[int32]bool) []tool {
	c := &p.calls[n]
	t := tool{inferred: true, from: n, to: -1, ToolSpan: trace.ToolSpan{Start: c.end, End: c.end}, endless: true}
	var took time.Duration
	if n+1 < s.last && p.calls[n+1].start >= c.end {
		next := &p.calls[n+1]
		_, since := p.waitedFor(n + 1)
		since = max(since, c.end)
		gap := p.gap(n+1, since)
		took = gap.Tool
		t.to = n + 1
		switch {
		case took > 0:
			t.End, t.endless = min(since+took, next.start), false
		case next.Trigger != "user_message" && gap.Human == 0:
			t.End, t.endless = next.start, false
		}
	}
	for i, asked := range c.ToolCalls {
		if reported[asked.ID] && asked.ID != "" {
			continue
		}
		t.ID, t.Class, t.place = asked.ID, cmp.Or(asked.Name, unnamed), i
		list = append(list, t)
	}
	if len(c.ToolCalls) == 0 && took > 0 && !served[t.to] {
		t.Class = unnamed
		list = append(list, t)
	}
	return list
}

// busy returns when tools of the session ran, as intervals that do not touch, by start.
func (s *session) busy() []interval {
	var list []interval
	for _, t := range s.Tools { // Link sorted them
		switch last := len(list) - 1; {
		case t.End == trace.NoTime || t.End <= t.Start:
		case last >= 0 && t.Start <= list[last].end:
			list[last].end = max(list[last].end, t.End)
		default:
			list = append(list, interval{t.Start, t.End})
		}
	}
	return list
}

// interval is a stretch of time.
type interval struct{ start, end time.Duration }

// within returns the parts of intervals, which are by start, between two times.
func within(list []interval, from, to time.Duration) []interval {
	i, _ := slices.BinarySearchFunc(list, from, func(v interval, at time.Duration) int { return cmp.Compare(v.end, at) })
	var parts []interval
	for _, v := range list[i:] {
		v.start, v.end = max(v.start, from), min(v.end, to)
		if v.start >= to {
			break
		}
		if v.end > v.start {
			parts = append(parts, v)
		}
	}
	return parts
}
