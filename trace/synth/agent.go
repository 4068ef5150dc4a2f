package synth

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// agent makes the programs of an agent. A program is a loop: the model answers; a tool or subagents run, or a person
// reads; and the next prompt is the previous prompt, the answer and what came of it.
type agent struct {
	class string
	// block is the number of tokens of a hash; system the length of the prompt that all share, in whole blocks.
	block       float64
	system      dist
	task, turns dist
	long        float64 // first prompts above it are long; 0: none is
	longTurns   dist    // turns of root sessions with long ones; none: turns
	output      dist
	answer      dist // none: as output
	result      dist
	tools       []tool
	human       float64 // share of a root's turns that a person answers
	message     dist    // none: as result
	humanWait   dist
	subagents   float64 // share of a root's turns whose tool is subagents
	fanout      dist    // none: 1
	background  float64
	childSystem dist // none: the system prompt
	childPrompt dist
	childTurns  dist
	dropped     float64
	remains     dist
	rewrites    float64
	lost        dist
	context     float64 // longest prompt without compaction; 0: any
	compact     dist    // context length at which the agent summarizes it, keeping the share summary; none: never
	summary     dist
	rate        float64
	gap         dist              // none: by rate
	sources     map[string]string // where defaults come from, by parameter
}

// tool is what runs between two turns. The one without a name is whatever the trace does not tell.
type tool struct {
	name  string
	share float64 // of the turns that are followed by a tool, relative to those of the others
	time  dist
}

func (a *agent) check(programs int) error {
	if a.system.constant() && math.Mod(a.system.min, a.block) != 0 {
		return fmt.Errorf("parameter system=%v: must be a multiple of block=%v", a.system.min, a.block)
	}
	if floor := max(a.system.max, a.childSystem.max) + 1024; !a.compact.none() && a.compact.min < floor {
		return fmt.Errorf("parameter compact=%v: must be 0 or at least system + 1024 = %v", a.compact.min, floor)
	}
	if a.human > 0 && a.humanWait.none() {
		return fmt.Errorf("parameter human=%v needs human-wait", a.human)
	}
	if a.long > 0 && a.longTurns.none() {
		return fmt.Errorf("parameter long=%v needs long-turns", a.long)
	}
	if a.rewrites > 0 && a.lost.none() {
		return fmt.Errorf("parameter rewrites=%v needs lost", a.rewrites)
	}
	if a.subagents > 0 && (a.childPrompt.none() || a.childTurns.none()) {
		return fmt.Errorf("parameter subagents=%v needs subagent-task and subagent-turns", a.subagents)
	}
	if a.human+a.subagents > 1 {
		return fmt.Errorf("parameters human=%v and subagents=%v: shares of the same turns, at most 1 together", a.human, a.subagents)
	}
	if err := checkArrivals(programs, a.rate, &a.gap); err != nil {
		return err
	}
	if longest := a.longest(); longest > maxContext {
		return fmt.Errorf("a context could reach %.0f tokens, more than %d; lower turns, output or result", longest, maxContext)
	}
	if days := a.slowest() / 86400; days > maxDays {
		return fmt.Errorf("a program could take %.0f days, more than %d; lower turns, output or tool", days, maxDays)
	}
	children := a.subagents * a.fans()
	calls := max(a.turns.mean(), a.longTurns.mean()) * (1 + children*a.childTurns.mean())
	tokens := a.system.mean() + a.task.mean() + calls*(max(a.output.mean(), a.answer.mean())+max(a.result.mean(), a.message.mean())+a.block)
	sessions := 1 + children*max(a.turns.mean(), a.longTurns.mean())
	return checkBytes(programs, sessions*float64(sessionBytes)+calls*float64(callBytes)+tokens/a.block*8)
}

// fans is the mean number of subagents that are spawned at once.
func (a *agent) fans() float64 {
	if a.fanout.none() {
		return 1
	}
	return a.fanout.mean()
}

