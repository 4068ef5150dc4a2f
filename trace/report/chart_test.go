package report

import (
	"fmt"
	"slices"
	"testing"
)

func TestNiceTicks(t *testing.T) {
	for _, test := range []struct {
		high float64
		n    int
		want []float64
	}{
		{100, 5, []float64{0, 20, 40, 60, 80, 100}},
		{101, 5, []float64{0, 25, 50, 75, 100, 125}},
		{0.9, 5, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{7, 5, []float64{0, 2, 4, 6, 8}},
		{0, 4, []float64{0, 0.25, 0.5, 0.75, 1}},
	} {
		got := niceTicks(test.high, test.n)
		if fmt.Sprintf("%.6g", got) != fmt.Sprintf("%.6g", test.want) {
			t.Errorf("ticks up to %v in %d: %v, want %v", test.high, test.n, got, test.want)
		}
	}
}

// A tick is labelled where its label does not touch the one before; the axis of a wide sweep is logarithmic.
func TestXScale(t *testing.T) {
	p := newPlot("", "", "")
	s := p.xScale([]float64{64, 8, 16, 32, 17, 8}, tickText)
	if !s.log || s.at(8) != p.Left+12 || s.at(64) != p.Right-12 {
		t.Errorf("the scale is %+v, want a logarithmic one over the frame", s)
	}
	if third := p.Left + 12 + (s.to-s.from)/3; s.at(16) < third-0.01 || s.at(16) > third+0.01 {
		t.Errorf("16 is at %v, want a third of the way from 8 to 64: %v", s.at(16), third)
	}
	var labels []string
	for _, tick := range p.XTicks {
		labels = append(labels, tick.Label)
	}
	if want := []string{"8", "16", "", "32", "64"}; !slices.Equal(labels, want) {
		t.Errorf("labels %q, want %q", labels, want)
	}
	p = newPlot("", "", "")
	if s := p.xScale([]float64{1000, 1001, 4000}, tickText); s.log || p.XTicks[1].Label != "" {
		t.Errorf("scale %+v and ticks %v, want a linear one whose second tick has no room for a label", s, p.XTicks)
	}
}

func TestYScaleLog(t *testing.T) {
	for _, test := range []struct {
		values    []float64
		log       bool
		low, high float64
	}{
		{[]float64{0.3, 40}, true, 0.2, 50},
		{[]float64{0.3, 3}, false, 0, 3},
		{[]float64{0, 40}, false, 0, 40}, // no logarithm of 0
		{nil, false, 0, 1},
	} {
		s := newPlot("", "", "s").yScale(test.values, tickText, true)
		if s.log != test.log || fmt.Sprintf("%.6g %.6g", s.low, s.high) != fmt.Sprintf("%.6g %.6g", test.low, test.high) {
			t.Errorf("%v: the scale is %+v, want log %v from %v to %v", test.values, s, test.log, test.low, test.high)
		}
	}
}

func TestPathLeavesRepetitionsOut(t *testing.T) {
	if got := path([]point{{1, 2}, {1.01, 2}, {3, 4.25}}); got != "M1 2L3 4.3" {
		t.Errorf("the path is %q", got)
	}
}

func TestAxisNumber(t *testing.T) {
	for value, want := range map[string]float64{"8": 8, "x0.5": 0.5, "1e3": 1000, "90s": 90, "0": 0} {
		if got, ok := axisNumber(value); !ok || got != want {
			t.Errorf("%q is %v (%v), want %v", value, got, ok, want)
		}
	}
	for _, value := range []string{"kv", "", "x", "NaN", "1e999", "auto"} {
		if got, ok := axisNumber(value); ok {
			t.Errorf("%q is the number %v", value, got)
		}
	}
}

// The concurrency is swept where it varies, else another number; lines are what agrees in all else.
func TestSweepOf(t *testing.T) {
	runs := func(axes ...[]Axis) []*Run {
		var list []*Run
		for _, a := range axes {
			list = append(list, deployment{name: "x", axes: a, programsPerHour: 1}.run())
		}
		return list
	}
	for _, test := range []struct {
		name, axis string
		families   string
		runs       []*Run
	}{
		{"policies at concurrencies", "load.concurrency", "[kv:8,16 rr:8,16]", runs(
			[]Axis{{"router.policy", "kv"}, {"load.concurrency", "16"}}, []Axis{{"router.policy", "kv"}, {"load.concurrency", "8"}},
			[]Axis{{"router.policy", "rr"}, {"load.concurrency", "8"}}, []Axis{{"router.policy", "rr"}, {"load.concurrency", "16"}})},
		{"workers and concurrencies", "load.concurrency", "[workers=1:8 workers=2:8,9]", runs(
			[]Axis{{"workers", "1"}, {"load.concurrency", "8"}}, []Axis{{"workers", "2"}, {"load.concurrency", "8"}}, []Axis{{"workers", "2"}, {"load.concurrency", "9"}})},
		{"KV blocks", "engine.kv_blocks", "[:0.5,2]", runs([]Axis{{"engine.kv_blocks", "x0.5"}}, []Axis{{"engine.kv_blocks", "x2"}})},
		{"policies", "", "", runs([]Axis{{"router.policy", "kv"}}, []Axis{{"router.policy", "rr"}})},
		{"seeds are no sweep", "", "", runs([]Axis{{"seed", "1"}}, []Axis{{"seed", "2"}})},
		{"one of them is no number", "", "", runs([]Axis{{"engine.kv_blocks", "auto"}}, []Axis{{"engine.kv_blocks", "x2"}})},
	} {
		s := sweepOf(test.runs)
		if s == nil {
			if test.axis != "" {
				t.Errorf("%s: no sweep", test.name)
			}
			continue
		}
		var families []string
		for _, f := range s.families {
			text := f.name + ":"
			for i, p := range f.points {
				if i > 0 {
					text += ","
				}
				text += fmt.Sprint(p.x)
			}
			families = append(families, text)
		}
		if got := fmt.Sprint(families); s.axis != test.axis || got != test.families {
			t.Errorf("%s: %s %s, want %s %s", test.name, s.axis, got, test.axis, test.families)
		}
	}
}

// 10k tokens for each program fill 400k tokens with 40 programs; the median of the runs counts. Another capacity has a
// line of its own.
func TestKVLines(t *testing.T) {
	s := sweepOf(sweepReport().Runs)
	s.families[0].points[0].run.KV.WorkingSetTokens = Known(90_000)
	s.families[1].points[3].run.KV.CapacityTokens = Known(800_000)
	if got, want := fmt.Sprint(s.kvLines()), "[{40 400000 10000} {80 800000 10000}]"; got != want {
		t.Errorf("KV lines %s, want %s", got, want)
	}
	s.axis = "workers"
	if got := s.kvLines(); got != nil {
		t.Errorf("KV lines %v along an axis that is not the concurrency", got)
	}
}
