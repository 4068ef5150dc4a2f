package wire

import (
	"net/http"
	"strings"
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

// SessionOf reads the session of a request: Dynamo's own headers, else those of the agents that it knows. The zero Session
// is none. Ids come from clients and are not to be trusted.
func SessionOf(h http.Header) Session {
	s := Session{ID: first(h, HeaderSession), Parent: first(h, HeaderParent)}
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
