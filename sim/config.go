package sim

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/agentsim/agentsim/router"
)

// Deployment is the configuration of one simulated deployment, as it stands in a YAML file. Start from Default.
type Deployment struct {
	// Name labels the run in tables.
	Name string `yaml:"name"`
	// Model is a catalogue name or the path of a Hugging Face config.json, GPU a catalogue name.
	Model string `yaml:"model"`
	GPU   string `yaml:"gpu"`
	// Workers is the number of engine replicas; each has Parallelism.Data ranks with a KV cache of their own.
	Workers     int         `yaml:"workers"`
	Parallelism Parallelism `yaml:"parallelism"`
	DType       DType       `yaml:"dtype"`
	Engine      Engine      `yaml:"engine"`
	KV          KV          `yaml:"kv"`
	Router      Router      `yaml:"router"`
	// Disaggregation lets some of the Workers only prefill.
	Disaggregation Disaggregation `yaml:"disaggregation"`
	Load           Load           `yaml:"load"`
	Client         Client         `yaml:"client"`
	Workload       Workload       `yaml:"workload"`
	// Models says by glob what happens to calls of the trace to models of that name: serve, drop (they take no time)
	// or fold (they take their recorded time). Other calls are served.
	Models map[string]string `yaml:"models,omitempty"`
	Cost   Cost              `yaml:"cost"`
	// Hints are rules that give hints to calls whose agents sent none.
	Hints []HintRule `yaml:"hints,omitempty"`
	// Faults take workers away and bring them back.
	Faults []Fault `yaml:"faults,omitempty"`
	SLO    SLO     `yaml:"slo"`
	Seed   uint64  `yaml:"seed"`
}

// Parallelism is how one worker is spread over GPUs. Tensor 0 takes the smallest that fits.
type Parallelism struct {
	Tensor   int `yaml:"tensor"`
	Pipeline int `yaml:"pipeline"`
	Data     int `yaml:"data"`
	Expert   int `yaml:"expert"`
}

// DType names the number formats; "" is the model's own.
type DType struct {
	Weights string `yaml:"weights"`
	KV      string `yaml:"kv"`
}

// Engine is the serving engine of a worker. What is 0 or empty becomes the kind's own default.
type Engine struct {
	// Kind is vllm, sglang or trtllm. The keys have vLLM's names; BlockSize is SGLang's page_size and TensorRT-LLM's
	// tokens_per_block, MaxNumSeqs their max_running_requests and max_batch_size, MaxNumBatchedTokens their
	// chunked_prefill_size and max_num_tokens.
	Kind                string `yaml:"kind"`
	Version             string `yaml:"version"`
	BlockSize           int    `yaml:"block_size"`
	MaxNumSeqs          int    `yaml:"max_num_seqs"`
	MaxNumBatchedTokens int    `yaml:"max_num_batched_tokens"`
	// MaxPrefillTokens and ScheduleConservativeness are SGLang's alone.
	MaxPrefillTokens         int     `yaml:"max_prefill_tokens"`
	ScheduleConservativeness float64 `yaml:"schedule_conservativeness"`

	MaxModelLen          int     `yaml:"max_model_len"`
	GPUMemoryUtilization float64 `yaml:"gpu_memory_utilization"`
	PrefixCaching        bool    `yaml:"prefix_caching"`
	// Scheduling orders waiting requests: fcfs; priority, by their hints (vLLM and SGLang); continuum, by the start of
	// their programs, with KV pinned while tools run, and continuum-preview, as its authors' first code does (vLLM); lpm, by cached prefix (SGLang).
	Scheduling string `yaml:"scheduling"`
	// KVEviction is lru, or priority: SGLang then evicts the tokens of requests of low priority first.
	KVEviction string `yaml:"kv_eviction"`
	// AsyncScheduling is "true" to schedule a step while the one before it runs (vLLM: async_scheduling), so that a request
	// waits out the step after the one in which it arrives, "false", or "auto": as vLLM does by default, on from 0.14, but
	// off with step times that are fixed by hand.
	AsyncScheduling string `yaml:"async_scheduling"`
	// FilteredSampling tells that requests sample with top-p or top-k, which takes GPU time for every logit.
	FilteredSampling bool `yaml:"filtered_sampling"`
	// Admission is "full" (a waiting request needs blocks for its whole prompt) or "chunk".
	Admission string `yaml:"admission"`
	// KVBlocks is "auto", a number, or "x0.5": that multiple of what auto gives.
	KVBlocks string `yaml:"kv_blocks"`
	// Speculative is speculative decoding.
	Speculative Speculative `yaml:"speculative"`
}

