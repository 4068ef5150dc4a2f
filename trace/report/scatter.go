package report

import (
	"fmt"
	"io"
	"strings"
)

// WriteSideBySideHTML writes the comparison as one HTML file that needs nothing else, as WriteHTML does. Its charts have a point
// for each call that two runs share; where they agree it lies on the diagonal.
func WriteSideBySideHTML(w io.Writer, s *SideBySide) error { return s.page().write(w) }

func (s *SideBySide) page() *page {
	p := &page{Title: "agentsim compare", Facts: s.legend(), Sweep: "turn"}
	if s.Version != "" {
		p.Facts = append(p.Facts, "agentsim "+s.Version)
	}
	if len(s.Differences) > 0 {
		p.Verdict = &Verdict{Text: "Do not trust this comparison: these are not runs of the same work.", Reasons: s.Differences}
	}
	p.addScatter(s)
	p.Tables = []sheet{s.sheet()}
	for i := range s.Turns {
		p.Tables = append(p.Tables, s.Turns[i].sheet())
	}
	var runs []*Run
	for _, in := range s.Inputs {
		runs = append(runs, in.Run)
	}
	p.Remarks = remarks(runs)
	p.addConfigs(runs)
	return p
}

// addScatter draws each phase, a colour for each run.
func (p *page) addScatter(s *SideBySide) {
	drawn := false
	for i := range s.Turns {
		p.Legend = append(p.Legend, legendEntry{Class: familyClass(i), Marks: marks([]point{{16, 7}}, i), Name: s.Turns[i].title()})
		for j := range s.Turns[i].Phases {
			drawn = drawn || s.Turns[i].Phases[j].Count > 0
		}
	}
	if !drawn {
		p.Legend = nil
		return
	}
	for j := range s.Turns[0].Phases {
		var lists [][]Point
		most := int64(0)
		for i := range s.Turns {
			phase := &s.Turns[i].Phases[j]
			lists, most = append(lists, thin(phase.points)), max(most, phase.Count)
		}
		if most == 0 {
			continue
		}
		first := &s.Turns[0].Phases[j]
		p.Plots = append(p.Plots, scatter(first.Name, first.Unit == "share", s.Inputs[0].Label, lists))
		if most > maxPoints {
			p.SweepNotes = append(p.SweepNotes, fmt.Sprintf("%s: %d points of up to %d are drawn, evenly spread over the run.", first.Name, maxPoints, most))
		}
	}
	p.SweepNotes = append(p.SweepNotes, "The dashed line is where both runs agree.")
}

// maxPoints is the most points of a run in a chart.
const maxPoints = 1000

// thin keeps at most maxPoints, evenly spread.
func thin(points []Point) []Point {
	if len(points) <= maxPoints {
		return points
	}
	kept := make([]Point, maxPoints)
	for i := range kept {
		kept[i] = points[i*len(points)/maxPoints]
	}
	return kept
}

// scatter draws lists of points, all on the same scale in both directions.
func scatter(name string, share bool, base string, lists [][]Point) *plot {
	var values []float64
	most := 0.0
	for _, list := range lists {
		for _, q := range list {
			values = append(values, q.Base, q.Value)
			most = max(most, q.Base, q.Value)
		}
	}
	in, label := unitFor(most), tickText
	if share {
		in, label = timeUnit{"share of the prompt", 1}, func(v float64) string { return fmt.Sprintf("%.3g%%", 100*v) }
	}
	for i := range values {
		values[i] /= in.seconds
	}
	c := newPlot(name, base+" ("+in.name+")", "the others")
	y := c.yScale(values, label, true)
	x, ticks := spread(values, true)
	x.from, x.to = c.Left, c.Right
	c.addXTicks(x, ticks, label)
	c.Lines = append(c.Lines, stroke{Class: "wanted", Path: path([]point{{x.at(x.low), y.at(y.low)}, {x.at(x.high), y.at(y.high)}})})
	for i, list := range lists {
		var b strings.Builder
		for _, q := range list {
			b.WriteString(marks([]point{{x.at(q.Base / in.seconds), y.at(q.Value / in.seconds)}}, i))
		}
		c.Lines = append(c.Lines, stroke{Class: familyClass(i), Marks: b.String()})
	}
	return c
}

// sheet is the table of the metrics.
func (s *SideBySide) sheet() sheet {
	g := sheet{Title: "Side by side", Heads: []string{"metric"}, Notes: s.notes()}
	names, columns := s.columns()
	for _, c := range columns {
		g.Heads = append(g.Heads, c.head+" "+c.unit)
	}
	for i, name := range names.cells {
		row := sheetRow{Name: name.value}
		for _, c := range columns {
			row.Cells = append(row.Cells, join(c.cells[i].value, c.cells[i].change))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// sheet is the table of the phases.
func (e *TurnErrors) sheet() sheet {
	g := sheet{Title: e.title(), Heads: append([]string{"phase"}, phaseHeads...), Notes: e.notes()}
	for i := range e.Phases {
		g.Rows = append(g.Rows, sheetRow{e.Phases[i].Name, e.Phases[i].texts()})
	}
	return g
}
