package convert

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// miniTrajectory is a trajectory of mini-SWE-agent: a list of messages, or an object that holds one.
type miniTrajectory struct {
	messages []miniMessage
	model    string
	timed    bool // some answer has a time
}

type miniMessage struct {
	message
	at                    time.Duration // when it was written down, since 1970
	in, cached, out, hard int64         // usage of the answer, of which hard is reasoning; -1 is not told
}

func isMini(l *look) bool {
	return l.listed && l.has("role", "content") || !isOpenCodeExport(l) &&
		l.has("messages") && (l.has("info") || strings.HasPrefix(l.keys["trajectory_format"], "mini-swe-agent"))
}

func parseMini(text []byte) (*miniTrajectory, error) {
	tr := &miniTrajectory{}
	s := &scanner{data: text}
	messages := func() {
		for ok := s.list(); ok; ok = s.more() {
			m := s.miniMessage()
			tr.timed = tr.timed || m.role == "assistant" && m.at != trace.NoTime
			tr.messages = append(tr.messages, m)
		}
	}
	if s.peek() == '[' {
		messages()
		return tr, s.end()
	}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "messages":
			messages()
		case "info":
			tr.model = s.stringAt("config", "model", "model_name")
		default:
			s.skip()
		}
	}
	return tr, s.end()
}

func (s *scanner) miniMessage() miniMessage {
	m := miniMessage{at: trace.NoTime, in: -1, cached: -1, out: -1, hard: -1}
	m.message = s.message(func(key string) {
		switch key {
		case "timestamp":
			m.at = s.unixSeconds()
		case "extra":
			m.extra(s)
		default:
			s.skip()
		}
	})
	return m
}

// extra reads what mini-SWE-agent notes of a message: when it came, and the response that holds it.
func (m *miniMessage) extra(s *scanner) {
	for key, ok := s.looseObject(); ok; key, ok = s.next() {
		switch string(key) {
		case "timestamp":
			m.at = s.unixSeconds()
		case "response":
			for key, ok := s.looseObject(); ok; key, ok = s.next() {
				if string(key) == "usage" && s.peek() == '{' {
					m.in, m.cached, m.out, m.hard = s.openAIUsage()
				} else {
					s.skip()
				}
			}
		default:
			s.skip()
		}
	}
}

// openAIUsage reads a usage object as OpenAI's API gives it: the prompt's tokens include the cached ones, the answer's the
// reasoning. What is not told is -1.
func (s *scanner) openAIUsage() (in, cached, out, reasoning int64) {
	in, cached, out, reasoning = -1, -1, -1, -1
	detail := func(name string, to *int64) {
		for key, ok := s.looseObject(); ok; key, ok = s.next() {
			if string(key) == name {
				*to = s.count()
			} else {
				s.skip()
			}
		}
	}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "prompt_tokens":
			in = s.count()
		case "completion_tokens":
			out = s.count()
		case "prompt_tokens_details":
			detail("cached_tokens", &cached)
		case "completion_tokens_details":
			detail("reasoning_tokens", &reasoning)
		default:
			s.skip()
		}
	}
	return in, cached, out, reasoning
}

// miniSWEAgent reads trajectories of mini-SWE-agent. Newer ones tell when an answer and a tool's result came, and the usage of
// calls. In older ones calls take as long as their answers at the default speed, and tools no time; then each file has a
// clock of its own.
func (in input) miniSWEAgent() (*trace.Capture, error) {
	book := newLogbook(FormatMiniSWEAgent)
	untimed := false
	var err error
	book.read, err = readFiles(in, parseMini, func(at place, tr *miniTrajectory) error {
		untimed = untimed || !tr.timed
		tr.addTo(book, at)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if untimed {
		book.eachOnItsOwnClock()
		return ownClocks(book.capture(in))
	}
	return book.capture(in)
}

func (tr *miniTrajectory) addTo(book *logbook, at place) {
	s := book.newSession(at.file)
	var prompt *passage
	before, first := trace.NoTime, trace.NoTime // when the message before was written down, and the first that tells
	for _, m := range slices.Backward(tr.messages) {
		if m.at != trace.NoTime {
			first = m.at
		}
	}
	n := 0
	for i, m := range tr.messages {
		if m.role == "assistant" {
			n++
			c := newCall(s)
			c.ID = fmt.Sprintf("%s:%d", s.ID, n)
			c.File, c.Line = at.file, int32(min(i+1, math.MaxInt32))
			c.Model = tr.model
			c.prompt, c.written = prompt, len(m.content)+len(m.calls)
			c.setUsage(m.in, m.cached, m.out, m.hard)
			if c.Trigger = "tool_result"; n == 1 {
				c.Trigger = "user_message"
			}
			c.Start, c.End = before, m.at
			if c.Start == trace.NoTime && c.End == trace.NoTime {
				c.Start = max(first, 0)
			}
			c.fillTimes()
			before = c.End
			if i+1 < len(tr.messages) && tr.messages[i+1].role != "exit" {
				took, result := trace.NoTime, tr.messages[i+1].at
				if result != trace.NoTime && m.at != trace.NoTime && result >= c.End {
					took = result - c.End
				}
				before = c.addTool(c.ID, "bash", took)
			}
			book.calls = append(book.calls, c)
		} else if m.at != trace.NoTime {
			before = m.at
		}
		if m.role != "exit" {
			prompt = prompt.then(m.text())
		}
	}
}
