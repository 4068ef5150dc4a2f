package accuracy

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace/report"
)

// openLoop writes a run of two stages: 150 requests at 10/s, then 20 at 2/s.
func openLoop(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"workloads.json": `{"experiments": [{"id": "7", "model": "org/Llama-3.1-8B", "tp": 1, "max_num_seqs": 128, "max_num_batched_tokens": 2048,
			"total_kv_blocks": 5000, "workload": {"inference_perf": {"shared_prefix": {"system_prompt_len": 100, "question_len": 60, "output_len": 11},
			"stages": [{"duration": 15, "rate": 10}, {"duration": 10, "rate": 2}]}}}]}`,
		"experiments.csv": "exp_id,slug,precision,stage,ttft_mean_ms,ttft_p99_ms,e2e_mean_ms,e2e_p99_ms\n" +
			"7,seven,FP16,-1,20,30,120,130\n7,seven,FP16,1,21,31,121,131\n8,unknown,FP16,0,1,1,1,1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpenLoop(t *testing.T) {
	for _, test := range []struct {
		reading Reading
		hits    []int32 // of requests 0, 10, 99 and 100
	}{
		// Requests 0 and 10 have one system prompt, of which 6 blocks of 16 tokens are full. Request 100 repeats request 0,
		// whose 160 tokens are 10 blocks; the last token is always computed, and its block with it.
		{Repeating, []int32{0, 96, 96, 144}},
		{Fresh, []int32{0, 96, 96, 96}},
	} {
		cases, err := OpenLoop(openLoop(t), test.reading)
		if err != nil {
			t.Fatal(err)
		}
		c := cases[0]
		if len(cases) != 1 || c.Name != "seven" || len(c.Parts) != 3 {
			t.Fatalf("read %d cases, the first %q with %d parts, want 1, seven and 3", len(cases), c.Name, len(c.Parts))
		}
		// 11 tokens, the first of them after 20 ms: (120 − 20) / 10.
		if m := c.Parts[0].Measured; m[TTFT] != 20 || m[TPOT] != 10 || m[E2E] != 120 || m[E2EP99] != 130 {
			t.Errorf("the whole run's figures are %v", m)
		}
		res, err := c.simulate(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(res.Requests); n != 170 {
			t.Fatalf("%d requests, want 15 s · 10/s + 10 s · 2/s", n)
		}
		for i, n := range []int{0, 10, 99, 100} {
			if got := res.Requests[n].Hit; got != test.hits[i] {
				t.Errorf("reading %d: request %d found %d tokens cached, want %d", test.reading, n, got, test.hits[i])
			}
		}
		stage := c.Parts[2]
		if got, want := res.Requests[150].Arrival, stage.From; got != want || res.Requests[151].Arrival-got != 500*time.Millisecond {
			t.Errorf("the second stage begins at %v, want %v, and goes on at 2/s", got, want)
		}
	}
}

func TestOpenLoopErrors(t *testing.T) {
	for _, test := range []struct{ file, text, want string }{
		{"workloads.json", "{", "workloads.json"},
		{"workloads.json", `{"experiments": [{"id": "7"}]}`, `run "7": shared_prefix wants lengths`},
		{"workloads.json", `{"experiments": [{"id": "7", "workload": {"inference_perf": {"shared_prefix": {"question_len": 1, "output_len": 1}, "stages": [{"rate": 1e9, "duration": 1}]}}}]}`, "at most"},
		{"experiments.csv", "exp_id,slug,precision,stage,ttft_mean_ms,ttft_p99_ms,e2e_mean_ms,e2e_p99_ms\n7,seven,FP16,5,1,1,1,1\n", `experiments.csv:2: stage is "5"`},
	} {
		dir := openLoop(t)
		if err := os.WriteFile(filepath.Join(dir, test.file), []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenLoop(dir, Repeating); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error is %v, want one with %q", err, test.want)
		}
	}
}

// A closed loop of one client on a server that takes 10 ms for a prompt and 5 ms for a token.
func TestPartSum(t *testing.T) {
	ms := time.Millisecond
	requests := []report.Request{
		{Status: report.Completed, Arrival: 0, FirstToken: 10 * ms, End: 30 * ms, Output: 5},
		{Status: report.Completed, Arrival: 30 * ms, FirstToken: 50 * ms, End: 80 * ms, Output: 3},
		{Status: report.Failed, Arrival: 31 * ms, FirstToken: report.None, End: 90 * ms, Output: 3},
		{Status: report.Completed, Arrival: 100 * ms, FirstToken: 150 * ms, End: 150 * ms, Output: 1}, // outside
	}
	got := (&Part{To: 100 * ms}).sum(requests)
	// TTFT (10 + 20)/2; TPOT (20/4 + 30/2)/2; E2E (30 + 50)/2; 4 tokens in 15 + 3 · 10 ms.
	if got[TTFT] != 15 || got[TPOT] != 10 || got[E2E] != 40 || got[Throughput] != 4e3/45 {
		t.Errorf("figures are %v", got)
	}
}
