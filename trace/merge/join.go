package merge

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/trace"
)

// merger makes the merged capture.
type merger struct {
	served   *served
	tellings []*telling // in the order in which they are heard
	events   []Source   // recordings of tools alone
	options  Options
	report   *Report

	home     []string          // of each call of the server, the id of its merged session
	homes    map[string]string // of the sessions of all sources, by their ids
	sessions map[string]*trace.Session
	asked    map[string]int32 // the calls of the server by the tool calls that they asked for
	placed   map[toolKey]bool
}

// join makes the capture of what was matched.
func (m *merger) join() (*trace.Capture, error) {
	for _, t := range m.tellings {
		t.compare()
	}
	m.settle()
	m.fillCalls()
	m.makeSessions()
	hashes := m.hashSource()
	m.keepUnserved(hashes)
	for _, s := range m.sessions {
		slices.SortFunc(s.Turns, byStart)
	}
	if hashes != nil {
		m.takeHashes(hashes)
	}
	m.asked, m.placed = toolsOf(m.served.calls), map[toolKey]bool{}
	events, err := m.placeTools()
	if err != nil {
		return nil, err
	}
	for _, t := range m.tellings {
		m.report.Harnesses = append(m.report.Harnesses, t.report)
	}
	m.report.Harnesses = append(m.report.Harnesses, events...)
	return m.capture(hashes), nil
}

// tally counts names.
type tally map[string]int

// most returns the name that was counted most, of several the first of the alphabet, or "".
func (t tally) most() (name string) {
	for n, k := range t {
		if name == "" || k > t[name] || k == t[name] && n < name {
			name = n
		}
	}
	return name
}

// settle finds the session of each call of the server: the harness's; else that of most calls of its conversation; else its own.
func (m *merger) settle() {
	s := m.served
	m.home = make([]string, len(s.calls))
	ofConversation, ofSession := make([]tally, len(s.names)), map[string]tally{}
	note := func(session string, i int) {
		if ofSession[session] == nil {
			ofSession[session] = tally{}
		}
		ofSession[session][m.home[i]]++
	}
	for i := range s.calls {
		for _, t := range m.tellings {
			told := t.heard[i]
			if told < 0 {
				continue
			}
			m.home[i] = cmp.Or(m.home[i], t.calls[told].Session.ID)
			note(t.calls[told].Session.ID, i)
		}
		if n := s.conversation[i]; m.home[i] != "" {
			if ofConversation[n] == nil {
				ofConversation[n] = tally{}
			}
			ofConversation[n][m.home[i]]++
		}
	}
	for i, c := range s.calls {
		if m.home[i] == "" {
			m.report.Unheard++
			home := ofConversation[s.conversation[i]].most()
			if home != "" {
				m.report.Adopted++
			}
			m.home[i] = cmp.Or(home, c.Session.ID)
		}
		note(c.Session.ID, i)
	}
	m.homes = make(map[string]string, len(ofSession))
	for id, n := range ofSession {
		m.homes[id] = n.most()
	}
}

// makeSessions makes the sessions that the server's calls belong to. Harnesses tell their parents and classes, else tool events, else
// the server.
func (m *merger) makeSessions() {
	m.sessions = map[string]*trace.Session{}
	for i, c := range m.served.calls {
		s := m.sessions[m.home[i]]
		if s == nil {
			s = &trace.Session{ID: m.home[i], Scope: c.Session.Scope}
			m.sessions[s.ID] = s
		}
		s.Turns = append(s.Turns, c)
	}
	for _, t := range m.tellings {
		m.tellSessions(t.source.Capture)
	}
	for _, e := range m.events {
		m.tellSessions(e.Capture)
	}
	m.tellSessions(m.served.source.Capture)
	for i, c := range m.served.calls {
		c.Session = m.sessions[m.home[i]]
	}
}

// tellSessions adds what a capture tells of the merged sessions that have its ids.
func (m *merger) tellSessions(c *trace.Capture) {
	for _, told := range c.Sessions {
		s := m.sessions[told.ID]
		if s == nil {
			continue
		}
		parent := told.Parent
		if home, ok := m.homes[parent]; ok {
			parent = home
		}
		if s.Parent == "" && parent != s.ID {
			s.Parent = parent
		}
		s.Class = cmp.Or(s.Class, told.Class)
		s.Final = s.Final || told.Final
	}
}

// keepUnserved deals with the calls that only harnesses tell.
func (m *merger) keepUnserved(hashes *telling) {
	ids := map[string]bool{}
	for _, c := range m.served.calls {
		ids[c.ID] = true
	}
	for _, t := range m.tellings {
		var kept []*trace.Session
		for i, c := range t.calls {
			if t.of[i] >= 0 {
				continue
			}
			t.report.Unserved++
			if !m.options.KeepUnserved || t.report.Clock == nil || c.Start == trace.NoTime || ids[c.ID] {
				continue
			}
			ids[c.ID] = true
			t.report.Kept++
			if t != hashes {
				c.Base, c.Shared, c.Hashes, c.OutputHashes = nil, 0, nil, nil
				c.Inferred &^= trace.FieldTextHashes | trace.FieldCachedHashes
			}
			c.Waits, c.Explicit = nil, false
			id := cmp.Or(m.homes[c.Session.ID], c.Session.ID)
			if m.sessions[id] == nil {
				m.sessions[id] = &trace.Session{ID: id}
				m.homes[id] = id
			}
			kept = append(kept, c.Session)
			m.sessions[id].Turns = append(m.sessions[id].Turns, c)
			c.Session = m.sessions[id]
		}
		if len(kept) > 0 {
			m.tellSessions(&trace.Capture{Sessions: kept})
		}
	}
}

// capture is the merged capture. Sessions are in order of their first calls.
func (m *merger) capture(hashes *telling) *trace.Capture {
	from := m.served.source.Capture
	c := &trace.Capture{Format: from.Format, BlockSize: from.BlockSize, Resolution: from.Resolution, SharedClock: true, Epoch: from.Epoch}
	if hashes != nil {
		c.BlockSize = hashes.source.Capture.BlockSize
	}
	for _, s := range m.sessions {
		slices.SortFunc(s.Tools, func(a, b trace.ToolSpan) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End), strings.Compare(a.ID, b.ID), strings.Compare(a.Class, b.Class))
		})
		c.Sessions = append(c.Sessions, s)
		c.Read.Calls += len(s.Turns)
		c.Read.Tools += len(s.Tools)
	}
	slices.SortFunc(c.Sessions, func(a, b *trace.Session) int { return byStart(a.Turns[0], b.Turns[0]) })
	m.report.Merged = count(Source{Capture: c})
	return c
}
