package report

import (
	"fmt"
	"slices"
	"strings"
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
	// bare has nothing but a throughput.
	bare := func(name string, programsPerHour float64) deployment {
		return deployment{name: name, programsPerHour: programsPerHour}
	}
	with := func(d deployment, change func(*deployment)) deployment { change(&d); return d }
	single := func(d *deployment) { d.singleTurn = true }
	tooLong := func(d *deployment) {
		d.rejected, d.why = 12, "prompts are up to 118k tokens long, the model takes 40960 (--max-context truncate)"
	}
	// Bound by tools: all policies complete the same programs.
	slow := deployment{
		name: "round-robin", programsPerHour: 1.88, meanProgram: 7000, ttft99: 24.2, reprefill: 0.33, model: 280, tool: 5720, human: 1000,
	}
	fast := deployment{
		name: "kv", programsPerHour: 1.885, meanProgram: 6990, ttft99: 12.8, reprefill: 0.19, model: 270, tool: 5720, human: 1000,
	}

	for _, test := range []struct {
		name    string
		runs    []deployment
		given   Evidence
		want    string
		winner  string
		reasons []string
	}{
		{
			name:   "another than the baseline wins, at a cost",
			runs:   []deployment{rr, kv},
			want:   "kv completes the most programs per hour: 412, 14% more than round-robin, at the cost of a p99 TTFT of 4.10 s against 3.50 s; hit rate 71% against 52%, 4.1% of GPU time re-prefilling against 13%, 3 preemptions against 40.",
			winner: "kv",
		},
		{
			name:   "the baseline wins",
			runs:   []deployment{kv, rr},
			want:   "kv, the baseline, completes the most programs per hour: 412; the next, round-robin, has 12% less, at the cost of a p99 TTFT of 4.10 s against 3.50 s; hit rate 71% against 52%, 4.1% of GPU time re-prefilling against 13%, 3 preemptions against 40.",
			winner: "kv",
		},
		{
			name:   "two winners",
			runs:   []deployment{bare("rr", 361), bare("kv", 412), bare("sticky", 410)},
			want:   "kv completes the most programs per hour: 412, 14% more than rr; sticky is within 1% of it.",
			winner: "kv",
		},
		{
			name:   "a time that would vanish in that unit makes it finer",
			runs:   []deployment{{name: "a", programsPerHour: 100, ttft99: 636}, {name: "b", programsPerHour: 200, ttft99: 4.68}},
			want:   "b completes the most programs per hour: 200, 100% more than a, with a p99 TTFT of 4.68 s against 636 s.",
			winner: "b",
		},
		{
			name: "a winner under another load than the baseline's is set against the best under its own",
			runs: []deployment{
				{name: "kv 16", programsPerHour: 200, axes: []Axis{{"load.concurrency", "16"}}},
				{name: "rr 64", programsPerHour: 150, axes: []Axis{{"load.concurrency", "64"}}},
				{name: "kv 64", programsPerHour: 320, axes: []Axis{{"load.concurrency", "64"}}},
				{name: "agents 64", programsPerHour: 500, axes: []Axis{{"load.concurrency", "64"}}},
			},
			want:   "agents 64 completes the most programs per hour: 500, 150% more than kv 16; under the same load kv 64 has 320 (36% less).",
			winner: "agents 64",
		},
		{
			name:   "twice the GPUs",
			runs:   []deployment{with(bare("2 workers", 361), func(d *deployment) { d.gpus = 4 }), with(bare("4 workers", 650), func(d *deployment) { d.gpus = 8 })},
			want:   "4 workers completes the most programs per hour: 650, 80% more than 2 workers, with twice the GPUs (8 against 4).",
			winner: "4 workers",
		},
		{
			name:   "the next has fewer GPUs",
			runs:   []deployment{with(bare("tp8", 361), func(d *deployment) { d.gpus = 8 }), with(bare("tp3", 325), func(d *deployment) { d.gpus = 3 })},
			want:   "tp8, the baseline, completes the most programs per hour: 361; the next, tp3, has 10% less, with 3 GPUs against 8.",
			winner: "tp8",
		},
		{
			name:   "times of one figure are told in one unit",
			runs:   []deployment{with(rr, func(d *deployment) { *d = deployment{name: "a", programsPerHour: 100, ttft99: 618} }), {name: "b", programsPerHour: 200, ttft99: 576}},
			want:   "b completes the most programs per hour: 200, 100% more than a, with a p99 TTFT of 9.60 min against 10.3 min.",
			winner: "b",
		},
		{
			name: "single calls",
			runs: []deployment{
				with(rr, single),
				{name: "kv", singleTurn: true, requestsPerS: 6, preemptions: 40},
			},
			want:   "kv completes the most requests per second: 6, 20% more than round-robin.",
			winner: "kv",
		},
		{
			name:   "fixed load: time decides",
			runs:   []deployment{rr, with(kv, func(d *deployment) { d.programsPerHour = 361 })},
			given:  Evidence{FixedLoad: true},
			want:   "kv has the lowest mean program time: 320 s, 20% less than round-robin, at the cost of a p99 TTFT of 4.10 s against 3.50 s; hit rate 71% against 52%, 4.1% of GPU time re-prefilling against 13%, 3 preemptions against 40.",
			winner: "kv",
		},
		{
			name:   "fixed load of single calls",
			runs:   []deployment{{name: "a", singleTurn: true, meanE2E: 4, ttft99: 1}, {name: "b", singleTurn: true, meanE2E: 3, ttft99: 1}},
			given:  Evidence{FixedLoad: true},
			want:   "b has the lowest mean request time: 3 s, 25% less than a, with the same p99 TTFT (1 s).",
			winner: "b",
		},

		// Equal throughput: what else tells the runs apart.
		{
			name: "equal, bound by tools and people: latency decides",
			runs: []deployment{slow, fast},
			want: "Equal in programs per hour (1.88 to 1.89; 96% of program time is tools and people); kv cuts p99 TTFT 47% (24.2 s to 12.8 s) and re-prefilling from 33% to 19% of GPU time.",
		},
		{
			name: "equal, and the baseline has the lower latency",
			runs: []deployment{fast, with(slow, func(d *deployment) { d.programsPerHour = 1.885 })},
			want: "Equal in programs per hour (1.89; 96% of program time is tools and people); against round-robin, kv, the baseline, cuts p99 TTFT 47% (24.2 s to 12.8 s) and re-prefilling from 33% to 19% of GPU time.",
		},
		{
			name: "three are equal, with a gain and a loss",
			runs: []deployment{
				slow, with(slow, func(d *deployment) { d.name = "sticky" }),
				with(fast, func(d *deployment) { d.meanProgram = 7700 }),
			},
			want: "Equal in programs per hour (1.88 to 1.89; 96% of program time is tools and people); against round-robin, kv cuts p99 TTFT 47% (24.2 s to 12.8 s) and re-prefilling from 33% to 19% of GPU time, but raises mean program time 10% (117 min to 128 min).",
		},
		{
			name: "two are equal and ahead of a third",
			runs: []deployment{
				with(bare("kv", 412), func(d *deployment) { d.ttft99 = 2 }),
				with(bare("sticky", 410), func(d *deployment) { d.ttft99 = 1 }), bare("rr", 361),
			},
			want: "kv and sticky are equal in programs per hour (410 to 412), ahead of rr (361); sticky cuts p99 TTFT 50% (2 s to 1 s).",
		},
		{
			name: "equal in everything",
			runs: []deployment{with(rr, func(d *deployment) { d.name = "a" }), rr},
			want: "Equal in programs per hour (361); p99 TTFT, mean program time and re-prefilling are equal too.",
		},
		{
			name:  "equal at a fixed load",
			runs:  []deployment{rr, with(rr, func(d *deployment) { d.name, d.ttft99 = "kv", 1.75 })},
			given: Evidence{FixedLoad: true},
			want:  "Equal in mean program time (400 s); kv cuts p99 TTFT 50% (3.50 s to 1.75 s).",
		},
		{
			name: "equal with half the GPUs",
			runs: []deployment{
				with(slow, func(d *deployment) { d.gpus = 8 }),
				with(fast, func(d *deployment) { d.gpus, d.model, d.tool, d.human = 4, 100, 60, 0 }),
			},
			want: "Equal in programs per hour (1.88 to 1.89; 96% of program time is tools and people); kv cuts p99 TTFT 47% (24.2 s to 12.8 s) and re-prefilling from 33% to 19% of GPU time, with half the GPUs (4 against 8).",
		},

		// Repeats.
		{
			name:   "beyond noise",
			runs:   []deployment{bare("rr", 361), bare("kv", 412)},
			given:  Evidence{Intervals: []Interval{{}, {Mean: 0.141, Low: 0.09, High: 0.192, Repeats: 5}}},
			want:   "kv completes the most programs per hour: 412, 14% more (95% interval +9.0% to +19.2% over 5 repeats) than rr.",
			winner: "kv",
		},
		{
			name:  "within noise",
			runs:  []deployment{bare("rr", 361), bare("kv", 412)},
			given: Evidence{Intervals: []Interval{{}, {Mean: 0.141, Low: -0.02, High: 0.302, Repeats: 5}}},
			want:  "Equal within noise in programs per hour (361 to 412; kv +14.1%, 95% interval -2.0% to +30.2% over 5 repeats).",
		},
		{
			name:   "a smaller lead that is sure wins over a larger one that is not",
			runs:   []deployment{bare("rr", 361), bare("wild", 450), bare("sure", 400)},
			given:  Evidence{Intervals: []Interval{{}, {Mean: 0.2, Low: -0.1, High: 0.5, Repeats: 3}, {Mean: 0.1, Low: 0.08, High: 0.12, Repeats: 3}}},
			want:   "sure beats the baseline in programs per hour: 400, 10% more (95% interval +8.0% to +12.0% over 3 repeats) than rr; wild does better on average, but within noise.",
			winner: "sure",
		},
		{
			name:   "a recorded baseline has no interval",
			runs:   []deployment{bare("recorded", 300), bare("rr", 361), bare("kv", 412)},
			given:  Evidence{Intervals: []Interval{{}, {Mean: 0.2, Low: 0.1, High: 0.3, Repeats: 3}, {Mean: 0.37, Low: 0.3, High: 0.44, Repeats: 3}}},
			want:   "kv completes the most programs per hour: 412, 37% more (95% interval +30.0% to +44.0% over 3 repeats) than recorded.",
			winner: "kv",
		},

		// Work left undone.
		{
			name:    "who rejects work cannot win, nor be the yardstick",
			runs:    []deployment{with(bare("small", 824), tooLong), bare("large", 361), bare("larger", 412)},
			want:    "larger completes the most programs per hour: 412, 14% more than large. Left out of the comparison: small rejected 12 of 412 requests.",
			winner:  "larger",
			reasons: []string{"small rejected 12 of 412 requests: prompts are up to 118k tokens long, the model takes 40960 (--max-context truncate)"},
		},
		{
			name:    "fixed load, but one did not keep up",
			runs:    []deployment{with(rr, func(d *deployment) { d.unfinished = 2 }), {name: "kv", programsPerHour: 412, meanProgram: 500, preemptions: 40}},
			given:   Evidence{FixedLoad: true},
			want:    "kv is the only row that completed all its requests: 500 s mean program time. Left out of the comparison: round-robin left 2 of 412 requests unfinished.",
			winner:  "kv",
			reasons: []string{"round-robin left 2 of 412 requests unfinished"},
		},
		{
			name: "no row is complete, for the same reason",
			runs: []deployment{with(rr, tooLong), with(kv, tooLong), with(bare("sticky", 400), tooLong)},
			want: "kv completes the most programs per hour: 412, 14% more than round-robin, at the cost of a p99 TTFT of 4.10 s against 3.50 s; hit rate 71% against 52%, 4.1% of GPU time re-prefilling against 13%, 3 preemptions against 40. " +
				"Every row rejected 12 of 412 requests, so this holds for the rest of the work only.",
			winner:  "kv",
			reasons: []string{"every row rejected 12 of 412 requests: prompts are up to 118k tokens long, the model takes 40960 (--max-context truncate)"},
		},
		{
			name: "no row is complete, for several reasons",
			runs: []deployment{
				with(bare("a", 300), func(d *deployment) { d.rejected, d.failed = 8, 4 }),
				with(bare("b", 300), func(d *deployment) { d.rejected, d.failed = 8, 4 }),
				with(bare("c", 300), func(d *deployment) { d.rejected, d.failed, d.unfinished = 8, 3, 1 }),
			},
			given: Evidence{LostRows: 1},
			want: "No row completed all its requests; a and b each rejected 8 of 412 requests and failed 4; c rejected 8 of 412 requests, failed 3 and left 1 unfinished. " +
				"Of what was completed: programs per hour 300. Not to be trusted: 1 row of the trace was lost.",
			reasons: []string{
				"a and b each rejected 8 of 412 requests and failed 4", "c rejected 8 of 412 requests, failed 3 and left 1 unfinished",
				"1 row of the trace was lost",
			},
		},
		{
			name:    "one run that rejects",
			runs:    []deployment{with(kv, tooLong)},
			want:    "kv: 412 programs per hour, p99 TTFT 4.10 s, hit rate 71%, 4.1% of GPU time re-prefilling. Not to be trusted: kv rejected 12 of 412 requests.",
			reasons: []string{"kv rejected 12 of 412 requests: prompts are up to 118k tokens long, the model takes 40960 (--max-context truncate)"},
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
			name:   "only the baseline completed anything",
			runs:   []deployment{with(kv, single), {name: "a", singleTurn: true}},
			want:   "kv is the only row that completed anything: 6 requests per second, p99 TTFT 4.10 s, hit rate 71%, 4.1% of GPU time re-prefilling.",
			winner: "kv",
		},
		{
			name:    "the baseline completed nothing",
			runs:    []deployment{{name: "a", singleTurn: true}, with(kv, single)},
			want:    "kv: 6 requests per second, p99 TTFT 4.10 s, hit rate 71%, 4.1% of GPU time re-prefilling. Not to be trusted: the baseline a completed nothing.",
			reasons: []string{"the baseline a completed nothing"},
		},

		// What programs that are paused pay for.
		{
			name:   "who pauses programs wins",
			runs:   []deployment{bare("kv", 361), {name: "thunderagent", programsPerHour: 530, ttft99: 45, paused: 12}},
			want:   "thunderagent completes the most programs per hour: 530, 47% more than kv, programs being paused for 12 s on average.",
			winner: "thunderagent",
		},
		{
			name: "who pauses programs is next",
			runs: []deployment{
				{name: "kv", programsPerHour: 412, ttft99: 4}, {name: "thunderagent", programsPerHour: 361, ttft99: 45, paused: 12},
			},
			want:   "kv, the baseline, completes the most programs per hour: 412; the next, thunderagent, has 12% less, with a p99 TTFT of 4 s against 45 s, programs of thunderagent being paused for 12 s on average.",
			winner: "kv",
		},
		{
			name: "who pauses programs is neither first nor the baseline",
			runs: []deployment{
				bare("rr", 361), bare("kv", 412), {name: "thunderagent", programsPerHour: 390, ttft99: 45, paused: 12},
				{name: "paper", programsPerHour: 380, ttft99: 45, paused: 24},
			},
			want:   "kv completes the most programs per hour: 412, 14% more than rr; thunderagent pauses programs for 12 s on average and has 390 programs per hour, p99 TTFT 45 s.",
			winner: "kv",
		},
		{
			name: "both pause programs",
			runs: []deployment{
				{name: "native", programsPerHour: 361, paused: 12}, {name: "paper", programsPerHour: 412, paused: 24},
			},
			want:   "paper completes the most programs per hour: 412, 14% more than native, programs being paused for 24 s on average against 12 s.",
			winner: "paper",
		},
		{
			name: "equal, but one pauses programs",
			runs: []deployment{bare("kv", 361), {name: "thunderagent", programsPerHour: 361, paused: 12}},
			want: "Equal in programs per hour (361); thunderagent pauses programs for 12 s on average and has 361 programs per hour.",
		},
		{
			name: "the best but for a few requests that gave up",
			runs: []deployment{
				with(rr, tooLong), {name: "kv", programsPerHour: 100, ttft99: 45},
				{name: "thunderagent", programsPerHour: 310, ttft99: 90, paused: 40, failed: 4, why: "clients gave up after 900 s, 3 of them held by the scheduler (client.timeout)"},
			},
			want: "kv is the only row that completed all its requests: 100 programs per hour, p99 TTFT 45 s. Left out of the comparison: " +
				"round-robin rejected 12 of 412 requests; " +
				"thunderagent failed 4 of 412 requests; " +
				"of the rest thunderagent has 310 programs per hour, 3.10 times as many as kv, at the cost of a p99 TTFT of 90 s against 45 s, programs being paused for 40 s on average.",
			winner: "kv",
			reasons: []string{
				"round-robin rejected 12 of 412 requests: prompts are up to 118k tokens long, the model takes 40960 (--max-context truncate)",
				"thunderagent failed 4 of 412 requests: clients gave up after 900 s, 3 of them held by the scheduler (client.timeout)",
			},
		},
		{
			name: "many requests gave up: no word of what would be",
			runs: []deployment{
				bare("kv", 100), {name: "thunderagent", programsPerHour: 310, failed: 40},
			},
			want:    "kv is the only row that completed all its requests: 100 programs per hour. Left out of the comparison: thunderagent failed 40 of 412 requests.",
			winner:  "kv",
			reasons: []string{"thunderagent failed 40 of 412 requests"},
		},
		{
			name: "nobody is complete, and some pause programs",
			runs: []deployment{
				{name: "kv", programsPerHour: 100, failed: 1}, {name: "thunderagent", programsPerHour: 310, paused: 40, failed: 2},
			},
			want: "No row completed all its requests; kv failed 1 of 412 requests; thunderagent failed 2 of 412 requests. " +
				"Of what was completed: programs per hour 100 (kv) to 310 (thunderagent), paused time 40 s.",
			reasons: []string{"kv failed 1 of 412 requests", "thunderagent failed 2 of 412 requests"},
		},

		// What the trace and the bounds say.
		{
			name:    "bounds flip the winner, rows are lost",
			runs:    []deployment{bare("rr", 361), bare("kv", 412)},
			given:   Evidence{Bounds: true, Flips: []string{"--outputs none"}, LostRows: 3},
			want:    "kv completes the most programs per hour: 412, 14% more than rr. Not to be trusted: 3 rows of the trace were lost; the outcome is another with --outputs none.",
			winner:  "kv",
			reasons: []string{"3 rows of the trace were lost", "the outcome is another with --outputs none"},
		},
		{
			name:   "bounds flip nothing",
			runs:   []deployment{bare("rr", 361), bare("kv", 412)},
			given:  Evidence{Bounds: true},
			want:   "kv completes the most programs per hour: 412, 14% more than rr. The winner is the same with --outputs none and all.",
			winner: "kv",
		},
		{
			name:  "bounds make no winner either",
			runs:  []deployment{bare("rr", 361), bare("kv", 361)},
			given: Evidence{Bounds: true},
			want:  "Equal in programs per hour (361). No row wins with --outputs none or all either.",
		},
	} {
		got := Judge(runsOf(test.runs...), test.given)
		if got.Text != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got.Text, test.want)
		}
		if got.Winner != test.winner {
			t.Errorf("%s: the winner is %q, want %q", test.name, got.Winner, test.winner)
		}
		if !slices.Equal(got.Reasons, test.reasons) || got.Trusted != (len(test.reasons) == 0) {
			t.Errorf("%s: trusted %v for the reasons %q, want %q", test.name, got.Trusted, got.Reasons, test.reasons)
		}
		if n := strings.Count(got.Text+" ", ". "); n > 3 {
			t.Errorf("%s: %d sentences, want at most 3", test.name, n)
		}
	}
}

