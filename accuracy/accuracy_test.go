package accuracy

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// groundTruth is the folder of published measurements beside the repository.
func groundTruth(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for !exists(filepath.Join(dir, "go.mod")) {
		if dir = filepath.Dir(dir); dir == "/" {
			t.Fatal("no go.mod above the test")
		}
	}
	truth := filepath.Join(dir, "..", "shared", "ground-truth")
	if !exists(truth) {
		t.Skip("published measurements are not there: ../shared/ground-truth")
	}
	return truth
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestExplore(t *testing.T) {
	cases, err := Serving(filepath.Join(groundTruth(t), "aic-silicon-serving/calibrate/h100_vllm_sglang_agg.csv"))
	if err != nil {
		t.Fatal(err)
	}
	var vllm []*Case
	for _, c := range cases {
		if c.Deployment.Engine.Kind == "vllm" && c.Apart == "" {
			vllm = append(vllm, c)
		}
	}
	out, err := Run(context.Background(), vllm, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range out {
		t.Logf("%-55s ttft %8.1f %8.1f %+6.1f%%  tpot %6.2f %6.2f %+6.1f%% thr %+6.1f%%", o.Case.Name, o.Part.Measured[TTFT], o.Predicted[TTFT], 100*o.Error(TTFT),
			o.Part.Measured[TPOT], o.Predicted[TPOT], 100*o.Error(TPOT), 100*o.Error(Throughput))
	}
	WriteTable(os.Stdout, "model", GroupBy(out, func(o *Outcome) string { return o.Case.Deployment.Model }))
}
