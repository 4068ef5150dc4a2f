package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace/wire"
)

// Request is one call to send.
type Request struct {
	// Server is the index of the URL.
	Server int
	// ID is the X-Request-ID.
	ID      string
	Session wire.Session
	Model   string
	// Prompt is one of messages where the endpoint is Chat.
	Prompt *prompts.Prompt
	// MaxTokens is the output to generate; at least 1 is asked for.
	MaxTokens int32
	// Force are the token ids that the answer is to have, nil for any.
	Force []uint32
	// Hints are for the server's router; nil for none.
	Hints *wire.AgentHints
	// Cancel closes the connection once MaxTokens tokens have come or, where MaxTokens is 0, after CancelAfter. A few tokens
	// more are asked for, so that the answer is not over by then.
	Cancel      bool
	CancelAfter time.Duration
	// Retries counts attempts that a server refused because of a field which is now left out.
	Retries int
}

// optional is a field that not every server takes.
type optional struct {
	name string
	// signs are what a refusal says of it, in lower case.
	signs []string
}

// The fields that are left out when a server refuses them, by bit.
const (
	fieldMinTokens = iota
	fieldIgnoreEOS
	fieldStreamOptions
	fieldTokenIDs
	fieldForce
	fieldHints
	fieldMaxTokens
)

// cancelledTokens are asked for beyond those after which a request is cancelled.
const cancelledTokens = 64

var optionals = [...]optional{
	fieldMinTokens:     {"min_tokens", []string{"min_tokens"}},
	fieldIgnoreEOS:     {"ignore_eos", []string{"ignore_eos"}},
	fieldStreamOptions: {"stream_options", []string{"stream_options", "include_usage"}},
	fieldTokenIDs:      {"return_token_ids", []string{"return_token_ids"}},
	fieldForce:         {"trace_decode_token_ids", []string{"trace_decode_token_ids"}},
	fieldHints:         {"nvext.agent_hints", []string{"nvext", "agent_hints"}},
	fieldMaxTokens:     {"max_tokens", []string{"max_completion_tokens"}}, // the name to use instead
}

// drop notes a field that a refusal names, and tells whether the request should be sent again. used is what was left out
// of the refused request.
func (c *Client) drop(e *Failure, used uint32) bool {
	if e.Kind != FailStatus || !e.fields {
		return false
	}
	text := strings.ToLower(e.Param + " " + e.Text)
	for bit, field := range optionals {
		if used&(1<<bit) != 0 || bit == fieldMaxTokens && c.options.Endpoint != Chat {
			continue
		}
		for _, sign := range field.signs {
			if strings.Contains(text, sign) {
				c.dropped.Or(1 << bit)
				return true
			}
		}
	}
	return false
}

// Dropped are the fields that a server refused and that are left out since.
func (c *Client) Dropped() []string {
	var names []string
	for bit, field := range optionals {
		if c.dropped.Load()&(1<<bit) != 0 {
			names = append(names, field.name)
		}
	}
	return names
}

// request makes the HTTP request. The prompt is written while it is made.
func (c *Client) request(ctx context.Context, r *Request, dropped uint32) (*http.Request, error) {
	head, tail, err := c.body(r, dropped)
	if err != nil {
		return nil, err
	}
	path := "/v1/completions"
	if c.options.Endpoint == Chat {
		path = "/v1/chat/completions"
	}
	body := func() io.Reader {
		return io.MultiReader(bytes.NewReader(head), r.Prompt.Reader(), bytes.NewReader(tail))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.bases[r.Server]+path, body())
	if err != nil {
		return nil, err
	}
	req.ContentLength = int64(len(head)) + r.Prompt.Len() + int64(len(tail))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(body()), nil }
	h := req.Header
	// A connection that the server closed while it was idle is no fault of the server: the transport sends such a request
	// again. The key itself is not sent.
	h["X-Idempotency-Key"] = []string{}
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "text/event-stream")
	if c.options.Key != "" {
		h.Set("Authorization", "Bearer "+c.options.Key)
	}
	if r.ID != "" {
		h.Set(wire.HeaderRequestID, r.ID)
	}
	switch c.options.SessionHeader {
	case "":
		r.Session.Set(h)
	case "none":
	default:
		h.Set(c.options.SessionHeader, r.Session.ID)
	}
	return req, nil
}

// body returns what stands before and after the prompt.
func (c *Client) body(r *Request, dropped uint32) (head, tail []byte, err error) {
	tokens := int64(max(r.MaxTokens, 1))
	if r.Cancel {
		tokens = int64(r.MaxTokens) + cancelledTokens
	}
	with := func(bit int) bool { return dropped&(1<<bit) == 0 }
	q := wire.Request{Model: r.Model, Stream: true}
	if with(fieldMaxTokens) {
		q.MaxTokens = &tokens
	} else {
		q.MaxCompletionTokens = &tokens
	}
	if with(fieldMinTokens) && !c.options.OpenEnded {
		q.MinTokens = &tokens
	}
	q.IgnoreEOS = with(fieldIgnoreEOS) && !c.options.OpenEnded
	if with(fieldStreamOptions) {
		q.StreamOptions = &wire.StreamOptions{IncludeUsage: true}
	}
	q.ReturnTokenIDs = with(fieldTokenIDs) && c.options.TokenIDs
	if with(fieldForce) {
		q.ForceTokens = r.Force
	}
	if with(fieldHints) && r.Hints != nil {
		q.Nvext = &wire.Nvext{AgentHints: r.Hints}
	}
	if c.options.Endpoint == Completions {
		return q.Around("prompt")
	}
	return q.Around("messages")
}
