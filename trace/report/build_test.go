package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (make it with go test -update)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s (go test -update rewrites it); got:\n%s", path, got)
	}
}

const ms = time.Millisecond

// smallInput is two programs and six requests, small enough to compute every figure by hand.
//
//	program 0: turns 0, 1 completed; makespan 0 to 3000 ms
//	program 1: turns 2 completed, 3 completed without output, 4 rejected, 5 failed
func smallInput() Input {
	gaps := new(Gaps)
	gaps.Add(10*ms, 90)
	gaps.Add(30*ms, 10)
	return Input{
		Name:     "kv-2x",
		Axes:     []Axis{{"router.policy", "kv"}},
		GPUs:     2,
		Config:   json.RawMessage(`{"router":{"policy":"kv"},"workers":2}`),
		Workload: Workload{Programs: 2, Sessions: 2, Turns: 6, InputTokens: 7000, OutputTokens: 204, Inferred: map[string]int64{"gap": 1}},
		Requests: []Request{
			{Turn: 0, Program: 0, Status: Completed, Arrival: 0, Admitted: 10 * ms, FirstToken: 100 * ms, End: 1090 * ms,
				Input: 1000, Output: 100, Hit: 0, Computed: 1000},
			{Turn: 1, Program: 0, Status: Completed, Arrival: 2000 * ms, Admitted: 2000 * ms, FirstToken: 2050 * ms, End: 3000 * ms,
				Input: 2000, Output: 96, Hit: 1600, Computed: 700, RecomputedPreemption: 300, ReadmitHit: 1600, Readmit: 2000, Preemptions: 1},
			{Turn: 2, Program: 1, Status: Completed, Arrival: 500 * ms, Admitted: 700 * ms, FirstToken: 900 * ms, End: 900 * ms,
				Input: 1000, Output: 1, Hit: 400, Warm: 400, Computed: 600},
			{Turn: 3, Program: 1, Status: Completed, Arrival: 1000 * ms, Admitted: 1000 * ms, FirstToken: None, End: 1200 * ms,
				Input: 1000, Output: 0, Hit: 1000, Computed: 1, RecomputedEviction: 1},
			{Turn: 4, Program: 1, Status: Rejected, Arrival: 1200 * ms, Admitted: None, FirstToken: None, End: 1200 * ms,
				Input: 1000, Output: 3},
			{Turn: 5, Program: 1, Status: Failed, Arrival: 1200 * ms, Admitted: None, FirstToken: None, End: 4000 * ms,
				Input: 1000, Output: 4},
		},
		Rejections: []Loss{{1, "prompts are up to 1000 tokens long, the KV cache holds 900 (engine.kv_blocks)"}},
		Programs: []Program{
			{Index: 0, First: 0, Last: 3000 * ms, Completed: true, Model: 2090 * ms, Tool: 910 * ms, Paused: None, Queued: 10 * ms, Solo: 1500 * ms},
			{Index: 1, First: 500 * ms, Last: 4000 * ms, Model: 600 * ms},
		},
		Gaps: gaps,
		Workers: []Worker{
			{ID: 0, Requests: Known(2), BusyS: Seconds(1940 * ms), Steps: Known(200), PrefillTokens: Known(1700),
				DecodeTokens: Known(194), HitTokens: Known(1600), Preemptions: Known(1), PeakUtilization: Known(0.5)},
			{ID: 1, Requests: Known(2), BusyS: Seconds(400 * ms), Steps: Known(2), PrefillTokens: Known(601),
				DecodeTokens: Known(0), HitTokens: Known(1400), Preemptions: Known(0), PeakUtilization: Known(0.25)},
		},
		KV: KV{
			CapacityTokens: Known(20000), ReprefillTimeShare: Known(0.125), EvictedBlocks: Known(1),
			PeakUtilization: Known(0.5), OutputBlocks: &OutputBlocks{Known: 6, Inferred: 4, Unknown: 2},
		},
		SLO:            SLO{TTFT: 150 * ms, ITL: 20 * ms, Program: 3 * time.Second},
		Approximations: []string{"window layers are a constant per request"},
	}
}

