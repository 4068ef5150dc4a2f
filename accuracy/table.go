package accuracy

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/trace/report"
)

// Score is the error of one measure over a group of outcomes, as shares: 0.05 is 5 %.
type Score struct {
	Rows int
	// Mean and Median are of absolute relative errors, Bias is the mean of signed ones, P90 of absolute ones.
	Mean, Median, P90, Bias float64
}

// Scores sums up the errors of a measure. Outcomes without it do not count.
func Scores(outcomes []Outcome, m Measure) Score {
	var errors []float64
	for i := range outcomes {
		if e := outcomes[i].Error(m); !math.IsNaN(e) {
			errors = append(errors, e)
		}
	}
	return ScoreOf(errors)
}

// ScoreOf sums up signed relative errors.
func ScoreOf(errors []float64) Score {
	s := Score{Rows: len(errors)}
	if s.Rows == 0 {
		return s
	}
	abs := make([]float64, len(errors))
	for i, e := range errors {
		s.Bias += e
		abs[i] = math.Abs(e)
	}
	slices.Sort(abs)
	s.Bias /= float64(s.Rows)
	s.Mean, s.Median, s.P90 = report.Mean(abs), report.Quantile(abs, 0.5), report.Quantile(abs, 0.9)
	return s
}

// FitErrors are the scores of a group in the form that profiles keep.
func FitErrors(name string, outcomes []Outcome, heldOut bool) []models.FitError {
	var errs []models.FitError
	for _, m := range []Measure{TTFT, TPOT, E2E, Throughput} {
		if s := Scores(outcomes, m); s.Rows > 0 {
			errs = append(errs, s.FitError(name, m.String(), heldOut))
		}
	}
	return errs
}

// FitError is the score in the form that profiles keep.
func (s Score) FitError(name, measure string, heldOut bool) models.FitError {
	return models.FitError{Data: name, Measure: measure, Rows: s.Rows, Mean: round(s.Mean), Median: round(s.Median), Bias: round(s.Bias), HeldOut: heldOut}
}

func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// Group is a name and what belongs under it.
type Group struct {
	Name     string
	Outcomes []Outcome
}

// GroupBy sorts outcomes into groups by key, in order of the keys; "" leaves an outcome out.
func GroupBy(outcomes []Outcome, key func(*Outcome) string) []Group {
	var groups []Group
	index := map[string]int{}
	for i := range outcomes {
		k := key(&outcomes[i])
		if k == "" {
			continue
		}
		at, ok := index[k]
		if !ok {
			at = len(groups)
			index[k] = at
			groups = append(groups, Group{Name: k})
		}
		groups[at].Outcomes = append(groups[at].Outcomes, outcomes[i])
	}
	slices.SortStableFunc(groups, func(a, b Group) int { return cmp.Compare(a.Name, b.Name) })
	return groups
}

// WriteTable writes one line a group in Markdown: MAPE, median and bias of each measure, in percent.
func WriteTable(w io.Writer, head string, groups []Group) error {
	shown := []Measure{TTFT, TPOT, E2E, Throughput}
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | rows |", head)
	for _, m := range shown {
		fmt.Fprintf(&b, " %s |", m)
	}
	b.WriteString("\n|---|---:|" + strings.Repeat("---:|", len(shown)) + "\n")
	for _, g := range groups {
		fmt.Fprintf(&b, "| %s | %d |", g.Name, len(g.Outcomes))
		for _, m := range shown {
			s := Scores(g.Outcomes, m)
			if s.Rows == 0 {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(&b, " %.1f / %.1f / %+.1f |", 100*s.Mean, 100*s.Median, 100*s.Bias)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
