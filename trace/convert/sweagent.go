package convert

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// sweTrajectory is a .traj file of SWE-agent.
type sweTrajectory struct {
	history []sweMessage
	steps   []sweStep
	model   string
}

type sweMessage struct {
	message
	agent string
	demo  bool // part of an example, not of the run
}

// sweStep is an element of trajectory: a call with the tool behind it.
type sweStep struct {
	action string
	took   float64 // seconds of the tool; NaN when not told
	query  []message
}

func isSWEAgent(l *look) bool {
	return l.keys["trajectory"] == "[" && !l.has("instance_id") || l.keys["history"] == "[" && !l.hasAny("instance_id", "metrics", "instruction")
}

func parseSWEAgent(text []byte) (*sweTrajectory, error) {
	tr := &sweTrajectory{}
	s := &scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "history":
			for ok := s.list(); ok; ok = s.more() {
				tr.history = append(tr.history, s.sweMessage())
			}
		case "trajectory":
			for ok := s.list(); ok; ok = s.more() {
				tr.steps = append(tr.steps, s.sweStep())
			}
		case "replay_config":
			config := s
			if s.peek() == '"' { // JSON in a string
				config = &scanner{data: s.text()}
			}
			tr.model = config.stringAt("agent", "model", "name")
		default:
			s.skip()
		}
	}
	return tr, s.end()
}

func (s *scanner) sweMessage() (m sweMessage) {
	m.message = s.message(func(key string) {
		switch key {
		case "agent":
			m.agent = s.str()
		case "is_demo":
			m.demo = s.boolean()
		default:
			s.skip()
		}
	})
	return m
}

func (s *scanner) sweStep() sweStep {
	step := sweStep{took: math.NaN()}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "action":
			step.action = s.content()
		case "execution_time":
			step.took = s.float()
		case "query", "messages": // as it was called in 1.0
			for ok := s.list(); ok; ok = s.more() {
				step.query = append(step.query, s.message(func(string) { s.skip() }))
			}
		default:
			s.skip()
		}
	}
	return step
}

// sweAgent reads trajectories of SWE-agent. There are no times but how long tools took, from version 1.0 on: calls take as
// long as their answers at the default speed, and each file has a clock of its own. A call's prompt is what its step says
// was sent, else all the history before it, of which the agent may have left parts out.
func (in input) sweAgent() (*trace.Capture, error) {
	book := newLogbook(FormatSWEAgent)
	book.relative = true
	var err error
	book.read, err = readFiles(in, parseSWEAgent, func(at place, tr *sweTrajectory) error {
		tr.addTo(book, at)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ownClocks(book.capture(in))
}

// ownClocks tells of a capture that its programs have no common clock.
func ownClocks(c *trace.Capture, err error) (*trace.Capture, error) {
	if err == nil {
		c.SharedClock = false
	}
	return c, err
}

// addTo adds the calls of the trajectory to the book: each answer in the history is one.
func (tr *sweTrajectory) addTo(book *logbook, at place) {
	root := book.newSession(at.file)
	sessions := map[string]*trace.Session{}
	prompts := map[string]*passage{} // what each agent has seen
	begin := (*passage)(nil).then(nil)
	now := time.Duration(0)
	n := 0
	for _, m := range tr.history {
		if m.role == "assistant" && !m.demo {
			s := sessions[m.agent]
			if s == nil {
				if s = root; len(sessions) > 0 { // another agent, which the first called
					s = book.session(root.ID + "/" + m.agent)
					s.Parent, s.Class = root.ID, m.agent
				}
				sessions[m.agent] = s
			}
			step := sweStep{took: math.NaN()}
			if n < len(tr.steps) {
				step = tr.steps[n]
			}
			n++
			c := newCall(s)
			c.ID = fmt.Sprintf("%s:%d", root.ID, n)
			c.File, c.Line = at.file, int32(n)
			c.Model = tr.model
			c.prompt, c.written = prompts[m.agent], len(m.content)+len(m.calls)
			if len(step.query) > 0 {
				c.prompt = begin
				for i := range step.query {
					c.prompt = c.prompt.then(step.query[i].text())
				}
			}
			c.Trigger = "tool_result"
			if n == 1 {
				c.Trigger = "user_message"
			}
			c.Start = now
			c.fillTimes()
			now = c.End
			if tool := m.tool; tool != "" || step.action != "" {
				took, err := optionalSeconds("execution_time", step.took)
				if err != nil {
					took = trace.NoTime
				}
				if tool == "" {
					tool, _, _ = strings.Cut(strings.TrimSpace(step.action), " ")
					tool, _, _ = strings.Cut(tool, "\n")
				}
				now = c.addTool(c.ID, tool, took)
			}
			book.calls = append(book.calls, c)
		}
		seen := cmp.Or(prompts[m.agent], begin)
		prompts[m.agent] = seen.then(m.text())
	}
}
