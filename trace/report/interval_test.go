package report

import (
	"math"
	"testing"
)

func TestPairedInterval(t *testing.T) {
	figures := func(values ...float64) (list []Figure) {
		for _, v := range values {
			list = append(list, Known(v))
		}
		return list
	}
	// Differences 0.10, 0.20, 0.30: mean 0.2, standard deviation 0.1, t(2) = 4.303, half width 4.303·0.1/√3 = 0.24844.
	iv, ok := PairedInterval(figures(100, 200, 50), figures(110, 240, 65))
	if !ok || iv.Repeats != 3 || math.Abs(iv.Mean-0.2) > 1e-12 || math.Abs(iv.High-0.44844) > 1e-4 || math.Abs(iv.Low+0.04844) > 1e-4 {
		t.Errorf("got %+v, %v", iv, ok)
	}
	if !iv.isNoise() {
		t.Error("an interval that holds 0 is noise")
	}
	// Pairs without a base cannot be compared.
	iv, ok = PairedInterval([]Figure{Known(0), {}, Known(100), Known(100)}, figures(1, 1, 120, 120))
	if want := (Interval{Mean: iv.Mean, Low: iv.Mean, High: iv.Mean, Repeats: 2}); !ok || iv != want || iv.isNoise() {
		t.Errorf("got %+v, %v, want no width around +20%%", iv, ok)
	}
	// A difference that is sure, but too small to decide anything.
	iv, ok = PairedInterval(figures(100, 200), figures(99.999, 199.998))
	if !ok || iv.High >= 0 || !iv.isNoise() {
		t.Errorf("got %+v, %v: a thousandth of a percent counts as none", iv, ok)
	}
	// One figure to compare with: 0.1 and 0.3 give a mean of 0.2.
	iv, ok = PairedInterval(figures(100), figures(110, 130))
	if !ok || iv.Repeats != 2 || math.Abs(iv.Mean-0.2) > 1e-12 {
		t.Errorf("got %+v, %v, want +20%% over 2 repeats", iv, ok)
	}
	if _, ok := PairedInterval(figures(1), figures(2)); ok {
		t.Error("one pair has no interval")
	}
}

func TestStudentT(t *testing.T) {
	// From tables of the t distribution.
	for freedom, want := range map[int]float64{1: 12.706, 4: 2.776, 30: 2.042, 31: 2.0395, 60: 2.0003, 120: 1.9799, 1 << 30: 1.96} {
		if got := studentT(freedom); math.Abs(got-want) > 0.001*want {
			t.Errorf("t(%d) = %v, want %v", freedom, got, want)
		}
	}
}
