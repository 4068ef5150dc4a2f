package synth

// What the planners quote beside profiles.go.
const (
	fromResearch     = "Anthropic's engineering blog, How we built our multi-agent research system"
	fromLead         = "Anthropic's prompts for it (anthropic-cookbook, patterns/agents/prompts)"
	fromOpenResearch = "langchain-ai/open_deep_research"
	fromReports      = "DeepResearch Bench (arXiv 2506.11763)"
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
		system: between(5632, 5632),
		task:   dist{median: 70, sigma: 0.57, min: 20, max: 2000},
		turns:  between(2, 4),
		output: dist{median: 327, sigma: 0.86, min: 16, max: 8192},
		answer: dist{median: 1500, sigma: 0.9, min: 100, max: 20000},
		result: dist{median: 2300, sigma: 0.3, tail: 0.42, tailMedian: 5000, tailSigma: 0.8, min: 50, max: 32768},
		tools: []tool{
			{"search", 0.58, dist{median: 10.6, sigma: 1.74, min: 0.1, max: 120}},
			{"fetch", 0.42, dist{median: 8.98, sigma: 1.42, min: 0.1, max: 300}},
		},
		subagents:   1,
		fanout:      between(3, 5),
		childSystem: between(2240, 2240),
		childPrompt: childPrompts,
		childTurns:  between(11, 16),
		compact:     between(175000, 175000),
		summary:     summaries,
		rate:        0.067,
		sources: map[string]string{
			"system": fromLead + ": research_lead_agent.md has 23,081 characters; tools are left out",
			"task":   fromReports + ", tasks 58 to 65: 116 to 652 characters, geometric mean 287, σ 0.57",
			"turns": fromOpenResearch + ": at most 3 rounds of the supervisor (max_researcher_iterations; later 6, its thinking " +
				"counted); one more turn writes the report",
			"output": fromMagAgent + ": n=392, p50 1521, p90 2378 characters; geometric mean 1342, σ 0.86",
			"answer": "Anthropic's Effective context engineering for AI agents: subagents return 1,000 to 2,000 tokens. σ is a choice " +
				"that has whole reports in it: Claude 3.7 Sonnet's in " + fromReports + " have 14,545 characters in the mean. At most " +
				"MAX_FINAL_REPORT_TOKENS of Onyx (dr_loop.py)",
			"result": "BrowseComp-Plus (arXiv 2508.06600): a search returns 5 documents of at most 512 tokens; a fetch, as often as " +
				"below, all of one, 5,179 words in the mean, 6,900 tokens. Both σ are a choice",
			"tool.search": fromTranscripts + ": WebSearch n=20, p50 15, p90 40 s; geometric mean 10.6, σ 1.74. Share: 539 searches " +
				"for 385 visits in SGI-Bench (InternScience/SGI-Page)",
			"tool.fetch":      fromTranscripts + ": WebFetch n=20, p50 8.7, p90 38, max 255 s; geometric mean 9.0, σ 1.42",
			"subagents":       "the lead delegates all research",
			"fanout":          fromResearch + ": the lead spins up 3 to 5 subagents in parallel",
			"subagent-system": fromLead + ": research_subagent.md has 9,101 characters; tools are left out",
			"subagent-turns":  fromResearch + ": 10 to 15 tool calls each, for comparisons; one more turn reports",
			"subagent-task":   childPromptsFrom,
			"compact":         summariesFrom,
			"summary":         summariesFrom,
			"rate":            "as mini-swe-agent, for comparison",
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
