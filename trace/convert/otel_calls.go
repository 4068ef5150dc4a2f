package convert

import (
	"cmp"

	"github.com/agentsim/agentsim/trace"
)

// maxSpanDepth bounds how far up the parents of a span are looked at.
const maxSpanDepth = 64

// isCall, isTool and isAgent tell what a span stands for. Calls without an operation are told by their usage.
func (span *genSpan) isCall() bool {
	switch span.operation {
	case "chat", "text_completion", "generate_content", "completion":
		return true
	case "":
		return span.tool == "" && span.model != "" && (span.output >= 0 || len(span.messages) > 0)
	}
	return false
}

func (span *genSpan) isTool() bool {
	return span.operation == "execute_tool" || span.operation == "" && span.tool != ""
}

func (span *genSpan) isAgent() bool {
	return span.operation == "invoke_agent" || span.operation == "create_agent"
}

// above returns the span above one.
func (b *spans) above(span *genSpan) *genSpan {
	if span.parent == "" {
		return nil
	}
	return b.byID[spanID{span.trace, span.parent}]
}

// within returns the nearest span above one for which the condition holds.
func (b *spans) within(span *genSpan, holds func(*genSpan) bool) *genSpan {
	at := b.above(span)
	for n := 0; at != nil && n < maxSpanDepth; n++ {
		if holds(at) {
			return at
		}
		at = b.above(at)
	}
	return nil
}

// sessionOf returns the session of a span: its agent's, its conversation's or its trace's. An agent under another is a
// child of that one.
func (b *spans) sessionOf(span *genSpan) *trace.Session {
	agent := b.within(span, (*genSpan).isAgent)
	conversation := span.conversation
	for at := span; conversation == "" && at != nil; at = b.within(at, func(s *genSpan) bool { return s.conversation != "" }) {
		conversation = at.conversation
	}
	root := cmp.Or(conversation, span.trace)
	if agent == nil {
		return b.session(root)
	}
	outer := b.within(agent, (*genSpan).isAgent)
	if outer == nil {
		s := b.session(root)
		s.Class = cmp.Or(s.Class, agent.agent)
		return s
	}
	s := b.session(root + "/" + agent.id)
	s.Class = cmp.Or(agent.agent, "subagent")
	if top := b.within(outer, (*genSpan).isAgent); top == nil {
		s.Parent = root
	} else {
		s.Parent = root + "/" + outer.id
	}
	return s
}

// tell makes calls and tools of the spans.
func (b *spans) tell() {
	for _, span := range b.list {
		switch {
		case span.start == trace.NoTime || span.end == trace.NoTime:
			b.read.Skip("spans without times")
		case span.isTool():
			s := b.sessionOf(span)
			status := "succeeded"
			if span.failed {
				status = "error"
			}
			s.Tools = append(s.Tools, trace.ToolSpan{ID: cmp.Or(span.toolCall, span.id), Class: cmp.Or(span.tool, span.name),
				Start: span.start, End: max(span.end, span.start), Status: status})
		case !span.isCall():
			b.read.Skip("spans of other operations")
		case b.within(span, func(s *genSpan) bool { return s.isCall() && s.start <= span.start && span.end <= s.end }) != nil:
			b.read.Skip("spans inside a call's")
		default:
			b.call(span)
		}
	}
}

// call makes a call of a span.
func (b *spans) call(span *genSpan) {
	c := newCall(b.sessionOf(span))
	c.ID = span.trace + "/" + span.id
	c.Model, c.File, c.Line = span.model, span.at.file, int32(span.at.line)
	c.Start, c.End = span.start, max(span.end, span.start)
	if span.response != "" {
		c.Aliases = append(c.Aliases, span.response)
	}
	if span.parent != "" { // of a server's span, the client's
		c.Aliases = append(c.Aliases, span.trace+"/"+span.parent)
	}
	input := span.input
	if input >= 0 && max(span.cached, 0)+max(span.created, 0) > input { // as Anthropic counts
		input += max(span.cached, 0) + max(span.created, 0)
	}
	c.setUsage(input, span.cached, span.output, span.thought)
	c.written = len(appendMessages(nil, span.answer))
	if span.failed {
		c.Status = "error"
	}
	b.prompt(c, span.messages)
	b.calls = append(b.calls, c)
}

// prompt makes the prompt of its messages: a list of them, or a text.
func (b *spans) prompt(c *call, messages []byte) {
	s := scanner{data: messages}
	if s.peek() != '[' {
		if len(messages) > 0 {
			c.prompt = b.behind(nil, messages)
		}
		return
	}
	for ok := s.array(); ok; ok = s.more() {
		message := s.span()
		if s.err != nil {
			return
		}
		c.prompt = b.behind(c.prompt, append(appendMessages(nil, message), '\n'))
		switch role := (&scanner{data: message}).roleAt(); role {
		case "user":
			c.Trigger = "user_message"
		case "tool":
			c.Trigger = "tool_result"
		default:
			c.Trigger = "other"
		}
	}
}

// roleAt returns the role of a message.
func (s *scanner) roleAt() string { return s.stringAt("role") }

// appendMessages appends the role and texts of a message, or of several: every string in it that is none of its types.
func appendMessages(dst, messages []byte) []byte {
	if c := (&scanner{data: messages}).peek(); c != '{' && c != '[' {
		return append(dst, messages...)
	}
	s := scanner{data: messages}
	return s.appendTexts(dst, 0)
}

func (s *scanner) appendTexts(dst []byte, depth int) []byte {
	switch c := s.peek(); {
	case depth > maxTrajectoryDepth:
		s.skip()
	case c == '"':
		dst = append(s.appendText(dst), '\n')
	case c == '[':
		for ok := s.array(); ok; ok = s.more() {
			dst = s.appendTexts(dst, depth+1)
		}
	case c == '{':
		for key, ok := s.object(); ok; key, ok = s.next() {
			switch string(key) {
			case "type", "id", "finish_reason":
				s.skip()
			default:
				dst = s.appendTexts(dst, depth+1)
			}
		}
	default:
		s.skip()
	}
	return dst
}
