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
	names    names
}

// sessionPlan counts what a session holds. The root is session 0 of its plan, its subagents follow.
type sessionPlan struct{ calls, tools int }

// call is one planned LLM call.
type call struct {
	session, turn int // turn counts the session's calls from 0
	input, output int32
	// base is the call whose prompt this one begins with, for shared tokens; -1 is none.
	base   int
	shared int32
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
	p.calls, p.sessions = p.calls[:0], p.sessions[:0]
	p.session(start)
}

// session plans a session and, if it is the root, the subagents that it spawns. It returns the session's last call.
func (p *plan) session(start time.Duration) call {
	a, id := p.agent, len(p.sessions)
	p.sessions = append(p.sessions, sessionPlan{})
	r := newStream()
	r.reset(p.seed, p.program, id)

	prompt, length := &a.task, &a.turns
	if id > 0 {
		prompt, length = &a.childPrompt, &a.childTurns
	}
	turns := length.count(r.Rand)
	c := p.restart(id, prompt.count(r.Rand), start)
	c.trigger = "user_message"
	for turn := int32(1); ; turn++ {
		// All are drawn in every turn, so that a change of one parameter leaves the others' values alone.
		c.output = a.output.count(r.Rand)
		result := a.result.count(r.Rand)
		toolTime := max(time.Microsecond, seconds(a.tool.draw(r.Rand)))
		spawns := r.Float64() < a.subagents
		kept := a.summary.draw(r.Rand)

		c.final = turn == turns
		c.serve()
		if c.final {
			p.add(c)
			return c
		}
		c.tool, c.toolEnd = "bash", c.end+toolTime
		if spawns && id == 0 {
			c.tool = "subagent"
		}
		at := p.add(c)
		if c.tool == "subagent" {
			last := p.session(c.end)
			c.toolEnd, result = last.end, last.output
			p.calls[at].toolEnd = c.toolEnd
		}

		next := call{session: id, input: c.input + c.output + result, base: at, shared: c.input, fresh: result,
			start: c.toolEnd, trigger: "tool_result"}
		if a.compact > 0 && float64(next.input) > a.compact {
			next.trigger, next.compaction = "other", true
			next.output = max(1, int32(kept*float64(next.input)))
			next.serve()
			p.add(next)
			next = p.restart(id, next.output, next.end)
			next.trigger = "other"
		}
		c = next
	}
}

// restart returns a call whose prompt is the system prompt and tokens that no prompt had before.
func (p *plan) restart(session int, tokens int32, start time.Duration) call {
	system := int32(p.agent.system)
	c := call{session: session, input: system + tokens, base: -1, fresh: tokens, start: start}
	if len(p.calls) == 0 {
		c.fresh = c.input
	} else if system > 0 {
		c.base, c.shared = 0, system
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
