package steplog

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// unknown is a step of a format with nothing told yet.
func unknown(format string) Step {
	return Step{Format: format, PrefillContext: Unknown, PrefillPairs: Unknown, DecodeContext: Unknown, CacheUse: Unknown}
}

// parseText reads a line of an engine's log.
func parseText(line []byte) (entry, error) {
	switch {
	case bytes.Contains(line, []byte("iteration elapsed time: ")):
		return parseVLLM(string(line))
	case bytes.Contains(line, []byte("Decode batch")), bytes.Contains(line, []byte("Prefill batch")):
		return parseSGLang(string(line))
	case bytes.Contains(line, []byte("'num_ctx_requests': ")) && bytes.Contains(line, []byte("iter = ")):
		return parseTRTLLM(string(line))
	}
	return entry{}, errNoStep
}

var vllmLine = regexp.MustCompile(`Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, ` +
	`(\d+) generation tokens, iteration elapsed time: ([\d.]+) ms(?:, GPU KV cache usage: ([\d.]+)%)?`)

// parseVLLM reads a line such as "Iteration(516): 1 context requests, 500 context tokens, 20 generation requests, 20
// generation tokens, iteration elapsed time: 10.95 ms, GPU KV cache usage: 12.3%".
func parseVLLM(line string) (entry, error) {
	m := vllmLine.FindStringSubmatch(line)
	if m == nil {
		return entry{}, fmt.Errorf("no iteration details as vLLM prints them")
	}
	if strings.Contains(line, "(dummy)") {
		return entry{}, errNoStep
	}
	e := entry{Step: unknown("vllm")}
	generated := 0
	err := readNumbers(m[2:], &e.Prefills, &e.PrefillTokens, &e.Decodes, &generated)
	if err == nil {
		e.Time, err = milliseconds(m[6])
	}
	if err == nil && m[7] != "" {
		e.CacheUse, err = number(m[7])
		e.CacheUse /= 100
	}
	if err == nil && generated != e.Decodes {
		err = fmt.Errorf("%d tokens of %d decodes: steps with speculative decoding cannot be fitted", generated, e.Decodes)
	}
	return e, err
}

var (
	sglangRunning    = regexp.MustCompile(`#running-req: (\d+)`)
	sglangTokens     = regexp.MustCompile(`[ ,]#token: (\d+)`)
	sglangThroughput = regexp.MustCompile(`gen throughput \(token/s\): ([\d.]+)`)
	sglangRank       = regexp.MustCompile(`\[([^\[\]]*)\] (?:Decode|Prefill) batch`)
)

// parseSGLang reads a line such as "[2025-02-14 00:42:22 TP0] Decode batch. #running-req: 233, #token: 370959, token usage:
// 0.82, gen throughput (token/s): 4594.01, #queue-req: 317".
func parseSGLang(line string) (entry, error) {
	e := entry{Step: unknown("sglang"), kind: between}
	if m := sglangRank.FindStringSubmatch(line); m != nil { // after date and time
		e.rank = strings.Join(strings.Fields(m[1])[min(2, len(strings.Fields(m[1]))):], " ")
	}
	if !strings.Contains(line, "Decode batch") {
		return e, nil
	}
	if strings.Contains(line, "accept len") || strings.Contains(line, "accept rate") {
		return e, fmt.Errorf("steps with speculative decoding cannot be fitted")
	}
	running, throughput := sglangRunning.FindStringSubmatch(line), sglangThroughput.FindStringSubmatch(line)
	if running == nil || throughput == nil {
		return e, fmt.Errorf("a decode batch without #running-req or gen throughput")
	}
	if err := readNumbers(running[1:], &e.Decodes); err != nil {
		return e, err
	}
	rate, err := number(throughput[1])
	if err != nil {
		return e, err
	}
	if rate <= 0 || e.Decodes == 0 {
		return e, nil
	}
	e.kind = interval
	if e.Time, err = duration(float64(e.Decodes) / rate); err != nil {
		return e, err
	}
	if m := sglangTokens.FindStringSubmatch(line); m != nil {
		var tokens int
		err = readNumbers(m[1:], &tokens)
		e.DecodeContext = int64(tokens)
	}
	return e, err
}