func runsOf(deployments ...deployment) []*Run {
	var runs []*Run
	for _, d := range deployments {
		runs = append(runs, d.run())
	}
	return runs
}

func TestJudgeSaysWhatItRestsOn(t *testing.T) {
	for _, test := range []struct {
		name           string
		blocks         *OutputBlocks
		approximations []string
		given          Evidence
		want           string // after the first sentence
	}{
		{"nothing is inferred", &OutputBlocks{Unknown: 100}, nil, Evidence{}, ""},
		{
			"something is inferred", &OutputBlocks{Known: 35, Inferred: 53, Unknown: 12}, nil, Evidence{},
			" 53% of generated KV blocks are matched to later prompts by rule (--bounds tests it).",
		},
		{
			"tested", &OutputBlocks{Known: 35, Inferred: 53, Unknown: 12}, nil, Evidence{Bounds: true},
			" 53% of generated KV blocks are matched to later prompts by rule; the winner is the same with --outputs none and all.",
		},
		{"one approximation", nil, []string{"a"}, Evidence{}, " There is one approximation (see the notes)."},
		{
			"more of both", &OutputBlocks{Known: 47, Inferred: 53}, []string{"a", "b", "a"}, Evidence{},
			" 53% of generated KV blocks are matched to later prompts by rule (--bounds tests it); there are 2 approximations (see the notes).",
		},
	} {
		runs := runsOf(deployment{name: "rr", programsPerHour: 361}, deployment{name: "kv", programsPerHour: 412})
		for _, r := range runs {
			r.KV.OutputBlocks, r.Approximations = test.blocks, test.approximations
		}
		got := Judge(runs, test.given)
		if want := "kv completes the most programs per hour: 412, 14% more than rr." + test.want; got.Text != want || !got.Trusted {
			t.Errorf("%s: got %s (trusted %v)\nwant %s", test.name, got.Text, got.Trusted, want)
		}
	}
}

