package models

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func cost(t testing.TB, d Deployment, profile string) *StepCost {
	t.Helper()
	c, err := d.StepCost(profile)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantUs compares a time with a hand-computed one in µs, to the 5 digits that are written down.
func wantUs(t *testing.T, what string, got Fixed, us float64) {
	t.Helper()
	if gotUs := float64(got) / FixedPerNs / 1e3; math.Abs(gotUs-us) > us*1e-5+1e-6 {
		t.Errorf("%s takes %.4f µs, want %.4f", what, gotUs, us)
	}
}

// TestDenseByHand: llama-3.1-8b in bf16 on one H100, profile h100-vllm.
//
// Per layer 2·4096·4096 + 2·4096·1024 + 3·4096·14336 = 218,103,808 parameters, 32 layers 6,979,321,856; the output head
// 128256·4096 = 525,336,576.
func TestDenseByHand(t *testing.T) {
	c := cost(t, Deployment{Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, "h100-sxm")}, "h100-vllm")

	// 32 decodes. Weights 2 · 7,504,658,432 bytes / 2.8e6 per µs = 5360.470; ·0.9 = 4824.423
	// compute: 2·32·6,979,321,856 / (989.5e6 · 0.9·32/192) = 3009.44, less
	// host: 62·32 + 58·32 = 3840
	wantUs(t, "32 decodes", c.Base(Batch{Decodes: 32}), 4824.423+3840)
	// 131,072 bytes / 2.8e6 per µs · 1.1
	wantUs(t, "1000 tokens of context", 1000*c.PerContext(), 51.49257)
	if c.PerWindow() != 0 || c.Window() != 0 {
		t.Error("a window in a model without")
	}

	// A prompt of 2048. Compute 2·6,979,321,856·(2048+160) / (989.5e6 · 0.9) = 34,608.52; ·0.9 = 31,147.67
	// attention: 4·32 layers·32 heads·128 · 2048²/2 / (0.6 · 989.5e6) = 1851.97; ·1.05 = 1944.56
	// host: 62·32 + 58 = 2042
	prompt := Batch{Prefills: 1, PrefillTokens: 2048, PrefillPairs: 2048 * 2048, PrefillContext: 2048}
	wantUs(t, "a prompt of 2048", c.Base(prompt), 31147.67+1944.56+2042)

	// 4 tokens after 100,000: attention reads KV, 100,004·131,072 / 2.8e6 = 4681.33; ·1.05 = 4915.39,
	// not 4·32·32·128·(4·100,000 + 8) / 593.7e6 = 353. Weights as above; host 62·32 + 58.
	tail := Batch{Prefills: 1, PrefillTokens: 4, PrefillPairs: 4 * (2*100_000 + 4), PrefillContext: 100_004}
	wantUs(t, "4 tokens after 100,000", c.Base(tail), 4824.423+4915.39+2042)

	if len(c.Estimates()) != 0 {
		t.Errorf("a dense model on H100 is an estimate: %v", c.Estimates())
	}
	if c.Base(Batch{}) != 0 {
		t.Error("an empty step takes time")
	}
	if got, want := c.RequestDelay(10_000), 8*time.Millisecond+3500*time.Microsecond; got != want {
		t.Errorf("a prompt of 10,000 tokens is queued after %v, want %v", got, want)
	}
	if got, want := c.TokenDelay(), 46*time.Microsecond; got != want {
		t.Errorf("a token is delayed by %v, want %v", got, want)
	}
}

// TestMoEByHand: qwen3-30b-a3b in bf16 on two H100s, profile h100-vllm, 16 decodes.
//
// Attention per layer and GPU: 2·2048·(16 heads · 128) + 2·2048·(2 heads · 128) = 9,437,184 parameters; router
// 2048·128 = 262,144. Of 128 experts 1 − (1 − 8/128)^16 = 0.643926 are read, half a GPU: 0.643926 · 128 · 3·2048·768 / 2
// = 194,460,300 parameters. 48 layers: 9,799,665,300. Output head 151936·2048/2 = 155,582,464.
//
// weights: 2 · 9,955,247,800 bytes / 2.8e6 = 7110.891; ·0.9 = 6399.80
// compute, active experts 8·3·2048·768/2 = 18,874,368: 2·48·28,573,696·(16+160) / (989.5e6·0.9) = 542.1, less
// reduce: 2·48·(4.3 + 16·2048·2/0.32e6) = 432.461; ·1.1 = 475.707
// host: 62·48 + 58·16 = 3904
func TestMoEByHand(t *testing.T) {
	d := Deployment{Model: lookup(t, "qwen3-30b-a3b"), GPU: gpu(t, "h100-sxm"), Parallelism: Parallelism{Tensor: 2, Expert: 2}}
	c := cost(t, d, "h100-vllm")
	wantUs(t, "16 decodes", c.Base(Batch{Decodes: 16}), 6399.80+475.707+3904)
	wantUs(t, "1000 tokens of context", 1000*c.PerContext(), 98_304/2/2.8e6*1000*1.1)
	if why := c.Estimates(); len(why) != 1 || !strings.Contains(why[0], "experts") {
		t.Errorf("a model with experts is calibrated: %v", why)
	}
}

