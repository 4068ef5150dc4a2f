// Package models knows what it takes to serve a language model on a GPU: the sizes of weights and KV entries, how many
// KV blocks are left on a device, and how long one engine step takes. It holds no state and knows no clock.
//
//	Lookup ─► Model ─┐
//	                 ├─► Deployment ─► Capacity (KV blocks)
//	LookupGPU ─► GPU ┘              └► StepCost (time of one step)
package models

import (
	"errors"
	"fmt"
	"slices"
)

// Model is the architecture of a decoder-only language model. Numbers of attention heads and of layers are those of the
// whole model; FFN widths are those of gated FFNs, which have three matrices.
type Model struct {
	// Name is the catalogue name, or the path of a configuration file.
	Name string `yaml:"name"`
	// Aliases are other names of the same architecture, lower case, without the organisation.
	Aliases []string `yaml:"aliases"`
	// Source tells where the numbers come from and what they leave out.
	Source string `yaml:"source"`

	Layers  int `yaml:"layers"`
	Hidden  int `yaml:"hidden"`   // width of the residual stream
	Heads   int `yaml:"heads"`    // query heads
	KVHeads int `yaml:"kv_heads"` // key-value heads; 0 with MLA
	HeadDim int `yaml:"head_dim"` // numbers per head; 0 with MLA
	FFN     int `yaml:"ffn"`      // width of a dense layer's FFN; 0 without dense layers
	Vocab   int `yaml:"vocab"`    // tokens

	// MaxContext is the longest context in tokens; 0 when not known.
	MaxContext int `yaml:"max_context"`
	// DType is the format of the released weights.
	DType DType `yaml:"dtype"`
	// BF16Attention tells that attention projections stay bf16 when the rest is quantised (gpt-oss).
	BF16Attention bool `yaml:"bf16_attention"`
	// GatedAttention tells that full attention has an output gate, as wide as its queries (Qwen3-Next).
	GatedAttention bool `yaml:"gated_attention"`
	// TiedEmbeddings tells that the output head shares the embedding's weights.
	TiedEmbeddings bool `yaml:"tied_embeddings"`

	// VisionParams counts the parameters of encoders for other modalities, which stay bf16 and are split over tensor
	// ranks. No step reads them: prompts are text.
	VisionParams int64 `yaml:"vision_params"`

	MLA    MLA    `yaml:"mla"`    // zero: multi-head or grouped-query attention
	MoE    MoE    `yaml:"moe"`    // zero: every layer is dense
	Window Window `yaml:"window"` // zero: no sliding windows
	Linear Linear `yaml:"linear"` // zero: no linear attention
	// ChunkedLayers have chunked attention (Llama 4). Their KV is counted as growing with the context.
	ChunkedLayers int `yaml:"chunked_layers"`

	// joined is the number of hidden vectors that a product joins into the input, before the first layer: those of a
	// drafter.
	joined int
}

// MLA is multi-head latent attention, as in DeepSeek-V3: KV entries are one latent vector per token and layer.
type MLA struct {
	QRank    int `yaml:"q_rank"` // width of the query latent; 0: queries are projected directly
	KVRank   int `yaml:"kv_rank"`
	NopeDim  int `yaml:"nope_dim"` // numbers per query head without position
	RopeDim  int `yaml:"rope_dim"` // numbers per query head with position; the key's are shared by all heads
	ValueDim int `yaml:"value_dim"`
}

// MoE is a mixture of experts in all layers but the dense ones.
type MoE struct {
	Experts     int `yaml:"experts"`      // routed experts per layer
	Active      int `yaml:"active"`       // routed experts per token
	FFN         int `yaml:"ffn"`          // width of a routed expert
	SharedFFN   int `yaml:"shared_ffn"`   // width of all shared experts together
	DenseLayers int `yaml:"dense_layers"` // layers that have Model.FFN instead
}

// Window is sliding-window attention in some of the layers.
type Window struct {
	Tokens int `yaml:"tokens"`
	Layers int `yaml:"layers"`
}

// Linear is linear attention (gated delta net, as in Qwen3-Next) in some of the layers: a constant state per sequence.
type Linear struct {
	Layers     int `yaml:"layers"`
	KeyHeads   int `yaml:"key_heads"`
	KeyDim     int `yaml:"key_dim"`
	ValueHeads int `yaml:"value_heads"`
	ValueDim   int `yaml:"value_dim"`
	ConvKernel int `yaml:"conv_kernel"` // tokens
}

// FullLayers is the number of layers whose KV grows with the context.
func (m *Model) FullLayers() int { return m.Layers - m.Window.Layers - m.Linear.Layers }

