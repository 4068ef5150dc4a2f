package wire

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-json"
)

// Request is a request body of /v1/completions, /v1/chat/completions or /v1/messages: what a replayer sends, a recorder
// notes and a server acts on. Nil pointers are keys that are absent. Fields beyond OpenAI's are vLLM's, but for Nvext, which
// is Dynamo's.
type Request struct {
	Model string `json:"model,omitempty"`
	// Prompt is of completions, Messages of chat; Anthropic has System beside Messages.
	Prompt   *Prompt         `json:"prompt,omitempty"`
	System   json.RawMessage `json:"system,omitempty"`
	Messages []Message       `json:"messages,omitempty"`
	Tools    json.RawMessage `json:"tools,omitempty"`

	MaxTokens           *int64         `json:"max_tokens,omitempty"`
	MaxCompletionTokens *int64         `json:"max_completion_tokens,omitempty"`
	MinTokens           *int64         `json:"min_tokens,omitempty"`
	IgnoreEOS           bool           `json:"ignore_eos,omitempty"`
	Stream              bool           `json:"stream,omitempty"`
	StreamOptions       *StreamOptions `json:"stream_options,omitempty"`
	// N is how many answers are wanted, 1 when absent.
	N      *int64 `json:"n,omitempty"`
	BestOf *int64 `json:"best_of,omitempty"`
	// Stop is a string or a list of strings that end the answer; Anthropic has StopSequences.
	Stop          json.RawMessage `json:"stop,omitempty"`
	StopSequences []string        `json:"stop_sequences,omitempty"`
	Seed          *int64          `json:"seed,omitempty"`
	Echo          bool            `json:"echo,omitempty"`
	// Priority orders requests, the lowest first (vLLM's --scheduling-policy priority).
	Priority *int64 `json:"priority,omitempty"`
	// ForceTokens are the ids that the answer is to have (vLLM's trace_decode_token_ids, with --enable-trace-replay).
	ForceTokens []uint32 `json:"trace_decode_token_ids,omitempty"`
	// ReturnTokenIDs asks for the ids of prompt and answer. CacheSalt sets requests with another salt apart.
	ReturnTokenIDs bool   `json:"return_token_ids,omitempty"`
	CacheSalt      string `json:"cache_salt,omitempty"`
	Nvext          *Nvext `json:"nvext,omitempty"`

	// Extra is written beside the others, in this order; ParseRequest does not fill it.
	Extra []Field `json:"-"`
}

// Field is one key of a body with its JSON value.
type Field struct {
	Key   string
	Value json.RawMessage
}

// StreamOptions choose what a stream says of usage: in a last chunk, or in each.
type StreamOptions struct {
	IncludeUsage         bool `json:"include_usage,omitempty"`
	ContinuousUsageStats bool `json:"continuous_usage_stats,omitempty"`
}

// Nvext is the part of Dynamo's extension that changes scheduling.
type Nvext struct {
	AgentHints  *AgentHints `json:"agent_hints,omitempty"`
	ExtraFields []string    `json:"extra_fields,omitempty"`
	CacheSalt   string      `json:"cache_salt,omitempty"`
}

// AgentHints are what an agent tells the router. OSL is the expected output in tokens.
type AgentHints struct {
	Priority       int32  `json:"priority,omitempty"`
	StrictPriority uint32 `json:"strict_priority,omitempty"`
	OSL            uint32 `json:"osl,omitempty"`
	// SpeculativePrefill and LatencySensitivity, the old name of priority, are passed on alone.
	SpeculativePrefill bool    `json:"speculative_prefill,omitempty"`
	LatencySensitivity float64 `json:"latency_sensitivity,omitempty"`
}

// ParseRequest reads a request body. Unknown keys are ignored.
func ParseRequest(body []byte) (*Request, error) {
	if err := checkDepth(body); err != nil {
		return nil, err
	}
	r := new(Request)
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("request body: %w", err)
	}
	return r, nil
}

// Limit is the most tokens that the answer may have; false when the request sets no limit.
func (r *Request) Limit() (int64, bool) {
	for _, limit := range []*int64{r.MaxCompletionTokens, r.MaxTokens} {
		if limit != nil {
			return *limit, true
		}
	}
	return 0, false
}

// Append appends the body as JSON.
func (r *Request) Append(b []byte) ([]byte, error) {
	text, err := json.MarshalWithOption(r, json.DisableHTMLEscape())
	if err != nil {
		return b, fmt.Errorf("request body: %w", err)
	}
	b = append(b, text[:len(text)-1]...)
	for i, f := range r.Extra {
		if i > 0 || len(text) > len("{}") {
			b = append(b, ',')
		}
		b = appendString(b, f.Key)
		b = append(append(b, ':'), f.Value...)
	}
	return append(b, '}'), nil
}

// Around returns the body in two parts with the value of key, such as "prompt" or "messages", between them, for clients
// whose prompts are large and share their text: body = head + value + tail. The request itself should not set that key.
func (r *Request) Around(key string) (head, tail []byte, err error) {
	body, err := r.Append(nil)
	if err != nil {
		return nil, nil, err
	}
	head = append(appendString([]byte{'{'}, key), ':')
	if len(body) > len("{}") {
		return head, append([]byte{','}, body[1:]...), nil
	}
	return head, body[1:], nil
}

