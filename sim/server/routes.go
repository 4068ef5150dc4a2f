package server

import (
	"io"
	"net/http"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/trace/wire"
)

// respond answers with JSON.
func respond(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		refuse(w, wire.Completions, &wire.Error{Status: 500, Message: err.Error(), Type: "InternalServerError", Code: "500"}, "")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// readJSON reads the body of a request, and tells whether it could. If not the request is answered.
func readJSON(w http.ResponseWriter, r *http.Request, read func(text []byte) error) bool {
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = read(text)
	}
	if err != nil {
		refuse(w, wire.Completions, badRequest("reading the request: %v", err), "")
	}
	return err == nil
}

// countTokens reads the prompt or the chat of a request and returns its tokens; false when the request is answered.
func countTokens(w http.ResponseWriter, r *http.Request, dialect func(*wire.Request) wire.Dialect) ([]uint32, bool) {
	var q *wire.Request
	if !readJSON(w, r, func(text []byte) (err error) { q, err = wire.ParseRequest(text); return err }) {
		return nil, false
	}
	tokens, e := promptOf(q, dialect(q))
	if e != nil {
		refuse(w, dialect(q), e, "")
	}
	return tokens, e == nil
}

// tokenize answers with the tokens of a prompt or of a chat (vLLM's /tokenize).
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	tokens, ok := countTokens(w, r, func(q *wire.Request) wire.Dialect {
		if len(q.Messages) > 0 {
			return wire.Chat
		}
		return wire.Completions
	})
	if ok {
		respond(w, map[string]any{"count": len(tokens), "max_model_len": s.plan.MaxModelLen, "tokens": tokens, "token_strs": nil})
	}
}

// countMessages answers with the number of tokens of messages (Anthropic's /v1/messages/count_tokens).
func (s *Server) countMessages(w http.ResponseWriter, r *http.Request) {
	if tokens, ok := countTokens(w, r, func(*wire.Request) wire.Dialect { return wire.Messages }); ok {
		respond(w, map[string]int{"input_tokens": len(tokens)})
	}
}

// detokenize answers with a text that has the given tokens (vLLM's /detokenize).
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Tokens []uint32 `json:"tokens"`
	}
	if !readJSON(w, r, func(text []byte) error { return json.Unmarshal(text, &q) }) {
		return
	}
	prompt, err := textOf(q.Tokens)
	if err != nil {
		refuse(w, wire.Completions, badRequest("tokens: %v", err), "")
		return
	}
	respond(w, map[string]string{"prompt": prompt})
}

// model is an entry of /v1/models.
type model struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"`
	Root        string `json:"root"`
	MaxModelLen int    `json:"max_model_len"`
}

func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) {
	var list []model
	for _, name := range s.options.Names {
		list = append(list, model{name, "model", s.created, "agentsim", s.plan.Hardware.Model.Name, s.plan.MaxModelLen})
	}
	respond(w, map[string]any{"object": "list", "data": list})
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	respond(w, map[string]string{"version": s.plan.Engine.Version, "engine": s.plan.Engine.Kind + ", simulated by agentsim"})
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if s.restarting() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}
