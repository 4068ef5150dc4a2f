package report

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// plot is a chart of lines or stacked areas in the units of its SVG view box, ready to be drawn by the page's template.
type plot struct {
	Title, XLabel, YLabel    string
	Width, Height            int
	Left, Right, Top, Bottom float64 // of the frame
	XTicks, YTicks           []tick
	Areas, Lines             []stroke
	Rules                    []rule
}

// tick is a mark on an axis. Its label is left out where it would touch the one before.
type tick struct{ At, Label string }

// stroke is a line or an area, its style by a class, with marks at its points where there are few.
type stroke struct{ Class, Path, Marks string }

// rule is a vertical line with a label.
type rule struct{ X, Y, Anchor, Label string }

// The geometry of plots.
const (
	plotWidth, plotHeight = 560, 280
	leftMargin            = 58
	rightMargin           = 16
	topMargin             = 24
	bottomMargin          = 46
	charWidth             = 7.4 // of the labels, a little more than it is
)

func newPlot(title, xLabel, yLabel string) *plot {
	return &plot{Title: title, XLabel: xLabel, YLabel: yLabel, Width: plotWidth, Height: plotHeight,
		Left: leftMargin, Right: plotWidth - rightMargin, Top: topMargin, Bottom: plotHeight - bottomMargin}
}

// Middle is where the label of the x axis stands.
func (p *plot) Middle() float64 { return (p.Left + p.Right) / 2 }

// scale maps values to one axis of a plot.
type scale struct {
	low, high float64 // values
	from, to  float64 // units
	log       bool
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		low, high, v = math.Log(low), math.Log(high), math.Log(v)
	}
	if high == low {
		return (s.from + s.to) / 2
	}
	return s.from + float64((v-low)/(high-low))*(s.to-s.from)
}

// wide tells that positive values spread so far that a linear scale would hide the small ones.
func wide(values []float64, ratio float64) bool {
	return len(values) > 0 && slices.Min(values) > 0 && slices.Max(values)/slices.Min(values) > ratio
}

// xScale makes the x axis for the values of a sweep, with a tick at each.
func (p *plot) xScale(values []float64, label func(float64) string) scale {
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	s := scale{values[0], values[len(values)-1], p.Left + 12, p.Right - 12, wide(values, 6)}
	p.addXTicks(s, values, label)
	return s
}

// addXTicks marks values at the x axis.
func (p *plot) addXTicks(s scale, values []float64, label func(float64) string) {
	end := math.Inf(-1) // of the label before
	for _, v := range values {
		at, text := s.at(v), label(v)
		half := float64(len([]rune(text))) * charWidth / 2
		if at-half < end+4 {
			text = ""
		} else {
			end = at + half
		}
		p.XTicks = append(p.XTicks, tick{unit(at), text})
	}
}

// timeScale makes the x axis for times up to end in seconds.
func (p *plot) timeScale(end float64) scale {
	in := unitFor(end)
	p.XLabel = "time since the start of the run (" + in.name + ")"
	s := scale{0, end, p.Left, p.Right, false}
	for _, v := range niceTicks(end/in.seconds, 6) {
		if v*in.seconds <= end {
			p.XTicks = append(p.XTicks, tick{unit(s.at(v * in.seconds)), tickText(v)})
		}
	}
	return s
}

// yScale makes the y axis for the values, which are not negative: from 0, or logarithmic where they spread far and the
// caller allows it.
func (p *plot) yScale(values []float64, label func(float64) string, log bool) scale {
	s, ticks := spread(values, log)
	s.from, s.to = p.Bottom, p.Top
	if s.log {
		p.YLabel += ", logarithmic"
	}
	for _, v := range ticks {
		p.YTicks = append(p.YTicks, tick{unit(s.at(v)), label(v)})
	}
	return s
}

