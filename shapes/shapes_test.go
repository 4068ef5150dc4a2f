package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace/report"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestQuick runs what takes seconds of make shapes.
func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var b strings.Builder
	failed, err := runCases(&b, func(s *study) bool { return s.quick })
	if err != nil {
		t.Fatal(err)
	}
	if failed > 0 || !strings.Contains(b.String(), " 0 FAIL") {
		t.Errorf("%d checks failed:\n%s", failed, b.String())
	}
}

// TestWorkloadsAreFrozen pins the workloads that published results are judged by: whoever changes a profile sees here that
// all figures of make shapes change with it.
func TestWorkloadsAreFrozen(t *testing.T) {
	l := newLab()
	for _, profile := range []string{"mini-swe-agent", "openhands"} {
		if _, err := l.workload(profile); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "workloads.golden", strings.Join(l.hashes(), "\n")+"\n")
}

// TestVerdicts prints a study with each verdict that a check can have.
func TestVerdicts(t *testing.T) {
	s := study{name: "a study", source: "a paper", missed: map[string]string{"far": "no such effect", "farther": "no such effect", "reached": "old", "gone": "old"}}
	var b strings.Builder
	sum := s.print(&b, []check{
		shown("only shown", 0.5, 0.4, percent),
		within("inside", nan, 0.4, 0.3, 0.5, percent),
		within("on the border", 3, 3, 3, none, number),
		within("outside", 3, 2, 3, none, number),
		near("far", 100, 131, 0.3, number),
		near("farther", 100, 69, 0.3, number),
		points("reached", 0.95, 1, 0.1),
		lead("ahead", 1.2, 1.06),
		lead("nobody ahead", 1.04, 0.94),
		lead("behind", 0.9, 0.96),
	})
	if want := (tally{ok: 3, missed: 2, failed: 5}); sum != want {
		t.Errorf("tally is %+v, want %+v", sum, want)
	}
	golden(t, "verdicts.golden", b.String())
}

// Two workers of 10,000 tokens and two programs. Program 0 has 1000 + 100 tokens on worker 0 from minute 0 on and, after a tool,
// 1300 + 100 there from minute 3 to the end at 5:30. Program 1 has 600 + 100 tokens on worker 1 until its request ends at 1:30,
// for its next one is held from 2:00 to 4:00; then it has 900 + 100 on worker 0.
func TestHeld(t *testing.T) {
	at := func(minutes float64) time.Duration { return time.Duration(minutes * float64(time.Minute)) }
	o := outcome{run: &sim.Result{End: at(5.5), Engines: make([]engine.Stats, 2), Window: report.Window{From: at(1), To: at(5)}, Requests: []report.Request{
		{Program: 0, Session: 0, Worker: 0, Arrival: 0, End: at(0.5), Input: 1000, Output: 100},
		{Program: 1, Session: 1, Worker: 1, Arrival: 0, End: at(1.5), Input: 600, Output: 100},
		{Program: 1, Session: 1, Worker: 0, Arrival: at(2), Held: at(2), End: at(5.2), Input: 900, Output: 100},
		{Program: 0, Session: 0, Worker: 0, Arrival: at(3), End: at(5.5), Input: 1300, Output: 100},
	}}, figures: &report.Run{}}
	o.figures.KV.CapacityTokens = report.Known(20_000)
	want := [][2]int64{{1100, 700}, {1100, 700}, {1100, 0}, {1400, 0}, {2400, 0}, {2400, 0}}
	for minute, held := range o.held() {
		if [2]int64(held) != want[minute] {
			t.Errorf("minute %d: workers hold %v tokens, want %v", minute, held, want[minute])
		}
	}
	if often, most := o.apart(); often != 1 || most != 1 { // 700 is more than 20 % below 1100
		t.Errorf("20%% apart in %v of the minutes, %v at most, want 1 and 1", often, most)
	}
	if got, want := o.workingSet(), (1800.0+1100+1400+2400)/4/20_000; got != want {
		t.Errorf("working set is %v of capacity, want %v", got, want)
	}
}

func TestOrder(t *testing.T) {
	if got := order(func(system int) float64 { return []float64{2, 3, 1}[system] }); got != "Continuum > vLLM > ThunderAgent" {
		t.Errorf("order of 2, 3 and 1 is %s", got)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got, want)
	}
}
