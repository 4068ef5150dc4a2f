package synth

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/trace/report"
)

// TestFitDistributions draws values, and fits a distribution to them: of the same form where that is log-normal, and close.
func TestFitDistributions(t *testing.T) {
	for _, test := range []struct {
		name      string
		of        dist
		logNormal bool
	}{
		{"log-normal", dist{median: 300, sigma: 0.9, min: 1, max: 1e6}, true},
		{"narrow", dist{median: 5, sigma: 0.1, min: 1, max: 50}, true},
		{"cut", dist{median: 300, sigma: 2, min: 100, max: 1000}, false},
		{"mixture", dist{median: 0.024, sigma: 0.81, tail: 0.31, tailMedian: 8.3, tailSigma: 0.51, min: 0.005, max: 600}, false},
		{"uniform", between(3, 40), false},
		{"steps", measured([]knot{{0, 0}, {0.5, 0}, {0.51, 7}, {0.9, 7}, {1, 1000}}), false},
	} {
		r := newStream()
		r.reset(1, 1, 1)
		values := make([]float64, 5000)
		for i := range values {
			values[i] = test.of.draw(r.Rand)
		}
		slices.Sort(values)
		d := fit(values)
		if got := d.median > 0; got != test.logNormal {
			t.Errorf("%s: fitted %v, log-normal is %v", test.name, d, test.logNormal)
		}
		if test.logNormal && (math.Abs(d.median/test.of.median-1) > 0.05 || math.Abs(d.sigma-test.of.sigma) > 0.03) {
			t.Errorf("%s: fitted %v, want %v", test.name, d, test.of)
		}
		if off := distance(values, d.cdf); off > 0.03 {
			t.Errorf("%s: fitted %v, which is %.3f away", test.name, d, off)
		}
		if got, want := d.mean(), report.Mean(values); math.Abs(got/want-1) > 0.05 {
			t.Errorf("%s: mean %v, want %v", test.name, got, want)
		}
	}
}

// TestFitFew keeps no more of few values than a spread, or five quantiles.
func TestFitFew(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   string
	}{
		{[]float64{7, 7, 7}, "7"},
		{[]float64{1, 2, 4}, "{median: 2, sigma: 0.565952, min: 1, max: 4}"}, // ln 2 times the root of 2/3
		{[]float64{0, 1, 2, 3, 40, 50, 60, 70}, "{quantiles: [[0, 0], [0.25, 1.75], [0.5, 21.5], [0.75, 52.5], [1, 70]]}"},
	} {
		d := fit(test.values)
		if got := d.yaml(""); got != test.want {
			t.Errorf("%v: %s, want %s", test.values, got, test.want)
		}
	}
}

// TestSurvival follows the estimator by hand.
func TestSurvival(t *testing.T) {
	quantile, known := survival([]Context{{0, 100, true}, {0, 200, false}, {0, 300, true}, {250, 400, true}})
	if known != 3 {
		t.Errorf("%d known, want 3", known)
	}
	// Of the 3 that are there at 100 one is compacted: 1/3. At 300 the one that began at 250 is there too, and another 1 of 2 of the
	// rest is: 2/3. At 400 the last.
	for share, want := range map[float64]float64{0: 100, 0.33: 100, 0.34: 300, 0.66: 300, 0.67: 400, 1: 400} {
		if got := quantile(share); got != want {
			t.Errorf("quantile(%v) = %v, want %v", share, got, want)
		}
	}
	// Of contexts that mostly end before, the largest counts as one that is compacted.
	quantile, _ = survival([]Context{{0, 100, true}, {0, 150, false}, {0, 900, false}})
	if a, b := quantile(0.3), quantile(0.5); a != 100 || b != 900 {
		t.Errorf("quantiles %v and %v, want 100 and 900", a, b)
	}
}

