package accuracy

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

// groundTruth is the folder of published measurements beside the repository.
func groundTruth(t testing.TB) string {
	t.Helper()
	truth := filepath.Join(root(t), "..", "shared", "ground-truth")
	if !exists(truth) {
		t.Skip("published measurements are not there: ../shared/ground-truth")
	}
	return truth
}

// root is the repository's folder.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for !exists(filepath.Join(dir, "go.mod")) {
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// write makes a file in a fresh folder and returns its path.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Predicted 110 and 80 of 100 are off by +10 % and -20 %; a third outcome without a measurement does not count.
func TestScores(t *testing.T) {
	c := new(Case)
	outcome := func(predicted, measured float64) Outcome {
		return Outcome{Case: c, Part: &Part{Measured: Figures{TPOT: measured}}, Predicted: Figures{TPOT: predicted}}
	}
	got := Scores([]Outcome{outcome(110, 100), outcome(80, 100), outcome(80, 0)}, TPOT)
	want := Score{Rows: 2, Mean: 0.15, Median: 0.15, P90: 0.19, Bias: -0.05}
	for _, f := range [][2]float64{{got.Mean, want.Mean}, {got.Median, want.Median}, {got.P90, want.P90}, {got.Bias, want.Bias}} {
		if math.Abs(f[0]-f[1]) > 1e-12 || got.Rows != want.Rows {
			t.Errorf("scores are %+v, want %+v", got, want)
		}
	}
}

const servingHead = "id,silicon_data_source,backend,backend_version,model_path,system,precision,gemm_quant_mode,mode,isl,osl,batch_size,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms\n"

func TestServing(t *testing.T) {
	cases, err := Serving(write(t, "serving.csv", servingHead+
		"a,source_file=2026-04-06.csv,vllm,0.18.0,org/Llama-3.1-70B,h100_sxm,fp8,fp8,agg,1000,500,4,2,1,1,2,1,120.5,17.25\n"+
		"b,db-dump/2026-04-27,vllm,,org/Llama-3.1-70B,h100_sxm,fp8,fp8,agg,1000,500,4,2,1,1,2,1,120.5001,17.25\n"+ // the same in another dump
		"c,source_file=x.csv,sglang,0.5.1.post1,Qwen/Qwen3-32B,h100_sxm,,,agg,1000,500,16,2,1,,1,1,9000,17.25\n"+
		"d,source_file=x.csv,vllm,0.18.0,org/Llama-3.1-70B,h100_sxm,fp8,fp8,disagg,1000,500,4,2,1,1,2,1,120.5,17.25\n"+
		"e,source_file=2026-04-06.csv,vllm,0.18.0,org/Llama-3.1-70B,h100_sxm,fp8,fp8,agg,1000,500,4,2,1,1,2,1,100,12\n"+ // the first again, much faster
		"f,source_file=x.csv,vllm,0.18.0,org/Llama-3.1-70B,h100_sxm,,,agg,1000,500,4,1,1,1,1,1,120.5,17.25\n"+
		"g,source_file=x.csv,vllm,0.18.0,org/Unheard-7B,h100_sxm,,,agg,1000,500,4,1,1,1,1,1,120.5,17.25\n"))
	if err != nil {
		t.Fatal(err)
	}
	var skips []string
	for _, c := range cases {
		skips = append(skips, c.Skip)
	}
	if want := []string{"", "", skipDisaggregated, "", skipLayout, skipModel}; !slices.Equal(skips, want) {
		t.Fatalf("cases are skipped as %q, want %q", skips, want)
	}
	c := cases[0]
	d := &c.Deployment
	if d.Model != "llama-3.1-70b" || d.DType.Weights != "fp8" || d.GPU != "h100-sxm" || d.Parallelism.Tensor != 2 ||
		d.Engine.MaxNumSeqs != 4 || d.Load.Concurrency != 4 || d.Engine.PrefixCaching || c.Queued {
		t.Errorf("the first row's deployment is %+v", d)
	}
	if c.Apart != "" || cases[3].Apart == "" {
		t.Errorf("of two runs of one server, 17.25 and 12 ms a token, apart are %q and %q; want the second alone", c.Apart, cases[3].Apart)
	}
	if c.Source != inferenceX || cases[1].Source != nvidia {
		t.Errorf("sources are %s and %s", c.Source, cases[1].Source)
	}
	// Outputs are 400 to 500 tokens, 450 in the mean: a client makes 450 tokens in 120.5 + 449 · 17.25 ms = 7.866 s.
	if got, want := c.Parts[0].Measured[Throughput], 450/7.86575; math.Abs(got-want) > 1e-3 {
		t.Errorf("throughput of a client is %.4f tokens/s, want %.4f", got, want)
	}
	work, err := c.load()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(work.Calls); n != 40 {
		t.Errorf("%d requests, want 10 a client", n)
	}
	for i := range work.Calls {
		if q := &work.Calls[i]; q.Input < 800 || q.Input > 1000 || q.Output < 400 || q.Output > 500 {
			t.Fatalf("request of %d + %d tokens, want 800 to 1000 + 400 to 500", q.Input, q.Output)
		}
	}
	if !cases[1].Queued {
		t.Error("a mean TTFT of 9 s is not marked as waiting for room")
	}
}

