package accuracy

import (
	"errors"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// twoTimes are equations of two times of the host whose columns are (1, 1) and (1, 2).
func twoTimes(t *testing.T) *equations {
	t.Helper()
	free, err := lookUpTerms([]string{"layer_us", "request_us"})
	if err != nil {
		t.Fatal(err)
	}
	return &equations{free: free, effects: mat.NewDense(2, 2, []float64{1, 1, 1, 2}), weights: []float64{1, 1}}
}

// By hand: of (1, 1) what (1, 2) does not span is (2, -1)/5, whose length is 1/√10 of √2.
func TestJudge(t *testing.T) {
	e := twoTimes(t)
	d, err := e.judge([]float64{0.2, 0.1}, []rowsOf{{"tpot", 0, 1}, {"ttft", 1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := d.Terms[0].Alone, 1/math.Sqrt(10); math.Abs(got-want) > 1e-12 {
		t.Errorf("its own is %.6f, want %.6f", got, want)
	}
	if got := d.Terms[1].Shares; math.Abs(got[0]-0.1) > 1e-12 || math.Abs(got[1]-0.2) > 1e-12 {
		t.Errorf("shares are %v, want 0.1 of tpot and 0.2 of ttft", got)
	}
	scaled := mat.NewDense(2, 2, []float64{1 / math.Sqrt2, 1 / math.Sqrt(5), 1 / math.Sqrt2, 2 / math.Sqrt(5)})
	if want := mat.Cond(scaled, 2); math.Abs(d.Condition/want-1) > 1e-9 {
		t.Errorf("condition number is %g, want %g", d.Condition, want)
	}
}

// An effect of its own that is no larger than what the effects scatter is no effect.
func TestJudgeScatter(t *testing.T) {
	for _, test := range []struct {
		scatter float64
		refused bool
	}{{0.1, false}, {1, true}} {
		e := twoTimes(t)
		e.scatter = mat.NewDense(2, 2, []float64{test.scatter, 0, 0, 0})
		_, err := e.judge([]float64{1, 1}, []rowsOf{{"tpot", 0, 2}})
		var unidentified *UnidentifiedError
		if refused := errors.As(err, &unidentified); refused != test.refused {
			t.Errorf("a scatter of %g: error is %v", test.scatter, err)
		}
		if test.refused && (unidentified.Key != "layer_us" || !strings.Contains(err.Error(), "how much single calls scatter")) {
			t.Errorf("a scatter of %g: error is %v", test.scatter, err)
		}
	}
}
