package fit

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/agentsim/agentsim/models"
)

// Aiconfigurator is the provenance of the tables that the catalogue's rates were fitted to.
func Aiconfigurator() models.Provenance {
	return models.Provenance{
		Source:  "ai-dynamo/aiconfigurator, systems/data/h100_sxm",
		Commit:  "095f58a51c4ca8e61b66ec108d86f223f8d559ce",
		Licence: "Apache-2.0",
		Date:    "2026-11-29",
		Engine:  "vllm 0.19",
		GPU:     "h100-sxm",
	}
}

// assumed is the provenance of what has no table: the kernels that pass over activations once, and sampling. With vLLM
// 0.19 on an RTX PRO 6000 the small kernels take 1.9 to 2.7 µs for one token, and sampling 25 µs and, beyond what the L2
// cache holds, 11 to 13 bytes per logit at memory speed. Floors are launches, much the same on all GPUs.
var assumed = models.Provenance{
	Source:  "casys-kaist/LLMServingSim, profiler/perf",
	Commit:  "5daddb21a545658d5150b535712d0494584b5278",
	Licence: "MIT",
	Date:    "2026-11-29",
	Engine:  "vllm 0.19",
	GPU:     "RTX PRO 6000",
	Comment: "floors of small kernels and of sampling, read off the tables and taken over",
}

// Ops fits all kernels to the tables in a folder, which are those of aiconfigurator as CSV and come from the given
// source. It returns the rates and the fits behind them, in the order of the tables.
func Ops(dir string, from models.Provenance) (*models.Ops, []*Kernel, error) {
	f := &fitter{dir: dir, ops: &models.Ops{Name: from.GPU}}
	// The products come first: those of latent attention are taken from them.
	for _, step := range []func() error{f.gemm, f.prefill, f.decode, f.mla, f.moe, f.collectives} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	f.ops.Small = models.SmallKernel{FloorUs: 2.3, TBs: f.ops.GEMMBF16.TBs}
	f.ops.Sampler = models.SmallKernel{FloorUs: 25, TBs: f.ops.GEMMBF16.TBs}
	for _, k := range f.kernels {
		from.Rows += k.Errors[0].Rows
	}
	f.ops.Fitted = []models.Provenance{from, assumed}
	return f.ops, f.kernels, f.ops.Validate()
}

type fitter struct {
	dir     string
	ops     *models.Ops
	kernels []*Kernel
}

func (f *fitter) path(table string) string { return filepath.Join(f.dir, table+".csv") }

// solve fits a problem and notes the kernel.
func (f *fitter) solve(p *problem) (*Kernel, error) {
	k, err := p.fit()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.dir, err)
	}
	f.kernels = append(f.kernels, k)
	return k, nil
}

