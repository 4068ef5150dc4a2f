package replay_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/wire"
)

// chain is a session of turns that start every so many ms and take 1 ms.
func chain(session string, turns, every int) []turn {
	var list []turn
	for i := range turns {
		list = append(list, turn{session, "", i * every, i*every + 1, 16, 2, []uint64{uint64(len(session))<<20 + 7}})
	}
	return list
}

// answered lists the outcomes as "id kind", in order of their ids.
func answered(outcomes []*replay.Outcome) []string {
	var list []string
	for _, o := range outcomes {
		kind := client.Kind("ok")
		if o.Answer.Err != nil {
			kind = o.Answer.Err.Kind
		}
		list = append(list, fmt.Sprint(o.ID, " ", kind))
	}
	slices.Sort(list)
	return list
}

// A server whose process dies in the middle, and another in its place a while later: no hang, no lost record, and a report
// that says what happened.
func TestServerDiesAndComesBack(t *testing.T) {
	url, kill := startServer(t, "simulated", "127.0.0.1:0")
	c, err := client.New(client.Options{URLs: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var turns []turn
	for _, session := range []string{"a", "b", "c"} {
		for i := range 15 {
			turns = append(turns, turn{session, "", i * 150, i*150 + 120, 16, 6, nil})
		}
	}
	watch := replay.NewWatch(t.Context(), c, "/metrics", 20*time.Millisecond)
	back := make(chan error, 1)
	ended := 0
	result, outcomes := run(t, compile(t, turns...), newFake(t), func(s *setup) {
		s.client.URLs, s.options.Model = []string{url}, "qwen3-14b"
		s.options.Each = func(*replay.Outcome) error {
			if ended++; ended == 10 {
				go func() {
					kill()
					time.Sleep(300 * time.Millisecond)
					_, kill, err := launch("simulated", strings.TrimPrefix(url, "http://"))
					if err == nil {
						t.Cleanup(kill)
					}
					back <- err
				}()
			}
			return nil
		}
	})
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != 45 || result.Unsent() != 0 {
		t.Fatalf("%d outcomes of 45, %d unsent", len(outcomes), result.Unsent())
	}
	if result.Failed < 3 || result.Failed > 30 {
		t.Errorf("%d of 45 failed: the server was away for some of 15 turns", result.Failed)
	}
	for _, o := range outcomes {
		switch {
		case o.Answer.Err == nil:
		case o.Answer.Err.Kind != client.FailConnect && o.Answer.Err.Kind != client.FailCut:
			t.Errorf("%s: %v", o.ID, o.Answer.Err)
		case o.Final:
			t.Errorf("%s failed long after the server was back: %v", o.ID, o.Answer.Err)
		}
	}
	r := result.Report(replay.About{Servers: watch.Stop()})
	for _, want := range []string{"requests failed (", "server " + url + " was restarted"} {
		if d := strings.Join(r.Replay.Doubts, "; "); !strings.Contains(d, want) {
			t.Errorf("doubts are %q, want %q", d, want)
		}
	}
	if int64(result.Failed) != r.Requests.Failed {
		t.Errorf("%d failed in the report, want %d", r.Requests.Failed, result.Failed)
	}
}

// aiperf#1273: completion waits for ever for a request that ended without a record.
func TestEveryKindOfEndIsCounted(t *testing.T) {
	f := newFake(t)
	f.Hook = func(n int, w http.ResponseWriter, _ *http.Request, _ *wire.Request) bool {
		switch n {
		case 1:
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			panic(http.ErrAbortHandler)
		case 3:
			fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":null}]}\n\n")
		case 4:
			fmt.Fprint(w, "data: {oops\n\n")
		default:
			return false
		}
		return true
	}
	result, outcomes := run(t, compile(t, chain("a", 5, 5)...), f, func(s *setup) { s.client.Connections = client.Fresh })
	want := []string{"a-1 status", "a-2 connection", "a-3 cut off", "a-4 unreadable", "a-5 ok"}
	if got := answered(outcomes); !slices.Equal(got, want) {
		t.Errorf("ends are %q, want %q", got, want)
	}
	q := result.Report(replay.About{}).Requests
	if q.Completed != 1 || q.Rejected != 1 || q.Failed != 3 {
		t.Errorf("%+v", q)
	}
}

// AgentX FAQ: errors do not invalidate a run, and the submission is called valid.
func TestManyErrorsStopTheReplay(t *testing.T) {
	f := newFake(t)
	f.Hook = func(_ int, w http.ResponseWriter, _ *http.Request, _ *wire.Request) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	result, _ := run(t, compile(t, chain("a", 60, 1)...), f, func(s *setup) { s.options.MaxErrorRate = 0.05 })
	if len(result.Rows) != 20 || result.Unsent() != 40 || result.Stopped == "" {
		t.Errorf("%d were sent, %d not, stopped: %q", len(result.Rows), result.Unsent(), result.Stopped)
	}
}

func TestAbortOnError(t *testing.T) {
	f := newFake(t)
	f.Hook = func(n int, w http.ResponseWriter, _ *http.Request, _ *wire.Request) bool {
		if n == 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return n == 3
	}
	result, _ := run(t, compile(t, chain("a", 10, 1)...), f, func(s *setup) { s.options.OnError = replay.Abort })
	if len(result.Rows) != 3 || !strings.Contains(result.Stopped, "a-3") {
		t.Errorf("%d were sent, stopped: %q", len(result.Rows), result.Stopped)
	}
}

// An interrupt stops sending; what is under way has its grace and is then cut off, and both are in the report.
func TestInterruptKeepsWhatWasDone(t *testing.T) {
	for name, test := range map[string]struct {
		grace     time.Duration
		completed int64
	}{"with grace": {10 * time.Second, 2}, "without": {time.Millisecond, 1}} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.Hook = func(n int, _ http.ResponseWriter, q *http.Request, _ *wire.Request) bool {
				return n == 2 && !sleep(q, 200*time.Millisecond)
			}
			w := compile(t, chain("a", 5, 50)...)
			p, err := plan.New(w, plan.Options{})
			if err != nil {
				t.Fatal(err)
			}
			c, err := client.New(client.Options{URLs: []string{f.URL}})
			if err != nil {
				t.Fatal(err)
			}
			ids, _ := prompts.TokenIDs(prompts.DefaultLowID, prompts.DefaultHighID)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			result, err := replay.Run(ctx, replay.Options{Plan: p, Client: c, Prompts: prompts.NewMaker(w, ids, 1, prompts.Scale{}), Grace: test.grace})
			if err != nil {
				t.Fatal(err)
			}
			check(t, result)
			run := result.Report(replay.About{})
			if run.Status != report.RunInterrupted || run.Requests.Completed != test.completed || run.Requests.Unfinished != 5-test.completed {
				t.Errorf("%s, %+v; want %d completed", run.Status, run.Requests, test.completed)
			}
			said := strings.Join(run.Warnings, "; ")
			if cut := strings.Contains(said, "requests cut off when the replay ended: 1;"); cut != (test.completed == 1) || strings.Contains(said, "failed") {
				t.Errorf("warnings are %q", said)
			}
		})
	}
}

