package convert

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// handsRun is one conversation of OpenHands: its events, and what was counted of its calls.
type handsRun struct {
	id      string // of the task; "" when not told
	model   string
	events  []handsEvent
	usages  map[string]handsUsage // by response id
	latency map[string]float64    // seconds, by response id
}

// handsUsage is the counts of a call's tokens; -1 is not told.
type handsUsage struct{ in, cached, out, reasoning int64 }

// handsEvent is an action or an observation.
type handsEvent struct {
	id, cause           int64
	at                  time.Duration
	source              string
	action, observation string
	content             string // of an observation, a message or the system prompt
	args                []byte // JSON text
	response, function  string // of the tool call that the action is of
	usage               handsUsage
}

func isOpenHands(l *look) bool {
	return l.listed && l.has("source", "timestamp") && l.hasAny("action", "observation") ||
		l.has("instance_id") && l.hasAny("history", "instruction", "test_result")
}

var noUsage = handsUsage{-1, -1, -1, -1}

// parseHandsEvents reads a file that is a list of events.
func parseHandsEvents(text []byte) (*handsRun, error) {
	run := &handsRun{}
	s := &scanner{data: text}
	run.readEvents(s)
	return run, s.end()
}

// parseHandsResult reads a line of the results of an evaluation.
func parseHandsResult(text []byte) (*handsRun, error) {
	run := &handsRun{usages: map[string]handsUsage{}, latency: map[string]float64{}}
	s := &scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "instance_id":
			run.id = s.name()
		case "history":
			run.readEvents(s)
		case "metadata":
			run.model = s.stringAt("llm_config", "model")
		case "metrics":
			run.readMetrics(s)
		default:
			s.skip()
		}
	}
	if run.id == "" && s.err == nil {
		s.err = errors.New("instance_id is missing")
	}
	return run, s.end()
}

func (run *handsRun) readEvents(s *scanner) {
	for ok := s.list(); ok; ok = s.more() {
		if s.peek() != '{' { // older histories hold pairs of an action and an observation
			for ok := s.list(); ok; ok = s.more() {
				run.events = append(run.events, s.handsEvent())
			}
			continue
		}
		run.events = append(run.events, s.handsEvent())
	}
	if s.err != nil && len(run.events) > 0 { // the last one is cut off
		run.events = run.events[:len(run.events)-1]
	}
}

// readMetrics reads the counts of each call; where they are empty the events have some.
func (run *handsRun) readMetrics(s *scanner) {
	for key, ok := s.looseObject(); ok; key, ok = s.next() {
		switch string(key) {
		case "token_usages":
			for ok := s.list(); ok; ok = s.more() {
				u, id := noUsage, ""
				for key, ok := s.object(); ok; key, ok = s.next() {
					switch string(key) {
					case "prompt_tokens":
						u.in = s.count()
					case "completion_tokens":
						u.out = s.count()
					case "cache_read_tokens":
						u.cached = s.count()
					case "response_id":
						id = s.name()
					default:
						s.skip()
					}
				}
				run.usages[id] = u
			}
		case "response_latencies":
			for ok := s.list(); ok; ok = s.more() {
				took, id := math.NaN(), ""
				for key, ok := s.object(); ok; key, ok = s.next() {
					switch string(key) {
					case "latency":
						took = s.float()
					case "response_id":
						id = s.name()
					default:
						s.skip()
					}
				}
				run.latency[id] = took
			}
		default:
			s.skip()
		}
	}
	cached := false
	for _, u := range run.usages {
		cached = cached || u.cached > 0
	}
	if !cached { // a server that tells no cached tokens counts as one that found none
		for id, u := range run.usages {
			u.cached = -1
			run.usages[id] = u
		}
	}
}

func (s *scanner) handsEvent() handsEvent {
	e := handsEvent{id: -1, cause: -1, at: trace.NoTime, usage: noUsage}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "id":
			e.id = s.count()
		case "cause":
			e.cause = s.count()
		case "timestamp":
			e.at = s.date()
		case "source":
			e.source = s.str()
		case "action":
			e.action = s.str()
		case "observation":
			e.observation = s.str()
		case "content":
			e.content = s.content()
		case "args":
			e.args = slices.Clone(s.span())
		case "tool_call_metadata":
			s.handsToolCall(&e)
		default:
			s.skip()
		}
	}
	return e
}

// handsToolCall reads the response that an action is of.
func (s *scanner) handsToolCall(e *handsEvent) {
	for key, ok := s.looseObject(); ok; key, ok = s.next() {
		switch string(key) {
		case "function_name":
			e.function = s.str()
		case "model_response":
			for key, ok := s.looseObject(); ok; key, ok = s.next() {
				switch {
				case string(key) == "id":
					e.response = s.name()
				case string(key) == "usage" && s.peek() == '{':
					e.usage.in, e.usage.cached, e.usage.out, e.usage.reasoning = s.openAIUsage()
				default:
					s.skip()
				}
			}
		default:
			s.skip()
		}
	}
}

