package models

import (
	"math"
	"testing"
)

// TestModelTable checks the catalogue against published sizes: parameters in billions within 1%, KV bytes exactly.
func TestModelTable(t *testing.T) {
	for _, want := range []struct {
		name    string
		params  float64 // 10^9
		active  float64 // 10^9; 0: all
		kvBytes int64   // per token, bf16
	}{
		{"llama-3.1-8b", 8.03, 0, 131_072}, // 2 · 32 layers · 8 heads · 128 · 2 bytes
		{"llama-3.1-70b", 70.55, 0, 327_680},
		{"llama-3.3-70b", 70.55, 0, 327_680},
		{"qwen2.5-7b", 7.62, 0, 57_344},
		{"qwen2.5-32b", 32.76, 0, 262_144},
		{"qwen2.5-72b", 72.70, 0, 327_680},
		{"qwen3-8b", 8.19, 0, 147_456},
		{"qwen3-14b", 14.77, 0, 163_840},
		{"qwen3-32b", 32.76, 0, 262_144},
		{"qwen3-30b-a3b", 30.53, 3.35, 98_304},
		{"qwen3-235b-a22b", 235.1, 22.2, 192_512},
		{"qwen3-coder-480b-a35b", 480.2, 35.5, 253_952},
		{"qwen3-next-80b-a3b", 79.7, 0, 24_576}, // 2 · 12 full layers · 2 heads · 256 · 2 bytes
		{"mixtral-8x7b", 46.70, 12.88, 131_072},
		{"deepseek-v3", 671.0, 37.6, 70_272}, // 61 layers · (512 + 64) · 2 bytes
		{"deepseek-r1", 671.0, 37.6, 70_272},
		{"kimi-k2", 1026, 32.9, 70_272},
		{"gpt-oss-20b", 20.9, 4.19, 24_576},
		{"gpt-oss-120b", 116.8, 5.71, 36_864},
		{"glm-4.5", 352.8, 33.6, 376_832},
		{"glm-4.6", 352.8, 33.6, 376_832},
		{"glm-4.5-air", 106.9, 13.4, 188_416},
		{"minimax-m2", 228.7, 11.0, 253_952},
		{"minimax-m2.5", 228.7, 11.0, 253_952},
		{"llama-2-7b", 6.74, 0, 524_288},
		{"llama-2-70b", 68.98, 0, 327_680},
		{"codellama-34b", 33.74, 0, 196_608},
		{"yi-34b", 34.39, 0, 245_760},
		{"mistral-nemo-12b", 12.25, 0, 163_840},
		{"llama-4-scout", 107.8, 0, 196_608}, // text only; 109 with vision
	} {
		m := lookup(t, want.name)
		if got := float64(m.Params()) / 1e9; math.Abs(got/want.params-1) > 0.01 {
			t.Errorf("%s: %.2f billion parameters, want %.2f", want.name, got, want.params)
		}
		if got := float64(m.ActiveParams()) / 1e9; want.active > 0 && math.Abs(got/want.active-1) > 0.01 {
			t.Errorf("%s: %.2f billion active parameters, want %.2f", want.name, got, want.active)
		}
		if m.MoE.Experts == 0 && m.ActiveParams() != m.Params() {
			t.Errorf("%s is dense, but %d of %d parameters are active", want.name, m.ActiveParams(), m.Params())
		}
		if got := m.KVBytesPerToken(BF16); got != want.kvBytes {
			t.Errorf("%s: %d KV bytes per token, want %d", want.name, got, want.kvBytes)
		}
		if got := m.KVBytesPerToken(FP8); got != want.kvBytes/2 {
			t.Errorf("%s: %d fp8 KV bytes per token, want %d", want.name, got, want.kvBytes/2)
		}
	}
}

func TestStateBytesPerSequence(t *testing.T) {
	for _, want := range []struct {
		name  string
		bytes int64
	}{
		{"llama-3.1-8b", 0},
		{"gpt-oss-120b", 18 * 2 * 8 * 64 * 2 * 128}, // window layers · K and V · heads · head dim · bytes · window = 4.5 MiB
		// Per linear layer: convolution (32·128 + 2·16·128) · 3 · 2 bytes = 49,152, recurrence 32·128·128 · 4 bytes = 2,097,152.
		{"qwen3-next-80b-a3b", 36 * (49_152 + 2_097_152)}, // 73.7 MiB
	} {
		if got := lookup(t, want.name).StateBytesPerSequence(BF16); got != want.bytes {
			t.Errorf("%s: %d bytes, want %d", want.name, got, want.bytes)
		}
	}
}

