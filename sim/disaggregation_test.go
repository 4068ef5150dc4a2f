package sim

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// split is fixed with one worker that decodes, worker 0, and one that prefills, worker 1.
func split() Deployment {
	d := fixed()
	d.Workers, d.Disaggregation.PrefillWorkers = 2, 1
	d.Client.Timeout = 0
	return d
}

// moved is how long blocks of 4 tokens of Qwen3-14B take from one H100 of a node to another: 10 us, and 40 layers × 2 × 8 heads ×
// 128 × 2 bytes for each token at 450 GB/s.
func moved(blocks int) time.Duration {
	return 10*time.Microsecond + time.Duration(math.Ceil(float64(blocks*4*40*2*8*128*2)/450))
}

// Two turns of a session, worked out by hand. The first has 10 tokens and 3 to generate:
//
//	 0 ms          prefill step of 10 ms on worker 1
//	10 ms          9 tokens, that is 3 blocks, move
//	10 ms + moved  step of 10 ms with the last prompt token on worker 0: the first token; then two decode steps of 5 ms
//
// The second has 20 tokens. Worker 1 has 8 of them (2 full blocks) and computes 12; worker 0 has 12, of which it generated 2, and
// gets the 2 blocks up to token 19.
func TestHandOverByHand(t *testing.T) {
	w := compile(t, session("a", 100,
		trace.Turn{Input: 10, Output: 3, Start: 0, End: 30 * ms},
		trace.Turn{Input: 20, Output: 2, Start: 130 * ms, End: 150 * ms}))
	res := mustRun(t, w, split())
	first := 20*ms + moved(3)
	second := first + 10*ms + 100*ms // its arrival
	want := [][3]time.Duration{{0, first, first + 10*ms}, {second, second + 20*ms + moved(2), second + 25*ms + moved(2)}}
	if d := cmp.Diff(want, times(res)); d != "" {
		t.Errorf("arrivals, first tokens, ends (-want +got):\n%s", d)
	}
	came := second + 10*ms
	handed := []Handover{
		{Worker: 1, Ended: 10 * ms, Began: 10 * ms, Came: 10*ms + moved(3), Blocks: 3, Found: 9},
		{Worker: 1, Ended: came, Began: came, Came: came + moved(2), Blocks: 2, Found: 19, Cached: 12}}
	if d := cmp.Diff(handed, res.Handovers); d != "" {
		t.Errorf("handed over (-want +got):\n%s", d)
	}
	for i, want := range []struct{ hit, computed, migrated int32 }{{0, 11, 0}, {8, 13, 5}} {
		if q := res.Requests[i]; q.Worker != 0 || q.Hit != want.hit || q.Computed != want.computed || q.RecomputedMigration != want.migrated {
			t.Errorf("turn %d on worker %d has %d tokens cached, %d computed, %d of them elsewhere before; want worker 0 and %+v",
				i, q.Worker, q.Hit, q.Computed, q.RecomputedMigration, want)
		}
	}
	pools := res.Report(nil, nil).Disaggregation
	if pools.Prefill.Requests != 2 || pools.Decode.Requests != 2 || pools.HandedOver != 2 || pools.Local != 0 || pools.Bytes != 5*4*163840 {
		t.Errorf("pools are %+v, want 2 requests in each and 5 blocks moved", pools)
	}
	mean := (moved(3) + moved(2)).Seconds() * 500
	if got := pools.TTFT.Transfer.MeanMs.Value; math.Abs(got-mean) > 1e-9 || pools.Prefill.BusyS.Value != 0.02 || pools.Decode.BusyS.Value != 0.035 {
		t.Errorf("pools are %+v, want transfers of %v ms in the mean, 20 ms of prefill and 35 of decode", pools, mean)
	}
	var records []*trace.Record
	for rec := range res.Records() {
		records = append(records, rec)
	}
	if q := records[0].Request; *q.Worker.PrefillWorkerID != 2 || *q.Worker.DecodeWorkerID != 1 || *q.KVTransferLatencyMs != (10*ms+moved(3)).Seconds()*1000 {
		t.Errorf("the record tells of workers %d and %d, and %v ms", *q.Worker.PrefillWorkerID, *q.Worker.DecodeWorkerID, *q.KVTransferLatencyMs)
	}
}