// HybridGroups tells how the hybrid KV cache manager of vLLM counts KV: a block holds tokens of so many layers, and layers
// of different attention are in groups of that size, each with blocks of its own (vllm/v1/core/kv_cache_utils.py). It says
// nothing of models with linear attention, whose blocks are padded.
func (m *Model) HybridGroups() (layers, groups int) {
	var kinds []int
	for _, n := range []int{m.FullLayers() - m.ChunkedLayers, m.Window.Layers, m.ChunkedLayers} {
		if n > 0 {
			kinds = append(kinds, n)
		}
	}
	layers = slices.Min(kinds)
	if most := slices.Max(kinds); float64(most) < 1.25*float64(layers) {
		layers = most
	}
	for _, n := range kinds {
		groups += (n + layers - 1) / layers
	}
	return layers, groups
}

// MoELayers is the number of layers with experts.
func (m *Model) MoELayers() int {
	if m.MoE.Experts == 0 {
		return 0
	}
	return m.Layers - m.MoE.DenseLayers
}

// Attention names the kind of attention: "MHA", "GQA" or "MLA", with " + window" or " + linear" for a hybrid.
func (m *Model) Attention() string {
	kind := "GQA"
	switch {
	case m.MLA.KVRank > 0:
		kind = "MLA"
	case m.KVHeads == m.Heads:
		kind = "MHA"
	}
	if m.Window.Layers > 0 {
		kind += " + window"
	}
	if m.Linear.Layers > 0 {
		kind += " + linear"
	}
	return kind
}

// KVBytesPerToken is the size of one token's KV entries in the whole model, stored once. It counts the layers that grow
// with the context; see StateBytesPerSequence for the others. kv is BF16, FP16 or FP8.
func (m *Model) KVBytesPerToken(kv DType) int64 {
	return int64(m.FullLayers()) * m.kvBytesPerLayer(kv, 1)
}

// StateBytesPerSequence is what one sequence occupies in the whole model whatever its length: full windows, and the
// states of linear attention. 0 for a model with full attention only.
func (m *Model) StateBytesPerSequence(kv DType) int64 { return m.stateBytes(kv, 1) }

// kvBytesPerLayer is the size of one token's KV entries in one layer on one of tensor ranks. KV heads are split until
// each rank has one and then copied; a latent vector is on every rank.
func (m *Model) kvBytesPerLayer(kv DType, tensor int) int64 {
	if m.MLA.KVRank > 0 {
		return kv.bytes(int64(m.MLA.KVRank + m.MLA.RopeDim))
	}
	return kv.bytes(2 * int64(max(1, m.KVHeads/tensor)) * int64(m.HeadDim))
}

// stateBytes is StateBytesPerSequence on one of tensor ranks. The state of a linear layer has a bf16 part for the
// convolution and an fp32 part for the recurrence (alibaba/InferSim kvcache.py).
func (m *Model) stateBytes(kv DType, tensor int) int64 {
	window := int64(m.Window.Layers) * int64(m.Window.Tokens) * m.kvBytesPerLayer(kv, tensor)
	l := m.Linear
	heads := func(n int) int64 { return int64(max(1, n/tensor)) }
	keys, values := heads(l.KeyHeads)*int64(l.KeyDim), heads(l.ValueHeads)*int64(l.ValueDim)
	conv := (values + 2*keys) * int64(max(0, l.ConvKernel-1)) * 2
	recurrence := values * int64(l.KeyDim) * 4
	return window + int64(l.Layers)*(conv+recurrence)
}

// Limits on what a configuration may say. They leave room for anything plausible and keep all products within int64.
const (
	maxLayers  = 10_000
	maxWidth   = 1 << 20 // hidden, heads, head widths, FFN widths
	maxExperts = 1 << 16
	maxVocab   = 1 << 26
	maxContext = 1 << 30
	maxParams  = 1e15
)

// Validate reports the first number that is missing, out of range or in contradiction to another, by its key.
func (m *Model) Validate() error {
	if err := m.validate(); err != nil {
		return fmt.Errorf("model %s: %w", m.Name, err)
	}
	return nil
}