// Router chooses workers. Frontends are independent routers; a session stays on one.
type Router struct {
	router.Settings `yaml:",inline"`
	// PolicyConfig names a router policy file of Dynamo, which whoever reads the config applies; see UsePolicyFile.
	PolicyConfig string `yaml:"policy_config"`
	Frontends    int    `yaml:"frontends"`
	// MaxPrograms is how many programs may send requests at a time: none, a number, or auto.
	MaxPrograms string `yaml:"max_programs"`
	// ThunderAgent tunes the program scheduler that goes with policy thunderagent.
	ThunderAgent ThunderAgent `yaml:"thunderagent"`
	// Unlabelled is the share of programs whose requests name no session, so that no program scheduler sees them.
	Unlabelled float64 `yaml:"unlabelled"`
}

// ThunderAgent chooses a version of the program scheduler and what differs from it.
type ThunderAgent struct {
	// Preset is one of thunderagent.Presets; "" is the first.
	Preset string `yaml:"preset"`
	// Gates is on, or none: then it holds and pauses nothing.
	Gates string `yaml:"gates"`
	// Parameters are keys of thunderagent.Settings with other values than the preset's.
	Parameters map[string]any `yaml:"parameters,omitempty"`
}

// Load is how the work arrives.
type Load struct {
	// Mode is recorded, closed, concurrency, poisson, or rollout: a fixed batch of programs that all begin at time 0, as
	// in reinforcement learning. "" takes closed for traces with a common clock, else concurrency.
	Mode string `yaml:"mode"`
	// Concurrency is the number of root programs that live at all times (mode concurrency).
	Concurrency int `yaml:"concurrency"`
	// Rate is root programs per second (mode poisson).
	Rate float64 `yaml:"rate"`
	// Programs is how many root programs run, the trace's over and over; 0 runs each once.
	Programs int `yaml:"programs"`
	// Speed divides arrivals and gaps, not service.
	Speed float64 `yaml:"speed"`
	// MaxGap caps gaps after Speed: a duration or "none". HumanGap treats what people took: recorded, drop, or
	// cap=60s.
	MaxGap   string `yaml:"max_gap"`
	HumanGap string `yaml:"human_gap"`
	// Warmup precedes the measured window, Duration is its length; 0 measures the whole run.
	Warmup   time.Duration `yaml:"warmup"`
	Duration time.Duration `yaml:"duration"`
	// Start is ramp (programs begin with their first turn) or snapshot (the first ones begin at random turns).
	Start string `yaml:"start"`
	// Ramp is the time over which the first programs begin, evenly spread (mode concurrency); 0 lets all begin at once.
	Ramp time.Duration `yaml:"ramp"`
}

// Slots tells whether the rate of programs follows from how fast they are served, and not from their arrivals.
func (l *Load) Slots() bool { return l.Mode == "concurrency" || l.Mode == "rollout" }

// Client is how clients call, and when they give up.
type Client struct {
	Timeout time.Duration `yaml:"timeout"`
	Retries int           `yaml:"retries"`
	// MaxTokens is the output tokens that every call allows, for which SGLang and TensorRT-LLM reserve KV; 0 is just
	// what the call generates.
	MaxTokens int `yaml:"max_tokens"`
	// SessionFinal says which calls tell that their session ends: recorded (as in the trace), last, never, or auto:
	// recorded where the trace has any, else last.
	SessionFinal string `yaml:"session_final"`
}

// Workload is how the trace is read.
type Workload struct {
	// Outputs is inferred, none or all: see trace.Outputs.
	Outputs string `yaml:"outputs"`
	// MaxContext is what happens to calls longer than the model takes: reject, truncate or split.
	MaxContext string `yaml:"max_context"`
	// WarmStart makes the history of sessions that began before the capture resident where they first run.
	WarmStart bool `yaml:"warm_start"`
}

