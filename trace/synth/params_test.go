package synth

import (
	"math"
	"strings"
	"testing"
)

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		profile  string
		programs int
		set      string
		want     string
	}{
		{"swe", 1, "", `synth: unknown profile "swe"; profiles are mini-swe-agent, openhands, claude-code, deep-research, subagent-fanout, chat, plain`},
		{"plain", 0, "", "synth: 0 programs: the number must lie between 1 and 10000000"},
		{"plain", 10_000_001, "", "10000001 programs"},
		{"plain", 1, "input", `profile plain: parameter "input": want key=value`},
		{"plain", 1, "turns=3", `unknown parameter "turns"; parameters are input, output, rate`},
		{"plain", 1, "input=many", `parameter input=many: "many" is not a number`},
		{"plain", 1, "input=0", "parameter input=0: must lie within 1 to 536870912"},
		{"plain", 1, "input=NaN", "must lie within"},
		{"plain", 1, "input=+Inf", "must lie within"},
		{"plain", 1, "input=9:5", "parameter input=9:5: the low end is above the high end"},
		{"plain", 1, "input=5:", `"" is not a number`},
		{"plain", 1, "rate=1:2", "parameter rate=1:2: want one number, not a range"},
		{"plain", 1, "rate=0.001", "parameter rate=0.001: must be 0 or at least 0.01"},
		{"mini-swe-agent", 1, "system=64.5", "must be a whole number"},
		{"mini-swe-agent", 1, "system=100", "parameter system=100: must be a multiple of block=64"},
		{"mini-swe-agent", 1, "compact=1000", "parameter compact=1000: must be 0 or at least system + 1024 = 1216"},
		{"mini-swe-agent", 1, "subagents=1.5", "must lie within 0 to 1"},
		{"mini-swe-agent", 1, "result=1000000", "a context could reach"},
		{"mini-swe-agent", 1, "tool=86400:86400 turns=10000:10000 subagents=1", "a program could take"},
		{"mini-swe-agent", 10_000_000, "", "10000000 programs of these sizes would take"},
	} {
		_, err := Generate(test.profile, Options{Programs: test.programs, Set: strings.Fields(test.set)})
		if err == nil {
			t.Errorf("%s, %d programs, %q: no error, want %q", test.profile, test.programs, test.set, test.want)
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s, %d programs, %q: error %q, want %q", test.profile, test.programs, test.set, err, test.want)
		}
	}
}

// TestMeanOfDist compares the formula with draws, and stretches each distribution to another mean.
func TestMeanOfDist(t *testing.T) {
	for _, d := range []dist{
		between(3, 3),
		between(10, 20),
		{median: 5, min: 1, max: 9},
		{median: 100, sigma: 0.5, min: 1, max: 1e9},
		{median: 100, sigma: 1.5, min: 80, max: 300},
		{median: 100, sigma: 1.5, min: 0, max: 300},
		{median: 1, sigma: 0.3, tail: 0.25, tailMedian: 50, tailSigma: 0.6, min: 0.5, max: 100},
	} {
		for _, d := range []dist{d, d.scaled(40)} {
			r := newStream()
			const n = 300_000
			sum := 0.0
			for range n {
				x := d.draw(r.Rand)
				if x < d.min || x > d.max {
					t.Fatalf("%v: draw of %v", d, x)
				}
				sum += x
			}
			near(t, d.String(), sum/n, d.mean())
		}
		if got := d.scaled(40).mean(); math.Abs(got-40) > 1e-9 {
			t.Errorf("%v stretched to mean 40 has mean %v", d, got)
		}
	}
	// Uncut, the mean is median x e^(sigma^2/2): 100 e^0.125 = 113.31.
	if got := (dist{median: 100, sigma: 0.5, min: 1, max: 1e9}).mean(); math.Abs(got-113.31) > 0.01 {
		t.Errorf("mean = %v, want 113.31", got)
	}
}

// TestHashesDiffer checks that mix64 loses nothing: it is undone by the inverses of its steps.
func TestHashesDiffer(t *testing.T) {
	unshift := func(x uint64, by uint) uint64 {
		y := x
		for range 64/by + 1 {
			y = x ^ y>>by
		}
		return y
	}
	inverse := func(odd uint64) uint64 { // modulo 2^64, by Newton's iteration
		x := odd
		for range 6 {
			x *= 2 - odd*x
		}
		return x
	}
	r := newStream()
	for range 1000 {
		x := r.Uint64()
		y := unshift(mix64(x), 31) * inverse(0x94d049bb133111eb)
		y = unshift(y, 27) * inverse(0xbf58476d1ce4e5b9)
		if y = unshift(y, 30); y != x {
			t.Fatalf("mix64(%x) leads back to %x", x, y)
		}
	}
}

// FuzzSet looks for settings that pass the checks and then break the generator.
func FuzzSet(f *testing.F) {
	f.Add("turns=30", "output=5:9")
	f.Add("tool=1e-6", "summary=0.5:0.5")
	f.Add("system=0", "compact=1024")
	f.Add("subagents=1", "subagent-turns=1:1")
	f.Fuzz(func(t *testing.T, one, two string) {
		a := miniSWEAgent().(*agent)
		if override(a.params(), []string{one, two}) != nil || a.check(1) != nil {
			return
		}
		if a.turns.max*(1+a.subagents*a.childTurns.max) > 1e4 || a.longest()/a.block > 1e5 {
			return // right, but slow
		}
		for _, s := range a.generate(1, 1).Sessions {
			for _, u := range s.Turns {
				if u.Input < 1 || u.Output < 1 || u.End < u.Start || len(chain(u)) != int(blocksOf(u.Input, int32(a.block))) {
					t.Fatalf("%q, %q: %s has input %d, output %d, %v..%v", one, two, u.ID, u.Input, u.Output, u.Start, u.End)
				}
			}
		}
	})
}