func (m *Model) validate() error {
	type field struct {
		key         string
		value       int
		least, most int
	}
	fields := []field{
		{"layers", m.Layers, 1, maxLayers},
		{"hidden", m.Hidden, 1, maxWidth},
		{"heads", m.Heads, 1, maxWidth},
		{"vocab", m.Vocab, 1, maxVocab},
		{"max_context", m.MaxContext, 0, maxContext},
	}
	if m.MLA != (MLA{}) {
		fields = append(fields,
			field{"mla.q_rank", m.MLA.QRank, 0, maxWidth},
			field{"mla.kv_rank", m.MLA.KVRank, 1, maxWidth},
			field{"mla.nope_dim", m.MLA.NopeDim, 1, maxWidth},
			field{"mla.rope_dim", m.MLA.RopeDim, 0, maxWidth},
			field{"mla.value_dim", m.MLA.ValueDim, 1, maxWidth},
			field{"kv_heads (with mla)", m.KVHeads, 0, 0},
			field{"head_dim (with mla)", m.HeadDim, 0, 0},
			field{"window.layers (with mla)", m.Window.Layers, 0, 0})
	} else {
		fields = append(fields,
			field{"kv_heads", m.KVHeads, 1, m.Heads},
			field{"head_dim", m.HeadDim, 1, maxWidth})
	}
	dense := 1
	if m.MoE != (MoE{}) {
		if m.MoE.DenseLayers == 0 {
			dense = 0
		}
		fields = append(fields,
			field{"moe.experts", m.MoE.Experts, 1, maxExperts},
			field{"moe.active", m.MoE.Active, 1, m.MoE.Experts},
			field{"moe.ffn", m.MoE.FFN, 1, maxWidth},
			field{"moe.shared_ffn", m.MoE.SharedFFN, 0, maxWidth},
			field{"moe.dense_layers", m.MoE.DenseLayers, 0, m.Layers - 1})
	}
	fields = append(fields, field{"ffn", m.FFN, dense, maxWidth})
	fields = append(fields, field{"chunked_layers", m.ChunkedLayers, 0, m.FullLayers()})
	if m.Window != (Window{}) {
		fields = append(fields,
			field{"window.tokens", m.Window.Tokens, 1, maxContext},
			field{"window.layers", m.Window.Layers, 1, m.Layers})
	}
	if m.Linear != (Linear{}) {
		fields = append(fields,
			field{"linear.layers", m.Linear.Layers, 1, m.Layers},
			field{"linear.key_heads", m.Linear.KeyHeads, 1, maxWidth},
			field{"linear.key_dim", m.Linear.KeyDim, 1, maxWidth},
			field{"linear.value_heads", m.Linear.ValueHeads, 1, maxWidth},
			field{"linear.value_dim", m.Linear.ValueDim, 1, maxWidth},
			field{"linear.conv_kernel", m.Linear.ConvKernel, 1, 1 << 10})
	}
	for _, f := range fields {
		if f.value < f.least || f.value > f.most {
			return &rangeError{f.key, f.value, f.least, f.most}
		}
	}
	if m.MLA.KVRank == 0 && m.Heads%m.KVHeads != 0 {
		return fmt.Errorf("heads (%d) is not a multiple of kv_heads (%d)", m.Heads, m.KVHeads)
	}
	if m.FullLayers() < 1 {
		return errors.New("no layer has full attention: KV capacity in tokens has no meaning")
	}
	if err := m.DType.checkWeights("dtype"); err != nil {
		return err
	}
	if m.VisionParams < 0 || m.VisionParams > 1e12 {
		return fmt.Errorf("vision_params is %d, want 0 to 1e12", m.VisionParams)
	}
	if n := m.sizeBound(); n > maxParams {
		return fmt.Errorf("about %.1e parameters, want at most %.0e", n, maxParams)
	}
	return nil
}

// rangeError is a number out of its range, by the key that a model has it under.
type rangeError struct {
	key                string
	value, least, most int
}

func (e *rangeError) Error() string {
	if e.value == 0 && e.least > 0 {
		return fmt.Sprintf("%s is missing or 0, want %d to %d", e.key, e.least, e.most)
	}
	return fmt.Sprintf("%s is %d, want %d to %d", e.key, e.value, e.least, e.most)
}

// sizeBound is an upper bound of the number of parameters and of the numbers in one sequence's state, in floating point
// so that it cannot overflow.
func (m *Model) sizeBound() float64 {
	f := func(n int) float64 { return float64(n) }
	d := f(m.Hidden)
	head := max(f(m.HeadDim), f(m.MLA.NopeDim)+f(m.MLA.RopeDim)+f(m.MLA.ValueDim))
	attention := 5*d*f(m.Heads)*head + (f(m.MLA.QRank)+f(m.MLA.KVRank))*(f(m.Heads)*head+d+f(m.MLA.RopeDim))
	linear := (d + f(m.Linear.ConvKernel) + f(m.Linear.KeyDim)) * 4 *
		(f(m.Linear.KeyHeads)*f(m.Linear.KeyDim) + f(m.Linear.ValueHeads)*(f(m.Linear.ValueDim)+1))
	ffn := 3*d*(f(m.FFN)+f(m.MoE.SharedFFN)+f(m.MoE.Experts)*f(m.MoE.FFN)) + d*f(m.MoE.Experts)
	window := f(m.Window.Tokens) * 2 * f(m.KVHeads) * f(m.HeadDim)
	return f(m.Layers)*(attention+linear+ffn+window) + 2*d*f(m.Vocab)
}
