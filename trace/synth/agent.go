package synth

import (
	"fmt"
	"math"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// agent makes the programs of a coding agent. A program is a loop: the model answers, a tool runs, and the next
// prompt is the previous prompt, the answer and the tool's result.
type agent struct {
	class string
	// block is the number of tokens of a hash; system, a multiple of it, the length of the prompt that all share.
	block, system float64
	task, turns   dist
	output        dist
	result, tool  dist
	// subagents is the share of turns whose tool is a subagent.
	subagents               float64
	childPrompt, childTurns dist
	// compact is the context length at which the agent summarizes it, keeping the share summary; 0 is never.
	compact float64
	summary dist
	rate    float64
	// sources says where defaults come from, by parameter.
	sources map[string]string
}

func (a *agent) params() []param {
	list := []param{
		{key: "block", number: &a.block, low: 16, high: 4096, whole: true, unit: "tokens",
			about: "tokens of a block hash"},
		{key: "system", number: &a.system, low: 0, high: 1 << 20, whole: true, unit: "tokens",
			about: "prompt that all programs and subagents begin with; a multiple of block"},
		{key: "task", dist: &a.task, low: 1, high: 1 << 20, unit: "tokens",
			about: "what follows it in the first prompt, private to the program"},
		{key: "turns", dist: &a.turns, low: 1, high: 10000, unit: "calls",
			about: "calls of a root session, compactions not counted"},
		{key: "output", dist: &a.output, low: 1, high: 1 << 20, unit: "tokens",
			about: "length of an answer, reasoning included"},
		{key: "result", dist: &a.result, low: 1, high: 1 << 20, unit: "tokens",
			about: "length of a tool's result with its frame"},
		{key: "tool", dist: &a.tool, low: 0.000001, high: 86400, unit: "s",
			about: "run time of a tool"},
		{key: "subagents", number: &a.subagents, low: 0, high: 1, unit: "share of turns",
			about: "turns whose tool is a subagent; its last answer is the result"},
		{key: "subagent-task", dist: &a.childPrompt, low: 1, high: 1 << 20, unit: "tokens",
			about: "what follows the system prompt in a subagent's first prompt"},
		{key: "subagent-turns", dist: &a.childTurns, low: 1, high: 10000, unit: "calls",
			about: "calls of a subagent"},
		{key: "compact", number: &a.compact, low: 0, high: maxContext, whole: true, unit: "tokens",
			about: "a longer prompt is summarized, and the next one is system prompt + summary; 0: never"},
		{key: "summary", dist: &a.summary, low: 0.01, high: 0.5, unit: "share of the prompt",
			about: "length of a summary"},
		{key: "rate", number: &a.rate, low: 0, high: 1e6, unit: "programs/s",
			about: "Poisson arrivals; 0: all at time 0"},
	}
	for i := range list {
		list[i].source = a.sources[list[i].key]
	}
	return list
}

func (a *agent) check(programs int) error {
	if math.Mod(a.system, a.block) != 0 {
		return fmt.Errorf("parameter system=%v: must be a multiple of block=%v", a.system, a.block)
	}
	if floor := a.system + 1024; a.compact > 0 && a.compact < floor {
		return fmt.Errorf("parameter compact=%v: must be 0 or at least system + 1024 = %v", a.compact, floor)
	}
	if err := checkRate(a.rate); err != nil {
		return err
	}
	if longest := a.longest(); longest > maxContext {
		return fmt.Errorf("a context could reach %.0f tokens, more than %d; lower turns, output or result", longest, maxContext)
	}
	if days := a.slowest() / 86400; days > maxDays {
		return fmt.Errorf("a program could take %.0f days, more than %d; lower turns, output or tool", days, maxDays)
	}
	calls := a.turns.mean() * (1 + a.subagents*a.childTurns.mean())
	tokens := a.system + a.task.mean() + calls*(a.output.mean()+a.result.mean()+a.block)
	sessions := 1 + a.subagents*a.turns.mean()
	return checkBytes(programs, sessions*float64(sessionBytes)+calls*float64(callBytes)+tokens/a.block*8)
}

// longest returns the length that no prompt with its answer exceeds.
func (a *agent) longest() float64 {
	first := a.system + max(a.task.max, a.childPrompt.max)
	step := a.output.max + max(a.result.max, a.output.max)
	last := first + step*max(a.turns.max, a.childTurns.max)
	if a.compact > 0 {
		last = min(last, max(first, a.compact)+step)
	}
	return last * (1 + a.summary.max)
}

// slowest returns the seconds that no program exceeds.
func (a *agent) slowest() float64 {
	longest := a.longest()
	call := overhead.Seconds() + longest*perNewToken.Seconds() + a.output.max*perOutput.Seconds()
	turn := call + a.tool.max
	if a.compact > 0 {
		turn += call + longest*perOutput.Seconds()
	}
	turns := a.turns.max
	if a.subagents > 0 {
		turns *= 1 + a.childTurns.max
	}
	return turns * turn
}

func (a *agent) generate(programs int, seed uint64) *trace.Capture {
	at := starts(programs, a.rate, seed)
	made := make([][]*trace.Session, programs)
	parallel(programs, func(p *plan, i int) {
		p.make(a, seed, i, at[i])
		made[i] = p.emit()
	})
	return newCapture(int(a.block), slices.Concat(made...))
}
