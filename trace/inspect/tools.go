package inspect

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Tool is how long the executions of a tool took, and how well that could be known before.
type Tool struct {
	Name string `json:"name"`
	// Inferred tells that nobody reported when it ran: the times are those that turns waited for tools after a call that asked
	// for this one. Several different ones of one call cannot be told apart and count as SeveralTools.
	Inferred bool  `json:"inferred"`
	Errors   int64 `json:"errors"`
	// Seconds is the times, Total their sum.
	Seconds Spread        `json:"seconds"`
	Total   report.Figure `json:"total_s"`
	// CV is the standard deviation of the times over their mean. EstimateError is how far the mean of the executions that had
	// ended before one began was off, as the sum of the differences over the sum of the times.
	CV            report.Figure `json:"cv,omitzero"`
	EstimateError report.Figure `json:"estimate_error,omitzero"`
}

// Names of tools that have none.
const (
	UnnamedTool  = "(not named)"
	SeveralTools = "(several at once)"
)

// execution is one run of a tool.
type execution struct {
	group int32 // see trail.group
	span
}

type toolKey struct {
	name     string
	inferred bool
}

// tools returns the tools of the trace, those that took most time first.
func (t *trail) tools() []Tool {
	runs := map[toolKey][]execution{}
	errors := map[toolKey]int64{}
	add := func(key toolKey, group int32, from, to time.Duration) {
		runs[key] = append(runs[key], execution{group, span{from, to}})
	}
	for i := int32(0); i < int32(len(t.w.Calls)); {
		s, group := t.w.Sessions[t.w.Calls[i].Session], t.group(i)
		for _, sp := range s.Tools {
			key := toolKey{cmp.Or(sp.Class, UnnamedTool), false}
			if sp.Status == "error" {
				errors[key]++
			}
			if sp.End != trace.NoTime && sp.Start != trace.NoTime {
				add(key, group, sp.Start, max(sp.End, sp.Start))
			}
		}
		for last := t.session(i); i < last; i++ {
			if gap := t.w.Calls[i].Turn.Gap; gap.Tool > 0 && len(s.Tools) == 0 {
				from := t.spans[i].start - gap.Total()
				add(toolKey{t.asked(i), true}, group, from, from+gap.Tool)
			}
		}
	}
	list := []Tool{}
	for key, of := range runs {
		tool := newTool(of)
		tool.Name, tool.Inferred, tool.Errors = key.name, key.inferred, errors[key]
		list = append(list, tool)
	}
	slices.SortFunc(list, func(a, b Tool) int {
		return cmp.Or(cmp.Compare(b.Total.Value, a.Total.Value), cmp.Compare(a.Name, b.Name), compareBools(a.Inferred, b.Inferred))
	})
	return list
}

// compareBools puts false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// asked names the tool that the turn before a call asked for.
func (t *trail) asked(call int32) string {
	turn := t.w.Calls[call].Turn
	var before *trace.Turn
	for _, d := range turn.Deps {
		if d.Turn.Session == turn.Session && (before == nil || d.Turn.End > before.End) {
			before = d.Turn
		}
	}
	if before == nil || len(before.ToolCalls) == 0 {
		return UnnamedTool
	}
	name := before.ToolCalls[0].Name
	for _, c := range before.ToolCalls {
		if c.Name != name {
			return SeveralTools
		}
	}
	return cmp.Or(name, UnnamedTool)
}

// newTool sums up the executions of a tool.
func newTool(runs []execution) Tool {
	seconds := make([]float64, len(runs))
	var total time.Duration
	for i, r := range runs {
		seconds[i] = (r.end - r.start).Seconds()
		total += r.end - r.start
	}
	t := Tool{Seconds: newSpread(seconds), Total: report.Seconds(total), EstimateError: estimateError(runs)}
	mean, squares := t.Seconds.Mean.Value, 0.0
	for _, v := range seconds { // sorted now
		squares += float64((v - mean) * (v - mean))
	}
	if len(runs) > 1 {
		t.CV = report.Known(math.Sqrt(squares/float64(len(runs))) / mean)
	}
	return t
}

// estimateError is Tool.EstimateError.
func estimateError(runs []execution) report.Figure {
	slices.SortFunc(runs, func(a, b execution) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	ends := slices.Clone(runs)
	slices.SortFunc(ends, func(a, b execution) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.end, b.end)) })
	var known, off, sum float64 // seconds
	n := 0
	for _, r := range runs {
		for n < len(ends) && (ends[n].group < r.group || ends[n].group == r.group && ends[n].end <= r.start) {
			known += (ends[n].end - ends[n].start).Seconds()
			n++
		}
		if n > 0 {
			took := (r.end - r.start).Seconds()
			off += math.Abs(known/float64(n) - took)
			sum += took
		}
	}
	return report.Known(off / sum)
}
