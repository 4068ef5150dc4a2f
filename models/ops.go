package models

import (
	"fmt"
	"math"
)

// Ops is how fast the kernels of an engine run on one kind of GPU: floors and rates, fitted to kernel tables by package
// fit. Times are in µs, rates in 10^12 bytes or operations per second, all per GPU. A kernel is priced as its floor plus
// its work over its rate, where a rate has to be earned: small problems do not fill the GPU.
type Ops struct {
	Name   string       `yaml:"name"` // of the GPU
	Fitted []Provenance `yaml:"fitted"`

	GEMMBF16 GEMM `yaml:"gemm_bf16"`
	GEMMFP8  GEMM `yaml:"gemm_fp8"`

	PrefillBF16 PrefillKernel `yaml:"prefill_bf16"` // by format of the KV entries
	PrefillFP8  PrefillKernel `yaml:"prefill_fp8"`
	DecodeBF16  DecodeKernel  `yaml:"decode_bf16"`
	DecodeFP8   DecodeKernel  `yaml:"decode_fp8"`

	MLABF16 MLAKernels `yaml:"mla_bf16"`
	MLAFP8  MLAKernels `yaml:"mla_fp8"`

	MoEBF16 MoEKernel `yaml:"moe_bf16"`
	MoEFP8  MoEKernel `yaml:"moe_fp8"`

	AllReduce     Collectives `yaml:"all_reduce"`      // custom kernels in a CUDA graph
	AllToAll      Collectives `yaml:"all_to_all"`      // NCCL
	AllGather     Collectives `yaml:"all_gather"`      // NCCL; bytes are those of the result
	NCCLAllReduce Collectives `yaml:"nccl_all_reduce"` // beyond one link domain or 8 GPUs

	Small   SmallKernel `yaml:"small"`   // norms, rotary embedding, activation
	Sampler SmallKernel `yaml:"sampler"` // all kernels from logits to tokens
}

// GEMM is the matrix product of m rows with a weight matrix of k rows and n columns:
//
//	floor + (memory^s + compute^s)^(1/s)
//	memory  = bytes of weights, inputs and outputs / TBs
//	compute = 2·m·n·k / TFLOPS · (1 + outputs/(m·n))
//
// Half of the rate is reached at Outputs results: fewer do not fill the multiprocessors with tiles. The sharpness s
// tells how well memory and compute overlap: 1 is not at all, ∞ perfectly.
type GEMM struct {
	FloorUs   float64 `yaml:"floor_us"`
	TBs       float64 `yaml:"tbs"`
	TFLOPS    float64 `yaml:"tflops"`
	Outputs   float64 `yaml:"outputs"`
	Sharpness float64 `yaml:"sharpness"`
}

// Us is the time of one product. Weights have weightBytes per number, outputs and inputs two; fp8 tells that inputs are
// first quantised: read, written and read again (3 more bytes per number) by a kernel of its own.
func (g *GEMM) Us(m, n, k, weightBytes float64, fp8 bool) float64 {
	inputs := 2.0
	quantise := 0.0
	if fp8 {
		inputs, quantise = 1, 3*m*k/(g.TBs*1e6)
	}
	memory := (n*k*weightBytes + m*k*inputs + m*n*2) / (g.TBs * 1e6)
	compute := 2 * k * (m*n + g.Outputs) / (g.TFLOPS * 1e6)
	return g.FloorUs + quantise + overlap(memory, compute, g.Sharpness)
}

// overlap is the time of two streams of work that share a kernel.
func overlap(a, b, sharpness float64) float64 {
	if a < b {
		a, b = b, a
	}
	if b <= 0 {
		return a
	}
	return a * math.Pow(1+math.Pow(b/a, sharpness), 1/sharpness)
}