// TestKnots checks that the quantile function, its inverse and its mean agree, and draws above a limit.
func TestKnots(t *testing.T) {
	d := measured([]knot{{0, 0}, {0.2, 0}, {0.4, 10}, {0.6, 10}, {0.9, 1000}, {1, 5000}})
	sum := 0.0
	const n = 100_000
	for i := range n {
		share := (float64(i) + 0.5) / n
		v := d.quantile(share)
		sum += v
		if v > 0 && v != 10 && math.Abs(d.cdf(v)-share) > 1e-9 {
			t.Fatalf("cdf(quantile(%v)) = %v", share, d.cdf(v))
		}
	}
	near(t, "mean", sum/n, d.mean())
	if d.cdf(0) != 0.2 || d.cdf(10) != 0.6 || d.cdf(-1) != 0 || d.cdf(5000) != 1 {
		t.Errorf("cdf at steps: %v %v %v %v", d.cdf(0), d.cdf(10), d.cdf(-1), d.cdf(5000))
	}
	r := newStream()
	r.reset(1, 1, 1)
	above := 0
	for range 1000 {
		v := d.drawAbove(100, r.Rand)
		if v < 100-1e-9 {
			t.Fatalf("drew %v above 100", v)
		}
		if v > 1000 {
			above++
		}
	}
	// A quarter of the shares above that of 100, which is 0.75, lies above 0.9: 40 of 100.
	if above < 350 || above > 450 {
		t.Errorf("%d of 1000 above 1000, want about 400", above)
	}
	if d.drawAbove(5000, r.Rand) != 0 {
		t.Error("drew above the largest")
	}
}

func TestFitErrors(t *testing.T) {
	plain, err := Find("plain")
	if err != nil {
		t.Fatal(err)
	}
	p := NewProfile("x", "", 0)
	for _, test := range []struct {
		err  error
		want string
	}{
		{plain.Fit("input", []float64{1}), "not one of agents"},
		{p.Fit("turns", nil), "parameter turns: no values"},
		{p.Fit("turn", []float64{1}), `unknown parameter "turn"`},
		{p.FitCompact([]Context{{1, 2, false}}), "no compactions"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("error %v, want %q", test.err, test.want)
		}
	}
	for i := range maxTools {
		for range 2 { // the second is known by then
			if err := p.Fit(toolKeys+strings.Repeat("ä", i+100)[:2*i+1], []float64{1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Fit("tool.one", []float64{1}); err == nil {
		t.Error("too many tools were fitted")
	}
}

// TestFitInRange moves what a hostile trace may hold into what a profile may.
func TestFitInRange(t *testing.T) {
	p := NewProfile("x", "", 1)
	huge := []float64{0, 1e18}
	for _, key := range []string{"system", "task", "turns", "output", "answer", "result", "tool.a\x00\n", "tool." + strings.Repeat("a", 100), "tool.", "human-wait", "message", "fanout",
		"subagent-system", "subagent-task", "subagent-turns", "remains", "lost", "summary", "gap"} {
		if err := p.Fit(key, slices.Clone(huge)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.FitCompact([]Context{{1e18, 1e18, true}, {1, 2, true}}); err != nil {
		t.Fatal(err)
	}
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read("x.yaml", text); err != nil {
		t.Errorf("%v of\n%s", err, text)
	}
}

// Of 200 sessions 50 begin with 90,000 tokens and more, and have 5 to 14 turns where others have 40 to 79: they get turns of their
// own, and work that is made of the profile is like that. Where turns have nothing to do with how sessions begin, none get.
func TestFitTurns(t *testing.T) {
	var turns, firsts, mixed []float64
	for i := range 200 {
		first, n := float64(1000+20*i), float64(40+i%40)
		if i >= 150 {
			first, n = float64(90_000+i), float64(5+i%10)
		}
		firsts, turns = append(firsts, first), append(turns, n)
		mixed = append(mixed, float64(5+(i*83)%200))
	}
	p := NewProfile("p", "", 64)
	if err := p.FitTurns(turns, firsts); err != nil {
		t.Fatal(err)
	}
	a := p.profile.(*agent)
	if a.long < firsts[149] || a.long >= firsts[150] || a.longTurns.max != 14 || a.turns.min != 40 {
		t.Errorf("longer than %v: %v turns, others %v", a.long, a.longTurns, a.turns)
	}
	if err := p.Fit("task", firsts); err != nil {
		t.Fatal(err)
	}
	c, err := p.Generate(Options{Programs: 300, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Sessions {
		if long := s.Turns[0].Input > int32(a.long); long != (len(s.Turns) <= 14) {
			t.Fatalf("a session that begins with %d tokens has %d turns", s.Turns[0].Input, len(s.Turns))
		}
	}
	if err := p.FitTurns(mixed, firsts); err != nil || p.profile.(*agent).long != 0 {
		t.Errorf("turns that do not depend on first prompts: %v, limit %v", err, p.profile.(*agent).long)
	}
	if err := p.FitTurns(turns, firsts[:5]); err == nil {
		t.Error("no error for lists of different lengths")
	}
}
