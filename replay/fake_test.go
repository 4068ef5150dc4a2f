package replay_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/wire"
)

// fake is a server with an endless prefix cache, exact usage and no model. Hook may answer in its stead.
type fake struct {
	*httptest.Server
	// Hook returns true when it has answered. It is called with the request's number, from 1.
	Hook func(n int, w http.ResponseWriter, q *http.Request, body *wire.Request) bool
	// TTFT and Gap are how long a first and each later token take. PerEvent is how many tokens an event holds.
	TTFT, Gap time.Duration
	PerEvent  int64
	BlockSize int

	mu      sync.Mutex
	seen    []seen
	cache   map[uint64]bool
	answers [][]uint32
}

// seen is a request as it came.
type seen struct {
	at      time.Duration
	header  http.Header
	body    *wire.Request
	cached  int
	session string
}

func newFake(t testing.TB) *fake {
	f := &fake{BlockSize: 16, PerEvent: 1, cache: map[uint64]bool{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

var epoch = time.Now()

func (f *fake) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	at := time.Since(epoch)
	text, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	switch q.URL.Path {
	case "/v1/models":
		fmt.Fprint(w, `{"data":[{"id":"m","max_model_len":4096}]}`)
		return
	case "/v1/completions", "/v1/chat/completions":
	default:
		http.NotFound(w, q)
		return
	}
	body, err := wire.ParseRequest(text)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	tokens := tokensOf(body)
	cached := f.lookUp(tokens)
	f.seen = append(f.seen, seen{at, q.Header.Clone(), body, cached, q.Header.Get(wire.HeaderSession)})
	n := len(f.seen)
	f.mu.Unlock()
	if f.Hook != nil && f.Hook(n, w, q, body) {
		return
	}
	f.answer(w, q, body, len(tokens), cached)
}

// tokensOf takes a word for a token.
func tokensOf(body *wire.Request) []uint32 {
	if body.Prompt != nil && body.Prompt.Tokens != nil {
		return body.Prompt.Tokens
	}
	text := ""
	if body.Prompt != nil {
		text = body.Prompt.Text
	}
	for _, m := range body.Messages {
		text += string(m.Content)
	}
	var tokens []uint32
	for word := range strings.FieldsSeq(text) {
		id := uint32(0)
		for _, c := range word {
			id = id*31 + uint32(c)
		}
		tokens = append(tokens, id)
	}
	return tokens
}

// lookUp returns the tokens of full blocks that were there, and adds the prompt.
func (f *fake) lookUp(tokens []uint32) int {
	cached, hit := 0, true
	for i, h := range hash.Blocks(tokens[:len(tokens)/f.BlockSize*f.BlockSize], f.BlockSize) {
		if hit = hit && f.cache[h]; hit {
			cached = (i + 1) * f.BlockSize
		}
		f.cache[h] = true
	}
	return cached
}

func (f *fake) answer(w http.ResponseWriter, q *http.Request, body *wire.Request, prompt, cached int) {
	limit, _ := body.Limit()
	w.Header().Set("Content-Type", "text/event-stream")
	if !sleep(q, f.TTFT) {
		return
	}
	send := func(v any) {
		text, _ := json.Marshal(v)
		fmt.Fprintf(w, "data: %s\n\n", text)
		w.(http.Flusher).Flush()
	}
	type object = map[string]any
	chat := strings.Contains(q.URL.Path, "chat")
	if chat {
		send(object{"choices": []object{{"index": 0, "delta": object{"role": "assistant"}, "finish_reason": nil}}})
	}
	var ids []uint32
	for made := int64(0); made < limit; {
		n := min(f.PerEvent, limit-made)
		choice := object{"index": 0, "text": " tok", "finish_reason": nil}
		if chat {
			choice = object{"index": 0, "delta": object{"content": " tok"}, "finish_reason": nil}
		}
		if body.ReturnTokenIDs {
			var own []uint32
			for i := range n {
				own = append(own, uint32(100_000+int(made+i)+prompt))
			}
			ids = append(ids, own...)
			choice["token_ids"] = own
		}
		if made += n; made >= limit {
			choice["finish_reason"] = "length"
		}
		send(object{"choices": []object{choice}})
		if made < limit && !sleep(q, f.Gap) {
			return
		}
	}
	f.mu.Lock()
	f.answers = append(f.answers, ids)
	f.mu.Unlock()
	if body.StreamOptions != nil {
		send(object{"choices": []object{}, "usage": object{"prompt_tokens": prompt, "completion_tokens": limit,
			"prompt_tokens_details": object{"cached_tokens": cached}}})
	}
	io.WriteString(w, wire.Done)
}

// sleep waits, and tells whether the client still listens.
func sleep(q *http.Request, d time.Duration) bool {
	if d <= 0 {
		return q.Context().Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-q.Context().Done():
		return false
	}
}
