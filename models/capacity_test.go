package models

import (
	"math"
	"strings"
	"testing"
)

func TestCapacityByHand(t *testing.T) {
	d := Deployment{Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, "h100-sxm"), MaxBatchedTokens: 2048, EngineVersion: "0.22.1"}
	got, err := d.Capacity()
	if err != nil {
		t.Fatal(err)
	}
	const (
		gib     = 1 << 30
		total   = 85_018_877_624                      // 79.18 GiB
		budget  = total * 92 / 100                    // 0.92 from vLLM 0.22 on
		weights = 2 * (6_979_321_856 + 2*525_336_576) // layers, and two vocabulary matrices
		// 2048 tokens · 4 · 4096 bytes; 256 sequences · 128256 logits · 14 bytes, which is more than
		// the 2048 · 6 · 14336 bytes of the FFN; 131072 positions · 128 · 2 bytes
		activations = 2048*4*4096 + 256*128_256*14 + 131_072*128*2
		residual    = activations + 751_619_277 // 0.3 GiB of runtime and 0.4 of CUDA graphs
	)
	near := func(what string, got, want, by int64) {
		if got < want-by || got > want+by {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	near("total", got.Memory.Total, total, 1)
	near("budget", got.Memory.Budget, budget, 1)
	near("weights", got.Memory.Weights, weights, 0)
	near("residual", got.Memory.Residual, residual, 1)
	near("sum", got.Memory.Weights+got.Memory.Residual+got.Memory.KV, got.Memory.Budget, 0)
	blocks := int64((budget - weights - residual) / (16 * 131_072))
	near("blocks", int64(got.Blocks), blocks, 0)
	near("usable blocks", int64(got.UsableBlocks), blocks-1, 0) // one is vLLM's null block
	near("tokens", got.Tokens, (blocks-1)*16, 0)
	near("low", int64(got.LowBlocks), blocks-7*gib/10/(16*131_072), 1) // 0.7 GiB less
	near("high", int64(got.HighBlocks), blocks+7*gib/10/(16*131_072), 1)
}

// TestWindowBlocks: gpt-oss has as many window layers as full ones, so a window of 128 tokens takes 8 blocks of 16.
func TestWindowBlocks(t *testing.T) {
	d := Deployment{Model: lookup(t, "gpt-oss-120b"), GPU: gpu(t, "h100-sxm"), Parallelism: Parallelism{Tensor: 2}}
	c, err := d.Capacity()
	if err != nil {
		t.Fatal(err)
	}
	if c.KVBytesPerToken != 36_864/2 || c.StateBytesPerSequence != 18*2*8*64*2*128/2 || c.BlocksPerSequence != 8 {
		t.Errorf("%d bytes per token, %d bytes and %d blocks per sequence", c.KVBytesPerToken, c.StateBytesPerSequence, c.BlocksPerSequence)
	}
}

// TestOtherEngines follows the rules of SGLang and TensorRT-LLM for Llama-3.1-8B, whose weights take 14.96 GiB, on an H100.
func TestOtherEngines(t *testing.T) {
	const gib, weights = 1 << 30, 2 * (6_979_321_856 + 2*525_336_576)
	for _, c := range []struct {
		engine   string
		fraction float64
		kv       float64 // GiB
		block    int
	}{
		// 0.836: see TestSGLangFraction. Besides the weights there is the 32 MiB table of 131072 positions.
		{EngineSGLang, 0.836, (79.18-0.5)*0.836 - weights/float64(gib) - 1.0/32, 1},
		// 0.9 of what weights and 3.5 GiB leave
		{EngineTRTLLM, 0.9, 0.9 * (79.18 - 3.5 - weights/float64(gib)), 32},
	} {
		d := Deployment{Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, "h100-sxm"), Engine: c.engine}
		got, err := d.Capacity()
		if err != nil {
			t.Fatal(err)
		}
		if f := d.WithDefaults().MemoryUtilization; f != c.fraction {
			t.Errorf("%s takes a fraction of %g, want %g", c.engine, f, c.fraction)
		}
		if kv := float64(got.Memory.KV) / gib; math.Abs(kv-c.kv) > 1e-6 {
			t.Errorf("%s: %.6f GiB of KV, want %.6f", c.engine, kv, c.kv)
		}
		if want := int(c.kv * gib / float64(131_072*c.block)); got.Blocks != want || got.UsableBlocks != want {
			t.Errorf("%s: %d blocks, %d usable, want %d", c.engine, got.Blocks, got.UsableBlocks, want)
		}
	}
}