func smallReport() *Report {
	runs := []*Run{Build(smallInput())}
	verdict := Judge(runs, Evidence{LostRows: 1})
	return &Report{
		Version: "v0.1.0",
		Trace:   &Trace{Format: "dynamo", Files: []string{"day.jsonl"}, Calls: 6, RowsLost: 1, Duplicates: 0},
		Runs:    runs,
		Verdict: &verdict,
	}
}

// The golden file shows a whole report; the figures that matter are checked by hand in TestBuildSmall.
func TestReportGolden(t *testing.T) {
	var buf bytes.Buffer
	if err := Write(&buf, smallReport()); err != nil {
		t.Fatal(err)
	}
	golden(t, "small.report.json", buf.Bytes())

	rep, err := Read(bytes.NewReader(buf.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := Write(&again, rep); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Bytes(), again.Bytes()) {
		t.Errorf("written, read and written again it differs:\n%s", again.Bytes())
	}
}

type figureTest struct {
	name string
	got  Figure
	want float64
}

func checkFigures(t *testing.T, tests []figureTest) {
	t.Helper()
	for _, test := range tests {
		if !test.got.Known || math.Abs(test.got.Value-test.want) > 1e-9*max(1, math.Abs(test.want)) {
			t.Errorf("%s = %+v, want %v", test.name, test.got, test.want)
		}
	}
}

func TestBuildSmall(t *testing.T) {
	run := Build(smallInput())
	if want := (Requests{Total: 6, Completed: 4, Rejected: 1, Failed: 1, Rejections: smallInput().Rejections}); !reflect.DeepEqual(run.Requests, want) {
		t.Errorf("requests %+v, want %+v", run.Requests, want)
	}
	l := run.LatencyMs
	// TTFTs are 100, 50 and 400 ms; turn 3 has no token.
	// TPOTs are (1090−100)/99 = 10 ms and (3000−2050)/95 = 10 ms; a single token has none.
	for name, counts := range map[string][2]int64{
		"ttft": {l.TTFT.Count, 3}, "tpot": {l.TPOT.Count, 2}, "e2e": {l.E2E.Count, 4}, "queue": {l.Queue.Count, 4},
		"itl": {l.ITL.Count, 100}, "makespan": {run.Programs.MakespanS.Count, 1}, "paused": {run.Programs.PausedS.Count, 0},
	} {
		if counts[0] != counts[1] {
			t.Errorf("%d values of %s, want %d", counts[0], name, counts[1])
		}
	}
	checkFigures(t, []figureTest{
		{"ttft.mean", l.TTFT.Mean, 550.0 / 3},
		{"ttft.p50", l.TTFT.P50, 100},
		{"ttft.p90", l.TTFT.P90, 340}, // rank 1.8: 100 + 0.8·300
		{"tpot.min", l.TPOT.Min, 10},
		{"tpot.max", l.TPOT.Max, 10},
		{"itl.mean", l.ITL.Mean, 12}, // (90·10 + 10·30)/100
		{"itl.max", l.ITL.Max, 30},
		{"e2e.mean", l.E2E.Mean, (1090.0 + 1000 + 400 + 200) / 4},
		{"queue.mean", l.Queue.Mean, 210.0 / 4},
		{"queue.min", l.Queue.Min, 0},
		{"duration_s", run.DurationS, 4}, // to the end of the failed request
		{"requests_per_s", run.Throughput.RequestsPerS, 1},
		{"turns_per_min", run.Throughput.TurnsPerMin, 60},
		{"output_tokens_per_s", run.Throughput.OutputTokensPerS, 197.0 / 4},
		{"output_tokens_per_s_per_gpu", run.Throughput.OutputTokensPerSPerGPU, 197.0 / 8}, // 2 GPUs
		{"input_tokens_per_s", run.Throughput.InputTokensPerS, 5000.0 / 4},
		{"programs_per_hour", run.Throughput.ProgramsPerHour, 900},                    // 1 in 4 s
		{"goodput_requests_per_s", run.Throughput.GoodputRequestsPerS, 0.75},          // turn 2 was late
		{"goodput_programs_per_hour", run.Throughput.GoodputProgramsPerHour, 900},     // 3 s are within 3 s
		{"slowdown", run.Programs.Slowdown.P50, 2},                                    // 3000/1500
		{"fairness", run.Programs.Fairness, 1},                                        // one program
		{"tool_s", run.Programs.ToolS.Mean, 0.91},                                     //
		{"human_s", run.Programs.HumanS.Mean, 0},                                      // a true 0
		{"kv.prompt_tokens", run.KV.PromptTokens, 5000},                               // the admitted ones
		{"kv.hit_tokens", run.KV.HitTokens, 3000},                                     // 0 + 1600 + 400 + 1000
		{"kv.hit_rate", run.KV.HitRate, 0.6},                                          //
		{"kv.readmission_hit_rate", run.KV.ReadmissionHitRate, 0.8},                   //
		{"kv.warm_tokens", run.KV.WarmTokens, 400},                                    //
		{"kv.computed_tokens", run.KV.ComputedTokens, 2301},                           //
		{"kv.recomputed.eviction", run.KV.Recomputed.Eviction, 1},                     //
		{"kv.recomputed.preemption", run.KV.Recomputed.Preemption, 300},               //
		{"kv.recomputed.migration", run.KV.Recomputed.Migration, 0},                   //
		{"preemptions", run.Preemptions, 1},                                           //
		{"aiperf ttft p25", run.Aliases.AIPerf["time_to_first_token"].P25, 75},        // rank 0.5 of 50, 100
		{"aiperf itl is our tpot", run.Aliases.AIPerf["inter_token_latency"].Avg, 10}, //
		{"aisimulate", run.Aliases.AISimulate["median_ttft_ms"], 100},                 //
		{"aiperf std", run.Aliases.AIPerf["request_latency"].Std, 380.4848880},        // of 1090, 1000, 400, 200 (mean 672.5): √144768.75
		{"aiperf cached", run.Aliases.AIPerf["overall_usage_prompt_cache_read_pct"].Avg, 60},
	})
	if run.Programs.Total != 2 || run.Programs.Completed != 1 {
		t.Errorf("%d of %d programs completed, want 1 of 2", run.Programs.Completed, run.Programs.Total)
	}
}

// Jain's index of 1/slowdown: x = 1, 1, 1/2 gives (2.5)²/(3·2.25) = 0.9259.
func TestFairness(t *testing.T) {
	checkFigures(t, []figureTest{
		{"two alike, one slow", fairness([]float64{1, 1, 2}), 6.25 / 6.75},
		{"all alike", fairness([]float64{3, 3, 3, 3}), 1},
	})
	if f := fairness(nil); f.Known {
		t.Errorf("fairness of nothing is %v", f.Value)
	}
}

// Only what arrives in [500 ms, 2000 ms) is measured, and only what ends in it is throughput.
func TestBuildWindow(t *testing.T) {
	in := smallInput()
	in.Window = Window{500 * ms, 2000 * ms}
	run := Build(in)
	if want := (Requests{Total: 4, Completed: 2, Rejected: 1, Failed: 1}); !reflect.DeepEqual(run.Requests, want) {
		t.Errorf("requests %+v, want %+v", run.Requests, want)
	}
	if run.Whole == nil || run.Whole.Requests.Total != 6 || len(run.Whole.Requests.Rejections) != 1 {
		t.Fatalf("whole run: %+v, want 6 requests and why one was rejected", run.Whole)
	}
	checkFigures(t, []figureTest{
		{"window from", run.WindowS[0], 0.5},
		{"window to", run.WindowS[1], 2},
		{"duration_s", run.DurationS, 1.5},
		{"ttft.max", run.LatencyMs.TTFT.Max, 400},
		{"ttft.min", run.LatencyMs.TTFT.Min, 400},
		{"requests_per_s", run.Throughput.RequestsPerS, 2}, // turns 0, 2 and 3 end in 1.5 s
		{"output_tokens_per_s", run.Throughput.OutputTokensPerS, 101 / 1.5},
		{"programs_per_hour", run.Throughput.ProgramsPerHour, 0},
		{"hit_rate", run.KV.HitRate, 0.7}, // 1400 of 2000
		{"whole ttft.max", run.Whole.LatencyMs.TTFT.Max, 400},
		{"whole ttft.min", run.Whole.LatencyMs.TTFT.Min, 50},
		{"whole duration_s", run.Whole.DurationS, 4},
	})
	if run.Programs.Total != 1 || run.Programs.Completed != 0 {
		t.Errorf("programs %+v, want one that did not complete", run.Programs)
	}
}

// A recording tells arrival, first token, end and cached tokens, and of some requests not even these.
func TestBuildRecorded(t *testing.T) {
	recorded := func(hit int32) Request {
		return Request{
			Status: Completed, Arrival: 0, Admitted: None, FirstToken: 100 * ms, End: 200 * ms, Input: 1000, Output: 11,
			Worker: -1, Hit: hit, Computed: -1, Held: None, RouterQueued: None,
		}
	}
	run := Build(Input{Name: "recorded", Requests: []Request{recorded(500), recorded(-1)}})
	checkFigures(t, []figureTest{
		{"ttft", run.LatencyMs.TTFT.P50, 100},
		{"tpot", run.LatencyMs.TPOT.P50, 10},
		{"hit_rate", run.KV.HitRate, 0.5}, // of the request that tells
	})
	if want := "1 of 2 requests do not tell their cached tokens and are left out of the hit rate"; !slices.Contains(run.Approximations, want) {
		t.Errorf("approximations are %q, want %q", run.Approximations, want)
	}
	for name, f := range map[string]Figure{
		"computed_tokens": run.KV.ComputedTokens, "preemptions": run.Preemptions, "recomputed": run.KV.Recomputed.Eviction,
		"queue": run.LatencyMs.Queue.Mean, "held": run.LatencyMs.Held.Mean, "itl": run.LatencyMs.ITL.Mean, "goodput": run.Throughput.GoodputRequestsPerS,
	} {
		if f.Known {
			t.Errorf("%s is %v, want it absent", name, f.Value)
		}
	}
	for _, run := range []*Run{
		Build(Input{}),
		Build(Input{Requests: []Request{{Status: Completed, Arrival: None, Admitted: None, FirstToken: None, End: None, Hit: -1, Held: None, RouterQueued: None}}}),
	} {
		if run.DurationS.Known || run.KV.HitRate.Known || run.LatencyMs != (Latency{}) || run.Throughput != (Throughput{}) {
			t.Errorf("nothing is known, but the report has %+v", run.Measures)
		}
	}
}

func TestGoodputNeedsTheTimesItBounds(t *testing.T) {
	r := Request{Status: Completed, Arrival: 0, Admitted: None, FirstToken: None, End: time.Second, Input: 10, Output: 10}
	if f := Build(Input{Requests: []Request{r}, SLO: SLO{TTFT: time.Second}}).Throughput.GoodputRequestsPerS; f.Known {
		t.Errorf("goodput is %v although no TTFT is known", f.Value)
	}
}

func TestBackwardsClocksAreReported(t *testing.T) {
	r := Request{Status: Completed, Arrival: 2 * time.Second, Admitted: None, FirstToken: None, End: time.Second, Input: 1, Output: 1}
	run := Build(Input{Requests: []Request{r}})
	if run.LatencyMs.E2E.Count != 0 || len(run.Warnings) != 1 {
		t.Errorf("e2e %+v, warnings %q, want no latency and one warning", run.LatencyMs.E2E, run.Warnings)
	}
}

func TestRequestOrderDoesNotMatter(t *testing.T) {
	in := manyRequests(5000)
	want := mustWrite(t, Build(in))
	rand.New(rand.NewPCG(7, 7)).Shuffle(len(in.Requests), func(i, j int) {
		in.Requests[i], in.Requests[j] = in.Requests[j], in.Requests[i]
	})
	if got := mustWrite(t, Build(in)); !bytes.Equal(got, want) {
		t.Error("the report depends on the order of the requests")
	}
}

func mustWrite(t *testing.T, runs ...*Run) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := Write(&buf, &Report{Runs: runs}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func manyRequests(n int) Input {
	rnd := rand.New(rand.NewPCG(5, 6))
	in := Input{Name: "many", Requests: make([]Request, n), SLO: SLO{TTFT: time.Second, ITL: 20 * ms}}
	for i := range in.Requests {
		arrival := time.Duration(rnd.Int64N(int64(time.Hour)))
		admitted := arrival + time.Duration(rnd.ExpFloat64()*1e8)
		first := admitted + time.Duration(rnd.ExpFloat64()*5e8)
		output := 1 + rnd.Int32N(1000)
		in.Requests[i] = Request{
			Turn: int32(i), Status: Completed, Arrival: arrival, Admitted: admitted, FirstToken: first,
			End: first + time.Duration(output)*time.Duration(8e6+rnd.Int64N(8e6)), Input: 20000, Output: output, Hit: 15000, Computed: 5000,
		}
	}
	return in
}

func BenchmarkBuildMillionRequests(b *testing.B) {
	in := manyRequests(1_000_000)
	b.ReportAllocs()
	for b.Loop() {
		Build(in)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"another schema": `{"schema":"agentsim.report.v9","runs":[]}`,
		"no schema":      `{}`,
		"a null run":     `{"schema":"agentsim.report.v1","runs":[null]}`,
		"a string":       `{"schema":"agentsim.report.v1","runs":[{"duration_s":"3"}]}`,
		"a torn file":    `{"schema":"agentsim.report.v1","runs":[{"na`,
	} {
		if _, err := Read(bytes.NewReader([]byte(text))); err == nil {
			t.Errorf("%s is read without an error", name)
		}
	}
}

// Whatever Read accepts can be shown, judged and written.
func FuzzRead(f *testing.F) {
	if b, err := os.ReadFile(filepath.Join("testdata", "small.report.json")); err == nil {
		f.Add(b)
	}
	f.Add([]byte(`{"schema":"agentsim.report.v1","runs":[{"name":"a\n\u001b","throughput":{"requests_per_s":-1}},{"throughput":{"requests_per_s":1e308}}]}`))
	f.Add([]byte(`{"schema":"agentsim.report.v1","runs":[{"axes":[{"key":".","value":"1"}],"gpus":-3},{"axes":[{"key":".","value":"\n"}],"requests":{"total":1,"rejected":1,"rejections":[{"count":9,"why":" "}]}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		rep, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		var buf bytes.Buffer
		if err := WriteTable(&buf, rep.Runs, TableOptions{Width: 60, Color: true}); err != nil {
			t.Errorf("table: %v", err)
		}
		Judge(rep.Runs, Evidence{FixedLoad: true})
		for _, r := range rep.Runs {
			_ = r.Check()
		}
		if err := Write(&buf, rep); err != nil {
			t.Errorf("write: %v", err)
		}
	})
}

func TestFailedRun(t *testing.T) {
	got := string(mustWrite(t, FailedRun("big", nil, errors.New("model does not fit"))))
	want := `{
  "schema": "agentsim.report.v1",
  "runs": [
    {
      "name": "big",
      "status": "failed",
      "error": "model does not fit",
      "warnings": [],
      "approximations": []
    }
  ]
}
`
	if got != want {
		t.Errorf("got %s\nwant nothing but what is known: %s", got, want)
	}
}
