package synth

// fromWildChat is table 1 of the paper; its log-normals follow from mean and standard deviation.
const fromWildChat = "WildChat (arXiv 2405.01470), 1,039,785 conversations with ChatGPT"

// newChat returns the defaults of profile chat: people who talk with a model, which has no tools.
func newChat() profile {
	messages := dist{median: 53.4, sigma: 1.85, min: 4, max: 32768}
	messagesFrom := fromWildChat + ": 295.58 ± 1609.18 tokens of a user"
	return &agent{
		class:       "chat",
		block:       64,
		system:      between(1024, 1024),
		task:        messages,
		turns:       dist{median: 0.86, sigma: 1.4, min: 1, max: 200},
		output:      dist{median: 323, sigma: 0.79, min: 2, max: 8192},
		result:      messages,
		tools:       []tool{{defaultTool, 1, between(1, 1)}},
		human:       1,
		humanWait:   dist{median: 161, sigma: 2.17, min: 1, max: 12400},
		childPrompt: childPrompts,
		childTurns:  childTurns,
		compact:     between(100000, 100000),
		summary:     summaries,
		rate:        1,
		sources: map[string]string{
			"task":           messagesFrom,
			"turns":          fromWildChat + ": mean 2.52, 3.7% have more than 10",
			"output":         fromWildChat + ": 441.34 ± 410.91 tokens of the chatbot",
			"result":         messagesFrom,
			"human":          "every turn but the last",
			"human-wait":     "callanjfox/kv-cache-tester: n=858 waits for a prompt by a person, p50 177, p90 2655, p99 12,382 s; geometric mean 161, σ 2.17",
			"subagent-task":  childPromptsFrom,
			"subagent-turns": childTurnsFrom,
			"summary":        summariesFrom,
		},
	}
}
