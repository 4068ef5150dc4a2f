package wire

import (
	"bytes"
	"strings"

	"github.com/goccy/go-json"
)

// responseEvent is what an event of /v1/responses of OpenAI has beside the other dialects, and an answer that was not
// streamed.
type responseEvent struct {
	Response    *response      `json:"response"`
	Item        *responseItem  `json:"item"`
	OutputIndex int            `json:"output_index"`
	Output      []responseItem `json:"output"`
	Status      string         `json:"status"`
	Incomplete  *incomplete    `json:"incomplete_details"`
}

// response is the state of an answer that its first and last events tell. Its output came in events before.
type response struct {
	ID         string          `json:"id"`
	Model      string          `json:"model"`
	Status     string          `json:"status"`
	Usage      *usage          `json:"usage"`
	Error      json.RawMessage `json:"error"`
	Incomplete *incomplete     `json:"incomplete_details"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

// responseItem is a part of an answer: a message, reasoning, or the call of a tool.
type responseItem struct {
	Type    string         `json:"type"`
	Content []responsePart `json:"content"`
	Summary []responsePart `json:"summary"`
	CallID  string         `json:"call_id"`
	Name    string         `json:"name"`
	// Arguments are of a function_call, Input of a custom_tool_call.
	Arguments string `json:"arguments"`
	Input     string `json:"input"`
}

type responsePart struct {
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// eventDelta is the delta of an event: text in /v1/responses, an object in Anthropic's messages.
type eventDelta struct {
	delta
	text string
}

// UnmarshalJSON reads either.
func (d *eventDelta) UnmarshalJSON(text []byte) error {
	if text = bytes.TrimSpace(text); len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, &d.text)
	}
	return json.Unmarshal(text, &d.delta)
}

// takeResponse reads an event of /v1/responses, or the whole answer.
func (c *Chunk) takeResponse(e *event) {
	text := ""
	if e.Delta != nil {
		text = e.Delta.text
	}
	switch e.Type {
	case "": // an answer that was not streamed
		c.Role = "assistant"
		c.Finish = finishOf(e.Status, e.Incomplete)
		for i := range e.Output {
			c.takeItem(i, &e.Output[i])
		}
	case "response.output_item.added":
		if e.Item != nil && e.Item.CallID != "" {
			c.takeItem(e.OutputIndex, &responseItem{Type: e.Item.Type, CallID: e.Item.CallID, Name: e.Item.Name})
		}
	case "response.output_text.delta", "response.refusal.delta":
		c.Text = text
	case "response.reasoning_text.delta", "response.reasoning_summary_text.delta":
		c.Reasoning = text
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		c.ToolCalls = append(c.ToolCalls, ToolCall{Index: e.OutputIndex, Arguments: text})
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		c.End = true
	}
	if r := e.Response; r != nil {
		c.ID, c.Model, c.Usage = r.ID, r.Model, r.Usage.normal()
		if c.End {
			c.Finish = finishOf(r.Status, r.Incomplete)
		}
		if len(r.Error) > 0 && string(r.Error) != "null" {
			c.Err = ParseError(0, bytes.Clone(r.Error))
		}
	}
}

func (c *Chunk) takeItem(index int, item *responseItem) {
	switch {
	case item.CallID != "":
		name := item.Name
		if name == "" {
			name = strings.TrimSuffix(item.Type, "_call") // local_shell_call has none
		}
		c.ToolCalls = append(c.ToolCalls, ToolCall{index, item.CallID, name, item.Arguments + item.Input})
	case item.Type == "reasoning":
		for _, part := range append(item.Summary, item.Content...) {
			c.Reasoning += part.Text
		}
	default:
		for _, part := range item.Content {
			c.Text += part.Text + part.Refusal
		}
	}
}

// finishOf is why a response ended: the reason why it is incomplete, else its status.
func finishOf(status string, why *incomplete) string {
	if why != nil && why.Reason != "" {
		return why.Reason
	}
	return status
}

// FinishReason is the word of OpenAI's chats for the reason why an answer ended, given in the word of any dialect: stop,
// length, tool_calls, content_filter. A response of OpenAI does not say that it ended with a call: calls tells it.
func FinishReason(word string, calls bool) string {
	switch word {
	case "end_turn", "stop_sequence", "completed", "pause_turn":
		if word == "completed" && calls {
			return "tool_calls"
		}
		return "stop"
	case "max_tokens", "max_output_tokens", "model_context_window_exceeded":
		return "length"
	case "tool_use":
		return "tool_calls"
	case "refusal":
		return "content_filter"
	}
	return word
}
