package synth

import "time"

// plan is one program before it takes its final form: its calls, in an order in which each comes after those that
// it builds on.
type plan struct {
	agent   *agent
	seed    uint64
	program int

	calls    []call
	sessions []sessionPlan
	// origins are the calls that were the first to begin with a common prompt, that of roots and that of subagents; -1 is none.
	origins [2]int
	names   names
}

// sessionPlan is what a session begins with, and counts what it holds. The root is session 0 of its plan, its subagents
// follow.
type sessionPlan struct {
	common       commonPrompt
	system       int32 // tokens of it
	calls, tools int
}

// commonPrompt is a prompt that sessions of many programs begin with.
type commonPrompt int

const (
	rootPrompt commonPrompt = iota
	childPrompt
)

// call is one planned LLM call.
type call struct {
	session, turn int // turn counts the session's calls from 0
	input, output int32
	// base is the call whose prompt this one begins with, for shared tokens; -1 is none.
	base   int
	shared int32
	// common is the tokens of the common prompt that this prompt begins with, where base does not tell.
	common int32
	// fresh is the prompt tokens that are new to the server, for the recorded speed.
	fresh            int32
	start, ttft, end time.Duration
	trigger          string
	compaction       bool
	final            bool
	// tool is the tool that the answer calls, and toolEnd when it is done.
	tool    string
	toolEnd time.Duration
}

// make plans program i, starting at start. What p held before is dropped, its memory used again.
func (p *plan) make(a *agent, seed uint64, i int, start time.Duration) {
	p.agent, p.seed, p.program = a, seed, i
	p.calls, p.sessions, p.origins = p.calls[:0], p.sessions[:0], [2]int{-1, -1}
	p.session(start)
}

// subagentTool is the name of the tool that is a subagent.
const subagentTool = "subagent"

// session plans a session and, if it is the root, the subagents that it spawns. It returns the session's last call.
func (p *plan) session(start time.Duration) call {
	a, id := p.agent, len(p.sessions)
	r, more := newStream(), newStream()
	r.reset(p.seed, p.program, id)
	more.resetMore(p.seed, p.program, id)

	prompt, length, system, common := &a.task, &a.turns, &a.system, rootPrompt
	if id > 0 {
		prompt, length = &a.childPrompt, &a.childTurns
		if !a.childSystem.none() {
			system, common = &a.childSystem, childPrompt
		}
	}
	whole := int32(system.draw(more.Rand)) / int32(a.block) * int32(a.block)
	if id > 0 && common == rootPrompt {
		whole = p.sessions[0].system
	}
	p.sessions = append(p.sessions, sessionPlan{common: common, system: whole})

	turns := length.count(r.Rand)
	last := a.answer.count(more.Rand)
	c := p.restart(id, prompt.count(r.Rand), start)
	if id == 0 && a.long > 0 && float64(c.input) > a.long {
		turns = a.longTurns.count(more.Rand)
	}
	limit := a.compact.drawAbove(float64(c.input), more.Rand)
	c.trigger = "user_message"
	for turn := int32(1); ; turn++ {
		s := a.draw(r.Rand, more.Rand)
		c.output = s.output
		if c.final = turn == turns || a.full(&c, &s); c.final && !a.answer.none() {
			c.output = last
		}
		c.serve()
		if c.final {
			p.add(c)
			return c
		}
		next := p.follow(c, s)
		if !a.compact.none() && float64(next.input) > limit {
			next.trigger, next.compaction = "other", true
			next.output = max(1, int32(s.summary*float64(next.input)))
			next.serve()
			p.add(next)
			next = p.restart(id, next.output, next.end)
			next.trigger = "other"
			limit = a.compact.drawAbove(float64(next.input), more.Rand)
		}
		c = next
	}
}

// follow adds a call that is not its session's last, with what runs after it, and returns the call that comes next.
func (p *plan) follow(c call, s step) call {
	root := c.session == 0
	trigger := "tool_result"
	c.tool, c.toolEnd = s.tool, c.end+s.took
	switch {
	case root && s.spawns:
		c.tool = subagentTool
	case root && s.human:
		trigger = "user_message"
		c.tool, c.toolEnd, s.result = "", c.end+s.wait, s.message
	case s.tool == "":
		trigger = "other"
	}
	at := p.add(c)
	if root && s.spawns {
		end, answers := c.end, int32(0)
		for range s.fanout {
			last := p.session(c.end)
			end, answers = max(end, last.end), answers+last.output
		}
		if !s.background {
			c.toolEnd, s.result = end, answers
			p.calls[at].toolEnd = end
		}
	}
	next := call{session: c.session, input: c.input + c.output + s.result, base: at, shared: c.input, fresh: s.result,
		start: c.toolEnd, trigger: trigger}
	if s.dropped {
		next.fresh = int32(s.remains * float64(c.output))
		next.input = c.input + next.fresh
	}
	if s.rewritten {
		block := int32(p.agent.block)
		next.shared = max(0, c.input/block*block-s.lost)
		next.fresh = next.input - next.shared
	}
	return next
}

// restart returns a call whose prompt is the system prompt and tokens that no prompt had before.
func (p *plan) restart(session int, tokens int32, start time.Duration) call {
	s := &p.sessions[session]
	c := call{session: session, input: s.system + tokens, common: s.system, base: -1, fresh: tokens, start: start}
	switch origin := &p.origins[s.common]; {
	case *origin < 0:
		*origin, c.fresh = len(p.calls), c.input
	case s.system > 0:
		c.base, c.shared = *origin, min(s.system, p.calls[*origin].common)
	}
	return c
}

// serve sets the times of the call on the invented server.
func (c *call) serve() { c.ttft, c.end = service(c.start, c.fresh, c.output) }

// add appends the call and returns its index.
func (p *plan) add(c call) int {
	s := &p.sessions[c.session]
	c.turn = s.calls
	s.calls++
	if c.tool != "" {
		s.tools++
	}
	p.calls = append(p.calls, c)
	return len(p.calls) - 1
}
