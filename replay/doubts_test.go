package replay_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/wire"
)

// serverDoubts are the doubts but for the lateness of the client, which depends on what else the machine does.
func serverDoubts(r *replay.Result) []string {
	return slices.DeleteFunc(r.Report(replay.About{}).Replay.Doubts, func(d string) bool { return strings.HasPrefix(d, "the client") })
}

// One failed request in a hundred is counted and named, and does not spoil the rest; more do. Requests that are not sent
// because one failed before them count as well.
func TestFewErrorsAreNoDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		fails   []int
		onError string
		doubt   string
	}{
		"none":                  {nil, replay.Continue, ""},
		"1 %":                   {[]int{50, 90}, replay.Continue, ""},
		"more":                  {[]int{50, 90, 91}, replay.Continue, "3 of 200 requests failed (3 status 500)"},
		"the last of a session": {[]int{199}, replay.EndSession, ""},
		"before the end":        {[]int{190}, replay.EndSession, "1 of 190 requests failed (1 status 500), and 10 were not sent, because their session had ended with a failure"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.Hook = func(n int, w http.ResponseWriter, _ *http.Request, _ *wire.Request) bool {
				if fails := slices.Contains(test.fails, n); !fails {
					return false
				}
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			result, _ := run(t, compile(t, chain("a", 200, 1)...), f, func(s *setup) { s.options.OnError, s.plan.Timing = test.onError, plan.ASAP })
			if d := strings.Join(serverDoubts(result), "; "); d != test.doubt {
				t.Errorf("doubts are %q, want %q", d, test.doubt)
			}
			r := result.Report(replay.About{})
			if named := strings.Contains(strings.Join(r.Warnings, "; "), "500"); r.Requests.Failed != int64(len(test.fails)) || named != (len(test.fails) > 0) {
				t.Errorf("%d failed, warnings %q", r.Requests.Failed, r.Warnings)
			}
		})
	}
}

// aiperf#339: outputs of 300 tokens where 1,023 were asked for. The request forces the recorded length, and a server that
// does not keep it makes the run doubtful.
func TestShortOutputsAreDoubtful(t *testing.T) {
	f := newFake(t)
	f.Hook = func(_ int, w http.ResponseWriter, _ *http.Request, body *wire.Request) bool {
		if *body.MaxTokens != 2 || *body.MinTokens != 2 || !body.IgnoreEOS || !body.StreamOptions.IncludeUsage {
			t.Errorf("asked for %+v", body)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":16,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n")
		return true
	}
	result, _ := run(t, compile(t, chain("a", 3, 1)...), f, nil)
	if d := serverDoubts(result); len(d) != 1 || !strings.Contains(d[0], "50.0% more or fewer tokens") {
		t.Errorf("doubts are %q", d)
	}
}

// A cache that holds the prompts already measures another server than one that does not.
func TestWarmCachesAreNoticed(t *testing.T) {
	f := newFake(t)
	w := compile(t, turn{"a", "", 0, 1, 160, 1, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}})
	for i, want := range []int{0, 1} {
		result, _ := run(t, w, f, nil)
		if d := serverDoubts(result); len(d) != want {
			t.Errorf("run %d: doubts are %q", i+1, d)
		}
	}
}

// A trace that was not read whole is other work than was recorded, as it is to those who predict or draw it.
func TestLostRowsAreDoubtful(t *testing.T) {
	result, _ := run(t, compile(t, chain("a", 2, 1)...), newFake(t), func(s *setup) { s.plan.Timing = plan.ASAP })
	result.Plan.Workload.Capture.Read.LostRows = 1
	if d := serverDoubts(result); len(d) != 1 || d[0] != "1 row of the trace was lost" {
		t.Errorf("doubts are %q", d)
	}
}

