package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// sideRun is a run of 10 programs with 40 turns, of which some completed.
func sideRun(completed int64, ttft float64) *Run { return sideRunOf(40, completed, ttft) }

func sideRunOf(total, completed int64, ttft float64) *Run {
	r := &Run{Status: RunDone, Workload: Workload{Programs: 10, Sessions: 10, Turns: 40, InputTokens: 1000, OutputTokens: 400}}
	r.Requests = Requests{Total: total, Completed: completed, Failed: total - completed}
	r.LatencyMs.TTFT = distribution([]float64{ttft})
	r.KV.HitRate = Known(0.5)
	return r
}

// sides compares runs, and 100 calls of each with those of the first.
func sides(runs ...*Run) *SideBySide {
	var inputs []Compared
	for i, r := range runs {
		inputs = append(inputs, Compared{Label: string(rune('A' + i)), Kind: "prediction", Source: fmt.Sprintf("out#%d", i+1), Run: r})
	}
	s := NewSideBySide(inputs)
	for i, in := range inputs[1:] {
		var times, shares []Point
		for n := range 100 {
			x := 0.1 + float64(n)*float64(n)*0.01
			times = append(times, Point{x, x * (1.2 + 0.3*float64(i))})
			shares = append(shares, Point{float64(n) / 100, float64(n/2) / 100})
		}
		s.Turns = append(s.Turns, TurnErrors{Base: "A", Label: in.Label, Matched: 100,
			Phases: []PhaseErrors{NewPhaseErrors("TTFT", "s", times), NewPhaseErrors("hit tokens", "share", shares)}})
	}
	return s
}

func TestSideBySideRows(t *testing.T) {
	b := sideRun(40, 150)
	b.KV.HitRate = Known(0.6)
	s := sides(sideRun(40, 100), b)
	for _, want := range []struct {
		metric       string
		values       [2]float64
		ratio, error float64
	}{
		{"requests done", [2]float64{40, 40}, 1, 0},
		{"TTFT p50", [2]float64{0.1, 0.15}, 1.5, 0.5},
		{"hit rate", [2]float64{0.5, 0.6}, 1.2, 0.1}, // points
	} {
		i := slices.IndexFunc(s.Metrics, func(r Row) bool { return r.Name == want.metric })
		if i < 0 {
			t.Fatalf("no row %s", want.metric)
		}
		got := s.Metrics[i]
		text := fmt.Sprintf("%.9g %.9g %.9g %.9g", got.Values[0].Value, got.Values[1].Value, got.Ratios[1].Value, got.Errors[1].Value)
		if text != fmt.Sprintf("%.9g %.9g %.9g %.9g", want.values[0], want.values[1], want.ratio, want.error) {
			t.Errorf("%s: values, ratio and error are %s, want %+v", want.metric, text, want)
		}
	}
	for _, r := range s.Metrics {
		if strings.HasPrefix(r.Name, "ITL") || r.Name == "pauses" {
			t.Errorf("a row %s, which no run tells", r.Name)
		}
	}
}

func TestWorkDiffers(t *testing.T) {
	change := func(f func(*Run)) *Run { r := sideRun(40, 100); f(r); return r }
	for _, test := range []struct {
		b    *Run
		want string
	}{
		{sideRun(40, 500), ""},
		{change(func(r *Run) { r.Workload.InputTokens = 1009 }), ""}, // a chat template
		{change(func(r *Run) { r.Workload.InputTokens = 1020 }), "B is other work than A: 1020 prompt tokens against 1000"},
		{change(func(r *Run) { r.Workload.Programs, r.Workload.Turns = 9, 30 }), "B is other work than A: 9 programs against 10, 30 turns against 40"},
		{sideRun(30, 100), "B completed 30 of 40 requests, A 40 of 40"},
		{change(func(r *Run) { r.WindowS = []Figure{Known(10), Known(70)} }), "B measures from 10 to 70 s, A the whole run"},
	} {
		s := sides(sideRun(40, 100), test.b)
		if got := strings.Join(s.Differences, "; "); got != test.want {
			t.Errorf("differences are %q, want %q", got, test.want)
		}
	}
}

// A failed request in thousands is named and takes no run out of the comparison; more than 1 % do.
func TestFewFailuresAreNamed(t *testing.T) {
	for _, test := range []struct {
		completed     int64
		differs, note string
	}{
		{4000, "", ""},
		{3999, "", "B failed 1 of 4000 requests"},
		{3960, "", "B failed 40 of 4000 requests"},
		{3959, "B completed 3959 of 4000 requests, A 4000 of 4000", "B failed 41 of 4000 requests"},
	} {
		s := sides(sideRunOf(4000, 4000, 100), sideRunOf(4000, test.completed, 100))
		if got, notes := strings.Join(s.Differences, "; "), strings.Join(s.Notes, "; "); got != test.differs || notes != test.note {
			t.Errorf("%d completed: differences are %q, notes %q; want %q and %q", test.completed, got, notes, test.differs, test.note)
		}
	}
	doubtful := sideRun(40, 100)
	doubtful.Replay = &Replay{Doubts: []string{"the client was late"}}
	if s := sides(sideRun(40, 100), doubtful); len(s.Notes) != 1 || s.Notes[0] != "B should not be trusted: the client was late" {
		t.Errorf("notes are %q: a replay's doubts are lost", s.Notes)
	}
}

// A table is as wide as it may be: what has no room at the side goes below, beside the first input again.
func TestSideBySideWidth(t *testing.T) {
	runs := []*Run{sideRun(40, 100)}
	for i := range 8 {
		runs = append(runs, sideRun(40, 110+float64(i)))
	}
	s := sides(runs...)
	s.Turns = nil
	var b bytes.Buffer
	if err := WriteSideBySide(&b, s, TableOptions{Width: 100}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
	if n := strings.Count(b.String(), "requests done"); n != 2 {
		t.Errorf("%d tables, want 2:\n%s", n, &b)
	}
}

func TestSideBySideHTMLEscapes(t *testing.T) {
	r := sideRun(40, 100)
	r.Name, r.Warnings, r.Config = "<script>alert(1)</script>", []string{`" onload="alert(1)`}, []byte(`{"a": "</pre><img src=x>"}`)
	s := sides(r, sideRun(30, 100))
	s.Inputs[0].Source, s.Inputs[1].Kind = "<iframe src=x>", "'><b onclick=x>"
	checkTags(t, mustSideBySideHTML(t, s))
}

func mustSideBySideHTML(t *testing.T, s *SideBySide) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteSideBySideHTML(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Long lists are thinned out evenly, from the first on.
func TestThin(t *testing.T) {
	points := make([]Point, 3*maxPoints)
	for i := range points {
		points[i].Base = float64(i)
	}
	kept := thin(points)
	if len(kept) != maxPoints || kept[0].Base != 0 || kept[1].Base != 3 || kept[maxPoints-1].Base != 3*maxPoints-3 {
		t.Errorf("%d points: %v, %v ... %v", len(kept), kept[0], kept[1], kept[len(kept)-1])
	}
	if n := len(thin(points[:7])); n != 7 {
		t.Errorf("%d of 7 points", n)
	}
}
