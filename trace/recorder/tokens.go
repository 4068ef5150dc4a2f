package recorder

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/trace/wire"
)

// Bounds of asking the upstream for tokens.
const (
	tokenizeTimeout = 20 * time.Second
	maxTokenList    = 256 << 20 // bytes
)

// asker asks the upstream for the token ids of prompts, as vLLM's POST /tokenize tells them.
type asker struct {
	url    string
	client *http.Client
	logf   func(format string, args ...any)
	absent atomic.Bool // the upstream has no such path
}

func newAsker(upstream *url.URL, transport http.RoundTripper, logf func(string, ...any)) *asker {
	return &asker{url: upstream.JoinPath("tokenize").String(), client: &http.Client{Transport: transport, Timeout: tokenizeTimeout}, logf: logf}
}

// tokenizeRequest is what vLLM needs of a request to make its prompt, with the keys that it has there.
type tokenizeRequest struct {
	Model              json.RawMessage `json:"model,omitempty"`
	Messages           json.RawMessage `json:"messages,omitempty"`
	Tools              json.RawMessage `json:"tools,omitempty"`
	ChatTemplate       json.RawMessage `json:"chat_template,omitempty"`
	ChatTemplateKwargs json.RawMessage `json:"chat_template_kwargs,omitempty"`
	Prompt             json.RawMessage `json:"prompt,omitempty"`
	AddSpecialTokens   *bool           `json:"add_special_tokens,omitempty"`
}

// ask returns the ids of the prompt of an exchange and of the text of its answer; nil where the upstream does not tell them.
func (a *asker) ask(e *exchange, answer *wire.Item) (prompt, output []uint32) {
	if e.body == nil || e.dialect != wire.Chat && e.dialect != wire.Completions || a.absent.Load() {
		return nil, nil
	}
	var q tokenizeRequest
	if json.Unmarshal(e.body, &q) != nil {
		return nil, nil
	}
	q.AddSpecialTokens = nil
	prompt, err := a.tokens(e.header, &q)
	if text := wire.AnswerText(answer); err == nil && text != "" {
		if quoted, bad := json.Marshal(text); bad == nil {
			output, err = a.tokens(e.header, &tokenizeRequest{Model: q.Model, Prompt: quoted, AddSpecialTokens: new(false)})
		}
	}
	if err != nil && !a.absent.Load() {
		a.logf("request %s: asking the upstream for its tokens: %v", e.id, err)
	}
	return prompt, output
}

// tokens asks once, with the client's credentials.
func (a *asker) tokens(header http.Header, q *tokenizeRequest) ([]uint32, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	ask, err := http.NewRequestWithContext(context.Background(), http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	ask.Header.Set("Content-Type", "application/json")
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		if value := header.Get(name); value != "" {
			ask.Header.Set(name, value)
		}
	}
	r, err := a.client.Do(ask)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	switch r.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		if !a.absent.Swap(true) {
			a.logf("the upstream tells no tokens (status %d of /tokenize): blocks are cut by an estimate", r.StatusCode)
		}
		return nil, fmt.Errorf("status %d", r.StatusCode)
	default:
		return nil, fmt.Errorf("status %d", r.StatusCode)
	}
	var told struct {
		Tokens []uint32 `json:"tokens"`
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxTokenList))
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	return told.Tokens, err
}
