package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Point is a figure of a call, or a program, in two runs.
type Point struct{ Base, Value float64 }

// TurnErrors is how far the calls of one run are from the same calls of another, its base.
type TurnErrors struct {
	Base  string `json:"base"` // A
	Label string `json:"label"`
	// Matched counts pairs of calls, Incomplete those of them that a side did not complete: they are in no phase.
	Matched    int64 `json:"matched"`
	Incomplete int64 `json:"incomplete"`
	// Unmatched are the calls without counterpart, and why.
	UnmatchedBase []Loss        `json:"unmatched_base,omitempty"`
	Unmatched     []Loss        `json:"unmatched,omitempty"`
	Phases        []PhaseErrors `json:"phases"`
}

// PhaseErrors is how far one figure of the calls is from the base. An error is value/base − 1; that of a share is value − base.
type PhaseErrors struct {
	Name string `json:"phase"`
	Unit string `json:"unit"` // s or share
	// Count is the pairs that tell the figure on both sides, other than those whose base is a time of 0.
	Count int64 `json:"count"`
	// MAPE and Median are of absolute errors, Bias is the mean of signed ones.
	MAPE   Figure `json:"mape,omitzero"`
	Median Figure `json:"median,omitzero"`
	Bias   Figure `json:"bias,omitzero"`

	points []Point
}

// NewPhaseErrors sums up pairs of times in seconds, or of shares.
func NewPhaseErrors(name, unit string, points []Point) PhaseErrors {
	p := PhaseErrors{Name: name, Unit: unit}
	var errors, sizes []float64
	for _, q := range points {
		off := q.Value - q.Base
		if unit != "share" {
			if q.Base <= 0 {
				continue
			}
			off /= q.Base
		}
		p.points = append(p.points, q)
		errors, sizes = append(errors, off), append(sizes, math.Abs(off))
	}
	if p.Count = int64(len(errors)); p.Count > 0 {
		slices.Sort(errors)
		slices.Sort(sizes)
		p.MAPE, p.Median, p.Bias = Known(Mean(sizes)), Known(Quantile(sizes, 0.5)), Known(Mean(errors))
	}
	return p
}

// phaseHeads are the columns of texts.
var phaseHeads = []string{"pairs", "MAPE", "median", "bias"}

// texts are the cells of a table.
func (p *PhaseErrors) texts() []string {
	print := func(f Figure, signed bool) string {
		if !f.Known {
			return unknownText
		}
		format, unit := "%.1f", "%"
		if signed {
			format = "%+.1f"
		}
		if p.Unit == "share" {
			unit = " pt"
		}
		return fmt.Sprintf(format, 100*f.Value) + unit
	}
	return []string{fmt.Sprint(p.Count), print(p.MAPE, false), print(p.Median, false), print(p.Bias, true)}
}

// title says what is compared.
func (e *TurnErrors) title() string { return e.Label + " against " + e.Base + ", turn by turn" }

// notes say how many calls are matched, and why others are not.
func (e *TurnErrors) notes() []string {
	list := []string{fmt.Sprintf("%s matched", plural(int(e.Matched), "call"))}
	if e.Incomplete > 0 {
		list[0] += fmt.Sprintf(", %d of them left out because a side did not complete them", e.Incomplete)
	}
	for _, side := range []struct {
		label string
		lost  []Loss
	}{{e.Base, e.UnmatchedBase}, {e.Label, e.Unmatched}} {
		var parts []string
		for _, l := range side.lost {
			parts = append(parts, fmt.Sprintf("%s %s", plural(int(l.Count), "call"), l.Why))
		}
		if len(parts) == 0 {
			parts = []string{"none"}
		}
		list = append(list, fmt.Sprintf("unmatched of %s: %s", side.label, strings.Join(parts, ", ")))
	}
	return list
}
