package synth

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentsim/agentsim/trace/report"
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

// Fit sets a parameter of an agent profile to what was observed: a number to the mean of values (context to their
// maximum), a distribution to one like theirs. "tool.NAME" is the times of a tool, whose share among tools is its number of values.
//
// A distribution becomes a log-normal one where that is close, else its quantiles are kept.
func (p *Profile) Fit(key string, values []float64) error {
	a, ok := p.profile.(*agent)
	if !ok {
		return fmt.Errorf("synth: profile %s: not one of agents, which alone can be fitted", p.Name)
	}
	if len(values) == 0 {
		return fmt.Errorf("synth: profile %s: parameter %s: no values to fit", p.Name, key)
	}
	if name, ok := strings.CutPrefix(key, toolKeys); ok {
		name = shorten(name)
		if i := slices.IndexFunc(a.tools, func(t tool) bool { return t.name == name }); i >= 0 { // equal when shortened
			a.tools[i].share += float64(len(values))
			return nil
		}
		if len(a.tools) >= maxTools {
			return fmt.Errorf("synth: profile %s: more than %d tools", p.Name, maxTools)
		}
		a.tools = append(a.tools, tool{name: name, share: float64(len(values))})
		key = a.toolKey(len(a.tools) - 1)
	}
	params := a.params()
	i := slices.IndexFunc(params, func(q param) bool { return q.key == key })
	if i < 0 {
		return fmt.Errorf("synth: profile %s: unknown parameter %q", p.Name, key)
	}
	q := &params[i]
	observed := q.clip(values)
	switch {
	case key == "context":
		a.context = math.Ceil(observed[len(observed)-1])
	case q.number != nil:
		*q.number = round(report.Mean(observed))
	case key == "gap" && poisson(observed):
		a.rate = round(1 / report.Mean(observed))
	default:
		*q.dist = fit(observed).within(q.low, q.high)
	}
	return nil
}

// FitTurns sets the turns of root sessions to what was observed; firsts are the first prompts of the same sessions. Where those
// that begin long have clearly other turns than the rest, as sessions do that go on from others, they get turns of their own:
// Kolmogorov and Smirnov's test at 0.1%, of the best of a few limits, none of which leaves few sessions on a side.
func (p *Profile) FitTurns(turns, firsts []float64) error {
	if len(turns) != len(firsts) {
		return fmt.Errorf("synth: profile %s: turns of %d sessions with first prompts of %d", p.Name, len(turns), len(firsts))
	}
	a, ok := p.profile.(*agent)
	if !ok || len(turns) < 2*few {
		return p.Fit("turns", turns)
	}
	a.long, a.longTurns = 0, dist{}
	sorted := slices.Sorted(slices.Values(firsts))
	short, long, clear := turns, []float64(nil), 1.95
	for _, share := range []float64{0.5, 0.6, 0.7, 0.75, 0.8, 0.9} {
		limit := math.Ceil(report.Quantile(sorted, share))
		var below, above []float64
		for i, first := range firsts {
			if first > limit {
				above = append(above, turns[i])
			} else {
				below = append(below, turns[i])
			}
		}
		if n, m := float64(len(below)), float64(len(above)); min(n, m) >= few {
			if d := apart(below, above) * math.Sqrt(n*m/(n+m)); d > clear {
				short, long, clear, a.long = below, above, d, limit
			}
		}
	}
	if long != nil {
		if err := p.Fit("long-turns", long); err != nil {
			return err
		}
	}
	return p.Fit("turns", short)
}

// apart is the Kolmogorov-Smirnov statistic of two lists, which it sorts.
func apart(a, b []float64) float64 {
	slices.Sort(a)
	slices.Sort(b)
	return distance(a, func(x float64) float64 {
		return float64(sort.Search(len(b), func(i int) bool { return b[i] > x })) / float64(len(b))
	})
}

