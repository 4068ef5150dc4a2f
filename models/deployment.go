package models

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Deployment is one worker: a model on GPUs of one kind, under one engine configuration. Zero fields have the defaults
// that WithDefaults fills in; all methods apply them.
type Deployment struct {
	Model       *Model
	GPU         *GPU
	Parallelism Parallelism

	Weights DType // default: the model's own
	KV      DType // default: bf16

	// Engine is the serving engine, whose rule sizes the KV pool: "vllm" (the default), "sglang" or "trtllm".
	Engine string
	// EngineVersion is that of vLLM, for rules that changed between versions; default "0.19". The others have none.
	EngineVersion string
	// Async tells whether vLLM schedules a step while the one before it runs; nil is the version's default.
	Async *bool

	// FilteredSampling tells that requests sample with top-p or top-k: the default of vLLM and Dynamo for models whose
	// generation_config.json has them.
	FilteredSampling bool

	BlockSize        int // tokens per KV block; default 16 (vllm), 1 (sglang) or 32 (trtllm)
	MaxNumSeqs       int // default 256
	MaxBatchedTokens int // tokens per step; default 8192
	// MaxModelLen is the longest context that is served, in tokens; default: the model's own. It may be longer than
	// that, since servers can be told to scale RoPE.
	MaxModelLen int
	// MemoryUtilization is vLLM's gpu_memory_utilization, the share of a GPU's memory that the engine may use (default
	// 0.9, and 0.92 from version 0.22), SGLang's mem_fraction_static, the share for weights and KV (default: its rule),
	// or TensorRT-LLM's free_gpu_memory_fraction, the share for KV of what weights and activations leave (default 0.9).
	MemoryUtilization float64

	// Speculative is speculative decoding; zero: none.
	Speculative Speculative
}

// The engines that a Deployment can have.
const (
	EngineVLLM   = "vllm"
	EngineSGLang = "sglang"
	EngineTRTLLM = "trtllm"
)

// Parallelism is how a worker's GPUs share the model. Zero means 1.
type Parallelism struct {
	Tensor   int // GPUs that split each layer
	Pipeline int // stages that split the layers
	// Data is the number of attention data-parallel ranks: each has its own requests, KV and copy of the attention
	// weights; routed experts are spread over all.
	Data int
	// Expert is the number of GPUs that hold different experts, a divisor of Tensor · Data; GPUs beyond that split
	// each expert. It does not change sizes.
	Expert int
}

// GPUs is the number of GPUs of one worker.
func (p Parallelism) GPUs() int { return p.Tensor * p.Pipeline * p.Data }

// WithDefaults returns the deployment with every default filled in.
func (d Deployment) WithDefaults() Deployment {
	orDefault := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	orDefault(&d.Parallelism.Tensor, 1)
	orDefault(&d.Parallelism.Pipeline, 1)
	orDefault(&d.Parallelism.Data, 1)
	orDefault(&d.Parallelism.Expert, 1)
	if d.Engine == "" {
		d.Engine = EngineVLLM
	}
	orDefault(&d.BlockSize, map[string]int{EngineSGLang: 1, EngineTRTLLM: 32}[d.Engine])
	orDefault(&d.BlockSize, 16)
	orDefault(&d.MaxNumSeqs, 256)
	orDefault(&d.MaxBatchedTokens, 8192)
	if d.Model != nil {
		orDefault(&d.MaxModelLen, d.Model.MaxContext)
		if d.Weights == "" {
			d.Weights = d.Model.DType
		}
	}
	if d.KV == "" {
		d.KV = BF16
	}
	if d.EngineVersion == "" && d.Engine == EngineVLLM {
		d.EngineVersion = "0.19"
	}
	if d.MemoryUtilization == 0 {
		d.MemoryUtilization = d.defaultUtilization()
	}
	return d
}

// defaultUtilization is the engine's own MemoryUtilization. Only SGLang's depends on other settings.
func (d *Deployment) defaultUtilization() float64 {
	switch {
	case d.Engine == EngineSGLang && d.GPU != nil:
		return d.sglangMemFraction()
	case d.Engine == EngineVLLM && d.versionFrom(22):
		return 0.92
	}
	return 0.9
}

// versionFrom tells whether vLLM is of version 0.minor or later.
func (d *Deployment) versionFrom(minor int) bool {
	major, n, err := parseVersion(d.EngineVersion)
	return err == nil && (major > 0 || n >= minor)
}

// Validate reports the first setting that is out of range, or that the engine could not run, by its configuration key.
func (d *Deployment) Validate() error {
	if d.Model == nil || d.GPU == nil {
		return errors.New("a deployment needs a model and a gpu")
	}
	if err := d.Model.Validate(); err != nil {
		return err
	}
	if err := d.GPU.Validate(); err != nil {
		return err
	}
	full := d.WithDefaults()
	if err := full.validate(); err != nil {
		return fmt.Errorf("deployment of %s on %s: %w", d.Model.Name, d.GPU.Name, err)
	}
	return nil
}