// Prompt is the prompt of a completion: text, token ids, or several of either.
type Prompt struct {
	Text   string
	Tokens []uint32 // not nil where ids were sent
	Batch  []Prompt // not nil where several were sent
}

// maxBatch bounds the prompts of one request.
const maxBatch = 1 << 16

// UnmarshalJSON reads a string, an array of token ids, an array of strings, or an array of arrays of token ids.
func (p *Prompt) UnmarshalJSON(text []byte) error {
	*p = Prompt{}
	text = bytes.TrimSpace(text)
	switch {
	case len(text) > 0 && text[0] == '"':
		return json.Unmarshal(text, &p.Text)
	case len(text) == 0 || text[0] != '[':
		return fmt.Errorf("prompt is neither a string nor an array")
	}
	switch inner := skipSpace(text[1:]); {
	case len(inner) > 0 && (inner[0] == '"' || inner[0] == '['):
		var parts []json.RawMessage
		if err := json.Unmarshal(text, &parts); err != nil {
			return err
		}
		if len(parts) > maxBatch {
			return fmt.Errorf("prompt: %d prompts in one request, want at most %d", len(parts), maxBatch)
		}
		p.Batch = make([]Prompt, len(parts))
		for i, part := range parts {
			if err := p.Batch[i].UnmarshalJSON(part); err != nil {
				return err
			}
			if p.Batch[i].Batch != nil {
				return fmt.Errorf("prompt: arrays nest too deep")
			}
		}
		return nil
	}
	var err error
	p.Tokens, err = parseTokens(text)
	return err
}

// parseTokens reads an array of token ids, of which a long prompt has some 100,000.
func parseTokens(text []byte) ([]uint32, error) {
	if len(text) < 2 || text[len(text)-1] != ']' {
		return nil, fmt.Errorf("prompt: array of token ids is cut off")
	}
	tokens := make([]uint32, 0, bytes.Count(text, []byte(","))+1)
	rest := bytes.TrimSpace(text[1 : len(text)-1])
	for len(rest) > 0 {
		id, n := uint64(0), 0
		for n < len(rest) && rest[n]-'0' <= 9 && id <= math.MaxUint32 {
			id = id*10 + uint64(rest[n]-'0')
			n++
		}
		if n == 0 || id > math.MaxUint32 {
			return nil, fmt.Errorf("prompt: token %d is not a token id", len(tokens))
		}
		tokens = append(tokens, uint32(id))
		if rest = skipSpace(rest[n:]); len(rest) == 0 {
			break
		}
		if rest[0] != ',' || len(rest) == 1 {
			return nil, fmt.Errorf("prompt: token %d is not a token id", len(tokens)-1)
		}
		rest = skipSpace(rest[1:])
	}
	return tokens, nil
}

func skipSpace(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\n' || text[0] == '\t' || text[0] == '\r') {
		text = text[1:]
	}
	return text
}

// MarshalJSON writes the form that the prompt has.
func (p Prompt) MarshalJSON() ([]byte, error) {
	switch {
	case p.Batch != nil:
		return json.MarshalWithOption(p.Batch, json.DisableHTMLEscape())
	case p.Tokens != nil:
		return append(AppendTokens([]byte{'['}, p.Tokens), ']'), nil
	}
	return appendString(nil, p.Text), nil
}

// AppendTokens appends token ids with commas between them.
func AppendTokens(b []byte, tokens []uint32) []byte {
	for i, t := range tokens {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(t), 10)
	}
	return b
}

// Message is one message of a chat. Content is its text; parts that are no text (images, tool results of Anthropic) stand
// in it as their JSON, so that equal messages have equal content.
type Message struct {
	Role       string          `json:"role"`
	Content    Content         `json:"content"`
	Reasoning  string          `json:"reasoning_content,omitempty"`
	Name       string          `json:"name,omitempty"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

// Content is the text of a message, which is sent as a string or in parts.
type Content string

// UnmarshalJSON reads a string, null, or an array of parts.
func (c *Content) UnmarshalJSON(text []byte) error {
	*c = ""
	text = bytes.TrimSpace(text)
	switch {
	case string(text) == "null":
		return nil
	case len(text) > 0 && text[0] == '"':
		return json.Unmarshal(text, (*string)(c))
	case len(text) == 0 || text[0] != '[':
		return fmt.Errorf("content of a message is neither a string nor an array of parts")
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	var all strings.Builder
	for _, raw := range parts {
		var part struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		}
		if json.Unmarshal(raw, &part) == nil && part.Type == "text" && part.Text != nil {
			all.WriteString(*part.Text)
		} else {
			all.Write(raw)
		}
	}
	*c = Content(all.String())
	return nil
}

// maxDepth bounds how deep the JSON of a body may nest.
const maxDepth = 200

// checkDepth refuses text that nests deeper than a recursive decoder should follow.
func checkDepth(text []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted:
			next := bytes.IndexAny(text[i:], `"\`)
			if next < 0 {
				return nil // cut off; the decoder says so
			}
			if i += next; text[i] == '\\' {
				i++
			} else {
				quoted = false
			}
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("JSON nests deeper than %d", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}
