package report

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// slowed is a run with a p90 slowdown that lost some requests.
func slowed(slowdown float64, lost int64) *Run {
	r := deployment{name: "kv", programsPerHour: 100, failed: lost, ttft99: 2, gpus: 4}.run()
	r.Programs.Slowdown.P90 = Known(slowdown)
	return r
}

// TestTry: a number holds when the mean of its seeds keeps every limit, edges included, and no request is lost.
func TestTry(t *testing.T) {
	for _, c := range []struct {
		name    string
		limits  []Limit
		runs    []*Run
		refused int64
		want    bool
	}{
		{"at the limit", []Limit{MaxSlowdown(1.5)}, []*Run{slowed(1.5, 0)}, 0, true},
		{"above it", []Limit{MaxSlowdown(1.5)}, []*Run{slowed(1.5001, 0)}, 0, false},
		{"one seed above, the mean below", []Limit{MaxSlowdown(1.5)}, []*Run{slowed(1.6, 0), slowed(1.2, 0)}, 0, true},
		{"one seed below, the mean above", []Limit{MaxSlowdown(1.5)}, []*Run{slowed(1.9, 0), slowed(1.2, 0)}, 0, false},
		{"failed", []Limit{MaxSlowdown(1.5)}, []*Run{slowed(1.2, 0), slowed(1.2, 1)}, 0, false},
		{"refused", []Limit{MaxSlowdown(1.5)}, []*Run{slowed(1.2, 0)}, 3, false},
		{"both limits", []Limit{MaxSlowdown(1.5), MaxTTFT(2 * time.Second)}, []*Run{slowed(1.2, 0)}, 0, true},
		{"one of two", []Limit{MaxSlowdown(1.5), MaxTTFT(time.Second)}, []*Run{slowed(1.2, 0)}, 0, false},
	} {
		s := &Solution{Of: SolvePrograms, Limits: c.limits, Seeds: len(c.runs)}
		trial, err := s.Try(7, c.runs, c.refused)
		if err != nil || trial.Holds != c.want || len(trial.Figures) != len(c.limits) {
			t.Errorf("%s: %+v, %v", c.name, trial, err)
		}
	}
	s := &Solution{Of: SolvePrograms, Limits: []Limit{MinInSLO(0.9)}}
	if _, err := s.Try(7, []*Run{slowed(1, 0)}, 0); err == nil || err.Error() != "requests in SLO not known with 7 programs" {
		t.Errorf("an unknown figure: %v", err)
	}
}

