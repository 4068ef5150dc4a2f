package inspect

import (
	"math"
	"slices"

	"github.com/agentsim/agentsim/trace/report"
)

// Likeness is how close a distribution of one trace is to that of another.
type Likeness struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
	// Of is the one, Made the other.
	Of   report.Distribution `json:"of"`
	Made report.Distribution `json:"made"`
	// Distance is the Kolmogorov-Smirnov statistic: the largest difference of the shares of values up to any limit. It is absent
	// where one of them has no values.
	Distance report.Figure `json:"distance,omitzero"`
}

// Compare sets the samples of one trace beside those of the same name of another. It sorts values.
func Compare(of, made []Sample) []Likeness {
	list := make([]Likeness, len(of))
	for i, s := range of {
		l := Likeness{Name: s.Name, Unit: s.Unit, Of: report.NewDistribution(s.Values)}
		if k := slices.IndexFunc(made, func(m Sample) bool { return m.Name == s.Name }); k >= 0 {
			l.Made = report.NewDistribution(made[k].Values)
			l.Distance = report.Known(distance(s.Values, made[k].Values))
		}
		list[i] = l
	}
	return list
}

// distance is the Kolmogorov-Smirnov statistic of two sorted lists.
func distance(a, b []float64) float64 {
	largest := 0.0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		limit := min(a[i], b[j])
		for i < len(a) && a[i] == limit {
			i++
		}
		for j < len(b) && b[j] == limit {
			j++
		}
		largest = max(largest, math.Abs(float64(i)/float64(len(a))-float64(j)/float64(len(b))))
	}
	return largest
}
