package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// setFFN fills in the widths of the FFNs and which layers have experts.
func (c *hfConfig) setFFN(m *Model) error {
	m.FFN = value(c.FFN)
	experts := c.Experts
	switch {
	case c.RoutedExperts != nil:
		experts = c.RoutedExperts
	case c.LocalExperts != nil:
		experts = c.LocalExperts
	}
	if value(experts) <= 1 { // some dense models say 0 or 1
		if c.FFN == nil {
			return errors.New("intermediate_size is missing")
		}
		return nil
	}
	m.MoE = MoE{Experts: *experts, Active: value(c.Active), FFN: value(c.ExpertFFN)}
	if c.ExpertFFN == nil { // Mixtral, gpt-oss, MiniMax-M2, Llama 4
		if c.FFN == nil {
			return fmt.Errorf("moe_intermediate_size and intermediate_size are missing, although the model has %d experts", *experts)
		}
		m.MoE.FFN, m.FFN = *c.FFN, value(c.DenseFFN)
	}
	switch n := value(c.SharedExperts); {
	case c.SharedFFN != nil:
		m.MoE.SharedFFN = *c.SharedFFN
	case n < 0 || n > maxExperts:
		return fmt.Errorf("n_shared_experts is %d, want 0 to %d", n, maxExperts)
	case n > 0:
		m.MoE.SharedFFN = n * m.MoE.FFN
	case strings.HasPrefix(c.ModelType, "llama4"):
		m.MoE.SharedFFN = m.MoE.FFN
	}
	dense, err := c.denseLayers(m.Layers)
	if err != nil {
		return err
	}
	m.MoE.DenseLayers = dense
	if dense == 0 {
		m.FFN = 0 // stated by some, used by no layer
	} else if m.FFN == 0 {
		return fmt.Errorf("%d layers have no experts, but the width of a dense layer is missing", dense)
	}
	return nil
}

// denseLayers counts the layers without experts.
func (c *hfConfig) denseLayers(layers int) (int, error) {
	// Experts are in every step-th layer from phase on: DeepSeek begins with the first layer, Qwen and Llama 4 with the
	// step-th.
	step, phase := 1, 0
	var sparse []int // 0 for a dense layer
	if present(c.MoEFrequency) && json.Unmarshal(c.MoEFrequency, &step) != nil {
		step = 1
		if json.Unmarshal(c.MoEFrequency, &sparse) != nil || len(sparse) != layers {
			return 0, fmt.Errorf("moe_layer_freq: want a number or a list of %d numbers", layers)
		}
	}
	for _, n := range []*int{c.SparseStep, c.Interleave} {
		if n != nil {
			step, phase = *n, *n-1
		}
	}
	if step < 1 || step > layers {
		return 0, fmt.Errorf("moe_layer_freq, decoder_sparse_step or interleave_moe_layer_step is %d, want 1 to %d", step, layers)
	}
	if len(c.DenseOnly) > layers {
		return 0, fmt.Errorf("mlp_only_layers names %d layers of %d", len(c.DenseOnly), layers)
	}
	dense := 0
	for i := range layers {
		hasExperts := i >= value(c.FirstDense) && i%step == phase && !slices.Contains(c.DenseOnly, i) &&
			(sparse == nil || sparse[i] != 0)
		if !hasExperts {
			dense++
		}
	}
	return dense, nil
}

// setLayers fills in which layers have windows or linear attention.
func (c *hfConfig) setLayers(m *Model) error {
	for _, t := range c.AttnTypes {
		if t == 0 {
			return errors.New("attn_type_list: linear attention of this kind is not supported")
		}
	}
	windows, linear, err := c.hybridLayers(m.Layers)
	if err != nil {
		return err
	}
	m.ChunkedLayers = c.chunkedLayers(m.Layers)
	if windows > 0 {
		if c.WindowTokens == nil {
			return fmt.Errorf("sliding_window is missing, although %d layers have one", windows)
		}
		if m.MaxContext == 0 || *c.WindowTokens < m.MaxContext { // else it never cuts anything off
			m.Window = Window{Tokens: *c.WindowTokens, Layers: windows}
		}
	}
	if m.Window.Layers == m.Layers {
		return errors.New("sliding_window applies to every layer: capacity in tokens has no meaning; set it to null to count every layer as full attention")
	}
	if linear == 0 {
		return nil
	}
	for _, f := range []struct {
		key  string
		from *int
		to   *int
	}{
		{"linear_num_key_heads", c.LinearKeyHeads, &m.Linear.KeyHeads},
		{"linear_key_head_dim", c.LinearKeyDim, &m.Linear.KeyDim},
		{"linear_num_value_heads", c.LinearValueHeads, &m.Linear.ValueHeads},
		{"linear_value_head_dim", c.LinearValueDim, &m.Linear.ValueDim},
		{"linear_conv_kernel_dim", c.LinearKernel, &m.Linear.ConvKernel},
	} {
		if f.from == nil {
			return fmt.Errorf("%s is missing, although %d layers have linear attention", f.key, linear)
		}
		*f.to = *f.from
	}
	m.Linear.Layers = linear
	return nil
}

// chunkedLayers counts the layers with chunked attention, which Llama 4 has in all but every fourth layer.
func (c *hfConfig) chunkedLayers(layers int) (chunked int) {
	if c.LayerTypes == nil && value(c.ChunkTokens) > 0 {
		interval := 4
		if n := value(c.NoRopeInterval); n > 0 {
			interval = n
		}
		return layers - layers/interval
	}
	for _, t := range c.LayerTypes {
		if t == "chunked_attention" {
			chunked++
		}
	}
	return chunked
}

// hybridLayers counts the layers that are not full attention, from layer_types where it stands, else from the rules that
// model families had before it.
func (c *hfConfig) hybridLayers(layers int) (windows, linear int, err error) {
	if c.LayerTypes != nil {
		if len(c.LayerTypes) != layers {
			return 0, 0, fmt.Errorf("layer_types has %d entries, but num_hidden_layers is %d", len(c.LayerTypes), layers)
		}
		for i, t := range c.LayerTypes {
			switch t {
			case "full_attention", "chunked_attention": // vLLM sizes the KV of chunked layers like that of full ones
			case "sliding_attention":
				windows++
			case "linear_attention":
				linear++
			default:
				return 0, 0, fmt.Errorf("layer_types: entry %d is %q, want full_attention, sliding_attention, chunked_attention or linear_attention", i, t)
			}
		}
		return windows, linear, nil
	}
	if c.LinearValueHeads != nil { // Qwen3-Next
		interval := 4
		if c.FullInterval != nil {
			interval = *c.FullInterval
		}
		if interval < 1 || interval > layers {
			return 0, 0, fmt.Errorf("full_attention_interval is %d, want 1 to %d", interval, layers)
		}
		return 0, layers - layers/interval, nil
	}
	if c.WindowTokens == nil || c.UseWindow != nil && !*c.UseWindow {
		return 0, 0, nil
	}
	if c.UseWindow != nil && c.MaxWindowLayers != nil { // Qwen2: the layers from max_window_layers on
		if *c.MaxWindowLayers < 0 {
			return 0, 0, fmt.Errorf("max_window_layers is %d, want at least 0", *c.MaxWindowLayers)
		}
		return max(0, layers-*c.MaxWindowLayers), 0, nil
	}
	return layers, 0, nil // Mistral
}