// Two prompts that are computed in one step leave worker 1 together: each transfer gets half of the link.
func TestHandOversShareTheLink(t *testing.T) {
	w := compile(t,
		session("a", 100, trace.Turn{Input: 10, Output: 1, Start: 0, End: 30 * ms}),
		session("b", 200, trace.Turn{Input: 10, Output: 1, Start: 0, End: 30 * ms}))
	for i, h := range mustRun(t, w, split()).Handovers {
		if h.Came != 10*ms+moved(6) {
			t.Errorf("prompt %d comes at %v, want %v", i, h.Came, 10*ms+moved(6))
		}
	}
}

// 11 blocks hold two prompts of 20 tokens, but not their answers too, for which TensorRT-LLM keeps room: the second prompt stays
// on worker 1 until the first request has ended.
func TestHandOverWaitsForRoom(t *testing.T) {
	w := compile(t,
		session("a", 100, trace.Turn{Input: 20, Output: 5, Start: 0, End: 30 * ms}),
		session("b", 200, trace.Turn{Input: 20, Output: 5, Start: 0, End: 30 * ms}))
	d := split()
	d.Engine.Kind, d.Engine.Version, d.Engine.KVBlocks = "trtllm", "", "11"
	res := mustRun(t, w, d)
	a, b := res.Handovers[0], res.Handovers[1]
	if a.Began != 10*ms || b.Began != res.Requests[0].End {
		t.Errorf("transfers begin at %v and %v, want 10ms and the end of the first at %v", a.Began, b.Began, res.Requests[0].End)
	}
}

// What a decode worker prefills itself, under conditional disaggregation: the second turn lacks 8 tokens there.
func TestConditionalDisaggregation(t *testing.T) {
	w := compile(t, session("a", 100,
		trace.Turn{Input: 10, Output: 3, Start: 0, End: 30 * ms},
		trace.Turn{Input: 20, Output: 2, Start: 130 * ms, End: 150 * ms}))
	for _, test := range []struct {
		most int
		want []int32
	}{{7, []int32{1, 1}}, {8, []int32{1, -1}}, {9, []int32{1, -1}}, {10, []int32{-1, -1}}} {
		d := split()
		d.Disaggregation.Mode, d.Disaggregation.MaxLocalPrefill = "conditional", test.most
		var got []int32
		for _, h := range mustRun(t, w, d).Handovers {
			got = append(got, h.Worker)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("max_local_prefill %d: prefilled by (-want +got):\n%s", test.most, diff)
		}
	}
	w = compile(t,
		session("a", 100, trace.Turn{Input: 10, Output: 1, Start: 0, End: 30 * ms}),
		session("b", 200, trace.Turn{Input: 10, Output: 1, Start: 1 * ms, End: 30 * ms}),
		session("c", 300, trace.Turn{Input: 10, Output: 1, Start: 2 * ms, End: 30 * ms}))
	for _, test := range []struct {
		queue int
		last  int32 // behind one that waits
	}{{0, 1}, {1, -1}, {2, 1}} {
		d := split()
		d.Disaggregation = Disaggregation{PrefillWorkers: 1, Mode: "conditional", MaxQueue: test.queue}
		if h := mustRun(t, w, d).Handovers; h[1].Worker != 1 || h[2].Worker != test.last {
			t.Errorf("max_queue %d: the second prompt is prefilled by %d, the third by %d, want 1 and %d", test.queue, h[1].Worker, h[2].Worker, test.last)
		}
	}
}

