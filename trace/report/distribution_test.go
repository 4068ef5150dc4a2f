package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The wanted values are numpy's: np.percentile(x, 100*q).
func TestQuantileIsNumpys(t *testing.T) {
	for _, test := range []struct {
		sorted []float64
		q      float64
		want   float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{7}, 0.999, 7},
		{[]float64{1, 2, 3, 4}, 0.5, 2.5},   // rank 3·0.5 = 1.5
		{[]float64{1, 2, 3, 4}, 0.99, 3.97}, // rank 2.97
		{[]float64{1, 2, 3, 4}, 0, 1},
		{[]float64{1, 2, 3, 4}, 1, 4},
		{[]float64{10, 20, 40}, 0.9, 36}, // rank 1.8: 20 + 0.8·20
	} {
		if got := Quantile(test.sorted, test.q); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("Quantile(%v, %v) = %v, want %v", test.sorted, test.q, got, test.want)
		}
	}
}

func TestDistribution(t *testing.T) {
	if got := distribution(nil); got != (Distribution{}) {
		t.Errorf("of nothing: %+v, want it absent", got)
	}
	got := distribution([]float64{1, 2, 3, 4})
	want := Distribution{
		Count: 4, Mean: Known(2.5), Min: Known(1), P50: Known(2.5), P90: got.P90, P95: got.P95, P99: got.P99,
		P999: got.P999, Max: Known(4),
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !(got.P50.Value < got.P90.Value && got.P90.Value < got.P95.Value && got.P95.Value < got.P99.Value &&
		got.P99.Value < got.P999.Value && got.P999.Value < 4) {
		t.Errorf("percentiles out of order: %+v", got)
	}
}

func TestSortFloatsAsSlicesSort(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, radixMin - 1, radixMin, radixMin + 1, 20_000} {
		for name, value := range map[string]func() float64{
			"latencies":   func() float64 { return rnd.ExpFloat64() * 1000 },
			"both signs":  func() float64 { return rnd.NormFloat64() * math.Pow(10, float64(rnd.IntN(40)-20)) },
			"few values":  func() float64 { return float64(rnd.IntN(3)) },
			"one value":   func() float64 { return 42 },
			"any bits":    func() float64 { return notNaN(math.Float64frombits(rnd.Uint64())) },
			"infinities":  func() float64 { return math.Inf(rnd.IntN(2) - 1) },
			"whole ticks": func() float64 { return float64(rnd.IntN(1000)) / 1e6 },
		} {
			got := make([]float64, n)
			for i := range got {
				got[i] = value()
			}
			want := slices.Clone(got)
			slices.Sort(want)
			sortFloats(got)
			if !slices.Equal(got, want) {
				t.Errorf("%d %s are not in order", n, name)
			}
		}
	}
}

func notNaN(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

func BenchmarkSort(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, 1_000_000)
	for i := range values {
		values[i] = rnd.ExpFloat64() * 1000
	}
	work := make([]float64, len(values))
	for name, sort := range map[string]func([]float64){"radix": sortFloats, "slices": slices.Sort[[]float64]} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				copy(work, values)
				sort(work)
			}
		})
	}
}