// TestSGLangFraction: MiB kept free are 512 + 1.5 · chunk + 2 · graph + 128 · GPUs, and from 60 GiB on at least 10240.
func TestSGLangFraction(t *testing.T) {
	for _, c := range []struct {
		gpu              string
		tensor, data, at int
		want             float64
	}{
		{"h100-sxm", 1, 1, 8192, 0.836}, // 512 + 12288 + 2·256 + 128 = 13440 of 81920 MiB
		{"h100-sxm", 1, 1, 2048, 0.875}, // 512 + 3072 + 2·256 + 128 = 4224: the floor of 10240
		{"h100-sxm", 8, 1, 8192, 0.819}, // 512 + 12288 + 2·512 + 1024 = 14848
		{"l40s", 1, 1, 4096, 0.851},     // 512 + 6144 + 2·32 + 128 = 6848 of 46080 MiB
		{"h200-sxm", 8, 8, 8192, 0.77},  // 14848 + 4.5·512·8 = 33280 of 144384 MiB
	} {
		d := Deployment{Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, c.gpu), Engine: EngineSGLang, MaxBatchedTokens: c.at,
			Parallelism: Parallelism{Tensor: c.tensor, Data: c.data}}
		if got := d.WithDefaults().MemoryUtilization; got != c.want {
			t.Errorf("%s tp%d: %g, want %g", c.gpu, c.tensor, got, c.want)
		}
	}
}

