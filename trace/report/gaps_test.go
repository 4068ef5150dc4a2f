package report

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestGapsAgainstTheSortedList(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for name, gap := range map[string]func() float64{
		"around 10 ms":    func() float64 { return 1e7 * math.Exp(rnd.NormFloat64()/4) },
		"ns to hours":     func() float64 { return math.Exp(rnd.Float64() * 30) },
		"small and exact": func() float64 { return float64(rnd.IntN(1024)) },
		"two values":      func() float64 { return float64(8_000_000 + 90_000_000*rnd.IntN(2)) },
		"one value":       func() float64 { return 12_345_678 },
	} {
		var g Gaps
		var all []float64
		for range 3000 {
			d, n := time.Duration(gap()), 1+rnd.Int64N(3)
			g.Add(d, n)
			for range n {
				all = append(all, float64(d))
			}
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
			got, want := g.Quantile(q), Quantile(all, q)
			if math.Abs(got-want) > 0.001*want {
				t.Errorf("%s: quantile %v is %v, want %v within 0.1%%", name, q, got, want)
			}
			if exact := q == 0 || q == 1 || name == "small and exact" || name == "one value"; exact && got != want {
				t.Errorf("%s: quantile %v is %v, want exactly %v", name, q, got, want)
			}
		}
		if want := Mean(all); math.Abs(g.Mean()-want) > 1e-12*want {
			t.Errorf("%s: mean %v, want %v", name, g.Mean(), want)
		}
		if g.Count() != int64(len(all)) {
			t.Errorf("%s: count %d, want %d", name, g.Count(), len(all))
		}
	}
}

// Every gap is in a bucket whose middle is within 1/1024 of it, up to the longest duration.
func TestGapBuckets(t *testing.T) {
	for bit := range 63 {
		for _, d := range []int64{1<<bit - 1, 1 << bit, 1<<bit + 1, 1<<bit + 1<<bit/3, math.MaxInt64 >> (62 - bit)} {
			g := Gaps{min: 0, max: math.MaxInt64}
			bucket := gapBucket(time.Duration(d))
			if bucket < 0 || bucket >= gapBuckets {
				t.Fatalf("gap %d is in bucket %d of %d", d, bucket, gapBuckets)
			}
			if middle := g.middle(bucket); math.Abs(middle-float64(d)) > float64(d)/1024 {
				t.Errorf("gap %d: the middle of its bucket is %v", d, middle)
			}
		}
	}
}

func TestGapsSumBeyond64Bits(t *testing.T) {
	var g Gaps
	g.Add(math.MaxInt64, 1_000_000)
	g.Add(1, 3_000_000)
	sum := new(big.Int).Mul(big.NewInt(math.MaxInt64), big.NewInt(1_000_000))
	sum.Add(sum, big.NewInt(3_000_000))
	want, _ := new(big.Rat).SetFrac(sum, big.NewInt(4_000_000)).Float64()
	if got := g.Mean(); math.Abs(got-want) > 1e-15*want {
		t.Errorf("mean %v, want %v", got, want)
	}
}

func TestGapsTakeOddInput(t *testing.T) {
	var g Gaps
	g.Add(time.Second, 0)
	g.Add(time.Second, -5)
	if g.Count() != 0 || g.Mean() != 0 || g.Quantile(0.5) != 0 || g.distributionMs() != (Distribution{}) {
		t.Errorf("nothing was added, but there are %d gaps", g.Count())
	}
	g.Add(-time.Second, 1)
	if g.Count() != 1 || g.Quantile(0.5) != 0 {
		t.Errorf("a negative gap counts as %v, want 0", g.Quantile(0.5))
	}
	var none *Gaps
	if none.distributionMs() != (Distribution{}) {
		t.Error("no histogram, but a distribution")
	}
}

func BenchmarkGapsAdd(b *testing.B) {
	g := new(Gaps)
	b.ReportAllocs()
	d := time.Duration(1)
	for b.Loop() {
		d = (d*48271 + 11) % (1 << 34)
		g.Add(d, 100)
	}
}
