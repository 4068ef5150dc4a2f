package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// comparison writes the sentences about runs that can win.
type comparison struct {
	runs []*Run
	// base indexes the run that the others are compared with; ranked holds those that can win, best first.
	base      int
	ranked    []int
	metric    Metric
	intervals []Interval
}

// compare returns the sentence that says which run wins, and the winner's index; -1 when none does.
func (c *comparison) compare() (text string, winner int) {
	top := c.runs[c.ranked[0]]
	place := slices.Index(c.ranked, c.base)
	switch {
	case place < 0:
		return c.describe(top.label()+":", c.ranked[0]), -1
	case len(contenders(c.runs)) == 1:
		return c.describe(top.label()+" is the only row that completed all its requests:", c.ranked[0]), c.ranked[0]
	case len(c.ranked) == 1:
		return c.describe(top.label()+" is the only row that completed anything:", c.ranked[0]), c.ranked[0]
	}
	// The winner is the best of those that differ from the baseline: a lead within noise is none.
	for _, i := range c.ranked[:place] {
		if d := c.differ(i); !d.none {
			return c.wins(i, d), i
		}
	}
	same := slices.DeleteFunc(slices.Clone(c.ranked), func(i int) bool { return !c.differ(i).none })
	if len(same) > 1 {
		return c.equal(same), -1
	}
	return c.holds(c.ranked[1]), c.base
}

// wins is the sentence about another run than the baseline that wins.
func (c *comparison) wins(i int, d difference) string {
	top, base := c.runs[i], c.runs[c.base]
	claim, also := c.metric.best, ""
	switch next := c.ranked[1]; {
	case i != c.ranked[0]:
		claim = "beats the baseline in " + c.metric.Name
		also = "; " + c.runs[c.ranked[0]].label() + " does better on average, but within noise"
	case next != c.base && near(c.runs[next], top, c.metric):
		also = "; " + c.runs[next].label() + " is within 1% of it"
	}
	return fmt.Sprintf("%s %s: %s, %s than %s%s%s%s%s%s%s.", top.label(), claim, c.print(c.metric, i), d.text, base.label(),
		gpus(top, base), c.cost(i, c.base), why(top, base), also, c.underThatLoad(i), c.pausing(i, c.base))
}

// holds is the sentence about a baseline that wins.
func (c *comparison) holds(next int) string {
	base, other := c.runs[c.base], c.runs[next]
	return fmt.Sprintf("%s, the baseline, %s: %s; the next, %s, has %s%s%s%s%s.", base.label(), c.metric.best,
		c.print(c.metric, c.base), other.label(), c.differ(next).text, gpus(other, base), c.cost(c.base, next), why(base, other),
		c.pausing(c.base, next))
}

// equal is the sentence about the baseline and runs that are equal to it, and what tells these apart nevertheless.
func (c *comparison) equal(same []int) string {
	var b strings.Builder
	noise := c.noise(same)
	switch {
	case len(same) == len(c.ranked) && noise == "":
		b.WriteString("Equal in ")
	case len(same) == len(c.ranked):
		b.WriteString("Equal within noise in ")
	case noise == "":
		b.WriteString(c.names(same) + " are equal in ")
	default:
		b.WriteString(c.names(same) + " are equal within noise in ")
	}
	details := c.span(c.metric, same)
	if noise != "" {
		details += "; " + noise
	}
	if waits := waiting(c.runs[c.base]); waits != "" && !c.metric.seconds {
		details += "; " + waits
	}
	fmt.Fprintf(&b, "%s (%s)", c.metric.Name, details)
	if behind := slices.DeleteFunc(slices.Clone(c.ranked), func(i int) bool { return slices.Contains(same, i) }); len(behind) > 0 {
		fmt.Fprintf(&b, ", ahead of %s (%s)", c.names(behind), c.span(c.metric, behind))
	}
	b.WriteString(c.apart(same) + c.pausing() + ".")
	return b.String()
}

// noise tells of the interval of the best run that is equal only because of it; "" when there is none.
func (c *comparison) noise(same []int) string {
	for _, i := range same {
		if i < len(c.intervals) && i != c.base && c.intervals[i].Repeats > 0 {
			return fmt.Sprintf("%s %+.1f%%, %s", c.runs[i].label(), 100*c.intervals[i].Mean, c.intervals[i].bounds())
		}
	}
	return ""
}

