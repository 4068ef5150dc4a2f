package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/trace"
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
	Router      Router      `yaml:"router"`
	Load        Load        `yaml:"load"`
	Client      Client      `yaml:"client"`
	Workload    Workload    `yaml:"workload"`
	// Models says by glob what happens to calls of the trace to models of that name: serve, drop (they take no time)
	// or fold (they take their recorded time). Other calls are served.
	Models map[string]string `yaml:"models,omitempty"`
	Cost   Cost              `yaml:"cost"`
	SLO    SLO               `yaml:"slo"`
	Seed   uint64            `yaml:"seed"`
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

// Engine is the serving engine of a worker.
type Engine struct {
	Kind                 string  `yaml:"kind"`
	Version              string  `yaml:"version"`
	BlockSize            int     `yaml:"block_size"`
	MaxNumSeqs           int     `yaml:"max_num_seqs"`
	MaxNumBatchedTokens  int     `yaml:"max_num_batched_tokens"`
	MaxModelLen          int     `yaml:"max_model_len"`
	GPUMemoryUtilization float64 `yaml:"gpu_memory_utilization"`
	PrefixCaching        bool    `yaml:"prefix_caching"`
	Scheduling           string  `yaml:"scheduling"`
	// Admission is "full" (a waiting request needs blocks for its whole prompt) or "chunk".
	Admission string `yaml:"admission"`
	// KVBlocks is "auto", a number, or "x0.5": that multiple of what auto gives.
	KVBlocks string `yaml:"kv_blocks"`
}

// Router chooses workers. Frontends are independent routers; a session stays on one.
type Router struct {
	router.Settings `yaml:",inline"`
	Frontends       int `yaml:"frontends"`
}

// Load is how the work arrives.
type Load struct {
	// Mode is recorded, closed, concurrency or poisson; "" takes closed for traces with a common clock, else
	// concurrency.
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
}

// Client is when clients give up.
type Client struct {
	Timeout time.Duration `yaml:"timeout"`
	Retries int           `yaml:"retries"`
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

// Cost names the step cost profile. Profile "fixed" takes Prefill and Decode as constant step times.
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
		Parallelism: Parallelism{Tensor: 0, Pipeline: 1, Data: 1, Expert: 1},
		Engine: Engine{Kind: "vllm", Version: "0.19", BlockSize: 16, MaxNumSeqs: 256, MaxNumBatchedTokens: 8192,
			PrefixCaching: true, Scheduling: "fcfs", Admission: "full", KVBlocks: "auto"},
		Router:   Router{Settings: router.Defaults("kv"), Frontends: 1},
		Load:     Load{Speed: 1, MaxGap: "none", HumanGap: "recorded", Start: "ramp"},
		Client:   Client{Timeout: 900 * time.Second},
		Workload: Workload{Outputs: "inferred", MaxContext: "reject", WarmStart: true},
		Cost:     Cost{Profile: "h100-vllm"},
		SLO:      SLO{TTFT: 2 * time.Second, ITL: 50 * time.Millisecond},
		Seed:     1,
	}
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

// Plan is a deployment with everything looked up, computed and checked.
type Plan struct {
	Deployment
	Hardware models.Deployment
	Capacity models.Capacity
	Cost     *models.StepCost
	// Blocks is the usable KV blocks of a rank, MaxModelLen the most tokens of a request, StateBlocks what each
	// running request holds besides its tokens' blocks.
	Blocks, MaxModelLen int
	StateBlocks         int32
	Outputs             trace.Outputs
	// Ranks is Workers × Parallelism.Data: the number of KV caches.
	Ranks int
	// AutoBlocks tells that Blocks follows from the capacity, with its uncertainty.
	AutoBlocks bool

	maxGap, humanCap time.Duration // -1: none
}

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
		{"router.frontends", d.Router.Frontends, 1, 1024},
		{"load.concurrency", d.Load.Concurrency, 0, 1 << 24},
		{"load.programs", d.Load.Programs, 0, 1 << 28},
		{"client.retries", d.Client.Retries, 0, 100},
	} {
		if r.v < r.lo || r.v > r.hi {
			return bad(r.key, "%d is out of range, want %d to %d", r.v, r.lo, r.hi)
		}
	}
	if d.Engine.MaxNumBatchedTokens < d.Engine.MaxNumSeqs {
		return bad("engine.max_num_batched_tokens", "%d is below engine.max_num_seqs %d: a step must have a token for every sequence",
			d.Engine.MaxNumBatchedTokens, d.Engine.MaxNumSeqs)
	}
	return d.checkChoices()
}

