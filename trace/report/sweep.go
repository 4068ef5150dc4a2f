package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sweep is runs that differ in a number, such as how many programs live at a time, in families that agree in all else.
type sweep struct {
	axis     string // the configuration key
	families []family
	omitted  int // families beyond maxFamilies
}

// family is the runs of one line, by ascending value of the axis.
type family struct {
	name   string
	points []sweepPoint
}

type sweepPoint struct {
	x   float64
	run *Run
}

// maxFamilies bounds the lines of a chart: their colours and dashes do not repeat up to there.
const maxFamilies = 24

// sweepOf finds the axis that runs sweep: the concurrency if they differ in it, else the first with numbers. It returns
// nil where there is none.
func sweepOf(runs []*Run) *sweep {
	keys := differingAxes(runs)
	at := slices.IndexFunc(keys, func(key string) bool { return key == concurrencyAxis && isNumeric(runs, key) })
	if at < 0 {
		at = slices.IndexFunc(keys, func(key string) bool { return key != "seed" && isNumeric(runs, key) })
	}
	if at < 0 {
		return nil
	}
	s := &sweep{axis: keys[at]}
	for _, r := range runs {
		value, ok := r.axis(s.axis)
		x, isNumber := axisNumber(value)
		if !ok || !isNumber || r.Status == RunFailed {
			continue
		}
		var others []string
		for _, key := range keys {
			if v, ok := r.axis(key); ok && key != s.axis {
				_, last := splitKey(key)
				if last != "policy" && last != "model" && last != "gpu" {
					v = last + "=" + v
				}
				others = append(others, v)
			}
		}
		name := printable(strings.Join(others, " "))
		i := slices.IndexFunc(s.families, func(f family) bool { return f.name == name })
		switch {
		case i >= 0:
		case len(s.families) == maxFamilies:
			s.omitted++
			continue
		default:
			i = len(s.families)
			s.families = append(s.families, family{name: name})
		}
		s.families[i].points = append(s.families[i].points, sweepPoint{x, r})
	}
	for _, f := range s.families {
		slices.SortStableFunc(f.points, func(a, b sweepPoint) int { return cmp.Compare(a.x, b.x) })
	}
	if len(s.families) == 0 {
		return nil
	}
	return s
}

const concurrencyAxis = "load.concurrency"

// isNumeric tells whether all values of an axis are numbers.
func isNumeric(runs []*Run, key string) bool {
	return !slices.ContainsFunc(runs, func(r *Run) bool {
		v, ok := r.axis(key)
		_, isNumber := axisNumber(v)
		return ok && !isNumber
	})
}

// sizes are the units of sizes, in GiB.
var sizes = []struct {
	name string
	gib  float64
}{{"TiB", 1 << 10}, {"GiB", 1}, {"MiB", 1. / (1 << 10)}, {"TB", 1e12 / (1 << 30)}, {"GB", 1e9 / (1 << 30)}, {"MB", 1e6 / (1 << 30)}}

// axisNumber reads a value of an axis: a number, a multiple such as x0.5, a time, in seconds, or a size, in GiB.
func axisNumber(value string) (float64, bool) {
	for _, u := range sizes {
		if number, ok := strings.CutSuffix(value, u.name); ok {
			v, err := strconv.ParseFloat(number, 64)
			return v * u.gib, err == nil && v-v == 0
		}
	}
	if d, err := time.ParseDuration(value); err == nil && value != "0" {
		return d.Seconds(), true
	}
	v, err := strconv.ParseFloat(strings.TrimPrefix(value, "x"), 64)
	return v, err == nil && v-v == 0
}

// values are all values of the axis.
func (s *sweep) values() []float64 {
	var list []float64
	for _, f := range s.families {
		for _, p := range f.points {
			list = append(list, p.x)
		}
	}
	return list
}

// kvLine is the number of programs whose contexts fill the KV capacity, which so many tokens of it are.
type kvLine struct{ programs, capacity, perProgram float64 }

// kvLines returns a line for each KV capacity in a sweep of the concurrency, not more than a few: capacity over the mean
// working set of a program, of which the median of the runs counts.
func (s *sweep) kvLines() []kvLine {
	const most = 3
	if s.axis != concurrencyAxis {
		return nil
	}
	sets := map[float64][]float64{}
	var capacities []float64
	for _, f := range s.families {
		for _, p := range f.points {
			capacity, set := p.run.KV.CapacityTokens, p.run.KV.WorkingSetTokens
			if !capacity.Known || !(set.Value > 0) {
				continue
			}
			if sets[capacity.Value] == nil {
				capacities = append(capacities, capacity.Value)
			}
			sets[capacity.Value] = append(sets[capacity.Value], set.Value)
		}
	}
	var lines []kvLine
	for _, c := range capacities[:min(most, len(capacities))] {
		list := slices.Sorted(slices.Values(sets[c]))
		middle := Quantile(list, 0.5)
		lines = append(lines, kvLine{c / middle, c, middle})
	}
	return lines
}

// loadAxes are axes on which rows differ in what they are asked to do, rather than in how they do it.
var loadAxes = []string{concurrencyAxis, "load.rate", "load.speed"}

// underThatLoad compares a winner with the best other row under its load, where the baseline has another: what the row
// gains by the load is not what it gains by its deployment.
func (c *comparison) underThatLoad(winner int) string {
	same := func(i, j int) bool {
		return !slices.ContainsFunc(loadAxes, func(key string) bool {
			a, _ := c.runs[i].axis(key)
			b, _ := c.runs[j].axis(key)
			return a != b
		})
	}
	if same(winner, c.base) {
		return ""
	}
	for _, i := range c.ranked {
		switch {
		case i == winner || !same(i, winner):
		case i == c.ranked[1] && near(c.runs[i], c.runs[winner], c.metric):
			return "" // told already
		default:
			d := c.metric.Of(c.runs[i]).Value/c.metric.Of(c.runs[winner]).Value - 1
			return fmt.Sprintf("; under the same load %s has %s (%s)", c.runs[i].label(), c.print(c.metric, i), moreOrLess(d))
		}
	}
	return ""
}
