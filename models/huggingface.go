package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// hfConfig is what a Hugging Face config.json says about a model's shape. Keys differ between model families; a pointer
// or an empty list is a key that is absent or null.
type hfConfig struct {
	ModelType string `json:"model_type"`

	Hidden         *int  `json:"hidden_size"`
	Layers         *int  `json:"num_hidden_layers"`
	Heads          *int  `json:"num_attention_heads"`
	KVHeads        *int  `json:"num_key_value_heads"`
	HeadDim        *int  `json:"head_dim"`
	FFN            *int  `json:"intermediate_size"`
	DenseFFN       *int  `json:"intermediate_size_mlp"` // Llama 4: dense layers
	Vocab          *int  `json:"vocab_size"`
	MaxContext     *int  `json:"max_position_embeddings"`
	TiedEmbeddings *bool `json:"tie_word_embeddings"`
	OutputGate     *bool `json:"attn_output_gate"`

	KVRank   *int `json:"kv_lora_rank"`
	QRank    *int `json:"q_lora_rank"`
	NopeDim  *int `json:"qk_nope_head_dim"`
	RopeDim  *int `json:"qk_rope_head_dim"`
	ValueDim *int `json:"v_head_dim"`

	Experts       *int            `json:"num_experts"`
	RoutedExperts *int            `json:"n_routed_experts"`
	LocalExperts  *int            `json:"num_local_experts"`
	Active        *int            `json:"num_experts_per_tok"`
	ExpertFFN     *int            `json:"moe_intermediate_size"`
	SharedExperts *int            `json:"n_shared_experts"`
	SharedFFN     *int            `json:"shared_expert_intermediate_size"`
	FirstDense    *int            `json:"first_k_dense_replace"`
	SparseStep    *int            `json:"decoder_sparse_step"`
	Interleave    *int            `json:"interleave_moe_layer_step"`
	DenseOnly     []int           `json:"mlp_only_layers"`
	MoEFrequency  json.RawMessage `json:"moe_layer_freq"` // a number, or a list of 0 and 1

	WindowTokens    *int     `json:"sliding_window"`
	ChunkTokens     *int     `json:"attention_chunk_size"`
	NoRopeInterval  *int     `json:"no_rope_layer_interval"` // layers without rotary embedding have no chunks
	UseWindow       *bool    `json:"use_sliding_window"`
	MaxWindowLayers *int     `json:"max_window_layers"`
	LayerTypes      []string `json:"layer_types"`
	FullInterval    *int     `json:"full_attention_interval"`
	AttnTypes       []int    `json:"attn_type_list"` // MiniMax: 0 is linear attention

	LinearKeyHeads   *int `json:"linear_num_key_heads"`
	LinearKeyDim     *int `json:"linear_key_head_dim"`
	LinearValueHeads *int `json:"linear_num_value_heads"`
	LinearValueDim   *int `json:"linear_value_head_dim"`
	LinearKernel     *int `json:"linear_conv_kernel_dim"`

	DType        string          `json:"dtype"`
	TorchDType   string          `json:"torch_dtype"`
	Quantization *hfQuantization `json:"quantization_config"`

	Text *hfConfig `json:"text_config"` // of a model with other modalities

	// Keys of architectures that this package cannot size.
	HybridPattern json.RawMessage `json:"hybrid_override_pattern"`
	BlockTypes    json.RawMessage `json:"layers_block_type"`
	IndexTopK     json.RawMessage `json:"index_topk"`
}

// hfQuantization is the format of quantised weights, in the words of whatever quantised them.
type hfQuantization struct {
	Method    string `json:"quant_method"`
	Algorithm string `json:"quant_algo"` // modelopt
	Bits      int    `json:"bits"`       // gptq, awq
	Groups    struct {
		First struct {
			Weights struct {
				Bits int    `json:"num_bits"`
				Type string `json:"type"`
			} `json:"weights"`
		} `json:"group_0"`
	} `json:"config_groups"` // compressed-tensors
}

// ReadConfig reads the Hugging Face config.json at path. Only the text part of a model with other modalities counts. A
// key that is missing, contradicts another or is not understood is an error that names it.
func ReadConfig(path string) (*Model, error) {
	data, err := readBounded(path, maxConfigBytes)
	if err != nil {
		return nil, fmt.Errorf("reading a model's config.json: %w", err)
	}
	m, err := parseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	m.Name, m.Source = path, "configuration file"
	return m, nil
}