// aiperf#585: a window leaves calls out, and the replay waits for them for ever.
func TestWindowsEnd(t *testing.T) {
	result, _ := run(t, family(t), newFake(t), func(s *setup) { s.plan = plan.Options{From: 12 * time.Millisecond, To: 28 * time.Millisecond} })
	if len(result.Rows) != 2 || result.Unsent() != 0 {
		t.Errorf("%d were sent, %d not; want 2 and 0", len(result.Rows), result.Unsent())
	}
}

// inference-perf#615: no stop by time.
func TestDurationEndsTheReplay(t *testing.T) {
	result, _ := run(t, compile(t, chain("a", 100, 20)...), newFake(t), func(s *setup) { s.options.Duration = 130 * time.Millisecond })
	if n := len(result.Rows); n < 3 || n > 8 || !strings.Contains(result.Stopped, "duration") {
		t.Errorf("%d were sent in 130 ms, stopped: %q", n, result.Stopped)
	}
	if d := serverDoubts(result); len(d) > 0 { // it was asked for
		t.Errorf("doubts are %q", d)
	}
}

// inference-perf#615: the drain understates throughput. The steady part is between the end of the first program and the
// beginning of the last; where there is none the whole is measured, and said to be.
func TestSteadyPart(t *testing.T) {
	var turns []turn
	for s := range 6 {
		for i := range 2 {
			turns = append(turns, turn{fmt.Sprint("s", s), "", 100*s + 10*i, 100*s + 10*i + 5, 16, 3, nil})
		}
	}
	for concurrency, want := range map[int]int64{1: 8, 6: 12} { // the last four programs but the last, or all
		f := newFake(t)
		f.Gap = 5 * time.Millisecond
		result, _ := run(t, compile(t, turns...), f, func(s *setup) {
			s.plan = plan.Options{Timing: plan.Concurrency, Concurrency: concurrency}
			s.options.Steady = true
		})
		r := result.Report(replay.About{})
		said := strings.Contains(strings.Join(r.Warnings, "; "), "never steady")
		if r.Requests.Total != want || r.LatencyMs.ITL.Count != 2*want || said != (concurrency == 6) || (r.Whole == nil) != said {
			t.Errorf("%d at a time: %d requests with %d gaps measured in %v, warnings %q; want %d", concurrency, r.Requests.Total, r.LatencyMs.ITL.Count, r.WindowS, r.Warnings, want)
		}
	}
}