// PrefillKernel is the attention of prompt chunks, per layer. Query rows are worked on in tiles of 128, those of the
// heads that share a KV head packed together (FlashAttention 3 packs them for batches of unequal lengths); a tile costs
// its set-up and a pass over the keys that it sees:
//
//	floor + max(compute, KV bytes / TBs)
//	compute = heads · (tokens · TokenNs + pairs · (4·dim / TFLOPS + PairPs)) + √(2·pairs) · TailNs
//	pairs   = queries, with half a tile of padding per chunk, times the keys that they see
//
// The set-up is why short prompts reach a tenth of the rate of long ones. The tail is the time in which the last tiles
// run and other multiprocessors have nothing left to do: it grows with the side of the square of pairs, not with the
// heads, so it weighs where tiles times heads are few, as with a short query on a long past split over many GPUs.
type PrefillKernel struct {
	FloorUs float64 `yaml:"floor_us"`
	TokenNs float64 `yaml:"token_ns"` // per query head and token
	TFLOPS  float64 `yaml:"tflops"`
	PairPs  float64 `yaml:"pair_ps"` // per query head and pair: the exponential, whatever the dimension
	TailNs  float64 `yaml:"tail_ns"` // per token of the side
}

// Us is the time without reading KV entries: dim numbers per head, pairs per head, padding included.
func (k *PrefillKernel) Us(heads, dim, tokens, pairs float64) float64 {
	return k.FloorUs + heads*(tokens*k.TokenNs*1e-3+pairs*(4*dim/(k.TFLOPS*1e6)+k.PairPs*1e-6)) + math.Sqrt(2*pairs)*k.TailNs*1e-3
}

// Padding is the mean number of queries per head that a chunk's last tile lacks, when group query heads share each KV
// head: half of 128 rows.
func (k *PrefillKernel) Padding(group float64) float64 { return 64 / group }

// DecodeKernel is the attention of single tokens, per layer:
//
//	floor + sequences · KV heads · UnitNs + KV bytes / TBs
type DecodeKernel struct {
	FloorUs float64 `yaml:"floor_us"`
	UnitNs  float64 `yaml:"unit_ns"` // per sequence and KV head
	TBs     float64 `yaml:"tbs"`
}

// MLAKernels is what multi-head latent attention takes beyond its matrix products, per layer:
//
//	decode  = floor + sequences · heads · UnitNs + max(latent bytes / TBs, heads · operations / DecodeTFLOPS)
//	prefill = floor + heads · (tokens · TokenNs + operations of pairs / PrefillTFLOPS)
//
// A past that was cached is expanded from latents again, which is a product of its own.
type MLAKernels struct {
	FloorUs      float64 `yaml:"floor_us"` // of all its small kernels
	UnitNs       float64 `yaml:"unit_ns"`  // per sequence and head
	TBs          float64 `yaml:"tbs"`
	DecodeTFLOPS float64 `yaml:"decode_tflops"`

	PrefillFloorUs float64 `yaml:"prefill_floor_us"` // likewise, of a step that computes prompts alone
	TokenNs        float64 `yaml:"token_ns"`         // per token and head
	PrefillTFLOPS  float64 `yaml:"prefill_tflops"`
}

// MoEKernel is the routed experts of one layer on one GPU: permutation, two grouped products, activation, weighted sum.
//
//	floor + passes + (memory^s + compute^s)^(1/s)
//	passes  = bytes of activations, over the rows of all GPUs / TBs
//	memory  = bytes of the touched experts on this GPU / TBs
//	compute = 2 · (rows on this GPU + touched · PadRows) · 3·hidden·ffn / TFLOPS
//
// A row is a token at one of its experts. Each expert's rows are padded to whole tiles. Buffers have room for the rows
// of all GPUs, and vLLM's activation and sum pass over all of it whichever experts a GPU holds.
type MoEKernel struct {
	FloorUs   float64 `yaml:"floor_us"`
	TBs       float64 `yaml:"tbs"`
	TFLOPS    float64 `yaml:"tflops"`
	PadRows   float64 `yaml:"pad_rows"` // per touched expert
	Sharpness float64 `yaml:"sharpness"`
}

// Us is the time of rows, share of which meet one of the touched experts of this GPU; these have ffn columns here, and
// weightBytes per number.
func (k *MoEKernel) Us(rows, share, touched, hidden, ffn, weightBytes float64) float64 {
	passes := rows * 2 * (2*hidden + 3*ffn) / (k.TBs * 1e6)
	memory := touched * 3 * hidden * ffn * weightBytes / (k.TBs * 1e6)
	compute := 2 * (rows*share + touched*k.PadRows) * 3 * hidden * ffn / (k.TFLOPS * 1e6)
	return k.FloorUs + passes + overlap(memory, compute, k.Sharpness)
}

