package accuracy

import (
	"math"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace/report"
)

func TestPoints(t *testing.T) {
	p := points{x: []int{1, 10, 20}, y: []float64{5, 14, 34}}
	// Slopes are 1 and 2; the last goes on.
	for _, c := range [][2]float64{{0, 0}, {1, 5}, {4, 8}, {10, 14}, {15, 24}, {20, 34}, {30, 54}} {
		if got := p.at(c[0]); got != c[1] {
			t.Errorf("at %g: %g, want %g", c[0], got, c[1])
		}
	}
}

// Steps of 3 layers that take 10 µs, 2 per decode and 0.01 per token of its context, or 10, 0.001 per doubled pair and
// 0.02 per key.
func TestFitAttention(t *testing.T) {
	text := "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n" +
		"0,0,1,100,13\n" + // 10 + 2 + 1
		"0,0,4,100,22\n" + // 10 + 8 + 4
		"0,0,4,1000,58\n" + // 10 + 8 + 40
		"100,0,0,0,22\n" + // 10 + 0.001·100² + 0.02·100
		"100,200,0,0,66\n" + // 10 + 0.001·100·500 + 0.02·300
		"200,0,0,0,54\n" + // 10 + 40 + 4
		"100,0,4,100,999\n" // both: not used
	a, err := fitAttention(write(t, "attention.csv", text), 3)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [5]float64{30, 6, 0.03, 0.003, 0.06} {
		if math.Abs(a[i]/want-1) > 1e-3 {
			t.Errorf("coefficient %d is %g, want %g", i, a[i], want)
		}
	}
}

func TestRunningAt(t *testing.T) {
	requests := []report.Request{{FirstToken: 1 * time.Second, End: 3 * time.Second}, {FirstToken: 2 * time.Second, End: 5 * time.Second},
		{FirstToken: report.None, End: 9 * time.Second}}
	for second, want := range []int{0, 1, 2, 1, 1, 0} {
		if got := runningAt(requests, time.Duration(second)*time.Second); got != want {
			t.Errorf("%d run at %d s, want %d", got, second, want)
		}
	}
}
