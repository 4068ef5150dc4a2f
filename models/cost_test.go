package models

import (
	"fmt"
	"math"
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

// TestDenseByHand: llama-3.1-8b in bf16 on one H100, profile physical, rates of catalogue/ops.yaml rounded by hand.
func TestDenseByHand(t *testing.T) {
	o := h100Ops(t)
	c := cost(t, Deployment{Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, "h100-sxm")}, "physical")
	terms := map[string]float64{}
	for _, term := range c.Terms(Batch{Decodes: 32}, 32*1000, 0) {
		terms[term.Name] = float64(term.Duration) / 1e3
	}
	// Per layer 32 rows times: 6144 x 4096 (queries, keys, values), 4096 x 4096, 28,672 x 4096 (gate, up), 4096 x 14,336.
	g := o.GEMMBF16
	products := 32 * (g.Us(32, 6144, 4096, 2, false) + g.Us(32, 4096, 4096, 2, false) + g.Us(32, 28_672, 4096, 2, false) + g.Us(32, 4096, 14_336, 2, false))
	for name, want := range map[string]float64{
		TermProducts: products,
		// 128,256 logits per sequence, 12 bytes each to sample.
		TermHead: g.Us(32, 128_256, 4096, 2, false) + o.Sampler.FloorUs + 32*128_256*12/(o.Sampler.TBs*1e6),
		// Two norms, rotary embedding, activation. Bytes per token and layer: 16·4096 for the norms, 4·(32 + 8)·128 for
		// queries and keys, 6·14,336 for the activation.
		TermSmall: 32 * (4*o.Small.FloorUs + 32*(65_536+20_480+86_016)/(o.Small.TBs*1e6)),
		// 32 sequences of 8 KV heads, and 1000 tokens of 2·8·128·2 bytes each.
		TermDecode: 32 * (o.DecodeBF16.FloorUs + 32*8*o.DecodeBF16.UnitNs/1e3 + 32*1000*4096/(o.DecodeBF16.TBs*1e6)),
	} {
		if math.Abs(terms[name]/want-1) > 1e-4 {
			t.Errorf("%s takes %.3f µs, want %.3f", name, terms[name], want)
		}
		delete(terms, name)
	}
	if len(terms) > 0 {
		t.Errorf("terms without a reason: %v", terms)
	}
	// 7.5 GB of weights at 2.85 TB/s are 5.3 ms: floors and partly filled multiprocessors add 0.4.
	if products < 4900 || products > 5700 {
		t.Errorf("the products take %.0f µs, want about 5.3 ms", products)
	}
	if len(c.Estimates()) != 0 {
		t.Errorf("a dense model on H100 is an estimate: %v", c.Estimates())
	}
	if c.Base(Batch{}) != 0 {
		t.Error("an empty step takes time")
	}
}

// TestShortQueryOnLongContext: what agents send, 500 new tokens after 100,000 cached ones, on a 70B model over 8 GPUs.
func TestShortQueryOnLongContext(t *testing.T) {
	o := h100Ops(t)
	c := cost(t, Deployment{Model: lookup(t, "llama-3.1-70b"), GPU: gpu(t, "h100-sxm"), Parallelism: Parallelism{Tensor: 8}}, "physical")
	doubled := 500.0 * (2*100_000 + 500)
	b := Batch{Prefills: 1, PrefillTokens: 500, PrefillPairs: int64(doubled), PrefillContext: 100_500}
	// 8 query heads and 1 KV head per GPU: half a tile of padding is 64/8 = 8 queries, each of which sees all keys.
	k := o.PrefillBF16
	pairs := doubled/2 + 8*100_500
	layer := 8*(500*k.TokenNs/1e3+pairs*(4*128/(k.TFLOPS*1e6)+k.PairPs/1e6)) + math.Sqrt(doubled)*k.TailNs/1e3
	layer += max(0, k.FloorUs-o.DecodeBF16.FloorUs)
	wantUs(t, "attention of 500 tokens after 100,000", c.prefill(b), 80*layer)
	// The same number of pairs in a prompt without a past fills the GPU as well; one in ten heads would not.
	if share := math.Sqrt(doubled) * k.TailNs / 1e3 / layer; share < 0.05 || share > 0.3 {
		t.Errorf("the tail is %.0f%% of attention, want 5 to 30%%", share*100)
	}
	// One token after 1,000,000 only reads: 1,000,001 keys of 2·128·2 bytes.
	tail := Batch{Prefills: 1, PrefillTokens: 1, PrefillPairs: 2*1_000_000 + 1, PrefillContext: 1_000_001}
	if read := 80 * 1_000_001 * 512 / (o.DecodeBF16.TBs * 1e6); us(c.prefill(tail)) < read {
		t.Errorf("one token after a million takes %.0f µs, less than reading the keys (%.0f)", us(c.prefill(tail)), read)
	}
}