// Collectives is one collective operation over 2, 4 and 8 GPUs.
type Collectives struct {
	Two   Collective `yaml:"2"`
	Four  Collective `yaml:"4"`
	Eight Collective `yaml:"8"`
}

// Collective is the time to move a buffer among GPUs: in one shot while it is small, each GPU reading all others, or in
// two shots, each GPU first adding up its part:
//
//	floor + min(bytes / OneShotTBs, TwoShotUs + bytes / TBs)
type Collective struct {
	FloorUs    float64 `yaml:"floor_us"`
	OneShotTBs float64 `yaml:"one_shot_tbs"`
	TwoShotUs  float64 `yaml:"two_shot_us"`
	TBs        float64 `yaml:"tbs"`
}

// Us is the time for a buffer of so many bytes on each GPU.
func (c *Collective) Us(bytes float64) float64 {
	return c.FloorUs + min(bytes/(c.OneShotTBs*1e6), c.TwoShotUs+bytes/(c.TBs*1e6))
}

// over picks the measured number of GPUs: the least that is not smaller than n.
func (c *Collectives) over(n int) *Collective {
	switch {
	case n <= 2:
		return &c.Two
	case n <= 4:
		return &c.Four
	}
	return &c.Eight
}

// SmallKernel is a kernel that passes over activations once, in a CUDA graph.
type SmallKernel struct {
	FloorUs float64 `yaml:"floor_us"`
	TBs     float64 `yaml:"tbs"`
}

// Us is the time to pass over so many bytes.
func (k *SmallKernel) Us(bytes float64) float64 { return k.FloorUs + bytes/(k.TBs*1e6) }

// Validate reports the first rate that is missing or out of range, by its key.
func (o *Ops) Validate() error {
	type field struct {
		key         string
		value       float64
		least, most float64
	}
	const tiny, huge = 1e-6, 1e6
	var fields []field
	floor := func(key string, v float64) { fields = append(fields, field{key, v, 0, huge}) }
	rate := func(key string, v float64) { fields = append(fields, field{key, v, tiny, huge}) }
	sharpness := func(key string, v float64) { fields = append(fields, field{key, v, 1, 100}) }
	for _, k := range []struct {
		key string
		GEMM
	}{{"gemm_bf16", o.GEMMBF16}, {"gemm_fp8", o.GEMMFP8}} {
		floor(k.key+".floor_us", k.FloorUs)
		rate(k.key+".tbs", k.TBs)
		rate(k.key+".tflops", k.TFLOPS)
		fields = append(fields, field{k.key + ".outputs", k.Outputs, 0, 1e9})
		sharpness(k.key+".sharpness", k.Sharpness)
	}
	for _, k := range []struct {
		key string
		PrefillKernel
	}{{"prefill_bf16", o.PrefillBF16}, {"prefill_fp8", o.PrefillFP8}} {
		floor(k.key+".floor_us", k.FloorUs)
		floor(k.key+".token_ns", k.TokenNs)
		rate(k.key+".tflops", k.TFLOPS)
		floor(k.key+".pair_ps", k.PairPs)
		floor(k.key+".tail_ns", k.TailNs)
	}
	for _, k := range []struct {
		key string
		DecodeKernel
	}{{"decode_bf16", o.DecodeBF16}, {"decode_fp8", o.DecodeFP8}} {
		floor(k.key+".floor_us", k.FloorUs)
		floor(k.key+".unit_ns", k.UnitNs)
		rate(k.key+".tbs", k.TBs)
	}
	for _, k := range []struct {
		key string
		MLAKernels
	}{{"mla_bf16", o.MLABF16}, {"mla_fp8", o.MLAFP8}} {
		floor(k.key+".floor_us", k.FloorUs)
		floor(k.key+".unit_ns", k.UnitNs)
		rate(k.key+".tbs", k.TBs)
		rate(k.key+".decode_tflops", k.DecodeTFLOPS)
		floor(k.key+".prefill_floor_us", k.PrefillFloorUs)
		floor(k.key+".token_ns", k.TokenNs)
		rate(k.key+".prefill_tflops", k.PrefillTFLOPS)
	}
	for _, k := range []struct {
		key string
		MoEKernel
	}{{"moe_bf16", o.MoEBF16}, {"moe_fp8", o.MoEFP8}} {
		floor(k.key+".floor_us", k.FloorUs)
		rate(k.key+".tbs", k.TBs)
		rate(k.key+".tflops", k.TFLOPS)
		floor(k.key+".pad_rows", k.PadRows)
		sharpness(k.key+".sharpness", k.Sharpness)
	}
	for _, k := range []struct {
		key string
		Collective
	}{
		{"all_reduce.2", o.AllReduce.Two}, {"all_reduce.4", o.AllReduce.Four}, {"all_reduce.8", o.AllReduce.Eight},
		{"all_to_all.2", o.AllToAll.Two}, {"all_to_all.4", o.AllToAll.Four}, {"all_to_all.8", o.AllToAll.Eight},
		{"all_gather.2", o.AllGather.Two}, {"all_gather.4", o.AllGather.Four}, {"all_gather.8", o.AllGather.Eight},
		{"nccl_all_reduce.2", o.NCCLAllReduce.Two}, {"nccl_all_reduce.4", o.NCCLAllReduce.Four}, {"nccl_all_reduce.8", o.NCCLAllReduce.Eight},
	} {
		floor(k.key+".floor_us", k.FloorUs)
		rate(k.key+".one_shot_tbs", k.OneShotTBs)
		floor(k.key+".two_shot_us", k.TwoShotUs)
		rate(k.key+".tbs", k.TBs)
	}
	floor("small.floor_us", o.Small.FloorUs)
	rate("small.tbs", o.Small.TBs)
	floor("sampler.floor_us", o.Sampler.FloorUs)
	rate("sampler.tbs", o.Sampler.TBs)
	for _, f := range fields {
		if !(f.value >= f.least && f.value <= f.most) { // also catches NaN
			return fmt.Errorf("rates of %s: %s is %g, want %g to %g", o.Name, f.key, f.value, f.least, f.most)
		}
	}
	return nil
}

