package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/trace/inspect"
	"github.com/agentsim/agentsim/trace/report"
)

// What a page shows of long lists; the JSON form has all.
const (
	shownTools  = 12
	shownRoles  = 6
	shownModels = 4
	nameWidth   = 24
)

func (p *inspectPage) summary(s *inspect.Summary) {
	p.head(s)
	p.shape(s)
	p.reuse(s)
	p.waits(s)
	p.tools(s)
	p.roles(s)
	p.overTime(s)
	p.kv(s)
	p.largest(s)
}

// counted prints a number and a noun.
func counted(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return grouped(n) + " " + noun
}

// head says what the trace is.
func (p *inspectPage) head(s *inspect.Summary) {
	sessions := counted(s.Sessions, "session")
	if s.Subagents > 0 {
		sessions += fmt.Sprintf(" (%s, at most %d deep)", counted(s.Subagents, "subagent"), len(s.Shape.Depth)-1)
	}
	span := "in " + s.SpanS.Time()
	if !s.SharedClock {
		span = fmt.Sprintf("without a common clock, the longest program in %s", s.SpanS.Time())
	}
	p.paragraph("%s: %s, %s, %s, %s", s.Format, counted(s.Programs, "program"), sessions, counted(s.Turns, "turn"), span)
	var names []string
	for _, m := range s.Models[:min(len(s.Models), shownModels)] {
		if m.Name != "" {
			names = append(names, fmt.Sprintf("%s (%s)", report.Shorten(m.Name, nameWidth+8), grouped(m.Turns)))
		}
	}
	if n := len(s.Models) - shownModels; n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	if len(names) > 0 {
		p.paragraph("models: %s", strings.Join(names, ", "))
	}
	var notes []string
	note := func(n int64, what string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf("%s of %s %s", grouped(n), counted(s.Turns, "turn"), what))
		}
	}
	note(s.Untimed, "do not tell their start: as soon as what they wait for allows")
	note(s.Endless, "do not tell their end")
	note(s.Filled, "have a start or an end that a rule filled")
	note(s.Cancelled, "were cancelled")
	note(s.Failed, "failed")
	for _, n := range notes {
		p.paragraph("note: %s", n)
	}
}

// spread is the cells of a distribution.
func spread(name string, d *inspect.Spread, text func(report.Figure) string) []string {
	return []string{name, grouped(d.Count), text(d.Min), text(d.Mean), text(d.P50), text(d.P90), text(d.P99), text(d.Max), histogram(d)}
}

// shape prints how sessions and turns are made.
func (p *inspectPage) shape(s *inspect.Summary) {
	rows := [][]string{{"shape", "count", "min", "mean", "p50", "p90", "p99", "max", drawn}}
	add := func(name string, d *inspect.Spread, text func(report.Figure) string) {
		if d.Count > 0 && d.Max.Value > 0 {
			rows = append(rows, spread(name, d, text))
		}
	}
	shape := &s.Shape
	if shape.SessionTurns.Max.Value > 1 { // else a session is a prompt
		add("turns of a session", &shape.SessionTurns, report.Figure.String)
		add("subagents of a program", &shape.ProgramSubagents, report.Figure.String)
		add("first prompt, tokens", &shape.FirstPrompt, report.Figure.String)
		add("longest prompt", &shape.PeakPrompt, report.Figure.String)
	}
	add("prompt of a turn", &shape.Prompt, report.Figure.String)
	add("growth since the last", &shape.Growth, report.Figure.String)
	add("output of a turn", &shape.Output, report.Figure.String)
	add("time of a call", &shape.CallS, report.Figure.Time)
	p.table(rows)
	var at []string
	for _, m := range s.Shape.PromptAt {
		at = append(at, fmt.Sprintf("%d: %s", m.Turn, m.P50))
	}
	if len(at) > 1 {
		p.paragraph("median prompt at turn %s", strings.Join(at, ", "))
	}
	if s.Shape.Compactions+s.Shape.Shrunk > 0 {
		p.paragraph("contexts shrank to less than half %s; %s marked as compaction", times(s.Shape.Shrunk), counted(s.Shape.Compactions, "turn"))
	}
	if depth := s.Shape.Depth; len(depth) > 2 {
		var levels []string
		for d, n := range depth[1:min(len(depth), 8)] {
			levels = append(levels, fmt.Sprintf("%d deep: %s", d+1, grouped(n)))
		}
		p.paragraph("subagents %s", strings.Join(levels, ", "))
	}
}

