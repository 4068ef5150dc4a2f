package report

import (
	"math"
	"slices"
)

// Interval is the relative difference of a run to the baseline over repeats with different seeds: 0.14 is 14 % more.
type Interval struct {
	Mean float64
	// Low and High bound the 95 % confidence interval of the mean.
	Low, High float64
	Repeats   int
}

// PairedInterval returns the mean relative difference of other to base and its 95 % interval (Student's t). Pair i
// is two runs with the same seed, so what both have in common cancels out; a base of one figure, such as that of a
// recording, is compared with every repeat. Pairs with an unknown or zero base are left out; ok is false when fewer
// than two remain.
func PairedInterval(base, other []Figure) (iv Interval, ok bool) {
	if len(base) == 1 {
		base = slices.Repeat(base, len(other))
	}
	var differences []float64
	for i := range min(len(base), len(other)) {
		if base[i].Known && other[i].Known && base[i].Value != 0 {
			differences = append(differences, other[i].Value/base[i].Value-1)
		}
	}
	n := len(differences)
	if n < 2 {
		return Interval{}, false
	}
	m := Mean(differences)
	var squares float64
	for _, d := range differences {
		squares += float64((d - m) * (d - m))
	}
	half := studentT(n-1) * math.Sqrt(squares/float64(n-1)/float64(n))
	return Interval{Mean: m, Low: m - half, High: m + half, Repeats: n}, true
}

// negligible is a relative difference that decides nothing, however surely it is there.
const negligible = 0.001

// isNoise tells that the difference may be none, or is next to none.
func (iv Interval) isNoise() bool {
	return iv.Low <= 0 && iv.High >= 0 || math.Abs(iv.Mean) < negligible
}

// studentT returns the 97.5 % quantile of Student's t distribution: a table for up to 30 degrees of freedom, beyond
// that the first terms of its expansion around the normal quantile z (Abramowitz and Stegun 26.7.5).
func studentT(freedom int) float64 {
	table := [...]float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
		2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
		2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
	}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	const z = 1.959964
	v := float64(freedom)
	return z + (z*z*z+z)/(4*v) + (5*z*z*z*z*z+16*z*z*z+3*z)/(96*v*v)
}