// Ops returns the rates of the GPU's kernels: fitted ones where the catalogue has them, else the H100's, scaled by the
// ratios of memory bandwidth, matrix peaks and links, and by Scale. Floors are launches and synchronisation: the same
// everywhere.
func (g *GPU) Ops() (*Ops, error) {
	list, err := opsCatalogue()
	if err != nil {
		return nil, err
	}
	if o, ok := find(list, opsNames, g.Name); ok {
		return o, nil
	}
	reference, err := LookupGPU(list[0].Name)
	if err != nil {
		return nil, err
	}
	o := list[0].scaled(g, reference)
	return o, o.Validate()
}

// scaled carries rates over from the GPU that they were fitted on.
func (o *Ops) scaled(to, from *GPU) *Ops {
	s := *o
	s.Name, s.Fitted = to.Name, nil
	memory := to.BandwidthTBs * to.Scale.Bandwidth / from.BandwidthTBs
	bf16 := to.TFLOPS.BF16 / from.TFLOPS.BF16
	fp8 := to.TFLOPS.FP8 / from.TFLOPS.FP8
	if fp8 == 0 { // weights are expanded to bf16; see productUs
		fp8 = bf16
	}
	links := to.LinkGBs / from.LinkGBs

	for _, k := range []struct {
		gemm *GEMM
		moe  *MoEKernel
		rate float64
	}{{&s.GEMMBF16, &s.MoEBF16, bf16 * to.Scale.GEMMBF16}, {&s.GEMMFP8, &s.MoEFP8, fp8 * to.Scale.GEMMFP8}} {
		k.gemm.TBs *= memory
		k.gemm.TFLOPS *= k.rate
		k.moe.TBs *= memory
		k.moe.TFLOPS *= k.rate
	}
	attention := bf16 * to.Scale.Attention
	for _, k := range []*PrefillKernel{&s.PrefillBF16, &s.PrefillFP8} {
		k.TFLOPS *= attention
		k.TokenNs /= attention
		k.PairPs /= attention
		k.TailNs /= attention
	}
	for _, k := range []*DecodeKernel{&s.DecodeBF16, &s.DecodeFP8} {
		k.TBs *= memory
		k.UnitNs /= memory
	}
	for _, k := range []*MLAKernels{&s.MLABF16, &s.MLAFP8} {
		k.TBs *= memory
		k.UnitNs /= memory
		k.DecodeTFLOPS *= attention
		k.PrefillTFLOPS *= attention
		k.TokenNs /= attention
	}
	for _, c := range []*Collectives{&s.AllReduce, &s.AllToAll, &s.AllGather, &s.NCCLAllReduce} {
		for _, n := range []*Collective{&c.Two, &c.Four, &c.Eight} {
			n.OneShotTBs *= links
			n.TBs *= links
		}
	}
	s.Small.TBs *= memory
	s.Sampler.TBs *= memory
	return &s
}