// gemm: x is m, n, k.
func (f *fitter) gemm() error {
	rows := map[string][]row{}
	shapes := grouping{}
	err := readTable(f.path("gemm_vllm0.19"), []string{"gemm_dtype", "m", "n", "k", "latency"}, func(r *record) {
		m, n, k := r.number("m"), r.number("n"), r.number("k")
		if n < 512 || k < 512 || m > 16384 {
			return // smaller than any layer of a model that is served, or larger than any step
		}
		dtype := r.text("gemm_dtype")
		rows[dtype] = append(rows[dtype], row{us: r.us(), x: [6]float64{m, n, k}, group: shapes.of(n, k), fit: true})
	})
	if err != nil {
		return err
	}
	for _, g := range []struct {
		name, dtype string
		bytes       float64
		into        *models.GEMM
		start       models.GEMM
	}{
		{"gemm_bf16", "bfloat16", 2, &f.ops.GEMMBF16, models.GEMM{FloorUs: 3, TBs: 2.8, TFLOPS: 800, Outputs: 2e5, Sharpness: 3}},
		{"gemm_fp8", "fp8", 1, &f.ops.GEMMFP8, models.GEMM{FloorUs: 5, TBs: 2.8, TFLOPS: 1200, Outputs: 4e5, Sharpness: 2}},
	} {
		of := func(p []float64) models.GEMM {
			return models.GEMM{FloorUs: p[0], TBs: p[1], TFLOPS: p[2], Outputs: p[3], Sharpness: p[4]}
		}
		s := g.start
		k, err := f.solve(&problem{
			name: g.name, groups: "shapes (n, k)", rows: rows[g.dtype],
			params: []Param{{"floor_us", "µs", s.FloorUs}, {"tbs", "TB/s", s.TBs}, {"tflops", "TFLOP/s", s.TFLOPS}, {"outputs", "outputs", s.Outputs}, {"sharpness", "", s.Sharpness}},
			predict: func(p []float64, r *row) float64 {
				product := of(p)
				return product.Us(r.x[0], r.x[1], r.x[2], g.bytes, g.bytes == 1)
			},
			slices: []part{
				{"decode: m 1 to 64", func(r *row) bool { return r.x[0] <= 64 }},
				{"decode: m 65 to 256", func(r *row) bool { return r.x[0] > 64 && r.x[0] <= 256 }},
				{"short prompts: m 257 to 1024", func(r *row) bool { return r.x[0] > 256 && r.x[0] <= 1024 }},
				{"prompts: m above 1024", func(r *row) bool { return r.x[0] > 1024 }},
			},
		})
		if err != nil {
			return err
		}
		*g.into = of(values(k))
	}
	return nil
}

func values(k *Kernel) []float64 {
	out := make([]float64, len(k.Params))
	for i, p := range k.Params {
		out[i] = p.Value
	}
	return out
}

