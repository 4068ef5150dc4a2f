package synth

// What the planners quote beside profiles.go.
const (
	fromResearch     = "Anthropic's engineering blog, How we built our multi-agent research system"
	fromOpenResearch = "langchain-ai/open_deep_research and its forks"
	fromMagAgent     = "LMCache/lmcache-agent-trace, magagent: 13 sessions of a web agent"
	fromTranscripts  = "Claude Code transcripts (agentcgroup, claude-code-log)"
	fromWeka         = "callanjfox/kv-cache-tester, 28 subagents in 300 coding conversations"
)

// deepResearch returns the defaults of profile deep-research: a lead that plans, sends out searchers in rounds, waits for all
// of a round, and writes a report. Searchers search the web, read and report.
func deepResearch() profile {
	return &agent{
		class:  "deep-research",
		block:  64,
		system: between(4096, 4096),
		task:   dist{median: 110, sigma: 0.6, min: 20, max: 2000},
		turns:  between(2, 4),
		output: dist{median: 327, sigma: 0.86, min: 16, max: 8192},
		answer: dist{median: 1500, sigma: 0.9, min: 100, max: 20000},
		result: dist{median: 2560, sigma: 0.8, min: 50, max: 32768},
		tools: []tool{
			{"search", 0.58, dist{median: 10.6, sigma: 1.74, min: 0.1, max: 120}},
			{"fetch", 0.42, dist{median: 8.98, sigma: 1.42, min: 0.1, max: 300}},
		},
		subagents:   1,
		fanout:      between(3, 5),
		childSystem: between(2048, 2048),
		childPrompt: childPrompts,
		childTurns:  between(11, 16),
		compact:     between(175000, 175000),
		summary:     summaries,
		rate:        0.067,
		sources: map[string]string{
			"turns": fromOpenResearch + ": the supervisor goes through at most 3 rounds (max_researcher_iterations); one more turn " +
				"writes the report",
			"output": fromMagAgent + ": n=392, p50 1521, p90 2378 characters; geometric mean 1342, σ 0.86",
			"answer": "median and σ are a choice; at most MAX_FINAL_REPORT_TOKENS of Onyx (dr_loop.py)",
			"result": "liuqi6777/bcp_search_agent_trajectory, BrowseComp-Plus: a search returns 5 documents of at most 512 tokens, a " +
				"visit all of one; σ is a choice",
			"tool.search": fromTranscripts + ": WebSearch n=20, p50 15, p90 40 s; geometric mean 10.6, σ 1.74. Share: 539 searches " +
				"for 385 visits in SGI-Bench (InternScience/SGI-Page)",
			"tool.fetch":     fromTranscripts + ": WebFetch n=20, p50 8.8, p90 15, max 255 s; geometric mean 9.0, σ 1.42",
			"subagents":      "the lead delegates all research",
			"fanout":         fromResearch + ": the lead spins up 3 to 5 subagents in parallel",
			"subagent-turns": fromResearch + ": 10 to 15 tool calls each, for comparisons; one more turn reports",
			"subagent-task":  childPromptsFrom,
			"compact":        summariesFrom,
			"summary":        summariesFrom,
			"rate":           "as mini-swe-agent, for comparison",
		},
	}
}

// subagentFanout returns the defaults of profile subagent-fanout: a coding agent that plans, looks around, and hands parts of
// its task to executors that work side by side.
func subagentFanout() profile {
	a := claudeCode().(*agent)
	a.class = "subagent-fanout"
	a.turns = dist{median: 8, sigma: 0.5, min: 3, max: 40}
	a.output = dist{median: 277, sigma: 0.82, min: 16, max: 8192}
	a.result = dist{median: 1749, sigma: 1.47, min: 37, max: 60000}
	a.subagents = 0.5
	a.fanout = between(2, 10)
	a.childSystem = between(9728, 9728)
	a.childPrompt = dist{median: 224, sigma: 0.8, min: 64, max: 8192}
	for key, source := range map[string]string{
		"turns":     "a choice: a plan, some rounds of executors with a look at what they did, a summary",
		"output":    fromWeka + ": n=341, p50 237, p90 475 tokens; geometric mean 277, σ 0.82",
		"result":    fromWeka + ", growth of the prompt less the answer: n=313, p50 1981, p90 10,092 tokens; geometric mean 1749, σ 1.47",
		"subagents": "a choice: every other turn is a round",
		"fanout": fromResearch + ": 2 to 4 subagents for comparisons, more than 10 for complex work. In callanjfox/kv-cache-tester " +
			"1, 2 and 3 run at a time (8, 4 and 4 times)",
		"subagent-system": fromWeka + ": prefix shared with an earlier one of the conversation, n=20, p50 9728 tokens; none with its root",
		"subagent-task":   fromWeka + ": first prompt less that prefix, n=20, p50 188 tokens; geometric mean 224, σ 0.80",
	} {
		a.sources[key] = source
	}
	return a
}
