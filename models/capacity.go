package models

import (
	"errors"
	"fmt"
	"math"
)

const gib = 1 << 30

// Capacity is the KV room of one worker rank: one data-parallel rank, whose KV is split over its tensor and pipeline
// ranks. Sizes are in bytes per GPU, on the fullest pipeline stage.
type Capacity struct {
	// Blocks is what the engine allocates: vLLM logs it as num_gpu_blocks, SGLang as max_total_num_tokens.
	Blocks int `json:"blocks"`
	// UsableBlocks is Blocks, for vLLM without the null block that it reserves.
	UsableBlocks int `json:"usable_blocks"`
	// Tokens is the room in UsableBlocks.
	Tokens int64 `json:"tokens"`
	// LowBlocks and HighBlocks bound Blocks when the residual is off by Memory.Error.
	LowBlocks  int `json:"low_blocks"`
	HighBlocks int `json:"high_blocks"`

	// KVBytesPerToken counts the layers whose KV grows with the context, those of a drafter included.
	KVBytesPerToken int64 `json:"kv_bytes_per_token"`
	// StateBytesPerSequence is the room of a sequence's full windows and recurrent states, to be charged to the pool
	// as BlocksPerSequence blocks.
	StateBytesPerSequence int64 `json:"state_bytes_per_sequence"`
	BlocksPerSequence     int   `json:"blocks_per_sequence"`

	Memory Memory `json:"memory"`
}

// Memory is where one GPU's memory goes, in bytes: Budget = Weights + Residual + KV.
type Memory struct {
	Total    int64 `json:"total"`  // as the engine finds it
	Budget   int64 `json:"budget"` // what the engine's rule leaves to the three below
	Weights  int64 `json:"weights"`
	Residual int64 `json:"residual"` // activations, workspaces, tables, communication buffers and contexts
	KV       int64 `json:"kv"`

	// Error bounds how far Residual may be off, either way.
	Error int64 `json:"error"`
}

// Capacity computes the KV blocks that the engine would allocate, by its own rule: see vllmMemory, sglangMemory and
// trtllmMemory. A model that leaves no room for KV is an error that says what is missing and which tensor parallelism
// would do.
func (d *Deployment) Capacity() (Capacity, error) {
	if err := d.Validate(); err != nil {
		return Capacity{}, err
	}
	full := d.WithDefaults()
	c := full.capacity()
	if c.UsableBlocks >= max(1, c.BlocksPerSequence) {
		return c, nil
	}
	// One null block, and the room of one sequence.
	need := c.Memory.Weights + c.Memory.Residual + int64(2+c.BlocksPerSequence)*int64(full.BlockSize)*c.KVBytesPerToken
	missing := float64(need-c.Memory.Budget) / gib
	err := fmt.Errorf("%s in %s does not fit on %s with tensor parallelism %d: %.1f GiB of weights and %.1f GiB of workspace exceed the %.1f GiB budget per GPU; %.1f GiB are missing",
		d.Model.Name, full.Weights, d.GPU.Name, full.Parallelism.Tensor,
		float64(c.Memory.Weights)/gib, float64(c.Memory.Residual)/gib, float64(c.Memory.Budget)/gib, max(missing, 0.1))
	tensor, smallestErr := d.SmallestTensor()
	if smallestErr != nil {
		return Capacity{}, fmt.Errorf("%w (%w)", err, smallestErr)
	}
	return Capacity{}, fmt.Errorf("%w (parallelism.tensor %d fits)", err, tensor)
}

func (d *Deployment) capacity() Capacity {
	m, p := d.Model, d.Parallelism
	c := Capacity{Memory: d.memory()}
	free := c.Memory.Budget - c.Memory.Weights - c.Memory.Residual
	c.Memory.KV = max(0, free)

	c.KVBytesPerToken = int64(perStage(m.FullLayers(), p.Pipeline)) * m.kvBytesPerLayer(d.KV, p.Tensor)
	if drafter := d.drafter(); drafter != nil {
		c.KVBytesPerToken += int64(drafter.Model.FullLayers()) * drafter.Model.kvBytesPerLayer(d.KV, p.Tensor)
	}
	c.StateBytesPerSequence = stageShare(m.stateBytes(d.KV, p.Tensor), m.Layers, p.Pipeline)
	blockBytes := int64(d.BlockSize) * c.KVBytesPerToken
	blocks := func(kv int64) int { return int(max(0, kv) / blockBytes) }
	c.Blocks = blocks(c.Memory.KV)
	c.UsableBlocks = c.Blocks
	if d.Engine == EngineVLLM {
		c.UsableBlocks = max(0, c.Blocks-1)
	}
	c.Tokens = int64(c.UsableBlocks) * int64(d.BlockSize)
	c.LowBlocks, c.HighBlocks = blocks(free-c.Memory.Error), blocks(min(free+c.Memory.Error, c.Memory.Budget-c.Memory.Weights))
	c.BlocksPerSequence = int((c.StateBytesPerSequence + blockBytes - 1) / blockBytes)
	return c
}

