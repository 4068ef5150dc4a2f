package synth

// What the agent profiles quote. n is the number of observations, σ the standard deviation of the logarithms.
const (
	fromMini       = "mini-swe-agent's swebench.yaml"
	fromLMCache    = "LMCache/lmcache-agent-trace, miniswe: 10 sessions on SWE-bench"
	fromAgentCgrp  = "yunwei37/agentcgroup, 19 sessions of Claude Code with a local model on SWE-rebench"
	fromAgentHaiku = "yunwei37/agentcgroup, 15 sessions of Claude Code with Claude Haiku on SWE-rebench"
	fromOpenHands  = "OpenHands' example run of Multi-SWE-bench (evaluation/benchmarks/multi_swe_bench @156d0686), 3 sessions, Llama 4 Maverick"
	fromPR         = "ai-dynamo/dynamo pull request 11447, SWE-bench Lite, 256 at a time on two TP4 workers"
)

// The distributions that the agent profiles have in common, and where they come from.
var (
	answers     = dist{median: 138, sigma: 0.9, min: 16, max: 4096}
	answersFrom = fromAgentCgrp + ", counted by the server: n=983, p50 106, p90 519, mean 212 tokens; " +
		"geometric mean 138, σ 0.90"

	childPrompts     = dist{median: 68, sigma: 1.5, min: 10, max: 1000}
	childPromptsFrom = "Task calls of Claude Code transcripts (agentcgroup, claude-code-log): n=29, p50 200, p90 3323 characters; " +
		"geometric mean 277, σ 1.5"

	childTurns     = dist{median: 11, sigma: 0.44, min: 2, max: 60}
	childTurnsFrom = "callanjfox/kv-cache-tester: 28 subagents in 300 coding conversations, p50 11, p90 22; geometric mean 11, σ 0.44"

	// Of the blog's examples one keeps an eighth of the context, the other 0.23.
	summaries     = between(0.125, 0.23)
	summariesFrom = "Dynamo blog on agents: contexts of 80K tokens are summarized to 10K, of 175K to 40K"
)

// miniSWEAgent returns the defaults of profile mini-swe-agent.
func miniSWEAgent() profile {
	return &agent{
		class:       "mini-swe-agent",
		block:       64,
		system:      between(192, 192),
		task:        dist{median: 1660, sigma: 0.28, min: 1200, max: 6000},
		turns:       dist{median: 44, sigma: 0.5, min: 5, max: 250},
		output:      answers,
		result:      dist{median: 162, sigma: 1.57, tail: 0.43, tailMedian: 12, min: 12, max: 2590},
		tools:       []tool{{defaultTool, 1, dist{median: 0.3, sigma: 0.41, tail: 0.2, tailMedian: 6.4, tailSigma: 0.8, min: 0.2, max: 60}}},
		childPrompt: childPrompts,
		childTurns:  childTurns,
		summary:     summaries,
		rate:        0.067,
		sources: map[string]string{
			"system": fromMini + " puts the task before the instructions, so that only the system message and the head of " +
				"the first user message are shared: 713 characters, 174 tokens",
			"task": fromLMCache + ": first message n=10, p50 6129, p90 12592 characters, of which 4625 are instructions; " +
				"geometric mean 6818, σ 0.28",
			"turns": fromPR + ": 200.78 turns/min at 4.045 trials/min make 49.6; σ is a choice: half of LMCache's 10 sessions " +
				"stop at a limit of 30, AgentCgroup's 19 have 0.73; at most step_limit: 250 of " + fromMini,
			"output": answersFrom,
			"result": fromLMCache + ": n=196, p50 97, p90 2961, mean 1224 characters; 43% are an empty output (47 characters), " +
				"the others have geometric mean 663, σ 1.57; at most 10,000 characters and their frame in " + fromMini,
			"tool": "SWE-agent's published trajectories: n=16, p50 0.29, p90 0.69 s, σ 0.41. Slow ones: AgentCgroup's Bash calls of " +
				"1 s and more, n=396, p50 8.0, p90 12.3 s, geometric mean 6.4, σ 0.80; their share is a choice between " +
				"SWE-agent's 0 and AgentCgroup's 57%; at most timeout: 60 of " + fromMini,
			"subagent-task":  childPromptsFrom,
			"subagent-turns": childTurnsFrom,
			"summary":        summariesFrom,
			"rate":           fromPR + ": 4.045 trials/min",
		},
	}
}

