package wire

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/goccy/go-json"
)

// The headers by which a client names its session to Dynamo (and to `agentsim serve`).
const (
	HeaderSession   = "X-Dynamo-Session-ID"
	HeaderParent    = "X-Dynamo-Parent-Session-ID"
	HeaderFinal     = "X-Dynamo-Session-Final"
	HeaderRequestID = "X-Request-ID"
)

// Session is who sends a request: one chain of turns, and the chain that spawned it.
type Session struct {
	ID, Parent string
	// Final tells that the session ends with this request.
	Final bool
}

// maxSessionID bounds an id, in bytes; longer ones count as absent.
const maxSessionID = 256

// agents are the headers that agents send by themselves, in the order in which Dynamo asks for them (lib/llm, agent
// context): the first whose root header is there wins, and headers of two agents are never mixed.
var agents = []struct{ root, child, parent string }{
	{"X-Claude-Code-Session-Id", "X-Claude-Code-Agent-Id", "X-Claude-Code-Parent-Agent-Id"},
	{"Thread-Id", "", "X-Codex-Parent-Thread-Id"},
	{"Session-Id", "", ""},
	{"X-Deepseek-Harness-Session-Id", "", "X-Deepseek-Harness-Parent-Session-Id"},
	{"X-Session-Id", "", "X-Parent-Session-Id"},
}

// SessionOf reads the session of a request: Dynamo's own headers, else the given ones in their order, for harnesses that
// nobody knows yet, else those of the agents that Dynamo knows. The zero Session is none. Ids come from clients and are not
// to be trusted.
func SessionOf(h http.Header, others ...string) Session {
	s := Session{ID: first(h, HeaderSession), Parent: first(h, HeaderParent)}
	for _, name := range others {
		if s.ID == "" {
			s = Session{ID: first(h, name)}
		}
	}
	if s.ID == "" {
		s = native(h)
	}
	if s.ID == "" {
		return Session{}
	}
	if s.Parent == s.ID {
		s.Parent = ""
	}
	switch strings.ToLower(first(h, HeaderFinal)) {
	case "true", "1", "yes", "on":
		s.Final = true
	}
	return s
}

// native reads the headers of agents. A root turn of Claude Code has no parent; a child turn has its agent id, and as
// parent the agent that spawned it, else the root.
func native(h http.Header) Session {
	for _, a := range agents {
		root := first(h, a.root)
		if root == "" {
			continue
		}
		s := Session{ID: root}
		switch {
		case a.child == "":
			s.Parent = first(h, a.parent)
		case first(h, a.child) != "" && first(h, a.child) != root:
			s.ID, s.Parent = first(h, a.child), root
			if p := first(h, a.parent); p != "" {
				s.Parent = p
			}
		}
		return s
	}
	return Session{}
}

// CompactionOf tells whether the request writes a summary of its context, and what its agent says of that, as the JSON of an
// object: Codex in its turn metadata, DeepSeek's harness by a header of its own. Nil is no compaction.
func CompactionOf(h http.Header) json.RawMessage {
	if h.Get("X-Deepseek-Harness-Compact") == "1" {
		return json.RawMessage("{}")
	}
	text := h.Get("X-Codex-Turn-Metadata")
	if text == "" || len(text) > maxTurnMetadata || checkDepth([]byte(text)) != nil {
		return nil
	}
	var turn struct {
		RequestKind string      `json:"request_kind"`
		Compaction  *compaction `json:"compaction"`
	}
	if json.Unmarshal([]byte(text), &turn) != nil || turn.RequestKind != "compaction" {
		return nil
	}
	if turn.Compaction == nil {
		turn.Compaction = new(compaction)
	}
	about, err := json.Marshal(turn.Compaction)
	if err != nil {
		return nil
	}
	return about
}

// maxTurnMetadata bounds the metadata that Codex sends, in bytes.
const maxTurnMetadata = 16 << 10

// compaction is what Dynamo keeps of a compaction.
type compaction struct {
	Trigger        string `json:"trigger,omitempty"`
	Reason         string `json:"reason,omitempty"`
	Implementation string `json:"implementation,omitempty"`
	Phase          string `json:"phase,omitempty"`
	Strategy       string `json:"strategy,omitempty"`
}

// HintsOf reads the hints of a request: those of its body, over which Dynamo's headers for priorities win. Nil is none.
func HintsOf(h http.Header, body *AgentHints) *AgentHints {
	var hints AgentHints
	if body != nil {
		hints = *body
	}
	if n, err := strconv.ParseInt(first(h, "X-Dynamo-Request-Priority"), 10, 32); err == nil {
		hints.Priority = int32(n)
	}
	if n, err := strconv.ParseUint(first(h, "X-Dynamo-Request-Strict-Priority"), 10, 32); err == nil {
		hints.StrictPriority = uint32(n)
	}
	if hints == (AgentHints{}) {
		return nil
	}
	return &hints
}

// RequestIDOf is the id that the client gave the request, "" for none.
func RequestIDOf(h http.Header) string { return first(h, HeaderRequestID) }

// first is the first value of a header, trimmed; "" when it is not printable ASCII or too long.
func first(h http.Header, name string) string {
	if name == "" {
		return ""
	}
	value := strings.TrimSpace(h.Get(name))
	if len(value) > maxSessionID {
		return ""
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return ""
		}
	}
	return value
}

// Set writes the session into the headers of a request.
func (s Session) Set(h http.Header) {
	if s.ID == "" {
		return
	}
	h.Set(HeaderSession, s.ID)
	if s.Parent != "" {
		h.Set(HeaderParent, s.Parent)
	}
	if s.Final {
		h.Set(HeaderFinal, "true")
	}
}
