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

// Compare sets the samples of two traces side by side, in the order of the first; what the second alone has comes after.
func Compare(of, made []Sample) []Likeness {
	list := []Likeness{}
	find := func(samples []Sample, name string) Sample {
		if i := slices.IndexFunc(samples, func(s Sample) bool { return s.Name == name }); i >= 0 {
			return samples[i]
		}
		return Sample{}
	}
	add := func(a, b Sample) {
		l := Likeness{Name: a.Name, Unit: a.Unit, Of: report.NewDistribution(a.Values), Made: report.NewDistribution(b.Values)}
		if len(a.Values) > 0 && len(b.Values) > 0 {
			l.Distance = report.Known(distance(a.Values, b.Values))
		}
		list = append(list, l)
	}
	for _, s := range of {
		add(s, find(made, s.Name))
	}
	for _, s := range made {
		if none := find(of, s.Name); none.Name == "" {
			none.Name, none.Unit = s.Name, s.Unit
			add(none, s)
		}
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