// TestTriedInOrder: trials stand by number whatever the order in which they were made.
func TestTriedInOrder(t *testing.T) {
	s := &Solution{Of: SolvePrograms, Limits: []Limit{MaxSlowdown(1.5)}}
	for _, n := range rand.New(rand.NewPCG(1, 2)).Perm(20) {
		if _, err := s.Try(n, []*Run{slowed(1, 0)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.IsSortedFunc(s.Tried, func(a, b Trial) int { return a.Number - b.Number }) {
		t.Errorf("not in order: %v", s.Tried)
	}
}

// solved is the solution that follows from the slowdowns at some numbers, with a limit of 1.5.
func solved(of string, number int, slowdowns map[int]float64) *Solution {
	s := &Solution{Of: of, Limits: []Limit{MaxSlowdown(1.5)}, Number: number, Seeds: 1}
	for n, slowdown := range slowdowns {
		lost := int64(0)
		if slowdown == 0 {
			lost = 12
		}
		if _, err := s.Try(n, []*Run{slowed(slowdown, lost)}, 0); err != nil {
			panic(err)
		}
	}
	return s
}

func TestSolutionText(t *testing.T) {
	for _, c := range []struct {
		s    *Solution
		want string
	}{
		{solved(SolvePrograms, 48, map[int]float64{32: 1.1, 48: 1.47, 49: 1.56, 64: 2}), "48 programs; with 49 the p90 slowdown is 1.56"},
		{solved(SolvePrograms, 48, map[int]float64{48: 1.5, 49: 1.500312}), "48 programs; with 49 the p90 slowdown is 1.5003"},
		{solved(SolvePrograms, 48, map[int]float64{48: 1.47, 49: 0}), "48 programs; with 49 some requests are lost (12)"},
		{solved(SolvePrograms, 1, map[int]float64{1: 1, 2: 2}), "1 program; with 2 the p90 slowdown is 2"},
		{solved(SolvePrograms, 0, map[int]float64{1: 1.8}), "not even 1 program: the p90 slowdown is 1.80"},
		{solved(SolvePrograms, 8, map[int]float64{1: 1, 8: 1.4}), "8 programs or more: no larger number was tried"},
		{solved(SolvePrograms, 48, map[int]float64{42: 1.53, 48: 1.47, 49: 1.56, 50: 1.49}),
			"48 programs; with 49 the p90 slowdown is 1.56, but with 42 the p90 slowdown is 1.53, but with 50 again within the limits"},
		{solved(SolveGPUs, 8, map[int]float64{4: 3, 6: 1.7, 8: 1.4, 16: 1}), "8 GPUs; with 6 the p90 slowdown is 1.70"},
		{solved(SolveGPUs, 2, map[int]float64{2: 1.4, 4: 1}), "2 GPUs, a single worker"},
		{solved(SolveGPUs, 0, map[int]float64{1: 3, 1024: 1.9}), "not even 1024 GPUs: the p90 slowdown is 1.90"},
		{&Solution{Of: SolvePrograms, Number: 3, Tried: []Trial{{Number: 3, Holds: true}, {Number: 4}}}, "3 programs; with 4 the limits are kept"}, // from a file
		{&Solution{}, ""},
		{&Solution{Of: SolvePrograms, Limits: []Limit{MinInSLO(0.9)}, Tried: []Trial{{Number: 1, Figures: []Figure{Known(0.8)}}}}, "not even 1 program: only 80% of requests in SLO"},
	} {
		if got := c.s.text(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestLimitText(t *testing.T) {
	s := Solution{Limits: []Limit{MaxSlowdown(1.25), MaxTTFT(90 * time.Second), MaxTTFT(250 * time.Millisecond), MinInSLO(0.999)}, Seeds: 3}
	want := "a p90 slowdown of at most 1.25, a p99 TTFT of at most 90 s, a p99 TTFT of at most 250 ms and at least 99.9% of requests in SLO, in the mean of 3 seeds"
	if got := s.limits(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLimitPrint(t *testing.T) {
	for _, c := range []struct {
		l    Limit
		v    float64
		want string
	}{
		{MaxSlowdown(1.5), 1.5, "1.50"},
		{MaxSlowdown(1.5), 2.25, "2.25"},
		{MaxSlowdown(2), 2.0004, "2.0004"},
		{MaxSlowdown(1.5), 1.5000004, "1.5000004"},
		{MaxTTFT(2 * time.Second), 2.4567, "2.46 s"},
		{MaxTTFT(2 * time.Second), 2.0017, "2.002 s"},
		{MinInSLO(0.95), 0.9, "90%"},
		{MinInSLO(0.95), 0.949, "94.9%"},
		{MinInSLO(0.95), 0.9496, "94.96%"},
	} {
		if got := c.l.print(c.v); got != c.want {
			t.Errorf("%v with a limit of %v: %s, want %s", c.v, c.l.Value, got, c.want)
		}
	}
}

// TestJudgeSolutions: programs per GPU decide, or GPUs, and not the throughput, which the row with more programs has more of.
func TestJudgeSolutions(t *testing.T) {
	row := func(name string, gpus int, s *Solution) *Run {
		r := slowed(1.4, 0)
		r.Name, r.GPUs, r.Solution = name, gpus, s
		r.SetPrice(2)
		return r
	}
	programs := func(n int) *Solution { return solved(SolvePrograms, n, map[int]float64{n: 1.4, n + 1: 1.6}) }
	gpus := func(n int) *Solution { return solved(SolveGPUs, n, map[int]float64{n - 2: 1.6, n: 1.4}) }
	none := solved(SolvePrograms, 0, map[int]float64{1: 1.8})
	for _, c := range []struct {
		name    string
		runs    []*Run
		winner  string
		want    string
		trusted bool
	}{
		{"more per GPU", []*Run{row("big", 8, programs(40)), row("small", 2, programs(12))}, "small",
			"small holds the most programs per GPU with a p90 slowdown of at most 1.5: 6, 20% more than big, with 2 GPUs against 8", true},
		{"the baseline", []*Run{row("kv", 4, programs(40)), row("random", 4, programs(30))}, "kv",
			"kv, the baseline, holds the most programs per GPU with a p90 slowdown of at most 1.5: 10; the next, random, has 25% less", true},
		{"equal", []*Run{row("kv", 4, programs(40)), row("random", 4, programs(40))}, "", "Equal in programs per GPU (10)", true},
		{"fewest GPUs", []*Run{row("kv", 8, gpus(8)), row("thunderagent", 4, gpus(4))}, "thunderagent",
			"thunderagent needs the fewest GPUs for a p90 slowdown of at most 1.5: 4, 50% less than kv, with", true},
		{"one row", []*Run{row("kv", 4, programs(40))}, "", "kv: 10 programs per GPU", true},
		{"none", []*Run{row("kv", 4, none)}, "", "Not to be trusted: no number keeps the limits.", false},
		{"no baseline", []*Run{row("kv", 4, none), row("random", 4, programs(30))}, "",
			"Not to be trusted: the baseline kv keeps the limits with no number.", false},
	} {
		v := Judge(c.runs, Evidence{})
		if v.Winner != c.winner || v.Trusted != c.trusted || !strings.Contains(v.Text, c.want) {
			t.Errorf("%s: winner %q, trusted %v\n%s\nwant %s", c.name, v.Winner, v.Trusted, v.Text, c.want)
		}
	}
}

func TestSolutionTable(t *testing.T) {
	var out strings.Builder
	for _, runs := range [][]*Run{
		{solvedRun("kv", 8, solved(SolvePrograms, 20, map[int]float64{20: 1.4, 21: 1.6})),
			solvedRun("thunderagent", 8, solved(SolvePrograms, 32, map[int]float64{32: 1.45, 33: 1.51, 34: 1.49})),
			solvedRun("tiny", 4, solved(SolvePrograms, 0, map[int]float64{1: 1.8})),
			solvedRun("huge", 8, solved(SolvePrograms, 640, map[int]float64{1: 1, 640: 1.2}))},
		{solvedRun("kv", 8, solved(SolveGPUs, 8, map[int]float64{6: 1.8, 8: 1.4})), solvedRun("thunderagent", 4, solved(SolveGPUs, 4, map[int]float64{2: 1.8, 4: 1.4}))},
	} {
		if err := WriteTable(&out, runs, TableOptions{}); err != nil {
			t.Fatal(err)
		}
		var page strings.Builder
		if err := WriteHTML(&page, &Report{Runs: runs}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"tried</", "within the limits"} {
			if !strings.Contains(page.String(), want) {
				t.Errorf("the page lacks %q", want)
			}
		}
	}
	golden(t, "table-solution.txt", []byte(out.String()))
}

// solvedRun is a run with a solution and a price.
func solvedRun(name string, gpus int, s *Solution) *Run {
	r := deployment{name: name, programsPerHour: 100 * float64(gpus), ttft50: 1, ttft99: 3, tpot: 0.02, meanProgram: 300, hit: 0.9, gpus: gpus}.run()
	r.Programs.Slowdown.P90, r.Solution, r.Throughput.TurnsPerMin = Known(1.4), s, Known(250)
	r.SetPrice(2.5)
	return r
}
