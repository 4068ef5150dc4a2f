package models

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestReadConfig reads configurations of all kinds of models and expects the catalogue's entry of the same name.
func TestReadConfig(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no configurations in testdata: %v", err)
	}
	for _, path := range paths {
		got, err := Lookup(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if got.Name != path {
			t.Errorf("%s is called %s", path, got.Name)
		}
		want := *lookup(t, strings.TrimSuffix(filepath.Base(path), ".json"))
		want.Name, want.Aliases, want.Source = got.Name, nil, got.Source
		if strings.Contains(path, "llama-4-scout") { // a config.json does not tell what quantised checkpoints leave out
			want.BF16Attention, want.VisionParams = false, 0
		}
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", path, *got, want)
		}
	}
}

// tiny is a configuration that tests add keys to: a repeated key overrides.
const tiny = `"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
	"intermediate_size": 128, "vocab_size": 1000`

func TestParseConfig(t *testing.T) {
	base := Model{Layers: 4, Hidden: 64, Heads: 8, KVHeads: 2, HeadDim: 8, FFN: 128, Vocab: 1000, DType: BF16}
	for _, c := range []struct {
		name, keys string
		want       func(*Model)
	}{
		{"plain", ``, func(*Model) {}},
		{"head_dim wins over hidden / heads", `"head_dim": 32`, func(m *Model) { m.HeadDim = 32 }},
		{"tied", `"tie_word_embeddings": true`, func(m *Model) { m.TiedEmbeddings = true }},
		{"one expert is none", `"num_experts": 1`, func(*Model) {}},
		{"every second layer has experts", `"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 2`,
			func(m *Model) { m.MoE = MoE{Experts: 8, Active: 2, FFN: 32, DenseLayers: 2} }},
		{"dense layers by number", `"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [0]`,
			func(m *Model) { m.MoE = MoE{Experts: 8, Active: 2, FFN: 32, DenseLayers: 1} }},
		{"dense layers by list", `"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_layer_freq": [0, 1, 1, 0]`,
			func(m *Model) { m.MoE = MoE{Experts: 8, Active: 2, FFN: 32, DenseLayers: 2} }},
		{"two shared experts", `"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 32`,
			func(m *Model) { m.MoE = MoE{Experts: 8, Active: 2, FFN: 32, SharedFFN: 64}; m.FFN = 0 }},
		{"windows from a layer on", `"sliding_window": 16, "use_sliding_window": true, "max_window_layers": 3`,
			func(m *Model) { m.Window = Window{Tokens: 16, Layers: 1} }},
		{"windows off", `"sliding_window": 16, "use_sliding_window": false`, func(*Model) {}},
		{"a window as long as the context", `"sliding_window": 4096, "max_position_embeddings": 4096`, func(m *Model) { m.MaxContext = 4096 }},
		{"fp8", `"quantization_config": {"quant_method": "fp8"}`, func(m *Model) { m.DType = FP8 }},
		{"modelopt", `"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}`, func(m *Model) { m.DType = NVFP4 }},
		{"awq", `"quantization_config": {"quant_method": "awq", "bits": 4}`, func(m *Model) { m.DType = INT4 }},
		{"compressed-tensors", `"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}`,
			func(m *Model) { m.DType = FP8 }},
	} {
		want := base
		c.want(&want)
		got, err := parseConfig([]byte(config(c.keys)))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.name, *got, want)
		}
	}
}

func TestParseConfigErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`[]`, "cannot unmarshal array"},
		{`{}`, "num_hidden_layers is missing or 0, want 1 to 10000"},
		{config(`"num_hidden_layers": 1000000000`), "num_hidden_layers is 1000000000, want 1 to 10000"},
		{config(`"hidden_size": "wide"`), "hidden_size"},
		{config(`"hidden_size": 72000000`), "hidden_size is 72000000, want 1 to 1048576"},
		{config(`"vocab_size": null`), "vocab_size"},
		{config(`"hidden_size": 65`), "head_dim is missing, and num_attention_heads (8) does not divide hidden_size (65)"},
		{config(`"head_dim": -1`), "head_dim is -1"},
		{config(`"num_key_value_heads": 3`), "num_key_value_heads (3) does not divide num_attention_heads (8)"},
		{config(`"kv_lora_rank": 16`), "qk_nope_head_dim is missing or 0"},
		{config(`"num_experts": 8`), "num_experts_per_tok is missing or 0, want 1 to 8"},
		{config(`"num_experts": 8, "num_experts_per_tok": 9`), "num_experts_per_tok is 9, want 1 to 8"},
		{config(`"num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 0`), "decoder_sparse_step or interleave_moe_layer_step is 0, want 1 to 4"},
		{config(`"num_experts": 8, "num_experts_per_tok": 2, "moe_layer_freq": [1]`), "moe_layer_freq: want a number or a list of 4 numbers"},
		{config(`"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 4`), "number of layers without experts is 4, want 0 to 3"},
		{config(`"layer_types": ["full_attention"]`), "layer_types has 1 entries, but num_hidden_layers is 4"},
		{config(`"layer_types": ["full_attention", "full_attention", "full_attention", "mamba"]`), `layer_types: entry 3 is "mamba"`},
		{config(`"layer_types": ["full_attention", "full_attention", "full_attention", "sliding_attention"]`), "sliding_window is missing, although 1 layers have one"},
		{config(`"layer_types": ["full_attention", "full_attention", "full_attention", "linear_attention"]`), "linear_num_key_heads is missing"},
		{config(`"sliding_window": 16`), "sliding_window applies to every layer"},
		{config(`"index_topk": 2048`), "index_topk: this kind of attention is not supported"},
		{config(`"quantization_config": {"quant_method": "vptq"}`), `quantization_config: quant_method "vptq"`},
	} {
		_, err := parseConfig([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.120s\n got error %v\n     want %s", c.text, err, c.want)
		}
	}
}

func TestReadConfigBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(strings.Repeat(" ", maxConfigBytes+1)), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig(path); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a file of %d bytes: %v", maxConfigBytes+1, err)
	}
}

// FuzzParseConfig checks that whatever is accepted can be sized and deployed without a panic or a number below zero.
func FuzzParseConfig(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.json")
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(config(`"sliding_window": 16, "use_sliding_window": true, "max_window_layers": 3`)))
	gpu, err := LookupGPU("h100-sxm")
	if err != nil {
		f.Fatal(err)
	}
	profile, err := LookupProfile("h100-vllm")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseConfig(data)
		if err != nil {
			return
		}
		s := m.Summary()
		if s.Params <= 0 || s.ActiveParams <= 0 || s.ActiveParams > s.Params || s.WeightBytes <= 0 || s.KVBytesPerToken <= 0 || s.StateBytesPerSequence < 0 {
			t.Errorf("%+v gives %+v", m, s)
		}
		if m.MoE.Experts > 0 && float64(m.MoE.Experts)/float64(m.MoE.Active) > 1000 {
			return // a long table of coverage: slow, not wrong
		}
		d := Deployment{Model: m, GPU: gpu}
		if c, err := d.Capacity(); err == nil && (c.Tokens <= 0 || c.LowBlocks > c.Blocks || c.HighBlocks < c.Blocks) {
			t.Errorf("%+v gives %+v", m, c)
		}
		cost, err := d.StepCostOf(profile)
		if err != nil {
			t.Fatalf("%+v was accepted but has no cost: %v", m, err)
		}
		if b := cost.Base(Batch{Decodes: 1}); b <= 0 {
			t.Errorf("%+v: a step takes %d", m, b)
		}
	})
}

func config(keys string) string {
	if keys == "" {
		return "{" + tiny + "}"
	}
	return "{" + tiny + ", " + keys + "}"
}