// apart says what a further metric makes of runs that are equal in the first: "; kv cuts p99 TTFT 47% (24.2 s to
// 12.8 s) and re-prefilling from 33% to 19% of GPU time".
func (c *comparison) apart(same []int) string {
	var equal []string
	metrics := c.further()
	for _, m := range metrics {
		top, other, ok := c.bestBy(m, same)
		if !ok {
			if m.Of(c.runs[c.base]).Known {
				equal = append(equal, m.Name)
			}
			continue
		}
		subject := c.runs[top].label()
		if top == c.base {
			subject += ", the baseline,"
		}
		if top == c.base || len(same) > 2 {
			subject = "against " + c.runs[other].label() + ", " + subject
		}
		return "; " + subject + c.effects(metrics, top, other) + gpus(c.runs[top], c.runs[other])
	}
	switch len(equal) {
	case 0:
		return ""
	case 1:
		return "; " + equal[0] + " is equal too"
	}
	return "; " + list(equal) + " are equal too"
}

// further lists the metrics that tell apart runs which are equal in the first.
func (c *comparison) further() []Metric {
	return slices.DeleteFunc([]Metric{ttftP99, meanTime(c.runs), reprefillShare},
		func(m Metric) bool { return m.Name == c.metric.Name })
}

// bestBy returns the run that is best in m, and the one that it is compared with: the baseline, or the next one when
// the baseline is best. ok is false when none differs.
func (c *comparison) bestBy(m Metric, same []int) (top, other int, ok bool) {
	value := func(i int) float64 { return m.Of(c.runs[i]).Value }
	differing := slices.DeleteFunc(slices.Clone(same), func(i int) bool {
		return !m.differ(c.runs[i], c.runs[c.base])
	})
	if len(differing) == 0 {
		return 0, 0, false
	}
	best := slices.MinFunc(differing, func(a, b int) int { return cmp.Compare(value(a), value(b)) })
	if value(best) < value(c.base) {
		return best, c.base, true
	}
	return c.base, best, true
}

// effects says what the metrics, of which lower is better, become with run top instead of the other.
func (c *comparison) effects(metrics []Metric, top, other int) string {
	var cuts, raises []string
	for _, m := range metrics {
		if !m.differ(c.runs[top], c.runs[other]) {
			continue
		}
		to, from := m.Of(c.runs[top]).Value, m.Of(c.runs[other]).Value
		text := fmt.Sprintf("%s from %s to %s of GPU time", m.Name, percent(from), percent(to))
		if m.seconds {
			text = fmt.Sprintf("%s %s (%s to %s)", m.Name, percent(math.Abs(to/from-1)), c.print(m, other), c.print(m, top))
		}
		if to < from {
			cuts = append(cuts, text)
		} else {
			raises = append(raises, text)
		}
	}
	text := " cuts " + list(cuts)
	if len(raises) > 0 {
		text += ", but raises " + list(raises)
	}
	return text
}

// difference is how a run differs from the baseline; none when that may be chance.
type difference struct {
	none bool
	text string
}

// differ compares run i with the baseline by its interval, else by the figures themselves.
func (c *comparison) differ(i int) difference {
	if i < len(c.intervals) && c.intervals[i].Repeats > 0 && i != c.base {
		iv := c.intervals[i]
		return difference{none: iv.isNoise(), text: moreOrLess(iv.Mean) + " (" + iv.bounds() + ")"}
	}
	d := c.metric.Of(c.runs[i]).Value/c.metric.Of(c.runs[c.base]).Value - 1
	return difference{none: math.Abs(d) < equalWithin, text: moreOrLess(d)}
}

// bounds prints the interval.
func (iv Interval) bounds() string {
	return fmt.Sprintf("95%% interval %+.1f%% to %+.1f%% over %d repeats", 100*iv.Low, 100*iv.High, iv.Repeats)
}

// describe sums up run i after an introduction.
func (c *comparison) describe(introduction string, i int) string {
	r := c.runs[i]
	text := fmt.Sprintf("%s %s %s", introduction, c.print(c.metric, i), c.metric.Name)
	if ttftP99.Of(r).Known {
		text += ", p99 TTFT " + c.print(ttftP99, i)
	}
	if hit := r.KV.HitRate; hit.Known {
		text += ", hit rate " + percent(hit.Value)
	}
	if share := r.KV.ReprefillTimeShare; share.Known {
		text += ", " + percent(share.Value) + " of GPU time re-prefilling"
	}
	if pausedMean.Of(r).Value > 0 {
		text += ", programs being paused for " + c.print(pausedMean, i) + " on average"
	}
	return text + "."
}

