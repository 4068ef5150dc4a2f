package models

import (
	"encoding/csv"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestServingRows compares the closed form
//
//	time per output token = decode step + batch/outputs · prefill step
//
// with closed-loop measurements of vLLM on H100. The host terms of profile h100-vllm were fitted to such rows, so
// this guards against changes of the formula; it does not validate the model.
func TestServingRows(t *testing.T) {
	rows := sharedCSV(t, "ground-truth/aic-silicon-serving/calibrate/h100_vllm_sglang_agg.csv")
	for _, c := range []struct {
		path, model string
		weights, kv DType
		tensor      int
		lengths     float64 // mean share of the nominal lengths: InferenceX draws from [0.8, 1]
		within      float64 // mean absolute relative error
	}{
		{"Qwen/Qwen3-32B", "qwen3-32b", BF16, BF16, 2, 1, 0.05},
		{"Qwen/Qwen3-32B", "qwen3-32b", BF16, BF16, 8, 1, 0.07},
		{"meta-llama/Llama-3.1-70B", "llama-3.1-70b", FP8, FP8, 2, 0.9, 0.06},
		{"meta-llama/Llama-3.1-70B", "llama-3.1-70b", FP8, FP8, 8, 0.9, 0.06},
		{"openai/gpt-oss-120b", "gpt-oss-120b", MXFP4, BF16, 2, 0.9, 0.08},
		{"MiniMaxAI/MiniMax-M2.5", "minimax-m2.5", FP8, BF16, 4, 0.9, 0.11},
	} {
		step := cost(t, Deployment{Model: lookup(t, c.model), GPU: gpu(t, "h100-sxm"), Weights: c.weights, KV: c.kv, Parallelism: Parallelism{Tensor: c.tensor}}, "h100-vllm")
		var sum float64
		var n int
		for _, row := range rows {
			// Beyond 8 s to the first token, the batch is smaller than the number of clients.
			if row["backend"] != "vllm" || row["model_path"] != c.path || number(t, row["tp_size"]) != float64(c.tensor) || number(t, row["silicon_ttft_ms"]) > 8000 {
				continue
			}
			batch, in, out := number(t, row["batch_size"]), c.lengths*number(t, row["isl"]), c.lengths*number(t, row["osl"])
			decode := float64(step.Base(Batch{Decodes: int(batch)})) + float64(step.PerContext())*batch*(in+out/2)
			prefill := float64(step.Base(Batch{Prefills: 1, PrefillTokens: int(in), PrefillPairs: int64(in * in), PrefillContext: int64(in)}))
			ms := (decode + batch/out*prefill) / FixedPerNs / 1e6
			sum += math.Abs(ms/number(t, row["silicon_tpot_ms"]) - 1)
			n++
		}
		t.Logf("%s tp%d: mean error %.1f%% over %d rows", c.model, c.tensor, sum/float64(n)*100, n)
		if n < 10 || sum/float64(n) > c.within {
			t.Errorf("%s tp%d: mean error %.1f%% over %d rows, want at most %.0f%% over 10 or more", c.model, c.tensor, sum/float64(n)*100, n, c.within*100)
		}
	}
}

// sharedCSV reads a file of the folder "shared" beside the repository, by column name.
func sharedCSV(t *testing.T, name string) []map[string]string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			t.Fatal("no go.mod above the test's directory")
		}
		root = filepath.Dir(root)
	}
	f, err := os.Open(filepath.Join(filepath.Dir(root), "shared", name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no measurements beside the repository: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil || len(lines) == 0 {
		t.Fatalf("reading %s: %d lines, %v", name, len(lines), err)
	}
	var rows []map[string]string
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, key := range lines[0] {
			row[key] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
