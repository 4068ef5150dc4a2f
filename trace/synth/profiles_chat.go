package synth

// What the profile quotes. Log-normals follow from the mean and the standard deviation of WildChat's table 1.
const (
	fromWildChat = "WildChat (arXiv 2405.01470), 1,039,785 conversations with ChatGPT"
	fromMooncake = "Mooncake's conversation trace (FAST 2025), 12,031 prompts of a chat service"
)

// newChat returns the defaults of profile chat: people who talk with a model, which has no tools.
func newChat() profile {
	messages := dist{median: 53.4, sigma: 1.85, min: 4, max: 32768}
	messagesFrom := fromWildChat + ": 295.58 ± 1609.18 tokens of a user, as Llama 2 counts"
	return &agent{
		class:       "chat",
		block:       64,
		system:      between(512, 512),
		task:        messages,
		turns:       dist{median: 1.05, sigma: 1.25, min: 1, max: 200},
		output:      dist{median: 323, sigma: 0.79, min: 2, max: 8192},
		result:      messages,
		tools:       []tool{{defaultTool, 1, between(1, 1)}},
		human:       1,
		humanWait:   dist{median: 161, sigma: 2.17, min: 1, max: 12400},
		childPrompt: childPrompts,
		childTurns:  childTurns,
		compact:     between(80000, 80000),
		summary:     summaries,
		rate:        1,
		sources: map[string]string{
			"system": fromMooncake + ": all begin with the same block of 512 tokens, and few with the same two",
			"task":   messagesFrom,
			"turns": fromWildChat + ": mean 2.54 (table 1), 41% have more than one and 3.7% more than 10 (section 3); rounded, these " +
				"have 2.54, 39% and 3.3%",
			"output":         fromWildChat + ": 441.34 ± 410.91 tokens of the chatbot",
			"result":         messagesFrom,
			"human":          "every turn but the last",
			"human-wait":     "callanjfox/kv-cache-tester: n=858 waits for a prompt by a person, p50 177, p90 2655, p99 12,382 s; geometric mean 161, σ 2.17",
			"subagent-task":  childPromptsFrom,
			"subagent-turns": childTurnsFrom,
			"compact":        summariesFrom,
			"summary":        summariesFrom,
			"rate":           "a choice",
		},
	}
}
