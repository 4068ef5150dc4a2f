package fit

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/models"
)

// TestCatalogue: the rates that are shipped are those that the tables give, and they describe the tables as well as
// documented.
func TestCatalogue(t *testing.T) {
	if testing.Short() {
		t.Skip("fitting 90,000 rows takes half a minute")
	}
	ops, kernels, err := Ops(tables(t), Aiconfigurator())
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := models.LookupGPU("h100-sxm")
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := gpu.Ops()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ops, shipped); diff != "" {
		t.Errorf("the catalogue is not what the tables give (run `agentsim calibrate ops`):\n%s", diff)
	}
	for _, k := range kernels {
		// Without its own half, a kernel is described about as well as with it: the formula holds, not the numbers.
		all := k.Errors[0]
		if all.Median > 0.15 || k.HeldOut.Median > all.Median*1.15+0.02 {
			t.Errorf("%s: median error %.3f, held out %.3f", k.Name, all.Median, k.HeldOut.Median)
		}
		if math.Abs(all.Bias) > 0.06 {
			t.Errorf("%s: bias %+.3f", k.Name, all.Bias)
		}
	}
}

// tables is the folder of kernel tables beside the repository.
func tables(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test's directory")
		}
		dir = filepath.Dir(dir)
	}
	dir = filepath.Join(filepath.Dir(dir), "shared", "ground-truth", "aic-h100-ops")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no kernel tables beside the repository: %v", err)
	}
	return dir
}

// made is a problem whose rows follow floor + work/rate exactly, but for every outlier-th row, which takes ten times as
// long.
func made(floor, rate float64, outlier int) *problem {
	p := &problem{
		name: "made", groups: "sizes",
		params:  []Param{{"floor", "µs", 1}, {"rate", "per µs", 1}},
		predict: func(p []float64, r *row) float64 { return p[0] + r.x[0]/p[1] },
		slices:  []part{{"large", func(r *row) bool { return r.x[0] >= 1000 }}},
	}
	for i := range 60 {
		work := math.Pow(1.2, float64(i))
		r := row{us: floor + work/rate, x: [6]float64{work}, group: i, fit: true}
		if outlier > 0 && i%outlier == 0 {
			r.us *= 10
		}
		p.rows = append(p.rows, r)
	}
	return p
}

func TestFitRecovers(t *testing.T) {
	for _, c := range []struct {
		floor, rate float64
		outlier     int
		within      float64
	}{{5, 2, 0, 1e-3}, {0.1, 300, 0, 1e-3}, {5, 2, 10, 0.03}} {
		k, err := made(c.floor, c.rate, c.outlier).fit()
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]float64{"floor": c.floor, "rate": c.rate} {
			if got := k.value(key); math.Abs(got/want-1) > c.within {
				t.Errorf("%+v: %s is %g", c, key, got)
			}
		}
		if c.outlier == 0 && (k.HeldOut.P90 > 2e-3 || k.HeldOut.Rows != 60) {
			t.Errorf("%+v: held out %+v", c, k.HeldOut)
		}
	}
}

func TestFitRefuses(t *testing.T) {
	p := made(1, 1, 0)
	p.rows = p.rows[:3]
	if _, err := p.fit(); err == nil || !strings.Contains(err.Error(), "3 rows cannot tell 2 parameters") {
		t.Errorf("three rows: %v", err)
	}
}

func TestSliceErrors(t *testing.T) {
	p := &problem{predict: func([]float64, *row) float64 { return 1 }}
	for _, us := range []float64{math.E, 1, 1 / math.E, 1} { // log errors -1, 0, +1, 0
		p.rows = append(p.rows, row{us: us})
	}
	got := p.errors("all", func(*row) bool { return true }, func(*row) []float64 { return nil })
	if got.Rows != 4 || got.Median != 1 || got.P90 != 1 || got.Bias != 0 {
		t.Errorf("%+v, want a median and p90 of 1 (sorted 0 0 1 1, upper middle) and no bias", got)
	}
}

func TestReadTable(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"m,latency\n1,2\n3,4\n", ""},
		{"m,latency\n1,2\nx,4\n", `table.csv:3: m is "x", want a number from 0 to 1e12`},
		{"m,latency\n1,-2\n", `table.csv:2: latency is "-2"`},
		{"m,latency\n1,NaN\n", `latency is "NaN"`},
		{"m,latency\n1,0\n", "latency is 0"},
		{"m,latency\n1\n", "wrong number of fields"},
		{"m\n1\n", `has no column "latency"`},
		{"", "the header of"},
	} {
		path := filepath.Join(t.TempDir(), "table.csv")
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		var sum float64
		err := readTable(path, []string{"m", "latency"}, func(r *record) { sum += r.number("m") * r.us() })
		switch {
		case c.want == "" && (err != nil || sum != 1*2000+3*4000):
			t.Errorf("%q: sum %g, %v", c.text, sum, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: error %v, want %q", c.text, err, c.want)
		}
	}
	if err := readTable(filepath.Join(t.TempDir(), "none.csv"), nil, nil); err == nil {
		t.Error("a missing table is read")
	}
}
