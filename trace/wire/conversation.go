package wire

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-json"
)

// The triggers of a request: what its prompt ends with (input_trigger of Dynamo's traces).
const (
	UserMessage = "user_message"
	ToolResult  = "tool_result"
	OtherInput  = "other"
)

// Conversation is what a request of any dialect puts before the model, in one form: equal conversations have equal items
// whichever way their client wrote them, and a later turn has those of an earlier one, with more behind them.
type Conversation struct {
	Model string
	// Preamble is the definitions of tools and the system prompt that stand before the items.
	Preamble string
	Items    []Item
	// Tokens are the prompt where it was sent as token ids.
	Tokens []uint32
	// Previous is the response that this one goes on from (previous_response_id): its items are not here.
	Previous string
	// Answers is how many answers are wanted.
	Answers int64
	Hints   *AgentHints

	// Trigger is UserMessage, ToolResult or OtherInput, by Dynamo's rule.
	Trigger string
}

// Item is one message of a conversation, or the call or the result of a tool.
type Item struct {
	// Role is user, assistant, system, developer or tool; "" of a plain prompt.
	Role string
	Text string
	// Reasoning is what an assistant thought, where the client sends it back.
	Reasoning string
	// Calls are the tools that an assistant called. Results tells that the item holds the result of a tool.
	Calls   []ToolCall
	Results bool
}

// body is a request of any dialect, as far as its prompt goes.
type body struct {
	Model              string          `json:"model"`
	Prompt             *Prompt         `json:"prompt"`
	System             json.RawMessage `json:"system"`
	Instructions       string          `json:"instructions"`
	Tools              json.RawMessage `json:"tools"`
	Messages           []bodyItem      `json:"messages"`
	Input              json.RawMessage `json:"input"`
	PreviousResponseID string          `json:"previous_response_id"`
	N                  *int64          `json:"n"`
	Nvext              *Nvext          `json:"nvext"`
}

// bodyItem is a message of chat or of Anthropic, or an item of responses.
type bodyItem struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	ReasoningContent string          `json:"reasoning_content"`
	Reasoning        string          `json:"reasoning"`
	ToolCalls        []toolCall      `json:"tool_calls"`

	// Of responses.
	Type      string          `json:"type"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`
	Output    json.RawMessage `json:"output"`
	Summary   json.RawMessage `json:"summary"`
}