// TestWindowsByHand: gpt-oss-20b has 12 full layers and 12 with a window of 128; 2·8·64·2 bytes per token and layer.
func TestWindowsByHand(t *testing.T) {
	o := h100Ops(t)
	c := cost(t, Deployment{Model: lookup(t, "gpt-oss-20b"), GPU: gpu(t, "h100-sxm")}, "physical")
	layers := 12 * 2 * 8 * 64 * 2 / (o.DecodeBF16.TBs * 1e6) * 1000
	wantUs(t, "1000 tokens of context", 1000*c.PerContext(), layers)
	wantUs(t, "1000 tokens in windows", 1000*c.PerWindow(), layers)
	if c.Window() != 128 {
		t.Errorf("the window is %d", c.Window())
	}
	// A prompt of 4096, 64 query heads in groups of 8: per layer 4096²/2 pairs or 4096·128 in a window, and 8 padding
	// queries that see 4096 keys, or 4096 again in a window layer, whose bound is 4096 + 128.
	k := o.PrefillBF16
	layer := func(pairs, keys float64) float64 {
		return 64*(4096*k.TokenNs/1e3+(pairs+8*keys)*(4*64/(k.TFLOPS*1e6)+k.PairPs/1e6)) + math.Sqrt(2*pairs)*k.TailNs/1e3
	}
	prompt := Batch{Prefills: 1, PrefillTokens: 4096, PrefillPairs: 4096 * 4096, PrefillContext: 4096}
	floors := 24 * max(0, k.FloorUs-o.DecodeBF16.FloorUs)
	wantUs(t, "attention of 4096 tokens", c.prefill(prompt), 12*layer(4096*4096/2, 4096)+12*layer(4096*128, 4096)+floors)
}

// TestExpertsByHand: qwen3-30b-a3b in bf16 on two H100s, 16 decodes: of 128 experts 1 − (1 − 8/128)^16 = 0.643926 are
// touched. Experts either split over both GPUs, or half of them on each.
func TestExpertsByHand(t *testing.T) {
	o := h100Ops(t)
	router := o.GEMMBF16.Us(16, 128, 2048, 2, false) + o.Small.FloorUs
	for _, s := range []struct {
		expert  int
		share   float64
		touched float64
		columns float64
	}{{1, 1, 0.643926 * 128, 384}, {2, 0.5, 0.643926 * 64, 768}} {
		d := Deployment{Model: lookup(t, "qwen3-30b-a3b"), GPU: gpu(t, "h100-sxm"), Parallelism: Parallelism{Tensor: 2, Expert: s.expert}}
		c := cost(t, d, "physical")
		want := 48 * o.MoEBF16.Us(16*8, s.share, s.touched, 2048, s.columns, 2)
		wantUs(t, fmt.Sprintf("experts over %d GPUs", s.expert), c.Shared(16), want)
		wantUs(t, "the choice of experts", c.router.duration(pointAt(16)), 48*router)
		// Two all-reduces of 16·2048·2 bytes per layer, whichever way experts are spread.
		wantUs(t, "communication", c.links.duration(pointAt(16)), 96*o.AllReduce.Two.Us(65_536))
		if why := c.Estimates(); len(why) != 1 || !strings.Contains(why[0], "experts") {
			t.Errorf("a model with experts is calibrated: %v", why)
		}
	}
}

// TestLatentAttentionByHand: deepseek-v3 over 8 GPUs, 16 heads each; the latent of a token is 576 numbers.
func TestLatentAttentionByHand(t *testing.T) {
	o := h100Ops(t)
	d := Deployment{Model: lookup(t, "deepseek-v3"), GPU: gpu(t, "h100-sxm"), Parallelism: Parallelism{Tensor: 8}}
	c := cost(t, d, "physical")
	k := o.MLABF16
	read, compute := 576*2/(k.TBs*1e6), 16*2*(512+512+64)/(k.DecodeTFLOPS*1e6)
	wantUs(t, "1000 tokens of context", 1000*c.PerContext(), 61*1000*max(read, compute))
	// 100 new tokens after 1000 cached ones: 100·1000 + 100²/2 pairs of 192 + 128 numbers, and 1000 latents that are
	// expanded to 256 numbers per head.
	pairs := 100.0*1000 + 100*100/2
	layer := k.PrefillFloorUs - k.FloorUs + 16*(100*k.TokenNs/1e3+pairs*2*320/(k.PrefillTFLOPS*1e6)) +
		1000*16*2*512*256/(o.GEMMBF16.TFLOPS*1e6)
	b := Batch{Prefills: 1, PrefillTokens: 100, PrefillPairs: int64(2 * pairs), PrefillContext: 1100}
	wantUs(t, "100 tokens after 1000", c.prefill(b), 61*layer)
}

