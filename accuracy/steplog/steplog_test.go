package steplog

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func read(t testing.TB, text string) *Log {
	t.Helper()
	log, err := Read(context.Background(), []string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// step is a step of which the log tells all.
func step(format string, line, prefills, prefillTokens int, prefillContext int64, decodes int, decodeContext int64, time time.Duration) Step {
	s := unknown(format)
	s.File, s.Line = "-", line
	s.Prefills, s.PrefillTokens, s.PrefillContext, s.Decodes, s.DecodeContext, s.Time = prefills, prefillTokens, prefillContext, decodes, decodeContext, time
	return s
}

const ms = time.Millisecond

func TestFormats(t *testing.T) {
	withPairs := step("plain", 2, 2, 300, 1300, 4, 8000, 12_500*time.Microsecond)
	withPairs.PrefillPairs = 2 * 90_000
	withUse := step("vllm", 1, 0, 0, Unknown, 20, Unknown, 10_950*time.Microsecond)
	withUse.CacheUse = 0.125
	const trtllm = "[04/28/2026-09:56:44] [TRT-LLM] [I] iter = %, global_rank = 0, rank = 0, num_scheduled_requests = "
	for _, test := range []struct {
		name, text    string
		steps         []Step
		untimed, idle int
		skipped, lost int
	}{
		{name: "plain CSV, in any order of columns, with empty cells",
			text: "step_us,prefill_tokens,prefills,prefill_context,prefill_pairs,decodes,decode_context,gpu\n" +
				"12500,300,2,1300,90000,4,8000,0\n8000,0,0,,,8,,0\n",
			steps: []Step{withPairs, step("plain", 3, 0, 0, Unknown, 8, Unknown, 8*ms)}, skipped: 1},
		{name: "plain JSON lines",
			text:  `{"prefill_tokens": 0, "prefills": 0, "decodes": 8, "decode_context": 16000.0, "step_us": 8000}` + "\n{\"hello\": 1}\n",
			steps: []Step{step("plain", 1, 0, 0, Unknown, 8, 16_000, 8*ms)}, skipped: 1},
		{name: "vLLM's iteration details, with the cache's use and without",
			text: "(EngineCore_DP0 pid=1) INFO 12-22 21:44:40 [core.py:349] Iteration(516): 0 context requests, 0 context tokens, 20 generation requests, 20 generation tokens, iteration elapsed time: 10.95 ms, GPU KV cache usage: 12.5%\n" +
				"INFO 12-22 21:44:40 [core.py:349] Iteration(517): 2 context requests, 4096 context tokens, 3 generation requests, 3 generation tokens, iteration elapsed time: 110.00 ms\n" +
				"INFO Iteration(518): 0 context requests, 0 context tokens, 1 generation requests, 1 generation tokens, iteration elapsed time: 0.00 ms\n" +
				"INFO Iteration(519): 0 context requests, 0 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 5.00 ms\n" +
				"INFO Iteration(520): 0 context requests, 0 context tokens, 1 generation requests, 1 generation tokens, iteration elapsed time: 1.0 ms (dummy)\n" +
				"INFO Application startup complete.\n" +
				"INFO Iteration(521): 0 context requests, 0 context tokens, 2 generation requests, 6 generation tokens, iteration elapsed time: 9.00 ms\n",
			steps:   []Step{withUse, step("vllm", 2, 2, 4096, Unknown, 3, Unknown, 110*ms)},
			untimed: 1, idle: 1, skipped: 2, lost: 1},
		{name: "SGLang's decode batches, of which those between which nothing came have a time",
			text: "[2025-02-14 00:42:22 TP0] Prefill batch. #new-seq: 2, #new-token: 500, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0\n" +
				"[2025-02-14 00:42:22 TP0] Decode batch. #running-req: 2, #token: 600, token usage: 0.00, cuda graph: True, gen throughput (token/s): 11.5, #queue-req: 0\n" +
				"[2025-02-14 00:42:23 TP0] Decode batch. #running-req: 2, #token: 680, token usage: 0.00, cuda graph: True, gen throughput (token/s): 200, #queue-req: 0\n" +
				"[2025-02-14 00:42:23 DP1 TP1] Prefill batch. #new-seq: 1, #new-token: 500\n" + // of another rank
				"[2025-02-14 00:42:24 TP0] Decode batch. #running-req: 2, #full token: 760, token usage: 0.00, gen throughput (token/s): 250.0, #queue-req: 0\n" +
				"[2025-02-14 00:42:25 TP0] Decode batch. #running-req: 1, #token: 400, token usage: 0.00, gen throughput (token/s): 190.0, #queue-req: 0\n" + // one ended
				"[2025-02-14 00:42:26 TP0] Prefill batch, #new-seq: 1, #new-token: 50, input throughput (token/s): 2074.38\n" +
				"[2025-02-14 00:42:27 TP0] Decode batch, #running-req: 1, #token: 90, token usage: 0.00, gen throughput (token/s): 90.0, #queue-req: 0\n" +
				"[2025-02-14 00:42:28 TP0] Decode batch. #running-req: 1, #token: 99, token usage: 0.00, accept len: 2.54, gen throughput (token/s): 39.33\n",
			steps:   []Step{step("sglang", 3, 0, 0, Unknown, 2, 640, 10*ms), step("sglang", 5, 0, 0, Unknown, 2, Unknown, 8*ms)},
			untimed: 3, lost: 1},
		{name: "TensorRT-LLM's iteration log, whose device times are of the iteration before",
			text: strings.Replace(trtllm, "%", "7", 1) + "3, kv_cache_util = 0.1, currank_total_requests = 0/1, host_step_time = 99ms, prev_device_step_time = N/A, timestamp = 2026-04-28 09:56:44, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 4, 'cached_kv_tokens': 900}\n" +
				strings.Replace(trtllm, "%", "8", 1) + "1, host_step_time = 99ms, prev_device_step_time = 7.5ms, states = {'num_ctx_requests': 1, 'num_ctx_tokens': 200, 'num_generation_tokens': 0, 'cached_kv_tokens': 1000}\n" +
				strings.Replace(trtllm, "%", "9", 1) + "0, host_step_time = 99ms, prev_device_step_time = 20ms, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 0}\n" +
				strings.Replace(trtllm, "%", "10", 1) + "4, host_step_time = 99ms, prev_device_step_time = 1456.7ms, states = {'num_ctx_requests': 1, 'num_ctx_tokens': 5, 'num_generation_tokens': 3, 'cached_kv_tokens': 77}\n" +
				strings.Replace(trtllm, "%", "12", 1) + "1, host_step_time = 99ms, prev_device_step_time = 8ms, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 1}\n",
			steps:   []Step{step("trtllm", 1, 0, 0, Unknown, 3, 903, 7500*time.Microsecond), step("trtllm", 2, 1, 200, 1200, 0, Unknown, 20*ms)},
			untimed: 2, idle: 1}, // 10 is not followed by 11, and 12 by nothing
		{name: "TensorRT-LLM's iteration log of older versions",
			text: "[04/28/2025-09:56:44] [TRT-LLM] [I] iter = 198, global_rank = 0, rank = 0, currank_total_requests = 0/0, elapsed_time = 0.005s, timestamp = 2025-04-28 09:56:44, num_scheduled_requests: 10, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 16}\n" +
				"[01/16/2026-06:20:17] [TRT-LLM] [RANK 0] [I] iter = 5559, host_step_time = 50.5ms, num_scheduled_requests: 3, states = {'num_ctx_requests': 2, 'num_ctx_tokens': 16384, 'num_generation_tokens': 0}\n",
			steps: []Step{step("trtllm", 1, 0, 0, Unknown, 10, Unknown, 5*ms), step("trtllm", 2, 2, 16_384, Unknown, 1, Unknown, 50_500*time.Microsecond)}},
		{name: "TensorRT-LLM's iteration stats",
			text: `{"iter": 1, "iterLatencyMS": 30, "prevDeviceStepTimeMS": 1, "inflightBatchingStats": {"numContextRequests": 1, "numCtxTokens": 100, "numCtxKvTokens": 50, "numGenRequests": 2, "numGenKvTokens": 3000}}` + "\n" +
				`{"iter": 2, "iterLatencyMS": 30, "prevDeviceStepTimeMS": 15, "inflightBatchingStats": {"numContextRequests": 0, "numCtxTokens": 0, "numGenRequests": 3}}` + "\n" +
				`{"iter": 3, "iterLatencyMS": 30, "schedulerMode": "overlap", "inflightBatchingStats": {"numContextRequests": 0, "numCtxTokens": 0, "numGenRequests": 3}}` + "\n" +
				`{"iter": 4, "iterLatencyMS": 9, "schedulerMode": "non_overlap", "inflightBatchingStats": {"numContextRequests": 0, "numCtxTokens": 0, "numGenRequests": 3}}` + "\n",
			steps:   []Step{step("trtllm", 1, 1, 100, 150, 2, 3000, 15*ms), step("trtllm", 4, 0, 0, Unknown, 3, Unknown, 9*ms)},
			untimed: 1}, // 3 spans two steps; 2 has lost its successor
		{name: "Dynamo's forward-pass metrics, in their envelope and bare",
			text: `{"schema":"dynamo.fpm.trace.v1","observed_at_unix_ms":1,"fpm":{"version":1,"worker_id":"w","dp_rank":0,"counter_id":1,"wall_time":0.02,"scheduled_requests":{"num_prefill_requests":1,"sum_prefill_tokens":64,"var_prefill_length":0.0,"sum_prefill_kv_tokens":1000,"num_decode_requests":4,"sum_decode_kv_tokens":9000,"var_decode_kv_tokens":0.0}}}` + "\n" +
				`{"wall_time":0.008,"scheduled_requests":{"num_decode_requests":4,"sum_decode_kv_tokens":9004}}` + "\n" +
				`{"wall_time":0.0,"scheduled_requests":{"num_decode_requests":0}}` + "\n" +
				`{"wall_time":-1,"scheduled_requests":{"num_decode_requests":4}}` + "\n",
			steps: []Step{step("dynamo", 1, 1, 64, 1064, 4, 9000, 20*ms), step("dynamo", 2, 0, 0, Unknown, 4, 9004, 8*ms)},
			idle:  1, lost: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			log := read(t, test.text)
			if diff := cmp.Diff(test.steps, log.Steps); diff != "" {
				t.Errorf("steps: %s", diff)
			}
			got := [4]int{log.Untimed, log.Idle, log.Read.SkippedRows, log.Read.LostRows}
			if want := [4]int{test.untimed, test.idle, test.skipped, test.lost}; got != want {
				t.Errorf("untimed, idle, skipped, lost are %v, want %v (%v)", got, want, log.Read.Warnings)
			}
		})
	}
}

// Damage is counted and located, and the rest is read.
func TestDamage(t *testing.T) {
	const head = "prefill_tokens,prefills,prefill_context,decodes,decode_context,step_us\n"
	const good = "0,0,,8,16000,8000\n"
	for _, test := range []struct{ row, want string }{
		{"0,0,,8,16000", "5 cells under 6 columns"},
		{"0,0,,eight,16000,8000", `decodes is "eight"`},
		{"0,0,,8.5,16000,8000", "decodes is 8.5, want a whole number"},
		{"0,0,,8,-5,8000", "decode_context is -5"},
		{"0,0,,8,16000,-1", "want at most an hour"},
		{"0,0,,8,16000,NaN", "want at most an hour"},
		{"0,0,,8,16000,1e13", "want at most an hour"},
		{"0,0,,,16000,8000", "want prefill_tokens, prefills, decodes and step_us"},
		{"100,0,,8,16000,8000", "100 prompt tokens of no sequence"},
		{"2,3,,8,16000,8000", "3 sequences with prompt tokens"},
		{"100,1,50,8,16000,8000", "less than the 100 that are computed"},
		{"20000000,1,,8,16000,8000", "20000000 prompt tokens, want 0 to 10000000"},
	} {
		log := read(t, head+good+test.row+"\n"+good)
		if len(log.Steps) != 2 || log.Read.LostRows != 1 {
			t.Errorf("%s: %d steps, %d lost", test.row, len(log.Steps), log.Read.LostRows)
			continue
		}
		if w := log.Read.Warnings[0]; !strings.HasPrefix(w, "-:3: ") || !strings.Contains(w, test.want) || strings.Contains(w, "\n") {
			t.Errorf("%s: warning is %q, want one of line 3 with %q", test.row, w, test.want)
		}
	}
}

func TestReadNothing(t *testing.T) {
	if _, err := Read(context.Background(), []string{"absent.log"}, nil); err == nil || !strings.Contains(err.Error(), "absent.log") {
		t.Errorf("error is %v, want one that names the file", err)
	}
	if log := read(t, "no log of an engine\n"); len(log.Steps) != 0 || log.Read.SkippedRows != 1 {
		t.Errorf("of prose %d steps and %d skipped lines", len(log.Steps), log.Read.SkippedRows)
	}
}

// FuzzRead: whatever is read is within the bounds of a step.
func FuzzRead(f *testing.F) {
	f.Add("step_us,prefill_tokens,prefills,decodes\n1,2,1,3\n")
	f.Add(`{"prefill_tokens": 0, "prefills": 0, "decodes": 8, "step_us": 8000}`)
	f.Add(`{"fpm":{"wall_time":0.02,"scheduled_requests":{"num_prefill_requests":1,"sum_prefill_tokens":64,"sum_prefill_kv_tokens":1e14}}}`)
	f.Add(`{"iter": 9223372036854775807, "prevDeviceStepTimeMS": 1, "inflightBatchingStats": {"numGenRequests": 2}}`)
	f.Add("Iteration(1): 1 context requests, 9 context tokens, 1 generation requests, 1 generation tokens, iteration elapsed time: 1.5 ms, GPU KV cache usage: 120%")
	f.Add("[a b] Decode batch #running-req: 1, #token: 5, gen throughput (token/s): 1e9\n[a b] Decode batch #running-req: 1 gen throughput (token/s): 5")
	f.Add("iter = 1, global_rank = 0, num_scheduled_requests = 1, prev_device_step_time = 1ms, states = {'num_ctx_requests': 2, 'num_ctx_tokens': 1, 'num_generation_tokens': 4}")
	f.Fuzz(func(t *testing.T, text string) {
		log, err := Read(context.Background(), []string{"-"}, strings.NewReader(text))
		if err != nil {
			return
		}
		for i := range log.Steps {
			s := &log.Steps[i]
			if err := s.check(); err != nil || s.Time <= 0 || s.Decodes+s.PrefillTokens == 0 || s.CacheUse > 1 || s.Line < 1 {
				t.Fatalf("step %+v: %v", s, err)
			}
		}
	})
}
