package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Verdict says in words which run wins.
type Verdict struct {
	// Text is a few sentences. It counts the requests that were lost; Reasons tells why as well.
	Text string `json:"text"`
	// Winner is the name of the run that wins; "" when none does.
	Winner string `json:"winner,omitempty"`
	// Trusted is false when the result should not be relied on as it is; Reasons says why.
	Trusted bool     `json:"trusted"`
	Reasons []string `json:"reasons"`
	// Caveats are the sentences of Text on how far the step times carry it. They lower what it is worth, but do not make it
	// untrusted.
	Caveats []string `json:"caveats,omitempty"`
}

// Evidence is what the caller of Judge knows beyond the runs.
type Evidence struct {
	// FixedLoad tells that arrivals did not wait for the deployment (recorded or Poisson arrivals).
	FixedLoad bool
	// Intervals, one per run, are differences to the run that Baseline names, in the Primary metric. The zero Interval
	// is not known.
	Intervals []Interval
	// Bounds tells that all runs were repeated with --outputs none and all; Flips names those of the two with which
	// another run wins, or none does any more.
	Bounds bool
	Flips  []string
	// LostRows counts the rows of the trace that were not written or could not be read.
	LostRows int
}

// Judge says which run wins, by how much over the baseline, on what, at what cost, why, and how far to trust it.
// Differences under 1 %, or within their interval (or under 0.1 %) when there is one, count as none; runs that are equal
// are told apart by latency and by the GPU time that goes into re-prefilling. A run that did not complete all its requests
// cannot win.
func Judge(runs []*Run, given Evidence) Verdict {
	metric := Primary(runs, given.FixedLoad)
	c := comparison{
		runs: runs, base: Baseline(runs), ranked: rank(runs, metric), metric: metric, intervals: given.Intervals,
	}
	faults, doubts := shortcomings(runs, (*Run).loss), given.doubts()
	var sentences []string
	winner := -1
	told := false // the sentences name the faults
	switch {
	case len(c.ranked) == 0 && solutionOf(runs) != nil:
		doubts = append(doubts, "no number keeps the limits")
	case len(c.ranked) == 0:
		doubts = append(doubts, "no run completed anything")
	case len(runs) == 1:
		sentences = append(sentences, c.describe(runs[0].label()+":", 0))
	case !runs[c.ranked[0]].complete() && !sameFault(runs):
		sentences = append(sentences, "No row completed all its requests; "+few(faults)+".", c.spans())
		told = true
	default:
		if !slices.Contains(c.ranked, c.base) {
			what := "completed nothing"
			if runs[c.base].Solution != nil {
				what = "keeps the limits with no number"
			}
			doubts = append(doubts, fmt.Sprintf("the baseline %s %s", runs[c.base].label(), what))
		}
		var text string
		text, winner = c.compare()
		sentences = append(sentences, text)
		switch {
		case len(faults) > 0 && runs[c.ranked[0]].complete():
			sentences = append(sentences, "Left out of the comparison: "+few(faults)+c.outdone()+".")
		case len(faults) > 0:
			sentences = append(sentences, capitalize(few(faults))+", so this holds for the rest of the work only.")
		}
		told = true
	}

	if text := c.keeping(winner); text != "" {
		sentences = append(sentences, text)
	}

	reasons := append([]string{}, shortcomings(runs, (*Run).shortcoming)...)
	v := Verdict{Reasons: append(reasons, doubts...), Caveats: c.caveats(winner)}
	if winner >= 0 {
		v.Winner = runs[winner].Name
	}
	sentences = append(sentences, v.Caveats...)
	v.Trusted = len(v.Reasons) == 0
	if !told {
		doubts = append(faults, doubts...)
	}
	switch {
	case len(doubts) > 0:
		sentences = append(sentences, "Not to be trusted: "+few(doubts)+".")
	case v.Trusted:
		sentences = append(sentences, rests(runs, given.Bounds, v.Winner))
	}
	v.Text = strings.TrimSpace(strings.Join(sentences, " "))
	return v
}

// sameFault tells that all runs rejected the same part of the work and did the rest.
func sameFault(runs []*Run) bool {
	for _, r := range runs {
		if q := r.lost(); !sameWork(r, runs[0]) || r.Status != RunDone || q.Failed+q.Unfinished > 0 {
			return false
		}
	}
	return true
}

// doubts lists what makes any comparison of the runs one not to rely on.
func (e Evidence) doubts() []string {
	var doubts []string
	if e.LostRows > 0 {
		doubts = append(doubts, RowsLost(e.LostRows))
	}
	if len(e.Flips) > 0 {
		doubts = append(doubts, "the outcome is another with "+list(e.Flips))
	}
	return doubts
}

// RowsLost is why nothing should be trusted that is made of a trace which lost n of its rows, in reading or in
// recording.
func RowsLost(n int) string {
	if n == 1 {
		return "1 row of the trace was lost"
	}
	return fmt.Sprintf("%d rows of the trace were lost", n)
}

// rests is the sentence on what the figures rest on; "" for nothing that needs saying.
func rests(runs []*Run, bounds bool, winner string) string {
	var parts []string
	if share := inferredShare(runs); share > 0 {
		text := percent(share) + " of generated KV blocks are matched to later prompts by rule"
		if !bounds {
			text += " (--bounds tests it)"
		}
		parts = append(parts, text)
	}
	switch {
	case !bounds || len(runs) < 2:
	case winner == "":
		parts = append(parts, "no row wins with --outputs none or all either")
	default:
		parts = append(parts, "the winner is the same with --outputs none and all")
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
		parts = append(parts, "there is one approximation (see the notes)")
	case n > 1:
		parts = append(parts, fmt.Sprintf("there are %d approximations (see the notes)", n))
	}
	if len(parts) == 0 {
		return ""
	}
	return capitalize(strings.Join(parts, "; ")) + "."
}

// inferredShare is the share of generated blocks that were matched to later prompts by rule. The runs share one
// workload.
func inferredShare(runs []*Run) float64 {
	for _, r := range runs {
		if b := r.KV.OutputBlocks; b != nil && b.Inferred > 0 {
			return float64(b.Inferred) / float64(b.Known+b.Inferred+b.Unknown)
		}
	}
	return 0
}

// few joins a few clauses; Reasons has them all.
func few(clauses []string) string {
	const most = 3
	if n := len(clauses); n > most+1 {
		clauses = append(slices.Clone(clauses[:most]), fmt.Sprintf("and %d more reasons", n-most))
	}
	return strings.Join(clauses, "; ")
}

func capitalize(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[size:]
}