// Cost names the step cost profile; "" takes the one that was fitted to the engine and to such models. Profile "fixed" takes Prefill and Decode as constant step times.
type Cost struct {
	Profile string        `yaml:"profile"`
	Prefill time.Duration `yaml:"prefill"`
	Decode  time.Duration `yaml:"decode"`
}

// SLO bounds what counts as goodput; 0 is no bound.
type SLO struct {
	TTFT    time.Duration `yaml:"ttft"`
	ITL     time.Duration `yaml:"itl"`
	Program time.Duration `yaml:"program"`
}

// Default returns the defaults of every key.
func Default() Deployment {
	return Deployment{
		GPU: "h100-sxm", Workers: 1,
		Parallelism:    Parallelism{Tensor: 0, Pipeline: 1, Data: 1, Expert: 1},
		Engine:         Engine{Kind: "vllm", PrefixCaching: true, Scheduling: "fcfs", KVEviction: "lru", AsyncScheduling: "auto", KVBlocks: "auto"},
		Router:         Router{Settings: router.Defaults("kv"), Frontends: 1, MaxPrograms: "none", ThunderAgent: ThunderAgent{Gates: "on"}},
		Disaggregation: Disaggregation{Mode: "always", MaxLocalPrefill: 512},
		Load:           Load{Speed: 1, MaxGap: "none", HumanGap: "recorded", Start: "ramp"},
		Client:         Client{Timeout: 900 * time.Second, SessionFinal: "auto"},
		Workload:       Workload{Outputs: "inferred", MaxContext: "reject", WarmStart: true},
		SLO:            SLO{TTFT: 2 * time.Second, ITL: 50 * time.Millisecond},
		Seed:           1,
	}
}

// engineDefaults are the values of the keys of an engine that are not set, by kind.
var engineDefaults = map[string]Engine{
	"vllm": {Version: "0.19", BlockSize: 16, MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, Admission: "full"},
	// sglang/srt/server_args.py; max_running_requests is 2048 to 4096 there, with the KV capacity.
	"sglang": {Version: "0.5", BlockSize: 1, MaxNumSeqs: 2048, MaxNumBatchedTokens: 8192, MaxPrefillTokens: 16384,
		ScheduleConservativeness: 1},
	// tensorrt_llm/llmapi/llm_args.py
	"trtllm": {Version: "1.0", BlockSize: 32, MaxNumSeqs: 2048, MaxNumBatchedTokens: 8192},
}

// fillDefaults sets the keys that follow from engine.kind where they are not set.
func (d *Deployment) fillDefaults() error {
	e := &d.Engine
	of, ok := engineDefaults[e.Kind]
	if !ok {
		return bad("engine.kind", "%q is unknown, want vllm, sglang or trtllm", e.Kind)
	}
	e.AsyncScheduling = cmp.Or(e.AsyncScheduling, "auto")
	e.Version = cmp.Or(e.Version, of.Version)
	e.BlockSize = cmp.Or(e.BlockSize, of.BlockSize)
	e.MaxNumSeqs = cmp.Or(e.MaxNumSeqs, of.MaxNumSeqs)
	e.MaxNumBatchedTokens = cmp.Or(e.MaxNumBatchedTokens, of.MaxNumBatchedTokens)
	e.MaxPrefillTokens = cmp.Or(e.MaxPrefillTokens, of.MaxPrefillTokens)
	e.ScheduleConservativeness = cmp.Or(e.ScheduleConservativeness, of.ScheduleConservativeness)
	e.Admission = cmp.Or(e.Admission, of.Admission)
	return nil
}

// schedulings are the orders in which a kind of engine can take waiting requests.
var schedulings = map[string][]string{
	"vllm":   {"fcfs", "priority", "continuum", "continuum-preview"},
	"sglang": {"fcfs", "priority", "lpm"},
	"trtllm": {"fcfs"},
}