// TestLinksByHand: which collectives a layer has.
func TestLinksByHand(t *testing.T) {
	o := h100Ops(t)
	for _, s := range []struct {
		name, model string
		p           Parallelism
		want        float64 // µs, for 64 tokens per rank
	}{
		{"one GPU", "llama-3.1-8b", Parallelism{}, 0},
		{"dense over 4", "llama-3.1-8b", Parallelism{Tensor: 4}, 64 * o.AllReduce.Four.Us(64*4096*2)},
		// 4 data ranks: nothing for attention; 48 layers send each token to 4 GPUs of its 8 experts at most, and back.
		{"experts and data", "qwen3-30b-a3b", Parallelism{Data: 4, Expert: 4}, 48 * 2 * o.AllToAll.Four.Us(4*64*2048*2)},
		// Experts split over all: an all-reduce of all ranks' tokens.
		{"data alone", "qwen3-30b-a3b", Parallelism{Data: 4}, 48 * o.AllReduce.Four.Us(4*64*2048*2)},
		{"data alone, dense", "llama-3.1-8b", Parallelism{Data: 4}, 0},
		// 16 GPUs are two nodes: NCCL's floor for 8 by 4/3, twice 15/16 of the bytes at 50 GB/s.
		{"two nodes", "llama-3.1-8b", Parallelism{Tensor: 16}, 64 * (o.NCCLAllReduce.Eight.FloorUs*4/3 + 2*64*4096*2*15/16/50e3)},
	} {
		c := cost(t, Deployment{Model: lookup(t, s.model), GPU: gpu(t, "h100-sxm"), Parallelism: s.p}, "physical")
		data := int64(max(1, s.p.Data))
		wantUs(t, s.name, c.links.duration(pointAt(64))+c.sharedLinks.duration(pointAt(64*data)), s.want)
	}
}

// TestHost: factors multiply physical terms alone, host times add up.
func TestHost(t *testing.T) {
	d := Deployment{Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, "h100-sxm")}
	p := &Profile{Name: "test", Linear: 1, PrefillAttention: 1, DecodeAttention: 1, Communication: 1}
	bare, err := d.StepCostOf(p)
	if err != nil {
		t.Fatal(err)
	}
	p.LayerUs, p.StepUs, p.RequestUs, p.PrefillTokenUs = 3, 100, 7, 0.5
	p.AdmissionUs, p.PromptTokenUs, p.OutputTokenUs = 8000, 0.35, 46
	p.Linear = 2
	full, err := d.StepCostOf(p)
	if err != nil {
		t.Fatal(err)
	}
	b := Batch{Decodes: 10, Prefills: 2, PrefillTokens: 200, PrefillPairs: 2 * 100 * 100, PrefillContext: 200}
	at := pointAt(210)
	linear := us(bare.products.duration(at) + bare.small.duration(at) + bare.head.duration(pointAt(12)))
	// 3 µs for each of 32 layers, 7 for each of 12 sequences, 0.5 for each of 200 prompt tokens
	wantUs(t, "a step with host times", full.Base(b), us(bare.Base(b))+linear+32*3+100+12*7+200*0.5)
	if got, want := full.RequestDelay(10_000), 8*time.Millisecond+3500*time.Microsecond; got != want {
		t.Errorf("a prompt of 10,000 tokens is queued after %v, want %v", got, want)
	}
	if got, want := full.TokenDelay(), 46*time.Microsecond; got != want {
		t.Errorf("a token is delayed by %v, want %v", got, want)
	}
}

// TestSyncHost: what asynchronous scheduling hides is added before vLLM 0.14 alone.
func TestSyncHost(t *testing.T) {
	d := Deployment{Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, "h100-sxm"), EngineVersion: "0.14"}
	p := &Profile{Name: "test", Linear: 1, PrefillAttention: 1, DecodeAttention: 1, Communication: 1,
		LayerUs: 3, RequestUs: 7, PrefillTokenUs: 0.5, SyncStepUs: 700, SyncRequestUs: 11}
	async, err := d.StepCostOf(p)
	if err != nil {
		t.Fatal(err)
	}
	d.EngineVersion = "0.13"
	sync, err := d.StepCostOf(p)
	if err != nil {
		t.Fatal(err)
	}
	b := Batch{Decodes: 10}
	wantUs(t, "a step without asynchronous scheduling", sync.Base(b), us(async.Base(b))+700+10*11)
	// Three steps with 30 sequences and 200 prompt tokens in all: 3·(32 layers·3 + 700) + 30·(7 + 11) + 200·0.5 µs
	if got, want := sync.HostTime(3, 30, 200), time.Duration(3028*time.Microsecond); got != want {
		t.Errorf("the host takes %v, want %v", got, want)
	}
}

