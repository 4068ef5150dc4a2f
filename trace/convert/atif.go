package convert

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// maxTrajectoryDepth bounds how deep trajectories of subagents may nest.
const maxTrajectoryDepth = 64

func isATIF(l *look) bool {
	return strings.HasPrefix(l.keys["schema_version"], "ATIF") || l.has("steps", "agent") && l.hasAny("session_id", "trajectory_id")
}

// atif reads trajectories in the Agent Trajectory Interchange Format (Harbor's RFC, v1.0 to v1.8).
//
// A step of the agent is a call and has one time, taken for the end of the call. The call began when its output takes that
// long at the default speed, but not before what came before it. Prompts include what was cached. Where a step lists the
// ids of its prompt's tokens, these are hashed.
func (in input) atif() (*trace.Capture, error) {
	b := &trajectories{logbook: newLogbook(FormatATIF), told: map[*trace.Session]bool{}}
	read, err := readObjects(in, parseTrajectory, func(at place, t *trajectory) error {
		b.add(t, at, "")
		return nil
	})
	if err != nil {
		return nil, err
	}
	if b.read.Add(&read); b.undated {
		b.eachOnItsOwnClock()
	}
	return b.capture(in)
}

// trajectories is all trajectories of a load.
type trajectories struct {
	*logbook
	told    map[*trace.Session]bool
	undated bool // one of them has no times
}

// trajectory is one ATIF trajectory.
type trajectory struct {
	session, id, agent, model string
	tools                     []byte // their definitions
	steps                     []*trajectoryStep
	children                  []*trajectory
}

// trajectoryStep is one step.
type trajectoryStep struct {
	at                              time.Duration
	source, model                   string
	message, reasoning              string
	calls                           []trajectoryCall
	results                         []byte
	observed                        bool
	children                        []string // the trajectories of subagents that it ran
	prompt, output, cached, thought int64
	promptIDs                       []uint32
	copied                          bool
	llmCalls                        int64
}

// trajectoryCall is a tool call.
type trajectoryCall struct {
	id, name  string
	arguments []byte
}

func parseTrajectory(text []byte) (*trajectory, error) {
	s := scanner{data: text}
	t := s.trajectory(0)
	return t, s.end()
}

func (s *scanner) trajectory(depth int) *trajectory {
	t := &trajectory{}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch name := string(key); {
		case name == "session_id":
			t.session = s.loose()
		case name == "trajectory_id":
			t.id = s.loose()
		case name == "agent" && s.peek() == '{':
			for key, ok := s.object(); ok; key, ok = s.next() {
				switch string(key) {
				case "name":
					t.agent = s.loose()
				case "model_name":
					t.model = s.loose()
				case "tool_definitions":
					t.tools = slices.Clone(s.span())
				default:
					s.skip()
				}
			}
		case name == "steps" && s.peek() == '[':
			for ok := s.array(); ok; ok = s.more() {
				if s.peek() == '{' {
					t.steps = append(t.steps, s.trajectoryStep())
				} else {
					s.skip()
				}
			}
		case name == "subagent_trajectories" && s.peek() == '[' && depth < maxTrajectoryDepth:
			for ok := s.array(); ok; ok = s.more() {
				if s.peek() == '{' {
					t.children = append(t.children, s.trajectory(depth+1))
				} else {
					s.skip()
				}
			}
		default:
			s.skip()
		}
	}
	return t
}

func (s *scanner) trajectoryStep() *trajectoryStep {
	step := &trajectoryStep{at: trace.NoTime, prompt: -1, output: -1, cached: -1, thought: -1, llmCalls: -1}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch name := string(key); {
		case name == "timestamp":
			step.at = s.date()
		case name == "source":
			step.source = s.loose()
		case name == "model_name":
			step.model = s.loose()
		case name == "message":
			step.message = s.content()
		case name == "reasoning_content":
			step.reasoning = s.content()
		case name == "tool_calls" && s.peek() == '[':
			for ok := s.array(); ok; ok = s.more() {
				if s.peek() == '{' {
					step.calls = append(step.calls, s.trajectoryCall())
				} else {
					s.skip()
				}
			}
		case name == "observation" && s.peek() == '{':
			step.observed = true
			s.observation(step)
		case name == "metrics" && s.peek() == '{':
			s.stepMetrics(step)
		case name == "is_copied_context":
			step.copied = s.boolean()
		case name == "llm_call_count":
			step.llmCalls = s.total()
		default:
			s.skip()
		}
	}
	return step
}

func (s *scanner) trajectoryCall() (c trajectoryCall) {
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "tool_call_id":
			c.id = s.loose()
		case "function_name":
			c.name = s.loose()
		case "arguments":
			c.arguments = slices.Clone(s.span())
		default:
			s.skip()
		}
	}
	return c
}

