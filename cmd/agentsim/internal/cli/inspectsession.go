package cli

import (
	"fmt"
	"strings"

	"github.com/agentsim/agentsim/trace/inspect"
	"github.com/agentsim/agentsim/trace/report"
)

// sessionColumns is the width of what stands before the remarks about a turn.
const sessionColumns = 64

// session prints a session turn by turn, and those below it, indented, behind the turns that spawned them. Starts count from
// a time of the trace, in seconds.
func (p *inspectPage) session(s *inspect.Session, depth int, zero float64) {
	indent := strings.Repeat("  ", min(depth, 12))
	name := report.Shorten(s.ID, 60)
	if s.Class != "" {
		name += " (" + report.Shorten(s.Class, nameWidth) + ")"
	}
	if depth == 0 && s.Parent != "" {
		name += ", spawned by " + report.Shorten(s.Parent, 60)
	}
	turns := counted(int64(len(s.Turns)), "turn")
	if depth == 0 && zero > 0 {
		turns += fmt.Sprintf(", from %s of the trace on", report.Known(zero).Time())
	}
	p.line("%s%s: %s", indent, name, turns)
	if depth == 0 {
		p.line("%6s %10s %9s %8s %8s %8s %7s  %s", "turn", "start", "took", "prompt", "cached", "reusable", "output", "waited for, tools asked for")
	}
	for i := range s.Turns {
		t := &s.Turns[i]
		room := max(p.width-len(indent)-sessionColumns, nameWidth)
		line := fmt.Sprintf("%s%6d %10s %9s %8s %8s %8s %7s  %s", indent, t.Turn, fmt.Sprintf("%.1f s", t.StartS.Value-zero), t.TookS.Time(), report.Known(t.Input),
			t.Cached, report.Known(t.Reusable), report.Known(t.Output), report.Shorten(p.remarks(t), room))
		p.line("%s", strings.TrimRight(line, " "))
		for _, child := range t.Spawned {
			p.session(child, depth+1, zero)
		}
	}
	for _, child := range s.Unplaced {
		p.session(child, depth+1, zero)
	}
}

// remarks say what a turn waited for, what it asked for, and what is special about it.
func (p *inspectPage) remarks(t *inspect.Turn) string {
	var list []string
	wait := func(what string, f report.Figure) {
		if f.Value > 0 {
			list = append(list, what+" "+f.Time())
		}
	}
	wait("tools", t.ToolS)
	wait("people", t.HumanS)
	wait("other", t.OtherS)
	switch n := len(t.Joins); {
	case n == 1:
		list = append(list, "joins "+report.Shorten(t.Joins[0], nameWidth))
	case n > 1:
		list = append(list, fmt.Sprintf("joins %d sessions", n))
	}
	if len(t.Tools) > 0 {
		list = append(list, "asks for "+report.Shorten(tally(t.Tools), nameWidth))
	}
	if t.Compaction {
		list = append(list, "compaction")
	}
	if t.Status != "" {
		list = append(list, report.Shorten(t.Status, nameWidth))
	}
	return strings.Join(list, ", ")
}

// tally lists names, each once with how often it is there, in the order in which they first are.
func tally(names []string) string {
	var order []string
	times := map[string]int{}
	for _, name := range names {
		if times[name]++; times[name] == 1 {
			order = append(order, name)
		}
	}
	for i, name := range order {
		if n := times[name]; n > 1 {
			order[i] = fmt.Sprintf("%d %s", n, name)
		}
	}
	return strings.Join(order, " + ")
}
