package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

const ms = time.Millisecond

// fixed is a deployment with constant step times (10 ms with prefill, 5 ms with decodes, 15 ms with both), no request
// overheads, and blocks of 4 tokens.
func fixed() Deployment {
	d := Default()
	d.Name, d.Model = "test", "qwen3-14b"
	d.Engine.BlockSize, d.Engine.KVBlocks = 4, "1001" // one is the null block
	d.Engine.Version = "0.13"                         // the last that takes an arrival into the very next step
	d.Router.Policy = "round-robin"
	d.Load.Mode = "closed"
	d.Cost = Cost{Profile: "fixed", Prefill: 10 * ms, Decode: 5 * ms}
	return d
}

// session makes a session of turns; each turn's chain counts up from base, one hash for a block of 4 tokens.
func session(id string, base uint64, turns ...trace.Turn) *trace.Session {
	s := &trace.Session{ID: id}
	for i := range turns {
		t := turns[i]
		t.ID = fmt.Sprintf("%s-%d", id, i)
		t.TTFT, t.Cached, t.Reasoning = trace.NoTime, trace.Unknown, trace.Unknown
		for b := range (t.Input + 3) / 4 {
			t.Hashes = append(t.Hashes, base+uint64(b))
		}
		s.Turns = append(s.Turns, &t)
	}
	return s
}

