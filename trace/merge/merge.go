// Package merge makes one capture of several recordings of the same run: what a server or a proxy tells of its calls
// (times to first token, cache hits, block hashes, workers) beside what the harness of the agents tells of them (sessions and
// their parents, tools, what prompts end with).
//
// Data flows one way:
//
//	captures ── ids ──► pairs ── clock ──► pairs by tokens and time ── join ──► Capture
package merge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Source is one recording of a run.
type Source struct {
	// Name is what people call it.
	Name    string
	Capture *trace.Capture
}

// Options adjust Merge. The zero value estimates clocks.
type Options struct {
	// Ahead, if set, is how far the harnesses' clocks are ahead of the server's, at most maxByHand either way.
	Ahead *time.Duration
	// KeepUnserved keeps calls of which only a harness tells, without hashes, instead of dropping them.
	KeepUnserved bool
}

// Merge joins what harnesses tell into what the server tells, none of which was linked. It takes the captures over. The
// result, not linked either, depends on what the sources tell and, where they are equal, on their names; not on their order.
//
// Every call of the server is kept. Where both tell, the server is right about tokens, times, hashes and status, the harness
// about sessions, tools and triggers. A source without calls tells of tools alone; so do the tool rows of the server's own
// trace, whose times are a harness's.
//
// An error says that a source is no recording of the same run, as far as can be seen, or on no known clock.
func Merge(server Source, harnesses []Source, o Options) (*trace.Capture, *Report, error) {
	if o.Ahead != nil && o.Ahead.Abs() > maxByHand {
		return nil, nil, fmt.Errorf("a clock that is ahead by %v: want at most %v", *o.Ahead, maxByHand)
	}
	s, err := serve(server)
	if err != nil {
		return nil, nil, err
	}
	m := &merger{served: s, options: o, report: &Report{Server: count(server)}}
	if own := takeTools(server); own != nil {
		m.events = append(m.events, *own)
	}
	harnesses = slices.Clone(harnesses)
	slices.SortStableFunc(harnesses, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	for _, h := range harnesses {
		if h.Capture.Read.Calls == 0 {
			m.events = append(m.events, h)
			continue
		}
		t := s.hear(h)
		if err := t.match(o); err != nil {
			return nil, nil, fmt.Errorf("merging %s into %s: %w", h.Name, server.Name, err)
		}
		m.tellings = append(m.tellings, t)
	}
	// Who tells of more calls is heard first.
	slices.SortStableFunc(m.tellings, func(a, b *telling) int { return cmp.Compare(b.matched(), a.matched()) })
	c, err := m.join()
	return c, m.report, err
}

// Report tells what Merge did.
type Report struct {
	Server Count `json:"server"`
	// Harnesses are in the order in which they were heard, those that tell of tools alone last.
	Harnesses []HarnessReport `json:"harnesses"`
	// Unheard are the calls that only the server tells; Adopted are those of them that went to the session of a harness, because
	// the rest of their conversation did.
	Unheard int   `json:"unheard"`
	Adopted int   `json:"adopted"`
	Merged  Count `json:"merged"`
	// Known counts the calls of the server with a field that a rule had filled and a harness tells, by the field.
	Known []FieldCount `json:"known"`
}

// Count is how much a recording tells.
type Count struct {
	Name     string `json:"name,omitempty"`
	Format   string `json:"format,omitempty"`
	Calls    int    `json:"calls"`
	Sessions int    `json:"sessions"`
	Tools    int    `json:"tools"`
}

// FieldCount counts the calls of which a field is meant.
type FieldCount struct {
	Field string `json:"field"`
	Calls int    `json:"calls"`
}

// HarnessReport tells what became of what one harness tells.
type HarnessReport struct {
	Count
	// Clock is nil where the recording has none that all its sessions share, or nothing to tell it by.
	Clock *Clock `json:"clock,omitempty"`
	// ByID, ByTokens, ByInput and ByTime count the calls that were found on the server's side: by an id; by time, input and output
	// tokens; by time and input tokens; by time alone.
	ByID     int `json:"by_id"`
	ByTokens int `json:"by_tokens"`
	ByInput  int `json:"by_input"`
	ByTime   int `json:"by_time"`
	// Unserved are the calls that the server does not tell, Kept those of them that were kept.
	Unserved int `json:"unserved"`
	Kept     int `json:"kept"`
	// Differs are the fields in which both sides tell something else.
	Differs []Difference `json:"differs"`
	// ToolsKnown are those that another recording tells, too, and better; ToolsLost belong to no session of the merged trace.
	ToolsKnown int `json:"tools_known"`
	ToolsLost  int `json:"tools_lost"`
}

// Difference counts the calls in which server and harness differ in a field.
type Difference struct {
	Field string `json:"field"`
	Calls int    `json:"calls"`
	// Most is by how many tokens they differ at most; 0 where the field is no count.
	Most int `json:"most,omitempty"`
}

// Matched counts the calls that were found on the server's side.
func (r *HarnessReport) Matched() int { return r.ByID + r.ByTokens + r.ByInput + r.ByTime }

// Doubts are reasons not to trust the merged trace.
func (r *Report) Doubts() []string {
	var doubts []string
	for i := range r.Harnesses {
		if h := &r.Harnesses[i]; 2*h.Matched() < h.Calls {
			doubts = append(doubts, fmt.Sprintf("of the %d calls in %s the server tells %d", h.Calls, h.Name, h.Matched()))
		}
	}
	return doubts
}

func count(s Source) Count {
	n := Count{Name: s.Name, Format: s.Capture.Format, Sessions: len(s.Capture.Sessions)}
	for _, session := range s.Capture.Sessions {
		n.Calls += len(session.Turns)
		n.Tools += len(session.Tools)
	}
	return n
}

// takeTools takes the tool rows out of the server's capture; nil if it has none.
func takeTools(server Source) *Source {
	c := *server.Capture
	c.Sessions, c.Read = nil, trace.ReadReport{}
	for _, s := range server.Capture.Sessions {
		if len(s.Tools) > 0 {
			c.Sessions = append(c.Sessions, &trace.Session{ID: s.ID, Parent: s.Parent, Tools: s.Tools})
			s.Tools = nil
		}
	}
	if len(c.Sessions) == 0 {
		return nil
	}
	return &Source{Name: "tool rows of " + server.Name, Capture: &c}
}

// filled returns the fields of a call that a rule filled, on the word of its reader or of its row.
func filled(t *trace.Turn) trace.Fields {
	f := t.Inferred
	if t.Row != nil && t.Row.Request.Agentsim != nil {
		f |= trace.FieldsNamed(t.Row.Request.Agentsim.Inferred)
	}
	return f
}