// Each kind of worker has a router of its own: prompts of a session stay on one prefill worker, answers take turns.
func TestPoolsHavePolicies(t *testing.T) {
	var turns []trace.Turn
	for i := range 4 {
		at := time.Duration(i) * 200 * ms
		turns = append(turns, trace.Turn{Input: int32(10 + 8*i), Output: 2, Start: at, End: at + 30*ms})
	}
	w := compile(t, session("a", 100, turns...), session("b", 200, turns...))
	d := split()
	d.Workers, d.Disaggregation.PrefillWorkers = 4, 2
	d.Disaggregation.PrefillPolicy, d.Disaggregation.DecodePolicy = "sticky", "round-robin"
	res := mustRun(t, w, d)
	prefills, decodes := map[int32][]int32{}, []int32{}
	for i, q := range res.Requests {
		prefills[q.Session] = append(prefills[q.Session], res.Handovers[i].Worker)
		decodes = append(decodes, q.Worker)
	}
	if diff := cmp.Diff(map[int32][]int32{0: {3, 3, 3, 3}, 1: {2, 2, 2, 2}}, prefills); diff != "" {
		t.Errorf("workers that prefill, by session (-want +got):\n%s", diff)
	}
	for i := 0; i < len(decodes); i += 2 { // both sessions at a time
		if decodes[i] == decodes[i+1] {
			t.Errorf("workers that decode are %v, want both in turn", decodes)
		}
	}
}

