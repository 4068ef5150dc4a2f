package cli

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/trace/convert"
)

// predictionKeys translate values, by the keys that agentsim has a counterpart of, or whose only simulated value they
// accept.
var predictionKeys = map[string]func(*prediction, predictionValue) error{
	"traffic.source.type":                        only("trace"),
	"traffic.source.paths":                       (*prediction).setPaths,
	"traffic.source.format":                      (*prediction).setFormat,
	"traffic.source.block_size":                  whole(1, func(p *prediction) *int { return &p.blockSize }),
	"traffic.source.nested_timestamp_basis":      only("auto"),
	"traffic.load.type":                          only("trace_timestamps", "concurrency"),
	"traffic.load.concurrency":                   whole(1, func(p *prediction) *int { return &p.Load.Concurrency }),
	"traffic.load.speedup":                       number(1e-6, 1e6, func(p *prediction) *float64 { return &p.Load.Speed }),
	"traffic.load.agentic_lanes":                 whole(1, func(p *prediction) *int { return &p.Load.Concurrency }),
	"traffic.load.agentic_snapshot.seed":         (*prediction).setSnapshot,
	"traffic.load.agentic_warmup":                only("false"),
	"traffic.stop.max_virtual_time_seconds":      period(time.Second, func(p *prediction) *time.Duration { return &p.Load.Duration }),
	"engine.mode":                                only("aggregated"),
	"engine.model":                               (*prediction).setModel,
	"engine.hardware":                            (*prediction).setHardware,
	"engine.backend":                             only("vllm", "sglang", "trtllm"),
	"engine.backend_version":                     text(func(p *prediction) *string { return &p.Engine.Version }),
	"engine.context_length":                      (*prediction).setContext,
	predictionWorker + "parallelism.replicas":    whole(1, func(p *prediction) *int { return &p.Workers }),
	predictionWorker + "parallelism.tensor":      whole(1, func(p *prediction) *int { return &p.Parallelism.Tensor }),
	predictionWorker + "parallelism.pipeline":    whole(1, func(p *prediction) *int { return &p.Parallelism.Pipeline }),
	predictionWorker + "parallelism.context":     only("1"),
	predictionWorker + "parallelism.moe_tensor":  func(*prediction, predictionValue) error { return nil }, // see settleEngine
	predictionWorker + "parallelism.moe_expert":  whole(1, func(p *prediction) *int { return &p.Parallelism.Expert }),
	predictionWorker + "kv_cache.block_size":     whole(1, func(p *prediction) *int { return &p.Engine.BlockSize }),
	predictionWorker + "kv_cache.prefix_caching": flag(func(p *prediction) *bool { return &p.Engine.PrefixCaching }),

	predictionWorker + "parallelism.attention_data":                  whole(1, func(p *prediction) *int { return &p.Parallelism.Data }),
	predictionWorker + "scheduler.max_batched_tokens":                whole(1, func(p *prediction) *int { return &p.Engine.MaxNumBatchedTokens }),
	predictionWorker + "scheduler.max_sequences":                     whole(1, func(p *prediction) *int { return &p.Engine.MaxNumSeqs }),
	predictionWorker + "scheduler.prefill_schedule_interval":         only("1"),
	predictionWorker + "kv_cache.bytes_per_token":                    only("auto"),
	predictionWorker + "kv_cache.capacity.type":                      only("default", "fixed"),
	predictionWorker + "kv_cache.capacity.memory_fraction":           number(1e-6, 1, func(p *prediction) *float64 { return &p.Engine.GPUMemoryUtilization }),
	predictionWorker + "kv_cache.capacity.blocks":                    (*prediction).setBlocks,
	predictionWorker + "kv_cache.capacity.cuda_graph_reserved_bytes": only("0"),
	predictionWorker + "timing.type":                                 (*prediction).setTiming,
	predictionWorker + "timing.forward_model":                        only("op_level"),
	predictionWorker + "timing.prefill_ms":                           period(time.Millisecond, func(p *prediction) *time.Duration { return &p.Cost.Prefill }),
	predictionWorker + "timing.decode_ms":                            period(time.Millisecond, func(p *prediction) *time.Duration { return &p.Cost.Decode }),
	predictionWorker + "startup_seconds":                             only("0"),

	"router.policy":                  (*prediction).setPolicy,
	"router.prefill_load_model.type": only("none"),
	"router.overlap_score_credit":    number(0, 1e6, func(p *prediction) *float64 { return &p.Router.OverlapScoreCredit }),
	"router.prefill_load_scale":      number(0, 1e6, func(p *prediction) *float64 { return &p.Router.PrefillLoadScale }),
	"router.temperature":             number(0, 1e6, func(p *prediction) *float64 { return &p.Router.Temperature }),
	"planner.policy":                 only("disabled"),
	"evaluation.sla.ttft_ms":         period(time.Millisecond, func(p *prediction) *time.Duration { return &p.SLO.TTFT }),
	"evaluation.sla.itl_ms":          period(time.Millisecond, func(p *prediction) *time.Duration { return &p.SLO.ITL }),
	// A budget for the simulator's own memory.
	"execution.resources.memory_limit_gb": func(*prediction, predictionValue) error { return nil },
}

