package sim

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/memory"
	"github.com/agentsim/agentsim/trace"
)

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
	// Async tells that vLLM schedules a step while the one before it runs.
	Async bool
	// AutoBlocks tells that Blocks follows from the capacity, with its uncertainty.
	AutoBlocks bool

	maxGap, humanCap time.Duration // -1: none
	// scheduler is the settings of the program scheduler, nil for none; patience is how many of its ticks in a row find
	// nothing else to come before what it holds is given up.
	scheduler   *thunderagent.Settings
	patience    int
	speculation *engine.Speculation
	memory      *memory.Options // nil: neither tiers nor rules that need any
	rules       kvRules
	prefill     *Plan // of the workers that only prefill; nil: none
}

// Resolve looks up, computes and checks everything that a run of the deployment needs. Errors are ConfigErrors or name
// the model or GPU that does not fit.
func (d Deployment) Resolve() (*Plan, error) {
	if err := d.fillDefaults(); err != nil {
		return nil, err
	}
	if err := d.fillKV(); err != nil {
		return nil, err
	}
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
	if d.Load.HumanGap == "drop" {
		p.humanCap = 0
	} else if p.humanCap, err = parseCap(d.Load.HumanGap, "recorded", "cap="); err != nil {
		return nil, bad("load.human_gap", "%v (or drop)", err)
	}
	if d.Load.Mode == "recorded" && p.maxGap >= 0 {
		return nil, bad("load.max_gap", "recorded arrivals keep their times; use load.mode closed to cap gaps")
	}
	if d.Load.Mode == "recorded" && p.humanCap >= 0 {
		return nil, bad("load.human_gap", "recorded arrivals keep their times; use load.mode closed to change gaps")
	}
	if err := p.resolveHardware(); err != nil {
		return nil, err
	}
	p.Ranks = d.Workers * d.Parallelism.Data
	if err := p.resolveBlocks(); err != nil {
		return nil, err
	}
	if err := p.resolveRouter(); err != nil {
		return nil, err
	}
	if err := p.resolveKV(); err != nil {
		return nil, err
	}
	if err := p.resolveDisaggregation(); err != nil {
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
	speculative, err := p.resolveSpeculative()
	if err != nil {
		return err
	}
	h := models.Deployment{
		Model: model, GPU: gpu, Speculative: speculative,
		Parallelism: models.Parallelism{Tensor: p.Parallelism.Tensor, Pipeline: p.Parallelism.Pipeline,
			Data: p.Parallelism.Data, Expert: p.Parallelism.Expert},
		Weights: models.DType(p.DType.Weights), KV: models.DType(p.DType.KV),
		BlockSize: p.Engine.BlockSize, MaxNumSeqs: min(p.Engine.MaxNumSeqs, p.Engine.MaxNumBatchedTokens), MaxBatchedTokens: p.Engine.MaxNumBatchedTokens,
		MaxModelLen: p.Engine.MaxModelLen, MemoryUtilization: p.Engine.GPUMemoryUtilization,
		Engine: p.Engine.Kind, EngineVersion: p.Engine.Version, FilteredSampling: p.Engine.FilteredSampling,
	}
	if p.Engine.AsyncScheduling != "auto" {
		h.Async = new(p.Engine.AsyncScheduling == "true")
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
	p.Deployment.Cost.Profile = cmp.Or(p.Deployment.Cost.Profile, h.DefaultProfile())
	if p.Deployment.Cost.Profile == "fixed" {
		c := p.Deployment.Cost
		if c.Prefill < 0 || c.Decode < 0 || c.Prefill+c.Decode <= 0 || c.Prefill > time.Hour || c.Decode > time.Hour {
			return bad("cost.prefill", "profile fixed needs step times from 0 to 1h, not both 0")
		}
		p.Cost = models.FixedSteps(c.Prefill, c.Decode)
		if h.Async == nil { // nobody says that these are the times of such an engine
			h.Async = new(false)
		}
	} else if p.Cost, err = h.StepCost(p.Deployment.Cost.Profile); err != nil {
		return bad("cost.profile", "%v", err)
	}
	p.Hardware, p.Async = h, h.Engine == models.EngineVLLM && h.AsyncScheduling()
	return nil
}

// settle writes what was looked up and computed into the config, so that it says what is simulated.
func (p *Plan) settle() {
	h := p.Hardware.WithDefaults()
	p.DType = DType{string(h.Weights), string(h.KV)}
	p.Engine.GPUMemoryUtilization = h.MemoryUtilization
	p.Engine.AsyncScheduling = strconv.FormatBool(p.Async)
	p.Engine.MaxModelLen = p.MaxModelLen
	p.Router.Settings = p.Router.Effective()
	p.Engine.KVBlocks = strconv.Itoa(p.Blocks + p.nullBlocks())
}

// nullBlocks is the number of KV blocks that the engine keeps for itself: vLLM reserves block 0, and counts it.
func (p *Plan) nullBlocks() int {
	if p.Engine.Kind == "vllm" {
		return 1
	}
	return 0
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
	p.Blocks -= p.nullBlocks()
	if p.Blocks < 1 {
		return bad("engine.kv_blocks", "%d blocks leave none besides the engine's own", p.Blocks+p.nullBlocks())
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