// A worker lost at any time leaves nothing behind on the others: no block in use, nothing on the way. What becomes of the first
// prompt, whose transfer lasts from 10 ms on for 14 us: where the worker that prefilled it is lost meanwhile, the one that decodes
// computes it again.
func TestLostWorkersHandNothingOver(t *testing.T) {
	during := 10*ms + 5*time.Microsecond
	for worker, want := range []map[string]bool{
		{"rejected: prefilled": true, "failed: prefilled": true, "failed: handed over": true, "completed: handed over": true},
		{"failed: not prefilled": true, "completed: prefilled": true, "completed: handed over": true},
	} {
		got := map[string]bool{}
		for at := 1 * ms; at < 60*ms; at += 1003 * time.Microsecond {
			d := split()
			d.Faults = []Fault{{At: at, Worker: worker, Action: "remove"}, {At: 70 * ms, Worker: worker, Action: "return"}}
			if at > during && at < during+ms {
				d.Faults[0].At = during
			}
			res := clean(t, d)
			q, h := res.Requests[0], res.Handovers[0]
			how := "not prefilled"
			if h.Came != report.None {
				how = "handed over"
			} else if h.Ended != report.None {
				how = "prefilled"
			}
			got[q.Status.String()+": "+how] = true
			if how == "prefilled" && q.Status == report.Completed && (q.FirstToken != during+10*ms || q.Computed != 20) {
				t.Errorf("the first token of %+v comes at %v, want a second prefill of 10 ms from %v on", q, q.FirstToken, during)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("worker %d lost: fates of the first request (-want +got):\n%s", worker, diff)
		}
	}
}

// Clients that give up at any time leave nothing behind.
func TestCancelledHandOvers(t *testing.T) {
	for _, mode := range []string{"always", "conditional"} {
		for timeout := 500 * time.Microsecond; timeout < 32*ms; timeout += 499_500 * time.Nanosecond {
			d := split()
			d.Client.Timeout = timeout
			d.Disaggregation = Disaggregation{PrefillWorkers: 1, Mode: mode}
			clean(t, d)
		}
		d := split()
		d.Client.Timeout = 10*ms + 5*time.Microsecond // during the transfer
		d.Disaggregation = Disaggregation{PrefillWorkers: 1, Mode: mode}
		if q := clean(t, d).Requests[0]; q.Status != report.Failed {
			t.Errorf("%s: a client that gives up during the transfer has %v", mode, q.Status)
		}
	}
}

// clean runs three prompts at once, and fails when anything is in use or on its way at the end.
func clean(t *testing.T, d Deployment) *Result {
	t.Helper()
	w := compile(t,
		session("a", 100, trace.Turn{Input: 10, Output: 3, Start: 0, End: 30 * ms}),
		session("b", 100, trace.Turn{Input: 23, Output: 2, Start: 1 * ms, End: 30 * ms}),
		session("c", 300, trace.Turn{Input: 9, Output: 1, Start: 2 * ms, End: 30 * ms}))
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRun(w, p, Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	r.openDoors()
	if err := r.loop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := r.checkRequests(); err != nil {
		t.Error(err)
	}
	if next := r.memory.Next(); next != 1<<63-1 {
		t.Errorf("%+v, timeout %v: something is on its way at the end, until %v", d.Faults, d.Client.Timeout, next)
	}
	for i, e := range r.engines {
		if used := e.UsedBlocks(); used > 0 {
			t.Errorf("%+v, timeout %v: %d blocks of worker %d are in use at the end", d.Faults, d.Client.Timeout, used, i)
		}
	}
	return r.finish()
}

// Without any prefill worker left the others prefill.
func TestNoPrefillWorkerLeft(t *testing.T) {
	d := split()
	d.Faults = []Fault{{At: 0, Worker: 1, Action: "remove"}}
	res := clean(t, d)
	for i, q := range res.Requests {
		if q.Status != report.Completed || res.Handovers[i].Worker != -1 {
			t.Errorf("request %d: %v, prefilled by %d, want it completed by worker 0 alone", i, q.Status, res.Handovers[i].Worker)
		}
	}
}

func TestWrongDisaggregation(t *testing.T) {
	for _, test := range []struct {
		change func(*Deployment)
		key    string
		what   string
	}{
		{func(d *Deployment) { d.Workers = 1 }, "disaggregation.prefill_workers", "leave none that decodes"},
		{func(d *Deployment) { d.Disaggregation.PrefillWorkers = -1 }, "disaggregation.prefill_workers", "out of range"},
		{func(d *Deployment) { d.Disaggregation.Mode = "sometimes" }, "disaggregation.mode", "want always or conditional"},
		{func(d *Deployment) { d.Disaggregation.MaxLocalPrefill = -1 }, "disaggregation.max_local_prefill", "out of range"},
		{func(d *Deployment) { d.Disaggregation.MaxQueue = -1 }, "disaggregation.max_queue", "out of range"},
		{func(d *Deployment) { d.Disaggregation.MaxNumBatchedTokens = 100 }, "disaggregation.max_num_batched_tokens", "below engine.max_num_seqs"},
		{func(d *Deployment) { d.Disaggregation.PrefillPolicy = "best" }, "disaggregation.prefill_policy", "unknown"},
		{func(d *Deployment) { d.Disaggregation.DecodePolicy = "best" }, "disaggregation.decode_policy", "unknown"},
		{func(d *Deployment) { d.Router.Policy = "thunderagent" }, "disaggregation.prefill_workers", "aggregated serving only"},
		{func(d *Deployment) { d.Disaggregation.DecodePolicy = "thunderagent" }, "disaggregation.prefill_workers", "aggregated serving only"},
		{func(d *Deployment) { d.Engine.Kind, d.Engine.Version = "sglang", "" }, "disaggregation.prefill_workers", "not for sglang"},
		{func(d *Deployment) { d.Engine.PrefixCaching = false }, "disaggregation.prefill_workers", "engine.prefix_caching"},
		{func(d *Deployment) { d.Engine.Scheduling = "continuum" }, "disaggregation.prefill_workers", "continuum"},
		{func(d *Deployment) { d.KV.Policy = "all" }, "kv.policy", "aggregated serving"},
	} {
		d := split()
		test.change(&d)
		_, err := d.Resolve()
		var config *ConfigError
		if !errors.As(err, &config) || config.Key != test.key || !strings.Contains(err.Error(), test.what) {
			t.Errorf("error is %v, want one at %s about %q", err, test.key, test.what)
		}
	}
	p, err := split().Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewService(p, nil); err == nil || !strings.Contains(err.Error(), "disaggregation.prefill_workers") {
		t.Errorf("serving it live gives %v, want an error that names disaggregation.prefill_workers", err)
	}
}
