package models

import "testing"

func TestLookupCheckpoint(t *testing.T) {
	for _, c := range []struct {
		name, model string
		weights     DType
	}{
		{"Qwen/Qwen3-14B", "qwen3-14b", ""},
		{"Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b", FP8},
		{"RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b", FP8},
		{"RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", INT4},
		{"nvidia/Llama-3.1-8B-Instruct-NVFP4", "llama-3.1-8b", NVFP4},
	} {
		m, weights, err := LookupCheckpoint(c.name)
		if err != nil || m.Name != c.model || weights != c.weights {
			t.Errorf("%s: %v in %q (%v), want %s in %q", c.name, m, weights, err, c.model, c.weights)
		}
	}
	if _, _, err := LookupCheckpoint("Qwen/Qwen4-14B-FP8"); err == nil {
		t.Error("found a model that is not in the catalogue")
	}
}
