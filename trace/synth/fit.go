package synth

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of fitted profiles.
const (
	maxTools = 32
	maxName  = 64 // bytes of a name
	// few values tell little more than a spread: their distribution is kept as one, or as five quantiles.
	few = 20
	// A log-normal distribution stands for values that are at most closeShare of all away from it, with a mean at most closeMean
	// of it off.
	closeShare, closeMean = 0.03, 0.03
)

// NewProfile returns a profile of agents with sessions of one call and one token, to be fitted. Block is the tokens of a
// hash; 0 or what is out of range becomes the nearest that is in it, or 64.
func NewProfile(name, about string, block int) *Profile {
	if block == 0 {
		block = 64
	}
	one := between(1, 1)
	return &Profile{name, about, &agent{class: name, block: float64(min(max(block, 16), 4096)), task: one, turns: one, output: one,
		summary: summaries}}
}

// Fit sets a parameter of an agent profile to what was observed: a number to the mean of values, a distribution to one like
// theirs. Above are further values that are known only to be larger than those given. "tool.NAME" is the times of a tool,
// whose share among tools is its number of values.
//
// A distribution becomes a log-normal one where that is close, else its quantiles are kept.
func (p *Profile) Fit(key string, values, above []float64) error {
	a, ok := p.profile.(*agent)
	if !ok {
		return fmt.Errorf("synth: profile %s: not one of agents, which alone can be fitted", p.Name)
	}
	if len(values) == 0 {
		return fmt.Errorf("synth: profile %s: parameter %s: no values to fit", p.Name, key)
	}
	if name, ok := strings.CutPrefix(key, toolKeys); ok {
		if len(a.tools) >= maxTools {
			return fmt.Errorf("synth: profile %s: more than %d tools", p.Name, maxTools)
		}
		a.tools = append(a.tools, tool{name: shorten(name), share: float64(len(values))})
		key = toolKeys + shorten(name)
		if len(a.tools) == 1 && name == defaultTool {
			key = "tool"
		}
	}
	params := a.params()
	i := slices.IndexFunc(params, func(q param) bool { return q.key == key })
	if i < 0 {
		return fmt.Errorf("synth: profile %s: unknown parameter %q", p.Name, key)
	}
	q := &params[i]
	if key == "compact" {
		q.low = max(a.system.max, a.childSystem.max) + 1024
	}
	observed := q.clip(values)
	switch {
	case q.number != nil:
		*q.number = round(mean(observed))
	case key == "gap" && poisson(observed):
		a.rate = round(1 / mean(observed))
	default:
		*q.dist = fit(observed, q.clip(above))
	}
	return nil
}

// shorten cuts a name to maxName bytes of valid text.
func shorten(name string) string {
	name = strings.ToValidUTF8(name, "?")
	for len(name) > maxName {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

// clip returns sorted values, moved into the range of the parameter.
func (p *param) clip(values []float64) []float64 {
	list := make([]float64, len(values))
	for i, v := range values {
		list[i] = min(max(v, p.low), p.high)
	}
	slices.Sort(list)
	return list
}

// fit returns a distribution like sorted values, and values above.
func fit(values, above []float64) dist {
	low, high := values[0], values[len(values)-1]
	switch {
	case len(above) > 0:
		return measured(newKnots(survival(values, above), len(values)))
	case low == high:
		return between(low, high)
	}
	if d, ok := logNormal(values); ok {
		return d
	}
	return measured(newKnots(func(share float64) float64 { return quantile(values, share) }, len(values)))
}

// logNormal returns the log-normal distribution of the values' logarithms, and whether it is close to them, or they too few
// to tell.
func logNormal(values []float64) (d dist, ok bool) {
	if values[0] <= 0 {
		return d, false
	}
	var sum, squares float64
	for _, v := range values {
		sum += math.Log(v)
	}
	center := sum / float64(len(values))
	for _, v := range values {
		squares += float64((math.Log(v) - center) * (math.Log(v) - center))
	}
	d = dist{median: round(math.Exp(center)), sigma: round(math.Sqrt(squares / float64(len(values)))),
		min: round(values[0]), max: round(values[len(values)-1])}
	off := math.Abs(d.mean()/mean(values) - 1)
	return d, len(values) < few || distance(values, d.cdf) <= closeShare && off <= closeMean
}

// poisson tells that sorted gaps between arrivals are close to those of a Poisson process whose rate is in range.
func poisson(gaps []float64) bool {
	m := mean(gaps)
	return m > 0 && m <= 1/minRate && distance(gaps, func(x float64) float64 { return 1 - math.Exp(-x/m) }) <= max(closeShare, 1.36/math.Sqrt(float64(len(gaps))))
}

// distance is the Kolmogorov-Smirnov statistic of sorted values and a distribution function, below and at each value.
func distance(values []float64, cdf func(x float64) float64) float64 {
	n, largest := float64(len(values)), 0.0
	for i := 0; i < len(values); {
		j := i
		for j < len(values) && values[j] == values[i] {
			j++
		}
		// Whole numbers are drawn by rounding, so what lies half a step around one of them is equal to it.
		half := 0.0
		if values[i] == math.Trunc(values[i]) && values[i] > 0 {
			half = 0.5
		}
		largest = max(largest, math.Abs(cdf(values[i]+half)-float64(j)/n))
		if i > 0 {
			largest = max(largest, math.Abs(cdf(values[i]-half)-float64(i)/n))
		}
		i = j
	}
	return largest
}

// survival returns the quantile function of values of which some are known only to be above a limit, by the estimator of
// Kaplan and Meier (JASA 53, 1958). The largest of all counts as known (Efron).
func survival(values, above []float64) func(share float64) float64 {
	largest := max(values[len(values)-1], above[len(above)-1])
	var at, below []float64 // values, and the share at or below each
	left := 1.0
	for i, j := 0, 0; i < len(values); {
		v, n := values[i], 0
		for ; j < len(above) && above[j] < v; j++ {
		}
		risk := len(values) - i + len(above) - j
		for ; i < len(values) && values[i] == v; i++ {
			n++
		}
		left *= 1 - float64(n)/float64(risk)
		at, below = append(at, v), append(below, 1-left)
	}
	return func(share float64) float64 {
		i, _ := slices.BinarySearch(below, share)
		if share == 1 || i == len(at) {
			return largest
		}
		return at[i]
	}
}

// quantile is that of sorted values at rank (n-1)·share, linear between neighbours.
func quantile(sorted []float64, share float64) float64 {
	rank, part := math.Modf(float64(len(sorted)-1) * share)
	i := int(rank)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + float64((sorted[i+1]-sorted[i])*part)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// round keeps six digits, so that a profile reads well and hides the last bits, in which processors may differ.
func round(x float64) float64 {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	return x
}