// TestWindowsByHand: gpt-oss-20b has 12 full layers and 12 with a window of 128; 2·8·64·2 bytes each.
func TestWindowsByHand(t *testing.T) {
	c := cost(t, Deployment{Model: lookup(t, "gpt-oss-20b"), GPU: gpu(t, "h100-sxm")}, "physical")
	const layers = 12 * 2 * 8 * 64 * 2 / 2.8e6 * 1000
	wantUs(t, "1000 tokens of context", 1000*c.PerContext(), layers)
	wantUs(t, "1000 tokens in windows", 1000*c.PerWindow(), layers)
	if c.Window() != 128 {
		t.Errorf("the window is %d", c.Window())
	}
	// A prompt of 4096: 4·12·64·64 flops per pair, 4096²/2 pairs in full layers, 4096·128 in windows.
	prompt := Batch{Prefills: 1, PrefillTokens: 4096, PrefillPairs: 4096 * 4096, PrefillContext: 4096}
	got, _ := c.prefill(prompt)
	wantUs(t, "attention of 4096 tokens", got, 4*12*64*64*(4096*4096/2+4096*128)/(0.6*989.5e6))
}

// TestAgainstFormula compares with the formula of StepCost written out in floating point, µs.
func TestAgainstFormula(t *testing.T) {
	h100 := gpu(t, "h100-sxm")
	reduce := map[int][2]float64{1: {0, math.Inf(1)}, 2: {4.3, 0.32e6}, 4: {4.7, 0.23e6}, 8: {4.9, 0.25e6}}
	for _, name := range []string{"llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "qwen3-235b-a22b", "minimax-m2.5"} {
		for _, tp := range []int{1, 2, 4, 8} {
			for _, dtype := range []DType{BF16, FP8} {
				m := lookup(t, name)
				c := cost(t, Deployment{Model: m, GPU: h100, Weights: dtype, Parallelism: Parallelism{Tensor: tp}}, "h100-vllm")
				rapid.Check(t, func(t *rapid.T) {
					b := batch(t)
					b.PrefillPairs %= 1e12 // far from saturation
					context := rapid.Int64Range(0, 1e7).Draw(t, "context")
					if b.Prefills > 0 && b.PrefillTokens == 0 {
						b.PrefillTokens = 1
					}
					T := float64(b.Decodes + b.PrefillTokens)
					if T == 0 {
						return
					}
					L, d, heads, kv, D, split := float64(m.Layers), float64(m.Hidden), float64(m.Heads), float64(m.KVHeads), float64(m.HeadDim), float64(tp)
					kv = max(1, kv/split) // KV heads of one GPU
					attention := 2*d*heads*D/split + 2*d*kv*D
					ffn, active, router := 3*d*float64(m.FFN)/split, 3*d*float64(m.FFN)/split, 0.0
					if m.MoE.Experts > 0 {
						E, k := float64(m.MoE.Experts), float64(m.MoE.Active)
						expert := 3 * d * float64(m.MoE.FFN) / split
						ffn, active, router = E*(1-math.Pow(1-k/E, T))*expert, k*expert, d*E
					}
					size, efficiency, knee, peak := 2.0, 0.90, 160.0, 989.5e6
					if dtype == FP8 {
						size, efficiency, knee, peak = 1, 0.78, 144, 1979e6
					}
					weights := (L*((attention+ffn)*size+router*2) + float64(m.Vocab)*d/split*2) / 2.8e6
					compute := 2 * T * L * (attention + active + router) / (efficiency * T / (T + knee) * peak)
					kvBytes := 2 * L * kv * D * 2
					prefill := max(4*L*heads/split*D*float64(b.PrefillPairs)/2/(0.60*989.5e6), kvBytes*float64(b.PrefillContext)/2.8e6)
					decode := kvBytes * float64(context) / 2.8e6
					links := 2 * L * (reduce[tp][0] + T*d*2/reduce[tp][1])
					host := 62*L + 58*float64(b.Decodes+b.Prefills)
					want := 0.9*max(weights, compute) + 1.05*prefill + 1.1*decode + 1.1*links + host
					got := float64(c.Base(b)+Fixed(context)*c.PerContext()) / FixedPerNs / 1e3
					if math.Abs(got/want-1) > 1e-5 {
						t.Fatalf("%s tp%d %s, %+v, context %d: %.3f µs, want %.3f", name, tp, dtype, b, context, got, want)
					}
				})
			}
		}
	}
}