// Context is the prompts of a session from its first one, or the one after a compaction, up to Last, at which the session
// ended or, if Compacted, the next compaction came.
type Context struct {
	First, Last float64 // tokens
	Compacted   bool
}

// FitCompact sets the context length at which agents summarize to what was observed, by the estimator of Kaplan and Meier (JASA
// 53, 1958): contexts that end before count as what they are, and those that begin long tell nothing of shorter ones. The
// system prompts must have been fitted before.
func (p *Profile) FitCompact(contexts []Context) error {
	a, ok := p.profile.(*agent)
	if !ok || !slices.ContainsFunc(contexts, func(c Context) bool { return c.Compacted }) {
		return fmt.Errorf("synth: profile %s: no compactions of agents to fit", p.Name)
	}
	least := max(a.system.max, a.childSystem.max) + 1024
	quantile, known := survival(contexts)
	a.compact = measured(newKnots(quantile, known)).within(least, maxContext)
	return nil
}

// within moves the limits of a distribution, and its knots, into a range: rounding may have moved them out.
func (d dist) within(low, high float64) dist {
	move := func(x float64) float64 { return min(max(x, low), high) }
	d.min, d.max = move(d.min), move(d.max)
	for i := range d.knots {
		d.knots[i].value = move(d.knots[i].value)
	}
	return d
}

// shorten cuts a name to maxName bytes that can be printed.
func shorten(name string) string {
	name = strings.Map(func(r rune) rune {
		if unprintable(r) {
			return '?'
		}
		return r
	}, name)
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

// fit returns a distribution like sorted values.
func fit(values []float64) dist {
	if low := round(values[0]); values[0] == values[len(values)-1] {
		return between(low, low)
	}
	if d, ok := logNormal(values); ok {
		return d
	}
	return measured(newKnots(func(share float64) float64 { return report.Quantile(values, share) }, len(values)))
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
	off := math.Abs(d.mean()/report.Mean(values) - 1)
	return d, d.sigma <= maxSigma && (len(values) < few || distance(values, d.cdf) <= closeShare && off <= closeMean)
}

// poisson tells that sorted gaps between arrivals are close to those of a Poisson process whose rate is in range.
func poisson(gaps []float64) bool {
	m := report.Mean(gaps)
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

// survival returns the quantile function of the lengths at which contexts are summarized, and how many are known.
// The largest length of all counts as one (Efron).
func survival(contexts []Context) (quantile func(share float64) float64, known int) {
	var lengths, firsts []float64 // of compactions; of all
	largest := 0.0
	for _, c := range contexts {
		if firsts = append(firsts, c.First); c.Compacted {
			lengths = append(lengths, c.Last)
		}
		largest = max(largest, c.Last)
	}
	slices.Sort(lengths)
	slices.Sort(firsts)
	lasts := make([]float64, len(contexts))
	for i, c := range contexts {
		lasts[i] = c.Last
	}
	slices.Sort(lasts)
	var at, below []float64 // lengths, and the share at or below each
	left := 1.0
	for i := 0; i < len(lengths); {
		v, n := lengths[i], 0
		for ; i < len(lengths) && lengths[i] == v; i++ {
			n++
		}
		begun := sort.Search(len(firsts), func(k int) bool { return firsts[k] > v })
		ended := sort.SearchFloat64s(lasts, v)
		risk := begun - ended
		if risk < leastRisk && len(contexts) >= leastRisk {
			continue
		}
		left *= 1 - float64(n)/float64(risk)
		at, below = append(at, v), append(below, 1-left)
	}
	return func(share float64) float64 {
		i := sort.SearchFloat64s(below, share)
		if share == 1 || i == len(at) {
			return largest
		}
		return at[i]
	}, len(lengths)
}

// leastRisk is of how many contexts, that have reached a length and go on, one that ends there tells something.
const leastRisk = 5

// round keeps six digits, so that a profile reads well and hides the last bits, in which processors may differ.
func round(x float64) float64 {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	return x
}