func compile(t *testing.T, sessions ...*trace.Session) *trace.Workload {
	t.Helper()
	c := &trace.Capture{Format: "test", BlockSize: 4, Resolution: ms, SharedClock: true, Sessions: sessions}
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustRun(t *testing.T, w *trace.Workload, d Deployment) *Result {
	t.Helper()
	res := simulate(t, w, d, Options{Check: true})
	if err := report.CheckRequests(res.Requests); err != nil {
		t.Fatal(err)
	}
	return res
}

func simulate(t *testing.T, w *trace.Workload, d Deployment, o Options) *Result {
	t.Helper()
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	res, err := Run(context.Background(), w, p, o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// times lists what a client saw of each request: arrival, first token, end.
func times(res *Result) [][3]time.Duration {
	var all [][3]time.Duration
	for _, q := range res.Requests {
		all = append(all, [3]time.Duration{q.Arrival, q.FirstToken, q.End})
	}
	return all
}

// Two requests on one worker, worked out by hand:
//
//	 0 ms  A (8 tokens, 3 out) arrives and is alone: a prefill step of 10 ms
//	 4 ms  B (6 tokens, 2 out) arrives and waits for the step
//	10 ms  A's first token. Step: A decodes, B prefills: 10 + 5 = 15 ms
//	25 ms  A's second token, B's first. Step: both decode: 5 ms
//	30 ms  A's third token and B's second: both end
func TestTwoRequestsByHand(t *testing.T) {
	w := compile(t,
		session("a", 100, trace.Turn{Input: 8, Output: 3, Start: 0, End: 30 * ms}),
		session("b", 200, trace.Turn{Input: 6, Output: 2, Start: 4 * ms, End: 30 * ms}))
	got := times(mustRun(t, w, fixed()))
	want := [][3]time.Duration{{0, 10 * ms, 30 * ms}, {4 * ms, 25 * ms, 30 * ms}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Scheduled ahead, the step from 10 to 15 ms is scheduled at 0: b is in the next one, which takes 10 ms for its prompt
// and 5 ms for a's last token.
func TestAsyncSchedulingByHand(t *testing.T) {
	w := compile(t,
		session("a", 100, trace.Turn{Input: 8, Output: 3, Start: 0, End: 30 * ms}),
		session("b", 200, trace.Turn{Input: 6, Output: 2, Start: 4 * ms, End: 30 * ms}))
	d := fixed()
	d.Engine.AsyncScheduling = "true"
	want := [][3]time.Duration{{0, 10 * ms, 30 * ms}, {4 * ms, 30 * ms, 35 * ms}}
	if d := cmp.Diff(want, times(mustRun(t, w, d))); d != "" {
		t.Error(d)
	}
}

// An arrival at the very end of a step joins the next one.
func TestArrivalAtStepEnd(t *testing.T) {
	w := compile(t,
		session("a", 100, trace.Turn{Input: 8, Output: 2, Start: 0, End: 30 * ms}),
		session("b", 200, trace.Turn{Input: 6, Output: 1, Start: 10 * ms, End: 30 * ms}))
	got := times(mustRun(t, w, fixed()))
	want := [][3]time.Duration{{0, 10 * ms, 25 * ms}, {10 * ms, 25 * ms, 25 * ms}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The profile of a real GPU, with its request overheads. One request of 512 tokens and 2 outputs on Qwen3-14B:
// the step times are those of the cost model, which has its own hand-computed tests; here the clock adds up:
//
//	routed      = a0 + 512·a_tok
//	first token = routed + prefill step + a_out
//	end         = routed + prefill step + decode step + 2·a_out
func TestClockAddsOverheads(t *testing.T) {
	d := fixed()
	d.Cost = Cost{Profile: "h100-vllm"}
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	w := compile(t, session("a", 100, trace.Turn{Input: 512, Output: 2, Start: 0, End: time.Second}))
	res := mustRun(t, w, d)
	q := res.Requests[0]
	routed := p.Cost.RequestDelay(512)
	if want := 6648*time.Microsecond + 512*350; routed != want {
		t.Errorf("routed after %v, want 6.648 ms + 512 · 0.35 µs = %v", routed, want)
	}
	stats := res.Engines[0]
	if want := routed + stats.Busy + 2*p.Cost.TokenDelay(); q.End != want || q.Admitted != routed || stats.Steps != 2 {
		t.Errorf("admitted at %v and ended at %v after %d steps, want %v and %v after 2", q.Admitted, q.End, stats.Steps, routed, want)
	}
}

// A session's second turn waits for the first to end and for the recorded gap (a tool, 100 ms), and hits what prompt
// and output left: 8 + 6 − 1 = 13 tokens are computed, 3 full blocks of 4 are cached.
func TestClosedLoopReusesOutput(t *testing.T) {
	turns := []trace.Turn{
		{Input: 8, Output: 6, Start: 0, End: 50 * ms},
		{Input: 20, Output: 1, Start: 150 * ms, End: 200 * ms, Trigger: "tool_result"},
	}
	for _, test := range []struct {
		outputs trace.Outputs
		name    string
		hit     int32
	}{{trace.OutputsInferred, "inferred", 12}, {trace.OutputsNone, "none", 8}} {
		t.Run(test.name, func(t *testing.T) {
			c := &trace.Capture{BlockSize: 4, Resolution: ms, SharedClock: true, Sessions: []*trace.Session{session("a", 100, turns...)}}
			if err := c.Link(); err != nil {
				t.Fatal(err)
			}
			w, err := c.Compile(test.outputs)
			if err != nil {
				t.Fatal(err)
			}
			res := mustRun(t, w, fixed())
			// 10 ms prefill and 5 decodes of 5 ms; then the gap.
			want := [][3]time.Duration{{0, 10 * ms, 35 * ms}, {135 * ms, 145 * ms, 145 * ms}}
			if d := cmp.Diff(want, times(res)); d != "" {
				t.Error(d)
			}
			if got := res.Requests[1].Hit; got != test.hit {
				t.Errorf("turn 2 hit %d tokens, want %d", got, test.hit)
			}
			if p := res.Programs[0]; p.Tool != 100*ms || p.First != 0 || p.Last != 145*ms || !p.Completed {
				t.Errorf("program %+v", p)
			}
		})
	}
}

// How the arrival modes, speed and gap limits move the second turn of the session above.
func TestArrivals(t *testing.T) {
	build := func(trigger string) []*trace.Session {
		return []*trace.Session{session("a", 100,
			trace.Turn{Input: 8, Output: 6, Start: 0, End: 50 * ms},
			trace.Turn{Input: 20, Output: 1, Start: 150 * ms, End: 200 * ms, Trigger: trigger})}
	}
	for _, test := range []struct {
		name    string
		trigger string
		change  func(*Deployment)
		want    time.Duration
	}{
		{"closed", "tool_result", func(d *Deployment) {}, 135 * ms},
		{"recorded start is later", "tool_result", func(d *Deployment) { d.Load.Mode = "recorded" }, 150 * ms},
		{"speed 2", "tool_result", func(d *Deployment) { d.Load.Speed = 2 }, 85 * ms},
		{"max gap", "tool_result", func(d *Deployment) { d.Load.MaxGap = "20ms" }, 55 * ms},
		{"max gap after speed", "tool_result", func(d *Deployment) { d.Load.Speed, d.Load.MaxGap = 2, "60ms" }, 85 * ms},
		{"human gap dropped", "user_message", func(d *Deployment) { d.Load.HumanGap = "drop" }, 35 * ms},
		{"human gap capped", "user_message", func(d *Deployment) { d.Load.HumanGap = "cap=30ms" }, 65 * ms},
		{"tools are no humans", "tool_result", func(d *Deployment) { d.Load.HumanGap = "drop" }, 135 * ms},
		{"concurrency", "tool_result", func(d *Deployment) { d.Load.Mode, d.Load.Concurrency = "concurrency", 1 }, 135 * ms},
		{"recorded start is past: no gap", "tool_result", func(d *Deployment) { d.Load.Mode, d.Load.Speed = "recorded", 6 }, 35 * ms},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := fixed()
			test.change(&d)
			res := mustRun(t, compile(t, build(test.trigger)...), d)
			if got := res.Requests[1].Arrival; got != test.want {
				t.Errorf("turn 2 arrives at %v, want %v", got, test.want)
			}
		})
	}
}

// With one slot programs follow each other, and a repeated program finds nothing of its first run in the cache but
// what another program shares.
func TestConcurrencyRecyclesPrograms(t *testing.T) {
	shared := func(id string, tail uint64) *trace.Session { // 8 shared tokens, then 8 of its own
		s := session(id, 100, trace.Turn{Input: 16, Output: 1, Start: 0, End: 10 * ms})
		s.Turns[0].Hashes = []uint64{1, 2, tail, tail + 1}
		return s
	}
	d := fixed()
	d.Load.Mode, d.Load.Concurrency, d.Load.Programs = "concurrency", 1, 4
	res := mustRun(t, compile(t, shared("a", 10), shared("b", 20)), d)
	var hits []int32
	for i, q := range res.Requests {
		hits = append(hits, q.Hit)
		if q.Arrival != time.Duration(i)*10*ms || q.Copy != uint32(i/2) {
			t.Errorf("request %d of copy %d arrives at %v", i, q.Copy, q.Arrival)
		}
	}
	if d := cmp.Diff([]int32{0, 8, 8, 8}, hits); d != "" {
		t.Error("hits:", d)
	}
}

// A ramp opens the slots one after another.
func TestRamp(t *testing.T) {
	d := fixed()
	d.Load.Mode, d.Load.Concurrency, d.Load.Programs, d.Load.Ramp = "concurrency", 4, 4, 60*ms
	res := mustRun(t, compile(t, session("a", 100, trace.Turn{Input: 8, Output: 30, Start: 0, End: 10 * ms})), d)
	for i, want := range []time.Duration{0, 15 * ms, 30 * ms, 45 * ms} {
		if p := res.Programs[i]; p.First != want {
			t.Errorf("program %d begins at %v, want %v", i, p.First, want)
		}
	}
}

// A history from before the capture is resident where the session first runs; without warm start it is a miss.
func TestWarmStart(t *testing.T) {
	for _, warm := range []bool{true, false} {
		s := session("a", 100, trace.Turn{Input: 16, Output: 1, Start: 0, End: 10 * ms, Trigger: "tool_result"})
		s.Turns[0].Cached = 12 // ignored by session, set here
		d := fixed()
		d.Workload.WarmStart = warm
		q := mustRun(t, compile(t, s), d).Requests[0]
		want := int32(0)
		if warm {
			want = 12
		}
		if q.Hit != want || q.Warm != want || q.Computed != 16-want {
			t.Errorf("warm start %v: hit %d, of it warm %d, computed %d; want hit %d", warm, q.Hit, q.Warm, q.Computed, want)
		}
	}
}

// A client that gives up frees the engine for the next request, and a retry goes on with the same record.
func TestTimeouts(t *testing.T) {
	turn := trace.Turn{Input: 8, Output: 100, Start: 0, End: time.Second} // 10 + 99·5 = 505 ms
	d := fixed()
	d.Engine.MaxNumSeqs = 1
	d.Client.Timeout = 300 * ms
	b := session("b", 200, trace.Turn{Input: 8, Output: 2, Start: 20 * ms, End: time.Second})
	res := mustRun(t, compile(t, session("a", 100, turn), b), d)
	a, q := res.Requests[0], res.Requests[1]
	if a.Status != report.Failed || a.End != 300*ms {
		t.Errorf("the long request ended %v at %v, want failed at 300 ms", a.Status, a.End)
	}
	if q.Status != report.Completed || q.Admitted != 300*ms || q.End != 315*ms {
		t.Errorf("the waiting one was admitted at %v and ended %v at %v, want completed from 300 to 315 ms", q.Admitted, q.Status, q.End)
	}
	d.Client.Retries = 2
	res = mustRun(t, compile(t, session("a", 100, turn)), d)
	if q := res.Requests[0]; len(res.Requests) != 1 || q.Retries != 2 || q.Status != report.Failed || q.Arrival != 0 || q.End != 900*ms {
		t.Errorf("after two retries: %+v", res.Requests)
	}
}

// What cannot be served is rejected and counted, and the program goes on with its next turn.
func TestRejection(t *testing.T) {
	d := fixed()
	d.Engine.MaxModelLen = 30
	res := mustRun(t, compile(t, session("a", 100,
		trace.Turn{Input: 40, Output: 1, Start: 0, End: 10 * ms},
		trace.Turn{Input: 8, Output: 1, Start: 20 * ms, End: 30 * ms})), d)
	if a, b := res.Requests[0], res.Requests[1]; a.Status != report.Rejected || b.Status != report.Completed {
		t.Errorf("statuses %v and %v, want rejected and completed", a.Status, b.Status)
	}
	if res.Programs[0].Completed {
		t.Error("a program with a rejected call counts as completed")
	}
}

// Calls to models that the deployment does not serve take no time when dropped, and their recorded time when folded.
func TestOtherModels(t *testing.T) {
	for _, test := range []struct {
		what string
		want time.Duration
	}{{"serve", 10 * ms}, {"drop", 0}, {"fold", 50 * ms}} {
		d := fixed()
		d.Models = map[string]string{"*small*": test.what}
		res := mustRun(t, compile(t, session("a", 100,
			trace.Turn{Model: "org/small-1", Input: 8, Output: 1, Start: 0, End: 50 * ms},
			trace.Turn{Model: "big", Input: 12, Output: 1, Start: 50 * ms, End: 80 * ms})), d)
		if last := res.Requests[len(res.Requests)-1]; last.Arrival != test.want {
			t.Errorf("%s: the next turn arrives at %v, want %v", test.what, last.Arrival, test.want)
		}
	}
}

// A measured window: nothing is sent after it, what was sent ends, and programs that were cut are not completed.
func TestDuration(t *testing.T) {
	w := agents(t, synth.Options{Programs: 20, Seed: 3})
	for _, start := range []string{"ramp", "snapshot"} {
		d := fixed()
		d.Engine.KVBlocks = "100000"
		d.Load.Mode, d.Load.Concurrency, d.Load.Start, d.Load.Programs = "concurrency", 8, start, 1000
		d.Load.Warmup, d.Load.Duration = 20*time.Second, 60*time.Second
		res := mustRun(t, w, d)
		for _, q := range res.Requests {
			if q.Arrival >= 80*time.Second || q.End == report.None {
				t.Fatalf("%s: request %d arrived at %v and ended %v", start, q.Turn, q.Arrival, q.Status)
			}
		}
		run := res.Report(nil, nil)
		if err := run.Check(); err != nil {
			t.Errorf("%s: %v", start, err)
		}
		if run.DurationS.Value != 60 || res.Uncalled != 8 {
			t.Errorf("%s: measured %v s, want 60; %d programs were cut, want 8", start, run.DurationS.Value, res.Uncalled)
		}
	}
}

// Without KV pressure, alone on one worker, a program takes its solo time.
func TestSoloIsTheLowerBound(t *testing.T) {
	w := agents(t, synth.Options{Programs: 6, Seed: 5, Set: []string{"turns=8"}})
	d := Default()
	d.Model, d.Load.Mode, d.Load.Concurrency = "llama-3.1-8b", "concurrency", 6
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	solo, err := Solo(context.Background(), w, p, Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, pr := range mustRun(t, w, d).Programs {
		alone := solo[pr.Index]
		if together := pr.Last - pr.First; alone <= 0 || together < alone {
			t.Errorf("program %d takes %v among six and %v alone", pr.Index, together, alone)
		}
	}
}

// A program alone has slowdown 1 in every arrival mode: recorded starts hold it back alone as well.
func TestSoloInRecordedMode(t *testing.T) {
	w := compile(t, session("a", 100,
		trace.Turn{Input: 8, Output: 6, Start: 0, End: 50 * ms},
		trace.Turn{Input: 20, Output: 1, Start: 150 * ms, End: 200 * ms}))
	for mode, want := range map[string]time.Duration{"closed": 145 * ms, "recorded": 160 * ms} {
		d := fixed()
		d.Load.Mode = mode
		p, err := d.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		solo, err := Solo(context.Background(), w, p, Options{Check: true})
		if err != nil {
			t.Fatal(err)
		}
		pr := mustRun(t, w, d).Programs[0]
		if together := pr.Last - pr.First; together != want || solo[0] != want {
			t.Errorf("%s: the program takes %v and %v alone, want %v", mode, together, solo[0], want)
		}
	}
}

// A gap of 60 ms of tools and 40 ms of people, as each limit leaves it to them.
func TestWhoTakesTheGap(t *testing.T) {
	for _, test := range []struct {
		humanGap, maxGap string
		tool, human      time.Duration
	}{
		{"recorded", "none", 60 * ms, 40 * ms},
		{"drop", "none", 60 * ms, 0},
		{"cap=20ms", "none", 60 * ms, 20 * ms},
		{"recorded", "50ms", 30 * ms, 20 * ms}, // half of both
	} {
		s := session("a", 100,
			trace.Turn{Input: 8, Output: 6, Start: 0, End: 50 * ms},
			trace.Turn{Input: 20, Output: 1, Start: 150 * ms, End: 200 * ms, Trigger: "user_message"})
		s.Tools = []trace.ToolSpan{{Start: 50 * ms, End: 110 * ms}}
		d := fixed()
		d.Load.HumanGap, d.Load.MaxGap = test.humanGap, test.maxGap
		if pr := mustRun(t, compile(t, s), d).Programs[0]; pr.Tool != test.tool || pr.Human != test.human {
			t.Errorf("human gap %s, max gap %s: %v of tools and %v of people, want %v and %v",
				test.humanGap, test.maxGap, pr.Tool, pr.Human, test.tool, test.human)
		}
	}
}

// Programs that a snapshot begins in their midst are counted, but their makespans are not those of whole programs; and
// the copies of one program do not all begin at the same turn.
func TestSnapshot(t *testing.T) {
	var turns []trace.Turn
	for i := range 8 {
		start := time.Duration(i) * 100 * ms
		turns = append(turns, trace.Turn{Input: int32(8 + 8*i), Output: 1, Start: start, End: start + 50*ms})
	}
	d := fixed()
	d.Load = Load{Mode: "concurrency", Concurrency: 16, Programs: 16, Speed: 1, Start: "snapshot"}
	res := mustRun(t, compile(t, session("a", 100, turns...)), d)
	firsts := map[int32]bool{} // turns with which copies begin
	for i, q := range res.Requests[:16] {
		if q.Copy != uint32(i) || q.Arrival != 0 {
			t.Fatalf("request %d is of copy %d and arrives at %v, want the first of each copy at 0", i, q.Copy, q.Arrival)
		}
		firsts[q.Turn] = true
	}
	whole := int64(0)
	for _, pr := range res.Programs {
		if !pr.Partial {
			whole++
		}
	}
	m := res.Report(nil, nil).Programs
	if len(firsts) < 3 || whole == 0 || m.Completed != 16 || m.MakespanS.Count != whole {
		t.Errorf("%d first turns, %d programs completed, %d of them whole with %d makespans; want several, 16 and equal numbers",
			len(firsts), m.Completed, whole, m.MakespanS.Count)
	}
}

// A load that recycles programs for a given time ends with an error when nothing of a whole round can be served; it
// would go on without the clock.
func TestNothingToServe(t *testing.T) {
	d := fixed()
	d.Engine.MaxModelLen = 30
	d.Load.Mode, d.Load.Concurrency, d.Load.Duration = "concurrency", 2, time.Minute
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	long := trace.Turn{Input: 40, Output: 1, Start: 0, End: 10 * ms}
	_, err = Run(context.Background(), compile(t, session("a", 100, long), session("b", 200, long)), p, Options{})
	if err == nil || !strings.Contains(err.Error(), "the last 5 programs ended without a call") {
		t.Errorf("the error is %v", err)
	}
	short := trace.Turn{Input: 8, Output: 1, Start: 0, End: 10 * ms}
	res := mustRun(t, compile(t, session("a", 100, long), session("b", 200, short)), d)
	if res.TooLong.Calls < 6000 || len(res.Requests) < 12000 { // rounds of 10 ms, two programs at a time
		t.Errorf("%d calls, %d of them rejected", len(res.Requests), res.TooLong.Calls)
	}
}

// One call: a prefill of 10 ms, then 99 decodes of 5 ms. Of them 20 steps lie in the window from 100 to 200 ms, and
// the same number in one whose borders, 2 ms later, are inside steps. It holds 2 blocks of 4 tokens at 10 ms and one
// more from the steps that begin at 10, 30, 50 ms, so 7 blocks from 90, 8 from 110, and 12 from 190 ms on.
func TestWindowOfEngines(t *testing.T) {
	w := compile(t, session("a", 100, trace.Turn{Input: 8, Output: 100, Start: 0, End: time.Second}))
	for _, warmup := range []time.Duration{100 * ms, 102 * ms} {
		d := fixed()
		d.Load.Warmup, d.Load.Duration = warmup, 100*ms
		res := mustRun(t, w, d)
		s := res.Engines[0]
		if s.Steps != 20 || s.DecodeTokens != 20 || s.PrefillTokens != 0 || s.Busy != 100*ms || s.PeakUsed != 12 {
			t.Errorf("window from %v: %+v", warmup, s)
		}
		run := res.Report(nil, nil)
		if n := run.LatencyMs.ITL.Count; n != 20 {
			t.Errorf("window from %v: %d gaps between tokens, want 20", warmup, n)
		}
		// Means of trapezoids from border to border: 7 or 8 blocks at first, 12 at last.
		if mean := run.KV.MeanUtilization.Value * 1000; mean < 9 || mean > 11 {
			t.Errorf("window from %v: %.3f blocks in use on average, want about 10", warmup, mean)
		}
	}
}
