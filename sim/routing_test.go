package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// single is a session of one turn.
func single(id string, base uint64, input int32, at time.Duration, hints trace.Hints) *trace.Session {
	return session(id, base, trace.Turn{Input: input, Output: 1, Start: at, End: time.Second, Hints: hints})
}

// A worker is busy above 8 tokens to prefill. a takes it at 0 ms with 12; until its first token at 10 ms b, c and d
// wait. Then c goes first, by its priority, and makes the worker busy again; at its first token b goes, at b's d. Without
// a threshold b, c and d are in the second step. With one of 12 tokens b goes at once, and d waits for b and c.
func TestRouterQueueByHand(t *testing.T) {
	w := compile(t,
		single("a", 100, 12, 0, trace.Hints{}),
		single("b", 200, 12, 1*ms, trace.Hints{}),
		single("c", 300, 12, 2*ms, trace.Hints{StrictPriority: 1}),
		single("d", 400, 4, 3*ms, trace.Hints{Priority: -5}))
	for _, test := range []struct {
		threshold int64
		ends      [4]time.Duration
	}{
		{0, [4]time.Duration{10 * ms, 20 * ms, 20 * ms, 20 * ms}},
		{8, [4]time.Duration{10 * ms, 30 * ms, 20 * ms, 40 * ms}},
		{12, [4]time.Duration{10 * ms, 20 * ms, 20 * ms, 30 * ms}},
	} {
		d := fixed()
		d.Router.ThresholdTokens = test.threshold
		res := mustRun(t, w, d)
		for i, want := range test.ends {
			if q := res.Requests[i]; q.End != want {
				t.Errorf("threshold %d: request %d ends at %v, want %v", test.threshold, i, q.End, want)
			}
		}
	}
}

// A client that hangs up while its request waits at the router leaves the queue. That happens to b, as c is preferred
// when a's client hangs up.
func TestTimeoutInRouterQueue(t *testing.T) {
	d := fixed()
	d.Router.ThresholdTokens = 1
	d.Client.Timeout = 15 * ms
	d.Cost.Prefill = 30 * ms
	res := mustRun(t, compile(t, single("a", 100, 12, 0, trace.Hints{}), single("b", 200, 12, 5*ms, trace.Hints{}),
		single("c", 300, 12, 6*ms, trace.Hints{StrictPriority: 1})), d)
	for i, want := range []report.Request{{Worker: 0, End: 15 * ms}, {Worker: -1, End: 20 * ms}, {Worker: 0, End: 21 * ms}} {
		if q := res.Requests[i]; q.Status != report.Failed || q.Worker != want.Worker || q.End != want.End {
			t.Errorf("request %d ended %v on worker %d at %v, want failed on %d at %v", i, q.Status, q.Worker, q.End, want.Worker, want.End)
		}
	}
}

// What the router refuses is rejected, with a reason in the report.
func TestRouterRefusals(t *testing.T) {
	d := fixed()
	d.Router.PrefillTokens = 10
	sessions := []*trace.Session{single("a", 100, 12, 0, trace.Hints{}), single("b", 200, 12, 1*ms, trace.Hints{}), single("c", 300, 12, 10*ms, trace.Hints{})}
	res := mustRun(t, compile(t, sessions...), d)
	for i, want := range []report.Status{report.Completed, report.Rejected, report.Completed} {
		if got := res.Requests[i].Status; got != want {
			t.Errorf("request %d ended %v, want %v", i, got, want)
		}
	}
	if got := res.Refused; len(got) != 1 || got[0] != (Refused{router.Overloaded.String(), 1}) {
		t.Errorf("refused %+v, want one call because of overload", got)
	}
	run := res.Report(nil, nil)
	if list := run.Requests.Rejections; len(list) != 1 || list[0].Count != 1 || !strings.Contains(list[0].Why, "router.active_") {
		t.Errorf("the report says %+v", list)
	}
}