func TestJudgeFailedRuns(t *testing.T) {
	failed := &Run{Name: "big", Status: RunFailed, Error: "out of memory"}
	kv := deployment{name: "kv", programsPerHour: 412}.run()
	cut := deployment{name: "rr", programsPerHour: 900}.run()
	cut.Status = RunInterrupted
	got := Judge([]*Run{failed, kv, cut}, Evidence{})
	if want := []string{"big failed: out of memory", "rr was interrupted"}; got.Trusted || !slices.Equal(got.Reasons, want) || got.Winner != "kv" {
		t.Errorf("trusted %v, winner %q, reasons %q, want %q", got.Trusted, got.Winner, got.Reasons, want)
	}
	if got := Judge(nil, Evidence{}); got.Trusted {
		t.Errorf("no runs, but trusted: %+v", got)
	}
	got = Judge([]*Run{failed, failed}, Evidence{})
	if want := "Not to be trusted: every row failed: out of memory; no run completed anything."; got.Text != want {
		t.Errorf("got %s\nwant %s", got.Text, want)
	}
}

// A verdict stays readable when many rows fail in different ways; Reasons tells of all.
func TestJudgeManyFaults(t *testing.T) {
	runs := runsOf(deployment{name: "good", programsPerHour: 361})
	for i := range 7 {
		runs = append(runs, deployment{name: fmt.Sprint("bad", i), programsPerHour: 361, rejected: int64(i + 1)}.run())
	}
	got := Judge(runs, Evidence{})
	want := "good is the only row that completed all its requests: 361 programs per hour. Left out of the comparison: bad0 rejected 1 of 412 requests; " +
		"bad1 rejected 2 of 412 requests; bad2 rejected 3 of 412 requests; and 4 more reasons."
	if got.Text != want || len(got.Reasons) != 7 {
		t.Errorf("got %s (%d reasons)\nwant %s (7 reasons)", got.Text, len(got.Reasons), want)
	}
}