// times prints "once" or "12 times".
func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return grouped(n) + " times"
}

// reuse prints tokens and what caches hit.
func (p *inspectPage) reuse(s *inspect.Summary) {
	t := &s.Tokens
	p.line("")
	text := fmt.Sprintf("tokens: %s of prompts, %s generated", report.Known(t.Input), report.Known(t.Output))
	if t.Reasoning > 0 {
		text += fmt.Sprintf(" (%s to reason)", report.Known(t.Reasoning))
	}
	if t.History > 0 {
		text += fmt.Sprintf("; %s of prompts are from before the trace began", report.Known(t.History))
	}
	p.paragraph("%s", text)
	rows := [][]string{{"reuse of prompts", "hit rate", remark}}
	if t.CachedOf > 0 {
		of := ""
		if t.CachedOf < t.Input {
			of = fmt.Sprintf("of the %s prompt tokens that tell it", report.Known(t.CachedOf))
		}
		rows = append(rows, []string{"recorded", s.Reuse.Recorded.Share(), of})
	}
	o := s.Reuse.OutputTokens
	of := fmt.Sprintf("%s of %s generated tokens come back in prompts", report.Known(o.Known+o.Inferred), report.Known(o.Known+o.Inferred+o.Unknown))
	if o.Inferred > 0 {
		of += ", inferred"
	}
	p.table(append(rows, []string{"endless cache of prompts", s.Reuse.Prompts.Share(), ""},
		[]string{"endless cache, outputs too", s.Reuse.Outputs.Share(), of}))
}

// waits prints what went on between turns.
func (p *inspectPage) waits(s *inspect.Summary) {
	rows := [][]string{{"waits", "count", "total", "mean", "p50", "p90", "p99", "max", drawn}}
	add := func(name string, w *inspect.Wait) {
		if w.Count > 0 {
			row := spread(name, &w.Spread, report.Figure.Time)
			row[2] = w.Total.Time()
			rows = append(rows, row)
		}
	}
	add("for tools", &s.Waits.ToolS)
	add("for people", &s.Waits.HumanS)
	add("other", &s.Waits.OtherS)
	if len(rows) > 1 {
		p.table(rows)
	}
}

// enoughRuns of a tool say something of how well its times can be known before.
const enoughRuns = 5

// tools prints how long tools take and how well that could be known.
func (p *inspectPage) tools(s *inspect.Summary) {
	if len(s.Tools) == 0 {
		return
	}
	rows := [][]string{{"tool", "count", "errors", "total", "p50", "p90", "p99", "CV", "estimate"}}
	inferred := false
	for _, t := range s.Tools[:min(len(s.Tools), shownTools)] {
		name := report.Shorten(t.Name, nameWidth)
		if t.Inferred {
			name, inferred = name+" *", true
		}
		d := &t.Seconds
		if d.Count < enoughRuns {
			t.CV, t.EstimateError = report.Figure{}, report.Figure{}
		}
		rows = append(rows, []string{name, grouped(d.Count), grouped(t.Errors), t.Total.Time(), d.P50.Time(), d.P90.Time(), d.P99.Time(),
			t.CV.String(), t.EstimateError.Share()})
	}
	p.table(rows)
	p.more(len(s.Tools) - shownTools)
	if inferred {
		p.paragraph("* not reported: what turns waited for tools")
	}
	p.paragraph("estimate: how far the mean of a tool's earlier runs is off")
}

// more says that a list has further entries.
func (p *inspectPage) more(n int) {
	if n > 0 {
		p.line("and %d more (--json)", n)
	}
}

// roles prints how the calls of roots, subagents, classes and models differ.
func (p *inspectPage) roles(s *inspect.Summary) {
	if len(s.Roles) < 2 {
		return
	}
	rows := [][]string{{"role", "sessions", "turns", "output p50", "p90", "tools p50", "p90", "awaited"}}
	for _, r := range s.Roles[:min(len(s.Roles), shownRoles)] {
		rows = append(rows, []string{report.Shorten(roleName(s, &r), 40), grouped(r.Sessions), grouped(r.Turns), r.Output.P50.String(), r.Output.P90.String(),
			r.ToolS.P50.Time(), r.ToolS.P90.Time(), r.Awaited.Share()})
	}
	p.table(rows)
	p.more(len(s.Roles) - shownRoles)
}

