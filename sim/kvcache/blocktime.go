package kvcache

import (
	"cmp"
	"math/bits"
	"time"
)

// BlockTime is KV blocks times the time for which they are held, in block-nanoseconds: exact, in 128 bits and modulo
// 2^128, so that no cache and no run is too large.
type BlockTime struct{ hi, lo uint64 }

// Add returns the sum of two.
func (t BlockTime) Add(o BlockTime) BlockTime {
	lo, carry := bits.Add64(t.lo, o.lo, 0)
	hi, _ := bits.Add64(t.hi, o.hi, carry)
	return BlockTime{hi, lo}
}

// Sub returns the difference of two.
func (t BlockTime) Sub(o BlockTime) BlockTime {
	lo, borrow := bits.Sub64(t.lo, o.lo, 0)
	hi, _ := bits.Sub64(t.hi, o.hi, borrow)
	return BlockTime{hi, lo}
}

// Plus adds so many blocks for a time. Fewer than none are taken away.
func (t BlockTime) Plus(blocks int64, d time.Duration) BlockTime {
	hi, lo := bits.Mul64(uint64(blocks), uint64(d))
	if blocks < 0 {
		hi -= uint64(d)
	}
	return t.Add(BlockTime{hi, lo})
}

// Seconds returns block-seconds.
func (t BlockTime) Seconds() float64 { return (float64(t.hi)*(1<<64) + float64(t.lo)) / 1e9 }

// Compare orders two by size: -1, 0 or 1.
func (t BlockTime) Compare(o BlockTime) int {
	return cmp.Or(cmp.Compare(t.hi, o.hi), cmp.Compare(t.lo, o.lo))
}

// Holding is what somebody held, by state.
type Holding [States]BlockTime

// Add returns the sum of two.
func (h Holding) Add(o Holding) Holding {
	for s := range h {
		h[s] = h[s].Add(o[s])
	}
	return h
}

// Total is the sum over all states.
func (h Holding) Total() (sum BlockTime) {
	for _, t := range h {
		sum = sum.Add(t)
	}
	return sum
}