func (d *Deployment) checkChoices() error {
	type choice struct {
		key, v string
		of     []string
	}
	for _, c := range []choice{
		{"load.mode", d.Load.Mode, []string{"", "recorded", "closed", "concurrency", "poisson"}},
		{"load.start", d.Load.Start, []string{"ramp", "snapshot"}},
		{"workload.max_context", d.Workload.MaxContext, []string{"reject", "truncate", "split"}},
		{"engine.admission", d.Engine.Admission, []string{"full", "chunk"}},
	} {
		if !contains(c.of, c.v) {
			return bad(c.key, "%q is unknown, want %s", c.v, strings.TrimPrefix(strings.Join(c.of, ", "), ", "))
		}
	}
	switch d.Engine.Kind {
	case "vllm":
	case "sglang", "trtllm":
		return bad("engine.kind", "%s is not simulated yet; vllm is", d.Engine.Kind)
	default:
		return bad("engine.kind", "%q is unknown, want vllm", d.Engine.Kind)
	}
	if d.Engine.Scheduling != "fcfs" {
		return bad("engine.scheduling", "%q is not simulated; fcfs is", d.Engine.Scheduling)
	}
	for glob, what := range d.Models {
		if !contains([]string{"serve", "drop", "fold"}, what) {
			return bad("models."+glob, "%q is unknown, want serve, drop or fold", what)
		}
	}
	switch {
	case !(d.Load.Speed > 0 && d.Load.Speed <= 1e6):
		return bad("load.speed", "%v is out of range, want above 0 and at most 1e6", d.Load.Speed)
	case !(d.Load.Rate >= 0 && d.Load.Rate <= 1e6):
		return bad("load.rate", "%v is out of range, want 0 to 1e6 programs per second", d.Load.Rate)
	case d.Load.Mode == "poisson" && d.Load.Rate == 0:
		return bad("load.rate", "mode poisson needs the programs per second")
	case d.Load.Mode == "concurrency" && d.Load.Concurrency == 0:
		return bad("load.concurrency", "mode concurrency needs the number of programs that live at a time")
	case d.Load.Warmup < 0 || d.Load.Duration < 0 || d.Load.Warmup > 0 && d.Load.Duration == 0:
		return bad("load.warmup", "a warm-up needs a positive load.duration to measure after it")
	case d.Client.Timeout < 0:
		return bad("client.timeout", "%v is negative; 0 never gives up", d.Client.Timeout)
	case d.SLO.TTFT < 0 || d.SLO.ITL < 0 || d.SLO.Program < 0:
		return bad("slo", "a bound is negative; 0 is none")
	case !(d.Engine.GPUMemoryUtilization >= 0 && d.Engine.GPUMemoryUtilization <= 1):
		return bad("engine.gpu_memory_utilization", "%v is out of range, want above 0 to 1, or 0 for the version's default", d.Engine.GPUMemoryUtilization)
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// Resolve looks up, computes and checks everything that a run of the deployment needs. Errors are ConfigErrors or name
// the model or GPU that does not fit.
func (d Deployment) Resolve() (*Plan, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	p := &Plan{Deployment: d}
	var err error
	if p.Outputs, err = trace.ParseOutputs(d.Workload.Outputs); err != nil {
		return nil, bad("workload.outputs", "%v", err)
	}
	if p.maxGap, err = parseCap(d.Load.MaxGap, "none", ""); err != nil {
		return nil, bad("load.max_gap", "%v", err)
	}
	if p.maxGap >= 0 && d.Load.Mode == "recorded" {
		return nil, bad("load.max_gap", "recorded arrivals keep their times; use load.mode closed to cap gaps")
	}
	if d.Load.HumanGap == "drop" {
		p.humanCap = 0
	} else if p.humanCap, err = parseCap(d.Load.HumanGap, "recorded", "cap="); err != nil {
		return nil, bad("load.human_gap", "%v (or drop)", err)
	}
	if err := p.resolveHardware(); err != nil {
		return nil, err
	}
	p.Ranks = d.Workers * d.Parallelism.Data
	if _, err := router.New(d.Router.Settings, p.Ranks, d.Engine.BlockSize, d.Seed); err != nil {
		return nil, &ConfigError{"", err.Error()}
	}
	if err := p.resolveBlocks(); err != nil {
		return nil, err
	}
	p.settle()
	return p, nil
}

// parseCap reads a duration, or -1 for the word that means none.
func parseCap(s, none, prefix string) (time.Duration, error) {
	if s == none || s == "" {
		return -1, nil
	}
	rest, ok := strings.CutPrefix(s, prefix)
	if cap, err := time.ParseDuration(rest); ok && err == nil && cap >= 0 {
		return cap, nil
	}
	return 0, fmt.Errorf("%q is not %s or %sDURATION such as %s60s", s, none, prefix, prefix)
}

// resolveHardware looks up model and GPU and computes capacity and cost. "fixed" step times need no GPU data.
func (p *Plan) resolveHardware() error {
	if p.Model == "" {
		return bad("model", "none given; name one of `agentsim models`, or a config.json")
	}
	model, err := models.Lookup(p.Model)
	if err != nil {
		return bad("model", "%v", err)
	}
	gpu, err := models.LookupGPU(p.GPU)
	if err != nil {
		return bad("gpu", "%v", err)
	}
	h := models.Deployment{
		Model: model, GPU: gpu,
		Parallelism: models.Parallelism{Tensor: p.Parallelism.Tensor, Pipeline: p.Parallelism.Pipeline,
			Data: p.Parallelism.Data, Expert: p.Parallelism.Expert},
		Weights: models.DType(p.DType.Weights), KV: models.DType(p.DType.KV),
		BlockSize: p.Engine.BlockSize, MaxNumSeqs: p.Engine.MaxNumSeqs, MaxBatchedTokens: p.Engine.MaxNumBatchedTokens,
		MaxModelLen: p.Engine.MaxModelLen, MemoryUtilization: p.Engine.GPUMemoryUtilization, EngineVersion: p.Engine.Version,
	}
	if h.Parallelism.Tensor == 0 {
		tensor, err := h.SmallestTensor()
		if err != nil {
			return bad("parallelism.tensor", "%v", err)
		}
		h.Parallelism.Tensor = tensor
		p.Parallelism.Tensor = tensor
	}
	if err := h.Validate(); err != nil {
		return bad("parallelism", "%v", err)
	}
	if p.Capacity, err = h.Capacity(); err != nil {
		return bad("model", "%v", err)
	}
	if p.Deployment.Cost.Profile == "fixed" {
		c := p.Deployment.Cost
		if c.Prefill < 0 || c.Decode < 0 || c.Prefill+c.Decode <= 0 || c.Prefill > time.Hour || c.Decode > time.Hour {
			return bad("cost.prefill", "profile fixed needs step times from 0 to 1h, not both 0")
		}
		p.Cost = models.FixedSteps(c.Prefill, c.Decode)
	} else if p.Cost, err = h.StepCost(p.Deployment.Cost.Profile); err != nil {
		return bad("cost.profile", "%v", err)
	}
	p.Hardware = h
	return nil
}

// settle writes what was looked up and computed into the config, so that it says what is simulated.
func (p *Plan) settle() {
	h := p.Hardware.WithDefaults()
	p.DType = DType{string(h.Weights), string(h.KV)}
	p.Engine.GPUMemoryUtilization = h.MemoryUtilization
	p.Engine.MaxModelLen = p.MaxModelLen
	p.Engine.KVBlocks = strconv.Itoa(p.Blocks + 1)
}

// resolveBlocks settles the KV blocks of a rank and the longest request.
func (p *Plan) resolveBlocks() error {
	auto := p.Capacity.Blocks
	switch s := p.Engine.KVBlocks; {
	case s == "auto" || s == "":
		p.Blocks, p.AutoBlocks = auto, true
	case strings.HasPrefix(s, "x"):
		f, err := strconv.ParseFloat(s[1:], 64)
		if err != nil || !(f > 0 && f <= 1000) {
			return bad("engine.kv_blocks", "%q is not a multiple such as x0.5", s)
		}
		p.Blocks = int(float64(auto) * f)
	default:
		n, err := strconv.Atoi(s)
		if err != nil || n < 2 || n > 1<<30 {
			return bad("engine.kv_blocks", "%q is not auto, a number of blocks from 2, or a multiple such as x0.5", s)
		}
		p.Blocks = n
	}
	p.Blocks-- // vLLM reserves block 0 as the null block
	if p.Blocks < 1 {
		return bad("engine.kv_blocks", "%d blocks leave none besides the engine's null block", p.Blocks+1)
	}
	p.MaxModelLen = p.Hardware.Model.MaxContext
	if p.Engine.MaxModelLen > 0 {
		p.MaxModelLen = p.Engine.MaxModelLen
	}
	if p.MaxModelLen == 0 {
		p.MaxModelLen = 1 << 28
	}
	p.StateBlocks = int32(p.Capacity.BlocksPerSequence)
	return nil
}

// atLeast tells whether the engine's version is at least 0.minor.
func (e *Engine) atLeast(minor int) bool {
	parts := strings.Split(e.Version, ".")
	if major, err := strconv.Atoi(parts[0]); err != nil || major > 0 {
		return err == nil
	}
	if len(parts) < 2 {
		return false
	}
	n, err := strconv.Atoi(parts[1])
	return err == nil && n >= minor
}
