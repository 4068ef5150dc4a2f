package accuracy

import (
	"fmt"
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

// Serving reads a serving table in the columns of aiconfigurator's silicon_sample.csv: one closed-loop benchmark a row,
// with its mean TTFT and TPOT. Rows of disaggregated servers are left out, and so are repetitions.
//
// Clients send 10 requests each, all starting together. Rows of InferenceX have lengths uniform in 0.8 L to L
// (random-range-ratio 0.8) and greedy sampling, on vLLM without prefix caching and with max_num_seqs = concurrency
// (benchmarks of SemiAnalysisAI/InferenceX @843c6254). KV entries are taken to be bf16 everywhere: with fp8 the rows of
// Llama-3.1-70B at TP2 would not have waited for room.
//
// The flags of the other rows are not published. They are taken to be those that aiconfigurator itself generates
// (src/aiconfigurator/generator @2b264ba7: rule_plugin/benchmark, bench_run.sh): constant lengths, and for vLLM
// max_num_batched_tokens = clients + prompt + 1500. Their TTFT bears it out: it is the same whatever the length of
// answers, and grows with prompts as steps of that size make it. Sampling is then by the model's generation_config.json,
// which for Qwen3 has top-p and top-k.
func Serving(path string) ([]*Case, error) {
	var cases []*Case
	seen := map[string]bool{}
	err := readRows(path, []string{"silicon_data_source", "backend", "backend_version", "model_path", "system", "precision", "mode", "isl", "osl",
		"batch_size", "tp_size", "pp_size", "attention_dp_size", "moe_ep_size", "silicon_ttft_ms", "silicon_tpot_ms"}, func(r *row) error {
		if r.text("mode") != "agg" {
			return nil
		}
		c, err := servingCase(r)
		if err != nil {
			return err
		}
		key := fmt.Sprintf("%s %.6g %.6g", c.Name, c.Parts[0].Measured[TTFT], c.Parts[0].Measured[TPOT])
		if !seen[key] {
			seen[key] = true
			cases = append(cases, c)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return cases, nil
}

// servingCase is the deployment and load of a row.
func servingCase(r *row) (*Case, error) {
	var ints [6]int
	for i, f := range []struct {
		column      string
		least, most int
	}{
		{"isl", 1, 1 << 20}, {"osl", 1, 1 << 20}, {"batch_size", 1, 1 << 14}, {"tp_size", 1, 64}, {"pp_size", 1, 64}, {"moe_ep_size", 1, 1024},
	} {
		n, err := r.count(f.column, f.least, f.most)
		if err != nil {
			return nil, err
		}
		ints[i] = n
	}
	isl, osl, clients, tensor := ints[0], ints[1], ints[2], ints[3]
	ttft, err := r.number("silicon_ttft_ms", maxLatencyMs)
	if err != nil {
		return nil, err
	}
	tpot, err := r.number("silicon_tpot_ms", maxLatencyMs)
	if err != nil {
		return nil, err
	}
	d := sim.Default()
	d.Model, d.DType = modelName(r.text("model_path"), r.text("precision"))
	d.GPU = strings.ReplaceAll(r.text("system"), "_", "-")
	d.Parallelism = sim.Parallelism{Tensor: tensor, Pipeline: ints[4], Data: 1, Expert: ints[5]}
	if dp := r.text("attention_dp_size"); dp != "" && dp != "1" {
		if d.Parallelism.Data, err = r.count("attention_dp_size", 1, 64); err != nil {
			return nil, err
		}
	}
	if d.Engine.Kind = r.text("backend"); d.Engine.Kind == "vllm" {
		d.Engine.Version = r.text("backend_version")
		d.Engine.AsyncScheduling = d.Engine.Kind == "vllm" && (&models.Deployment{EngineVersion: d.Engine.Version}).AsyncScheduling()
		d.Engine.MaxNumSeqs = clients
		d.Engine.MaxNumBatchedTokens = max(8192, clients)
	}
	d.Engine.PrefixCaching = false
	d.Load.Mode, d.Load.Concurrency = "concurrency", clients
	d.Client.Timeout = 0
	inferenceX := strings.Contains(r.text("silicon_data_source"), "2026-") || strings.Contains(r.text("silicon_data_source"), "db-dump")
	short := 1.0
	if inferenceX {
		short = 0.8
		d.Engine.MaxModelLen = 10240
	} else if d.Engine.Kind == "vllm" {
		d.Engine.MaxNumBatchedTokens = clients + isl + 1500
		d.Engine.FilteredSampling = filters(d.Model)
	}
	c := &Case{
		Source:     "aic-silicon-serving",
		Name:       fmt.Sprintf("%s %s %s tp%d ep%d %d/%d c%d", d.Engine.Kind, r.text("backend_version"), d.Model, tensor, ints[5], isl, osl, clients),
		Deployment: d,
		Queued:     ttft > queuedMs,
		capture: func() (*trace.Capture, error) {
			return synth.Generate("plain", synth.Options{Programs: 10 * clients, Seed: 1, Set: []string{
				fmt.Sprintf("input=%d:%d", max(1, int(short*float64(isl))), isl),
				fmt.Sprintf("output=%d:%d", max(1, int(short*float64(osl))), osl), "rate=0"}})
		},
	}
	measured := Figures{TTFT: ttft, TPOT: tpot}
	output := (1 + short) / 2 * float64(osl)
	measured[E2E] = ttft + (output-1)*tpot
	measured[Throughput] = closedLoop(output, measured)
	c.Parts = []Part{{Name: "whole", Measured: measured}}
	if clients >= 512 {
		c.Apart = "tokens come faster than with an eighth of the clients: the batch is unknown"
	}
	return c, nil
}

// filters tells whether the generation_config.json of a model, by which vLLM and Dynamo sample unless a request says
// otherwise, has top-p or top-k (Hugging Face, as of 2026-11). Mistral-Nemo's, Yi's and gpt-oss's have neither.
func filters(model string) bool {
	for _, family := range []string{"Qwen", "Llama-2-", "Llama-3.", "Llama-4-"} {
		if strings.HasPrefix(model, family) {
			return true
		}
	}
	return false
}

// modelName splits what a data set calls a model into our name and number formats; "" is the model's own.
func modelName(path, precision string) (string, sim.DType) {
	name := path[strings.LastIndexByte(path, '/')+1:]
	var d sim.DType
	if base, ok := strings.CutSuffix(name, "-FP8-dynamic"); ok {
		name, d.Weights = base, "fp8"
	}
	if strings.EqualFold(precision, "fp8") {
		d.Weights = "fp8"
	}
	return name, d
}
