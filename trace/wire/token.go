package wire

import (
	"unicode/utf8"

	"github.com/goccy/go-json"
)

// parseToken reads an event that holds a piece of text and nothing out of the ordinary, as nearly all events of OpenAI's
// completions and chats do, some ten times as fast as by decoding it. It is false, and the chunk is to be read anew, for
// all others.
func (c *Chunk) parseToken(data []byte) bool {
	id, model := c.ID, c.Model
	*c = Chunk{ToolCalls: c.ToolCalls[:0], TokenIDs: c.TokenIDs[:0]}
	o := object{text: data}
	choices := 0
	for o.next() {
		ok := true
		switch string(o.key) {
		case "id":
			c.ID, ok = text(o.value, id)
		case "model":
			c.Model, ok = text(o.value, model)
		case "choices":
			choices++
			ok = c.parseChoices(o.value)
		case "usage", "error":
			ok = string(o.value) == "null"
		case "object":
			ok = string(o.value) == `"chat.completion.chunk"` || string(o.value) == `"text_completion"`
		case "created", "system_fingerprint", "service_tier", "obfuscation":
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return choices == 1 && o.whole && o.skip() == 0
}

// parseChoices reads the choices of an event where there is one.
func (c *Chunk) parseChoices(list []byte) bool {
	if list[0] != '[' {
		return false
	}
	o := object{text: list, at: 1}
	for o.next() {
		ok := true
		switch string(o.key) {
		case "index":
			ok = string(o.value) == "0"
		case "text":
			ok = c.parseText(o.value)
		case "delta":
			ok = c.parseDelta(o.value)
		case "logprobs", "finish_reason", "stop_reason", "matched_stop", "token_ids":
			ok = string(o.value) == "null"
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return o.whole && o.skip() == ']' && o.at == len(list)-1
}

func (c *Chunk) parseDelta(delta []byte) bool {
	o := object{text: delta}
	for o.next() {
		ok := true
		switch string(o.key) {
		case "content":
			ok = c.parseText(o.value)
		case "reasoning_content":
			if string(o.value) != "null" {
				c.Reasoning, ok = text(o.value, "")
			}
		case "role":
			c.Role, ok = text(o.value, "assistant")
		default:
			ok = string(o.value) == "null"
		}
		if !ok {
			return false
		}
	}
	return o.whole && o.skip() == 0
}

// parseText reads the one text of an event.
func (c *Chunk) parseText(value []byte) bool {
	ok := c.Text == ""
	if ok {
		c.Text, ok = text(value, "")
	}
	return ok
}

// text reads a JSON string. It is expected to be known, which then is returned.
func text(value []byte, known string) (string, bool) {
	if value[0] != '"' || len(value) < 2 || len(value) != stringEnd(value) || value[len(value)-1] != '"' {
		return "", false
	}
	inner := value[1 : len(value)-1]
	if string(inner) == known {
		return known, true
	}
	for _, b := range inner {
		if b < ' ' || b == '\\' {
			var s string
			err := json.Unmarshal(value, &s)
			return s, err == nil
		}
	}
	if !utf8.Valid(inner) {
		return "", false
	}
	return string(inner), true
}