// TestFilteredSampling: sorting 4 · 128,256 logits takes 100 µs and 0.13 ns each until vLLM 0.16, finding a threshold
// 260 µs and 6 ps each from then on.
func TestFilteredSampling(t *testing.T) {
	for version, want := range map[string]float64{"0.16": 100 + 130e-6*4*128256, "0.17": 260 + 6e-6*4*128256} {
		d := Deployment{Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, "h100-sxm"), EngineVersion: version}
		plain := cost(t, d, "physical")
		d.FilteredSampling = true
		wantUs(t, version, cost(t, d, "physical").Base(Batch{Decodes: 4}), us(plain.Base(Batch{Decodes: 4}))+want)
	}
}

// TestComputeFactor: it slows arithmetic, which a prompt of 8192 tokens waits for, and hardly a step that reads weights.
func TestComputeFactor(t *testing.T) {
	d := Deployment{Model: lookup(t, "llama-3.1-8b"), GPU: gpu(t, "h100-sxm")}
	p := &Profile{Name: "test", Linear: 1, PrefillAttention: 1, DecodeAttention: 1, Communication: 1}
	fast, err := d.StepCostOf(p)
	if err != nil {
		t.Fatal(err)
	}
	p.Compute = 1.25
	slow, err := d.StepCostOf(p)
	if err != nil {
		t.Fatal(err)
	}
	ratio := func(tokens int64) float64 {
		return us(slow.products.duration(pointAt(tokens))) / us(fast.products.duration(pointAt(tokens)))
	}
	if r := ratio(8192); r < 1.23 || r > 1.25 {
		t.Errorf("a prompt takes %.3f times as long, want nearly 1.25", r)
	}
	if r := ratio(8); r < 1 || r > 1.01 {
		t.Errorf("a step of 8 tokens takes %.3f times as long, want hardly more than 1", r)
	}
}

// h100Ops is the catalogue's rates.
func h100Ops(t *testing.T) *Ops {
	t.Helper()
	o, err := gpu(t, "h100-sxm").Ops()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func us(f Fixed) float64 { return float64(f) / FixedPerNs / 1e3 }

// batch draws a batch, every field by itself, up to the documented limits.
func batch(t *rapid.T) Batch {
	return Batch{
		Decodes:        rapid.IntRange(0, 2000).Draw(t, "decodes"),
		Drafts:         rapid.IntRange(0, 10_000).Draw(t, "drafts"),
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
		"mtp": {Model: lookup(t, "deepseek-v3"), GPU: gpu(t, "h200-sxm"), Parallelism: Parallelism{Tensor: 2, Data: 4, Expert: 8},
			Speculative: Speculative{Method: DraftMTP, Tokens: 3}},
		"wide": {Model: lookup(t, "qwen3-coder-480b-a35b"), GPU: gpu(t, "mi300x"), Parallelism: Parallelism{Tensor: 16, Expert: 16}},
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
				func(b *Batch) { b.Drafts += more.Drafts },
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

// TestUnevenRanks: of two data ranks with 10 and 90 tokens, the experts see 100; Base takes either to be one of two alike.
func TestUnevenRanks(t *testing.T) {
	d := Deployment{Model: lookup(t, "qwen3-30b-a3b"), GPU: gpu(t, "h100-sxm"), Parallelism: Parallelism{Data: 2}}
	c := cost(t, d, "h100-vllm")
	few, many := Batch{Decodes: 10}, Batch{Decodes: 90}
	step := max(c.Own(few), c.Own(many)) + c.Shared(100)
	if step <= c.Base(Batch{Decodes: 50}) || step >= c.Base(many) {
		t.Errorf("10 and 90 tokens take %d, twice 50 %d, twice 90 %d", step, c.Base(Batch{Decodes: 50}), c.Base(many))
	}
	if got, want := c.Marginal(few, Batch{Decodes: 20}), c.Own(Batch{Decodes: 20})-c.Own(few)+c.Shared(30)-c.Shared(20); got != want || got <= 0 {
		t.Errorf("10 tokens more on one rank take %d, want %d", got, want)
	}
	alone := cost(t, Deployment{Model: d.Model, GPU: d.GPU}, "h100-vllm")
	if got, want := alone.Marginal(few, many), alone.Base(many)-alone.Base(few); got != want {
		t.Errorf("without data parallelism 80 more tokens take %d, want %d", got, want)
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
	for tokens, want := range []float64{0, 0.25, 1 - 0.5625, 1 - 0.421875} { // each token leaves 6/8 untouched
		if got := expertCoverage(MoE{Experts: 8, Active: 2}, float64(tokens)); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d tokens touch %g of 8 experts, want %g", tokens, got, want)
		}
	}
	if got := expertCoverage(MoE{Experts: 16, Active: 16}, 1); got != 1 {
		t.Errorf("all experts active: %g", got)
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