// roleName is a role of a trace in words.
func roleName(s *inspect.Summary, r *inspect.Role) string {
	name := "root"
	if r.Subagent {
		name = "subagent"
	}
	if r.Class != "" && r.Class != name {
		name += " " + r.Class
	}
	if r.Model != "" && len(s.Models) > 1 {
		name += ", " + r.Model
	}
	return name
}

// overTime draws how much there is at a time.
func (p *inspectPage) overTime(s *inspect.Summary) {
	o := s.OverTime
	if o == nil || s.SpanS.Value == 0 {
		return
	}
	rows := [][]string{{"over time", "mean", "peak", "a column is " + o.PartS.Time()}}
	add := func(name string, series *inspect.Series) {
		var values []float64
		for _, f := range series.Means {
			values = append(values, f.Value)
		}
		rows = append(rows, []string{name, series.Mean.String(), series.Peak.String(), sparkline(values)})
	}
	add("turns per second", &o.Starts)
	if s.Endless < s.Turns {
		add("programs", &o.Programs)
		add("calls", &o.Calls)
	}
	if o.WorkingSet.Peak.Known {
		add("KV working set", &o.WorkingSet)
	}
	if room := s.KV.Pool; room.Known && o.AbovePool.Value > 0 {
		above := ""
		for _, f := range o.WorkingSet.Means {
			mark := " "
			if f.Value > room.Value {
				mark = "^"
			}
			above += mark
		}
		rows = append(rows, []string{"above the room", o.AbovePool.Share(), "", above})
	}
	p.table(rows)
}

// kv prints what the trace needs of KV caches, beside the room that a worker has.
func (p *inspectPage) kv(s *inspect.Summary) {
	k := &s.KV
	rows := [][]string{{"KV", "tokens", "of the room", remark}}
	add := func(name string, f report.Figure, text string) {
		if !f.Known {
			return
		}
		of := "-"
		if k.Pool.Known {
			of = multiple(f.Value / k.Pool.Value)
		}
		rows = append(rows, []string{name, f.String(), of, text})
	}
	if o := s.OverTime; o != nil {
		add("working set, peak", o.WorkingSet.Peak, "in use, or used and needed again")
		add("working set, mean", o.WorkingSet.Mean, "")
	}
	if s.Programs > 1 {
		add("of a program alone, p50", k.ProgramPeak.P50, "at its peak")
		add("of a program alone, p99", k.ProgramPeak.P99, "")
	}
	add("endless cache", report.Known(k.Distinct), "all that is ever computed")
	p.table(rows)
	if !k.Pool.Known {
		p.paragraph("the room of a worker is not known: name a model (--model, --gpu, --tp)")
		return
	}
	text := fmt.Sprintf("the room: %s tokens on %s", k.Pool, p.pool.name)
	if k.PoolPrograms.Known && s.Programs > 1 {
		text += fmt.Sprintf(", for %s programs of mean working set", k.PoolPrograms)
	}
	p.paragraph("%s", text)
}

// multiple prints a part of something as a share, and what is ten times as much or more as a multiple.
func multiple(part float64) string {
	if part < 10 {
		return report.Known(part).Share()
	}
	return "x" + report.Known(part).String()
}

// largest prints the largest sessions.
func (p *inspectPage) largest(s *inspect.Summary) {
	classes := slices.ContainsFunc(s.Largest, func(l inspect.Large) bool { return l.Class != "" })
	rows := [][]string{{"largest sessions", "class", "turns", "spawned", "longest", "prompts", "cached", "output", "time", "tools", "people"}}
	for _, l := range s.Largest {
		rows = append(rows, []string{report.Shorten(l.ID, nameWidth), report.Shorten(l.Class, 12), grouped(l.Turns), grouped(l.Children),
			report.Known(l.Peak).String(), report.Known(l.Input).String(), l.Cached.Share(), report.Known(l.Output).String(),
			l.SpanS.Time(), l.ToolS.Time(), l.HumanS.Time()})
	}
	if !classes {
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 1, 2)
		}
	}
	p.table(rows)
}
