package report

import (
	"math"
	"math/bits"
	"time"
)

// Gaps collects the gaps between output tokens in constant memory (220 KiB), for a run that makes billions of them.
// Gaps below 1,024 ns are kept exactly; above, every power of two has 512 buckets of equal width, so a gap is off by
// half a bucket at most: 1/1024 of its value. The zero Gaps is empty and ready to use.
type Gaps struct {
	buckets  [gapBuckets]int64
	count    int64
	min, max time.Duration
	// The sum of all gaps in ns, in 128 bits: exact for any number of them.
	sumHigh, sumLow uint64
}

const (
	gapBucketBits = 9 // 512 buckets per power of two
	gapBuckets    = (63-gapBucketBits-1)<<gapBucketBits + 2<<gapBucketBits
)

// Add counts a gap count times. A negative gap counts as 0; a count below 1 does nothing.
func (g *Gaps) Add(gap time.Duration, count int64) {
	if count <= 0 {
		return
	}
	gap = max(gap, 0)
	if g.count == 0 || gap < g.min {
		g.min = gap
	}
	g.max = max(g.max, gap)
	g.count += count
	g.buckets[gapBucket(gap)] += count

	high, low := bits.Mul64(uint64(gap), uint64(count))
	var carry uint64
	g.sumLow, carry = bits.Add64(g.sumLow, low, 0)
	g.sumHigh += high + carry
}

// Count returns how many gaps were added.
func (g *Gaps) Count() int64 { return g.count }

// Mean returns the exact mean in ns, or 0 when there are no gaps.
func (g *Gaps) Mean() float64 {
	if g.count == 0 {
		return 0
	}
	return (math.Ldexp(float64(g.sumHigh), 64) + float64(g.sumLow)) / float64(g.count)
}

// Quantile returns the q-quantile (0 ≤ q ≤ 1, numpy's type 7) in ns, within 0.1 %; 0 and 1 give the exact ends.
func (g *Gaps) Quantile(q float64) float64 {
	if g.count == 0 {
		return 0
	}
	rank, part := math.Modf(float64(g.count-1) * min(max(q, 0), 1))
	low, high := g.at(int64(rank))
	return between(low, high, part)
}

// at returns the gaps of ranks i and i+1.
func (g *Gaps) at(i int64) (low, high float64) {
	if i+1 >= g.count {
		return float64(g.max), float64(g.max)
	}
	found := false
	var before int64
	for bucket, n := range &g.buckets {
		before += n
		if !found && before > i {
			low, found = g.middle(bucket), true
			if i == 0 {
				low = float64(g.min)
			}
		}
		if before > i+1 {
			high = g.middle(bucket)
			break
		}
	}
	if i+2 == g.count {
		high = float64(g.max)
	}
	return low, high
}

// middle returns the middle of a bucket, but nothing outside of what was added.
func (g *Gaps) middle(bucket int) float64 {
	shift := max(bucket>>gapBucketBits-1, 0)
	lowest := uint64(bucket-shift<<gapBucketBits) << shift
	width := uint64(1) << shift
	middle := float64(lowest) + float64(width-1)/2
	return min(max(middle, float64(g.min)), float64(g.max))
}

// gapBucket returns the bucket of a gap: the gap itself below 1,024 ns, else its leading ten bits and their place.
func gapBucket(gap time.Duration) int {
	shift := max(bits.Len64(uint64(gap))-gapBucketBits-1, 0)
	return shift<<gapBucketBits + int(uint64(gap)>>shift)
}

// distributionMs sums the gaps up in ms.
func (g *Gaps) distributionMs() Distribution {
	if g == nil || g.count == 0 {
		return Distribution{}
	}
	ms := func(ns float64) Figure { return Known(ns / 1e6) }
	return Distribution{
		Count: g.count,
		Mean:  ms(g.Mean()),
		Min:   ms(float64(g.min)),
		P50:   ms(g.Quantile(0.5)),
		P90:   ms(g.Quantile(0.9)),
		P95:   ms(g.Quantile(0.95)),
		P99:   ms(g.Quantile(0.99)),
		P999:  ms(g.Quantile(0.999)),
		Max:   ms(float64(g.max)),
	}
}