// predictionOnly are the keys, or groups of keys, of aisimulate that have no counterpart.
var predictionOnly = []string{
	"traffic.source.input_tokens", "traffic.source.output_tokens", "traffic.source.images", "traffic.source.session",
	"traffic.source.new_input_tokens_per_turn", "traffic.source.output_tokens_per_turn", "traffic.load.requests_per_second",
	"traffic.load.sessions_per_second", "traffic.load.seed", "traffic.load.fraction", "traffic.load.agentic_profile",
	"traffic.stop.requests", "traffic.stop.requests_per_load_unit", "traffic.stop.sessions", "traffic.stop.sessions_per_load_unit",
	"engine.speculation", "engine.kv_transfer", "engine.afd", "engine.workers.prefill", "engine.workers.decode", "engine.workers.encoder",
	predictionWorker + "hardware", predictionWorker + "kv_cache.host_offload", predictionWorker + "kv_cache.g3_offload",
	predictionWorker + "kv_cache.state_cache", predictionWorker + "kv_cache.capacity.bytes", "router.affinity", "planner",
	"evaluation.sla.e2e_ms", "execution", "optimization", "optimizer",
}

// only accepts the values that agentsim simulates, which need no setting or are settled later.
func only(known ...string) func(*prediction, predictionValue) error {
	return func(p *prediction, v predictionValue) error {
		if !slices.Contains(known, v.words) {
			return p.fail(v, "agentsim does not simulate %q, only %s", v.words, strings.Join(known, ", "))
		}
		return nil
	}
}

func whole(least int, to func(*prediction) *int) func(*prediction, predictionValue) error {
	return func(p *prediction, v predictionValue) error {
		n, err := strconv.Atoi(v.words)
		if v.quoted || err != nil || n < least {
			return p.fail(v, "%q is not a whole number from %d", v.words, least)
		}
		*to(p) = n
		return nil
	}
}

func number(lo, hi float64, to func(*prediction) *float64) func(*prediction, predictionValue) error {
	return func(p *prediction, v predictionValue) error {
		f, err := strconv.ParseFloat(v.words, 64)
		if v.quoted || err != nil || !(f >= lo && f <= hi) {
			return p.fail(v, "%q is not a number from %g to %g", v.words, lo, hi)
		}
		*to(p) = f
		return nil
	}
}

// period takes a time in units, up to 10,000 hours.
func period(unit time.Duration, to func(*prediction) *time.Duration) func(*prediction, predictionValue) error {
	return func(p *prediction, v predictionValue) error {
		var f float64
		err := number(0, float64(10_000*time.Hour/unit), func(*prediction) *float64 { return &f })(p, v)
		*to(p) = time.Duration(math.Round(f * float64(unit)))
		return err
	}
}

func flag(to func(*prediction) *bool) func(*prediction, predictionValue) error {
	return func(p *prediction, v predictionValue) error {
		if v.quoted || v.words != "true" && v.words != "false" {
			return p.fail(v, "%q is not true or false", v.words)
		}
		*to(p) = v.words == "true"
		return nil
	}
}

func text(to func(*prediction) *string) func(*prediction, predictionValue) error {
	return func(p *prediction, v predictionValue) error {
		if v.words == "" {
			return p.fail(v, "want a text")
		}
		*to(p) = v.words
		return nil
	}
}

func (p *prediction) setPaths(v predictionValue) error {
	if len(v.list) == 0 {
		return p.fail(v, "want a list of trace files")
	}
	p.paths = v.list
	return nil
}

func (p *prediction) setFormat(v predictionValue) error {
	p.format = strings.ReplaceAll(v.words, "_", "-")
	if !slices.Contains([]string{convert.FormatMooncake, convert.FormatMooncakeDelta, convert.FormatAgentic, convert.FormatWeka, convert.FormatDynamo}, p.format) {
		return p.fail(v, "agentsim does not read format %q", v.words)
	}
	return nil
}

func (p *prediction) setSnapshot(v predictionValue) error {
	seed, err := strconv.ParseUint(v.words, 10, 64)
	if v.quoted || err != nil {
		return p.fail(v, "%q is not a whole number from 0", v.words)
	}
	p.Load.Start, p.Seed = "snapshot", seed
	return nil
}

// setModel takes a checkpoint's name, whose end may tell the format of the weights, or a path.
func (p *prediction) setModel(v predictionValue) error {
	model, weights, err := models.LookupCheckpoint(v.words)
	if err != nil {
		return p.fail(v, "%v", err)
	}
	p.Model, p.DType.Weights = model.Name, string(weights)
	return nil
}

// setHardware takes h100_sxm for h100-sxm.
func (p *prediction) setHardware(v predictionValue) error {
	gpu, err := models.LookupGPU(strings.ReplaceAll(v.words, "_", "-"))
	if err != nil {
		return p.fail(v, "%v", err)
	}
	p.GPU = gpu.Name
	return nil
}

func (p *prediction) setContext(v predictionValue) error {
	if v.words == "max" {
		return nil
	}
	return whole(1, func(p *prediction) *int { return &p.Engine.MaxModelLen })(p, v)
}

// setBlocks adds the null block that vLLM counts and aisimulate has not.
func (p *prediction) setBlocks(v predictionValue) error {
	var n int
	if err := whole(1, func(*prediction) *int { return &n })(p, v); err != nil {
		return err
	}
	if p.Engine.Kind == "vllm" {
		n++
	}
	p.Engine.KVBlocks = strconv.Itoa(n)
	return nil
}

func (p *prediction) setTiming(v predictionValue) error {
	if v.words == "fixed" {
		p.Cost.Profile = "fixed"
		return nil
	}
	return only("default", "fixed")(p, v)
}

func (p *prediction) setPolicy(v predictionValue) error {
	policy, ok := map[string]string{"round_robin": "round-robin", "kv_router": "kv"}[v.words]
	if !ok {
		return p.fail(v, "%q is unknown, want round_robin or kv_router", v.words)
	}
	p.Router.Policy = policy
	return nil
}
