package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/clipperhouse/displaywidth"
)

// chartMetric is a metric that the page draws.
type chartMetric struct {
	Metric
	title string
	log   bool // where values spread far
}

// chartMetrics are those that at least one of the runs has.
func chartMetrics(runs []*Run) []chartMetric {
	rates := []Metric{served(runs, false), programsPerHour, turnsPerMin, requestsPerS}
	rate := rates[max(0, slices.IndexFunc(rates, func(m Metric) bool { return slices.ContainsFunc(runs, func(r *Run) bool { return m.Of(r).Known }) }))]
	all := []chartMetric{
		{Metric: rate, title: "Throughput (" + rate.Name + ")"},
		{Metric: hitRate, title: "Prompt tokens found in the KV cache"},
		{Metric: reprefillShare, title: "GPU time spent on re-prefilling"},
		{Metric: ttftP50, title: "Time to first token, median", log: true},
		{Metric: ttftP99, title: "Time to first token, p99", log: true},
		{Metric: pausedMean, title: "Time that a program is paused, mean"},
		{Metric: doneLast, title: "Time to the last program"},
	}
	if s := solutionOf(runs); s != nil {
		m := s.metric()
		all = slices.Insert(all, 0, chartMetric{Metric: m, title: capitalize(m.Name)})
	}
	return slices.DeleteFunc(all, func(m chartMetric) bool {
		tells := func(r *Run) bool { return m.Of(r).Known && (m.Name != pausedMean.Name || m.Of(r).Value > 0) }
		return !slices.ContainsFunc(runs, tells)
	})
}

// axis returns how values of the metric are drawn: divided by per, and labelled.
func (m chartMetric) axis(runs []*Run) (per float64, unitName string, label func(float64) string) {
	switch unit := m.unit(runs); {
	case m.share:
		return 1, "share", func(v float64) string { return fmt.Sprintf("%.3g%%", 100*v) }
	case m.seconds:
		return unit.seconds, unit.name, tickText
	}
	return 1, m.Name, tickText
}

// familyClass is the style of a family's lines: colours first, then dashes.
func familyClass(i int) string { return fmt.Sprintf("c%d d%d", i%6, i/6%4) }

// addSweep draws each metric along the axis, a line for each family.
func (p *page) addSweep(s *sweep, runs []*Run) {
	p.Sweep = s.axis
	if len(s.families) > 1 || s.families[0].name != "" {
		for i, f := range s.families {
			p.Legend = append(p.Legend, legendEntry{Class: familyClass(i), Marks: marks([]point{{16, 7}}, i), Name: f.name})
		}
	}
	if s.omitted > 0 {
		p.SweepNotes = append(p.SweepNotes, fmt.Sprintf("%s in further lines are left out of the charts; the tables have them.", plural(s.omitted, "run")))
	}
	low, high := slices.Min(s.values()), slices.Max(s.values())
	var drawn []kvLine
	for _, k := range s.kvLines() {
		text := fmt.Sprintf("KV full: %s programs of %s tokens each, their mean context, fill the KV capacity of %s tokens",
			number(k.programs), number(k.perProgram), number(k.capacity))
		if k.programs >= low && k.programs <= high {
			drawn = append(drawn, k)
		} else {
			text += fmt.Sprintf("; the sweep goes from %s to %s", number(low), number(high))
		}
		p.SweepNotes = append(p.SweepNotes, text+".")
	}
	for _, m := range chartMetrics(runs) {
		p.Plots = append(p.Plots, s.plot(m, runs, drawn))
	}
}

// plot draws one metric.
func (s *sweep) plot(m chartMetric, runs []*Run, kv []kvLine) *plot {
	per, name, label := m.axis(runs)
	c := newPlot(m.title, axisLabel(s.axis), name)
	c.makeRoom(len(kv))
	x := c.xScale(s.values(), tickText)
	var values []float64
	for _, f := range s.families {
		for _, q := range f.points {
			if v := m.Of(q.run); v.Known {
				values = append(values, v.Value/per)
			}
		}
	}
	y := c.yScale(values, label, m.log)
	for _, k := range kv {
		c.rule(x.at(k.programs), "KV full at "+number(k.programs))
	}
	for i, f := range s.families {
		var points []point
		for _, q := range f.points {
			if v := m.Of(q.run); v.Known {
				points = append(points, point{x.at(q.x), y.at(v.Value / per)})
			}
		}
		if len(points) > 0 {
			c.line(familyClass(i), points, i)
		}
	}
	return c
}

// axisLabel names the axis of a sweep.
func axisLabel(key string) string {
	switch key {
	case concurrencyAxis:
		return "concurrent programs (load.concurrency)"
	case "load.rate":
		return "programs per second (load.rate)"
	case hostKey:
		return "GiB of host memory for the KV of a worker (" + hostKey + ")"
	}
	return printable(key)
}

// bars is a chart of horizontal bars, one for each run.
type bars struct {
	Title         string
	Width, Height int
	Left          float64 // where bars begin
	Legend        []legendEntry
	Rows          []barRow
}

