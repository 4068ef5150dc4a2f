package validate

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/agentsim/agentsim/trace"
)

// state is what rows are held against.
type state struct {
	said      map[string]bool
	requests  map[string]Place
	payloads  []located
	context   *bool
	contextAt Place

	blockSize      int64
	blockSizeAt    Place
	places         map[uint64]chained
	large, rounded int

	sessions map[string]*session
	order    []*session
	tools    map[toolCall]*toolSeen
	calls    []*toolSeen
}

type located struct {
	id string
	at Place
}

// session is what the rows of a session say together.
type session struct {
	id, parent string
	at         Place // of its first row
	parentAt   Place
	requests   []span
	final      span  // the first that is marked as the last; its id is "" when there is none
	toolAt     Place // of its first tool row
}

// span is a request's time in Unix milliseconds.
type span struct {
	id         string
	start, end float64
	at         Place
}

type toolCall struct{ session, id string }

// toolSeen is a tool call and where its rows were.
type toolSeen struct {
	toolCall
	started, ended Place
}

func newState() state {
	return state{said: map[string]bool{}, requests: map[string]Place{}, places: map[uint64]chained{},
		sessions: map[string]*session{}, tools: map[toolCall]*toolSeen{}}
}

// of returns the session of a row, nil without one, and whether the row marks its end.
func (c *checker) of(at Place, rec *trace.Record) (s *session, final bool) {
	id := trace.Identity{Session: rec.FlatSessionID, Parent: rec.FlatParentSessionID}
	if rec.AgentContext != nil {
		id = rec.AgentContext.Identity()
	}
	if id.Session == "" {
		return nil, false
	}
	s = c.sessions[id.Session]
	if s == nil {
		s = &session{id: id.Session, at: at}
		c.sessions[id.Session] = s
		c.order = append(c.order, s)
	}
	switch {
	case id.Parent == "":
	case s.parent == "":
		s.parent, s.parentAt = id.Parent, at
	case s.parent != id.Parent:
		c.note(parentRule, at, "session %q: parent %q, but %q at %v", s.id, id.Parent, s.parent, s.parentAt)
	}
	return s, id.Final
}

// session adds a request to its session.
func (c *checker) session(at Place, rec *trace.Record, start, end float64) {
	s, final := c.of(at, rec)
	if s == nil || math.IsNaN(start) {
		return
	}
	if math.IsNaN(end) || end < start {
		end = start
	}
	r := span{rec.Request.RequestID, start, end, at}
	s.requests = append(s.requests, r)
	if final && (s.final.id == "" || start < s.final.start) {
		s.final = r
	}
}

// tool checks a tool row.
func (c *checker) tool(at Place, rec *trace.Record) {
	t := rec.Tool
	s, _ := c.of(at, rec)
	if s == nil {
		c.note(toolContextRule, at, "tool call %q", t.ToolCallID)
		return
	}
	if s.toolAt == (Place{}) {
		s.toolAt = at
	}
	if e := rec.EventSource; e != "harness" {
		c.once(sourceRule, "tool "+e, at, "tool call %q: event_source %q", t.ToolCallID, e)
	}
	call := toolCall{s.id, t.ToolCallID}
	seen := c.tools[call]
	if seen == nil {
		seen = &toolSeen{toolCall: call}
		c.tools[call] = seen
		c.calls = append(c.calls, seen)
	}
	if rec.EventType == trace.EventToolStart {
		seen.started = at
		return
	}
	if seen.ended != (Place{}) {
		c.note(toolTwiceRule, at, "tool call %q of session %q ended at %v too", t.ToolCallID, s.id, seen.ended)
	}
	seen.ended = at
	c.toolEnd(at, rec)
}

