package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"
)

// column is one column of the table: a name, and what is told of each run.
type column struct {
	head, unit string // the two lines above the values
	name       string // what notes call it
	metric     Metric
	// compare adds the change against the baseline.
	compare bool
	// needless is the value that tells nothing when all runs have it: no preemptions, all in time. It is unknown for
	// columns that are always shown.
	needless Figure
	dropped  bool // for want of room
	cells    []cell
}

// cell is the text of a value and of its change against the baseline.
type cell struct{ value, change string }

// width is the width of the column as it stands, both parts of its cells aligned.
func (c *column) width() int {
	value, change := c.parts()
	if change > 0 {
		value += 1 + change
	}
	return max(value, displaywidth.String(c.head), displaywidth.String(c.unit))
}

func (c *column) parts() (value, change int) {
	for _, cell := range c.cells {
		value = max(value, displaywidth.String(cell.value))
		if c.compare {
			change = max(change, displaywidth.String(cell.change))
		}
	}
	return value, change
}

// columnsFor returns the columns that tell something of at least one run, in order of display. Whichever metric a
// verdict is about, its column is among them.
func columnsFor(runs []*Run) []*column {
	rate := &column{head: "programs", unit: "/h", name: "programs/h", metric: programsPerHour, compare: true}
	switch served(runs, false).Name {
	case requestsPerS.Name:
		rate = &column{head: "requests", unit: "/s", name: "requests/s", metric: requestsPerS, compare: true}
	case turnsPerMin.Name:
		rate = &column{head: "turns", unit: "/min", name: "turns/min", metric: turnsPerMin, compare: true}
	}
	mean := meanTime(runs)
	meanOf, _, _ := strings.Cut(strings.TrimPrefix(mean.Name, "mean "), " ")
	all := []*column{
		{head: "programs", unit: "/GPU", name: programsPerGPU.Name, metric: programsPerGPU, compare: true},
		rate,
		{head: "output", unit: "tok/s", name: "output tok/s", metric: outputTokensPerS, compare: true},
		{head: "TTFT", unit: "p50", name: "TTFT p50", metric: ttftP50, compare: true},
		{head: "TTFT", unit: "p99", name: "TTFT p99", metric: ttftP99, compare: true},
		{head: "TPOT", unit: "p50", name: "TPOT p50", metric: tpotP50, compare: true},
		{head: meanOf, unit: "mean", name: mean.Name, metric: mean, compare: true},
		{head: "done", unit: "50%", name: doneHalf.Name, metric: doneHalf, compare: true},
		{head: "done", unit: "90%", name: done90.Name, metric: done90, compare: true},
		{head: "done", unit: "99%", name: done99.Name, metric: done99, compare: true},
		{head: "done", unit: "all", name: doneLast.Name, metric: doneLast, compare: true},
		{head: "cost of", unit: "1k turns", name: turnsPrice.Name, metric: turnsPrice, compare: true},
		{head: "cost of", unit: "program", name: programPrice.Name, metric: programPrice, compare: true},
		{head: "paused", unit: "mean", name: pausedMean.Name, metric: pausedMean, needless: Known(0)},
		{head: "in", unit: "SLO", name: "in SLO", metric: inSLO, needless: Known(1)},
		{head: "hit", unit: "rate", name: "hit rate", metric: hitRate},
		{head: "wasted", unit: "prefill", name: "wasted prefill", metric: reprefillShare, needless: Known(0)},
		{head: "KV", unit: "fetched", name: "KV fetched", metric: brought, needless: Known(0)},
		{head: "idle KV", unit: "GiB·s", name: "KV held idle", metric: idleKV, compare: true, needless: Known(0)},
		{head: "moved", unit: "GB", name: "moved GB", metric: movedKV, needless: Known(0)},
		{head: "accepted", unit: "/step", name: "accepted drafts", metric: acceptedDrafts},
		{head: "transfer", unit: "of TTFT", name: "transfer of KV", metric: transferShare},
		{unit: "preempts", name: "preemptions", metric: preemptions, needless: Known(0)},
	}
	if solutionOf(runs) != nil {
		all = slices.DeleteFunc(all, func(c *column) bool { return slices.Contains(beside, c.name) })
		all = slices.Insert(all, 1, &column{head: "slowdown", unit: "p90", name: slowdownP90.Name, metric: slowdownP90})
	}
	base := runs[Baseline(runs)]
	var columns []*column
	for _, c := range all {
		if unit := c.metric.unit(runs); unit.name != "" {
			c.unit += " " + unit.name
		}
		tells := false
		c.cells = make([]cell, len(runs))
		for i, r := range runs {
			v := c.metric.Of(r)
			tells = tells || v.Known && v != c.needless
			c.cells[i].value = c.metric.text(v, runs)
			if b := c.metric.Of(base); r != base && v.Known && b.Known && sameWork(r, base) {
				c.cells[i].change = change(v.Value, b.Value)
			}
		}
		if tells {
			columns = append(columns, c)
		}
	}
	return columns
}

// beside are the columns that make room for those about a number that was solved for.
var beside = []string{"output tok/s", "TTFT p50", "TPOT p50", meanMakespan.Name, meanE2E.Name, pausedMean.Name}

// text prints a figure of one of the runs without its unit, which suits all of them.
func (m Metric) text(f Figure, runs []*Run) string {
	switch {
	case !f.Known:
		return unknownText
	case m.share && f.Value < 1 && f.Value >= 0.995:
		return ">99%"
	case m.share:
		return percent(f.Value)
	case m.seconds:
		return number(f.Value / m.unit(runs).seconds)
	}
	return number(f.Value)
}

// doneColumn shows how many requests completed.
func doneColumn(runs []*Run) *column {
	c := &column{head: "requests", unit: "done"}
	for _, r := range runs {
		text := fmt.Sprintf("%d/%d", r.Requests.Completed, r.Requests.Total)
		if r.Status == RunFailed {
			text = r.Status
		}
		c.cells = append(c.cells, cell{value: text})
	}
	return c
}

// solutionColumn shows the number that was solved for; nil where none was.
func solutionColumn(runs []*Run) *column {
	s := solutionOf(runs)
	if s == nil {
		return nil
	}
	c := &column{head: "most", unit: "programs"}
	if s.Of == SolveGPUs {
		c = &column{head: "fewest", unit: "GPUs"}
	}
	for _, r := range runs {
		text := unknownText
		switch s := r.Solution; {
		case s == nil:
		case s.Number == 0:
			text = "none"
		case s.open():
			text = fmt.Sprintf("%d+", s.Number)
		default:
			text = fmt.Sprint(s.Number)
		}
		c.cells = append(c.cells, cell{value: text})
	}
	return c
}

// gpusColumn shows how many GPUs each run has; nil when all have the same, or when they were solved for.
func gpusColumn(runs []*Run) *column {
	if s := solutionOf(runs); s != nil && s.Of == SolveGPUs {
		return nil
	}
	c := &column{unit: "GPUs"}
	differ, known := false, 0
	for _, r := range runs {
		text := "-"
		if r.GPUs > 0 {
			text = fmt.Sprint(r.GPUs)
			differ = differ || known > 0 && r.GPUs != known
			known = r.GPUs
		}
		c.cells = append(c.cells, cell{value: text})
	}
	if !differ {
		return nil
	}
	return c
}