type barRow struct {
	Y, TextY int
	Name     string // cut to the room there is
	Full     string
	Parts    []barPart
	Value    string
	ValueX   string
}

type barPart struct{ Class, X, Width, Title string }

// The geometry of bars.
const (
	barHeight  = 22
	barRight   = 480
	barNameLen = 34
)

func newBars(title string, runs []*Run) *bars {
	b := &bars{Title: title, Width: plotWidth, Height: barHeight*len(runs) + 6, Left: 80}
	for i, r := range runs {
		name := Shorten(r.label(), barNameLen)
		b.Left = max(b.Left, math.Ceil(float64(displaywidth.String(name))*charWidth)+12)
		b.Rows = append(b.Rows, barRow{Y: barHeight*i + 5, TextY: barHeight*i + 17, Name: name, Full: r.label()})
	}
	return b
}

// drawn are the runs that have bars.
func (p *page) drawn(runs []*Run) []*Run {
	if len(runs) <= maxBars {
		return runs
	}
	note := fmt.Sprintf("The bars are of the first %d of %d runs; the tables have all.", maxBars, len(runs))
	if !slices.Contains(p.Notes, note) {
		p.Notes = append(p.Notes, note)
	}
	return runs[:maxBars]
}

// addBars draws each metric by run.
func (p *page) addBars(runs []*Run) {
	shown := p.drawn(runs)
	for _, m := range chartMetrics(runs) {
		b := newBars(m.title, shown)
		most := 0.0
		for _, r := range shown {
			most = max(most, m.Of(r).Value)
		}
		for i, r := range shown {
			v := m.Of(r)
			row := &b.Rows[i]
			row.Value, row.ValueX = unknownText, unit(b.Left)
			if !v.Known {
				continue
			}
			row.Value = m.Print(r, runs)
			if most > 0 {
				width := v.Value / most * (barRight - b.Left)
				row.Parts = []barPart{{Class: "c0", X: unit(b.Left), Width: unit(width)}}
				row.ValueX = unit(b.Left + width)
			}
		}
		p.Bars = append(p.Bars, b)
	}
}

// share is a part of a stacked bar.
type share struct {
	name, class string
	of          func(*Run) float64 // of the whole bar
}

// spaceTimeShares are the terms of SpaceTime.
var spaceTimeShares = []share{
	{"decode", "st0", func(r *Run) float64 { return r.KV.SpaceTime.Decode.Share.Value }},
	{"prefill", "st1", func(r *Run) float64 { return r.KV.SpaceTime.Prefill.Share.Value }},
	{"recompute", "st2", func(r *Run) float64 { return r.KV.SpaceTime.Recompute.Share.Value }},
	{"caching", "st3", func(r *Run) float64 { return r.KV.SpaceTime.Caching.Share.Value }},
	{"unused", "st4", func(r *Run) float64 { return r.KV.SpaceTime.Unused.Share.Value }},
}

// promptShares are where the KV of prompts came from, where there are tiers.
var promptShares = []share{
	{"cached on the GPU", "st0", func(r *Run) float64 {
		return (r.KV.HitTokens.Value - r.KV.FetchedTokens.Value - r.KV.PrefetchedTokens.Value) / r.KV.PromptTokens.Value
	}},
	{"prefetched", "st3", func(r *Run) float64 { return r.KV.PrefetchedTokens.Value / r.KV.PromptTokens.Value }},
	{"fetched while the request waited", "st1", func(r *Run) float64 { return r.KV.FetchedTokens.Value / r.KV.PromptTokens.Value }},
	{"computed", "st2", func(r *Run) float64 { return 1 - r.KV.HitTokens.Value/r.KV.PromptTokens.Value }},
}

// addShares draws where the KV capacity went, and where prompts came from.
func (p *page) addShares(runs []*Run) {
	p.addStacked("Where the KV capacity went (tokens × time)", runs, spaceTimeShares, func(r *Run) bool { return r.KV.SpaceTime != nil })
	if slices.ContainsFunc(runs, func(r *Run) bool { return broughtShare(r).Known }) {
		p.addStacked("Where the KV of prompts came from (tokens)", runs, promptShares, func(r *Run) bool { return r.KV.PromptTokens.Value > 0 })
	}
}

// addStacked draws the shares of the runs of which they are known.
func (p *page) addStacked(title string, runs []*Run, shares []share, isKnown func(*Run) bool) {
	known := slices.DeleteFunc(slices.Clone(runs), func(r *Run) bool { return !isKnown(r) })
	if len(known) == 0 {
		return
	}
	known = p.drawn(known)
	b := newBars(title, known)
	for _, s := range shares {
		b.Legend = append(b.Legend, legendEntry{Class: s.class, Name: s.name})
	}
	for i, r := range known {
		x := b.Left
		for _, s := range shares {
			share := s.of(r)
			width := share * (plotWidth - 8 - b.Left)
			b.Rows[i].Parts = append(b.Rows[i].Parts, barPart{s.class, unit(x), unit(width), s.name + " " + percent(share)})
			x += width
		}
	}
	p.Bars = append(p.Bars, b)
}

