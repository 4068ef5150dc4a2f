package models

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCatalogues(t *testing.T) {
	for kind, load := range map[string]func() error{
		"models":   func() error { _, err := modelCatalogue(); return err },
		"gpus":     func() error { _, err := gpuCatalogue(); return err },
		"profiles": func() error { _, err := profileCatalogue(); return err },
	} {
		if err := load(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	seen := map[string]string{}
	list, _ := modelCatalogue()
	for _, m := range list {
		if m.Source == "" || m.MaxContext == 0 {
			t.Errorf("%s has no source or no max_context", m.Name)
		}
		for _, name := range modelNames(m) {
			if other, ok := seen[name]; ok || name != strings.ToLower(name) {
				t.Errorf("%s: name %q is not lower case or also names %s", m.Name, name, other)
			}
			seen[name] = m.Name
		}
	}
	profiles := Profiles()
	slices.Sort(profiles)
	if unique := slices.Compact(slices.Clone(profiles)); len(unique) != len(profiles) {
		t.Errorf("profiles are %q: one is in profiles.yaml and in a file of profiles/", profiles)
	}
	if got := Models()[0]; got != "llama-3.1-8b" {
		t.Errorf("the first model is %s, want the catalogue's order", got)
	}
}

func TestLookup(t *testing.T) {
	for given, want := range map[string]string{
		"qwen3-14b":                        "qwen3-14b",
		"Qwen/Qwen3-14B":                   "qwen3-14b",
		"meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
		"MiniMaxAI/MiniMax-M2.5":           "minimax-m2.5",
	} {
		if got := lookup(t, given).Name; got != want {
			t.Errorf("Lookup(%q) is %s, want %s", given, got, want)
		}
	}
	g, err := LookupGPU("H100")
	if err != nil || g.Name != "h100-sxm" {
		t.Errorf("LookupGPU(H100) = %v, %v", g, err)
	}
}

func TestUnknownNames(t *testing.T) {
	_, modelErr := Lookup("qwen3-41b")
	_, missingErr := Lookup("no/such/config.json")
	_, gpuErr := LookupGPU("h20-sxm")
	_, profileErr := LookupProfile("h100-vlm")
	for _, c := range []struct {
		err  error
		want string
	}{
		{modelErr, `unknown model "qwen3-41b"; the nearest known are qwen3-8b, qwen3-14b, qwen3-32b (want a catalogue name or a path to a config.json)`},
		{missingErr, "reading a model's config.json: open no/such/config.json: no such file or directory"},
		{gpuErr, `unknown gpu "h20-sxm"; the nearest known are h200-sxm, h100-sxm, b200-sxm`},
		{profileErr, `unknown cost profile "h100-vlm"; the nearest known are h100-vllm, h100-trtllm, h100-sglang (want a catalogue name or a path to a .yaml file)`},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}

func TestProfileFile(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"name: mine\nlinear: 1\nlayer_us: 50\n", ""},
		{"name: mine\nlinaer: 1\n", "linaer"},
		{"name: mine\nlinear: -1\n", "cost profile mine: linear is -1, want 0.5 to 2"},
		{"name: mine\nlinear: .nan\n", "linear is NaN"},
		{strings.Repeat("#", 1<<16+1), "has more than 65536 bytes"},
		{strings.Repeat("[", 501), "more than 500 brackets"},
	} {
		path := filepath.Join(t.TempDir(), "profile.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		p, err := LookupProfile(path)
		switch {
		case c.want == "" && (err != nil || p.LayerUs != 50):
			t.Errorf("%q: %+v, %v", c.text, p, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)):
			t.Errorf("%q: error %v, want one with the path and %q", c.text, err, c.want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"h100", "h200", 1}, {"kitten", "sitting", 3}} {
		if got := EditDistance(c.a, c.b); got != c.want {
			t.Errorf("EditDistance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// Models with experts get a profile of their own where the engine has one.
func TestDefaultProfile(t *testing.T) {
	for _, c := range []struct{ engine, model, want string }{
		{EngineVLLM, "qwen3-32b", "h100-vllm"},
		{EngineSGLang, "qwen3-32b", "h100-sglang"},
		{EngineSGLang, "qwen3-235b-a22b", "h100-sglang-moe"},
		{EngineTRTLLM, "qwen3-32b", "h100-trtllm"},
		{EngineTRTLLM, "gpt-oss-120b", "h100-trtllm-moe"},
	} {
		d := Deployment{Model: lookup(t, c.model), GPU: gpu(t, "h100-sxm"), Engine: c.engine}
		if got := d.DefaultProfile(); got != c.want {
			t.Errorf("%s with %s takes profile %s, want %s", c.engine, c.model, got, c.want)
		} else if _, err := LookupProfile(got); err != nil {
			t.Error(err)
		}
	}
}