// tcpreplay#724: sleeps add up. Deadlines are absolute here, so the last send is as late as the first.
func TestLatenessDoesNotAddUp(t *testing.T) {
	_, outcomes := run(t, compile(t, chain("a", 100, 5)...), newFake(t), func(s *setup) { s.plan.Timing = plan.Strict })
	late := 0
	for _, o := range outcomes {
		if want := time.Duration(o.Call) * 5 * time.Millisecond; o.Planned != want {
			t.Fatalf("%s is planned at %v, want %v", o.ID, o.Planned, want)
		}
		if o.Lag() > 20*time.Millisecond {
			late++
		}
	}
	if late > 50 {
		t.Errorf("%d of 100 are more than 20 ms late", late)
	}
}

// dynamo#14254: histories sent twice; sglang PR 30304: the length of turn 1 used for all. Prompts are as long as recorded.
func TestPromptsAreAsLongAsRecorded(t *testing.T) {
	w := compile(t, turn{"a", "", 0, 1, 20, 1, []uint64{1, 2}}, turn{"a", "", 2, 3, 100, 1, []uint64{1, 3, 4, 5, 6, 7, 8}},
		turn{"a", "", 4, 5, 33, 1, []uint64{1, 3}}) // aiperf#1229: fewer hashes than the prompt has blocks
	f := newFake(t)
	result, _ := run(t, w, f, nil)
	for i, want := range []int{20, 100, 33} {
		if got := len(f.seen[i].body.Prompt.Tokens); got != want {
			t.Errorf("prompt %d has %d tokens, want %d", i+1, got, want)
		}
	}
	if off := result.Report(replay.About{}).Replay.Prompts; off.Off.Value != 0 || off.Requests != 3 {
		t.Errorf("%+v", off)
	}
}

// Speculative decoding: several tokens in an event. Gaps of events are not called gaps of tokens.
func TestEventsOfSeveralTokensHaveNoGaps(t *testing.T) {
	for per, known := range map[int64]bool{1: true, 4: false} {
		f := newFake(t)
		f.PerEvent = per
		w := compile(t, turn{"a", "", 0, 1, 16, 8, []uint64{1}})
		result, _ := run(t, w, f, nil)
		report := result.Report(replay.About{})
		if got := report.LatencyMs.ITL.Count > 0; got != known || report.Replay.TokensPerEvent.Value != float64(per) || report.LatencyMs.TPOT.Count != 1 {
			t.Errorf("%d tokens an event: gaps known %v, %v tokens an event", per, got, report.Replay.TokensPerEvent)
		}
	}
}

