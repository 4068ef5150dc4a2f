package engine

import (
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// TestTRTLLMByHand: 5 blocks of 4 tokens. r0 and r1 need 3 each for 4 tokens of prompt and 9 of output, one of them now.
func TestTRTLLMByHand(t *testing.T) {
	for _, test := range []struct {
		name  string
		style Style
		want  []string
	}{
		{"vllm admits what fits now", VLLM, []string{
			"0s r0 admitted",
			"0s r1 admitted",
			"10ms r0 first token",
			"10ms r1 first token",
			"30ms r1 preempted", // 8 tokens each after 4 steps fill 4 blocks
			"50ms r0 finished",
			"50ms r1 admitted, 8 cached",
			"60ms r1 first token",
			"75ms r1 finished",
		}},
		{"trtllm what fits to the end", TRTLLM, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"50ms r0 finished", // 8 more tokens, 5 ms each
			"50ms r1 admitted",
			"60ms r1 first token",
			"100ms r1 finished",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			follow(t, &workload{
				Options: Options{Style: test.style, MaxSeqs: 8, MaxBatchedTokens: 100},
				kv:      kvcache.Options{BlockSize: 4, Blocks: 5, PrefixCaching: true},
				requests: []arrival{
					{path: node(1, 3), input: 4, output: 9, cancel: Never},
					{path: node(2, 3), input: 4, output: 9, cancel: Never},
				},
			}, test.want)
		})
	}
}

// TestTRTLLMReserves: with room for 4 blocks, requests of 1 block each run together unless their clients allow more.
func TestTRTLLMReserves(t *testing.T) {
	for _, test := range []struct {
		maxOutput int32
		want      time.Duration // when the second is admitted
	}{{1, 0}, {5, 0}, {6, 10 * ms}} { // 4 + 5 - 1 tokens are 2 blocks, 4 + 6 - 1 are 3
		w := &workload{Options: Options{Style: TRTLLM, MaxSeqs: 8, MaxBatchedTokens: 100}, kv: kvcache.Options{BlockSize: 4, Blocks: 4, PrefixCaching: true},
			requests: []arrival{
				{path: node(1, 1), input: 4, output: 1, maxOutput: test.maxOutput, cancel: Never},
				{path: node(2, 1), input: 4, output: 1, maxOutput: test.maxOutput, cancel: Never},
			}}
		got, _ := playEngine(t, w, models.FixedSteps(10*ms, 5*ms))
		if at := got.requests[1].Admitted; at != test.want {
			t.Errorf("with at most %d tokens of output the second is admitted at %v, want %v", test.maxOutput, at, test.want)
		}
	}
}
