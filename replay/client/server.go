package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace/wire"
)

// maxBody bounds the answers of a server about itself.
const maxBody = 64 << 20

// Model is a model that a server serves.
type Model struct {
	ID string `json:"id"`
	// MaxLen is the longest context, prompt and output together, in tokens; 0 when not told.
	MaxLen int `json:"max_model_len"`
}

// Models asks a server for its models (/v1/models).
func (c *Client) Models(ctx context.Context, server int) ([]Model, error) {
	var list struct {
		Data []Model `json:"data"`
	}
	if err := c.ask(ctx, server, "/v1/models", nil, &list); err != nil {
		return nil, err
	}
	return list.Data, nil
}

// ErrNotFound tells that a server has no such path.
var ErrNotFound = errors.New("no such path")

// CountTokens asks a server how many tokens a text has, or a chat of several (/tokenize, of vLLM), special ones included.
// ErrNotFound tells that it cannot say.
func (c *Client) CountTokens(ctx context.Context, server int, model string, texts ...string) (int, error) {
	question := map[string]any{"model": model, "prompt": texts[0]}
	if c.Chat() {
		var messages []wire.Message
		for i, role := range prompts.Roles(len(texts)) {
			messages = append(messages, wire.Message{Role: role, Content: wire.Content(texts[i])})
		}
		question = map[string]any{"model": model, "messages": messages}
	}
	var answer struct {
		Count *int `json:"count"`
	}
	if err := c.ask(ctx, server, "/tokenize", question, &answer); err != nil {
		return 0, err
	}
	if answer.Count == nil {
		return 0, fmt.Errorf("%s/tokenize tells no count: %w", c.bases[server], ErrNotFound)
	}
	return *answer.Count, nil
}

// Get reads a page of a server, such as /metrics.
func (c *Client) Get(ctx context.Context, server int, path string) ([]byte, error) {
	return c.fetch(ctx, http.MethodGet, c.bases[server]+path, nil)
}

// ask reads JSON from a path, for a question in JSON where there is one.
func (c *Client) ask(ctx context.Context, server int, path string, question, answer any) error {
	method, body := http.MethodGet, []byte(nil)
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return fmt.Errorf("asking %s: %w", path, err)
		}
		method, body = http.MethodPost, text
	}
	text, err := c.fetch(ctx, method, c.bases[server]+path, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%s%s: %w", c.bases[server], path, err)
	}
	return nil
}

func (c *Client) fetch(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.options.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.options.Key)
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", url, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	switch {
	case err != nil:
		return nil, fmt.Errorf("asking %s: %w", url, err)
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed:
		return nil, fmt.Errorf("asking %s: %w", url, ErrNotFound)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("asking %s: %s", url, redacted(wire.ParseError(resp.StatusCode, text).Error(), c.options.Key))
	}
	return text, nil
}