// bodyPart is a part of a message's content.
type bodyPart struct {
	Type     string          `json:"type"`
	Text     *string         `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Content  json.RawMessage `json:"content"` // of a tool_result
}

// ParseConversation reads the body of a request to /v1/completions, /v1/chat/completions, /v1/responses or /v1/messages.
func ParseConversation(text []byte) (*Conversation, error) {
	if err := checkDepth(text); err != nil {
		return nil, err
	}
	var b body
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("request body: %w", err)
	}
	c := &Conversation{Model: b.Model, Previous: b.PreviousResponseID, Answers: 1, Trigger: OtherInput}
	if b.N != nil {
		c.Answers = *b.N
	}
	if b.Nvext != nil {
		c.Hints = b.Nvext.AgentHints
	}
	c.Preamble = string(stripCacheControl(b.Tools)) + b.Instructions
	if len(b.System) > 0 {
		var system Item
		if err := system.content(b.System); err != nil {
			return nil, fmt.Errorf("request body: system: %w", err)
		}
		c.Preamble += system.Text
	}
	if p := b.Prompt; p != nil {
		if len(p.Batch) == 1 {
			p = &p.Batch[0]
		}
		c.Tokens = p.Tokens
		for i := range p.Batch {
			c.Items = append(c.Items, Item{Text: p.Batch[i].Text})
		}
		if p.Text != "" {
			c.Items = append(c.Items, Item{Text: p.Text})
		}
	}
	if err := c.input(&b); err != nil {
		return nil, err
	}
	for i := range b.Messages {
		if err := c.add(&b.Messages[i]); err != nil {
			return nil, fmt.Errorf("request body: message %d: %w", i, err)
		}
	}
	if n := len(c.Items); n > 0 {
		switch last := &c.Items[n-1]; {
		case last.Results:
			c.Trigger = ToolResult
		case last.Role == "user":
			c.Trigger = UserMessage
		}
	}
	return c, nil
}

// input reads the input of responses: a text, or items.
func (c *Conversation) input(b *body) error {
	raw := bytes.TrimSpace(b.Input)
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if raw[0] == '"' {
		item := Item{Role: "user"}
		if err := json.Unmarshal(raw, &item.Text); err != nil {
			return fmt.Errorf("request body: input: %w", err)
		}
		c.Items = append(c.Items, item)
		return nil
	}
	if err := json.Unmarshal(raw, &b.Messages); err != nil {
		return fmt.Errorf("request body: input: %w", err)
	}
	return nil
}

// add adds a message or item. Calls of tools, which responses list as items of their own, join the assistant's message
// before them, so that they stand where chats have them.
func (c *Conversation) add(m *bodyItem) error {
	item := Item{Role: m.Role}
	switch {
	case m.CallID != "" && len(m.Output) > 0: // function_call_output, custom_tool_call_output
		item.Role, item.Results = "tool", true
		if err := item.content(m.Output); err != nil {
			return err
		}
	case m.CallID != "":
		item.Role = "assistant"
		item.Calls = append(item.Calls, ToolCall{ID: m.CallID, Name: m.Name, Arguments: m.Arguments + m.Input})
	case m.Type == "reasoning": // encrypted by OpenAI's servers
		return nil
	default:
		item.Results = m.Role == "tool" || m.Role == "function"
		if item.Reasoning = m.ReasoningContent; item.Reasoning == "" {
			item.Reasoning = m.Reasoning
		}
		if err := item.content(m.Content); err != nil {
			return err
		}
		for i := range m.ToolCalls {
			t := &m.ToolCalls[i]
			item.Calls = append(item.Calls, ToolCall{Index: t.Index, ID: t.ID, Name: t.Function.Name, Arguments: t.Function.Arguments})
		}
	}
	if n := len(c.Items); n > 0 && m.CallID != "" && item.Calls != nil && c.Items[n-1].Role == "assistant" {
		c.Items[n-1].Calls = append(c.Items[n-1].Calls, item.Calls...)
		return nil
	}
	c.Items = append(c.Items, item)
	return nil
}

// content adds the content of a message: a string, or parts, of which those that are no text stand as their JSON.
func (item *Item) content(raw json.RawMessage) error {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil
	case raw[0] == '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
		item.Text += text
		return nil
	case raw[0] != '[':
		item.Text += string(stripCacheControl(raw))
		return nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	for _, text := range parts {
		if err := item.part(text); err != nil {
			return err
		}
	}
	return nil
}

func (item *Item) part(raw json.RawMessage) error {
	var p bodyPart
	if len(raw) > 0 && raw[0] == '"' {
		return item.content(raw)
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	switch {
	case p.Text != nil: // text, input_text, output_text
		item.Text += *p.Text
	case p.Type == "tool_use":
		item.Calls = append(item.Calls, ToolCall{Index: len(item.Calls), ID: p.ID, Name: p.Name, Arguments: string(p.Input)})
	case p.Type == "tool_result":
		item.Results = true
		return item.content(p.Content)
	case p.Type == "thinking":
		item.Reasoning += p.Thinking
	case p.Type == "redacted_thinking":
	default:
		item.Text += string(stripCacheControl(raw))
	}
	return nil
}

// Prompt is the text that stands for the prompt, with marks where a chat template has some, and behind it that of an answer;
// the prompt's ends at a length. That of a later turn begins with that of an earlier one and its answer.
func (c *Conversation) Prompt(answer *Item) (text string, length int) {
	var b strings.Builder
	b.Grow(c.size(answer))
	if c.Preamble != "" {
		b.WriteString("<|system|>\n" + c.Preamble)
	}
	for i := range c.Items {
		c.Items[i].write(&b)
	}
	if n := len(c.Items); n > 0 && c.Items[n-1].Role != "" && c.Items[n-1].Role != "assistant" {
		b.WriteString("<|assistant|>\n") // here the model begins
	}
	length = b.Len()
	answer.body(&b)
	return b.String(), length
}

// size is about the length of a prompt's text.
func (c *Conversation) size(answer *Item) int {
	n := len(c.Preamble) + len(answer.Text) + len(answer.Reasoning) + 64
	for i := range c.Items {
		n += len(c.Items[i].Text) + len(c.Items[i].Reasoning) + 16
	}
	return n
}

// AnswerText is the text of an answer as it stands in a prompt.
func AnswerText(answer *Item) string {
	var b strings.Builder
	answer.body(&b)
	return b.String()
}

func (item *Item) write(b *strings.Builder) {
	if item.Role != "" {
		b.WriteString("<|" + item.Role + "|>\n")
	}
	item.body(b)
}

func (item *Item) body(b *strings.Builder) {
	b.WriteString(item.Reasoning)
	b.WriteString(item.Text)
	for i := range item.Calls {
		b.WriteString("<|call|>" + item.Calls[i].Name + "\n" + item.Calls[i].Arguments)
	}
}

// stripCacheControl takes Anthropic's cache_control out of JSON: clients move it from turn to turn, and the model does not see
// it. The same JSON comes back where it has none.
func stripCacheControl(raw []byte) []byte {
	key := []byte(`"cache_control"`) // within a string its quotes would have backslashes
	if !bytes.Contains(raw, key) {
		return raw
	}
	var out []byte
	for {
		before, rest, found := bytes.Cut(raw, key)
		out = append(out, before...)
		if !found {
			return out
		}
		raw = bytes.TrimPrefix(skipSpace(rest), []byte(":"))
		raw = skipSpace(raw[valueEnd(raw):])
		if len(raw) > 0 && raw[0] == ',' {
			raw = skipSpace(raw[1:])
		} else {
			out = bytes.TrimSuffix(bytes.TrimRight(out, " \n\t\r"), []byte(","))
		}
	}
}