func TestDoesNotFit(t *testing.T) {
	big := Deployment{Model: lookup(t, "llama-3.1-70b"), GPU: gpu(t, "h100-sxm")}
	huge := Deployment{Model: lookup(t, "kimi-k2"), GPU: gpu(t, "l40s"), Parallelism: Parallelism{Tensor: 8}}
	for _, c := range []struct {
		d    Deployment
		want string
	}{
		// 141.1e9 bytes = 131.4 GiB; 8192 · (4 · 8192 + 6 · 28672) + 131072 · 256 bytes + 0.3 GiB = 1.9 GiB; 0.9 · 79.18 = 71.3.
		{big, "llama-3.1-70b in bf16 does not fit on h100-sxm with tensor parallelism 1: 131.4 GiB of weights and 1.9 GiB of workspace exceed the 71.3 GiB budget per GPU; 62.1 GiB are missing (parallelism.tensor 4 fits)"},
		{huge, "GiB are missing (no tensor parallelism up to 8, the GPUs of one l40s domain, fits kimi-k2 in fp8: "},
	} {
		_, err := c.d.Capacity()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

func TestSmallestTensor(t *testing.T) {
	for _, c := range []struct {
		model, gpu string
		weights    DType
		maxLen     int
		want       int
	}{
		{"llama-3.1-8b", "h100-sxm", "", 0, 1},
		{"llama-3.1-70b", "h100-sxm", "", 0, 4},     // at 2, KV for 7,000 tokens would be left
		{"llama-3.1-70b", "h100-sxm", FP8, 8192, 2}, // two contexts of 8192
		{"qwen2.5-7b", "l40s", "", 0, 1},            // 28 heads do not divide by 8
		{"minimax-m2.5", "h100-sxm", "", 0, 4},
		{"deepseek-v3", "h200-sxm", "", 0, 8},
	} {
		d := Deployment{Model: lookup(t, c.model), GPU: gpu(t, c.gpu), Weights: c.weights, MaxModelLen: c.maxLen}
		got, err := d.SmallestTensor()
		if err != nil || got != c.want {
			t.Errorf("%s %s on %s: tensor %d (%v), want %d", c.model, c.weights, c.gpu, got, err, c.want)
		}
	}

	glm := Deployment{Model: lookup(t, "glm-4.6"), GPU: gpu(t, "h100-sxm")}
	if _, err := glm.SmallestTensor(); err == nil || !strings.HasSuffix(err.Error(), "; with dtype.weights fp8 tensor 8 does") {
		t.Errorf("GLM-4.6 in bf16 on a node of H100s: %v", err)
	}

	tiny := *gpu(t, "l40s")
	tiny.Name, tiny.MemoryGiB, tiny.VisibleGiB = "tiny", 2, 2
	d := Deployment{Model: lookup(t, "llama-3.1-70b"), GPU: &tiny}
	if _, err := d.SmallestTensor(); err == nil || !strings.Contains(err.Error(), "no tensor parallelism up to 8, the GPUs of one tiny domain, fits llama-3.1-70b in bf16: ") {
		t.Errorf("a GPU of 2 GiB: %v", err)
	}
}

func TestValidateDeployment(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Deployment)
		want string
	}{
		{"defaults", func(*Deployment) {}, ""},
		{"tensor", func(d *Deployment) { d.Parallelism.Tensor = 3 }, "parallelism.tensor (3) does not divide the model's attention heads (40)"},
		{"negative", func(d *Deployment) { d.Parallelism.Tensor = -1 }, "parallelism.tensor is -1, want 1 to 1024"},
		{"kv heads", func(d *Deployment) { d.Parallelism.Tensor = 5 }, "parallelism.tensor (5) does not divide the model's ffn (17408)"},
		{"experts", func(d *Deployment) { d.Parallelism = Parallelism{Tensor: 2, Expert: 2} }, "parallelism.expert is 2, but the model has no experts"},
		{"budget", func(d *Deployment) { d.MaxBatchedTokens = 128 }, "engine.max_num_batched_tokens (128) is less than engine.max_num_seqs (256)"},
		{"utilization", func(d *Deployment) { d.MemoryUtilization = 1.5 }, "engine.gpu_memory_utilization is 1.5"},
		{"nan", func(d *Deployment) { d.MemoryUtilization = math.NaN() }, "engine.gpu_memory_utilization is NaN"},
		{"weights", func(d *Deployment) { d.Weights = "fp7" }, `dtype.weights: unknown format "fp7"`},
		{"kv", func(d *Deployment) { d.KV = INT4 }, `dtype.kv: unknown KV format "int4"`},
		{"version", func(d *Deployment) { d.EngineVersion = "latest" }, `engine.version is "latest"`},
		{"model", func(d *Deployment) { d.Model = nil }, "a deployment needs a model and a gpu"},
	} {
		d := Deployment{Model: lookup(t, "qwen3-14b"), GPU: gpu(t, "h100-sxm")}
		c.edit(&d)
		err := d.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}

	moe := Deployment{Model: lookup(t, "qwen3-30b-a3b"), GPU: gpu(t, "h100-sxm"), Parallelism: Parallelism{Tensor: 2, Data: 2, Expert: 3}}
	if err := moe.Validate(); err == nil || !strings.Contains(err.Error(), "parallelism.expert (3) does not divide tensor times data (4)") {
		t.Errorf("3 expert ranks of 4: %v", err)
	}
}

func TestMemoryUtilizationByVersion(t *testing.T) {
	for version, want := range map[string]float64{"": 0.9, "0.9.2": 0.9, "0.21": 0.9, "0.22": 0.92, "v0.23.1": 0.92, "1.0": 0.92} {
		if got := (Deployment{EngineVersion: version}).WithDefaults().MemoryUtilization; got != want {
			t.Errorf("vLLM %q: %g, want %g", version, got, want)
		}
	}
}

func gpu(t testing.TB, name string) *GPU {
	t.Helper()
	g, err := LookupGPU(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