// spread chooses the ends of an axis, and where its ticks are. Its place in the plot is left to the caller.
func spread(values []float64, log bool) (s scale, ticks []float64) {
	positive := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= 0 })
	if log && len(positive) == len(values) && wide(values, 30) {
		s = scale{low: logFloor(slices.Min(values)), high: logCeil(slices.Max(values)), log: true}
		for decade := math.Pow(10, math.Floor(math.Log10(s.low))); decade <= s.high*1.0001; decade *= 10 {
			for _, m := range []float64{1, 2, 5} {
				if v := decade * m; v >= s.low*0.9999 && v <= s.high*1.0001 && (m == 1 || s.high/s.low < 2000) {
					ticks = append(ticks, v)
				}
			}
		}
		return s, ticks
	}
	high := 1.0
	if len(positive) > 0 {
		high = slices.Max(positive)
	}
	ticks = niceTicks(high, 5)
	return scale{high: ticks[len(ticks)-1]}, ticks
}

// tickText prints a value at an axis.
func tickText(v float64) string {
	if v >= 1e-4 && v < 1000 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return number(v)
}

// niceTicks divides 0 to at least high in about n round steps.
func niceTicks(high float64, n int) []float64 {
	if !(high > 0) || math.IsInf(high, 0) {
		high = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(high/float64(n))))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if high/(step*m) <= float64(n) {
			step *= m
			break
		}
	}
	var ticks []float64
	for i := 0; ; i++ {
		ticks = append(ticks, float64(i)*step)
		if float64(i)*step >= high*(1-1e-9) {
			return ticks
		}
	}
}

// logFloor and logCeil round to 1, 2 or 5 times a power of ten.
func logFloor(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{5, 2} {
		if v >= decade*m {
			return decade * m
		}
	}
	return decade
}

func logCeil(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= decade*m*1.0001 {
			return decade * m
		}
	}
	return decade * 10
}

// point is a place in a plot.
type point struct{ x, y float64 }

// line draws a line through points, with marks of the given shape where they are few.
func (p *plot) line(class string, points []point, shape int) {
	const fewPoints = 64
	s := stroke{Class: class, Path: path(points)}
	if shape >= 0 && len(points) <= fewPoints {
		s.Marks = marks(points, shape)
	}
	p.Lines = append(p.Lines, s)
}

// area fills what lies between two lines with the same x.
func (p *plot) area(class string, upper, lower []point) {
	outline := slices.Clone(upper)
	for _, q := range slices.Backward(lower) {
		outline = append(outline, q)
	}
	p.Areas = append(p.Areas, stroke{Class: class, Path: path(outline) + "Z"})
}

// ruleLabel is the room that the label of a rule takes above the frame.
const ruleLabel = 14

// makeRoom leaves room above the frame for the labels of n rules. It comes before the scales.
func (p *plot) makeRoom(n int) { p.Top += ruleLabel * float64(n) }

// rule draws a vertical line up to its label above the frame, in the row that is its own.
func (p *plot) rule(x float64, label string) {
	r := rule{X: unit(x), Y: unit(topMargin - 2 + ruleLabel*float64(len(p.Rules))), Anchor: "middle", Label: label}
	if half := float64(len([]rune(label))) * charWidth / 2; x+half > p.Right {
		r.Anchor = "end"
	} else if x-half < p.Left {
		r.Anchor = "start"
	}
	p.Rules = append(p.Rules, r)
}

// path is the outline of points, those left out that lie where the one before does.
func path(points []point) string {
	var b strings.Builder
	last := ""
	for i, q := range points {
		at := unit(q.x) + " " + unit(q.y)
		if at == last {
			continue
		}
		last = at
		if i == 0 {
			b.WriteString("M" + at)
		} else {
			b.WriteString("L" + at)
		}
	}
	return b.String()
}

// shapes are the marks of lines, so that these differ by more than their colour.
var shapes = []string{
	"m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0",
	"m-3.2 -3.2h6.4v6.4h-6.4Z",
	"m0 -4.6l4.2 7.4h-8.4Z",
	"m0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6Z",
}

func marks(points []point, shape int) string {
	var b strings.Builder
	for _, q := range points {
		b.WriteString("M" + unit(q.x) + " " + unit(q.y) + shapes[shape%len(shapes)])
	}
	return b.String()
}

// unit prints a coordinate to a tenth.
func unit(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
