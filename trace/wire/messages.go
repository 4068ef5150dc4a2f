package wire

import (
	"strconv"

	"github.com/goccy/go-json"
)

// Anthropic's stop reasons for OpenAI's finish reasons. Others, and those of Anthropic, are written as they are.
var stopReasons = map[string]string{"length": "max_tokens", "stop": "end_turn", "tool_calls": "tool_use"}

// MessageEvents writes an answer as the events of Anthropic's /v1/messages: message_start, blocks of text, thinking or tool
// use, message_delta with the stop reason and usage, message_stop. The zero value, with ID and Model, is ready.
type MessageEvents struct {
	ID, Model string

	begun bool
	block int    // how many were begun
	kind  string // of the block that is open, "" for none
	buf   []byte
}

// Send sends what a chunk says, event by event; data is valid until send returns. The first chunk begins the message, and
// its usage should tell of the prompt. One with a finish reason ends it; its usage is that of the whole.
func (m *MessageEvents) Send(c *Chunk, send func(name string, data []byte)) {
	if !m.begun {
		m.begun = true
		m.send(send, "message_start", func(b []byte) []byte {
			b = append(b, `,"message":`...)
			b = append(m.message(b), `,"content":[],"stop_reason":null,"stop_sequence":null`...)
			return append(c.Usage.appendAnthropic(b), '}')
		})
	}
	m.delta(send, "thinking", c.Reasoning)
	m.delta(send, "text", c.Text)
	for i := range c.ToolCalls {
		t := &c.ToolCalls[i]
		if t.Name != "" {
			m.open(send, "tool_use", func(b []byte) []byte {
				b = appendString(append(b, `,"id":`...), t.ID)
				b = appendString(append(b, `,"name":`...), t.Name)
				return append(b, `,"input":{}`...)
			})
		}
		m.delta(send, "tool_use", t.Arguments)
	}
	if c.Finish == "" {
		return
	}
	m.close(send)
	m.send(send, "message_delta", func(b []byte) []byte {
		return c.Usage.appendAnthropic(append(appendStop(append(b, `,"delta":{`...), c), '}'))
	})
	m.send(send, "message_stop", func(b []byte) []byte { return b })
}

// deltas are the types and keys of deltas by the type of their block.
var deltas = map[string][2]string{"text": {"text_delta", "text"}, "thinking": {"thinking_delta", "thinking"}, "tool_use": {"input_json_delta", "partial_json"}}

// delta sends a part of a block, which is opened where another is open.
func (m *MessageEvents) delta(send func(string, []byte), kind, text string) {
	if text == "" {
		return
	}
	if m.kind != kind {
		m.open(send, kind, func(b []byte) []byte { return append(append(append(b, `,"`...), deltas[kind][1]...), `":""`...) })
	}
	m.send(send, "content_block_delta", func(b []byte) []byte {
		b = strconv.AppendInt(append(b, `,"index":`...), int64(m.block-1), 10)
		b = append(append(append(b, `,"delta":{"type":"`...), deltas[kind][0]...), `","`...)
		b = append(append(b, deltas[kind][1]...), `":`...)
		return append(appendString(b, text), '}')
	})
}

// open begins a block.
func (m *MessageEvents) open(send func(string, []byte), kind string, fields func([]byte) []byte) {
	m.close(send)
	m.kind = kind
	m.block++
	m.send(send, "content_block_start", func(b []byte) []byte {
		b = strconv.AppendInt(append(b, `,"index":`...), int64(m.block-1), 10)
		b = append(append(append(b, `,"content_block":{"type":"`...), kind...), '"')
		return append(fields(b), '}')
	})
}

// close ends the block that is open.
func (m *MessageEvents) close(send func(string, []byte)) {
	if m.kind == "" {
		return
	}
	m.kind = ""
	m.send(send, "content_block_stop", func(b []byte) []byte { return strconv.AppendInt(append(b, `,"index":`...), int64(m.block-1), 10) })
}

func (m *MessageEvents) send(send func(string, []byte), name string, fields func([]byte) []byte) {
	m.buf = append(append(append(m.buf[:0], `{"type":"`...), name...), '"')
	m.buf = append(fields(m.buf), '}')
	send(name, m.buf)
}

// message appends the beginning of a message object.
func (m *MessageEvents) message(b []byte) []byte {
	b = appendString(append(b, `{"id":`...), m.ID)
	return appendString(append(b, `,"type":"message","role":"assistant","model":`...), m.Model)
}

// appendMessage appends a whole answer that is not streamed.
func (a *Answer) appendMessage(b []byte, c *Chunk) []byte {
	m := MessageEvents{ID: a.ID, Model: a.Model}
	b = append(m.message(b), `,"content":[`...)
	comma := func() {
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
	}
	if c.Reasoning != "" {
		b = append(appendString(append(b, `{"type":"thinking","thinking":`...), c.Reasoning), '}')
	}
	if c.Text != "" {
		comma()
		b = append(appendString(append(b, `{"type":"text","text":`...), c.Text), '}')
	}
	for i := range c.ToolCalls {
		t := &c.ToolCalls[i]
		comma()
		b = appendString(append(b, `{"type":"tool_use","id":`...), t.ID)
		b = appendString(append(b, `,"name":`...), t.Name)
		b = append(append(append(b, `,"input":`...), asJSON(t.Arguments)...), '}')
	}
	return append(c.Usage.appendAnthropic(appendStop(append(b, `],`...), c)), '}')
}

// asJSON is the arguments of a tool call as a JSON value: what a model generates need not be one.
func asJSON(arguments string) []byte {
	if json.Valid([]byte(arguments)) {
		return []byte(arguments)
	}
	return append(appendString([]byte(`{"arguments":`), arguments), '}')
}

// appendStop appends why an answer ended.
func appendStop(b []byte, c *Chunk) []byte {
	reason := c.Finish
	if named, ok := stopReasons[reason]; ok {
		reason = named
	}
	if c.Stop != "" {
		b = append(b, `"stop_reason":"stop_sequence","stop_sequence":`...)
		return appendString(b, c.Stop)
	}
	return append(appendString(append(b, `"stop_reason":`...), reason), `,"stop_sequence":null`...)
}

// appendAnthropic appends the key of usage in Anthropic's terms, whose input leaves out what the cache had; nothing for nil.
func (u *Usage) appendAnthropic(b []byte) []byte {
	value := func(n *int64) int64 {
		if n == nil {
			return 0
		}
		return *n
	}
	if u == nil {
		return b
	}
	b = strconv.AppendInt(append(b, `,"usage":{"input_tokens":`...), max(0, value(u.Prompt)-value(u.Cached)), 10)
	if u.Cached != nil {
		b = strconv.AppendInt(append(b, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`...), *u.Cached, 10)
	}
	return append(strconv.AppendInt(append(b, `,"output_tokens":`...), value(u.Completion), 10), '}')
}

// AppendMessages appends the body that Anthropic sends for the error, by status or as an event named error.
func (e *Error) AppendMessages(b []byte) []byte {
	b = appendString(append(b, `{"type":"error","error":{"type":`...), e.anthropicType())
	return append(appendString(append(b, `,"message":`...), e.Message), "}}"...)
}

// anthropicType is Anthropic's word for the kind of an error.
func (e *Error) anthropicType() string {
	switch e.Status {
	case 400, 422:
		return "invalid_request_error"
	case 401:
		return "authentication_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 413:
		return "request_too_large"
	case 429:
		return "rate_limit_error"
	case 503, 529:
		return "overloaded_error"
	}
	return "api_error"
}
