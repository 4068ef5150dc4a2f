package models

import "math/bits"

// curve is a duration by a whole number of tokens or sequences: exact up to 512, and beyond that on straight lines
// between 64 points per octave. So a formula in floating point is evaluated once per deployment, and a step costs the
// same everywhere.
type curve []Fixed

// The points of a curve: 0 to curveExact by ones, then octaves up to 2^curveBits, more than a Batch has.
const (
	curveExact  = 512
	curvePoints = 64 // per octave
	curveBits   = 24
)

// newCurve samples a function of a number of tokens or sequences, in µs.
func newCurve(us func(n float64) float64) curve {
	c := make(curve, 0, curveExact+1+(curveBits-9)*curvePoints)
	for n := range curveExact + 1 {
		c = append(c, newFixed(us(float64(n))*1e3))
	}
	for width := curveExact / curvePoints; width < 1<<curveBits/curvePoints; width *= 2 {
		for i := range curvePoints {
			c = append(c, newFixed(us(float64(width*(curvePoints+i+1)))*1e3))
		}
	}
	return c
}

// point is a place on a curve: between the points at and at+1, frac of the way in units of 2^-shift.
type point struct {
	at    int
	frac  uint64
	shift uint
}

// pointAt finds n on any curve; what lies beyond the last octave counts as its end.
func pointAt(n int64) point {
	if n < curveExact {
		return point{at: int(max(0, n))}
	}
	n = min(n, 1<<curveBits-1)
	octave := bits.Len64(uint64(n)) - 10 // 0 from 512 on
	shift := uint(octave + 3)            // 512/64 tokens between points
	return point{
		at:    curveExact + octave*curvePoints + int(n>>shift) - curvePoints,
		frac:  uint64(n) & (1<<shift - 1),
		shift: shift,
	}
}

// duration is the curve's value at a point; 0 on an empty curve.
func (c curve) duration(p point) Fixed {
	if c == nil {
		return 0
	}
	low := c[p.at]
	if p.frac == 0 {
		return low
	}
	hi, lo := bits.Mul64(uint64(max(0, c[p.at+1]-low)), p.frac)
	return low + Fixed(hi<<(64-p.shift)|lo>>p.shift)
}
