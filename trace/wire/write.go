package wire

import (
	"strconv"
	"unicode/utf8"

	"github.com/goccy/go-json"
)

// Dialect is the form of a request and of its answer.
type Dialect uint8

// The dialects and their paths: /v1/completions, /v1/chat/completions, /v1/messages, /v1/responses.
const (
	Completions Dialect = iota
	Chat
	Messages
	Responses
)

// Answer is what all events of an answer have in common, to write them as vLLM does.
type Answer struct {
	Dialect Dialect // events of Messages are written by MessageEvents
	ID      string
	Model   string
	// Created is Unix seconds.
	Created int64
	// Stream tells that the answer comes in events.
	Stream bool
}

// Append appends the JSON of one event of the answer, or of a whole answer that is not streamed. A chunk that has nothing
// but usage has no choices. Usage is null where the chunk has none.
func (a *Answer) Append(b []byte, c *Chunk) []byte {
	if a.Dialect == Messages {
		return a.appendMessage(b, c)
	}
	b = append(b, `{"id":`...)
	b = appendString(b, a.ID)
	b = append(b, `,"object":"`...)
	b = append(b, a.object()...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, a.Created, 10)
	b = append(b, `,"model":`...)
	b = appendString(b, a.Model)
	b = append(b, `,"choices":[`...)
	if c.Generates() || c.Usage == nil || c.Finish != "" || c.Role != "" || len(c.TokenIDs) > 0 {
		b = a.appendChoice(b, c)
	}
	b = append(b, `]`...)
	if a.Dialect == Chat && c.PromptTokenIDs != nil {
		b = appendTokenList(b, "prompt_token_ids", c.PromptTokenIDs)
	}
	b = append(b, `,"usage":`...)
	return append(c.Usage.append(b), '}')
}

func (a *Answer) object() string {
	switch {
	case a.Dialect != Chat:
		return "text_completion"
	case a.Stream:
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

func (a *Answer) appendChoice(b []byte, c *Chunk) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(c.Choice), 10)
	switch {
	case a.Dialect == Completions:
		b = append(b, `,"text":`...)
		b = appendString(b, c.Text)
	case a.Stream:
		b = append(b, `,"delta":`...)
		b = appendDelta(b, c)
	default:
		b = append(b, `,"message":`...)
		b = appendDelta(b, c)
	}
	b = append(b, `,"logprobs":null,"finish_reason":`...)
	if c.Finish == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, c.Finish)
	}
	if c.Stop != "" {
		b = appendString(append(b, `,"stop_reason":`...), c.Stop)
	}
	if len(c.TokenIDs) > 0 {
		b = appendTokenList(b, "token_ids", c.TokenIDs)
	}
	if a.Dialect == Completions && c.PromptTokenIDs != nil {
		b = appendTokenList(b, "prompt_token_ids", c.PromptTokenIDs)
	}
	return append(b, '}')
}

// appendDelta appends the keys of a delta or message that the chunk has.
func appendDelta(b []byte, c *Chunk) []byte {
	b = append(b, '{')
	comma := func() {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
	}
	if c.Role != "" {
		b = append(b, `"role":`...)
		b = appendString(b, c.Role)
	}
	if c.Text != "" || c.Role != "" {
		comma()
		b = append(b, `"content":`...)
		b = appendString(b, c.Text)
	}
	if c.Reasoning != "" {
		comma()
		b = append(b, `"reasoning_content":`...)
		b = appendString(b, c.Reasoning)
	}
	if len(c.ToolCalls) > 0 {
		comma()
		b = append(b, `"tool_calls":[`...)
		for i := range c.ToolCalls {
			t := &c.ToolCalls[i]
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"index":`...)
			b = strconv.AppendInt(b, int64(t.Index), 10)
			if t.ID != "" {
				b = append(b, `,"id":`...)
				b = appendString(b, t.ID)
				b = append(b, `,"type":"function"`...)
			}
			b = append(b, `,"function":{`...)
			if t.Name != "" {
				b = append(b, `"name":`...)
				b = append(appendString(b, t.Name), ',')
			}
			b = append(b, `"arguments":`...)
			b = append(appendString(b, t.Arguments), "}}"...)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func appendTokenList(b []byte, key string, tokens []uint32) []byte {
	b = append(b, `,"`...)
	b = append(b, key...)
	b = append(b, `":[`...)
	return append(AppendTokens(b, tokens), ']')
}

// append appends the usage as vLLM does; null for nil.
func (u *Usage) append(b []byte) []byte {
	if u == nil {
		return append(b, "null"...)
	}
	total := int64(0)
	field := func(before, key string, n *int64) {
		if n != nil {
			b = append(b, before...)
			b = append(b, key...)
			b = strconv.AppendInt(b, *n, 10)
		}
	}
	for _, n := range []*int64{u.Prompt, u.Completion} {
		if n != nil {
			total += *n
		}
	}
	field("{", `"total_tokens":`, &total)
	field(",", `"prompt_tokens":`, u.Prompt)
	field(",", `"completion_tokens":`, u.Completion)
	if u.Cached != nil {
		field(`,"prompt_tokens_details":{`, `"cached_tokens":`, u.Cached)
		b = append(b, '}')
	}
	if u.Reasoning != nil {
		field(`,"completion_tokens_details":{`, `"reasoning_tokens":`, u.Reasoning)
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			text, _ := json.MarshalWithOption(s, json.DisableHTMLEscape()) // a string cannot fail
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