// A sweep of programs that are refused at the instant at which they come is an error and no endless loop.
func TestRefusedForEver(t *testing.T) {
	d := fixed()
	d.Workers = 1
	none := int64(0)
	d.Router.DefaultFamily, d.Router.Buckets = "f", []router.Bucket{{Name: "all"}}
	d.Router.Classes = []router.Class{{Name: "c", Family: "f", Bucket: "all", Quantum: 1, ThresholdTokens: &none, RequestLimit: &none}}
	d.Load.Mode, d.Load.Concurrency, d.Load.Duration = "concurrency", 2, time.Second
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Run(context.Background(), compile(t, single("a", 100, 12, 0, trace.Hints{})), p, Options{})
	if err == nil || !strings.Contains(err.Error(), "without a call that this deployment can serve") {
		t.Errorf("got error %v", err)
	}
}

// With a hard affinity every session stays on one worker; a whole family does when children are bound by parent.
func TestSessionAffinityOfRuns(t *testing.T) {
	child := session("child", 200, trace.Turn{Input: 8, Output: 1, Start: 30 * ms, End: 40 * ms}, trace.Turn{Input: 12, Output: 1, Start: 50 * ms, End: 60 * ms})
	child.Parent = "root"
	root := session("root", 100, trace.Turn{Input: 8, Output: 1, Start: 0, End: 10 * ms}, trace.Turn{Input: 12, Output: 1, Start: 20 * ms, End: 30 * ms},
		trace.Turn{Input: 16, Output: 1, Start: 100 * ms, End: 110 * ms})
	w := compile(t, root, child)
	for _, test := range []struct {
		mode     string
		byParent bool
		want     string // workers of the requests as they come: two of root, two of child, one of root
	}{
		{"off", false, "0 1 2 0 1"}, // round-robin
		{"hard", false, "0 0 1 1 0"},
		{"soft", false, "0 0 1 1 0"},
		{"soft", true, "0 0 0 0 0"},
	} {
		d := fixed()
		d.Workers = 3
		d.Router.SessionAffinity = router.SessionAffinity{Mode: test.mode, TTL: time.Hour, ByParent: test.byParent}
		var workers []string
		for _, q := range mustRun(t, w, d).Requests {
			workers = append(workers, fmt.Sprint(q.Worker))
		}
		if got := strings.Join(workers, " "); got != test.want {
			t.Errorf("%s, by parent %v: workers %s, want %s", test.mode, test.byParent, got, test.want)
		}
	}
}

// Every policy serves everything, with and without a queue, and all conservation laws hold on the way.
func TestPoliciesServeEverything(t *testing.T) {
	w := agents(t, synth.Options{Programs: 12, Seed: 5})
	for _, policy := range router.Policies() {
		for _, threshold := range []float64{0, 0.1} {
			d := fixed()
			d.Workers = 3
			d.Engine.KVBlocks = "100000"
			d.Router.Policy, d.Router.Threshold = policy, threshold
			d.Router.TrackOutputBlocks = true
			d.Router.UseKVEvents = threshold == 0
			d.Load.Mode, d.Load.Concurrency = "concurrency", 8
			res := mustRun(t, w, d)
			completed := int64(0)
			for i := range res.Requests {
				if res.Requests[i].Status == report.Completed {
					completed++
				}
			}
			if n := int64(len(res.Requests)); completed+res.TooLong.Calls != n || completed < n/2 {
				t.Fatalf("%s, threshold %v: %d of %d requests completed, %d are too long", policy, threshold, completed, n, res.TooLong.Calls)
			}
			if threshold > 0 && policy == "kv" && longestQueue(res) == 0 {
				t.Error("nothing waited: the threshold is too high for this test")
			}
		}
	}
}

// longestQueue is the longest time from arrival to first admission.
func longestQueue(res *Result) (longest time.Duration) {
	for i := range res.Requests {
		longest = max(longest, res.Requests[i].Admitted-res.Requests[i].Arrival)
	}
	return longest
}