// stateCharts are the charts of one run's state over time.
type stateCharts struct {
	Name  string
	Plots []stateChart
}

type stateChart struct {
	*plot
	Legend []legendEntry
}

// addStates draws the state over time of the runs that have it.
func (p *page) addStates(runs []*Run) {
	for _, r := range runs {
		s := r.Series
		if s == nil || len(s.Samples) < 2 || s.Capacity <= 0 || s.Step <= 0 {
			continue
		}
		if len(p.States) == maxStates {
			p.Notes = append(p.Notes, fmt.Sprintf("The state over time is drawn of the first %d runs.", maxStates))
			return
		}
		p.States = append(p.States, stateCharts{r.label(), []stateChart{s.kvChart(r.Scheduler != nil), s.loadChart(r.Scheduler != nil)}})
	}
}

// end is when the series ends, in seconds.
func (s *Series) end() float64 { return float64(len(s.Samples)-1) * s.Step.Seconds() }

// overCapacity is how much of the demand beyond the capacity is drawn.
const overCapacity = 1.5

// kvChart stacks the KV cache's tokens by state, with the contexts of live programs and what a scheduler charges for.
func (s *Series) kvChart(scheduled bool) stateChart {
	c := newPlot("KV cache", "", "tokens")
	x := c.timeScale(s.end())
	capacity, most := float64(s.Capacity), float64(s.Capacity)
	for _, q := range s.Samples {
		most = max(most, float64(q.Wanted), float64(q.Accounted))
	}
	cut := most > overCapacity*capacity
	y := c.yScale([]float64{min(most, overCapacity*capacity)}, tickText, false)
	at := func(of func(Sample) float64) []point {
		points := make([]point, len(s.Samples))
		for i, q := range s.Samples {
			points[i] = point{x.at(float64(i) * s.Step.Seconds()), y.at(min(of(q), y.high))}
		}
		return points
	}
	out := stateChart{plot: c}
	below := at(func(Sample) float64 { return 0 })
	pinned := slices.ContainsFunc(s.Samples, func(q Sample) bool { return q.Pinned > 0 })
	for _, layer := range []struct {
		class, name string
		shown       bool
		top         func(Sample) float64
	}{
		{"running", "in use by requests", true, func(q Sample) float64 { return float64(q.Running) }},
		{"pinned", "pinned for tools", pinned, func(q Sample) float64 { return float64(q.Running + q.Pinned) }},
		{"cached", "cached", true, func(q Sample) float64 { return float64(q.Running + q.Pinned + q.Cached) }},
		{"free", "empty", true, func(Sample) float64 { return capacity }},
	} {
		if layer.shown {
			top := at(layer.top)
			c.area(layer.class, top, below)
			out.Legend = append(out.Legend, legendEntry{Class: layer.class, Name: layer.name})
			below = top
		}
	}
	name := "contexts of live programs"
	if cut {
		name += fmt.Sprintf(" (cut off; the most is %s)", number(most))
	}
	c.line("wanted", at(func(q Sample) float64 { return float64(q.Wanted) }), -1)
	out.Legend = append(out.Legend, legendEntry{Class: "wanted", Name: name, IsLine: true})
	if scheduled {
		c.line("accounted", at(func(q Sample) float64 { return float64(q.Accounted) }), -1)
		out.Legend = append(out.Legend, legendEntry{Class: "accounted", Name: "charged by the scheduler", IsLine: true})
	}
	return out
}

// loadChart draws how many programs and requests there are in which state.
func (s *Series) loadChart(scheduled bool) stateChart {
	c := newPlot("Programs and requests", "", "number")
	x := c.timeScale(s.end())
	lines := []struct {
		name  string
		shown bool
		of    func(Sample) int64
	}{
		{"programs live", true, func(q Sample) int64 { return q.Programs }},
		{"programs paused or held", scheduled || slices.ContainsFunc(s.Samples, func(q Sample) bool { return q.Held > 0 }),
			func(q Sample) int64 { return q.Held }},
		{"requests running", true, func(q Sample) int64 { return q.RequestsRunning }},
		{"requests waiting", true, func(q Sample) int64 { return q.RequestsWaiting }},
	}
	var values []float64
	for _, q := range s.Samples {
		for _, l := range lines {
			values = append(values, float64(l.of(q)))
		}
	}
	y := c.yScale(values, tickText, false)
	out := stateChart{plot: c}
	for i, l := range lines {
		if !l.shown {
			continue
		}
		points := make([]point, len(s.Samples))
		for j, q := range s.Samples {
			points[j] = point{x.at(float64(j) * s.Step.Seconds()), y.at(float64(l.of(q)))}
		}
		class := fmt.Sprintf("c%d d%d", i, i)
		c.line(class, points, -1)
		out.Legend = append(out.Legend, legendEntry{Class: class, Name: l.name, IsLine: true})
	}
	return out
}
