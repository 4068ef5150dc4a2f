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
		refuse(w, &wire.Error{Status: 500, Message: err.Error(), Type: "InternalServerError", Code: "500"}, "")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// tokenize answers with the tokens of a prompt or of a chat (vLLM's /tokenize).
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, badRequest("reading the request: %v", err), "")
		return
	}
	q, err := wire.ParseRequest(text)
	if err != nil {
		refuse(w, badRequest("%v", err), "")
		return
	}
	dialect := wire.Completions
	if len(q.Messages) > 0 {
		dialect = wire.Chat
	}
	tokens, e := promptOf(q, dialect)
	if e != nil {
		refuse(w, e, "")
		return
	}
	respond(w, map[string]any{"count": len(tokens), "max_model_len": s.plan.MaxModelLen, "tokens": tokens, "token_strs": nil})
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
