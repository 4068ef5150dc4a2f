package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// fleetOf is a deployment of n workers with the given policy on which programs live by concurrency.
func fleetOf(workers int, policy string, concurrency int) Deployment {
	d := Default()
	d.Name, d.Model, d.Parallelism.Tensor = policy, "qwen3-14b", 1
	d.Workers, d.Router.Policy = workers, policy
	d.Load.Mode, d.Load.Concurrency = "concurrency", concurrency
	d.Client.Timeout = 0
	return d
}

// With KV capacity that never binds on one worker nothing is ever held or evicted, and no policy differs from another.
func TestPoliciesAgreeWithoutPressure(t *testing.T) {
	w := agents(t, synth.Options{Programs: 12, Seed: 3})
	var base float64
	for _, policy := range []string{"round-robin", "random", "power-of-two", "least-loaded", "sticky", "kv", "program-count", "two-tier", "lmetric",
		"soft-affinity-load-guard", "thunderagent"} {
		d := fleetOf(1, policy, 6)
		d.Engine.KVBlocks = "1000000"
		end := mustRun(t, w, d).End.Seconds()
		if base == 0 {
			base = end
		}
		if math.Abs(end/base-1) > 0.005 {
			t.Errorf("%s ends after %.1f s, round-robin after %.1f s: want a difference below 0.5%%", policy, end, base)
		}
	}
}

// ThunderAgent holds what would thrash: every prompt then finds its prefix, where first come first served finds little.
func TestThunderAgentKeepsTheCache(t *testing.T) {
	w := agents(t, synth.Options{Programs: 60, Seed: 3})
	run := func(policy string) (*Result, *report.Run) {
		d := fleetOf(1, policy, 30)
		d.Engine.KVBlocks = "10000"
		res := mustRun(t, w, d)
		return res, res.Report(nil, nil)
	}
	_, kv := run("kv")
	res, ta := run("thunderagent")
	if kv.KV.HitRate.Value > 0.6 || ta.KV.HitRate.Value < 0.85 {
		t.Errorf("hit rates are %.2f for kv and %.2f for thunderagent, want a thrashing cache and a kept one", kv.KV.HitRate.Value, ta.KV.HitRate.Value)
	}
	if res.End.Seconds() > 0.9*kv.DurationS.Value {
		t.Errorf("thunderagent ends after %v, kv after %.0f s: want a tenth less at least", res.End, kv.DurationS.Value)
	}
	s := ta.Scheduler
	if s == nil || s.Pauses == 0 || s.Resumes == 0 || s.PausedPeak == 0 {
		t.Errorf("the report's scheduler is %+v, want pauses and resumes", s)
	}
	if kv.Scheduler != nil {
		t.Error("kv reports a program scheduler")
	}
	held := time.Duration(0)
	for i := range res.Requests {
		held += res.Requests[i].Held
	}
	paused := 0.0
	for i := range res.Programs {
		paused += res.Programs[i].Paused.Seconds()
	}
	if held == 0 || math.Abs(paused-held.Seconds()) > 1e-6 {
		t.Errorf("requests were held for %v, programs report %.3f s paused", held, paused)
	}
}