// aiperf#732: cache hits are in the summary; and what is not reported is absent, not 0.
func TestCachedTokens(t *testing.T) {
	f := newFake(t)
	result, _ := run(t, family(t), f, nil)
	r := result.Report(replay.About{})
	if r.KV.HitTokens.Value != 48 || r.KV.PromptTokens.Value != 128 || r.Replay.EndlessHitRate.Value != 48.0/128 {
		t.Errorf("hit %v of %v, endless %v", r.KV.HitTokens, r.KV.PromptTokens, r.Replay.EndlessHitRate)
	}
	f.Hook = func(_ int, w http.ResponseWriter, _ *http.Request, _ *wire.Request) bool {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":16,\"completion_tokens\":1}}\n\n")
		return true
	}
	result, _ = run(t, family(t), f, nil)
	if hit := result.Report(replay.About{}).KV.HitRate; hit.Known {
		t.Errorf("hit rate %v without a word of it", hit)
	}
}

// An endless cache of blocks of any size finds what the plan's summary says, for prompts alone.
func TestEndlessCachesFindWhatThePlanSays(t *testing.T) {
	w := compile(t,
		turn{"a", "", 0, 1, 64, 1, []uint64{1, 2, 3, 4}}, turn{"b", "", 100, 101, 64, 1, []uint64{1, 2, 5, 6}},
		turn{"a", "", 200, 201, 100, 1, []uint64{1, 2, 3, 4, 7, 8, 9}}, turn{"c", "", 300, 301, 50, 1, []uint64{1, 10, 11, 12}})
	for _, size := range []int{4, 16, 32} {
		f := newFake(t)
		f.BlockSize = size
		result, _ := run(t, w, f, func(s *setup) { s.plan.Timing = plan.Closed; s.plan.Speed = 10 })
		hits := 0
		for _, s := range f.seen {
			hits += s.cached
		}
		want := 32 + 64 + 16
		if size == 32 {
			want = 32 + 64 // the first block of c alone fills no block of 32
		}
		if hits != want {
			t.Errorf("blocks of %d: %d tokens cached, want %d", size, hits, want)
		}
		if s := result.Plan.Summary(); s.PromptHits != 32+64+16 {
			t.Errorf("the plan says %d", s.PromptHits)
		}
	}
}

// aiperf#1165, #966: one odd request inside a subagent stops everything; subagents of any depth are replayed.
func TestDeepSubagents(t *testing.T) {
	var turns []turn
	parent := ""
	for depth := range 20 {
		name := fmt.Sprint("s", depth)
		turns = append(turns, turn{name, parent, depth * 5, depth*5 + 1, 16, 1, nil})
		parent = name
	}
	f := newFake(t)
	result, _ := run(t, compile(t, turns...), f, nil)
	if len(result.Rows) != 20 || result.Report(replay.About{}).Programs.Completed != 1 {
		t.Errorf("%d of 20 were sent", len(result.Rows))
	}
	for i := 1; i < 20; i++ {
		if h := wire.SessionOf(f.seen[i].header); h.ID != fmt.Sprint("s", i) || h.Parent != fmt.Sprint("s", i-1) {
			t.Errorf("request %d is of %+v", i, h)
		}
	}
}

// A call that the trace gives no time is sent when what it waits for has ended, in every timing but strict.
func TestCallsWithoutATime(t *testing.T) {
	c := &trace.Capture{Format: "test", SharedClock: true}
	s := &trace.Session{ID: "a"}
	for i := range 3 {
		u := &trace.Turn{ID: fmt.Sprint("a-", i+1), Start: trace.NoTime, End: trace.NoTime, TTFT: trace.NoTime, Input: 8, Output: 1,
			Cached: trace.Unknown, Reasoning: trace.Unknown, Explicit: true}
		if i > 0 {
			u.Waits = []trace.Wait{{ID: fmt.Sprint("a-", i), Delay: 20 * time.Millisecond}}
		}
		s.Turns = append(s.Turns, u)
	}
	c.Sessions = append(c.Sessions, s)
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	result, _ := run(t, w, newFake(t), nil)
	for i := 1; i < 3; i++ {
		if gap := result.Rows[i].Due - result.Rows[i-1].Due; gap < 20*time.Millisecond {
			t.Errorf("turn %d is due %v after the one before, want 20 ms and its service", i+1, gap)
		}
	}
}