// openHands returns the defaults of profile openhands.
func openHands() profile {
	return &agent{
		class:       "openhands",
		block:       64,
		system:      between(4480, 4480),
		task:        dist{median: 1053, sigma: 0.25, min: 700, max: 6000},
		turns:       dist{median: 62, sigma: 0.5, min: 5, max: 50},
		output:      answers,
		result:      dist{median: 154, sigma: 1.25, min: 14, max: 7128},
		tools:       []tool{{defaultTool, 1, dist{median: 0.0553, sigma: 2.51, min: 0.001, max: 265}}},
		childPrompt: childPrompts,
		childTurns:  childTurns,
		summary:     summaries,
		rate:        0.067,
		sources: map[string]string{
			"system": fromOpenHands + ": first prompt n=3, 5282 to 5920 tokens, is 4500 + 0.25 per character of the first user " +
				"message; system message and tools have 13,604 characters",
			"task": fromOpenHands + ": first prompt less 4500, n=3, 782 to 1420 tokens; geometric mean 1053, σ 0.25",
			"turns": "nebius/SWE-rebench-openhands-trajectories: n=67,074, mean 64.3, at most 100; σ as mini-swe-agent; at most 50 as in " +
				fromOpenHands + ", OpenHands' instructions for SWE-rebench and ThunderAgent's scripts (--max-iterations)",
			"output": answersFrom + ". A public recipe for OpenHands traces takes 220 (sgl-project/sglang pull request 29215), " +
				fromOpenHands + " has n=105, p50 99, p90 181, mean 127",
			"result": fromOpenHands + ", growth of the prompt less the answer: n=99, p50 101, p90 829, mean 525 tokens; geometric " +
				"mean 154, σ 1.25. The deepest prompt is then 29,000 tokens in the mean, in the three sessions 26,700, in " +
				"SWE-rebench-openhands-trajectories 27,000 (ai-dynamo/aiperf issue 1019)",
			"tool": fromOpenHands + ", action to observation: n=103, p50 0.013, p90 0.62, max 265 s; geometric mean 0.055, σ 2.51. 54 " +
				"read, edit or think, in 5 ms; 48 commands take 0.62 s, one 265 s",
			"subagent-task":  childPromptsFrom,
			"subagent-turns": childTurnsFrom,
			"summary":        summariesFrom,
			"rate":           "as mini-swe-agent, for comparison",
		},
	}
}

// claudeCode returns the defaults of profile claude-code.
func claudeCode() profile {
	return &agent{
		class:       "claude-code",
		block:       64,
		system:      between(12992, 12992),
		task:        dist{median: 393, sigma: 0.39, min: 200, max: 2000},
		turns:       dist{median: 41, sigma: 0.73, min: 5, max: 250},
		output:      answers,
		result:      dist{median: 148, sigma: 1.64, min: 4, max: 24000},
		tools:       []tool{{defaultTool, 1, dist{median: 0.024, sigma: 0.81, tail: 0.31, tailMedian: 8.3, tailSigma: 0.51, min: 0.005, max: 600}}},
		subagents:   0.04,
		childPrompt: childPrompts,
		childTurns:  childTurns,
		compact:     between(175000, 175000),
		summary:     summaries,
		rate:        0.067,
		sources: map[string]string{
			"system": fromAgentCgrp + ": first prompt n=19, 13,215 to 13,802 tokens, is 12,989 + 0.284 per character of the " +
				"task (least squares, r=0.98)",
			"task":   fromAgentCgrp + ": first prompt less 12,989, n=19, p50 436, p90 696 tokens; geometric mean 393, σ 0.39",
			"turns":  fromAgentCgrp + ": n=19, p50 52, p90 104, mean 52; geometric mean 41, σ 0.73",
			"output": answersFrom,
			"result": fromAgentCgrp + ": n=1070, p50 733, p90 3837, mean 1924 characters; geometric mean 605, σ 1.64",
			"tool": fromAgentCgrp + ": n=1070; 31% take 1 s and more (p50 8.6, p90 12.8 s, geometric mean 8.3, σ 0.51), the others " +
				"p50 0.021, p90 0.051 s, geometric mean 0.024, σ 0.81",
			"subagents":      fromAgentHaiku + ": 11 Task calls in 256 turns",
			"subagent-task":  childPromptsFrom,
			"subagent-turns": childTurnsFrom,
			"compact":        summariesFrom,
			"summary":        summariesFrom,
			"rate":           "as mini-swe-agent, for comparison",
		},
	}
}
