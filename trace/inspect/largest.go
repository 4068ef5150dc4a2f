package inspect

import (
	"cmp"
	"slices"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Large is one of the sessions with the most prompt and generated tokens.
type Large struct {
	ID    string `json:"id"`
	Class string `json:"class,omitempty"`
	// Children is the sessions that it spawned itself.
	Turns    int64         `json:"turns"`
	Children int64         `json:"children"`
	Peak     int64         `json:"peak_prompt"`
	Input    int64         `json:"input_tokens"`
	Output   int64         `json:"output_tokens"`
	Cached   report.Figure `json:"cached,omitzero"` // share of the prompt tokens of turns that tell it
	SpanS    report.Figure `json:"span_s,omitzero"`
	ToolS    report.Figure `json:"tool_s"`
	HumanS   report.Figure `json:"human_s"`
}

// maxLargest is how many sessions are shown.
const maxLargest = 10

// largest returns the largest sessions, the largest first.
func (t *trail) largest() []Large {
	type size struct {
		first  int32
		tokens int64
	}
	var sizes []size
	children := make([]int64, len(t.w.Sessions))
	for i := int32(0); i < int32(len(t.w.Calls)); {
		s := size{first: i}
		for last := t.session(i); i < last; i++ {
			s.tokens += int64(t.w.Calls[i].Input) + int64(t.w.Calls[i].Output)
		}
		sizes = append(sizes, s)
		if at := t.w.Calls[s.first].Session; t.parents[at] != at {
			children[t.parents[at]]++
		}
	}
	slices.SortFunc(sizes, func(a, b size) int { return cmp.Or(cmp.Compare(b.tokens, a.tokens), cmp.Compare(a.first, b.first)) })
	var list []Large
	for _, s := range sizes[:min(len(sizes), maxLargest)] {
		list = append(list, t.large(s.first, children[t.w.Calls[s.first].Session]))
	}
	return list
}

// large sums up the session that begins at a call.
func (t *trail) large(first int32, children int64) Large {
	s := t.w.Sessions[t.w.Calls[first].Session]
	l := Large{ID: s.ID, Class: s.Class, Children: children}
	var gap trace.Gap
	var cached, of int64
	from, to := t.spans[first].start, t.spans[first].end
	for i, last := first, t.session(first); i < last; i++ {
		c := &t.w.Calls[i]
		l.Turns++
		l.Peak = max(l.Peak, int64(c.Input))
		l.Input += int64(c.Input)
		l.Output += int64(c.Output)
		if c.Turn.Cached != trace.Unknown {
			cached += int64(c.Turn.Cached)
			of += int64(c.Input)
		}
		gap.Tool += c.Turn.Gap.Tool
		gap.Human += c.Turn.Gap.Human
		from, to = min(from, t.spans[i].start), max(to, t.spans[i].end)
	}
	if l.Cached = share(cached, of); to > from {
		l.SpanS = report.Seconds(to - from)
	}
	l.ToolS, l.HumanS = report.Seconds(gap.Tool), report.Seconds(gap.Human)
	return l
}
