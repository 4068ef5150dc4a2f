package inspect

import (
	"math"

	"github.com/agentsim/agentsim/trace/report"
)

// Spread is a distribution and its histogram.
type Spread struct {
	report.Distribution
	Histogram []Bin `json:"histogram,omitempty"`
}

// Bin counts the values from From up to the next bin's From.
type Bin struct {
	From  report.Figure `json:"from"`
	Count int64         `json:"count"`
}

const (
	maxBins = 16
	// A power of two has four steps of a histogram.
	stepBits = 2
)

// newSpread sorts values that are not negative and sums them up. The bins of the histogram are about equally wide on a
// logarithmic scale; zeros are in the first.
func newSpread(values []float64) Spread {
	s := Spread{Distribution: report.NewDistribution(values)}
	positive := len(values)
	for i, v := range values {
		if v > 0 {
			positive = i
			break
		}
	}
	if positive == len(values) {
		return s
	}
	low := scaleStep(values[positive])
	width := (scaleStep(values[len(values)-1])-low)/maxBins + 1
	for i, v := range values {
		at := 0
		if i >= positive {
			at = int((scaleStep(v) - low) / width)
		}
		for len(s.Histogram) <= at {
			from := math.Float64frombits((low + uint64(len(s.Histogram))*width) << (52 - stepBits))
			s.Histogram = append(s.Histogram, Bin{From: report.Known(from)})
		}
		s.Histogram[at].Count++
	}
	return s
}

// scaleStep numbers the steps of the scale: the exponent and the first bits of the fraction of a positive float grow as its
// logarithm does, or nearly, and are the same on every processor.
func scaleStep(v float64) uint64 { return math.Float64bits(v) >> (52 - stepBits) }