// Reasons that several requests share are told once, with the count of each.
func TestDescribeLoss(t *testing.T) {
	for _, test := range []struct {
		lost     Requests
		programs ProgramMeasures
		want     string
	}{
		{Requests{Total: 1, Rejected: 1}, ProgramMeasures{}, "rejected 1 of 1 request"},
		{Requests{Total: 33, Failed: 2}, ProgramMeasures{}, "failed 2 of 33 requests"},
		{Requests{Total: 33, Unfinished: 2}, ProgramMeasures{}, "left 2 of 33 requests unfinished"},
		{Requests{Total: 33, Rejected: 2, Failed: 3, Unfinished: 4}, ProgramMeasures{}, "rejected 2 of 33 requests, failed 3 and left 4 unfinished"},
		{
			Requests{Total: 33, Rejected: 7, Failed: 3, Rejections: []Loss{{4, "too long"}, {2, "too\nbig"}}},
			ProgramMeasures{},
			"rejected 4 of 33 requests: too long; rejected 2: too big; rejected 1; failed 3",
		},
		{Requests{Total: 33, Failed: 2}, ProgramMeasures{Total: 5, Completed: 3}, "failed 2 of 33 requests and completed 3 of 5 programs"},
		{Requests{Total: 33, Failed: 2}, ProgramMeasures{Total: 33, Completed: 31}, "failed 2 of 33 requests"},
	} {
		if got := test.lost.describe(test.programs); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// Requests that are under way when the measured window closes are no fault; refused ones outside of it are.
func TestIncompleteOutsideOfTheWindow(t *testing.T) {
	run := deployment{name: "kv", programsPerHour: 412}.run()
	run.Whole = &Measures{Requests: Requests{Total: 500, Completed: 480, Unfinished: 20}}
	if got := Judge([]*Run{run}, Evidence{}); !got.Trusted {
		t.Errorf("not trusted because of %q", got.Reasons)
	}
	run.Whole.Requests = Requests{Total: 500, Completed: 480, Rejected: 20}
	if got := Judge([]*Run{run}, Evidence{}); got.Trusted {
		t.Errorf("trusted although 20 requests were rejected: %+v", got)
	}
}

func TestPrimary(t *testing.T) {
	run := deployment{name: "kv", programsPerHour: 412, requestsPerS: 1}.run()
	none := deployment{name: "slow"}.run()
	none.Throughput.TurnsPerMin = Known(3)
	refused := deployment{name: "refused", rejected: 3}.run()
	for _, test := range []struct {
		runs []*Run
		want string
	}{
		{[]*Run{run}, "programs per hour"},
		{[]*Run{run, none}, "turns per minute"},     // programs are too long to complete any
		{[]*Run{run, refused}, "programs per hour"}, // who cannot win has no say
		{[]*Run{{Status: RunDone, Workload: Workload{Programs: 3, Turns: 3}}}, "requests per second"},
	} {
		if got := Primary(test.runs, false).Name; got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}

func TestBaseline(t *testing.T) {
	good := deployment{name: "good", programsPerHour: 361}.run()
	better := deployment{name: "better", programsPerHour: 412}.run()
	refused := deployment{name: "refused", programsPerHour: 900, rejected: 3}.run()
	failed := &Run{Name: "failed", Status: RunFailed}
	for _, test := range []struct {
		runs     []*Run
		baseline int
	}{
		{[]*Run{good, better}, 0},
		{[]*Run{refused, good, better}, 1},
		{[]*Run{failed, refused}, 1}, // nothing is complete
		{[]*Run{failed, failed}, 0},  // nothing at all
		{[]*Run{failed, good}, 1},
		{[]*Run{refused, refused}, 0},
	} {
		if got := Baseline(test.runs); got != test.baseline {
			t.Errorf("the baseline of %s is run %d, want %d", names(test.runs), got, test.baseline)
		}
	}
}