// checkEngine verifies what a kind of engine has and can do.
func (d *Deployment) checkEngine() error {
	e := &d.Engine
	switch sglang := e.Kind == "sglang"; {
	case !sglang && e.MaxNumBatchedTokens < e.MaxNumSeqs:
		return bad("engine.max_num_batched_tokens", "%d is below engine.max_num_seqs %d: a step must have a token for every sequence",
			e.MaxNumBatchedTokens, e.MaxNumSeqs)
	case sglang && e.MaxNumBatchedTokens/d.Parallelism.Data < e.BlockSize:
		return bad("engine.max_num_batched_tokens", "%d (chunked_prefill_size) leaves a rank less than a page of %d tokens", e.MaxNumBatchedTokens, e.BlockSize)
	case sglang && (e.MaxPrefillTokens < 1 || e.MaxPrefillTokens > 1<<20):
		return bad("engine.max_prefill_tokens", "%d is out of range, want 1 to %d", e.MaxPrefillTokens, 1<<20)
	case sglang && !(e.ScheduleConservativeness > 0 && e.ScheduleConservativeness <= 100):
		return bad("engine.schedule_conservativeness", "%v is out of range, want above 0 and at most 100", e.ScheduleConservativeness)
	case !sglang && e.MaxPrefillTokens != 0:
		return bad("engine.max_prefill_tokens", "only engine.kind sglang has it")
	case !sglang && e.ScheduleConservativeness != 0:
		return bad("engine.schedule_conservativeness", "only engine.kind sglang has it")
	case !slices.Contains([]string{"auto", "true", "false"}, e.AsyncScheduling):
		return bad("engine.async_scheduling", "%q is unknown, want auto, true or false", e.AsyncScheduling)
	case e.Kind != "vllm" && e.AsyncScheduling == "true":
		return bad("engine.async_scheduling", "only engine.kind vllm has it")
	case e.Kind != "vllm" && e.Admission != "":
		return bad("engine.admission", "only engine.kind vllm has it")
	case e.Kind == "vllm" && !slices.Contains([]string{"full", "chunk"}, e.Admission):
		return bad("engine.admission", "%q is unknown, want full, chunk", e.Admission)
	case !slices.Contains(schedulings[e.Kind], e.Scheduling):
		return bad("engine.scheduling", "%q is not one that engine.kind %s has: %s", e.Scheduling, e.Kind, strings.Join(schedulings[e.Kind], ", "))
	case e.KVEviction == "priority" && !sglang:
		return bad("engine.kv_eviction", "only engine.kind sglang evicts by priority")
	case !(e.GPUMemoryUtilization >= 0 && e.GPUMemoryUtilization <= 1):
		return bad("engine.gpu_memory_utilization", "%v is out of range, want above 0 to 1, or 0 for the version's default", e.GPUMemoryUtilization)
	}
	return nil
}

// ConfigError is a value that a deployment cannot have.
type ConfigError struct {
	// Key is the path of the value, such as "engine.kv_blocks".
	Key  string
	What string
}

func (e *ConfigError) Error() string {
	if e.Key == "" { // What names it
		return e.What
	}
	return e.Key + ": " + e.What
}

func bad(key, format string, args ...any) error {
	return &ConfigError{key, fmt.Sprintf(format, args...)}
}

// longest bounds times in a config: ten years, so that sums of a few stay far from overflow.
const longest = 10 * 365 * 24 * time.Hour

// check verifies the ranges that need no look-up.
func (d *Deployment) check() error {
	type intRange struct {
		key       string
		v, lo, hi int
	}
	for _, r := range []intRange{
		{"workers", d.Workers, 1, 1 << 13},
		{"parallelism.tensor", d.Parallelism.Tensor, 0, 64},
		{"parallelism.pipeline", d.Parallelism.Pipeline, 1, 64},
		{"parallelism.data", d.Parallelism.Data, 1, 64},
		{"parallelism.expert", d.Parallelism.Expert, 1, 1024},
		{"engine.block_size", d.Engine.BlockSize, 1, 1 << 14},
		{"engine.max_num_seqs", d.Engine.MaxNumSeqs, 1, 1 << 16},
		{"engine.max_num_batched_tokens", d.Engine.MaxNumBatchedTokens, 1, 1 << 20},
		{"engine.max_model_len", d.Engine.MaxModelLen, 0, 1 << 28},
		{"engine.speculative.tokens", d.Engine.Speculative.Tokens, 0, 64},
		{"router.frontends", d.Router.Frontends, 1, 1024},
		{"load.concurrency", d.Load.Concurrency, 0, 1 << 24},
		{"load.programs", d.Load.Programs, 0, 1 << 28},
		{"client.retries", d.Client.Retries, 0, 100},
		{"client.max_tokens", d.Client.MaxTokens, 0, 1 << 28},
	} {
		if r.v < r.lo || r.v > r.hi {
			return bad(r.key, "%d is out of range, want %d to %d", r.v, r.lo, r.hi)
		}
	}
	if err := d.checkEngine(); err != nil {
		return err
	}
	if err := d.checkHints(); err != nil {
		return err
	}
	if err := d.checkFaults(); err != nil {
		return err
	}
	if err := d.checkDisaggregation(); err != nil {
		return err
	}
	return d.checkChoices()
}

