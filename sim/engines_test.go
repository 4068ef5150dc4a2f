package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// agents makes a synthetic workload of coding agents.
func agents(t *testing.T, o synth.Options) *trace.Workload {
	t.Helper()
	c, err := synth.Generate("mini-swe-agent", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestEngineKinds runs agents on two workers of each kind with room for few of them, every conservation law checked.
func TestEngineKinds(t *testing.T) {
	w := agents(t, synth.Options{Programs: 12, Seed: 3, Set: []string{"turns=10"}})
	for _, test := range []struct{ kind, scheduling, tokens string }{
		{"vllm", "fcfs", "3000"}, {"sglang", "fcfs", "48000"}, {"sglang", "lpm", "48000"}, {"trtllm", "fcfs", "1500"}, // of 16, 1 and 32 tokens
	} {
		t.Run(test.kind+" "+test.scheduling, func(t *testing.T) {
			d := fixed()
			d.Workers, d.Engine.BlockSize = 2, 0
			d.Engine.Kind, d.Engine.Scheduling, d.Engine.KVBlocks = test.kind, test.scheduling, test.tokens
			d.Client.Timeout = 0
			d.Load.Mode, d.Load.Concurrency = "concurrency", 12
			first, again := mustRun(t, w, d), mustRun(t, w, d)
			if diff := cmp.Diff(first.Requests, again.Requests); diff != "" {
				t.Errorf("two runs differ: %s", diff)
			}
			evicted, preempted, hit, input := int64(0), int64(0), int64(0), int64(0)
			for i := range first.Engines {
				evicted += first.Engines[i].Evicted
				preempted += first.Engines[i].Preemptions
			}
			for i := range first.Requests {
				q := &first.Requests[i]
				hit += int64(q.Hit)
				input += int64(q.Input)
				if q.Status != report.Completed {
					t.Fatalf("request %d ended %v", i, q.Status)
				}
			}
			if evicted == 0 || hit == 0 || hit > input {
				t.Errorf("%d blocks evicted, %d of %d tokens hit: the test needs both", evicted, hit, input)
			}
			if test.kind == "trtllm" && preempted > 0 {
				t.Errorf("%d preemptions in spite of GUARANTEED_NO_EVICT", preempted)
			}
		})
	}
}

// TestEngineDefaults: keys that are not set follow engine.kind, those that are stay.
func TestEngineDefaults(t *testing.T) {
	for _, test := range []struct {
		set     Engine
		want    Engine
		profile string
	}{
		{Engine{Kind: "vllm"}, Engine{Version: "0.19", BlockSize: 16, MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, AsyncScheduling: "true", Admission: "full"}, "h100-vllm"},
		{Engine{Kind: "sglang"}, Engine{Version: "0.5", BlockSize: 1, MaxNumSeqs: 2048, MaxNumBatchedTokens: 8192,
			MaxPrefillTokens: 16384, ScheduleConservativeness: 1, AsyncScheduling: "false"}, "h100-sglang"},
		{Engine{Kind: "sglang", BlockSize: 64, MaxNumBatchedTokens: 4096}, Engine{Version: "0.5", BlockSize: 64, MaxNumSeqs: 2048,
			MaxNumBatchedTokens: 4096, MaxPrefillTokens: 16384, ScheduleConservativeness: 1, AsyncScheduling: "false"}, "h100-sglang"},
		{Engine{Kind: "trtllm"}, Engine{Version: "1.0", BlockSize: 32, MaxNumSeqs: 2048, MaxNumBatchedTokens: 8192, AsyncScheduling: "false"}, "h100-trtllm"},
	} {
		d := Default()
		d.Model = "qwen3-14b"
		test.set.Scheduling, test.set.KVBlocks = "fcfs", "1000"
		d.Engine = test.set
		p, err := d.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		got := p.Engine
		got.Kind, got.Scheduling, got.KVBlocks, got.GPUMemoryUtilization, got.MaxModelLen = "", "", "", 0, 0
		if diff := cmp.Diff(test.want, got); diff != "" || p.Deployment.Cost.Profile != test.profile {
			t.Errorf("%+v: profile %s, %s", test.set, p.Deployment.Cost.Profile, diff)
		}
		// vLLM counts its null block.
		if want := map[bool]int{true: 999, false: 1000}[test.set.Kind == "vllm"]; p.Blocks != want || p.Engine.KVBlocks != "1000" {
			t.Errorf("%s has %d usable blocks of %s, want %d", test.set.Kind, p.Blocks, p.Engine.KVBlocks, want)
		}
	}
}

// TestAsyncScheduling: auto is vLLM's own default, and off where step times are fixed by hand; what is set is kept, and
// where steps are prepared one after the other the host's time for it counts.
func TestAsyncScheduling(t *testing.T) {
	for _, test := range []struct {
		set, kind, version, profile string
		want                        string // or the error
	}{
		{"auto", "vllm", "", "", "true"},
		{"", "vllm", "0.14.1", "", "true"},
		{"auto", "vllm", "0.13", "", "false"},
		{"auto", "vllm", "", "fixed", "false"},
		{"auto", "sglang", "", "", "false"},
		{"true", "vllm", "0.13", "", "true"},
		{"true", "vllm", "", "fixed", "true"},
		{"false", "vllm", "", "", "false"},
		{"true", "trtllm", "", "", "engine.async_scheduling: only engine.kind vllm has it"},
		{"yes", "vllm", "", "", `engine.async_scheduling: "yes" is unknown, want auto, true or false`},
	} {
		d := Default()
		d.Model = "qwen3-14b"
		d.Engine.AsyncScheduling, d.Engine.Kind, d.Engine.Version = test.set, test.kind, test.version
		d.Cost = Cost{Profile: test.profile, Prefill: ms, Decode: ms}
		p, err := d.Resolve()
		if err != nil {
			if err.Error() != test.want {
				t.Errorf("%+v: %v", test, err)
			}
			continue
		}
		if p.Engine.AsyncScheduling != test.want || p.Async != (test.want == "true") {
			t.Errorf("%+v: %s", test, p.Engine.AsyncScheduling)
		}
		again, err := p.Deployment.Resolve()
		if err != nil || again.Async != p.Async {
			t.Errorf("%+v: the resolved config has %v, %v", test, again, err)
		}
	}
	ahead, after := Default(), Default()
	ahead.Model, after.Model = "qwen3-14b", "qwen3-14b"
	after.Engine.AsyncScheduling = "false"
	p, err := ahead.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	q, err := after.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := models.LookupProfile("h100-vllm")
	if err != nil {
		t.Fatal(err)
	}
	want := time.Duration((profile.SyncStepUs + 10*profile.SyncRequestUs) * 1e3)
	batch := models.Batch{Decodes: 10}
	if more := (q.Cost.Base(batch) - p.Cost.Base(batch)).Duration(); (more-want).Abs() > 10 || want == 0 {
		t.Errorf("a step of 10 decodes costs %v more without asynchronous scheduling, want %v", more, want)
	}
}

// TestAttentionDataParallel: SGLang divides its chunks between the ranks, and reserves less.
func TestAttentionDataParallel(t *testing.T) {
	d := Default()
	d.Model = "qwen3-14b"
	d.Engine.Kind, d.Parallelism.Data = "sglang", 4
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.newEngine(0, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e.MaxBatchedTokens != 8192/4 || e.SGLang.Conservativeness != 0.3 {
		t.Errorf("chunks of %d tokens and conservativeness %v, want 2048 and 0.3", e.MaxBatchedTokens, e.SGLang.Conservativeness)
	}
}

// TestMaxTokens: two calls of 16 tokens of prompt and 5 of output with 100 tokens of KV. When clients allow 64 each, 0.7 ·
// 63 = 44.1 are reserved for the first, and 16 + 64 + 1 for the second do not fit beside its 16: it waits.
func TestMaxTokens(t *testing.T) {
	for _, test := range []struct{ maxTokens, wait int }{{0, 10}, {64, 30}} {
		d := fixed()
		d.Engine.Kind, d.Engine.BlockSize, d.Engine.KVBlocks = "sglang", 1, "100"
		d.Client.MaxTokens = test.maxTokens
		res := mustRun(t, compile(t, session("a", 100, trace.Turn{Input: 16, Output: 5, Start: 0, End: 50 * ms}),
			session("b", 200, trace.Turn{Input: 16, Output: 5, Start: 5 * ms, End: 50 * ms})), d)
		// The first one's tokens come at 10, 15, 20, 25 and 30 ms when the second does not stop it.
		if got := int(res.Requests[1].Admitted / ms); got != test.wait {
			t.Errorf("client.max_tokens %d: the second is admitted at %d ms, want %d", test.maxTokens, got, test.wait)
		}
	}
}