// memory is everything but the KV pool, by the engine's rule.
func (d *Deployment) memory() Memory {
	m := Memory{Total: gibBytes(d.GPU.VisibleGiB), Weights: d.WeightBytesPerGPU()}
	switch d.Engine {
	case EngineSGLang:
		d.sglangMemory(&m)
	case EngineTRTLLM:
		d.trtllmMemory(&m)
	default:
		d.vllmMemory(&m)
	}
	return m
}

func gibBytes(n float64) int64 { return int64(math.Round(n * gib)) }

// ropeBytes is the table of the rotary embedding, which vLLM and SGLang build for every position that the model knows:
// 2.5 GiB for the ten million of Llama-4-Scout, next to nothing for most.
func (d *Deployment) ropeBytes() int64 {
	dim := d.Model.HeadDim
	if d.Model.MLA.KVRank > 0 {
		dim = d.Model.MLA.RopeDim
	}
	return BF16.bytes(int64(max(d.Model.MaxContext, d.MaxModelLen)) * int64(dim))
}

// WeightBytesPerGPU is the size of the weights on one GPU of the fullest pipeline stage, in bytes, a drafter's included.
func (d *Deployment) WeightBytesPerGPU() int64 {
	full := d.WithDefaults()
	m, p := full.Model, full.Parallelism
	s := m.shard(p.Tensor, p.Tensor*p.Data)
	vocabulary := s.embedding // the first and the last stage have one matrix each
	if p.Pipeline == 1 {
		vocabulary *= m.embeddings()
	}
	experts := full.Weights.bytes(s.experts)
	if full.Engine == EngineVLLM && full.Weights == MXFP4 {
		experts = experts / int64(m.Hidden) * roundUp(int64(m.Hidden), vllmMXFP4Tile)
	}
	return stageShare(m.layerBytes(s, full.Weights)+experts, m.Layers, p.Pipeline) +
		BF16.bytes(vocabulary+m.VisionParams/int64(p.Tensor)) + full.drafterBytesPerGPU()
}

// roundUp is the least multiple of unit that is not below n.
func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// perStage is the largest number of layers on one of stages.
func perStage(layers, stages int) int { return (layers + stages - 1) / stages }

// stageShare is the part of bytes, spread evenly over layers, that the largest of stages has.
func stageShare(bytes int64, layers, stages int) int64 {
	if stages == 1 {
		return bytes
	}
	n, l := int64(perStage(layers, stages)), int64(layers)
	return bytes/l*n + (bytes%l*n+l-1)/l
}

// SmallestTensor is the smallest power of two, up to the GPUs that one link domain joins, that leaves room in KV for
// 100,000 tokens or for two contexts of MaxModelLen, whichever is less, as tensor parallelism. The other settings stay;
// expert parallelism, if there is any, spans all ranks. When none does, the error says why the largest was refused, and
// whether fp8 weights would fit.
func (d *Deployment) SmallestTensor() (int, error) {
	if d.Model == nil || d.GPU == nil {
		return 0, errors.New("a deployment needs a model and a gpu")
	}
	alone := *d
	alone.Parallelism.Tensor, alone.Parallelism.Expert = 1, 1
	if err := alone.Validate(); err != nil {
		return 0, err
	}
	tensor, last := d.smallestTensor()
	if tensor > 0 {
		return tensor, nil
	}
	err := fmt.Errorf("no tensor parallelism up to %d, the GPUs of one %s domain, fits %s in %s: %w",
		d.GPU.Domain, d.GPU.Name, d.Model.Name, d.WithDefaults().Weights, last)
	smaller := *d
	smaller.Weights = FP8
	if tensor, _ = smaller.smallestTensor(); tensor > 0 && d.WithDefaults().Weights != FP8 {
		err = fmt.Errorf("%w; with dtype.weights fp8 tensor %d does", err, tensor)
	}
	return 0, err
}

// smallestTensor returns 0 and why the largest was refused when none fits.
func (d *Deployment) smallestTensor() (int, error) {
	var last error
	for tensor := 1; tensor <= d.GPU.Domain; tensor *= 2 {
		try := d.WithDefaults()
		try.Parallelism.Tensor = tensor
		if try.Parallelism.Expert > 1 {
			try.Parallelism.Expert = tensor * try.Parallelism.Data
		}
		if last = try.Validate(); last != nil {
			continue
		}
		want := int64(100_000)
		if try.MaxModelLen > 0 {
			want = min(want, 2*int64(try.MaxModelLen))
		}
		c := try.capacity()
		if c.Tokens >= want {
			return tensor, nil
		}
		last = fmt.Errorf("tensor parallelism %d leaves room for %d tokens, want %d", tensor, c.Tokens, want)
	}
	return 0, last
}