// What aiconfigurator's columns make of InferenceX's servers, and what they were.
func TestInferenceXLayout(t *testing.T) {
	for _, test := range []struct {
		tensor, data, expertTensor, expert int // columns
		want                               sim.Parallelism
	}{
		{8, 1, 8, 1, sim.Parallelism{Tensor: 8, Data: 1, Expert: 1}},
		{4, 1, 1, 4, sim.Parallelism{Tensor: 4, Data: 1, Expert: 4}},
		{64, 1, 8, 8, sim.Parallelism{Tensor: 8, Data: 1, Expert: 8}},
		{1, 64, 8, 8, sim.Parallelism{Tensor: 1, Data: 8, Expert: 8}},
		{1, 8, 1, 8, sim.Parallelism{Tensor: 1, Data: 8, Expert: 8}},
		{4, 4, 1, 16, sim.Parallelism{Tensor: 1, Data: 4, Expert: 4}},
	} {
		given := sim.Parallelism{Tensor: test.tensor, Data: test.data, Expert: test.expert}
		if got := inferenceXLayout(given, test.expertTensor); got != test.want {
			t.Errorf("%+v with moe_tp %d is %+v, want %+v", given, test.expertTensor, got, test.want)
		}
	}
}

func TestServingErrors(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"no header", "", "reading the header"},
		{"a column is missing", "backend,mode\nvllm,agg\n", `no column "silicon_data_source"`},
		{"a word for a number", servingHead + "a,s,vllm,0.18.0,m,h100_sxm,,,agg,many,500,4,2,1,1,2,1,120.5,17.25\n", `serving.csv:2: isl is "many"`},
		{"a negative time", servingHead + "a,s,vllm,0.18.0,m,h100_sxm,,,agg,1000,500,4,2,1,1,2,1,-1,17.25\n", `silicon_ttft_ms is "-1"`},
		{"not a number", servingHead + "a,s,vllm,0.18.0,m,h100_sxm,,,agg,1000,500,4,2,1,1,2,1,NaN,17.25\n", `silicon_ttft_ms is "NaN"`},
		{"too many clients", servingHead + "a,s,vllm,0.18.0,m,h100_sxm,,,agg,1000,500,9000,1,1,2,1,1,1,17.25\n", "18000 clients"},
		{"too few cells", servingHead + "a,s\n", "wrong number of fields"},
	} {
		if _, err := Serving(write(t, "serving.csv", test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
}

// FuzzServing: no table makes the reader panic, and what it reads it can build or refuse.
func FuzzServing(f *testing.F) {
	f.Add(servingHead + "a,source_file=2026-04-06.csv,vllm,0.18.0,org/Llama-3.1-70B,h100_sxm,fp8,fp8,agg,1000,500,4,2,1,1,2,1,120.5,17.25\n")
	f.Add(servingHead + "a,s,sglang,x,Qwen/Qwen3-32B,h100_sxm,,,agg,1,1,1,1,1,2,1,1,0,1e99\n")
	f.Fuzz(func(t *testing.T, text string) {
		cases, err := Serving(write(t, "serving.csv", text))
		if err != nil {
			return
		}
		for _, c := range cases {
			_, _ = c.Plan()
		}
	})
}

// modelled is a case whose measurements are the simulator's own under a profile.
func modelled(t testing.TB, model string, tensor, clients int, truth *models.Profile) *Case {
	t.Helper()
	d := sim.Default()
	d.Model, d.Parallelism.Tensor = model, tensor
	d.Engine.PrefixCaching = false
	d.Load.Mode, d.Load.Concurrency = "concurrency", clients
	c := &Case{Source: "made", Name: model, Deployment: d, Parts: []Part{{}}, capture: func() (*trace.Capture, error) {
		return synth.Generate("plain", synth.Options{Programs: 4 * clients, Seed: 1,
			Set: []string{"rate=0", "output=50:60", "input=100:2000"}})
	}}
	figures, err := c.Predict(context.Background(), truth)
	if err != nil {
		t.Fatal(err)
	}
	c.Parts[0].Measured = figures[0]
	return c
}

// profile is the kernels alone with some time of the host.
func profile(layer, request, admission float64) models.Profile {
	return models.Profile{Name: "made", Linear: 1, PrefillAttention: 1, DecodeAttention: 1, Communication: 1,
		LayerUs: layer, RequestUs: request, AdmissionUs: admission}
}

// Measurements that a profile made give that profile back.
func TestFitFindsWhatMadeTheData(t *testing.T) {
	truth := profile(30, 20, 9000)
	var cases []*Case
	for _, model := range []string{"llama-3.1-8b", "llama-3.1-70b"} {
		for _, clients := range []int{2, 16, 64} {
			cases = append(cases, modelled(t, model, 4, clients, &truth))
		}
	}
	f := &Fitter{Cases: cases, Start: profile(10, 0, 2000), Free: []string{"layer_us", "request_us", "admission_us"}, Pull: 0.1, TTFT: 0.3}
	trials := 0
	f.Trial = func() { trials++ }
	fit, err := f.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if trials < len(f.Free) { // each coefficient is moved at least once
		t.Errorf("told of %d simulations, want at least %d", trials, len(f.Free))
	}
	for _, p := range []struct {
		key       string
		got, want float64
	}{
		{"layer_us", fit.Profile.LayerUs, 30}, {"request_us", fit.Profile.RequestUs, 20}, {"admission_us", fit.Profile.AdmissionUs, 9000},
	} {
		if math.Abs(p.got/p.want-1) > 0.1 {
			t.Errorf("%s is %.4g, want %.4g within 10 %%", p.key, p.got, p.want)
		}
	}
	if s := Scores(fit.Outcomes, TPOT); s.Mean > 0.005 {
		t.Errorf("mean error of TPOT is %.4f, want below 0.005", s.Mean)
	}
	if fit.Condition < 1 || fit.Condition > 1e3 {
		t.Errorf("condition number is %g", fit.Condition)
	}
}

// What one tensor-parallel size leaves to say is enough to predict the other, when both come from the same profile.
func TestLeaveOutFindsWhatMadeTheData(t *testing.T) {
	truth := profile(30, 20, 9000)
	var cases []*Case
	for _, tensor := range []int{2, 8} {
		for _, clients := range []int{4, 32} {
			cases = append(cases, modelled(t, "llama-3.1-8b", tensor, clients, &truth))
		}
	}
	f := &Fitter{Cases: cases, Start: profile(25, 15, 8000), Free: []string{"layer_us", "request_us", "admission_us"}, Pull: 0.1, TTFT: 0.3}
	held, err := f.LeaveOut(context.Background(), func(o *Outcome) string {
		return strconv.Itoa(o.Case.Deployment.Parallelism.Tensor)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(held) != 2 || held[0].Name != "2" || len(held[0].Outcomes) != 2 {
		t.Fatalf("held out: %+v", held)
	}
	for _, h := range held {
		if s := Scores(h.Outcomes, TPOT); s.Mean > 0.01 {
			t.Errorf("without tensor %s: mean error of TPOT is %.4f, want below 0.01", h.Name, s.Mean)
		}
	}
	average, p90, err := HostShare(context.Background(), cases, &truth)
	// 32 layers of 30 µs and 20 µs a sequence are most of a step of this model over 8 GPUs, and some of it over 2.
	if err != nil || average < 0.1 || average > p90 || p90 > 0.6 {
		t.Errorf("the host's share is %.3f, p90 %.3f, %v", average, p90, err)
	}
	if none, _, err := HostShare(context.Background(), cases, ptr(profile(0, 0, 0))); err != nil || none != 0 {
		t.Errorf("without host times its share is %g, %v", none, err)
	}
}

func ptr(p models.Profile) *models.Profile { return &p }

// With one model a time per layer and a time per step are the same thing; without prompts over the network nothing
// tells a factor on communication, but that has its pull.
func TestFitRefusesWhatTheDataDoNotTell(t *testing.T) {
	truth := profile(30, 0, 9000)
	cases := []*Case{modelled(t, "llama-3.1-8b", 1, 2, &truth), modelled(t, "llama-3.1-8b", 1, 32, &truth)}
	f := &Fitter{Cases: cases, Start: profile(10, 0, 9000), Free: []string{"communication", "layer_us", "step_us"}, Pull: 0.1, TTFT: 0.3}
	_, err := f.Run(context.Background())
	var unidentified *UnidentifiedError
	if !errors.As(err, &unidentified) || unidentified.Key != "layer_us" || len(unidentified.Others) != 1 || unidentified.Others[0] != "step_us" {
		t.Errorf("error is %v, want one that names layer_us and step_us", err)
	}
	f.Free = []string{"layer_us", "speed"}
	if _, err := f.Run(context.Background()); err == nil || !strings.Contains(err.Error(), `no coefficient "speed"`) {
		t.Errorf("error is %v, want one about the coefficient speed", err)
	}
}
