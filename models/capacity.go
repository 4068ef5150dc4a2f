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
	// Blocks is what the engine allocates and vLLM logs as num_gpu_blocks.
	Blocks int `json:"blocks"`
	// UsableBlocks is Blocks without the null block that vLLM reserves.
	UsableBlocks int `json:"usable_blocks"`
	// Tokens is the room in UsableBlocks.
	Tokens int64 `json:"tokens"`
	// LowBlocks and HighBlocks bound Blocks when the residual is off by its usual error.
	LowBlocks  int `json:"low_blocks"`
	HighBlocks int `json:"high_blocks"`

	// KVBytesPerToken counts the layers whose KV grows with the context.
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
	Budget   int64 `json:"budget"` // Total · utilization
	Weights  int64 `json:"weights"`
	Residual int64 `json:"residual"`            // activations, workspaces, communication buffers and contexts, MoEExtra included
	MoEExtra int64 `json:"moe_extra,omitempty"` // the part of Residual that only models with experts have; known from one launch
	KV       int64 `json:"kv"`
}

// residualErrorGiB is the error of the residual rule. Of 8 dense launches it holds for 7 within 0.13 GiB; Llama-2-7B is
// 0.89 GiB off.
const residualErrorGiB = 0.7

// moeExtraGiB is what Llama-4-Scout in fp8 takes beyond the rule, on one pair of H100s. Since one launch is all there
// is, the interval of a model with experts runs from none of it to twice as much.
const moeExtraGiB = 3.5

// Capacity computes the KV blocks that vLLM would allocate:
//
//	budget   = total · utilization
//	residual = 1.2 GiB + max_batched_tokens · (4 · ffn/tp + hidden) bytes, + 3.5 GiB with experts
//	blocks   = ⌊(budget − weights − residual) / (block_size · KV bytes per token)⌋
//
// The residual describes launches of vLLM 0.15.1 on H100 (dense models; see residualErrorGiB); ffn is the widest that one
// token passes, all its experts together. A model that leaves no
// room for KV is an error that says what is missing and which tensor parallelism would do.
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
	var c Capacity
	c.Memory.Total = int64(math.Round(d.GPU.VisibleGiB * gib))
	c.Memory.Budget = int64(math.Round(d.GPU.VisibleGiB * gib * d.MemoryUtilization))
	c.Memory.Weights = d.WeightBytesPerGPU()

	activations := int64(d.MaxBatchedTokens) * int64(4*d.widestFFN()/p.Tensor+m.Hidden)
	c.Memory.Residual = int64(math.Round(1.2*gib)) + activations
	spread := int64(math.Round(residualErrorGiB * gib))
	if m.MoELayers() > 0 {
		c.Memory.MoEExtra = int64(math.Round(moeExtraGiB * gib))
		c.Memory.Residual += c.Memory.MoEExtra
		spread += c.Memory.MoEExtra
	}
	c.Memory.KV = max(0, c.Memory.Budget-c.Memory.Weights-c.Memory.Residual)

	c.KVBytesPerToken = int64(perStage(m.FullLayers(), p.Pipeline)) * m.kvBytesPerLayer(d.KV, p.Tensor)
	c.StateBytesPerSequence = stageShare(m.stateBytes(d.KV, p.Tensor), m.Layers, p.Pipeline)
	blockBytes := int64(d.BlockSize) * c.KVBytesPerToken
	blocks := func(kv int64) int { return int(max(0, kv) / blockBytes) }
	c.Blocks = blocks(c.Memory.KV)
	c.UsableBlocks = max(0, c.Blocks-1)
	c.Tokens = int64(c.UsableBlocks) * int64(d.BlockSize)
	free := c.Memory.Budget - c.Memory.Weights - c.Memory.Residual
	c.LowBlocks, c.HighBlocks = blocks(free-spread), blocks(min(free+spread, c.Memory.Budget-c.Memory.Weights))
	c.BlocksPerSequence = int((c.StateBytesPerSequence + blockBytes - 1) / blockBytes)
	return c
}

// WeightBytesPerGPU is the size of the weights on one GPU of the fullest pipeline stage, in bytes.
func (d *Deployment) WeightBytesPerGPU() int64 {
	full := d.WithDefaults()
	m, p := full.Model, full.Parallelism
	s := m.shard(p.Tensor, p.Tensor*p.Data)
	vocabulary := s.embedding // the first and the last stage have one matrix each
	if p.Pipeline == 1 {
		vocabulary *= m.embeddings()
	}
	return stageShare(m.layerBytes(s, full.Weights)+full.Weights.bytes(s.experts), m.Layers, p.Pipeline) + BF16.bytes(vocabulary)
}

// widestFFN is the FFN width that a dense layer has or, without dense layers, that one token's experts have together.
func (d *Deployment) widestFFN() int {
	m := d.Model
	return max(m.FFN, m.MoE.SharedFFN+m.MoE.Active*m.MoE.FFN)
}

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