func (d *Deployment) validate() error {
	p := d.Parallelism
	for _, f := range []struct {
		key         string
		value       int
		least, most int
	}{
		{"parallelism.tensor", p.Tensor, 1, 1024},
		{"parallelism.pipeline", p.Pipeline, 1, d.Model.Layers},
		{"parallelism.data", p.Data, 1, 1024},
		{"parallelism.expert", p.Expert, 1, p.Tensor * p.Data},
		{"engine.block_size", d.BlockSize, 1, 1 << 16},
		{"engine.max_num_seqs", d.MaxNumSeqs, 1, 1 << 20},
		{"engine.max_num_batched_tokens", d.MaxBatchedTokens, 1, 10_000_000},
		{"engine.max_model_len", d.MaxModelLen, 0, maxContext},
	} {
		if f.value < f.least || f.value > f.most {
			return fmt.Errorf("%s is %d, want %d to %d", f.key, f.value, f.least, f.most)
		}
	}
	switch d.Engine {
	case EngineVLLM, EngineSGLang, EngineTRTLLM:
	default:
		return fmt.Errorf("engine.kind is %q, want vllm, sglang or trtllm", d.Engine)
	}
	if d.Engine == EngineVLLM && d.MaxBatchedTokens < d.MaxNumSeqs {
		return fmt.Errorf("engine.max_num_batched_tokens (%d) is less than engine.max_num_seqs (%d)", d.MaxBatchedTokens, d.MaxNumSeqs)
	}
	if !(d.MemoryUtilization > 0 && d.MemoryUtilization <= 1) {
		return fmt.Errorf("engine.gpu_memory_utilization is %g, want more than 0 and at most 1", d.MemoryUtilization)
	}
	if err := d.Weights.checkWeights("dtype.weights"); err != nil {
		return err
	}
	if err := d.KV.checkKV("dtype.kv"); err != nil {
		return err
	}
	if err := d.Speculative.validate(); err != nil {
		return err
	}
	if d.drafter() != nil && p.Pipeline > 1 {
		return fmt.Errorf("engine.speculative: a drafter on pipeline stages (parallelism.pipeline %d) is not simulated", p.Pipeline)
	}
	if d.Engine == EngineVLLM {
		if _, _, err := parseVersion(d.EngineVersion); err != nil {
			return err
		}
	}
	return d.validateSplit()
}

// validateSplit checks that every part of the model divides over the ranks that split it.
func (d *Deployment) validateSplit() error {
	m, p := d.Model, d.Parallelism
	for _, part := range []struct {
		name  string
		count int
	}{
		{"attention heads", m.Heads},
		{"ffn", m.FFN},
		{"moe.shared_ffn", m.MoE.SharedFFN},
		{"linear.value_heads", m.Linear.ValueHeads},
	} {
		if part.count%p.Tensor != 0 {
			return fmt.Errorf("parallelism.tensor (%d) does not divide the model's %s (%d)", p.Tensor, part.name, part.count)
		}
	}
	if m.KVHeads > 0 && m.KVHeads%p.Tensor != 0 && p.Tensor%m.KVHeads != 0 {
		return fmt.Errorf("parallelism.tensor (%d) neither divides the model's KV heads (%d) nor is a multiple of them", p.Tensor, m.KVHeads)
	}
	if p.Expert > 1 && m.MoE.Experts == 0 {
		return fmt.Errorf("parallelism.expert is %d, but the model has no experts", p.Expert)
	}
	if (p.Tensor*p.Data)%p.Expert != 0 {
		return fmt.Errorf("parallelism.expert (%d) does not divide tensor times data (%d)", p.Expert, p.Tensor*p.Data)
	}
	if p.Expert > 1 && p.Expert > m.MoE.Experts {
		return fmt.Errorf("parallelism.expert is %d, but the model has %d experts", p.Expert, m.MoE.Experts)
	}
	if split := p.Tensor * p.Data / p.Expert; m.MoE.FFN%split != 0 {
		return fmt.Errorf("%d GPUs share each expert, which does not divide moe.ffn (%d): raise parallelism.expert", split, m.MoE.FFN)
	}
	return nil
}

// AsyncScheduling tells whether the engine schedules a step while the one before it runs: the default of vLLM from
// 0.14 on (release notes of v0.14.0), and of the others. vLLM turns it off where drafts are made by other means than
// EAGLE or MTP (vllm/config/vllm.py, version 0.19).
func (d *Deployment) AsyncScheduling() bool {
	full := d.WithDefaults()
	if full.Engine == EngineVLLM && d.Async != nil {
		return *d.Async
	}
	hidden := d.Speculative.Method == "" || d.Speculative.Method.Hidden()
	return full.Engine != EngineVLLM || full.versionFrom(14) && hidden
}

// parseVersion reads "0.19", "0.19.1" or "v0.19".
func parseVersion(s string) (major, minor int, err error) {
	head, tail, ok := strings.Cut(strings.TrimPrefix(s, "v"), ".")
	if ok {
		tail, _, _ = strings.Cut(tail, ".")
		major, err = strconv.Atoi(head)
		if err == nil {
			minor, err = strconv.Atoi(tail)
		}
	}
	if !ok || err != nil || major < 0 || minor < 0 {
		return 0, 0, fmt.Errorf("engine.version is %q, want a number such as 0.19", s)
	}
	return major, minor, nil
}
