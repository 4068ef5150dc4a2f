package report

import (
	"slices"
	"testing"
)

func TestJudge(t *testing.T) {
	rr := deployment{
		name: "round-robin", programsPerHour: 361, requestsPerS: 5, meanE2E: 4, meanProgram: 400, ttft99: 3.5, hit: 0.52,
		reprefill: 0.13, preemptions: 40,
	}
	kv := deployment{
		name: "kv", programsPerHour: 412, requestsPerS: 6, meanE2E: 3, meanProgram: 320, ttft99: 4.1, hit: 0.71,
		reprefill: 0.041, preemptions: 3,
	}
	with := func(d deployment, change func(*deployment)) deployment { change(&d); return d }
	single := func(d *deployment) { d.singleTurn = true }

	for _, test := range []struct {
		name    string
		runs    []deployment
		given   Evidence
		want    string
		reasons []string
	}{
		{
			name: "another than the baseline wins, at a cost",
			runs: []deployment{rr, kv},
			want: "kv completes the most programs per hour: 412, 14% more than round-robin, at the cost of a p99 TTFT of 4.10 s against 3.50 s; hit rate 71% against 52%, 4.1% of GPU time re-prefilling against 13%, 3 preemptions against 40.",
		},
		{
			name: "the baseline wins",
			runs: []deployment{kv, rr},
			want: "kv, the baseline, completes the most programs per hour: 412; the next, round-robin, has 12% less, at the cost of a p99 TTFT of 4.10 s against 3.50 s; hit rate 71% against 52%, 4.1% of GPU time re-prefilling against 13%, 3 preemptions against 40.",
		},
		{
			name: "under 1 %",
			runs: []deployment{rr, with(kv, func(d *deployment) { d.programsPerHour, d.ttft99 = 364, 2.1 })},
			want: "kv and round-robin are equal in programs per hour (364 and 361), less than 1% apart, with a p99 TTFT of 2.10 s against 3.50 s.",
		},
		{
			name: "two winners",
			runs: []deployment{rr, kv, with(kv, func(d *deployment) { d.name, d.programsPerHour = "sticky", 410 })},
			want: "kv completes the most programs per hour: 412, 14% more than round-robin, at the cost of a p99 TTFT of 4.10 s against 3.50 s; hit rate 71% against 52%, 4.1% of GPU time re-prefilling against 13%, 3 preemptions against 40; sticky does as well.",
		},
		{
			name: "single calls",
			runs: []deployment{
				with(rr, single),
				with(kv, func(d *deployment) { *d = deployment{name: "kv", singleTurn: true, requestsPerS: 6, preemptions: 40} }),
			},
			want: "kv completes the most requests per second: 6, 20% more than round-robin.",
		},
		{
			name:  "fixed load: time decides",
			runs:  []deployment{rr, with(kv, func(d *deployment) { d.programsPerHour = 361 })},
			given: Evidence{FixedLoad: true},
			want:  "kv has the lowest mean program time: 320 s, 20% less than round-robin, at the cost of a p99 TTFT of 4.10 s against 3.50 s; hit rate 71% against 52%, 4.1% of GPU time re-prefilling against 13%, 3 preemptions against 40.",
		},
		{
			name:  "fixed load of single calls",
			runs:  []deployment{{name: "a", singleTurn: true, meanE2E: 4, ttft99: 1}, {name: "b", singleTurn: true, meanE2E: 3, ttft99: 1}},
			given: Evidence{FixedLoad: true},
			want:  "b has the lowest mean request time: 3 s, 25% less than a, with the same p99 TTFT (1 s).",
		},
		{
			name:    "fixed load, but one did not keep up: throughput decides",
			runs:    []deployment{with(rr, func(d *deployment) { d.unfinished = 2 }), {name: "kv", programsPerHour: 412, meanProgram: 500, preemptions: 40}},
			given:   Evidence{FixedLoad: true},
			want:    "kv completes the most programs per hour: 412, 14% more than round-robin. Not to be trusted: round-robin: 2 of 412 requests did not complete (2 unfinished).",
			reasons: []string{"round-robin: 2 of 412 requests did not complete (2 unfinished)"},
		},
		{
			name:  "beyond noise",
			runs:  []deployment{rr, {name: "kv", programsPerHour: 412, preemptions: 40}},
			given: Evidence{Intervals: []Interval{{}, {Mean: 0.141, Low: 0.09, High: 0.192, Repeats: 5}}},
			want:  "kv completes the most programs per hour: 412, 14% more (95% interval +9.0% to +19.2% over 5 repeats) than round-robin.",
		},
		{
			name:  "within noise",
			runs:  []deployment{rr, {name: "kv", programsPerHour: 412, preemptions: 40}},
			given: Evidence{Intervals: []Interval{{}, {Mean: 0.141, Low: -0.02, High: 0.302, Repeats: 5}}},
			want:  "kv and round-robin are equal in programs per hour (412 and 361), +14.1% being within noise (95% interval -2.0% to +30.2% over 5 repeats).",
		},
		{
			name:  "a smaller lead that is sure wins over a larger one that is not",
			runs:  []deployment{rr, {name: "wild", programsPerHour: 450, preemptions: 40}, {name: "sure", programsPerHour: 400, preemptions: 40}},
			given: Evidence{Intervals: []Interval{{}, {Mean: 0.2, Low: -0.1, High: 0.5, Repeats: 3}, {Mean: 0.1, Low: 0.08, High: 0.12, Repeats: 3}}},
			want:  "sure beats the baseline in programs per hour: 400, 10% more (95% interval +8.0% to +12.0% over 3 repeats) than round-robin; wild does better on average, but within noise.",
		},
		{
			name:    "bounds flip the winner",
			runs:    []deployment{rr, {name: "kv", programsPerHour: 412, preemptions: 40}},
			given:   Evidence{Flips: []string{"--outputs none"}},
			want:    "kv completes the most programs per hour: 412, 14% more than round-robin. Not to be trusted: another run wins with --outputs none.",
			reasons: []string{"another run wins with --outputs none"},
		},
		{
			name:    "dropped work",
			runs:    []deployment{rr, {name: "kv", programsPerHour: 412, preemptions: 40, rejected: 8, failed: 4}},
			want:    "kv completes the most programs per hour: 412, 14% more than round-robin. Not to be trusted: kv: 12 of 412 requests did not complete (8 rejected, 4 failed).",
			reasons: []string{"kv: 12 of 412 requests did not complete (8 rejected, 4 failed)"},
		},
		{
			name: "one run",
			runs: []deployment{kv},
			want: "kv: 412 programs per hour, p99 TTFT 4.10 s, hit rate 71%, 4.1% of GPU time re-prefilling.",
		},
		{
			name: "no program completed: turns decide",
			runs: []deployment{{name: "a"}, {name: "b"}},
			want: "Not to be trusted: no run completed anything.", reasons: []string{"no run completed anything"},
		},
		{
			name:    "the baseline completed nothing",
			runs:    []deployment{{name: "a", singleTurn: true}, with(kv, single)},
			want:    "kv: 6 requests per second, p99 TTFT 4.10 s, hit rate 71%, 4.1% of GPU time re-prefilling. Not to be trusted: the baseline a completed nothing.",
			reasons: []string{"the baseline a completed nothing"},
		},
	} {
		var runs []*Run
		for _, d := range test.runs {
			runs = append(runs, d.run())
		}
		got := Judge(runs, test.given)
		if got.Text != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got.Text, test.want)
		}
		if !slices.Equal(got.Reasons, test.reasons) || got.Trust != (len(test.reasons) == 0) {
			t.Errorf("%s: trust %v for the reasons %q, want %q", test.name, got.Trust, got.Reasons, test.reasons)
		}
	}
}

