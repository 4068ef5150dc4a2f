package convert

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// openCodeObject is a session, a message or a part.
type openCodeObject struct {
	session, parent string
	message         *openCodeMessage
	part            *openCodePart
}

// openCodeTokens are a call's tokens. The input leaves out what was found in the cache or written there, the output leaves
// out reasoning. Counts below 0 are not told.
type openCodeTokens struct{ input, output, reasoning, read, write int64 }

type openCodeMessage struct {
	id, session, role, model, mode string
	created, completed             time.Duration
	tokens                         openCodeTokens
	summary, failed                bool
	at                             place
}

type openCodePart struct {
	id, message, kind, text string
	tool, call, status      string
	input, output           []byte
	start, end              time.Duration
	tokens                  openCodeTokens
}

// maxOpenCodeDepth is how deep the objects of an export stand in it: a session holds messages, which hold parts.
const maxOpenCodeDepth = 3

func parseOpenCode(text []byte) ([]*openCodeObject, error) {
	s := scanner{data: text}
	var objects []*openCodeObject
	s.openCode(&objects, 0)
	return objects, s.end()
}

// openCode reads an object and those that it holds.
func (s *scanner) openCode(objects *[]*openCodeObject, depth int) {
	if s.peek() != '{' || depth > maxOpenCodeDepth {
		s.skip()
		return
	}
	o := &openCodeObject{}
	none := openCodeTokens{-1, -1, -1, -1, -1}
	m := &openCodeMessage{created: trace.NoTime, completed: trace.NoTime, tokens: none}
	p := &openCodePart{start: trace.NoTime, end: trace.NoTime, tokens: none}
	var isPart bool
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "id":
			m.id = s.loose()
		case "sessionID":
			m.session = s.loose()
		case "messageID":
			p.message, isPart = s.loose(), true
		case "parentID":
			o.parent = s.loose()
		case "role":
			m.role = s.loose()
		case "modelID":
			m.model = s.loose()
		case "mode", "agent":
			m.mode = cmp.Or(m.mode, s.loose())
		case "summary":
			m.summary = s.boolean()
		case "error":
			m.failed = !s.null()
			if m.failed {
				s.skip()
			}
		case "tokens":
			m.tokens = s.openCodeTokens()
		case "type":
			p.kind, isPart = s.loose(), true
		case "text":
			p.text = s.loose()
		case "tool":
			p.tool = s.loose()
		case "callID":
			p.call = s.loose()
		case "state":
			s.openCodeState(p)
		case "time":
			m.created, m.completed, p.start, p.end = s.openCodeTime()
		case "info":
			s.openCode(objects, depth+1)
		case "messages", "parts":
			if s.peek() != '[' {
				s.skip()
				continue
			}
			for ok := s.array(); ok; ok = s.more() {
				s.openCode(objects, depth+1)
			}
		default:
			s.skip()
		}
	}
	switch {
	case isPart:
		p.id, p.tokens = m.id, m.tokens
		o.part = p
	case m.role != "":
		o.message = m
	default:
		o.session = m.id
	}
	*objects = append(*objects, o)
}

// openCodeTime reads times in milliseconds since 1970: when a message was made and completed, when a part began and ended.
func (s *scanner) openCodeTime() (created, completed, start, end time.Duration) {
	created, completed, start, end = trace.NoTime, trace.NoTime, trace.NoTime, trace.NoTime
	for key, ok := s.looseObject(); ok; key, ok = s.next() {
		switch string(key) {
		case "created":
			created = s.unixMs()
		case "completed":
			completed = s.unixMs()
		case "start":
			start = s.unixMs()
		case "end":
			end = s.unixMs()
		default:
			s.skip()
		}
	}
	return created, completed, start, end
}

// unixMs reads a time in milliseconds since 1970; what is none is trace.NoTime.
func (s *scanner) unixMs() time.Duration {
	if n := s.total(); n > 0 && n < maxMs {
		return time.Duration(n) * time.Millisecond
	}
	return trace.NoTime
}

func (s *scanner) openCodeTokens() openCodeTokens {
	t := openCodeTokens{-1, -1, -1, -1, -1}
	for key, ok := s.looseObject(); ok; key, ok = s.next() {
		switch name := string(key); {
		case name == "input":
			t.input = s.count()
		case name == "output":
			t.output = s.count()
		case name == "reasoning":
			t.reasoning = s.count()
		case name == "cache" && s.peek() == '{':
			for key, ok := s.object(); ok; key, ok = s.next() {
				switch string(key) {
				case "read":
					t.read = s.count()
				case "write":
					t.write = s.count()
				default:
					s.skip()
				}
			}
		default:
			s.skip()
		}
	}
	return t
}

// openCodeState reads how a tool went.
func (s *scanner) openCodeState(p *openCodePart) {
	for key, ok := s.looseObject(); ok; key, ok = s.next() {
		switch string(key) {
		case "status":
			p.status = s.loose()
		case "input":
			p.input = slices.Clone(s.span())
		case "output", "error":
			p.output = appendString(p.output, s.span())
		case "time":
			_, _, p.start, p.end = s.openCodeTime()
		default:
			s.skip()
		}
	}
}
