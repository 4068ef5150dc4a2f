package accuracy

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files makes a folder with files, by their paths.
func files(t testing.TB, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	tokenSweep = "model,hardware,tensor_parallel,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time\n" +
		"llama2-70b,h100-80gb,4,512,2,128,80,30,4000\n" +
		"llama2-70b,h100-80gb,4,512,2,128,90,32,4200\n" + // again
		"llama2-70b,h100-80gb,8,512,2,128,50,20,2600\n"
	latencySweep = "Hardware,Num of Hardware,Framework,Model,Input Output Length,Batch Size,Latency,Throughput\n" +
		"Nvidia H100 GPU,1,vLLM,mistralai/Mistral-7B-v0.1,128,16,1.5,2700\n"
)

// Tables are known by their columns, wherever they lie; what is none is passed over.
func TestRead(t *testing.T) {
	dir := files(t, map[string]string{
		"a/held-out/sweep.csv": tokenSweep,
		"b/latency.csv":        latencySweep,
		"c/serving.csv":        servingHead + "a,x.csv,sglang,0.5,Qwen/Qwen3-32B,h100_sxm,,,agg,1000,500,16,2,1,,1,1,900,17.25\n",
		"d/other.csv":          "x,y\n1,2\n",
		"README.md":            "silicon_ttft_ms",
	})
	cases, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cases {
		got = append(got, c.Source+": "+c.Name)
	}
	want := "Splitwise: llama-2-70b tp4 512/128 b2, Splitwise: llama-2-70b tp8 512/128 b2, Argonne: mistralai/Mistral-7B-v0.1 tp1 128/128 b16, " +
		"NVIDIA: h100-sxm sglang 0.5 Qwen/Qwen3-32B  tp2 dp1 ep1 1000/500 c16"
	if strings.Join(got, ", ") != want {
		t.Errorf("read %s\nwant %s", strings.Join(got, ", "), want)
	}
	if _, err := Read(filepath.Join(dir, "absent")); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("error is %v, want one that names the folder", err)
	}
}

// Two rows of one batch are averaged: 80 and 90 ms to the first token. All prompts are computed in one step.
func TestTokenSweep(t *testing.T) {
	cases, err := TokenSweep(write(t, "sweep.csv", tokenSweep))
	if err != nil {
		t.Fatal(err)
	}
	c := cases[0]
	if m := c.Parts[0].Measured; m[TTFT] != 85 || m[TPOT] != 31 || m[E2E] != 0 || c.Apart == "" || c.Skip != "" {
		t.Errorf("measured %v, apart %q, skip %q", m, c.Apart, c.Skip)
	}
	res, err := c.simulate(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Requests) != 2 || res.Requests[0].FirstToken != res.Requests[1].FirstToken {
		t.Errorf("%d requests, want 2 whose first tokens come together", len(res.Requests))
	}
}

// The latency of a batch is the time of each of its requests.
func TestLatencySweep(t *testing.T) {
	cases, err := LatencySweep(write(t, "sweep.csv", latencySweep))
	if err != nil {
		t.Fatal(err)
	}
	c := cases[0]
	if m := c.Parts[0].Measured; m[E2E] != 1500 || m[TTFT] != 0 || c.Deployment.Model != "mistral-7b" || c.Deployment.GPU != "h100-sxm" {
		t.Errorf("measured %v on %+v", m, c.Deployment)
	}
	if _, err := LatencySweep(write(t, "sweep.csv", strings.Replace(latencySweep, ",16,", ",0,", 1))); err == nil || !strings.Contains(err.Error(), `sweep.csv:2: Batch Size is "0"`) {
		t.Errorf("error is %v, want one about the batch size", err)
	}
}

// FuzzRead: no table makes the readers of sweeps panic.
func FuzzRead(f *testing.F) {
	f.Add(tokenSweep)
	f.Add(latencySweep)
	f.Fuzz(func(t *testing.T, text string) {
		cases, err := Read(write(t, "table.csv", text))
		if err != nil {
			return
		}
		for _, c := range cases {
			_, _ = c.Plan()
		}
	})
}

// A run that workloads.json lacks is read from its own files. Ten requests a second for 400 s, of 400 tokens each, are too many
// for two at a time: clients give up after 300 s.
func TestOverload(t *testing.T) {
	dir := openLoop(t)
	folder := filepath.Join(dir, "lifecycle", "70-too-much")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"exp-config.yaml": "model: org/Llama-3.1-8B\ntensor_parallelism: 1\nmax_num_seqs: 2\nmax_num_batched_tokens: 2048\napp: inference-perf\n",
		"profile.yaml": `{"data":{"shared_prefix":{"system_prompt_len":100,"question_len":60,"output_len":400},"type":"shared_prefix"},` +
			`"load":{"stages":[{"duration":400,"rate":10}]}}`,
		"summary_lifecycle_metrics.json": `{"failures":{"count":3000},"successes":{"count":1000,"latency":{"request_latency":{"mean":160}}}}`,
		"stage_0_lifecycle_metrics.json": `{}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cases, err := OpenLoop(dir, Repeating)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 2 {
		t.Fatalf("%d runs, want that of workloads.json and the other", len(cases))
	}
	c := cases[1]
	if c.Apart != overload || c.Deployment.Engine.KVBlocks != "5000" || c.Parts[0].Measured[Failed] != 0.75 {
		t.Errorf("apart %q, %s blocks, %v failed; want the blocks of the other run", c.Apart, c.Deployment.Engine.KVBlocks, c.Parts[0].Measured[Failed])
	}
	figures, err := c.Predict(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// Two sequences at some 7 ms a token are a request each 1.4 s. The n-th has waited 1.3 n s when it begins; those after the
	// 230th give up, waiting or running.
	if got := figures[0][Failed]; math.Abs(got-0.94) > 0.02 {
		t.Errorf("%.3f of the requests failed, want about 0.94", got)
	}
}

// Each table has the groups that belong to it; what is apart, queued or skipped is in none of the others.
func TestSummary(t *testing.T) {
	cases, err := Serving(write(t, "serving.csv", servingHead+
		"a,x.csv,sglang,0.5,Qwen/Qwen3-32B,h100_sxm,,,agg,100,20,2,2,1,,1,1,90,17\n"+
		"b,x.csv,sglang,0.5,Qwen/Qwen3-32B,h200_sxm,,,agg,100,20,2,2,1,,1,1,90,17\n"+
		"c,x.csv,sglang,0.5,Qwen/Qwen3-32B,h100_sxm,,,agg,100,20,4,2,1,,1,1,9000,17\n"+
		"d,x.csv,sglang,0.5,Qwen/Qwen3-32B,h100_sxm,,,disagg,100,20,4,2,1,,1,1,90,17\n"))
	if err != nil {
		t.Fatal(err)
	}
	m := &Measured{Skipped: cases[3:]}
	if m.Outcomes, err = Run(context.Background(), cases, nil); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := Summary(&text, m, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| sglang, qwen3-32b, NVIDIA | 1 |", "| h200-sxm, sglang, qwen3-32b, NVIDIA | 1 |", "| h100-sxm, sglang, qwen3-32b | 1 |",
		"| disaggregated prefill, NVIDIA | 1 |", "| sglang, tp2 | 1 |"} {
		if strings.Count(text.String(), want) != 1 {
			t.Errorf("%q is not once in\n%s", want, text.String())
		}
	}
}
