package trace

import (
	"cmp"
	"slices"
	"time"
)

// toolEdge is the start or the end of a tool execution.
type toolEdge struct {
	session string
	span    ToolSpan // Start, or End, is set
}

// toolKey names a tool call.
type toolKey struct{ session, id string }

// tool keeps a tool row: its span if the row tells it, else the edge that it tells.
func (p *rowParser) tool(rec *Record) error {
	e := rec.Tool
	s := p.session(rec, "")
	if s == nil {
		p.Read.SkippedRows++ // a tool of nobody
		return nil
	}
	at, err := optionalWallMs("event_time_unix_ms", rec.EventTimeMs)
	if err != nil {
		return err
	}
	start, err := optionalWallMs("started_at_unix_ms", e.StartedMs)
	if err != nil {
		return err
	}
	end, err := optionalWallMs("ended_at_unix_ms", e.EndedMs)
	if err != nil {
		return err
	}
	took, err := optionalMs("duration_ms", e.DurationMs)
	if err != nil {
		return err
	}
	span := ToolSpan{ID: e.ToolCallID, Class: p.name(e.ToolClass), Start: start, End: end}
	if p.keep != keepWork {
		span.Row = e
	}
	if rec.EventType == EventToolStart {
		if span.Start == NoTime {
			span.Start = at
		}
		if span.Start != NoTime {
			p.starts = append(p.starts, toolEdge{s.ID, span})
		}
		return nil
	}
	p.Read.Tools++
	span.Status = toolStatus(e.Status, rec.EventType)
	switch {
	case start != NoTime && end != NoTime && end >= start:
		// Wall times are rounded to milliseconds, the duration is not.
		if took != NoTime && (end-start-took).Abs() <= time.Millisecond {
			span.End = start + took
		}
	case start != NoTime && took != NoTime:
		span.End = start + took
	case took != NoTime && (end != NoTime || at != NoTime):
		if end == NoTime {
			span.End = at
		}
		span.Start = span.End - took
	case at != NoTime:
		span.End = at
		p.ends = append(p.ends, toolEdge{s.ID, span})
		return nil
	default:
		return nil
	}
	s.Tools = append(s.Tools, span)
	return nil
}

// toolStatus maps the spellings of a tool's status to ToolSpan.Status.
func toolStatus(status, event string) string {
	switch status {
	case "succeeded", "ok", "success":
		return "succeeded"
	case "error", "failed":
		return "error"
	case "cancelled", "canceled", "timeout":
		return "cancelled"
	}
	if event == EventToolError {
		return "error"
	}
	return "succeeded"
}

// pairTools gives a span to the ends of tools whose rows tell none: it begins at the last tool_start of the same call
// before it that no other end took. Ends without a start are dropped, or are points.
func pairTools(join *Joiner, starts, ends []toolEdge, points bool) {
	open := map[toolKey][]time.Duration{}
	slices.SortStableFunc(starts, func(a, b toolEdge) int { return cmp.Compare(a.span.Start, b.span.Start) })
	slices.SortStableFunc(ends, func(a, b toolEdge) int { return cmp.Compare(a.span.End, b.span.End) })
	for _, e := range ends {
		for len(starts) > 0 && starts[0].span.Start <= e.span.End {
			key := toolKey{starts[0].session, starts[0].span.ID}
			open[key] = append(open[key], starts[0].span.Start)
			starts = starts[1:]
		}
		key := toolKey{e.session, e.span.ID}
		switch n := len(open[key]); {
		case n > 0:
			e.span.Start = open[key][n-1]
			open[key] = open[key][:n-1]
		case points:
			e.span.Start = e.span.End
		default:
			continue
		}
		s := join.sessions[e.session]
		s.Tools = append(s.Tools, e.span)
	}
}

// addUnended gives sessions the tools that began and of which no row tells the end.
func addUnended(join *Joiner, starts []toolEdge) {
	told := map[toolKey]bool{}
	for _, s := range join.capture.Sessions {
		for _, t := range s.Tools {
			told[toolKey{s.ID, t.ID}] = true
		}
	}
	for _, e := range starts {
		if !told[toolKey{e.session, e.span.ID}] {
			e.span.End = NoTime
			s := join.sessions[e.session]
			s.Tools = append(s.Tools, e.span)
		}
	}
}