// underLoad is the rates with arithmetic slowed by a factor.
func (o *Ops) underLoad(factor float64) *Ops {
	s := *o
	for _, tflops := range []*float64{&s.GEMMBF16.TFLOPS, &s.GEMMFP8.TFLOPS, &s.MoEBF16.TFLOPS, &s.MoEFP8.TFLOPS} {
		*tflops /= factor
	}
	return &s
}

func (o *Ops) prefill(kv DType) *PrefillKernel {
	if kv == FP8 {
		return &o.PrefillFP8
	}
	return &o.PrefillBF16
}

func (o *Ops) decode(kv DType) *DecodeKernel {
	if kv == FP8 {
		return &o.DecodeFP8
	}
	return &o.DecodeBF16
}

func (o *Ops) mla(kv DType) *MLAKernels {
	if kv == FP8 {
		return &o.MLAFP8
	}
	return &o.MLABF16
}

// weightBytes is the size of one number of a format, scales included.
func weightBytes(t DType) float64 { return float64(bytesPer256[t]) / 256 }

// fourBit is how much faster than FP8 a GPU multiplies NVFP4; 0 when it does not.
func (g *GPU) fourBit() float64 {
	if g.TFLOPS.FP8 == 0 {
		return 0
	}
	return g.TFLOPS.FP4 / g.TFLOPS.FP8
}

// expanded is by how much the arithmetic slows down where 4-bit weights are expanded to bf16 on the way to the
// multiplier: Marlin's kernels use the mma instruction of Ampere, which reaches 62 % of the rate of Hopper's wgmma
// (arXiv 2402.13499), and expand in the same loop. No table has them; the number is what TTFT of gpt-oss-120b on vLLM
// 0.18 tells, by two digits.
const expanded = 2.4

// productUs is the time of m rows times weights of a format.
func (o *Ops) productUs(g *GPU, weights DType, m, n, k float64) float64 {
	switch {
	case weights == FP8 && g.TFLOPS.FP8 > 0:
		return o.GEMMFP8.Us(m, n, k, 1, true)
	case weights == NVFP4 && g.fourBit() > 0:
		kernel := o.GEMMFP8
		kernel.TFLOPS *= g.fourBit()
		return kernel.Us(m, n, k, weightBytes(NVFP4), true)
	}
	kernel := o.GEMMBF16
	if weightBytes(weights) < 1 {
		kernel.TFLOPS /= expanded
	}
	return kernel.Us(m, n, k, weightBytes(weights), false)
}

// expertsUs is the time of routed experts with weights of a format; see MoEKernel.Us and productUs.
func (o *Ops) expertsUs(g *GPU, weights DType, rows, share, touched, hidden, ffn float64) float64 {
	kernel := o.MoEBF16
	switch {
	case weights == FP8 && g.TFLOPS.FP8 > 0:
		kernel = o.MoEFP8
	case weights == NVFP4 && g.fourBit() > 0:
		kernel = o.MoEFP8
		kernel.TFLOPS *= g.fourBit()
	case weightBytes(weights) < 1:
		kernel.TFLOPS /= expanded
	}
	return kernel.Us(rows, share, touched, hidden, ffn, weightBytes(weights))
}

// expertCoverage is the expected share of a layer's experts that a number of tokens touch, when each picks at random.
func expertCoverage(m MoE, tokens float64) float64 {
	return 1 - math.Pow(1-float64(m.Active)/float64(m.Experts), tokens)
}
