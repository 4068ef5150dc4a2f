package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Verdict says in words which run wins.
type Verdict struct {
	// Text is one or two sentences.
	Text string `json:"text"`
	// Trust is false when the comparison should not be relied on; Reasons says why.
	Trust   bool     `json:"trust"`
	Reasons []string `json:"reasons,omitempty"`
}

// Evidence is what the caller of Judge knows beyond the runs.
type Evidence struct {
	// FixedLoad tells that arrivals did not wait for the deployment (recorded or Poisson arrivals).
	FixedLoad bool
	// Intervals, one per run, are differences to the first run in the Primary metric; nil without repeats.
	Intervals []Interval
	// Flips names the assumptions under which another run wins, such as "--outputs none".
	Flips []string
}

// Judge compares the runs with the first one, the baseline: what wins, by how much, on what, at what cost, why, and
// how far to trust it. Differences under 1 %, or within their interval when there is one, count as none.
func Judge(runs []*Run, given Evidence) Verdict {
	metric := Primary(runs, given.FixedLoad)
	ranked := rank(runs, metric)
	v := Verdict{Reasons: reasons(runs, given.Flips)}
	switch {
	case len(ranked) == 0:
		v.Reasons = append(v.Reasons, "no run completed anything")
	case !slices.Contains(ranked, 0):
		v.Text = describe(runs[ranked[0]], metric)
		v.Reasons = append(v.Reasons, fmt.Sprintf("the baseline %s completed nothing", runs[0].label()))
	case len(ranked) == 1:
		v.Text = describe(runs[0], metric)
	default:
		v.Text = compare(runs, ranked, metric, given.Intervals)
	}
	v.Trust = len(v.Reasons) == 0
	v.Text = strings.TrimSpace(v.Text + " " + trust(runs, v.Reasons))
	return v
}

// Best returns the index of the run that is best in the metric, or -1 when none is or the next is as good within 1 %.
func Best(runs []*Run, metric Metric) int {
	ranked := rank(runs, metric)
	if len(ranked) == 0 || len(ranked) > 1 && near(runs[ranked[0]], runs[ranked[1]], metric) {
		return -1
	}
	return ranked[0]
}

// rank returns the indexes of the runs that have the metric (a rate of 0 is nothing to rank), best first.
func rank(runs []*Run, metric Metric) []int {
	var ranked []int
	for i, r := range runs {
		if r.Status != RunFailed && metric.Of(r).Value > 0 {
			ranked = append(ranked, i)
		}
	}
	slices.SortStableFunc(ranked, func(a, b int) int {
		order := cmp.Compare(metric.Of(runs[a]).Value, metric.Of(runs[b]).Value)
		if metric.LowerIsBetter {
			return order
		}
		return -order
	})
	return ranked
}

// compare is the sentence about the winner and the baseline, or about the baseline and the next one when that wins.
func compare(runs []*Run, ranked []int, metric Metric, intervals []Interval) string {
	baselineWins := ranked[0] == 0
	rival := ranked[0]
	if baselineWins {
		rival = ranked[1]
	}
	// The winner is the best of those that differ from the baseline: a lead within noise is none.
	for _, i := range ranked[:slices.Index(ranked, 0)] {
		if !differ(runs, i, metric, intervals).none {
			rival = i
			break
		}
	}
	base, other := runs[0], runs[rival]
	d := differ(runs, rival, metric, intervals)
	switch {
	case d.none:
		return fmt.Sprintf("%s and %s are equal in %s (%s and %s), %s%s.", other.label(), base.label(), metric.Name,
			metric.print(other), metric.print(base), d.text, cost(other, base))
	case baselineWins:
		return fmt.Sprintf("%s, the baseline, %s: %s; the next, %s, has %s%s%s.", base.label(), metric.best,
			metric.print(base), other.label(), d.text, cost(base, other), why(base, other))
	}
	claim, also := metric.best, ""
	switch next := ranked[1]; {
	case rival != ranked[0]:
		claim = "beats the baseline in " + metric.Name
		also = "; " + runs[ranked[0]].label() + " does better on average, but within noise"
	case next != 0 && near(runs[next], other, metric):
		also = "; " + runs[next].label() + " does as well"
	}
	return fmt.Sprintf("%s %s: %s, %s than %s%s%s%s.", other.label(), claim, metric.print(other), d.text,
		base.label(), cost(other, base), why(other, base), also)
}

// difference is how a run differs from the baseline; none when that may be chance.
type difference struct {
	none bool
	text string
}

// differ compares run i with the baseline by its interval, else by the figures themselves.
func differ(runs []*Run, i int, metric Metric, intervals []Interval) difference {
	if i < len(intervals) && intervals[i].Repeats > 0 {
		iv := intervals[i]
		bounds := fmt.Sprintf("95%% interval %+.1f%% to %+.1f%% over %d repeats", 100*iv.Low, 100*iv.High, iv.Repeats)
		if iv.isNoise() {
			return difference{none: true, text: fmt.Sprintf("%+.1f%% being within noise (%s)", 100*iv.Mean, bounds)}
		}
		return difference{text: moreOrLess(iv.Mean) + " (" + bounds + ")"}
	}
	d := metric.Of(runs[i]).Value/metric.Of(runs[0]).Value - 1
	if math.Abs(d) < equalWithin {
		return difference{none: true, text: fmt.Sprintf("less than %.0f%% apart", 100*equalWithin)}
	}
	return difference{text: moreOrLess(d)}
}

