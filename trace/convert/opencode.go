package convert

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

func isOpenCode(l *look) bool {
	return !l.listed && (l.has("sessionID") && l.hasAny("role", "messageID") || l.has("projectID", "time") && strings.HasPrefix(l.keys["id"], "ses")) ||
		isOpenCodeExport(l)
}

// isOpenCodeExport tells a session that opencode export wrote.
func isOpenCodeExport(l *look) bool {
	return l.keys["info"] == "{" && l.keys["messages"] == "[" && strings.HasPrefix((&scanner{data: l.text}).stringAt("info", "id"), "ses")
}

// openCode reads OpenCode's storage before 1.2, session/PROJECT/SESSION.json, message/SESSION/MESSAGE.json and
// part/MESSAGE/PART.json, and what opencode export writes: {info, messages: [{info, parts}]}, the same objects in one.
//
// An answer may be several calls, each followed by its tools: a step of its parts is one. Where no parts are there, the
// message is one. The first call starts when the message was made, the others when the tools before them had ended; how
// long a call took is told for the last alone, the others ended when their first tool began.
func (in input) openCode() (*trace.Capture, error) {
	s := &openCodeStorage{logbook: newLogbook(FormatOpenCode), messages: map[string]*openCodeMessage{},
		parts: map[string][]*openCodePart{}, told: map[string]bool{}}
	read, err := readFiles(in, parseOpenCode, func(at place, objects []*openCodeObject) error {
		for _, o := range objects {
			s.add(at, o)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.read.Add(&read)
	if db := databaseBeside(in.segments); db != "" {
		s.read.Warn(db + ": newer sessions are in this database, which is not read: 'opencode export SESSION > session.json' writes one that is")
	}
	s.tell()
	return s.capture(in)
}

// databaseBeside returns the database of OpenCode 1.2 and later that stands beside the folder storage which files are of; "" if
// there is none.
func databaseBeside(files []trace.Segment) string {
	for _, f := range files {
		root, _, ok := strings.Cut(filepath.ToSlash(f.Path), "/storage/")
		if !ok {
			continue
		}
		db := filepath.Join(root, "opencode.db")
		if _, err := os.Stat(db); err == nil {
			return db
		}
		return ""
	}
	return ""
}

// add takes an object. Of a part or a message that is told twice, as by an export beside the storage, the first is kept.
func (s *openCodeStorage) add(at place, o *openCodeObject) {
	switch {
	case o.part != nil:
		p := o.part
		p.message = cmp.Or(p.message, filepath.Base(filepath.Dir(at.file)))
		if id := p.message + "/" + p.id; p.id == "" || !s.told[id] {
			s.told[id] = true
			s.parts[p.message] = append(s.parts[p.message], p)
		}
	case o.message != nil && s.messages[o.message.id] != nil:
		s.read.Duplicates++
	case o.message != nil:
		o.message.at = at
		s.messages[o.message.id] = o.message
	case o.session != "" && o.parent != o.session:
		s.session(o.session).Parent = o.parent
	}
}

// openCodeStorage is all files of a load.
type openCodeStorage struct {
	*logbook
	messages map[string]*openCodeMessage
	parts    map[string][]*openCodePart // by message
	told     map[string]bool            // parts
}

// tell makes the calls of all sessions.
func (s *openCodeStorage) tell() {
	sessions := map[string][]*openCodeMessage{}
	for _, m := range s.messages {
		sessions[m.session] = append(sessions[m.session], m)
	}
	for id, messages := range sessions {
		slices.SortFunc(messages, func(a, b *openCodeMessage) int {
			return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.id, b.id))
		})
		session := s.session(id)
		if session.Parent != "" {
			session.Class = "subagent"
		}
		var prompt *passage
		for _, m := range messages {
			if session.Parent != "" && m.mode != "" {
				session.Class = m.mode
			}
			parts := s.parts[m.id]
			slices.SortFunc(parts, func(a, b *openCodePart) int { return strings.Compare(a.id, b.id) })
			if prompt == nil {
				prompt = s.behind(nil, []byte("system\nOpenCode "+m.mode+"\n"))
				prompt.hidden = true
			}
			if m.role != "assistant" {
				for _, p := range parts {
					if p.kind == "text" {
						prompt = s.behind(prompt, []byte("user\n"+p.text+"\n"))
					}
				}
				continue
			}
			prompt = s.answer(session, m, parts, prompt)
		}
	}
}

// answer makes the calls of an answer and returns the prompt that later messages go on from.
func (s *openCodeStorage) answer(session *trace.Session, m *openCodeMessage, parts []*openCodePart, prompt *passage) *passage {
	switch {
	case m.created == trace.NoTime:
		s.read.Skip("without a time")
		return prompt
	case m.failed && max(m.tokens.input, m.tokens.output) <= 0:
		s.read.Skip("of failed calls")
		return prompt
	}
	steps := openCodeSteps(parts)
	if len(steps) == 0 {
		steps = []openCodeStep{{parts, m.tokens}}
	}
	at := m.created
	for i, step := range steps {
		c := newCall(session)
		c.ID, c.Model, c.File, c.Line = m.id, m.model, m.at.file, 1
		c.Trigger, c.Compaction, c.Start = "user_message", m.summary, at
		if i > 0 {
			c.ID += ":" + strconv.Itoa(i+1)
			c.Trigger = "tool_result"
			c.Inferred |= trace.FieldStart
		}
		c.prompt = prompt
		c.setUsage(step.tokens.total())
		var toolsEnded time.Duration
		prompt, toolsEnded = s.step(c, step)
		if i == len(steps)-1 && toolsEnded == trace.NoTime && m.completed != trace.NoTime {
			c.End = m.completed
		} else {
			c.Inferred |= trace.FieldEnd
		}
		if c.End == trace.NoTime {
			c.End = c.Start + decodeTime(c.output())
		}
		c.End = max(c.End, c.Start)
		at = max(c.End, toolsEnded)
		s.calls = append(s.calls, c)
	}
	if m.summary { // later prompts begin with it
		text := "summary\n"
		for _, p := range parts {
			text += p.text
		}
		return s.behind(prompt.root, []byte(text))
	}
	return prompt
}

// openCodeStep is the parts of one call.
type openCodeStep struct {
	parts  []*openCodePart
	tokens openCodeTokens
}

// openCodeSteps divides parts at the ends of steps. Without an end that tells tokens there are none.
func openCodeSteps(parts []*openCodePart) (steps []openCodeStep) {
	begin := 0
	for i, p := range parts {
		if p.kind == "step-finish" && p.tokens.input >= 0 {
			steps = append(steps, openCodeStep{parts[begin:i], p.tokens})
			begin = i + 1
		}
	}
	return steps
}

// total returns the usage of a call: its prompt, what of it was cached, its output with reasoning, and reasoning.
func (t *openCodeTokens) total() (input, cached, output, reasoning int64) {
	if input = t.input; input >= 0 {
		input += max(t.read, 0) + max(t.write, 0)
	}
	if output = t.output; output >= 0 {
		output += max(t.reasoning, 0)
	}
	return input, t.read, output, t.reasoning
}

// step tells what a call wrote and which tools it called. The call ends with its text, or when its first tool began. It
// returns the prompt behind all that, and when the last tool ended.
func (s *openCodeStorage) step(c *call, step openCodeStep) (prompt *passage, toolsEnded time.Duration) {
	prompt, toolsEnded = c.prompt, trace.NoTime
	toolsBegan := trace.NoTime
	var results []*openCodePart
	for _, p := range step.parts {
		switch p.kind {
		case "text":
			c.written += len(p.text)
			c.End = max(c.End, p.end)
			prompt = s.behind(prompt, []byte("text\n"+p.text+"\n"))
		case "reasoning":
			c.written += len(p.text)
			c.End = max(c.End, p.end)
		case "tool":
			c.written += len(p.input)
			c.ToolCalls = append(c.ToolCalls, trace.ToolCall{ID: p.call, Name: p.tool})
			prompt = s.behind(prompt, slices.Concat([]byte("call "+p.tool+"\n"), p.input, []byte{'\n'}))
			results = append(results, p)
			if p.start == trace.NoTime || p.end < p.start {
				continue
			}
			if toolsBegan == trace.NoTime || p.start < toolsBegan {
				toolsBegan = p.start
			}
			toolsEnded = max(toolsEnded, p.end)
			status := map[string]string{"completed": "succeeded", "error": "error"}[p.status]
			c.Session.Tools = append(c.Session.Tools, trace.ToolSpan{ID: p.call, Class: p.tool, Start: p.start, End: p.end, Status: status})
		}
	}
	if toolsBegan != trace.NoTime {
		c.End = toolsBegan
	}
	for _, p := range results {
		prompt = s.behind(prompt, slices.Concat([]byte("output\n"), p.output, []byte{'\n'}))
	}
	return prompt, toolsEnded
}
