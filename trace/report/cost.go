package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Cost is what the step times of a simulated run rest on.
type Cost struct {
	// Profile names the cost profile, Priced what it was used for, such as "qwen3-14b on h100-sxm, tensor 2, vllm": runs
	// that agree in both share the profile's error.
	Profile string `json:"profile"`
	Priced  string `json:"priced"`
	// OutsideShare is the share of busy GPU time, of all workers in the measured window, in steps unlike those that the
	// profile was fitted to; Outside says in what, the largest share first. A step may be outside in several ways.
	OutsideShare Figure    `json:"outside_share,omitzero"`
	Outside      []Outside `json:"outside,omitempty"`
	// Errors are mean absolute errors, as shares, on models that the profile was fitted without; see models.Profile.HeldOut.
	Errors CostErrors `json:"held_out_errors,omitzero"`
}

// Outside is a way in which steps are unlike those that a profile was fitted to.
type Outside struct {
	// Cause is profile, model, gpu, engine, tensor, batch, context or new_tokens; What is a noun phrase: "contexts above
	// 9197 tokens".
	Cause string `json:"cause"`
	What  string `json:"what"`
	Share Figure `json:"share,omitzero"`
}

// CostErrors holds an error for each measure that is known.
type CostErrors struct {
	TTFT       Figure `json:"ttft,omitzero"`
	TPOT       Figure `json:"tpot,omitzero"`
	E2E        Figure `json:"e2e,omitzero"`
	Throughput Figure `json:"throughput,omitzero"`
}

// Shares of GPU time outside of what a profile was fitted to: from the first on a verdict mentions it, above the second it
// is an extrapolation.
const (
	outsideMentioned = 0.05
	outsideMostly    = 0.5
)

// caveats are sentences on how far the step times carry a verdict on the given runs, of which winner is the index or -1.
func (c *comparison) caveats(winner int) []string {
	var list []string
	if text := c.extrapolates(winner >= 0); text != "" {
		list = append(list, text)
	}
	if winner >= 0 {
		if text := c.withinError(winner); text != "" {
			list = append(list, text)
		}
	}
	return list
}

// extrapolates tells of the run with the largest share of time outside; "" when that is little.
func (c *comparison) extrapolates(won bool) string {
	var worst *Cost
	differ := false
	for _, i := range c.ranked {
		cost := c.runs[i].Cost
		if cost == nil {
			continue
		}
		differ = differ || worst != nil && percent(worst.OutsideShare.Value) != percent(cost.OutsideShare.Value)
		if worst == nil || cost.OutsideShare.Value > worst.OutsideShare.Value {
			worst = cost
		}
	}
	if worst == nil || worst.OutsideShare.Value < outsideMentioned || len(worst.Outside) == 0 {
		return ""
	}
	share, profile := worst.OutsideShare.Value, printable(worst.Profile)
	text := percent(share) + " of GPU time"
	if differ {
		text = "up to " + text
	} else if share > 0.995 {
		text = "all GPU time"
	}
	text += fmt.Sprintf(" is outside what profile %s was measured on (%s)", profile, worst.reasons())
	if worst.Outside[0].Cause == "profile" {
		text = fmt.Sprintf("profile %s does not say what it was measured on", profile)
	}
	if share > outsideMostly {
		text = "an extrapolation: " + text
	}
	if won {
		text += "; read the gap as a direction"
	}
	return capitalize(text) + "."
}

// reasons names what is outside: the largest share, and up to two more that a verdict mentions.
func (c *Cost) reasons() string {
	var parts []string
	for i, o := range c.Outside[:min(3, len(c.Outside))] {
		if i == 0 || o.Share.Value >= outsideMentioned {
			parts = append(parts, printable(o.What))
		}
	}
	return strings.Join(parts, ", ")
}

// withinError tells when the profile's own error is larger than the winner's lead over the run that it is compared with;
// "" when it is not. Runs that agree in what is priced, and differ in routing, load or the number of workers, have their
// steps wrong by the same factor and in the same direction, which moves both alike and leaves the order as it is: of them
// it says nothing. Otherwise the errors of the two need not agree, and a lead below the larger one may be theirs. The error
// is that of requests where programs are compared, which is an upper bound when tools take part of their time.
func (c *comparison) withinError(winner int) string {
	rival := c.base
	if winner == c.base {
		i := slices.IndexFunc(c.ranked, func(i int) bool { return i != winner })
		if i < 0 {
			return ""
		}
		rival = c.ranked[i]
	}
	a, b := c.runs[winner].Cost, c.runs[rival].Cost
	if winner == rival || a == nil || b == nil || a.Profile == b.Profile && a.Priced == b.Priced {
		return ""
	}
	worse := a
	if b.errorOf(c.metric) > a.errorOf(c.metric) {
		worse = b
	}
	lead := math.Abs(c.metric.Of(c.runs[winner]).Value/c.metric.Of(c.runs[rival]).Value - 1)
	if !(lead < worse.errorOf(c.metric)) {
		return ""
	}
	return fmt.Sprintf("The lead is within the error of the step times: profile %s was off by %s on models that it was fitted without.",
		printable(worse.Profile), percent(worse.errorOf(c.metric)))
}

// errorOf is the error that comes nearest to a metric: of the end-to-end time, or of throughput; 0 when not known.
func (c *Cost) errorOf(m Metric) float64 {
	if m.seconds {
		return c.Errors.E2E.Value
	}
	return cmp.Or(c.Errors.Throughput.Value, c.Errors.E2E.Value)
}
