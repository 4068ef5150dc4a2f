package models

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func TestEnvelope(t *testing.T) {
	e := &Envelope{Models: []string{"qwen3-32b"}, Tensor: Range{2, 8}, Batch: Range{1, 128}, Context: Range{500, 9000}, NewTokens: Range{500, 8192}}
	for _, c := range []struct {
		name    string
		b       Batch
		context int64
		want    bool
	}{
		{"decodes", Batch{Decodes: 10}, 10 * 1000, true},
		{"a larger batch", Batch{Decodes: 129}, 129 * 1000, false},
		{"longer contexts", Batch{Decodes: 10}, 10 * 10_000, false},
		{"a prompt", Batch{Prefills: 1, PrefillTokens: 2000, PrefillContext: 2000}, 0, true},
		{"a few tokens after a long past", Batch{Prefills: 1, PrefillTokens: 400, PrefillContext: 8400}, 0, false},
	} {
		if got := e.Contains(c.b, c.context); got != c.want {
			t.Errorf("%s: inside is %v", c.name, got)
		}
	}
	var none *Envelope
	if none.Contains(Batch{Decodes: 1}, 1000) || none.Covers(&Model{Name: "qwen3-32b"}) {
		t.Error("no measurements cover something")
	}
	p := Profile{Name: "p", Linear: 1, PrefillAttention: 1, DecodeAttention: 1, Communication: 1, Envelope: &Envelope{Batch: Range{5, 4}}}
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "envelope.batch is 5 to 4") {
		t.Errorf("got %v", err)
	}
}

// What a deployment has that nobody measured, with the shipped profiles.
func TestUnmeasured(t *testing.T) {
	d := func(model, gpu, engine string, tensor int) Deployment {
		return deploymentOf(t, model, gpu, Deployment{Engine: engine, Parallelism: Parallelism{Tensor: tensor}})
	}
	for _, c := range []struct {
		profile string
		d       Deployment
		want    string
	}{
		{"h100-vllm", d("qwen3-32b", "h100-sxm", "", 2), ""},
		{"h100-vllm", d("llama-3.3-70b", "h100-sxm", "", 8), ""}, // the architecture of llama-3.1-70b
		{"h100-vllm", d("qwen3-14b", "h100-sxm", "", 2), "model qwen3-14b"},
		{"h100-vllm", d("qwen3-32b", "h200-sxm", "trtllm", 16), "GPU h200-sxm, engine trtllm, tensor parallelism 16"},
		{"h100-sglang", d("qwen3-32b", "h100-sxm", "sglang", 1), "tensor parallelism 1"},
		{"h100-sglang", d("llama-3.1-70b", "h100-sxm", "vllm", 4), "model llama-3.1-70b, engine vllm"},
		{"physical", d("qwen3-32b", "h100-sxm", "", 2), "no envelope"},
	} {
		p, err := LookupProfile(c.profile)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range p.Unmeasured(&c.d) {
			got = append(got, u.What)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s on %s, %s: %q, want %q", c.profile, c.d.Model.Name, c.d.GPU.Name, text, c.want)
		}
	}
}

// A measure that names no GPU or engine says nothing against another.
func TestUnmeasuredWithoutProvenance(t *testing.T) {
	p := &Profile{Envelope: &Envelope{Models: []string{"qwen3-32b"}, Tensor: Range{1, 8}}, Fitted: []Provenance{{Source: "mine"}}}
	d := deploymentOf(t, "qwen3-32b", "b200-sxm", Deployment{})
	if got := p.Unmeasured(&d); got != nil {
		t.Errorf("got %v", got)
	}
}

// A model of its own that was held out has its error; another that of its kind, by rows; then that of all.
func TestHeldOut(t *testing.T) {
	held := func(data string, rows int, mean float64) FitError {
		return FitError{Data: data, Measure: "tpot", Rows: rows, Mean: mean, HeldOut: true}
	}
	dense := []FitError{held("model Qwen3-32B", 30, 0.10), held("model Yi-34B", 10, 0.02), held("tensor tp1", 100, 0.5),
		{Data: "model qwen3-8b", Measure: "tpot", Rows: 9, Mean: 0.9}, {Data: "model Yi-34B", Measure: "ttft", Rows: 9, Mean: 0.7, HeldOut: true}}
	for _, c := range []struct {
		name, model string
		errors      []FitError
		want        float64
	}{
		{"itself", "qwen3-32b", dense, 0.10},
		{"its kind: (30 x 10 % + 10 x 2 %) / 40", "qwen3-14b", append(slices.Clone(dense), held("model gpt-oss-120b", 5, 0.5)), 0.08},
		{"experts", "deepseek-v3", append(slices.Clone(dense), held("model gpt-oss-120b", 5, 0.5)), 0.5},
		{"all", "deepseek-v3", dense, 0.08},
		{"nothing held out", "qwen3-8b", dense[3:4], 0},
	} {
		m, err := Lookup(c.model)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&Profile{Errors: c.errors}).HeldOut("tpot", m); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%s: %g, want %g", c.name, got, c.want)
		}
	}
}

// What calibration writes can be read back, however many errors it lists.
func TestShippedProfilesAsFiles(t *testing.T) {
	for _, name := range Profiles() {
		p, err := LookupProfile(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "profile.yaml")
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
		again, err := LookupProfile(path)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%+v", again.Coefficients()) != fmt.Sprintf("%+v", p.Coefficients()) || len(again.Errors) != len(p.Errors) {
			t.Errorf("%s is another when read back", name)
		}
	}
}

// deploymentOf looks up model and GPU.
func deploymentOf(t *testing.T, model, gpu string, d Deployment) Deployment {
	t.Helper()
	var err error
	if d.Model, err = Lookup(model); err != nil {
		t.Fatal(err)
	}
	if d.GPU, err = LookupGPU(gpu); err != nil {
		t.Fatal(err)
	}
	return d
}