// spans is the sentence about runs none of which completed everything: it names no winner.
func (c *comparison) spans() string {
	var parts []string
	for _, m := range []Metric{c.metric, ttftP99, pausedMean, hitRate} {
		known := slices.DeleteFunc(slices.Clone(c.ranked), func(i int) bool { return !m.Of(c.runs[i]).Known })
		told := func(i int) bool { return m.Name != pausedMean.Name || m.Of(c.runs[i]).Value > 0 }
		if !slices.ContainsFunc(known, told) {
			continue
		}
		slices.SortStableFunc(known, func(a, b int) int {
			return cmp.Compare(m.Of(c.runs[a]).Value, m.Of(c.runs[b]).Value)
		})
		low, high := known[0], known[len(known)-1]
		text := m.Name + " " + c.print(m, low)
		if c.print(m, high) != c.print(m, low) {
			text += fmt.Sprintf(" (%s) to %s (%s)", c.runs[low].label(), c.print(m, high), c.runs[high].label())
		}
		parts = append(parts, text)
	}
	return "Of what was completed: " + strings.Join(parts, ", ") + "."
}

// why tells the differences in cache reuse and preemptions that are large enough to explain something.
func why(top, other *Run) string {
	var parts []string
	share := func(format string, m Metric) {
		if m.differ(top, other) {
			parts = append(parts, fmt.Sprintf(format, percent(m.Of(top).Value), percent(m.Of(other).Value)))
		}
	}
	share("hit rate %s against %s", hitRate)
	share("%s of GPU time re-prefilling against %s", reprefillShare)
	if turnsPrice.differ(top, other) {
		parts = append(parts, fmt.Sprintf("1000 turns cost %s against %s", number(turnsPrice.Of(top).Value), number(turnsPrice.Of(other).Value)))
	}
	a, b := top.Preemptions, other.Preemptions
	if a.Known && b.Known && math.Abs(a.Value-b.Value) > max(a.Value, b.Value)/10 {
		parts = append(parts, fmt.Sprintf("%s preemptions against %s", number(a.Value), number(b.Value)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, ", ")
}

// gpus tells what the run has in GPUs over the other: ", with twice the GPUs (8 against 4)".
func gpus(r, other *Run) string {
	a, b := r.GPUs, other.GPUs
	switch {
	case r.Solution != nil && r.Solution.Of == SolveGPUs: // they are what is compared
		return ""
	case a <= 0 || b <= 0 || a == b:
		return ""
	case a == 2*b:
		return fmt.Sprintf(", with twice the GPUs (%d against %d)", a, b)
	case 2*a == b:
		return fmt.Sprintf(", with half the GPUs (%d against %d)", a, b)
	case a%b == 0:
		return fmt.Sprintf(", with %d times the GPUs (%d against %d)", a/b, a, b)
	}
	return fmt.Sprintf(", with %d GPUs against %d", a, b)
}

// waiting tells when most of a program's time is not the model's: no deployment can do much about it then.
func waiting(r *Run) string {
	p := &r.Programs
	model, tool, human := p.ModelS.Mean.Value, p.ToolS.Mean.Value, p.HumanS.Mean.Value
	share := (tool + human) / (model + tool + human)
	if !(share >= 0.5) {
		return ""
	}
	who := "tools and people"
	switch {
	case human == 0:
		who = "tools"
	case tool == 0:
		who = "people"
	}
	return percent(share) + " of program time is " + who
}

// span prints the metric's least and greatest value of some runs: "361 to 364", or one value when they print alike.
func (c *comparison) span(m Metric, of []int) string {
	byValue := func(a, b int) int { return cmp.Compare(m.Of(c.runs[a]).Value, m.Of(c.runs[b]).Value) }
	low, high := c.print(m, slices.MinFunc(of, byValue)), c.print(m, slices.MaxFunc(of, byValue))
	if low == high {
		return low
	}
	return low + " to " + high
}

func (c *comparison) print(m Metric, i int) string { return m.Print(c.runs[i], c.runs) }

// names lists the names of some of the runs, in the order of the table.
func (c *comparison) names(of []int) string {
	var runs []*Run
	for _, i := range slices.Sorted(slices.Values(of)) {
		runs = append(runs, c.runs[i])
	}
	return names(runs)
}

// moreOrLess prints a relative difference: "14% more".
func moreOrLess(d float64) string {
	if d < 0 {
		return percent(-d) + " less"
	}
	return percent(d) + " more"
}
