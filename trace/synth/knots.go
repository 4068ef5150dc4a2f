package synth

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
)

// Between two knots the quantile function is geometric where both are positive, as tails of agents' lengths and times are
// closer to that than to a line; else it is linear.

// measured is the distribution with the given quantile function.
func measured(knots []knot) dist {
	return dist{knots: knots, min: knots[0].value, max: knots[len(knots)-1].value}
}

// quantile returns the value at a share from 0 to 1 of a measured distribution.
func (d *dist) quantile(share float64) float64 {
	i := sort.Search(len(d.knots)-1, func(i int) bool { return d.knots[i].share >= share })
	b := d.knots[i]
	if i == 0 || b.share == share {
		return b.value
	}
	a := d.knots[i-1]
	part := (share - a.share) / (b.share - a.share)
	if a.value > 0 {
		return a.value * math.Pow(b.value/a.value, part)
	}
	return a.value + float64(part*(b.value-a.value))
}

// drawAbove returns a random one of those values that are above a limit; 0 if none is. A constant is drawn as it is.
func (d *dist) drawAbove(limit float64, r *rand.Rand) float64 {
	if len(d.knots) == 0 || limit < d.min {
		return d.draw(r)
	}
	below := d.cdf(limit)
	if below >= 1 {
		return 0
	}
	return d.quantile(below + r.Float64()*(1-below))
}

// knotsMean is the exact mean: the area below the quantile function.
func knotsMean(knots []knot) float64 {
	sum := 0.0
	for i := 1; i < len(knots); i++ {
		a, b := knots[i-1], knots[i]
		middle := (a.value + b.value) / 2
		if a.value > 0 && b.value > a.value*1.0001 { // closer, the difference of the two means vanishes
			middle = (b.value - a.value) / math.Log(b.value/a.value)
		}
		sum += float64((b.share - a.share) * middle)
	}
	return sum
}

// knotShares are the shares at which a measured distribution is kept: steps of 2%, finer at both ends. Of few values it is
// five.
func knotShares(values int) []float64 {
	if values < few {
		return []float64{0, 0.25, 0.5, 0.75, 1}
	}
	list := []float64{0, 0.005, 0.01}
	for percent := 2; percent <= 98; percent += 2 {
		list = append(list, float64(percent)/100)
	}
	return append(list, 0.99, 0.995, 0.999, 1)
}

// newKnots returns the points at which the quantile function of a number of values is kept, without those between equal ones.
func newKnots(quantile func(share float64) float64, values int) []knot {
	var knots []knot
	for _, share := range knotShares(values) {
		k := knot{share, round(quantile(share))}
		if n := len(knots); n >= 2 && knots[n-1].value == k.value && knots[n-2].value == k.value {
			knots = knots[:n-1]
		}
		knots = append(knots, k)
	}
	return knots
}

// cdf is the share of draws at or below x.
func (d *dist) cdf(x float64) float64 {
	switch {
	case x >= d.max:
		return 1
	case x < d.min:
		return 0
	case d.uniform:
		return (x - d.min) / (d.max - d.min)
	case len(d.knots) > 0:
		return d.knotsCDF(x)
	}
	below := func(median, sigma float64) float64 {
		if sigma == 0 {
			if x < median {
				return 0
			}
			return 1
		}
		return normalCDF(math.Log(x/median) / sigma)
	}
	return (1-d.tail)*below(d.median, d.sigma) + d.tail*below(d.tailMedian, d.tailSigma)
}

// knotsCDF is the inverse of quantile, for x below the largest value.
func (d *dist) knotsCDF(x float64) float64 {
	i := slices.IndexFunc(d.knots, func(k knot) bool { return k.value > x })
	if i == 0 {
		return 0
	}
	a, b := d.knots[i-1], d.knots[i]
	part := (x - a.value) / (b.value - a.value)
	if a.value > 0 {
		part = math.Log(x/a.value) / math.Log(b.value/a.value)
	}
	return a.share + part*(b.share-a.share)
}