var (
	trtllmIter      = regexp.MustCompile(`\biter = (\d+)`)
	trtllmRank      = regexp.MustCompile(`\bglobal_rank = (\d+)`)
	trtllmScheduled = regexp.MustCompile(`\bnum_scheduled_requests(?: =|:) (\d+)`)
	trtllmStates    = regexp.MustCompile(`'num_ctx_requests': (\d+), 'num_ctx_tokens': (\d+), 'num_generation_tokens': (\d+)(?:.*?'cached_kv_tokens': (\d+))?`)
	trtllmDevice    = regexp.MustCompile(`\bprev_device_step_time = (?:([\d.]+)ms|N/A)`)
	trtllmHost      = regexp.MustCompile(`\b(?:host_step_time = ([\d.]+)ms|elapsed_time = ([\d.]+)s)`)
)

// parseTRTLLM reads a line such as "iter = 198, global_rank = 0, rank = 0, num_scheduled_requests = 10, ..., host_step_time =
// 7.4ms, prev_device_step_time = 7.1ms, ..., states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens':
// 16}". The generation tokens may be padded to a CUDA graph's size, the scheduled requests are not.
func parseTRTLLM(line string) (entry, error) {
	e := entry{Step: unknown("trtllm")}
	iter, states := trtllmIter.FindStringSubmatch(line), trtllmStates.FindStringSubmatch(line)
	if iter == nil || states == nil {
		return e, fmt.Errorf("no iteration log as TensorRT-LLM prints it")
	}
	var n int
	if err := readNumbers(append(iter[1:], states[1:4]...), &n, &e.Prefills, &e.PrefillTokens, &e.Decodes); err != nil {
		return e, err
	}
	e.iter = int64(n)
	if m := trtllmRank.FindStringSubmatch(line); m != nil {
		e.rank = m[1]
	}
	if m := trtllmScheduled.FindStringSubmatch(line); m != nil {
		var scheduled int
		if err := readNumbers(m[1:], &scheduled); err != nil {
			return e, err
		}
		e.Decodes = scheduled - e.Prefills
	}
	if states[4] != "" {
		var cached int
		if err := readNumbers(states[4:], &cached); err != nil {
			return e, err
		}
		e.split(int64(cached))
	}
	var err error
	if m := trtllmDevice.FindStringSubmatch(line); m != nil {
		e.kind = lagging
		if m[1] != "" {
			e.before, err = milliseconds(m[1])
		}
		return e, err
	}
	e.kind = untimed
	if m := trtllmHost.FindStringSubmatch(line); m != nil {
		e.kind = timed
		scale := 1e-3
		if m[1] == "" {
			m[1], scale = m[2], 1
		}
		var v float64
		if v, err = strconv.ParseFloat(m[1], 64); err == nil {
			e.Time, err = duration(v * scale)
		}
	}
	return e, err
}

// split tells prompts' past and decodes' contexts from the cached tokens of all, where only one of them is there.
func (s *Step) split(cached int64) {
	switch {
	case s.Prefills == 0:
		s.DecodeContext = cached + int64(s.Decodes)
	case s.Decodes == 0:
		s.PrefillContext = cached + int64(s.PrefillTokens)
	}
}

// readNumbers reads whole numbers of at most 10^10.
func readNumbers(text []string, into ...*int) error {
	for i, to := range into {
		n, err := strconv.Atoi(text[i])
		if err != nil || n < 0 || n > 1e10 {
			return fmt.Errorf("%q is not a count", text[i])
		}
		*to = n
	}
	return nil
}

func number(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not a number from 0 up", text)
	}
	return v, nil
}

func milliseconds(text string) (time.Duration, error) {
	v, err := number(text)
	if err != nil {
		return 0, err
	}
	return duration(v / 1e3)
}

// duration converts seconds.
func duration(seconds float64) (time.Duration, error) {
	if !(seconds >= 0 && seconds <= 3600) {
		return 0, fmt.Errorf("a step of %g s, want at most an hour", seconds)
	}
	return time.Duration(math.Round(seconds * 1e9)), nil
}
