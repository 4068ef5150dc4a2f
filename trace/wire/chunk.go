package wire

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-json"
)

// Chunk is what one event of a streamed answer says, or a whole answer that was not streamed, whichever the dialect.
type Chunk struct {
	// ID and Model are those of the answer, where the event has them.
	ID, Model string
	// Choice is the index of the answer that this is of, for requests with n > 1.
	Choice int
	// Role is set by the event that begins an answer. An event that says nothing else is not a token.
	Role string
	// Text is what was generated, Reasoning what the model thought.
	Text, Reasoning string
	// ToolCalls are parts of tool calls: the first part of each has its name.
	ToolCalls []ToolCall
	// TokenIDs are the ids of what was generated, PromptTokenIDs those of the prompt, where the request asked for them
	// (vLLM's return_token_ids).
	TokenIDs, PromptTokenIDs []uint32
	// Finish is why the answer ended, in the dialect's word; "" while it goes on.
	Finish string
	// Stop is the stop string that ended it; "" for another reason.
	Stop string
	// Usage is the tokens so far; nil where the event does not tell.
	Usage *Usage
	// UsageOnly marks the event that OpenAI's streams end with when usage was asked for.
	UsageOnly bool
	// Err is a failure told inside an answer that began with status 200.
	Err *Error
	// End is Anthropic's message_stop, or the last event of a response of OpenAI: like [DONE] it ends the stream.
	End bool
}

// ToolCall is a part of a tool call. Parts of one call have its Index; Arguments are to be joined.
type ToolCall struct {
	Index     int
	ID, Name  string
	Arguments string
}

// Generates tells whether the chunk holds anything that the model generated. A role, a finish reason, usage or an empty
// text alone do not.
func (c *Chunk) Generates() bool {
	return c.Text != "" || c.Reasoning != "" || len(c.ToolCalls) > 0
}

// Usage is the tokens of a request; nil where the server does not tell.
type Usage struct {
	// Prompt counts all prompt tokens, Cached those of them that the KV cache had. (Anthropic's input_tokens leave out
	// those that were read from or written to its cache; here they are in.)
	Prompt, Cached *int64
	// Completion counts all generated tokens, Reasoning those of them that were reasoning.
	Completion, Reasoning *int64
}

// Update takes over what a later event says.
func (u *Usage) Update(v *Usage) {
	if v == nil {
		return
	}
	for _, f := range []struct{ to, from **int64 }{{&u.Prompt, &v.Prompt}, {&u.Cached, &v.Cached},
		{&u.Completion, &v.Completion}, {&u.Reasoning, &v.Reasoning}} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
}

// event is the JSON of an answer in all dialects.
type event struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage"`
	// PromptTokenIDs stand here in chat, in the choice in completions.
	PromptTokenIDs []uint32        `json:"prompt_token_ids"`
	Error          json.RawMessage `json:"error"`

	// Anthropic's.
	Type         string          `json:"type"`
	Message      json.RawMessage `json:"message"` // message_start; or the text of an error
	Index        int             `json:"index"`
	Delta        *eventDelta     `json:"delta"`
	ContentBlock *contentBlock   `json:"content_block"`
	Content      []contentBlock  `json:"content"`
	Role         string          `json:"role"`
	StopReason   string          `json:"stop_reason"`
	StopSequence string          `json:"stop_sequence"`

	responseEvent
}

type choice struct {
	Index          int      `json:"index"`
	Text           string   `json:"text"`
	Delta          *delta   `json:"delta"`
	Message        *delta   `json:"message"`
	FinishReason   string   `json:"finish_reason"`
	TokenIDs       []uint32 `json:"token_ids"`
	PromptTokenIDs []uint32 `json:"prompt_token_ids"`
	// StopReason is a string, the id of a token, or null.
	StopReason json.RawMessage `json:"stop_reason"`
}

// delta is OpenAI's delta or message, or Anthropic's delta.
type delta struct {
	Role             string     `json:"role"`
	Content          Content    `json:"content"`
	ReasoningContent string     `json:"reasoning_content"`
	Reasoning        string     `json:"reasoning"`
	ToolCalls        []toolCall `json:"tool_calls"`

	Text        string `json:"text"`
	Thinking    string `json:"thinking"`
	PartialJSON string `json:"partial_json"`

	StopReason   string `json:"stop_reason"`
	StopSequence string `json:"stop_sequence"`
}

type toolCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// contentBlock is a block of an answer of Anthropic.
type contentBlock struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
}