// batch draws a batch, every field by itself, up to the documented limits.
func batch(t *rapid.T) Batch {
	return Batch{
		Decodes:        rapid.IntRange(0, 2000).Draw(t, "decodes"),
		Prefills:       rapid.IntRange(0, 2000).Draw(t, "prefills"),
		PrefillTokens:  rapid.IntRange(0, 10_000_000).Draw(t, "prefill tokens"),
		PrefillPairs:   rapid.Int64Range(0, 1e14).Draw(t, "pairs"),
		PrefillContext: rapid.Int64Range(0, 1e9).Draw(t, "prefill context"),
	}
}

// deployments are one of each kind of architecture, parallelism and GPU.
func deployments(t testing.TB) map[string]Deployment {
	return map[string]Deployment{
		"dense":    {Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, "h100-sxm")},
		"windows":  {Model: lookup(t, "gpt-oss-120b"), GPU: gpu(t, "a100-sxm-80g"), Parallelism: Parallelism{Tensor: 4}},
		"mla":      {Model: lookup(t, "deepseek-v3"), GPU: gpu(t, "h200-sxm"), Parallelism: Parallelism{Tensor: 8, Expert: 8}},
		"data":     {Model: lookup(t, "deepseek-v3"), GPU: gpu(t, "gb200-nvl72"), Weights: NVFP4, Parallelism: Parallelism{Tensor: 1, Data: 16, Expert: 16}},
		"linear":   {Model: lookup(t, "qwen3-next-80b-a3b"), GPU: gpu(t, "b200-sxm"), Parallelism: Parallelism{Tensor: 2}},
		"pipeline": {Model: lookup(t, "llama-3.1-70b"), GPU: gpu(t, "l40s"), Parallelism: Parallelism{Tensor: 2, Pipeline: 8}},
		"wide":     {Model: lookup(t, "qwen3-coder-480b-a35b"), GPU: gpu(t, "mi300x"), Parallelism: Parallelism{Tensor: 16, Expert: 16}},
	}
}

func TestBaseIsMonotone(t *testing.T) {
	for name, d := range deployments(t) {
		c := cost(t, d, "h100-vllm")
		rapid.Check(t, func(t *rapid.T) {
			small, more := batch(t), batch(t)
			n := c.Base(small)
			if n < 0 || small.Decodes+small.PrefillTokens > 0 && n == 0 {
				t.Fatalf("%s: %+v takes %d", name, small, n)
			}
			for _, add := range []func(*Batch){
				func(b *Batch) { b.Decodes += more.Decodes },
				func(b *Batch) { b.Prefills += more.Prefills },
				func(b *Batch) { b.PrefillTokens += more.PrefillTokens },
				func(b *Batch) { b.PrefillPairs += more.PrefillPairs },
				func(b *Batch) { b.PrefillContext += more.PrefillContext },
			} {
				large := small
				add(&large)
				if c.Base(large) < n {
					t.Fatalf("%s: %+v takes %d, but %+v only %d", name, small, n, large, c.Base(large))
				}
			}
		})
	}
}

// TestTermsAddUp: the terms that people see are the step that the engine takes, to the rounding of each.
func TestTermsAddUp(t *testing.T) {
	for name, d := range deployments(t) {
		c := cost(t, d, "h100-vllm")
		rapid.Check(t, func(t *rapid.T) {
			b := batch(t)
			if b.Decodes+b.PrefillTokens == 0 {
				return
			}
			context := rapid.Int64Range(0, 1e7).Draw(t, "context")
			var sum time.Duration
			for _, term := range c.Terms(b, context, context/2) {
				sum += term.Duration
			}
			want := (c.Base(b) + Fixed(context)*c.PerContext() + Fixed(context/2)*c.PerWindow()).Duration()
			if (sum - want).Abs() > 8 {
				t.Fatalf("%s: terms of %+v add up to %v, the step takes %v", name, b, sum, want)
			}
		})
	}
}