// toolEnd checks what the terminal row of a tool call says.
func (c *checker) toolEnd(at Place, rec *trace.Record) {
	t := rec.Tool
	name := fmt.Sprintf("tool call %q", t.ToolCallID)
	failed := rec.EventType == trace.EventToolError
	switch t.Status {
	case "":
	case "succeeded", "ok", "success":
		if failed {
			c.note(toolStatusRule, at, "%s: status %s of a tool_error", name, t.Status)
		}
	case "error", "failed", "cancelled", "canceled", "timeout":
	default:
		c.note(toolStatusRule, at, "%s: status %q of a %s", name, t.Status, rec.EventType)
	}
	switch {
	case t.DurationMs != nil && *t.DurationMs < 0:
		c.note(toolSpanRule, at, "%s: duration_ms %g", name, *t.DurationMs)
	case t.StartedMs != nil && t.EndedMs != nil && *t.EndedMs < *t.StartedMs:
		c.note(toolSpanRule, at, "%s ended %d ms before it started", name, *t.StartedMs-*t.EndedMs)
	case t.StartedMs == nil && t.DurationMs == nil:
		c.note(toolSpanRule, at, "%s: neither started_at_unix_ms nor duration_ms", name)
	case t.StartedMs != nil && t.EndedMs != nil && t.DurationMs != nil && math.Abs(float64(*t.EndedMs-*t.StartedMs)-*t.DurationMs) > 2*slackMs:
		c.note(toolSpanRule, at, "%s: duration_ms %g of a span of %d ms", name, *t.DurationMs, *t.EndedMs-*t.StartedMs)
	}
}

// finish checks what only the end of the trace tells.
func (c *checker) finish() {
	if c.sum.Requests == 0 {
		c.note(emptyRule, Place{File: c.file}, "%d rows and no request_end", c.sum.Rows)
	}
	if c.large >= 8 && c.rounded == c.large {
		c.note(floatRule, c.blockSizeAt, "all %d hashes above 2^53", c.large)
	}
	for _, p := range c.payloads {
		if _, there := c.requests[p.id]; !there {
			c.note(payloadRule, p.at, "request %q", p.id)
		}
	}
	for _, t := range c.calls {
		if t.ended == (Place{}) {
			c.note(toolOpenRule, t.started, "tool call %q of session %q", t.id, t.session)
		}
	}
	for _, s := range c.order {
		c.finishSession(s)
	}
	c.cycles()
}

func (c *checker) finishSession(s *session) {
	if len(s.requests) == 0 {
		if s.toolAt != (Place{}) {
			c.note(toolOrphanRule, s.toolAt, "session %q", s.id)
		}
		return
	}
	slices.SortStableFunc(s.requests, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	if s.parent != "" {
		switch parent := c.sessions[s.parent]; {
		case parent == nil:
			c.note(orphanRule, s.parentAt, "session %q: parent %q is not in the trace", s.id, s.parent)
		case len(parent.requests) > 0 && parent.earliest() > s.requests[0].start+slackMs:
			c.note(earlyChildRule, s.requests[0].at, "session %q begins before its parent %q", s.id, s.parent)
		}
	}
	until := s.requests[0]
	for _, r := range s.requests[1:] {
		if r.start < until.end-slackMs {
			c.note(overlapRule, r.at, "session %q: request %q begins before %q (%v) ends", s.id, r.id, until.id, until.at)
			break
		}
		if r.end > until.end {
			until = r
		}
	}
	if last := s.requests[len(s.requests)-1]; s.final.id != "" && last.start > s.final.start {
		c.note(afterFinalRule, last.at, "session %q: request %q, after %q (%v)", s.id, last.id, s.final.id, s.final.at)
	}
}

func (s *session) earliest() float64 {
	first := math.Inf(1)
	for _, r := range s.requests {
		first = min(first, r.start)
	}
	return first
}

// cycles finds sessions that are their own ancestors.
func (c *checker) cycles() {
	done := map[*session]bool{}
	for _, s := range c.order {
		path := map[*session]bool{}
		for at := s; at != nil && !done[at]; at = c.sessions[at.parent] {
			if path[at] {
				c.note(cycleRule, at.parentAt, "session %q", at.id)
				break
			}
			path[at] = true
		}
		for at := range path {
			done[at] = true
		}
	}
}

var segmentName = regexp.MustCompile(`^(.*)\.(\d{6,})\.jsonl(\.gz)?$`)

// segments finds holes in the numbers of segments. The first ones may be gone: retention removes them.
func (c *checker) segments(segments []trace.Segment) {
	last := map[string]int{}
	for _, s := range segments {
		c.file = s.Path
		m := segmentName.FindStringSubmatch(filepath.Base(s.Path))
		if m == nil {
			continue
		}
		number, err := strconv.Atoi(m[2])
		if err != nil {
			continue
		}
		stem := filepath.Join(filepath.Dir(s.Path), m[1])
		if before, there := last[stem]; there && number > before+1 {
			c.note(segmentRule, Place{File: s.Path}, "the segment before it is number %d", before)
		}
		last[stem] = number
	}
}