func (d *Deployment) checkChoices() error {
	type choice struct {
		key, v string
		of     []string
	}
	for _, c := range []choice{
		{"load.mode", d.Load.Mode, []string{"", "recorded", "closed", "concurrency", "poisson", "rollout"}},
		{"engine.kv_eviction", d.Engine.KVEviction, []string{"", "lru", "priority"}},
		{"router.thunderagent.gates", d.Router.ThunderAgent.Gates, []string{"", "on", "none"}},
		{"client.session_final", d.Client.SessionFinal, []string{"", "auto", "recorded", "last", "never"}},
		{"load.start", d.Load.Start, []string{"ramp", "snapshot"}},
		{"workload.max_context", d.Workload.MaxContext, []string{"reject", "truncate", "split"}},
	} {
		if !slices.Contains(c.of, c.v) {
			return bad(c.key, "%q is unknown, want %s", c.v, strings.TrimPrefix(strings.Join(c.of, ", "), ", "))
		}
	}
	for _, glob := range slices.Sorted(maps.Keys(d.Models)) {
		what := d.Models[glob]
		if _, err := path.Match(glob, ""); err != nil {
			return bad("models."+glob, "not a glob: %v", err)
		}
		if !slices.Contains([]string{"serve", "drop", "fold"}, what) {
			return bad("models."+glob, "%q is unknown, want serve, drop or fold", what)
		}
	}
	for _, l := range []struct {
		key string
		v   time.Duration
	}{{"load.warmup", d.Load.Warmup}, {"load.duration", d.Load.Duration}, {"load.ramp", d.Load.Ramp}, {"client.timeout", d.Client.Timeout}} {
		if l.v < 0 || l.v > longest {
			return bad(l.key, "%v is out of range, want 0 (none) to %v", l.v, longest)
		}
	}
	switch {
	case !(d.Router.Unlabelled >= 0 && d.Router.Unlabelled <= 1):
		return bad("router.unlabelled", "%v is out of range, want 0 to 1", d.Router.Unlabelled)
	case !(d.Load.Speed >= 1e-6 && d.Load.Speed <= 1e6):
		return bad("load.speed", "%v is out of range, want 1e-6 to 1e6", d.Load.Speed)
	case d.Load.Rate != 0 && !(d.Load.Rate >= 1e-6 && d.Load.Rate <= 1e6):
		return bad("load.rate", "%v is out of range, want 1e-6 to 1e6 programs per second", d.Load.Rate)
	case d.Load.Mode == "poisson" && d.Load.Rate == 0:
		return bad("load.rate", "mode poisson needs the programs per second")
	case d.Load.Mode == "concurrency" && d.Load.Concurrency == 0:
		return bad("load.concurrency", "mode concurrency needs the number of programs that live at a time")
	case d.Load.Start == "snapshot" && d.Load.Mode != "concurrency":
		return bad("load.start", "snapshot goes with load.mode concurrency")
	case d.Load.Ramp != 0 && d.Load.Mode != "concurrency":
		return bad("load.ramp", "a ramp goes with load.mode concurrency")
	case d.Load.Warmup > 0 && d.Load.Duration == 0:
		return bad("load.warmup", "a warm-up needs a positive load.duration to measure after it")
	case d.SLO.TTFT < 0 || d.SLO.ITL < 0 || d.SLO.Program < 0:
		return bad("slo", "a bound is negative; 0 is none")
	}
	return nil
}
