package models

import (
	"math"
	"math/bits"
	"time"
)

// Fixed is a duration in units of 1/65536 ns, so that any split of a run of steps adds up to the same nanosecond.
type Fixed int64

// FixedPerNs is the number of units of Fixed in a nanosecond.
const FixedPerNs = 1 << 16

// maxFixed bounds each term of a step, about 2.4 hours, so that the terms of a step cannot overflow.
const maxFixed Fixed = 1 << 59

// newFixed rounds ns, which is not negative, once.
func newFixed(ns float64) Fixed {
	if x := math.Round(ns * FixedPerNs); x < float64(maxFixed) {
		return Fixed(x)
	}
	return maxFixed
}

// Duration rounds to the nearest nanosecond.
func (f Fixed) Duration() time.Duration { return time.Duration((f + FixedPerNs/2) >> 16) }

// rate is a duration per unit of work, at most about a second, in units of 2^-32 ns: fine enough for a single query-key
// pair.
type rate uint64

const rateShift = 32 - 16

// newRate rounds ns, which is not negative, once.
func newRate(ns float64) rate {
	const most = 1 << 62
	if x := math.Round(ns * (1 << 32)); x < most {
		return rate(x)
	}
	return most
}

// times is the duration of n units of work, at most maxFixed; 0 for a negative n.
func (r rate) times(n int64) Fixed {
	if n <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(r), uint64(n))
	if hi >= 1<<(59-64+rateShift) {
		return maxFixed
	}
	return Fixed(hi<<(64-rateShift) | lo>>rateShift)
}
