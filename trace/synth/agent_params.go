package synth

const maxTokens = 1 << 20 // of a part of a prompt

func (a *agent) params() []param {
	list := []param{
		{key: "block", number: &a.block, low: 16, high: 4096, whole: true, unit: "tokens",
			about: "tokens of a block hash"},
		{key: "system", dist: &a.system, low: 0, high: maxTokens, whole: true, unit: "tokens",
			about: "prompt that all programs and subagents begin with, each with so much of it; a multiple of block"},
		{key: "task", dist: &a.task, low: 1, high: maxTokens, unit: "tokens",
			about: "what follows it in the first prompt, private to the program"},
		{key: "turns", dist: &a.turns, low: 1, high: 10000, unit: "calls",
			about: "calls of a root session, compactions not counted"},
		{key: "long", number: &a.long, low: 0, high: maxContext, whole: true, unit: "tokens",
			about: "root sessions whose first prompt is longer have long-turns calls, not turns; 0: none is"},
		{key: "long-turns", dist: &a.longTurns, low: 1, high: 10000, unit: "calls", none: "as turns",
			about: "calls of root sessions that begin long, as those do which go on from others"},
		{key: "output", dist: &a.output, low: 1, high: maxTokens, unit: "tokens",
			about: "length of an answer, reasoning included"},
		{key: "answer", dist: &a.answer, low: 1, high: maxTokens, unit: "tokens", none: "as output",
			about: "length of the last answer of a session: a report, a synthesis of what subagents found"},
		{key: "result", dist: &a.result, low: 1, high: maxTokens, unit: "tokens", none: "1",
			about: "length of a tool's result with its frame"},
	}
	for i := range a.tools {
		t := &a.tools[i]
		p := param{key: a.toolKey(i), dist: &t.time, low: 0.000001, high: maxWait, unit: "s", about: "run time of a tool"}
		if len(a.tools) > 1 {
			p.about = "run time of " + toolName(t.name) + ", " + percent(t.share/a.shares()) + " of the tools"
		}
		list = append(list, p)
	}
	list = append(list, []param{
		{key: "human", number: &a.human, low: 0, high: 1, unit: "share of turns",
			about: "turns of a root session that a person answers, with a message"},
		{key: "human-wait", dist: &a.humanWait, low: 0.000001, high: maxWait, unit: "s", none: "without people",
			about: "time that a person takes"},
		{key: "message", dist: &a.message, low: 1, high: maxTokens, unit: "tokens", none: "as result",
			about: "length of a person's message with its frame"},
		{key: "subagents", number: &a.subagents, low: 0, high: 1, unit: "share of turns",
			about: "turns of a root session whose tool is subagents; their last answers are the result"},
		{key: "fanout", dist: &a.fanout, low: 1, high: 1000, unit: "subagents", none: "1",
			about: "subagents that one turn spawns; they run at the same time, and the root waits for all of them"},
		{key: "background", number: &a.background, low: 0, high: 1, unit: "share of turns",
			about: "of the turns with subagents, those that do not wait for them: a tool's time passes and its result comes"},
		{key: "subagent-system", dist: &a.childSystem, low: 0, high: maxTokens, whole: true, unit: "tokens", none: "system",
			about: "prompt that all subagents begin with in the place of that of root sessions"},
		{key: "subagent-task", dist: &a.childPrompt, low: 1, high: maxTokens, unit: "tokens", none: "without subagents",
			about: "what follows the system prompt in a subagent's first prompt"},
		{key: "subagent-turns", dist: &a.childTurns, low: 1, high: 10000, unit: "calls", none: "without subagents",
			about: "calls of a subagent"},
		{key: "dropped", number: &a.dropped, low: 0, high: 1, unit: "share of turns",
			about: "turns whose answer is not all in the next prompt, as reasoning that is left out"},
		{key: "remains", dist: &a.remains, low: 0, high: 1, unit: "share of the answer", none: "nothing",
			about: "how much longer the next prompt is then, whatever came of a tool included"},
		{key: "rewrites", number: &a.rewrites, low: 0, high: 1, unit: "share of turns",
			about: "turns after which the end of the prompt that they had is another in the next one, at the same length"},
		{key: "lost", dist: &a.lost, low: 1, high: maxContext, unit: "tokens", none: "without rewrites",
			about: "how much of its whole blocks a rewrite changes"},
		{key: "context", number: &a.context, low: 0, high: maxContext, whole: true, unit: "tokens",
			about: "sessions that are never compacted end before their prompts get longer; 0: they do not"},
		{key: "compact", dist: &a.compact, low: 0, high: maxContext, whole: true, unit: "tokens", none: "never",
			about: "a longer prompt is summarized, and the next one is system prompt + summary; 0: never"},
		{key: "summary", dist: &a.summary, low: 0.01, high: 0.5, unit: "share of the prompt",
			about: "length of a summary"},
		{key: "rate", number: &a.rate, low: 0, high: 1e6, unit: "programs/s",
			about: "Poisson arrivals; 0: all at time 0"},
		{key: "gap", dist: &a.gap, low: 0, high: maxGap, unit: "s", none: "by rate",
			about: "time from one arrival to the next, in the place of rate"},
	}...)
	for i := range list {
		list[i].source = a.sources[list[i].key]
	}
	return list
}

// defaultTool is the name of the only tool of profiles that have one. Of other tools, toolKeys begins the keys.
const (
	defaultTool = "bash"
	toolKeys    = "tool."
)

// toolKey is the key of the i-th tool.
func (a *agent) toolKey(i int) string {
	if len(a.tools) == 1 && a.tools[i].name == defaultTool {
		return "tool"
	}
	return toolKeys + a.tools[i].name
}

// shares is the sum of the tools' shares.
func (a *agent) shares() float64 {
	sum := 0.0
	for _, t := range a.tools {
		sum += t.share
	}
	return sum
}

func toolName(name string) string {
	if name == "" {
		return "what is not told"
	}
	return name
}