// longest returns the length that no prompt with its answer exceeds.
func (a *agent) longest() float64 {
	first := max(a.system.max, a.childSystem.max) + max(a.task.max, a.childPrompt.max)
	output := max(a.output.max, a.answer.max)
	step := output + max(a.result.max, a.message.max)
	if a.subagents > 0 {
		step = max(step, output*(1+max(1, a.fanout.max)))
	}
	last := first + step*max(a.turns.max, a.longTurns.max, a.childTurns.max)
	switch {
	case !a.compact.none():
		last = min(last, max(first, a.compact.max)+step)
	case a.context > 0:
		last = min(last, max(first, a.context)+step)
	}
	return last * (1 + a.summary.max)
}

// slowest returns the seconds that no program exceeds.
func (a *agent) slowest() float64 {
	longest := a.longest()
	call := overhead.Seconds() + longest*perNewToken.Seconds() + max(a.output.max, a.answer.max)*perOutput.Seconds()
	wait := a.humanWait.max
	for _, t := range a.tools {
		wait = max(wait, t.time.max)
	}
	turn := call + wait
	if !a.compact.none() {
		turn += call + longest*perOutput.Seconds()
	}
	turns := max(a.turns.max, a.longTurns.max)
	if a.subagents > 0 {
		turns *= 1 + a.childTurns.max
	}
	return turns * turn
}

func (a *agent) generate(programs int, seed uint64) *trace.Capture {
	at := starts(programs, a.rate, &a.gap, seed)
	made := make([][]*trace.Session, programs)
	parallel(programs, func(p *plan, i int) {
		p.make(a, seed, i, at[i])
		made[i] = p.emit()
	})
	return newCapture(int(a.block), slices.Concat(made...))
}

// step is what is drawn for one turn.
type step struct {
	output, result int32
	tool           string
	took           time.Duration
	summary        float64 // share of the prompt that a summary keeps

	spawns, background bool
	fanout             int32
	human              bool
	message            int32 // of a person, who takes wait
	wait               time.Duration
	dropped, rewritten bool
	remains            float64 // share of a dropped answer
	lost               int32   // tokens that a rewrite changes
}

// draw draws a turn. All is drawn in every turn, so that a change of one parameter leaves the others' values alone. What not
// all profiles have comes from a second stream, more.
func (a *agent) draw(r, more *rand.Rand) (s step) {
	tool := a.pick(more)
	s.output = a.output.count(r)
	s.result = a.result.count(r)
	s.tool, s.took = tool.name, max(time.Microsecond, seconds(tool.time.draw(r)))
	spawn := r.Float64()
	s.summary = a.summary.draw(r)

	s.spawns, s.human = spawn < a.subagents, spawn >= 1-a.human
	s.fanout = a.fanout.count(more)
	s.background = chance(more, a.background)
	s.dropped = chance(more, a.dropped)
	s.rewritten = chance(more, a.rewrites)
	s.remains, s.lost = a.remains.draw(more), a.lost.count(more)
	if s.message = a.message.count(more); a.message.none() {
		s.message = s.result
	}
	s.wait = max(time.Microsecond, seconds(a.humanWait.draw(more)))
	return s
}

// full tells that the context of an agent that never summarizes has no room for what comes after a call.
func (a *agent) full(c *call, s *step) bool {
	return a.context > 0 && a.compact.none() && float64(c.input)+float64(s.output)+float64(s.result) > a.context
}

// chance is true for a share of draws.
func chance(r *rand.Rand, share float64) bool { return share > 0 && r.Float64() < share }

// pick draws a tool.
func (a *agent) pick(r *rand.Rand) *tool {
	switch len(a.tools) {
	case 0:
		return &tool{}
	case 1:
		return &a.tools[0]
	}
	at := r.Float64() * a.shares()
	for i := range a.tools {
		if at -= a.tools[i].share; at < 0 {
			return &a.tools[i]
		}
	}
	return &a.tools[len(a.tools)-1]
}