// attention rows: x is sequences, new tokens or context, query heads, KV heads, head dim, window.
func (f *fitter) attention(table string) (map[string][]row, error) {
	rows := map[string][]row{}
	layouts := grouping{}
	columns := []string{"kv_cache_dtype", "batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "window_size", "latency"}
	err := readTable(f.path(table), columns, func(r *record) {
		heads, kv := r.number("num_heads"), r.number("num_key_value_heads")
		dtype := r.text("kv_cache_dtype")
		rows[dtype] = append(rows[dtype], row{
			us:    r.us(),
			x:     [6]float64{r.number("batch_size"), r.number("isl") + r.number("step"), heads, kv, r.number("head_dim"), r.number("window_size")},
			group: layouts.of(heads),
		})
	})
	return rows, err
}

// prefill: the table has no cached tokens, so a past is priced by the same pair rate; see decode for what supports it.
func (f *fitter) prefill() error {
	rows, err := f.attention("prefill_attention_vllm0.19")
	if err != nil {
		return err
	}
	for _, g := range []struct {
		name, dtype string
		tflops      float64 // where the search starts
		into        *models.PrefillKernel
	}{{"prefill_bf16", "bfloat16", 800, &f.ops.PrefillBF16}, {"prefill_fp8", "fp8", 1000, &f.ops.PrefillFP8}} {
		list := rows[g.dtype]
		for i := range list {
			list[i].fit = list[i].x[5] == 0 && list[i].x[1] >= 16
		}
		of := func(p []float64) models.PrefillKernel {
			return models.PrefillKernel{FloorUs: p[0], TokenNs: p[1], TFLOPS: p[2], PairPs: p[3], TailNs: p[4]}
		}
		k, err := f.solve(&problem{
			name: g.name, groups: "head counts", rows: list,
			params: []Param{{"floor_us", "µs", 10}, {"token_ns", "ns per head and token", 0.25}, {"tflops", "TFLOP/s", g.tflops}, {"pair_ps", "ps per head and pair", 0.2}, {"tail_ns", "ns per token of the side", 3}},
			predict: func(p []float64, r *row) float64 {
				kernel := of(p)
				batch, n, dim := r.x[0], r.x[1], r.x[4]
				pairs := n * n / 2
				if w := r.x[5]; w > 0 {
					pairs = min(pairs, n*w)
				}
				pairs += n * kernel.Padding(r.x[2]/r.x[3])
				return kernel.Us(r.x[2], dim, batch*n, batch*pairs)
			},
			slices: []part{
				{"dim 128, up to 512 new tokens", func(r *row) bool { return r.fit && r.x[4] == 128 && r.x[1] <= 512 }},
				{"dim 128, above 512 new tokens", func(r *row) bool { return r.fit && r.x[4] == 128 && r.x[1] > 512 }},
				{"dim 64", func(r *row) bool { return r.fit && r.x[4] == 64 }},
				{"one prompt of 1k to 16k, 8 heads or more", func(r *row) bool { return r.fit && r.x[0] == 1 && r.x[1] >= 1024 && r.x[2] >= 8 }},
				{"window 128 (not fitted)", func(r *row) bool { return r.x[5] > 0 && r.x[1] >= 16 }},
			},
		})
		if err != nil {
			return err
		}
		*g.into = of(values(k))
	}
	return nil
}

// decode leaves out rows whose KV entries stay in the 50 MB L2 cache from one repetition to the next, which those of a
// served model do not, unless they are so few that the floor is all there is.
func (f *fitter) decode() error {
	rows, err := f.attention("decode_attention_vllm0.19")
	if err != nil {
		return err
	}
	for _, g := range []struct {
		name, dtype string
		bytes       float64
		into        *models.DecodeKernel
		prefill     *models.PrefillKernel
	}{{"decode_bf16", "bfloat16", 2, &f.ops.DecodeBF16, &f.ops.PrefillBF16}, {"decode_fp8", "fp8", 1, &f.ops.DecodeFP8, &f.ops.PrefillFP8}} {
		list := rows[g.dtype]
		kvBytes := func(r *row) float64 {
			context := r.x[1]
			if w := r.x[5]; w > 0 {
				context = min(context, w)
			}
			return r.x[0] * context * 2 * r.x[3] * r.x[4] * g.bytes
		}
		inCache := func(r *row) bool { return kvBytes(r) > 4e6 && kvBytes(r) < 60e6 }
		for i := range list {
			r := &list[i]
			r.fit = r.x[5] == 0 && r.x[1] >= 128 && !inCache(r)
		}
		of := func(p []float64) models.DecodeKernel {
			return models.DecodeKernel{FloorUs: p[0], UnitNs: p[1], TBs: p[2]}
		}
		long := func(r *row) bool { return r.x[5] == 0 && r.x[0] <= 64 && r.x[1] >= 8192 }
		p := &problem{
			name: g.name, groups: "head counts", rows: list,
			params: []Param{{"floor_us", "µs", 10}, {"unit_ns", "ns per sequence and KV head", 10}, {"tbs", "TB/s", 2.9}},
			predict: func(p []float64, r *row) float64 {
				return p[0] + r.x[0]*r.x[3]*p[1]*1e-3 + kvBytes(r)/(p[2]*1e6)
			},
			slices: []part{
				{"batch 1 to 64, context of 8k or more", func(r *row) bool { return r.fit && long(r) }},
				{"the same, in the L2 cache (not fitted)", func(r *row) bool { return long(r) && inCache(r) }},
				{"context of 128 to 8k", func(r *row) bool { return r.fit && r.x[1] < 8192 }},
				{"window 128 (not fitted)", func(r *row) bool { return r.x[5] > 0 && r.x[1] >= 128 }},
			},
		}
		k, err := f.solve(p)
		if err != nil {
			return err
		}
		*g.into = of(values(k))
		k.Errors = append(k.Errors, f.shortQueries(p, g.prefill, g.into, kvBytes))
	}
	return nil
}

// shortQueries prices decodes of long contexts as prompt chunks of one token after a long past: the only measurements
// of short queries on long KV that the tables have.
func (f *fitter) shortQueries(p *problem, prefill *models.PrefillKernel, decode *models.DecodeKernel, kvBytes func(*row) float64) SliceError {
	asPrefill := *p
	asPrefill.predict = func(_ []float64, r *row) float64 {
		batch, context, heads, kv, dim := r.x[0], r.x[1], r.x[2], r.x[3], r.x[4]
		pairs := batch * context * (1 + prefill.Padding(heads/kv))
		return max(prefill.Us(heads, dim, batch, pairs), prefill.FloorUs+kvBytes(r)/(decode.TBs*1e6))
	}
	has := func(r *row) bool { return r.fit && r.x[0] <= 8 && r.x[1] >= 32768 && r.x[2] >= 4*r.x[3] }
	return asPrefill.errors("as a prompt chunk of 1 token after 32k or more", has, func(*row) []float64 { return nil })
}

// mla fits what the modules of DeepSeek-V3's attention take beyond the matrix products. x is sequences, new tokens or
// context, heads per GPU, and 1 where the weights are fp8. Decodes over latents in bf16 always wait for them, so that the
// rate of their products is taken from those in fp8, which do not with 128 heads.
func (f *fitter) mla() error {
	read := func(table string) (map[string][]row, error) {
		rows := map[string][]row{}
		layouts := grouping{}
		columns := []string{"kv_cache_dtype", "gemm_type", "num_heads", "batch_size", "isl", "step", "latency"}
		err := readTable(f.path(table), columns, func(r *record) {
			fp8 := 0.0
			if r.text("gemm_type") != "bfloat16" {
				fp8 = 1
			}
			heads, tokens := r.number("num_heads"), r.number("isl")+r.number("step")
			dtype := r.text("kv_cache_dtype")
			rows[dtype] = append(rows[dtype], row{us: r.us(), x: [6]float64{r.number("batch_size"), tokens, heads, fp8}, group: layouts.of(heads), fit: tokens >= 16})
		})
		return rows, err
	}
	decodes, err := read("mla_decode_module_vllm0.19")
	if err != nil {
		return err
	}
	prefills, err := read("mla_prefill_module_vllm0.19")
	if err != nil {
		return err
	}
	const hidden, queryRank, rank, rope, nope, value = 7168, 1536, 512, 64, 128, 128
	products := func(m float64, r *row) (us float64) {
		g, bytes := &f.ops.GEMMBF16, 2.0
		if r.x[3] == 1 {
			g, bytes = &f.ops.GEMMFP8, 1
		}
		heads := r.x[2]
		for _, p := range [][2]float64{{queryRank + rank + rope, hidden}, {heads * (nope + rope), queryRank}, {heads * (nope + value), rank}, {hidden, heads * value}} {
			us += g.Us(m, p[0], p[1], bytes, r.x[3] == 1)
		}
		return us
	}
	for _, g := range []struct {
		name, dtype string
		bytes       float64
		into        *models.MLAKernels
	}{{"mla_fp8", "fp8", 1, &f.ops.MLAFP8}, {"mla_bf16", "bfloat16", 2, &f.ops.MLABF16}} {
		params := []Param{{"floor_us", "µs", 80}, {"unit_ns", "ns per sequence and head", 1}, {"tbs", "TB/s", 2.9}}
		if g.bytes == 1 {
			params = append(params, Param{"decode_tflops", "TFLOP/s", 700})
		}
		decode, err := f.solve(&problem{
			name: g.name + " decode", groups: "head counts", rows: decodes[g.dtype], params: params,
			predict: func(p []float64, r *row) float64 {
				batch, context, heads := r.x[0], r.x[1], r.x[2]
				read := context * (rank + rope) * g.bytes / (p[2] * 1e6)
				tflops := f.ops.MLAFP8.DecodeTFLOPS
				if g.bytes == 1 {
					tflops = p[3]
				}
				compute := context * heads * 2 * (2*rank + rope) / (tflops * 1e6)
				return products(batch, r) + p[0] + batch*heads*p[1]*1e-3 + batch*max(read, compute)
			},
			slices: []part{{"batch 1 to 64, context of 8k or more", func(r *row) bool { return r.x[0] <= 64 && r.x[1] >= 8192 }}},
		})
		if err != nil {
			return err
		}
		prefill, err := f.solve(&problem{
			name: g.name + " prefill", groups: "head counts", rows: prefills[g.dtype],
			params: []Param{{"prefill_floor_us", "µs", 100}, {"token_ns", "ns per token and head", 1}, {"prefill_tflops", "TFLOP/s", 500}},
			predict: func(p []float64, r *row) float64 {
				batch, n, heads := r.x[0], r.x[1], r.x[2]
				pairs := batch * n * n / 2
				return products(batch*n, r) + p[0] + heads*(batch*n*p[1]*1e-3+pairs*2*(nope+rope+value)/(p[2]*1e6))
			},
			slices: []part{{"up to 512 new tokens", func(r *row) bool { return r.fit && r.x[1] <= 512 }}},
		})
		if err != nil {
			return err
		}
		if g.bytes == 1 {
			f.ops.MLAFP8.DecodeTFLOPS = decode.value("decode_tflops")
		}
		*g.into = models.MLAKernels{
			FloorUs: decode.value("floor_us"), UnitNs: decode.value("unit_ns"), TBs: decode.value("tbs"), DecodeTFLOPS: f.ops.MLAFP8.DecodeTFLOPS,
			PrefillFloorUs: prefill.value("prefill_floor_us"), TokenNs: prefill.value("token_ns"), PrefillTFLOPS: prefill.value("prefill_tflops"),
		}
	}
	return nil
}

// moe: x is rows, GPUs that they are spread over, touched experts and ffn columns on this GPU, hidden, tokens. FP8 is that
// with block scales, as most released mixtures have. Fitted where tokens are spread evenly,
// since how many experts the other distributions touch is not in the table; there it is taken as for random choices.
func (f *fitter) moe() error {
	rows := map[string][]row{}
	shapes := grouping{}
	columns := []string{"moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "distribution", "latency"}
	err := readTable(f.path("moe_vllm0.19"), columns, func(r *record) {
		dtype := r.text("moe_dtype")
		tokens, active, experts := r.number("num_tokens"), r.number("topk"), r.number("num_experts")
		tensor, ranks := r.number("moe_tp_size"), r.number("moe_ep_size")
		balanced := r.text("distribution") == "balanced"
		touched := min(experts, tokens*active)
		if !balanced {
			touched = experts * (1 - math.Pow(1-active/experts, tokens))
		}
		hidden, ffn := r.number("hidden_size"), r.number("inter_size")
		rows[dtype] = append(rows[dtype], row{
			us:    r.us(),
			x:     [6]float64{tokens * active, ranks, max(1, touched/ranks), ffn / tensor, hidden, tokens},
			group: shapes.of(hidden, ffn, experts), fit: balanced && ffn/tensor >= 128,
		})
	})
	if err != nil {
		return err
	}
	for _, g := range []struct {
		name, dtype string
		bytes       float64
		into        *models.MoEKernel
	}{{"moe_bf16", "bfloat16", 2, &f.ops.MoEBF16}, {"moe_fp8", "fp8_block", 1, &f.ops.MoEFP8}} {
		of := func(p []float64) models.MoEKernel {
			return models.MoEKernel{FloorUs: p[0], TBs: p[1], TFLOPS: p[2], PadRows: p[3], Sharpness: p[4]}
		}
		k, err := f.solve(&problem{
			name: g.name, groups: "models", rows: rows[g.dtype],
			params: []Param{{"floor_us", "µs", 20}, {"tbs", "TB/s", 2.8}, {"tflops", "TFLOP/s", 400 * 2 / g.bytes}, {"pad_rows", "rows per touched expert", 32}, {"sharpness", "", 3}},
			predict: func(p []float64, r *row) float64 {
				kernel := of(p)
				return kernel.Us(r.x[0], 1/r.x[1], r.x[2], r.x[4], r.x[3], g.bytes)
			},
			slices: []part{
				{"1 to 64 tokens", func(r *row) bool { return r.fit && r.x[5] <= 64 }},
				{"above 1024 tokens", func(r *row) bool { return r.fit && r.x[5] > 1024 }},
				{"experts on 2 to 16 GPUs", func(r *row) bool { return r.fit && r.x[1] >= 2 && r.x[1] <= 16 }},
				{"uneven, experts touched as by chance (not fitted)", func(r *row) bool { return !r.fit && r.x[3] >= 128 }},
			},
		})
		if err != nil {
			return err
		}
		*g.into = of(values(k))
	}
	return nil
}

// collectives: x is bytes.
func (f *fitter) collectives() error {
	reduce, all := map[float64][]row{}, map[float64][]row{}
	nccl, gather := map[float64][]row{}, map[float64][]row{}
	seen := map[[3]string]bool{}
	err := readTable(f.path("custom_allreduce_vllm0.19"), []string{"num_gpus", "message_size", "latency", "backend"}, func(r *record) {
		if n := r.number("num_gpus"); r.text("backend") == "vllm_graph" {
			bytes := 2 * r.number("message_size") // elements of bf16
			reduce[n] = append(reduce[n], row{us: r.us(), x: [6]float64{bytes}, group: len(reduce[n]), fit: true})
		}
	})
	if err != nil {
		return err
	}
	err = readTable(f.path("nccl"), []string{"op_name", "nccl_dtype", "num_gpus", "message_size", "latency"}, func(r *record) {
		line := [3]string{r.text("op_name"), r.text("num_gpus"), r.text("message_size")}
		if r.text("nccl_dtype") != "half" || seen[line] {
			return
		}
		seen[line] = true
		n, bytes := r.number("num_gpus"), 2*r.number("message_size")
		into, ok := map[string]map[float64][]row{"alltoall": all, "all_reduce": nccl, "all_gather": gather}[line[0]]
		if ok {
			into[n] = append(into[n], row{us: r.us(), x: [6]float64{bytes}, group: len(into[n]), fit: true})
		}
	})
	if err != nil {
		return err
	}
	fit := func(name string, rows []row) (models.Collective, error) {
		of := func(p []float64) models.Collective {
			return models.Collective{FloorUs: p[0], OneShotTBs: p[1], TwoShotUs: p[2], TBs: p[3]}
		}
		k, err := f.solve(&problem{
			name: name, groups: "message sizes", rows: rows,
			params: []Param{{"floor_us", "µs", 5}, {"one_shot_tbs", "TB/s", 0.1}, {"two_shot_us", "µs", 4}, {"tbs", "TB/s", 0.25}},
			predict: func(p []float64, r *row) float64 {
				c := of(p)
				return c.Us(r.x[0])
			},
			slices: []part{{"up to 1 MiB (decode)", func(r *row) bool { return r.x[0] <= 1<<20 }}},
		})
		if err != nil {
			return models.Collective{}, err
		}
		return of(values(k)), nil
	}
	for _, c := range []struct {
		name string
		rows map[float64][]row
		into *models.Collectives
	}{{"all_reduce", reduce, &f.ops.AllReduce}, {"all_to_all", all, &f.ops.AllToAll}, {"all_gather", gather, &f.ops.AllGather}, {"nccl_all_reduce", nccl, &f.ops.NCCLAllReduce}} {
		for _, over := range []struct {
			gpus float64
			into *models.Collective
		}{{2, &c.into.Two}, {4, &c.into.Four}, {8, &c.into.Eight}} {
			if *over.into, err = fit(fmt.Sprintf("%s over %g", c.name, over.gpus), c.rows[over.gpus]); err != nil {
				return err
			}
		}
	}
	return nil
}
