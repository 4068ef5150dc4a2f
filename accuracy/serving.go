package accuracy

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

// queuedMs is the mean TTFT from which rows count as limited by the KV cache.
const queuedMs = 8000

// maxLatencyMs bounds a mean latency in a table.
const maxLatencyMs = 1e8

// maxClients bounds a closed loop.
const maxClients = 1 << 14

// The sources of serving tables.
const (
	inferenceX = "InferenceX"
	nvidia     = "NVIDIA"
)

// Why rows are not simulated.
const (
	skipDisaggregated = "disaggregated prefill"
	skipModel         = "model that the catalogue lacks"
	skipLayout        = "layout that does not fit or divide the model"
	skipNodes         = "more GPUs than InferenceX's single servers have: disaggregated, in all"
)

// servingColumns are the columns of a serving table that are read.
var servingColumns = []string{"silicon_data_source", "backend", "backend_version", "model_path", "system", "precision",
	"gemm_quant_mode", "mode", "isl", "osl", "batch_size", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size", "silicon_ttft_ms", "silicon_tpot_ms"}

// Serving reads a serving table in the columns of aiconfigurator's silicon_sample.csv: one closed-loop benchmark a row,
// with its mean TTFT and TPOT. Rows that cannot be simulated have a Skip; repetitions are left out.
//
// Clients send 10 requests each, all starting together. Rows of InferenceX have lengths uniform in 0.8 L to L
// (random-range-ratio 0.8) and greedy sampling, without prefix caching; see publications for the flags of their servers. KV
// entries of vLLM are taken to be bf16 everywhere: with fp8 the rows of Llama-3.1-70B at TP2 would not have waited for room.
//
// The flags of the other rows, NVIDIA's own, are not published. They are taken to be those that aiconfigurator itself
// generates (src/aiconfigurator/generator @2b264ba7: rule_plugin/benchmark, bench_run.sh): constant lengths, and for vLLM
// max_num_batched_tokens = clients + prompt + 1500. Their TTFT bears it out: it is the same whatever the length of
// answers, and grows with prompts as steps of that size make it. Sampling is then by the model's generation_config.json,
// which for Qwen3 has top-p and top-k.
func Serving(path string) ([]*Case, error) {
	var cases []*Case
	type run struct{ server, figures string }
	seen := map[run]bool{}
	slowest := map[string]float64{} // TPOT by server
	err := readRows(path, servingColumns, func(r *row) error {
		if r.text("mode") != "agg" {
			cases = append(cases, &Case{Source: source(r), Name: r.text("model_path"), Skip: skipDisaggregated})
			return nil
		}
		c, err := servingCase(r)
		if err != nil {
			return err
		}
		// Dumps of one run differ in digits, in whether they tell the version and call DeepSeek-R1 V3.
		m := &c.Parts[0].Measured
		at := run{c.server(), fmt.Sprintf("%.4g %.4g", m[TTFT], m[TPOT])}
		if c.Skip != "" || !seen[at] {
			seen[at] = true
			slowest[at.server] = max(slowest[at.server], m[TPOT])
			cases = append(cases, c)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, c := range cases {
		if c.Skip == "" && slowest[c.server()] > 1.25*c.Parts[0].Measured[TPOT] {
			c.Apart = "another run of the same server took a quarter longer: other flags, such as speculative decoding"
		}
	}
	return cases, nil
}

// server is what tells the case's server and load from others, as far as published.
func (c *Case) server() string {
	if c.Skip != "" {
		return c.Name
	}
	d := &c.Deployment
	return fmt.Sprint(d.GPU, d.Engine.Kind, d.Model, d.DType, d.Parallelism, c.shape)
}

// source is whose measurement a row is. InferenceX's are in dumps, in files named by date, and in two files that compare them
// with aiconfigurator's predictions.
func source(r *row) string {
	from, _, _ := strings.Cut(r.text("silicon_data_source"), ";")
	if strings.Contains(from, "2026-") || strings.Contains(from, "db-dump") || strings.Contains(from, "gap-analysis.csv") {
		return inferenceX
	}
	return nvidia
}

// benchmark is what a row says of server and load.
type benchmark struct {
	source, engine, version, model, precision, gpu string
	perTensor                                      bool // fp8 weights with one scale a matrix
	input, output, clients                         int
	sim.Parallelism
}

func readBenchmark(r *row) (*benchmark, error) {
	b := &benchmark{source: source(r), engine: r.text("backend"), version: r.text("backend_version"), model: r.text("model_path"),
		precision: strings.ToLower(r.text("precision")), gpu: strings.ReplaceAll(r.text("system"), "_", "-"),
		perTensor: r.text("gemm_quant_mode") == "fp8"}
	var perRank, expertTensor int
	if err := r.fill([]field{
		{"isl", &b.input, 1, 1 << 20}, {"osl", &b.output, 1, 1 << 20}, {"batch_size", &perRank, 1, maxClients},
		{"tp_size", &b.Tensor, 1, 1024}, {"pp_size", &b.Pipeline, 1, 64}, {"attention_dp_size", &b.Data, 0, 1024},
		{"moe_tp_size", &expertTensor, 0, 1024}, {"moe_ep_size", &b.Expert, 0, 1024},
	}); err != nil {
		return nil, err
	}
	b.Expert = max(1, b.Expert)
	if b.clients = perRank * max(1, b.Data); b.clients > maxClients {
		return nil, fmt.Errorf("%d clients (batch_size times attention_dp_size), want at most %d", b.clients, maxClients)
	}
	if b.Data == 0 { // not told, but tp · dp = moe_tp · moe_ep
		b.Data = max(1, expertTensor*b.Expert/b.Tensor)
	}
	if b.source == inferenceX {
		b.Parallelism = inferenceXLayout(b.Parallelism, expertTensor)
	}
	return b, nil
}

// inferenceXLayout undoes what aiconfigurator made of InferenceX's TP, EP and DP-attention, to have tp · dp = moe_tp ·
// moe_ep: of n GPUs with n experts groups it says moe_tp n and tp or dp n², and of n data-parallel ranks tp n as well. The
// scripts start data parallelism with --tensor-parallel-size=1 --data-parallel-size=$TP.
func inferenceXLayout(p sim.Parallelism, expertTensor int) sim.Parallelism {
	gpus := p.Tensor
	switch {
	case p.Expert > 1 && p.Expert == expertTensor:
		gpus = p.Expert
	case p.Data > 1:
		gpus = p.Data
	}
	if p.Data > 1 {
		return sim.Parallelism{Tensor: 1, Pipeline: p.Pipeline, Data: gpus, Expert: gpus}
	}
	return sim.Parallelism{Tensor: gpus, Pipeline: p.Pipeline, Data: 1, Expert: min(p.Expert, gpus)}
}

// servingCase is the deployment and load of a row.
func servingCase(r *row) (*Case, error) {
	b, err := readBenchmark(r)
	if err != nil {
		return nil, err
	}
	ttft, err := r.number("silicon_ttft_ms", maxLatencyMs)
	if err != nil {
		return nil, err
	}
	tpot, err := r.number("silicon_tpot_ms", maxLatencyMs)
	if err != nil {
		return nil, err
	}
	c := &Case{Source: b.source, Queued: ttft > queuedMs}
	p := b.Parallelism
	c.Name = fmt.Sprintf("%s %s %s %s %s tp%d dp%d ep%d %d/%d c%d", b.gpu, b.engine, b.version, b.model, b.precision, p.Tensor, p.Data, p.Expert, b.input, b.output, b.clients)
	c.Parts = []Part{{Name: whole, Measured: Figures{TTFT: ttft, TPOT: tpot}}}
	d, err := b.deployment()
	if err != nil {
		c.Skip = skipModel
		return c, nil
	}
	c.Deployment = *d
	short, prompts := 1.0, 10
	switch {
	case b.source == inferenceX:
		short = 0.8
		prompts = b.publish(&c.Deployment)
	case b.engine == "vllm":
		c.Deployment.Engine.MaxNumBatchedTokens = b.clients + b.input + 1500
		c.Deployment.Engine.FilteredSampling = filters(c.Deployment.Model)
	}
	c.shape = [3]int{b.input, b.output, b.clients}
	c.capture = func() (*trace.Capture, error) {
		return synth.Generate("plain", synth.Options{Programs: prompts * b.clients, Seed: 1, Set: []string{
			fmt.Sprintf("input=%d:%d", max(1, int(short*float64(b.input))), b.input),
			fmt.Sprintf("output=%d:%d", max(1, int(short*float64(b.output))), b.output), "rate=0"}})
	}
	measured := &c.Parts[0].Measured
	output := (1 + short) / 2 * float64(b.output)
	measured[E2E] = ttft + (output-1)*tpot
	measured[Throughput] = closedLoop(output, *measured)
	c.Apart = b.apart(r)
	if _, err := c.Plan(); err != nil {
		c.Skip = skipLayout
	} else if b.source == inferenceX && p.Tensor*p.Data > 8 {
		c.Skip = skipNodes
	}
	return c, nil
}

// filters tells whether the generation_config.json of a model, by which vLLM and Dynamo sample unless a request says
// otherwise, has top-p or top-k (Hugging Face, as of 2026-11). Mistral-Nemo's, Yi's and gpt-oss's have neither.
func filters(model string) bool {
	for _, family := range []string{"qwen", "llama-2-", "llama-3.", "llama-4-"} {
		if strings.HasPrefix(model, family) {
			return true
		}
	}
	return false
}

// apart says why a row cannot be explained by what is published of it.
func (b *benchmark) apart(r *row) string {
	switch {
	case b.source == inferenceX && b.gpu == "h100-sxm" && b.engine == "vllm" && b.clients >= 512:
		return "tokens come faster than with an eighth of the clients: the batch is unknown"
	case b.source == nvidia && strings.Contains(r.text("silicon_data_source"), "gtl_job_id"):
		return "Dynamo with several workers, of which neither number nor load is published"
	case b.source == nvidia && b.gpu == "h200-sxm" && b.engine == "vllm" && b.model == "nvidia/Llama-3.1-8B-Instruct-FP8":
		return "prompts come faster than the GPU can compute them (up to nine tenths of its peak at TP1): a prefix cache, or shorter ones"
	}
	return ""
}

// deployment is the server of a benchmark, but for the flags that InferenceX publishes.
func (b *benchmark) deployment() (*sim.Deployment, error) {
	model, weights, err := models.LookupCheckpoint(b.model)
	if err != nil {
		return nil, err
	}
	d := sim.Default()
	d.Model, d.GPU, d.Parallelism = model.Name, b.gpu, b.Parallelism
	d.DType.Weights = string(weights)
	switch {
	case model.DType == models.MXFP4: // the only format there is, whatever a row calls it
	case b.precision == "fp4":
		d.DType.Weights = string(models.NVFP4)
	case b.precision != "":
		d.DType.Weights = b.precision
	}
	if d.Engine.Kind = b.engine; d.Engine.Kind == "vllm" {
		if _, err := strconv.ParseFloat(b.version[:max(0, strings.LastIndexByte(b.version, '.'))], 64); err == nil {
			d.Engine.Version = b.version // not "nightly-..."
		}
		d.Engine.MaxNumSeqs = b.clients
		d.Engine.MaxNumBatchedTokens = max(8192, b.clients)
	}
	if b.source == nvidia && b.engine == "trtllm" && b.perTensor {
		d.DType.KV = "fp8" // as ModelOpt's checkpoints say; with bf16, Qwen3-32B at TP1 would have waited for room
	}
	d.Engine.PrefixCaching = false
	d.Load.Mode, d.Load.Concurrency = "concurrency", b.clients
	d.Client.Timeout = 0
	return &d, nil
}

// publication is what a script of InferenceX tells of a server (SemiAnalysisAI/InferenceX, benchmarks/single_node
// @34bc7c40 and benchmarks @73ef9225); 0 is the engine's default.
type publication struct {
	engine, model, gpu string // gpu "" is all
	weights            string // "" is all
	chunk, sequences   int
	memory             float64
	kv                 string
	prompts            int // requests a client; 0 is 10
}

var publications = []publication{
	{engine: "sglang", model: "deepseek-r1", gpu: "h200-sxm", chunk: 32768, sequences: 256, memory: 0.82},
	{engine: "sglang", model: "deepseek-r1", weights: "nvfp4", chunk: 16384, sequences: 256, memory: 0.85, kv: "fp8"},
	{engine: "sglang", model: "deepseek-r1", weights: "fp8", chunk: 32768, sequences: 128, memory: 0.82, kv: "fp8"},
	{engine: "sglang", model: "qwen3.5-397b-a17b", gpu: "h200-sxm", chunk: 16384, sequences: 128, memory: 0.8, kv: "fp8"},
	{engine: "sglang", model: "qwen3.5-397b-a17b", chunk: 32768, sequences: 128, memory: 0.82, kv: "fp8"},
	{engine: "sglang", model: "glm-5", memory: 0.85, prompts: 5},
	{engine: "trtllm", model: "gpt-oss-120b", chunk: 20000, memory: 0.85},
	{engine: "trtllm", model: "deepseek-r1", memory: 0.75, kv: "fp8"},
	{engine: "trtllm", model: "llama-3.1-70b", kv: "fp8"},
}

// publish sets the flags that InferenceX's script for the server has, and returns the requests that a client sends.
func (b *benchmark) publish(d *sim.Deployment) (prompts int) {
	d.Engine.MaxModelLen = 10240
	if d.Model == "deepseek-v3" { // InferenceX runs R1 alone; a dump names its architecture
		d.Model = "deepseek-r1"
	}
	for _, p := range publications {
		if p.engine != b.engine || p.model != d.Model || p.gpu != "" && p.gpu != b.gpu || p.weights != "" && p.weights != d.DType.Weights {
			continue
		}
		d.Engine.MaxNumBatchedTokens, d.Engine.MaxNumSeqs, d.Engine.GPUMemoryUtilization = p.chunk, p.sequences, p.memory
		if p.engine == "sglang" {
			d.Engine.MaxPrefillTokens = p.chunk
		}
		d.DType.KV = p.kv
		return cmp.Or(p.prompts, 10)
	}
	return 10
}