func TestJudgeSaysWhatItRestsOn(t *testing.T) {
	run := deployment{name: "kv", programsPerHour: 412}.run()
	run.KV.OutputBlocks = &OutputBlocks{Known: 35, Inferred: 63, Unknown: 2}
	run.Approximations = []string{"cost profile is an estimate"}
	got := Judge([]*Run{run}, Evidence{})
	want := "kv: 412 programs per hour. This rests on inference for 63% of output blocks (2.0% are unknown) and on one approximation (cost profile is an estimate)."
	if got.Text != want || !got.Trust {
		t.Errorf("got %s (trust %v)\nwant %s", got.Text, got.Trust, want)
	}
	run.Approximations = append(run.Approximations, "window layers are a constant per request")
	run.KV.OutputBlocks = nil
	got = Judge([]*Run{run, run}, Evidence{})
	want = "kv and kv are equal in programs per hour (412 and 412), less than 1% apart. This rests on 2 approximations, listed in the report."
	if got.Text != want {
		t.Errorf("got %s\nwant %s", got.Text, want)
	}
}

func TestJudgeFailedRuns(t *testing.T) {
	failed := &Run{Name: "big", Status: RunFailed, Error: "out of memory"}
	kv := deployment{name: "kv", programsPerHour: 412}.run()
	cut := deployment{name: "rr", programsPerHour: 300}.run()
	cut.Status = RunInterrupted
	got := Judge([]*Run{kv, failed, cut}, Evidence{})
	if want := []string{"big failed: out of memory", "rr was interrupted"}; got.Trust || !slices.Equal(got.Reasons, want) {
		t.Errorf("trust %v, reasons %q, want %q", got.Trust, got.Reasons, want)
	}
	if got := Judge(nil, Evidence{}); got.Trust {
		t.Errorf("no runs, but trusted: %+v", got)
	}
}

// Requests that are under way when the measured window closes are no fault; refused ones outside of it are.
func TestIncompleteOutsideOfTheWindow(t *testing.T) {
	run := deployment{name: "kv", programsPerHour: 412}.run()
	run.Whole = &Measures{Requests: Requests{Total: 500, Completed: 480, Unfinished: 20}}
	if got := Judge([]*Run{run}, Evidence{}); !got.Trust {
		t.Errorf("not trusted because of %q", got.Reasons)
	}
	run.Whole.Requests = Requests{Total: 500, Completed: 480, Rejected: 20}
	if got := Judge([]*Run{run}, Evidence{}); got.Trust {
		t.Errorf("trusted although 20 requests were rejected: %+v", got)
	}
}

func TestPrimary(t *testing.T) {
	run := deployment{name: "kv", programsPerHour: 412, requestsPerS: 1}.run()
	none := deployment{name: "slow"}.run()
	none.Throughput.TurnsPerMin = Known(3)
	for _, test := range []struct {
		runs []*Run
		want string
	}{
		{[]*Run{run}, "programs per hour"},
		{[]*Run{run, none}, "turns per minute"}, // programs are too long to complete any
		{[]*Run{{Status: RunDone, Workload: Workload{Programs: 3, Turns: 3}}}, "requests per second"},
	} {
		if got := Primary(test.runs, false).Name; got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}