// Requests that are sent at the same time may find each other's tokens: the first of them in a cache that is cold.
func TestSimultaneousRequestsAreNoWarmCache(t *testing.T) {
	prompt := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	w := compile(t, turn{"a", "", 0, 1, 256, 1, prompt}, turn{"b", "", 0, 1, 160, 1, append(slices.Clone(prompt[:8]), 21, 22)}, turn{"c", "", 500, 501, 256, 1, prompt})
	p, err := plan.New(w, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for hit, warm := range map[int32]bool{0: false, 128: false, 192: false, 240: true} { // 128 are b's, 64 may be a template's; c is sent later
		r := replay.Result{Plan: p, Gaps: new(report.Gaps), End: time.Second}
		for i, at := range []time.Duration{0, 1, 500} {
			r.Rows = append(r.Rows, replay.Row{Request: report.Request{Turn: int32(i), Worker: -1, Status: report.Completed, Arrival: at * time.Millisecond,
				Admitted: report.None, FirstToken: (at + 10) * time.Millisecond, End: (at + 10) * time.Millisecond, Input: 256, Output: 1, Computed: trace.Unknown}})
		}
		r.Rows[0].Hit = hit
		if d := strings.Join(r.Report(replay.About{}).Replay.Doubts, "; "); strings.Contains(d, "it was warm") != warm {
			t.Errorf("%d tokens found: doubts are %q", hit, d)
		}
	}
}

// The prompt of the first request may be too short to tell a warm cache; that of the next program is not.
func TestWarmCacheBehindAShortPrompt(t *testing.T) {
	w := compile(t, turn{"a", "", 0, 1, 15, 1, nil}, turn{"b", "", 500, 501, 160, 1, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}})
	p, err := plan.New(w, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for hit, warm := range map[int32]bool{0: false, 64: false, 144: true} {
		r := replay.Result{Plan: p, Gaps: new(report.Gaps), End: time.Second}
		for i, at := range []time.Duration{0, 500} {
			r.Rows = append(r.Rows, replay.Row{Request: report.Request{Turn: int32(i), Program: int32(i), Worker: -1, Status: report.Completed, Arrival: at * time.Millisecond,
				Admitted: report.None, FirstToken: (at + 10) * time.Millisecond, End: (at + 10) * time.Millisecond, Input: w.Calls[i].Input, Output: 1, Computed: trace.Unknown}})
		}
		r.Rows[1].Hit = hit
		if d := strings.Join(r.Report(replay.About{}).Replay.Doubts, "; "); strings.Contains(d, "it was warm") != warm {
			t.Errorf("%d tokens found: doubts are %q", hit, d)
		}
	}
}

// inference-perf#188, vllm#54101, perf_analyzer#312: a client that is itself too late blames the server, or calls what no timer can
// do better late.
func TestLateClientsAreDoubtful(t *testing.T) {
	var turns []turn
	for i := range 100 {
		turns = append(turns, turn{"a", "", i, i + 1, 16, 1, nil})
	}
	p, err := plan.New(compile(t, turns...), plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		lag   time.Duration // of every tenth request
		cpu   time.Duration // in 10 s; of all processors
		late  int64
		doubt string
	}{
		{"a tenth of a timer's grain", 900 * time.Microsecond, 0, 0, ""},
		{"late, but not by much", 4 * time.Millisecond, 0, 10, ""},
		{"late", 6 * time.Millisecond, 0, 10, "the client, not the server, limited it: 1% of requests were sent more than 6.0 ms after they were due"},
		{"busy", 0, 9 * time.Second, 0, "the client used 90% of its processors"},
	} {
		r := replay.Result{Plan: p, Gaps: new(report.Gaps), End: 10 * time.Second, CPU: test.cpu * time.Duration(runtime.GOMAXPROCS(0))}
		for i := range 100 {
			due := time.Duration(i) * time.Millisecond
			row := replay.Row{Planned: due, Ready: due, Due: due, Connected: due, Request: report.Request{Turn: int32(i), Worker: -1, Status: report.Completed,
				Arrival: due, Admitted: report.None, FirstToken: due + time.Second, End: due + time.Second, Input: 16, Output: 1, Hit: trace.Unknown, Computed: trace.Unknown}}
			if i%10 == 0 {
				row.Arrival += test.lag
			}
			r.Rows = append(r.Rows, row)
		}
		l := r.Report(replay.About{}).Replay
		if got := strings.Join(l.Doubts, "; "); got != test.doubt || l.Late != test.late {
			t.Errorf("%s: %d late, doubts %q; want %d and %q", test.name, l.Late, got, test.late, test.doubt)
		}
	}
}
