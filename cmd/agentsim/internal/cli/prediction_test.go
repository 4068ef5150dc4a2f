package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim"
)

// wholePrediction sets every key that is simulated.
const wholePrediction = `
traffic:
  source: {type: trace, format: agentic_mooncake, paths: [day1.jsonl, day2.jsonl], block_size: 64}
  load: {type: trace_timestamps, speedup: 1.5, agentic_lanes: 12, agentic_snapshot: {seed: 9}, agentic_warmup: false}
  stop: {max_virtual_time_seconds: 300}
engine:
  mode: aggregated
  model: Qwen/Qwen3-235B-A22B-FP8
  hardware: h200_sxm
  backend: sglang
  backend_version: "0.5.6"
  context_length: 32768
  speculation: null
  workers:
    aggregated:
      parallelism: {replicas: 3, tensor: 2, pipeline: 1, context: 1, attention_data: 2, moe_tensor: 1, moe_expert: 4}
      scheduler: {max_batched_tokens: 4096, max_sequences: 96, prefill_schedule_interval: 1}
      kv_cache:
        block_size: 64
        prefix_caching: false
        bytes_per_token: auto
        capacity: {type: default, memory_fraction: 0.8, cuda_graph_reserved_bytes: 0}
      timing: {type: fixed, prefill_ms: 12.5, decode_ms: 4}
      startup_seconds: 0
router: {policy: kv_router, prefill_load_model: {type: none}, overlap_score_credit: 2, prefill_load_scale: 4, temperature: 0.5}
planner: {policy: disabled}
evaluation: {sla: {ttft_ms: 900, itl_ms: 40}}
execution: {resources: {memory_limit_gb: 8}}
`

// smallPrediction has no more than it must.
const smallPrediction = `
engine:
  model: Qwen/Qwen3-14B
  hardware: h100_sxm
`