// usage is OpenAI's and Anthropic's.
type usage struct {
	PromptTokens        *int64 `json:"prompt_tokens"`
	CompletionTokens    *int64 `json:"completion_tokens"`
	PromptTokensDetails *struct {
		CachedTokens *int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokensDetails *struct {
		ReasoningTokens *int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	ReasoningTokens *int64 `json:"reasoning_tokens"` // SGLang

	InputTokens        *int64 `json:"input_tokens"`
	OutputTokens       *int64 `json:"output_tokens"`
	InputTokensDetails *struct {
		CachedTokens *int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"` // of responses
	OutputTokensDetails *struct {
		ReasoningTokens *int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	CacheReadInputTokens     *int64 `json:"cache_read_input_tokens"`
	CacheCreationInputTokens *int64 `json:"cache_creation_input_tokens"`
}

// Parse reads the data of an event, or the body of an answer that was not streamed, into the chunk. Of an answer with
// several choices it takes the first. Data that is no JSON is an error; JSON that says nothing known is an empty chunk.
func (c *Chunk) Parse(data []byte) error {
	*c = Chunk{ToolCalls: c.ToolCalls[:0], TokenIDs: c.TokenIDs[:0]}
	if err := checkDepth(data); err != nil {
		return fmt.Errorf("event: %w", err)
	}
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("event: %w", err)
	}
	c.ID, c.Model, c.PromptTokenIDs, c.Usage = e.ID, e.Model, e.PromptTokenIDs, e.Usage.normal()
	c.Err = e.failure(data)
	if len(e.Choices) > 0 {
		c.takeChoice(&e.Choices[0])
	}
	switch {
	case e.Object == "response" || strings.HasPrefix(e.Type, "response."):
		c.takeResponse(&e)
	case e.Type != "":
		return c.takeAnthropic(&e)
	default:
		c.UsageOnly = c.Usage != nil && len(e.Choices) == 0 && c.Err == nil
	}
	return nil
}

func (c *Chunk) takeChoice(o *choice) {
	c.Choice, c.Text, c.Finish, c.TokenIDs = o.Index, o.Text, o.FinishReason, append(c.TokenIDs, o.TokenIDs...)
	if r := o.StopReason; len(r) > 0 && r[0] == '"' {
		c.Stop = plain(r)
	}
	if o.PromptTokenIDs != nil {
		c.PromptTokenIDs = o.PromptTokenIDs
	}
	for _, d := range []*delta{o.Delta, o.Message} {
		if d == nil {
			continue
		}
		c.Role = d.Role
		c.Text += string(d.Content)
		c.Reasoning = d.ReasoningContent
		if c.Reasoning == "" { // some servers send both, with the same text
			c.Reasoning = d.Reasoning
		}
		for i := range d.ToolCalls {
			t := &d.ToolCalls[i]
			c.ToolCalls = append(c.ToolCalls, ToolCall{t.Index, t.ID, t.Function.Name, t.Function.Arguments})
		}
	}
}

// takeAnthropic reads what only Anthropic's events have.
func (c *Chunk) takeAnthropic(e *event) error {
	switch e.Type {
	case "message_start":
		var m event
		if err := json.Unmarshal(e.Message, &m); err != nil {
			return fmt.Errorf("event message_start: %w", err)
		}
		c.ID, c.Model, c.Role, c.Usage = m.ID, m.Model, m.Role, m.Usage.normal()
	case "message": // an answer that was not streamed
		c.Role, c.Finish, c.Stop = e.Role, e.StopReason, e.StopSequence
		for i := range e.Content {
			c.takeBlock(i, &e.Content[i])
		}
	case "content_block_start":
		if e.ContentBlock != nil {
			e.ContentBlock.Input = nil // {}, until the deltas
			c.takeBlock(e.Index, e.ContentBlock)
		}
	case "content_block_delta":
		if d := e.Delta; d != nil {
			c.Text, c.Reasoning = d.Text, d.Thinking
			if d.PartialJSON != "" {
				c.ToolCalls = append(c.ToolCalls, ToolCall{Index: e.Index, Arguments: d.PartialJSON})
			}
		}
	case "message_delta":
		if e.Delta != nil {
			c.Finish, c.Stop = e.Delta.StopReason, e.Delta.StopSequence
		}
	case "message_stop":
		c.End = true
	}
	return nil
}

func (c *Chunk) takeBlock(index int, b *contentBlock) {
	c.Text += b.Text
	c.Reasoning += b.Thinking
	if b.Type == "tool_use" {
		c.ToolCalls = append(c.ToolCalls, ToolCall{index, b.ID, b.Name, string(b.Input)})
	}
}

// normal is the usage in the terms of Usage.
func (u *usage) normal() *Usage {
	if u == nil {
		return nil
	}
	n := &Usage{Prompt: u.PromptTokens, Completion: u.CompletionTokens, Reasoning: u.ReasoningTokens, Cached: u.CacheReadInputTokens}
	if d := u.PromptTokensDetails; d != nil {
		n.Cached = d.CachedTokens
	}
	if d := u.CompletionTokensDetails; d != nil {
		n.Reasoning = d.ReasoningTokens
	}
	if d := u.InputTokensDetails; d != nil {
		n.Cached = d.CachedTokens
	}
	if d := u.OutputTokensDetails; d != nil {
		n.Reasoning = d.ReasoningTokens
	}
	if u.OutputTokens != nil {
		n.Completion = u.OutputTokens
	}
	if u.InputTokens != nil {
		all := *u.InputTokens
		for _, part := range []*int64{u.CacheReadInputTokens, u.CacheCreationInputTokens} {
			if part != nil {
				all += *part
			}
		}
		n.Prompt = &all
	}
	return n
}

// failure is the error that an event tells, nil when it tells none.
func (e *event) failure(data []byte) *Error {
	if len(e.Error) > 0 && string(e.Error) != "null" || e.Object == "error" || e.Type == "error" {
		return ParseError(0, bytes.Clone(data))
	}
	return nil
}