func TestTerms(t *testing.T) {
	c := cost(t, Deployment{Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, "h100-sxm")}, "h100-vllm")
	names := func(terms []Term) (out []string) {
		for _, term := range terms {
			out = append(out, term.Name)
		}
		return out
	}
	for _, s := range []struct {
		b       Batch
		context int64
		want    []string
	}{
		{Batch{}, 0, nil},
		{Batch{Decodes: 1}, 1000, []string{"weights, read", "decode attention", "host"}},
		{Batch{Prefills: 1, PrefillTokens: 8192, PrefillPairs: 8192 * 8192, PrefillContext: 8192}, 0,
			[]string{"weights, computed", "prefill attention, computed", "host"}},
		{Batch{Prefills: 1, PrefillTokens: 1, PrefillPairs: 2*10_000 + 1, PrefillContext: 10_001}, 0,
			[]string{"weights, read", "prefill attention, read", "host"}},
	} {
		if got := names(c.Terms(s.b, s.context, 0)); !slices.Equal(got, s.want) {
			t.Errorf("%+v: terms %q, want %q", s.b, got, s.want)
		}
	}
}

func TestSaturation(t *testing.T) {
	c := cost(t, Deployment{Model: lookup(t, "kimi-k2"), GPU: gpu(t, "l40s"), Parallelism: Parallelism{Pipeline: 61}}, "h100-vllm")
	most := Batch{Decodes: math.MaxInt32, Prefills: math.MaxInt32, PrefillTokens: 10_000_000, PrefillPairs: math.MaxInt64, PrefillContext: math.MaxInt64}
	if n := c.Base(most); n < maxFixed {
		t.Errorf("the largest batch takes %d: an overflow", n)
	}
	if n := c.Terms(most, math.MaxInt64, math.MaxInt64); len(n) == 0 {
		t.Error("no terms")
	}
	for _, r := range []rate{1, 1 << 16, 1 << 62} {
		for _, n := range []int64{-1, 0, 1, 1 << 16, 1 << 60, math.MaxInt64} {
			exact := float64(r) * float64(max(0, n)) / (1 << rateShift)
			if got := float64(r.times(n)); math.Abs(got-min(exact, float64(maxFixed))) > exact*1e-9+1 {
				t.Errorf("%d times %d is %g, want %g", r, n, got, exact)
			}
		}
	}
}

func TestFixedSteps(t *testing.T) {
	c := FixedSteps(7*time.Millisecond, 2*time.Millisecond)
	for _, s := range []struct {
		b    Batch
		want time.Duration
	}{
		{Batch{}, 0},
		{Batch{Decodes: 100}, 2 * time.Millisecond},
		{Batch{Prefills: 1, PrefillTokens: 5000, PrefillPairs: 1e9, PrefillContext: 5000}, 7 * time.Millisecond},
		{Batch{Decodes: 1, Prefills: 1, PrefillTokens: 1}, 9 * time.Millisecond},
	} {
		if got := c.Base(s.b); got != Fixed(s.want)*FixedPerNs {
			t.Errorf("%+v takes %v, want %v", s.b, got.Duration(), s.want)
		}
	}
	if c.PerContext() != 0 || c.RequestDelay(1000) != 0 || c.TokenDelay() != 0 {
		t.Error("fixed steps depend on context or delay requests")
	}
}

func TestExpertCoverage(t *testing.T) {
	got := expertCoverage(8, 2, 1) // each token leaves 6/8 untouched
	for i, want := range []float64{0, 0.25, 1 - 0.5625, 1 - 0.421875} {
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("%d tokens touch %g of 8 experts, want %g", i, got[i], want)
		}
	}
	if last := got[len(got)-1]; last < 1-1e-6 {
		t.Errorf("the table ends at %g", last)
	}
	if got := expertCoverage(8, 2, 2)[1]; math.Abs(got-(1-0.5625)) > 1e-12 {
		t.Errorf("a token on each of two ranks touches %g, want 0.4375", got)
	}
	if got := expertCoverage(16, 16, 1); !slices.Equal(got, []float64{0, 1}) {
		t.Errorf("all experts active: %v", got)
	}
}

func BenchmarkBase(b *testing.B) {
	for name, batch := range map[string]Batch{
		"decode": {Decodes: 64},
		"mixed":  {Decodes: 64, Prefills: 1, PrefillTokens: 8128, PrefillPairs: 8128 * (2*50_000 + 8128), PrefillContext: 58_128},
	} {
		c := cost(b, deployments(b)["mla"], "h100-vllm")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var sum Fixed
			for b.Loop() {
				sum += c.Base(batch)
			}
			_ = sum
		})
	}
}