func TestPrediction(t *testing.T) {
	small := func(d *sim.Deployment) {
		d.Model, d.GPU, d.Parallelism.Tensor, d.Router.Policy = "qwen3-14b", "h100-sxm", 1, "round-robin"
		d.Engine.BlockSize, d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens, d.Engine.GPUMemoryUtilization = 64, 256, 8192, 0.9
	}
	for _, c := range []struct {
		name, text string
		want       func(*sim.Deployment)
		traffic    traffic
	}{
		{"small", smallPrediction, small, traffic{}},
		{"whole", wholePrediction, func(d *sim.Deployment) {
			d.Model, d.DType.Weights, d.GPU = "qwen3-235b-a22b", "fp8", "h200-sxm"
			d.Workers, d.Parallelism = 3, sim.Parallelism{Tensor: 2, Pipeline: 1, Data: 2, Expert: 4}
			d.Engine = sim.Engine{Kind: "sglang", Version: "0.5.6", BlockSize: 64, MaxNumSeqs: 96, MaxNumBatchedTokens: 4096, MaxPrefillTokens: 4096,
				MaxModelLen: 32768, GPUMemoryUtilization: 0.8, Scheduling: "fcfs", KVEviction: "lru", AsyncScheduling: "auto", KVBlocks: "auto"}
			d.Cost = sim.Cost{Profile: "fixed", Prefill: 12500 * time.Microsecond, Decode: 4 * time.Millisecond}
			d.Router.Policy, d.Router.OverlapScoreCredit, d.Router.PrefillLoadScale, d.Router.Temperature = "kv", 2, 4, 0.5
			d.Load.Mode, d.Load.Concurrency, d.Load.Speed, d.Load.Start, d.Seed = "concurrency", 12, 1.5, "snapshot", 9
			d.Load.Duration = 300 * time.Second
			d.SLO.TTFT, d.SLO.ITL = 900*time.Millisecond, 40*time.Millisecond
		}, traffic{[]string{"day1.jsonl", "day2.jsonl"}, "agentic-mooncake", 64}},
		{"closed", smallPrediction + "traffic: {source: {type: trace}, load: {type: trace_timestamps}}", func(d *sim.Deployment) {
			small(d)
			d.Load.Mode = "closed"
		}, traffic{}},
		{"default load", smallPrediction + "traffic: {source: {type: trace}}", func(d *sim.Deployment) {
			small(d)
			d.Load.Mode, d.Load.Concurrency = "concurrency", 10
		}, traffic{}},
		{"blocks", smallPrediction + "  workers: {aggregated: {kv_cache: {capacity: {type: fixed, blocks: 9000}}}}", func(d *sim.Deployment) {
			small(d)
			d.Engine.KVBlocks = "9001" // and vLLM's null block
		}, traffic{}},
		{"trtllm", smallPrediction + "  backend: trtllm", func(d *sim.Deployment) {
			small(d)
			d.Engine.Kind, d.Engine.BlockSize = "trtllm", 32
		}, traffic{}},
	} {
		file := filepath.Join(t.TempDir(), "prediction.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, work, err := loadConfig(file)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := sim.Default()
		c.want(&want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, diff)
		}
		if diff := cmp.Diff(c.traffic, work, cmp.AllowUnexported(traffic{})); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, diff)
		}
		if _, err := got.Resolve(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestPredictionRefusals changes one place of a file that is good. What is not simulated is named, with its place.
func TestPredictionRefusals(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"speculation: null", "speculation: {kind: ngram}", `13:23: engine.speculation.kind: agentsim does not simulate this`},
		{"speculation: null", "kv_transfer: {timing_mode: full_prompt}", "engine.kv_transfer.timing_mode: agentsim does not simulate this"},
		{"mode: aggregated", "mode: disaggregated", `7:9: engine.mode: agentsim does not simulate "disaggregated", only aggregated`},
		{"speculation: null", "worker: {}\n  typo: 1", `14:9: engine.typo: unknown key`},
		{"prefix_caching", "prefix_cache", `engine.workers.aggregated.kv_cache.prefix_cache: unknown key, did you mean "engine.workers.aggregated.kv_cache.prefix_caching"?`},
		{"bytes_per_token: auto", "bytes_per_token: 131072", `kv_cache.bytes_per_token: agentsim does not simulate "131072", only auto`},
		{"bytes_per_token: auto", "host_offload: {num_host_blocks: 8}", "kv_cache.host_offload.num_host_blocks: agentsim does not simulate this"},
		{"type: default, memory_fraction: 0.8", "type: fixed, blocks: 8, memory_fraction: 0.8", "memory_fraction: goes with type default"},
		{"type: default, memory_fraction: 0.8", "type: fixed", "capacity.type: fixed needs blocks"},
		{"memory_fraction: 0.8", "blocks: 8", "capacity.blocks: goes with type fixed"},
		{"memory_fraction: 0.8", "memory_fraction: 1.5", `"1.5" is not a number from 1e-06 to 1`},
		{"type: fixed, prefill_ms: 12.5", "type: polynomial, prefill_ms: 12.5", `timing.type: agentsim does not simulate "polynomial", only default, fixed`},
		{"prefill_ms: 12.5, ", "", "timing.type: fixed needs prefill_ms and decode_ms"},
		{"type: fixed, prefill_ms: 12.5", "type: default, prefill_ms: 12.5", "timing.prefill_ms: goes with type fixed"},
		{"replicas: 3", "replicas: 0", `16:31: engine.workers.aggregated.parallelism.replicas: "0" is not a whole number from 1`},
		{"replicas: 3", `replicas: "3"`, "is not a whole number from 1"},
		{"replicas: 3", "replicas: {choices: [1, 2]}", "parallelism.replicas.choices: unknown key"},
		{"moe_tensor: 1", "moe_tensor: 2", "parallelism.moe_tensor: 2, want the 4 ranks of a worker divided by moe_expert 4"},
		{"prefix_caching: false", "prefix_caching: no", `"no" is not true or false`},
		{"model: Qwen/Qwen3-235B-A22B-FP8", "model: Qwen/Qwen9", "8:10: engine.model: unknown model"},
		{"hardware: h200_sxm", "hardware: h900_sxm", "9:13: engine.hardware: unknown gpu"},
		{"hardware: h200_sxm", "x: ", "engine.hardware: missing"},
		{"backend: sglang", "backend: ollama", `engine.backend: "ollama" is unknown, want vllm, sglang or trtllm`},
		{"policy: kv_router", "policy: random", `router.policy: "random" is unknown, want round_robin or kv_router`},
		{"policy: kv_router", "policy: round_robin", "router.overlap_score_credit: goes with router.policy kv_router"},
		{"type: none", "type: aic", `router.prefill_load_model.type: agentsim does not simulate "aic", only none`},
		{"policy: disabled", "policy: enabled", `planner.policy: agentsim does not simulate "enabled", only disabled`},
		{"itl_ms: 40", "e2e_ms: 40", "evaluation.sla.e2e_ms: agentsim does not simulate this"},
		{"type: trace,", "type: synthetic,", `3:18: traffic.source.type: agentsim does not simulate "synthetic", only trace`},
		{"type: trace, ", "", "traffic.source.type is synthetic where it is not given; agentsim takes a trace"},
		{"agentic_mooncake", "applied_compute_agentic", `traffic.source.format: agentsim does not read format "applied_compute_agentic"`},
		{"paths: [day1.jsonl, day2.jsonl]", "paths: day1.jsonl", "traffic.source.paths: want a list of trace files"},
		{"type: trace_timestamps", "type: concurrency", "traffic.load.agentic_lanes: goes with traffic.load.type trace_timestamps"},
		{"agentic_lanes: 12, ", "", "traffic.load.agentic_snapshot.seed: goes with traffic.load.agentic_lanes"},
		{"speedup: 1.5", "concurrency: 5", "traffic.load.concurrency: goes with traffic.load.type concurrency"},
		{"traffic:\n", "traffic: 5\nsource:\n", "2:10: traffic: want a group of keys"},
		{"planner:", "optimizer: {seed: 1}\nplanner:", "optimizer.seed: agentsim does not simulate this"},
	} {
		text := strings.Replace(wholePrediction, c.old, c.new, 1)
		if text == wholePrediction {
			t.Errorf("%q is not in the file", c.old)
		}
		p := readPrediction("prediction.yaml", []byte(text))
		if p == nil {
			t.Errorf("%s: not recognised", c.new)
			continue
		}
		_, _, err := p.deployment()
		if err == nil || !strings.HasPrefix(err.Error(), "prediction.yaml:") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s:\ngot  %v\nwant %s", c.old, c.new, err, c.want)
		}
	}
}

// FuzzPrediction: no text makes the reader panic, and no config of agentsim is taken for one of aisimulate.
func FuzzPrediction(f *testing.F) {
	f.Add(wholePrediction)
	f.Add(smallPrediction)
	f.Add("engine: &a {hardware: *a}")
	f.Add("? [a]\n: {traffic: b}")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxConfigBytes || strings.Count(text, "[")+strings.Count(text, "{") > maxBrackets {
			return
		}
		p := readPrediction("fuzz.yaml", []byte(text))
		if p == nil {
			return
		}
		if d, _, err := p.deployment(); err == nil && d.Model == "" {
			t.Errorf("accepted %q", text)
		}
	})
}
