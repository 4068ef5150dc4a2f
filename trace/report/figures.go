package report

import (
	"fmt"
	"slices"
)

// sheet is a table of the page.
type sheet struct {
	Title string
	Heads []string
	Rows  []sheetRow
	Notes []string
}

type sheetRow struct {
	Name  string
	Cells []string
}

// entry is a column of a sheet: the same figure of each run, as text.
type entry struct {
	head string
	of   func(*Run) string
	rare bool // left out where it is 0 in all runs
}

// tables are the sheets with the figures of all runs.
func tables(runs []*Run) []sheet {
	all := newSheet("Latency (seconds)", runs, latencyEntries())
	kv := newSheet("KV cache", runs, kvEntries)
	list := []sheet{summary(runs), all, kv}
	scheduled := slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return r.Scheduler == nil })
	tiered := slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return len(r.KV.Tiers)+len(r.KV.Actions) == 0 })
	if len(tiered) > 0 {
		list = append(list, newSheet("KV tiers", tiered, tierEntries()), newSheet("KV policy", tiered, actionEntries()))
	}
	holding := slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return r.KV.HeldGiBS == nil })
	if len(holding) > 0 {
		list = append(list, newSheet("KV held by sessions (GiB·s)", holding, holdingEntries))
	}
	list = slices.DeleteFunc(list, func(s sheet) bool { return len(s.Heads) == 1 })
	if len(scheduled) > 0 {
		list = append(list, newSheet("Program scheduler", scheduled, schedulerEntries))
	}
	if s := solutionOf(runs); s != nil {
		list = append(list, s.trials(runs))
	}
	return list
}