// inPrompt tells whether later prompts hold the event. States of the agent and look-ups of its memory are not sent.
func (e *handsEvent) inPrompt() bool {
	return !slices.Contains([]string{"change_agent_state", "recall", "null"}, e.action) && !slices.Contains([]string{"agent_state_changed", "null"}, e.observation)
}

// call tells whether the event is what a call answered.
func (e *handsEvent) call() bool {
	return e.source == "agent" && e.action != "" && e.action != "system" && e.inPrompt()
}

// text is what the event adds to a prompt.
func (e *handsEvent) text() []byte {
	return slices.Concat([]byte(e.source+" "+e.action+e.observation+"\n"), []byte(e.content), e.args, []byte{'\n'})
}

// openHands reads OpenHands' lists of events and the results of its evaluations. Events of one response are one call. It ends
// when the first of them was written down and began as long before as its latency says, else at the event before it.
// Times have no zone and are taken as UTC.
func (in input) openHands() (*trace.Capture, error) {
	book := newLogbook(FormatOpenHands)
	taken := map[string]int{}
	add := func(at place, run *handsRun) error {
		s := (*trace.Session)(nil)
		if run.id == "" {
			s = book.newSession(at.file)
		} else {
			id := run.id
			if taken[id]++; taken[id] > 1 { // tried again
				id = fmt.Sprintf("%s#%d", id, taken[id])
			}
			s = book.session(id)
		}
		return run.addTo(book, s, at)
	}
	for i := range in.segments {
		one := in
		one.segments = in.segments[i : i+1]
		read := readRows[*handsRun]
		parse := parseHandsResult
		if strings.HasPrefix(strings.TrimSpace(string(in.heads[i][:min(len(in.heads[i]), 64)])), "[") {
			read, parse = readFiles[*handsRun], parseHandsEvents
		}
		report, err := read(one, parse, add)
		if err != nil {
			return nil, err
		}
		book.read.Add(&report)
	}
	return book.capture(in)
}

func (run *handsRun) addTo(book *logbook, s *trace.Session, at place) error {
	var prompt *passage
	var last *call // the call of the response that events belong to
	response := ""
	before := trace.NoTime // when the event before was written down
	actions := map[int64]*handsEvent{}
	calls := map[int64]*call{}
	n := 0
	for i := range run.events {
		e := &run.events[i]
		if e.at == trace.NoTime {
			return at.fail(fmt.Errorf("event %d has no timestamp", e.id))
		}
		if e.call() && (e.response == "" || e.response != response) {
			n++
			c := newCall(s)
			c.ID = cmp.Or(e.response, fmt.Sprintf("%s:%d", s.ID, n))
			c.File, c.Line = at.file, int32(min(at.line, math.MaxInt32))
			c.Model = run.model
			c.prompt = prompt
			usage, ok := run.usages[e.response]
			if !ok || e.response == "" {
				usage = e.usage
			}
			c.setUsage(usage.in, usage.cached, usage.out, usage.reasoning)
			c.written = len(e.args)
			c.Trigger = "user_message"
			if last != nil && len(last.ToolCalls) > 0 {
				c.Trigger = "tool_result"
			}
			c.End, c.Start = e.at, before
			c.Inferred |= trace.FieldStart | trace.FieldEnd
			if took, err := optionalSeconds("latency", cmp.Or(run.latency[e.response], math.NaN())); err == nil && took != trace.NoTime {
				c.Start = e.at - took
			}
			if c.Start == trace.NoTime {
				c.fillTimes()
			}
			c.Start = min(max(c.Start, 0), c.End)
			book.calls = append(book.calls, c)
			last, response = c, e.response
		} else if e.call() {
			last.written += len(e.args)
		}
		if e.call() {
			actions[e.id], calls[e.id] = e, last
			if e.action != "message" && e.action != "finish" {
				last.ToolCalls = append(last.ToolCalls, trace.ToolCall{ID: fmt.Sprintf("%s/%d", s.ID, e.id), Name: cmp.Or(e.function, e.action)})
			}
		}
		if a := actions[e.cause]; a != nil && e.observation != "" && e.inPrompt() && e.at >= a.at {
			s.Tools = append(s.Tools, trace.ToolSpan{ID: fmt.Sprintf("%s/%d", s.ID, a.id), Class: cmp.Or(a.function, a.action), Start: a.at, End: e.at})
			delete(actions, e.cause)
		}
		if e.inPrompt() {
			prompt = prompt.then(e.text())
			before = e.at
		}
	}
	for id, a := range actions { // no observation came
		if a.action != "message" && a.action != "finish" {
			calls[id].Inferred |= trace.FieldToolEnd
		}
	}
	return nil
}
