package compare

import (
	"math"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Turns compares the calls of b with the same ones of a, phase by phase, and the programs whose calls are all on both sides. The
// workloads' captures are linked. What a side did not complete, or tells no time of, is left out.
func Turns(a, b *trace.Workload) report.TurnErrors {
	m := match(a, b)
	e := report.TurnErrors{Matched: int64(len(m.pairs)), UnmatchedBase: m.ofA.reasons(), Unmatched: m.ofB.reasons()}
	var ttft, tpot, e2e, hits, makespan []report.Point
	for _, p := range m.pairs {
		x, y := &a.Calls[p.a], &b.Calls[p.b]
		if !completed(x.Turn) || !completed(y.Turn) {
			e.Incomplete++
			continue
		}
		ttft = appendTimes(ttft, firstToken(x), firstToken(y))
		tpot = appendTimes(tpot, perToken(x), perToken(y))
		e2e = appendTimes(e2e, whole(x), whole(y))
		if x.Turn.Cached >= 0 && y.Turn.Cached >= 0 && x.Input > 0 {
			hits = append(hits, report.Point{Base: float64(x.Turn.Cached) / float64(x.Input), Value: float64(y.Turn.Cached) / float64(x.Input)})
		}
	}
	for _, p := range m.programs(a, b) {
		makespan = appendTimes(makespan, lasting(a, p.a), lasting(b, p.b))
	}
	e.Phases = []report.PhaseErrors{
		report.NewPhaseErrors("TTFT", "s", ttft),
		report.NewPhaseErrors("TPOT", "s", tpot),
		report.NewPhaseErrors("request", "s", e2e),
		report.NewPhaseErrors("program", "s", makespan),
		report.NewPhaseErrors("hit tokens", "share", hits),
	}
	return e
}

// reasons are the clauses of a report.
func (u unmatched) reasons() []report.Loss {
	var list []report.Loss
	if u.session > 0 {
		list = append(list, report.Loss{Count: u.session, Why: "in sessions that the other side does not have"})
	}
	if u.turn > 0 {
		list = append(list, report.Loss{Count: u.turn, Why: "that the same session of the other side does not have"})
	}
	return list
}

func completed(t *trace.Turn) bool { return t.Status == "" || t.Status == "ok" }

// unknown marks a time in seconds that a trace does not tell.
var unknown = math.NaN()

// appendTimes adds a pair of times that are both known.
func appendTimes(list []report.Point, a, b float64) []report.Point {
	if math.IsNaN(a) || math.IsNaN(b) {
		return list
	}
	return append(list, report.Point{Base: a, Value: b})
}

func firstToken(c *trace.Call) float64 {
	if c.Turn.TTFT < 0 || c.Output < 1 {
		return unknown
	}
	return c.Turn.TTFT.Seconds()
}

// whole is the time from arrival to the last token.
func whole(c *trace.Call) float64 {
	t := c.Turn
	if t.Start == trace.NoTime || t.End == trace.NoTime || t.End < t.Start {
		return unknown
	}
	return (t.End - t.Start).Seconds()
}

// perToken is the mean gap between tokens.
func perToken(c *trace.Call) float64 {
	gaps := whole(c) - firstToken(c)
	if c.Output < 2 || !(gaps >= 0) {
		return unknown
	}
	return gaps / float64(c.Output-1)
}

// lasting is the time from a program's first arrival to its last end; unknown unless all its calls completed.
func lasting(w *trace.Workload, program int32) float64 {
	p := &w.Programs[program]
	first, last := time.Duration(math.MaxInt64), trace.NoTime
	for i := p.First; i < p.Last; i++ {
		t := w.Calls[i].Turn
		if !completed(t) || math.IsNaN(whole(&w.Calls[i])) {
			return unknown
		}
		first, last = min(first, t.Start), max(last, t.End)
	}
	return (last - first).Seconds()
}