func TestKVPerGPU(t *testing.T) {
	for _, c := range []struct {
		name   string
		tensor int
		want   int64 // bytes per token and layer
	}{
		{"llama-3.1-8b", 1, 2 * 8 * 128 * 2},
		{"llama-3.1-8b", 4, 2 * 2 * 128 * 2},
		{"llama-3.1-8b", 16, 2 * 1 * 128 * 2}, // more ranks than KV heads: each keeps one
		{"deepseek-v3", 8, (512 + 64) * 2},    // a latent is not split
	} {
		if got := lookup(t, c.name).kvBytesPerLayer(BF16, c.tensor); got != c.want {
			t.Errorf("%s at tensor parallelism %d: %d bytes, want %d", c.name, c.tensor, got, c.want)
		}
	}
}

func TestWeightBytes(t *testing.T) {
	const vocabulary = 2 * 128_256 * 4096 // parameters of embedding and output head
	m := lookup(t, "llama-3.1-8b")
	layers := m.Params() - vocabulary
	for _, c := range []struct {
		dtype DType
		want  int64
	}{
		{BF16, 2*layers + 2*vocabulary},
		{FP8, layers + 2*vocabulary}, // the vocabulary stays bf16
		{MXFP4, layers*17/32 + 2*vocabulary},
		{NVFP4, layers*9/16 + 2*vocabulary},
	} {
		if got := m.WeightBytes(c.dtype); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.dtype, got, c.want)
		}
	}

	// gpt-oss keeps attention in bf16: per layer 2 · 2880 · 4096 + 2 · 2880 · 512 parameters, router 2880 · 32.
	oss := lookup(t, "gpt-oss-20b")
	kept := int64(24*(2*2880*4096+2*2880*512+2880*32) + 2*201_088*2880)
	want := 2*kept + (oss.Params()-kept)*17/32
	if got := oss.WeightBytes(MXFP4); got != want {
		t.Errorf("gpt-oss-20b: %d bytes, want %d", got, want)
	}
}

func TestWeightBytesPerGPU(t *testing.T) {
	gpu, _ := LookupGPU("h100-sxm")
	dense, moe := lookup(t, "llama-3.1-8b"), lookup(t, "qwen3-30b-a3b")
	perGPU := func(m *Model, p Parallelism) int64 {
		d := Deployment{Model: m, GPU: gpu, Parallelism: p}
		if err := d.Validate(); err != nil {
			t.Fatal(err)
		}
		return d.WeightBytesPerGPU()
	}
	if got, want := perGPU(dense, Parallelism{Tensor: 4}), dense.WeightBytes(BF16)/4; got != want {
		t.Errorf("tensor 4: %d bytes, want %d, a quarter", got, want)
	}
	// A stage of two has 16 of 32 layers and one of the two vocabulary matrices: half of everything.
	if got, want := perGPU(dense, Parallelism{Pipeline: 2}), dense.WeightBytes(BF16)/2; got != want {
		t.Errorf("pipeline 2: %d bytes, want %d, half", got, want)
	}
	if got, want := perGPU(dense, Parallelism{Data: 2}), dense.WeightBytes(BF16); got != want {
		t.Errorf("data 2: %d bytes, want %d, a copy each", got, want)
	}
	// Experts, 48 layers · 128 · 3 · 2048 · 768 parameters, are spread over the data ranks; the rest is copied.
	experts := int64(2 * 48 * 128 * 3 * 2048 * 768)
	if got, want := perGPU(moe, Parallelism{Data: 4, Expert: 4}), moe.WeightBytes(BF16)-experts*3/4; got != want {
		t.Errorf("experts over 4 data ranks: %d bytes, want %d", got, want)
	}
}

func lookup(t testing.TB, name string) *Model {
	t.Helper()
	m, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestHybridGroups: by hand from vLLM's rule, and the groups of 12 layers that its log of Llama-4-Scout counts in.
func TestHybridGroups(t *testing.T) {
	for _, c := range []struct {
		full, window, chunked int
		layers, groups        int
	}{
		{full: 40, layers: 40, groups: 1},
		{full: 12, chunked: 36, layers: 12, groups: 4},
		{full: 18, window: 18, layers: 18, groups: 2},
		{full: 10, window: 52, layers: 10, groups: 7}, // the last group has 2 layers
		{full: 13, window: 12, layers: 13, groups: 2}, // nearly equal: the larger number
	} {
		m := Model{Layers: c.full + c.window + c.chunked, ChunkedLayers: c.chunked, Window: Window{Layers: c.window}}
		if layers, groups := m.HybridGroups(); layers != c.layers || groups != c.groups {
			t.Errorf("%+v: %d groups of %d layers", c, groups, layers)
		}
	}
}