// summary has the columns of WriteTable, all of them, and its notes.
func summary(runs []*Run) sheet {
	l := newLayout(runs)
	g := sheet{Title: "All runs", Heads: []string{"run"}, Notes: l.notes()}
	columns := slices.Concat(l.lead, l.columns)
	for _, c := range columns {
		g.Heads = append(g.Heads, join(c.head, c.unit))
	}
	for i, r := range runs {
		row := sheetRow{Name: r.label()}
		for _, c := range columns {
			text := c.cells[i].value
			if c.compare {
				text = join(text, c.cells[i].change)
			}
			row.Cells = append(row.Cells, text)
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + " " + b
}

// newSheet makes a table of the columns that tell something of at least one run.
func newSheet(title string, runs []*Run, entries []entry) sheet {
	g := sheet{Title: title, Heads: []string{"run"}}
	for _, r := range runs {
		g.Rows = append(g.Rows, sheetRow{Name: r.label()})
	}
	for _, e := range entries {
		cells, tells := make([]string, len(runs)), false
		for i, r := range runs {
			cells[i] = e.of(r)
			tells = tells || cells[i] != unknownText && !(e.rare && cells[i] == "0")
		}
		if !tells {
			continue
		}
		g.Heads = append(g.Heads, e.head)
		for i := range runs {
			g.Rows[i].Cells = append(g.Rows[i].Cells, cells[i])
		}
	}
	return g
}

const unknownText = "-"

// figureText formats a figure, if it is known.
func figureText(f Figure, format func(float64) string) string {
	if !f.Known {
		return unknownText
	}
	return format(f.Value)
}

func figureOf(head string, of func(*Run) Figure, format func(float64) string) entry {
	return entry{head: head, of: func(r *Run) string { return figureText(of(r), format) }}
}

// rareFigure is a number that is 0 for most deployments.
func rareFigure(head string, of func(*Run) Figure) entry {
	e := figureOf(head, of, number)
	e.rare = true
	return e
}

// latencyEntries are the medians and tails of all latencies.
func latencyEntries() []entry {
	var list []entry
	for _, l := range []struct {
		name string
		of   func(*Latency) Distribution
	}{
		{"TTFT", func(l *Latency) Distribution { return l.TTFT }},
		{"TPOT", func(l *Latency) Distribution { return l.TPOT }},
		{"ITL", func(l *Latency) Distribution { return l.ITL }},
		{"request", func(l *Latency) Distribution { return l.E2E }},
		{"queue", func(l *Latency) Distribution { return l.Queue }},
		{"held", func(l *Latency) Distribution { return l.Held }},
		{"router queue", func(l *Latency) Distribution { return l.RouterQueue }},
	} {
		list = append(list,
			rareFigure(l.name+" p50", func(r *Run) Figure { return inSeconds(l.of(&r.LatencyMs).P50) }),
			rareFigure(l.name+" p99", func(r *Run) Figure { return inSeconds(l.of(&r.LatencyMs).P99) }))
	}
	return append(list,
		figureOf("program mean", func(r *Run) Figure { return r.Programs.MakespanS.Mean }, number),
		figureOf("program p99", func(r *Run) Figure { return r.Programs.MakespanS.P99 }, number),
		rareFigure("paused mean", func(r *Run) Figure { return r.Programs.PausedS.Mean }),
		rareFigure("paused p99", func(r *Run) Figure { return r.Programs.PausedS.P99 }))
}

// kvEntries are about the cache: where its capacity went, and what was computed again.
var kvEntries = []entry{
	figureOf("capacity tokens", func(r *Run) Figure { return r.KV.CapacityTokens }, number),
	figureOf("mean context of a program", func(r *Run) Figure { return r.KV.WorkingSetTokens }, number),
	figureOf("hit rate", func(r *Run) Figure { return r.KV.HitRate }, percent),
	rareFigure("recomputed: evicted", func(r *Run) Figure { return r.KV.Recomputed.Eviction }),
	rareFigure("recomputed: preempted", func(r *Run) Figure { return r.KV.Recomputed.Preemption }),
	rareFigure("recomputed: migrated", func(r *Run) Figure { return r.KV.Recomputed.Migration }),
	figureOf("re-prefill time", func(r *Run) Figure { return r.KV.ReprefillTimeShare }, percent),
	figureOf("preemptions", func(r *Run) Figure { return r.Preemptions }, number),
	figureOf("evicted blocks", func(r *Run) Figure { return r.KV.EvictedBlocks }, number),
	figureOf("pins", func(r *Run) Figure { return r.KV.Pins }, number),
	figureOf("pins cut short", func(r *Run) Figure { return r.KV.CutPins }, number),
	shareOf("decode", func(s *SpaceTime) Part { return s.Decode }),
	shareOf("prefill", func(s *SpaceTime) Part { return s.Prefill }),
	shareOf("recompute", func(s *SpaceTime) Part { return s.Recompute }),
	shareOf("caching", func(s *SpaceTime) Part { return s.Caching }),
	shareOf("unused", func(s *SpaceTime) Part { return s.Unused }),
}

func shareOf(head string, of func(*SpaceTime) Part) entry {
	return figureOf(head, func(r *Run) Figure {
		if r.KV.SpaceTime == nil {
			return Figure{}
		}
		return of(r.KV.SpaceTime).Share
	}, percent)
}

// schedulerEntries are of runs with a program scheduler.
var schedulerEntries = []entry{
	countEntry("pauses", func(s *Scheduler) int64 { return s.Pauses }),
	countEntry("marks", func(s *Scheduler) int64 { return s.Marks }),
	countEntry("resumes", func(s *Scheduler) int64 { return s.Resumes }),
	countEntry("forced", func(s *Scheduler) int64 { return s.ForcedResumes }),
	countEntry("migrations", func(s *Scheduler) int64 { return s.Migrations }),
	countEntry("expired", func(s *Scheduler) int64 { return s.Expired }),
	countEntry("most paused", func(s *Scheduler) int64 { return s.PausedPeak }),
	figureOf("paused in all (s)", func(r *Run) Figure { return r.Scheduler.PausedS }, number),
	figureOf("longest wait (s)", func(r *Run) Figure { return r.Scheduler.Starvation.LongestWaitS }, number),
	figureOf("size–wait correlation", func(r *Run) Figure { return r.Scheduler.Starvation.SizeWaitCorrelation }, twoDigits),
	figureOf("accounted peak tokens", func(r *Run) Figure { return r.Scheduler.Tokens.AccountedPeak }, number),
	figureOf("most over a worker's capacity", func(r *Run) Figure { return r.Scheduler.Tokens.MaxOver }, number),
}

func countEntry(head string, of func(*Scheduler) int64) entry {
	return entry{head: head, of: func(r *Run) string { return fmt.Sprint(of(r.Scheduler)) }}
}

func twoDigits(v float64) string { return fmt.Sprintf("%.2f", v) }