// describe is the sentence about a run without a rival.
func describe(r *Run, metric Metric) string {
	text := fmt.Sprintf("%s: %s %s", r.label(), metric.print(r), metric.Name)
	if p99 := r.LatencyMs.TTFT.P99; p99.Known {
		text += ", p99 TTFT " + duration(p99.Value/1000)
	}
	if hit := r.KV.HitRate; hit.Known {
		text += ", hit rate " + percent(hit.Value)
	}
	if share := r.KV.ReprefillTimeShare; share.Known {
		text += ", " + percent(share.Value) + " of GPU time re-prefilling"
	}
	return text + "."
}

// cost tells what the winner's p99 TTFT and paused time are against the other's.
func cost(top, other *Run) string {
	text := ""
	a, b := top.LatencyMs.TTFT.P99, other.LatencyMs.TTFT.P99
	if a.Known && b.Known && b.Value > 0 {
		switch d := a.Value/b.Value - 1; {
		case d >= equalWithin:
			text = fmt.Sprintf(", at the cost of a p99 TTFT of %s against %s", duration(a.Value/1000), duration(b.Value/1000))
		case d <= -equalWithin:
			text = fmt.Sprintf(", with a p99 TTFT of %s against %s", duration(a.Value/1000), duration(b.Value/1000))
		default:
			text = fmt.Sprintf(", with the same p99 TTFT (%s)", duration(a.Value/1000))
		}
	}
	if paused := top.Programs.PausedS.Mean; paused.Value > 0 {
		text += fmt.Sprintf(", programs being paused for %s on average", duration(paused.Value))
	}
	return text
}

// why tells the differences in cache reuse and preemptions that are large enough to explain something.
func why(top, other *Run) string {
	var parts []string
	share := func(format string, a, b Figure) {
		if a.Known && b.Known && math.Abs(a.Value-b.Value) >= 0.01 {
			parts = append(parts, fmt.Sprintf(format, percent(a.Value), percent(b.Value)))
		}
	}
	share("hit rate %s against %s", top.KV.HitRate, other.KV.HitRate)
	share("%s of GPU time re-prefilling against %s", top.KV.ReprefillTimeShare, other.KV.ReprefillTimeShare)
	a, b := top.Preemptions, other.Preemptions
	if a.Known && b.Known && math.Abs(a.Value-b.Value) > max(a.Value, b.Value)/10 {
		parts = append(parts, fmt.Sprintf("%s preemptions against %s", number(a.Value), number(b.Value)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; " + strings.Join(parts, ", ")
}

// reasons lists what makes the comparison one not to rely on.
func reasons(runs []*Run, flips []string) []string {
	var why []string
	for _, r := range runs {
		switch {
		case r.Status == RunFailed:
			why = append(why, fmt.Sprintf("%s failed: %s", r.label(), cmp.Or(r.Error, "no reason given")))
		case r.Status == RunInterrupted:
			why = append(why, r.label()+" was interrupted")
		case r.incomplete() > 0:
			why = append(why, fmt.Sprintf("%s: %s", r.label(), r.lost().describe()))
		}
	}
	if len(flips) > 0 {
		why = append(why, "another run wins with "+list(flips))
	}
	return why
}

// describe says what did not complete: "12 of 412 requests did not complete (8 rejected, 4 failed)".
func (c Requests) describe() string {
	var parts []string
	for _, p := range []struct {
		n    int64
		what string
	}{{c.Rejected, "rejected"}, {c.Failed, "failed"}, {c.Unfinished, "unfinished"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return fmt.Sprintf("%s did not complete (%s)", countOf(c.Rejected+c.Failed+c.Unfinished, c.Total, "request"), strings.Join(parts, ", "))
}

// trust is the sentence on how far the figures carry.
func trust(runs []*Run, reasons []string) string {
	if len(reasons) > 0 {
		return "Not to be trusted: " + strings.Join(reasons, "; ") + "."
	}
	var rests []string
	for _, r := range runs {
		if b := r.KV.OutputBlocks; b != nil && b.Inferred+b.Unknown > 0 {
			total := float64(b.Known + b.Inferred + b.Unknown)
			rests = append(rests, fmt.Sprintf("inference for %s of output blocks (%s are unknown)",
				percent(float64(b.Inferred)/total), percent(float64(b.Unknown)/total)))
			break // the runs share one workload
		}
	}
	var approximations []string
	for _, r := range runs {
		for _, a := range r.Approximations {
			if !slices.Contains(approximations, a) {
				approximations = append(approximations, a)
			}
		}
	}
	switch n := len(approximations); {
	case n == 1:
		rests = append(rests, "one approximation ("+approximations[0]+")")
	case n > 1:
		rests = append(rests, fmt.Sprintf("%d approximations, listed in the report", n))
	}
	if len(rests) == 0 {
		return ""
	}
	return "This rests on " + strings.Join(rests, " and on ") + "."
}

// label is the name of a run in a sentence.
func (r *Run) label() string { return shorten(cmp.Or(r.Name, "the unnamed run"), 32) }

// near tells that two runs are equal in the metric.
func near(a, b *Run, metric Metric) bool {
	return math.Abs(metric.Of(a).Value/metric.Of(b).Value-1) < equalWithin
}

// print formats the run's figure.
func (m Metric) print(r *Run) string {
	if m.seconds {
		return duration(m.Of(r).Value)
	}
	return number(m.Of(r).Value)
}

// moreOrLess prints a relative difference: "14% more".
func moreOrLess(d float64) string {
	if d < 0 {
		return percent(-d) + " less"
	}
	return percent(d) + " more"
}
