package convert

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// tracelabRound is one row of a TraceLab release: one LLM call of Claude Code or Codex.
type tracelabRound struct {
	session, id, model string
	index              int64
	in, cached         int64
	out, reasoning     int64 // reasoning is -1 when not told
	events             []tracelabEvent
	tools              []trace.ToolSpan // times since the Unix epoch
}

type tracelabEvent struct {
	kind string
	at   time.Duration // since the Unix epoch
}

func isTracelab(l *look) bool { return l.has("round_index", "session_id", "input_tokens_total") }

func parseTracelab(text []byte) (*tracelabRound, error) {
	r := &tracelabRound{index: -1, in: -1, cached: -1, out: -1, reasoning: -1}
	s := &scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "session_id":
			r.session = s.name()
		case "round_id":
			r.id = s.name()
		case "round_index":
			r.index = s.count()
		case "model":
			r.model = s.str()
		case "input_tokens_total":
			r.in = s.count()
		case "prefix_tokens":
			r.cached = s.count()
		case "output_tokens":
			r.out = s.count()
		case "reasoning_output_tokens":
			r.reasoning = s.count()
		case "timing_events":
			for ok := s.list(); ok; ok = s.more() {
				r.events = append(r.events, s.tracelabEvent())
			}
		case "tools":
			for ok := s.list(); ok; ok = s.more() {
				r.tools = append(r.tools, s.tracelabTool())
			}
		default:
			s.skip()
		}
	}
	return r, s.end()
}

func (s *scanner) tracelabEvent() (e tracelabEvent) {
	e.at = trace.NoTime
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "event_type":
			e.kind = s.str()
		case "timestamp":
			e.at = s.date()
		default:
			s.skip()
		}
	}
	return e
}

func (s *scanner) tracelabTool() trace.ToolSpan {
	tool := trace.ToolSpan{Start: trace.NoTime, End: trace.NoTime, Status: "succeeded"}
	wall := math.NaN()
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "tool_call_id":
			tool.ID = s.name()
		case "tool_name":
			tool.Class = s.str()
		case "emitted_at":
			tool.Start = s.date()
		case "result_at":
			tool.End = s.date()
		case "tool_wall_latency_ms":
			wall = s.float()
		case "is_error":
			if s.boolean() {
				tool.Status = "error"
			}
		default:
			s.skip()
		}
	}
	if took, err := optionalMs("tool_wall_latency_ms", wall); err == nil && took != trace.NoTime && tool.End == trace.NoTime && tool.Start != trace.NoTime {
		tool.End = tool.Start + took
	}
	return tool
}

// tracelab reads rounds of TraceLab. A call begins at its last input (a user's message or a tool's result) and ends at the
// last thing that it emitted, since its own times are not told. Counts of cached tokens say what prompts share.
func (in input) tracelab() (*trace.Capture, error) {
	book := newLogbook(FormatTracelab)
	seen := map[string]bool{}
	duplicates := 0
	var err error
	book.read, err = readRows(in, parseTracelab, func(at place, r *tracelabRound) error {
		if r.session == "" {
			return at.fail(errors.New("session_id is missing"))
		}
		c := newCall(book.session(r.session))
		c.File, c.Line = at.file, int32(min(at.line, math.MaxInt32))
		if err := r.fill(c); err != nil {
			return at.fail(err)
		}
		if seen[c.ID] { // a resumed session repeats the rounds before
			duplicates++
			return nil
		}
		seen[c.ID] = true
		c.addTools(r.tools)
		book.calls = append(book.calls, c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	book.read.Duplicates += duplicates
	return book.capture(in)
}

// fill gives the call what the round tells.
func (r *tracelabRound) fill(c *call) error {
	c.ID = r.id
	if !isResponseID(r.id) { // Codex calls several rounds alike
		c.ID = fmt.Sprintf("%s/%d", r.session, r.index)
	}
	c.Model = r.model
	if _, err := tokens("input_tokens_total", r.in, 1); err != nil {
		return err
	}
	if _, err := tokens("output_tokens", r.out, 0); err != nil {
		return err
	}
	c.setUsage(r.in, r.cached, r.out, r.reasoning)
	for _, e := range r.events {
		if e.at == trace.NoTime {
			continue
		}
		switch e.kind {
		case "user_message", "tool_result":
			if c.Start = max(c.Start, e.at); c.Trigger != "tool_result" {
				c.Trigger = e.kind
			}
		default:
			c.End = max(c.End, e.at)
		}
	}
	if c.Start == trace.NoTime && c.End == trace.NoTime {
		return errors.New("timing_events has no time of an input or an output")
	}
	c.fillTimes()
	return nil
}

// addTools adds tools that the call ran; those without an end are not known to have a span.
func (c *call) addTools(tools []trace.ToolSpan) {
	for _, tool := range tools {
		c.ToolCalls = append(c.ToolCalls, trace.ToolCall{ID: tool.ID, Name: tool.Class})
		if tool.Start == trace.NoTime {
			tool.Start = c.End
		}
		if tool.End == trace.NoTime || tool.End < tool.Start { // its end is not told
			c.Inferred |= trace.FieldToolEnd
			continue
		}
		c.Session.Tools = append(c.Session.Tools, tool)
	}
}

// isResponseID tells whether the id of a round is that of an API response and so the same wherever it is copied.
func isResponseID(id string) bool { return len(id) > 4 && id[:4] == "msg_" }