// observation reads what tools told, and which trajectories ran under them.
func (s *scanner) observation(step *trajectoryStep) {
	for key, ok := s.object(); ok; key, ok = s.next() {
		if string(key) != "results" || s.peek() != '[' {
			s.skip()
			continue
		}
		for ok := s.array(); ok; ok = s.more() {
			for key, ok := s.looseObject(); ok; key, ok = s.next() {
				switch string(key) {
				case "content":
					step.results = append(append(step.results, s.content()...), '\n')
				case "subagent_trajectory_ref":
					step.children = append(step.children, trajectoryRefs(s.span())...)
				default:
					s.skip()
				}
			}
		}
	}
}

// trajectoryRefs returns the ids that references name: a list of objects, or one.
func trajectoryRefs(refs []byte) (ids []string) {
	s := scanner{data: refs}
	one := func() {
		session, id := "", ""
		for key, ok := s.looseObject(); ok; key, ok = s.next() {
			switch string(key) {
			case "session_id":
				session = s.loose()
			case "trajectory_id":
				id = s.loose()
			default:
				s.skip()
			}
		}
		if name := cmp.Or(id, session); name != "" {
			ids = append(ids, name)
		}
	}
	if s.peek() != '[' {
		one()
		return ids
	}
	for ok := s.array(); ok; ok = s.more() {
		one()
	}
	return ids
}

func (s *scanner) stepMetrics(step *trajectoryStep) {
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch name := string(key); {
		case name == "prompt_tokens":
			step.prompt = s.count()
		case name == "completion_tokens":
			step.output = s.count()
		case name == "cached_tokens":
			step.cached = s.count()
		case name == "reasoning_tokens":
			step.thought = s.count()
		case name == "prompt_token_ids" && s.peek() == '[':
			for ok := s.array(); ok; ok = s.more() {
				step.promptIDs = append(step.promptIDs, uint32(max(s.total(), 0)))
			}
		case name == "extra" && s.peek() == '{':
			s.stepMetrics(step)
		default:
			s.skip()
		}
	}
}

// add makes the calls of a trajectory and of those below it.
func (b *trajectories) add(t *trajectory, at place, parent string) {
	id := cmp.Or(t.id, t.session)
	session := b.sessions[id]
	switch {
	case id == "":
		session = b.newSession(at.file)
	case session == nil:
		session = b.session(id)
	case b.told[session]:
		b.read.Duplicates++
		return
	}
	b.told[session] = true
	b.undated = b.undated || !slices.ContainsFunc(t.steps, func(s *trajectoryStep) bool { return s.at != trace.NoTime })
	if session.Parent = cmp.Or(parent, session.Parent); session.Parent == session.ID {
		session.Parent = ""
	}
	if session.Parent != "" {
		session.Class = cmp.Or(t.agent, "subagent")
	}
	prompt := b.behind(nil, slices.Concat([]byte("system\n"+t.agent+"\n"), t.tools, []byte{'\n'}))
	prompt.hidden = true
	before, trigger := trace.NoTime, ""
	for i, step := range t.steps {
		for _, child := range step.children {
			if s := b.session(child); s != session && s.Parent == "" {
				s.Parent, s.Class = session.ID, cmp.Or(s.Class, "subagent")
			}
		}
		if step.source != "agent" {
			trigger = map[string]string{"user": "user_message"}[step.source]
			prompt = b.behind(prompt, []byte(step.source+"\n"+step.message+"\n"))
			before = max(before, step.at)
			continue
		}
		if !step.copied && step.llmCalls != 0 {
			c := newCall(session)
			c.ID, c.Model, c.File, c.Line = session.ID+":"+strconv.Itoa(i+1), cmp.Or(step.model, t.model), at.file, int32(min(at.line, math.MaxInt32))
			c.Trigger = cmp.Or(trigger, "other")
			c.prompt, c.tokens = prompt, step.promptIDs
			c.setUsage(step.prompt, step.cached, step.output, step.thought)
			c.written = len(step.message) + len(step.reasoning)
			for _, call := range step.calls {
				c.written += len(call.arguments)
				c.ToolCalls = append(c.ToolCalls, trace.ToolCall{ID: call.id, Name: call.name})
			}
			c.End = step.at
			c.between(before)
			before = c.End
			b.calls = append(b.calls, c)
		}
		prompt = b.behind(prompt, step.text())
		if trigger = "other"; step.observed {
			trigger = "tool_result"
		}
	}
	for _, child := range t.children {
		b.add(child, at, session.ID)
	}
}

// between places a call whose start is not told behind what ended before it. If its end is not told either, it follows that
// at once.
func (c *call) between(before time.Duration) {
	if c.End == trace.NoTime {
		c.Start = max(before, 0)
		c.fillTimes()
		return
	}
	c.Inferred |= trace.FieldStart
	c.Start = min(max(c.End-decodeTime(c.output()), before), c.End)
}

// text is what a step adds to later prompts.
func (step *trajectoryStep) text() []byte {
	text := []byte("agent\n" + step.message + "\n")
	for _, call := range step.calls {
		text = append(append(append(text, "call "+call.name+"\n"...), call.arguments...), '\n')
	}
	return append(text, step.results...)
}