// With its gates off the table lets everything go to where its session was, as soft affinity does without it.
func TestGatesOffIsTheScorerAlone(t *testing.T) {
	w := agents(t, synth.Options{Programs: 40, Seed: 5})
	d := fleetOf(3, "thunderagent", 24)
	d.Engine.KVBlocks = "9000"
	d.Router.ThunderAgent.Gates = "none"
	with := mustRun(t, w, d)
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	p.scheduler = nil
	without, err := Run(context.Background(), w, p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(without.Requests, with.Requests); diff != "" {
		t.Errorf("requests differ (-without the table, +with):\n%.2000s", diff)
	}
}

// With a budget for shared prefixes the table is never charged more than what live programs have, an answer of up to 4096
// tokens that grows and the 356 reserved for each: the path of a request that has ended is used for another one, but not under the table's feet.
func TestSharedPrefixesAreGivenBack(t *testing.T) {
	w := agents(t, synth.Options{Programs: 40, Seed: 3, Set: []string{"turns=12"}})
	d := fleetOf(2, "thunderagent", 24)
	d.Engine.KVBlocks = "5000"
	d.Router.ThunderAgent.Parameters = map[string]any{"shared_prefix_budget": true}
	for i, s := range simulate(t, w, d, Options{Samples: 200}).Series.Samples {
		if most := s.Wanted + (4096+356)*s.Programs; s.Accounted > most {
			t.Fatalf("sample %d: %d tokens are accounted for, %d programs have %d", i, s.Accounted, s.Programs, s.Wanted)
		}
	}
}

// Programs whose requests name no session are load that the scheduler does not see: it over-admits.
func TestUnlabelledProgramsAreNotScheduled(t *testing.T) {
	w := agents(t, synth.Options{Programs: 60, Seed: 3})
	run := func(share float64) (held int64, hits float64) {
		d := fleetOf(1, "thunderagent", 40)
		d.Engine.KVBlocks = "9000"
		d.Router.Unlabelled = share
		res := mustRun(t, w, d)
		return res.Scheduler.Pauses + res.Scheduler.Deferred, res.Report(nil, nil).KV.HitRate.Value
	}
	_, labelled := run(0)
	_, half := run(0.5)
	held, none := run(1)
	if held != 0 || half > labelled-0.05 || none > half {
		t.Errorf("hit rates are %.2f, %.2f and %.2f with none, half and all unlabelled, and %d programs are held in the last: want them to fall, and none held",
			labelled, half, none, held)
	}
}

// Two frontends think that each owns all capacity: together they let in more than one does.
func TestFrontendsOvercommit(t *testing.T) {
	w := agents(t, synth.Options{Programs: 60, Seed: 3})
	hits := func(frontends int) float64 {
		d := fleetOf(1, "thunderagent", 40)
		d.Engine.KVBlocks = "9000"
		d.Router.Frontends = frontends
		return mustRun(t, w, d).Report(nil, nil).KV.HitRate.Value
	}
	if one, four := hits(1), hits(4); four > one-0.05 {
		t.Errorf("hit rate is %.3f with one frontend and %.3f with four, want it clearly lower", one, four)
	}
}

// At most two programs send requests at a time; the third begins when one of them ends.
func TestMaxPrograms(t *testing.T) {
	d := fixed()
	d.Router.MaxPrograms = "2"
	d.Client.Timeout = 0
	var sessions []*trace.Session
	for i := range 3 {
		sessions = append(sessions, session(fmt.Sprint("s", i), uint64(100*i), trace.Turn{Start: 0, End: 30 * ms, Input: 8, Output: 2}))
	}
	res := mustRun(t, compile(t, sessions...), d)
	// 0 to 10 ms: two prompts; to 15 ms their second tokens; then the third: 10 + 5 ms.
	var ends []time.Duration
	for i := range res.Requests {
		ends = append(ends, res.Requests[i].End)
	}
	if want := []time.Duration{15 * ms, 15 * ms, 30 * ms}; !slices.Equal(ends, want) {
		t.Errorf("requests end at %v, want %v", ends, want)
	}
	if held := res.Requests[2].Held; held != 15*ms {
		t.Errorf("the third was held for %v, want 15ms", held)
	}
	d.Router.MaxPrograms = "auto"
	if _, err := d.Resolve(); err == nil || !strings.Contains(err.Error(), "router.max_programs") {
		t.Errorf("auto in a single run gives %v, want an error that names the key", err)
	}
}

// A program whose next call would come when time is up leaves its place to the one that waits.
func TestMaxProgramsWhenTimeIsUp(t *testing.T) {
	two := []trace.Turn{{Start: 0, End: 30 * ms, Input: 8, Output: 2}, {Start: 530 * ms, End: 560 * ms, Input: 12, Output: 2}}
	d := fixed()
	d.Router.MaxPrograms, d.Client.Timeout, d.Load.Duration = "1", 0, 100*ms
	res := mustRun(t, compile(t, session("a", 100, two...), session("b", 200, two[0])), d)
	if b := res.Requests[1]; len(res.Requests) != 2 || b.Status != report.Completed || b.Held != 15*ms || res.Uncalled != 1 {
		t.Errorf("of %d requests the second has status %v after being held for %v, and %d calls were not sent; want it completed after 15ms, and one call",
			len(res.Requests), b.Status, b.Held, res.Uncalled)
	}
}

// A worker goes: what ran there fails, is sent again, and all else goes on elsewhere. It comes back with an empty cache.
func TestFaults(t *testing.T) {
	w := agents(t, synth.Options{Programs: 20, Seed: 3})
	for _, policy := range []string{"round-robin", "sticky", "kv", "thunderagent"} {
		d := fleetOf(2, policy, 10)
		d.Client.Retries = 5
		d.Faults = []Fault{{At: 60 * time.Second, Worker: 1, Action: "remove"}, {At: 120 * time.Second, Worker: 1, Action: "return"}}
		res := mustRun(t, w, d)
		retried, during, after := 0, 0, 0
		for i := range res.Requests {
			q := &res.Requests[i]
			if q.Status != report.Completed && q.Worker >= 0 { // what is longer than the model takes comes to no worker
				t.Fatalf("%s: request %d has status %v, want all completed", policy, i, q.Status)
			}
			if q.Retries > 0 {
				retried++
			}
			if q.Worker == 1 && q.Admitted > 60*time.Second {
				if after++; q.Admitted < 120*time.Second {
					during++
				}
			}
		}
		if retried == 0 || during > 0 || after == 0 {
			t.Errorf("%s: %d requests were sent again, %d went to the worker while it was gone and %d later, want some, none and some", policy, retried, during, after)
		}
	}
}

// A worker that is back before the step ends in which it went has an empty cache nevertheless: what that step computes is
// gone with its request.
func TestReturnWithinAStep(t *testing.T) {
	d := fixed()
	d.Faults = []Fault{{At: 5 * ms, Worker: 0, Action: "remove"}, {At: 7 * ms, Worker: 0, Action: "return"}}
	res := mustRun(t, compile(t, single("a", 100, 40, 0, trace.Hints{}), single("b", 100, 40, 8*ms, trace.Hints{})), d)
	if a, b := res.Requests[0], res.Requests[1]; a.Status != report.Failed || b.Status != report.Completed || b.Hit != 0 {
		t.Errorf("the first has status %v, the second %v with %d tokens hit; want it failed, and the other completed with none", a.Status, b.Status, b.Hit)
	}
}

// What a worker had pinned is gone with it.
func TestPinsGoWithTheirWorker(t *testing.T) {
	turns := []trace.Turn{{Input: 40, Output: 4, Start: 0, End: 30 * ms, ToolCalls: []trace.ToolCall{{Name: "bash"}}}, {Input: 48, Output: 1, Start: 400 * ms, End: 500 * ms}}
	w := compile(t, session("a", 100, turns...))
	d := fixed()
	d.Engine.Scheduling, d.Engine.KVBlocks = "continuum", "100000"
	for _, faults := range [][]Fault{nil, {{At: 100 * ms, Worker: 0, Action: "remove"}, {At: 200 * ms, Worker: 0, Action: "return"}}} {
		d.Faults = faults
		res := mustRun(t, w, d)
		if hit := res.Requests[1].Hit; (hit > 0) != (faults == nil) || res.Engines[0].Pinned != 1 {
			t.Errorf("faults %v: %d tokens hit after %d pins, want some only without faults, and one pin", faults, hit, res.Engines[0].Pinned)
		}
	}
}

// With all workers gone every request still ends: refused by the router, or when its client gives up.
func TestAllWorkersGone(t *testing.T) {
	w := agents(t, synth.Options{Programs: 10, Seed: 3})
	for _, policy := range []string{"round-robin", "kv", "sticky", "thunderagent"} {
		d := fleetOf(2, policy, 5)
		d.Client.Timeout = 900 * time.Second
		d.Faults = []Fault{{At: 30 * time.Second, Worker: 0, Action: "remove"}, {At: 30 * time.Second, Worker: 1, Action: "remove"}}
		res := mustRun(t, w, d)
		done, refused, failed := 0, 0, 0
		for i := range res.Requests {
			switch res.Requests[i].Status {
			case report.Completed:
				done++
			case report.Rejected:
				refused++
			case report.Failed:
				failed++
			}
		}
		if done == 0 || refused == 0 || done+refused+failed != len(res.Requests) {
			t.Errorf("%s: of %d requests %d completed, %d were refused and %d failed, want all of them and some of the first two",
				policy, len(res.Requests), done, refused, failed)
		}
	}
}

// What waits in the router's queue when the last worker goes waits for one to return: for ever, if none does.
func TestQueueWithoutWorkers(t *testing.T) {
	var sessions []*trace.Session
	for i := range 2 {
		sessions = append(sessions, session(fmt.Sprint("s", i), uint64(100*i), trace.Turn{Input: 40, Output: 1, Start: time.Duration(i) * ms, End: 400 * ms}))
	}
	d := fixed()
	d.Router.ThresholdTokens, d.Client.Timeout = 1, 0
	d.Faults = []Fault{{At: 5 * ms, Worker: 0, Action: "remove"}, {At: 100 * ms, Worker: 0, Action: "return"}}
	for n, want := range map[int][]report.Status{1: {report.Failed, report.Unfinished}, 2: {report.Failed, report.Completed}} {
		cut := d
		cut.Faults = d.Faults[:n]
		res := mustRun(t, compile(t, sessions...), cut)
		if got := []report.Status{res.Requests[0].Status, res.Requests[1].Status}; !slices.Equal(got, want) || len(res.Programs) != 2 {
			t.Errorf("%d faults: requests have status %v and %d programs are listed, want %v and 2", n, got, len(res.Programs), want)
		}
	}
}

// A program beyond 85 % of every worker is never resumed but by force, one beyond 100 % is rejected before it comes to
// the scheduler; a version without timeouts keeps the former for ever, and the run ends without it.
func TestProgramLargerThanTheCeiling(t *testing.T) {
	big := session("big", 1000, trace.Turn{Start: 0, End: 100 * ms, Input: 3600, Output: 2}, trace.Turn{Start: 200 * ms, End: 300 * ms, Input: 3700, Output: 2})
	var sessions []*trace.Session
	for i := range 4 {
		sessions = append(sessions, session(fmt.Sprint("s", i), uint64(10000*(i+2)), trace.Turn{Start: 0, End: 100 * ms, Input: 1500, Output: 2},
			trace.Turn{Start: 20 * time.Second, End: 21 * time.Second, Input: 1600, Output: 2}))
	}
	w := compile(t, append(sessions, big)...)
	d := fixed()
	d.Router.Policy = "thunderagent"
	d.Client.Timeout = 0
	res := mustRun(t, w, d)
	forced := time.Duration(0)
	for i := range res.Requests {
		if q := &res.Requests[i]; w.Sessions[q.Session].ID == "big" {
			forced = max(forced, q.Held)
		}
	}
	if forced < 1800*time.Second || forced > 1805*time.Second+ms || res.Scheduler.ForcedResumes == 0 {
		t.Errorf("the large program was held for %v with %d forced resumes, want one after 1800 s and a tick at most", forced, res.Scheduler.ForcedResumes)
	}
	d.Router.ThunderAgent.Preset = "paper"
	d.Router.ThunderAgent.Parameters = map[string]any{"buffer_per_program": 2000} // beyond what a worker holds
	res = mustRun(t, w, d)
	unfinished := 0
	for i := range res.Requests {
		if res.Requests[i].Status == report.Unfinished {
			unfinished++
		}
	}
	if unfinished == 0 {
		t.Error("nothing is unfinished, want the programs that no worker can take")
	}
	if n := len(res.Programs); n != len(w.Programs) {
		t.Errorf("%d programs are listed, want all %d, ended or not", n, len(w.Programs))
	}
}

// Agents may wait on each other: a parent holds its KV while its child is held, and gets it back.
func TestParentWaitsForAPausedChild(t *testing.T) {
	w := agents(t, synth.Options{Programs: 30, Seed: 8, Set: []string{"subagents=0.2"}})
	d := fleetOf(1, "thunderagent", 20)
	d.Engine.KVBlocks = "6000"
	res := mustRun(t, w, d)
	children := 0
	for i := range res.Requests {
		q := &res.Requests[i]
		if q.Status != report.Completed && q.Worker >= 0 {
			t.Fatalf("request %d has status %v", i, q.Status)
		}
		if w.Sessions[q.Session].Parent != "" && q.Held > 0 {
			children++
		}
	}
	if children == 0 {
		t.Error("no subagent was held: the test does not test what it says")
	}
}

// A version that forgets a program when its last request ends, and not when it starts, charges what that request generates.
func TestLastRequestIsCharged(t *testing.T) {
	w := compile(t, session("a", 100, trace.Turn{Input: 8, Output: 100, Start: 0, End: 400 * ms})) // 8 + 1 tokens at 10 ms, one more each 5 ms
	d := fixed()
	d.Router.Policy, d.Router.ThunderAgent.Preset = "thunderagent", "upstream"
	d.Router.ThunderAgent.Parameters = map[string]any{"scheduler_interval_seconds": 0.102, "buffer_per_program": 0}
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	var used []int64
	_, err = Run(context.Background(), w, p, Options{Ticks: func(_ int, _ time.Duration, before bool, table *thunderagent.Table) {
		if before {
			used = append(used, table.Accounts()[0].Used)
		}
	}})
	if want := []int64{27, 47, 68, 88}; err != nil || !slices.Equal(used, want) {
		t.Errorf("charged %d tokens at the ticks (error %v), want %d", used, err, want)
	}
}

// Rollout begins all programs at once and none twice.
func TestRollout(t *testing.T) {
	w := agents(t, synth.Options{Programs: 12, Seed: 3})
	d := fleetOf(1, "kv", 0)
	d.Load = Load{Mode: "rollout", Speed: 1, MaxGap: "none", HumanGap: "recorded", Start: "ramp"}
	res := mustRun(t, w, d)
	for i := range res.Programs {
		if p := &res.Programs[i]; p.First != 0 || p.Copy != 0 {
			t.Errorf("program %d begins at %v as copy %d, want 0s and 0", i, p.First, p.Copy)
		}
	}
	if len(res.Programs) != 12 {
		t.Errorf("%d programs ran, want 12", len(res.Programs))
	}
}

// Hints of rules reach the engine: root sessions go before subagents under priority scheduling, not under fcfs.
func TestHintRules(t *testing.T) {
	var sessions []*trace.Session
	for i := range 6 {
		s := session(fmt.Sprint("s", i), uint64(100*i), trace.Turn{Start: time.Duration(i) * ms, End: 300 * ms, Input: 8, Output: 20})
		s.Class = []string{"batch", "chat"}[i%2]
		sessions = append(sessions, s)
	}
	w := compile(t, sessions...)
	d := fixed()
	d.Engine.MaxNumSeqs = 1
	ten := int32(10)
	d.Hints = []HintRule{{Match: HintMatch{Class: "ch*"}, Priority: &ten}}
	order := func(scheduling string) (order []int32) {
		d.Engine.Scheduling = scheduling
		res := mustRun(t, w, d)
		for i := range res.Requests {
			order = append(order, int32(i))
		}
		slices.SortFunc(order, func(a, b int32) int { return int(res.Requests[a].Admitted - res.Requests[b].Admitted) })
		return order
	}
	if got, want := order("fcfs"), []int32{0, 1, 2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("fcfs admits %v, want %v", got, want)
	}
	if got, want := order("priority"), []int32{0, 1, 3, 5, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("priority admits %v, want %v", got, want)
	}
}