// parseConfig makes a nameless model from the text of a config.json.
func parseConfig(data []byte) (*Model, error) {
	var c hfConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	if c.Text != nil {
		text := *c.Text
		if text.Quantization == nil {
			text.Quantization = c.Quantization
		}
		if text.DType == "" && text.TorchDType == "" {
			text.DType, text.TorchDType = c.DType, c.TorchDType
		}
		if text.TiedEmbeddings == nil {
			text.TiedEmbeddings = c.TiedEmbeddings
		}
		c = text
	}
	m, err := c.model()
	if err != nil {
		return nil, err
	}
	err = m.validate()
	if outside, ok := errors.AsType[*rangeError](err); ok {
		if key, ok := hfKeys[outside.key]; ok {
			outside.key = key
		}
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// hfKeys translates the keys of Model to those of a config.json.
var hfKeys = map[string]string{
	"layers":             "num_hidden_layers",
	"hidden":             "hidden_size",
	"heads":              "num_attention_heads",
	"vocab":              "vocab_size",
	"max_context":        "max_position_embeddings",
	"kv_heads":           "num_key_value_heads",
	"ffn":                "intermediate_size",
	"mla.q_rank":         "q_lora_rank",
	"mla.kv_rank":        "kv_lora_rank",
	"mla.nope_dim":       "qk_nope_head_dim",
	"mla.rope_dim":       "qk_rope_head_dim",
	"mla.value_dim":      "v_head_dim",
	"moe.experts":        "num_experts, n_routed_experts or num_local_experts",
	"moe.active":         "num_experts_per_tok",
	"moe.ffn":            "moe_intermediate_size (or, in its place, intermediate_size)",
	"moe.shared_ffn":     "shared_expert_intermediate_size (or n_shared_experts times moe_intermediate_size)",
	"moe.dense_layers":   "number of layers without experts",
	"window.tokens":      "sliding_window",
	"linear.key_heads":   "linear_num_key_heads",
	"linear.key_dim":     "linear_key_head_dim",
	"linear.value_heads": "linear_num_value_heads",
	"linear.value_dim":   "linear_value_head_dim",
	"linear.conv_kernel": "linear_conv_kernel_dim",
}

func (c *hfConfig) model() (*Model, error) {
	for _, unsupported := range []struct {
		key     string
		present bool
	}{
		{"hybrid_override_pattern", present(c.HybridPattern)},
		{"layers_block_type", present(c.BlockTypes)},
		{"index_topk", present(c.IndexTopK)},
	} {
		if unsupported.present {
			return nil, fmt.Errorf("%s: this kind of attention is not supported", unsupported.key)
		}
	}
	m := &Model{
		Layers:         value(c.Layers),
		Hidden:         value(c.Hidden),
		Heads:          value(c.Heads),
		Vocab:          value(c.Vocab),
		MaxContext:     value(c.MaxContext),
		TiedEmbeddings: c.TiedEmbeddings != nil && *c.TiedEmbeddings,
	}
	// What follows loops over layers and divides by heads; everything else is checked at the end.
	if m.Layers < 1 || m.Layers > maxLayers {
		return nil, &rangeError{"num_hidden_layers", m.Layers, 1, maxLayers}
	}
	if m.Heads < 1 || m.Heads > maxWidth {
		return nil, &rangeError{"num_attention_heads", m.Heads, 1, maxWidth}
	}
	for _, set := range []func(*Model) error{c.setHeads, c.setFFN, c.setLayers, c.setDType} {
		if err := set(m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// setHeads fills in the shape of attention: a latent, or heads as wide as head_dim says, else hidden_size divided by
// num_attention_heads.
func (c *hfConfig) setHeads(m *Model) error {
	if c.KVRank != nil {
		m.MLA = MLA{value(c.QRank), *c.KVRank, value(c.NopeDim), value(c.RopeDim), value(c.ValueDim)}
		return nil
	}
	m.KVHeads = m.Heads
	if c.KVHeads != nil {
		m.KVHeads = *c.KVHeads
		if m.KVHeads < 1 || m.Heads%m.KVHeads != 0 {
			return fmt.Errorf("num_key_value_heads (%d) does not divide num_attention_heads (%d)", m.KVHeads, m.Heads)
		}
	}
	if c.HeadDim != nil {
		m.HeadDim = *c.HeadDim
	} else if m.HeadDim = m.Hidden / m.Heads; m.Hidden%m.Heads != 0 {
		return fmt.Errorf("head_dim is missing, and num_attention_heads (%d) does not divide hidden_size (%d)", m.Heads, m.Hidden)
	}
	if c.OutputGate != nil {
		m.GatedAttention = *c.OutputGate
	} else {
		m.GatedAttention = c.ModelType == "qwen3_next"
	}
	return nil
}

// setDType fills in the format of the weights: the quantisation's, else that of the tensors.
func (c *hfConfig) setDType(m *Model) error {
	m.DType = BF16
	if c.DType == "float16" || c.DType == "" && c.TorchDType == "float16" {
		m.DType = FP16
	}
	if c.Quantization == nil {
		return nil
	}
	dtype, err := c.Quantization.dtype()
	if err != nil {
		return fmt.Errorf("quantization_config: %w", err)
	}
	m.DType = dtype
	m.BF16Attention = c.ModelType == "gpt_oss"
	return nil
}

func (q *hfQuantization) dtype() (DType, error) {
	method := strings.ToLower(q.Method + " " + q.Algorithm)
	has := func(word string) bool { return strings.Contains(method, word) }
	first := q.Groups.First.Weights
	bits := max(q.Bits, first.Bits)
	switch {
	case has("nvfp4"), bits == 4 && first.Type == "float":
		return NVFP4, nil
	case has("mxfp4"):
		return MXFP4, nil
	case has("fp8"), bits == 8: // int8 has the size of fp8
		return FP8, nil
	case has("awq") && bits == 0, bits == 4:
		return INT4, nil
	}
	return "", fmt.Errorf("quant_method %q with %d bits is not known, want fp8, mxfp4, nvfp4 or 4 or 8 bits", q.Method, bits)
}

// present tells whether a key stands in the file with a value.
func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// value is what a key says, 0 where it is absent.
func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}
