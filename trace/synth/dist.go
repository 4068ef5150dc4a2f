package synth

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// dist is a distribution of numbers that are not negative: log-normal, or a mixture of two log-normals, cut to [min, max];
// uniform between min and max; or measured, when it has knots. The zero value is none.
type dist struct {
	median, sigma float64
	// tail is the share of draws that come from the second log-normal.
	tail, tailMedian, tailSigma float64
	min, max                    float64
	uniform                     bool
	// knots are points of the quantile function, from share 0 to share 1.
	knots []knot
}

// knot says that the share of values at or below value is share.
type knot struct{ share, value float64 }

// none tells that there is no distribution, or that it is of zeros.
func (d *dist) none() bool { return d.max == 0 }

// constant tells that all values are the same.
func (d *dist) constant() bool { return d.uniform && d.min == d.max }

// between returns the uniform distribution on [low, high]; low = high is a constant.
func between(low, high float64) dist { return dist{min: low, max: high, uniform: true} }

// scaled returns d stretched, limits included, so that its mean becomes mean.
func (d dist) scaled(mean float64) dist {
	if d.none() {
		return between(mean, mean)
	}
	k := mean / d.mean()
	d.median *= k
	d.tailMedian *= k
	d.min *= k
	d.max *= k
	d.knots = slices.Clone(d.knots)
	for i := range d.knots {
		d.knots[i].value *= k
	}
	return d
}

// draw returns a random value; 0 without a distribution.
func (d *dist) draw(r *rand.Rand) float64 {
	if d.none() {
		return 0
	}
	if d.uniform {
		return d.min + r.Float64()*(d.max-d.min)
	}
	if len(d.knots) > 0 {
		return d.quantile(r.Float64())
	}
	median, sigma := d.median, d.sigma
	if d.tail > 0 && r.Float64() < d.tail {
		median, sigma = d.tailMedian, d.tailSigma
	}
	return min(max(median*math.Exp(sigma*r.NormFloat64()), d.min), d.max)
}

// count returns a random whole number, at least 1.
func (d *dist) count(r *rand.Rand) int32 { return max(1, int32(math.Round(d.draw(r)))) }

// mean returns the exact mean.
func (d dist) mean() float64 {
	if d.uniform {
		return (d.min + d.max) / 2
	}
	if len(d.knots) > 0 {
		return knotsMean(d.knots)
	}
	m := cutMean(d.median, d.sigma, d.min, d.max)
	if d.tail > 0 {
		m = (1-d.tail)*m + d.tail*cutMean(d.tailMedian, d.tailSigma, d.min, d.max)
	}
	return m
}

// cutMean returns the mean of a log-normal variable X moved into [low, high]: low + E[min(X,high)] - E[min(X,low)].
func cutMean(median, sigma, low, high float64) float64 {
	if sigma == 0 {
		return min(max(median, low), high)
	}
	// E[min(X,c)] = E[X; X<c] + c·P(X>c), with E[X; X<c] = e^(μ+σ²/2) Φ((ln c-μ)/σ - σ).
	below := func(c float64) float64 {
		if c <= 0 {
			return 0
		}
		z := math.Log(c/median) / sigma
		return median*math.Exp(sigma*sigma/2)*normalCDF(z-sigma) + c*(1-normalCDF(z))
	}
	return low + below(high) - below(low)
}

// normalCDF is Φ, the distribution function of the standard normal.
func normalCDF(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }

// String says what the distribution is, in the words of the documentation.
func (d dist) String() string {
	switch {
	case d.constant():
		return plainNumber(d.min)
	case d.uniform:
		return fmt.Sprintf("uniform %.4g to %.4g", d.min, d.max)
	case len(d.knots) > 0:
		return fmt.Sprintf("mean %.4g: measured, p50 %.4g, p90 %.4g, p99 %.4g, %.4g to %.5g",
			d.mean(), d.quantile(0.5), d.quantile(0.9), d.quantile(0.99), d.min, d.max)
	case d.tail == 0:
		return fmt.Sprintf("mean %.4g: log-normal, median %.4g, σ %.3g, cut to %.4g..%.5g",
			d.mean(), d.median, d.sigma, d.min, d.max)
	}
	return fmt.Sprintf("mean %.4g: %.3g%% log-normal, median %.4g, σ %.3g; %.3g%% median %.4g, σ %.3g; cut to %.4g..%.5g",
		d.mean(), 100*(1-d.tail), d.median, d.sigma, 100*d.tail, d.tailMedian, d.tailSigma, d.min, d.max)
}
