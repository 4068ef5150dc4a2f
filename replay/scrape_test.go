package replay

import (
	"math"
	"strings"
	"testing"
)

// FuzzParseMetrics: no text makes the reader of metrics fail, and what it reads is finite.
func FuzzParseMetrics(f *testing.F) {
	for _, seed := range []string{
		"vllm:prompt_tokens_total 5\n", "vllm:prompt_tokens{a=\"}\"} 1e3 17\r\n", "# TYPE x counter\nsglang:token_usage NaN", "vllm:num_requests_running{ 1",
		"DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 50\nDCGM_FI_DEV_GPU_UTIL{gpu=\"1\"} 70\n", "}{ 1", "vllm:prompt_tokens_total", "vllm:prompt_tokens_total +Inf",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "e3") || strings.Contains(text, "E3") { // sums of huge values may overflow
			return
		}
		s := parseMetrics([]byte(text))
		for i, v := range s {
			if math.IsInf(v, 0) {
				t.Errorf("figure %d is infinite", i)
			}
		}
		sumUp("u", []reading{{sample: s}, {sample: s}})
	})
}
