package inspect

import (
	"fmt"
	"slices"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Session is a session with its turns and, at the turns that spawned them, the sessions below it.
type Session struct {
	ID     string `json:"id"`
	Class  string `json:"class,omitempty"`
	Parent string `json:"parent,omitempty"`
	Turns  []Turn `json:"turns"`
	// Unplaced are sessions below it of which no turn of it is known to have spawned them.
	Unplaced []*Session `json:"unplaced,omitempty"`
}

// Turn is one turn as a page about its session shows it. Times are in seconds since the start of the trace, or of the
// program where programs have no common clock.
type Turn struct {
	Turn      int           `json:"turn"` // from 1
	ID        string        `json:"id"`
	Model     string        `json:"model,omitempty"`
	StartS    report.Figure `json:"start_s"`
	TookS     report.Figure `json:"took_s,omitzero"`
	TTFT      report.Figure `json:"ttft_s,omitzero"`
	Trigger   string        `json:"trigger,omitempty"`
	ToolS     report.Figure `json:"tool_s,omitzero"`
	HumanS    report.Figure `json:"human_s,omitzero"`
	OtherS    report.Figure `json:"other_s,omitzero"`
	Input     int32         `json:"input_tokens"`
	Cached    report.Figure `json:"cached_tokens,omitzero"`
	Output    int32         `json:"output_tokens"`
	Reasoning report.Figure `json:"reasoning_tokens,omitzero"`
	// Reusable is the prompt tokens that an earlier turn of the trace had, or that came from before it.
	Reusable   int64      `json:"reusable_tokens"`
	Tools      []string   `json:"tools,omitempty"`
	Compaction bool       `json:"compaction,omitempty"`
	Status     string     `json:"status,omitempty"`
	Inferred   []string   `json:"inferred,omitempty"`
	Joins      []string   `json:"joins,omitempty"` // the sessions that it waited for
	Spawned    []*Session `json:"spawned,omitempty"`
}

// maxNesting is how deep sessions are shown below each other.
const maxNesting = 64

// Show returns a session of a linked capture with what is below it; nil if there is none of that id. Sessions that nest deeper
// than maxNesting below it are an error.
func Show(c *trace.Capture, id string) (*Session, error) {
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		return nil, err
	}
	t := newTrail(w)
	first := int32(-1)
	for i := range w.Calls {
		if w.Sessions[w.Calls[i].Session].ID == id {
			first = int32(i)
			break
		}
	}
	if first < 0 {
		return nil, nil
	}
	program := w.Programs[w.Calls[first].Program]
	fresh := make([]int64, len(w.Calls)) // prompt tokens of each call that none before it had
	covered := newCoverage(w)
	for _, i := range t.byStart {
		fresh[i] = covered.cover(w, 0, w.Calls[i].Prompt, w.Calls[i].Input)
		covered.call(w, 0, i)
	}
	// Parents stand before their children in a program.
	sessions, depth := map[int32]*Session{}, map[int32]int{}
	for i := program.First; i < program.Last; {
		at := w.Calls[i].Session
		if parent := sessions[t.parents[at]]; parent != nil || i == first {
			s := t.show(i, fresh)
			sessions[at] = s
			if parent != nil {
				if depth[at] = depth[t.parents[at]] + 1; depth[at] > maxNesting {
					return nil, fmt.Errorf("showing session %q: sessions nest deeper than %d below it; show one of those, such as %q", id, maxNesting, parent.ID)
				}
				parent.place(s, w.Calls[i].Turn)
			}
		}
		i = t.session(i)
	}
	return sessions[w.Calls[first].Session], nil
}

// place puts a session below the turn that spawned it.
func (s *Session) place(child *Session, first *trace.Turn) {
	for _, d := range first.Deps {
		if d.Kind != trace.KindSpawn || d.Turn.Session.ID != s.ID {
			continue
		}
		at := &s.Turns[slices.Index(d.Turn.Session.Turns, d.Turn)]
		at.Spawned = append(at.Spawned, child)
		return
	}
	s.Unplaced = append(s.Unplaced, child)
}

// show returns the session that begins at a call.
func (t *trail) show(first int32, fresh []int64) *Session {
	session := t.w.Sessions[t.w.Calls[first].Session]
	s := &Session{ID: session.ID, Class: session.Class, Parent: session.Parent}
	origin := t.spans[t.byStart[0]].start
	if !t.shared() {
		origin = t.w.Programs[t.w.Calls[first].Program].Start
	}
	for i, last := first, t.session(first); i < last; i++ {
		c := &t.w.Calls[i]
		turn := Turn{Turn: int(i-first) + 1, ID: c.Turn.ID, Model: c.Turn.Model, StartS: report.Known((t.spans[i].start - origin).Seconds()),
			TTFT: report.Seconds(c.Turn.TTFT), Trigger: c.Turn.Trigger, Input: c.Input, Output: c.Output,
			Reusable: max(int64(c.Input)-fresh[i], int64(c.Cut)), Compaction: c.Turn.Compaction, Inferred: c.Turn.Inferred.Names()}
		if c.Turn.End != trace.NoTime {
			turn.TookS = report.Seconds(t.spans[i].end - t.spans[i].start)
		}
		if len(c.Turn.Deps) > 0 {
			g := c.Turn.Gap
			turn.ToolS, turn.HumanS, turn.OtherS = report.Seconds(g.Tool), report.Seconds(g.Human), report.Seconds(g.Other)
		}
		if c.Turn.Cached != trace.Unknown {
			turn.Cached = report.Known(c.Turn.Cached)
		}
		if c.Turn.Reasoning != trace.Unknown {
			turn.Reasoning = report.Known(c.Turn.Reasoning)
		}
		if c.Turn.Status != "ok" {
			turn.Status = c.Turn.Status
		}
		for _, called := range c.Turn.ToolCalls {
			turn.Tools = append(turn.Tools, called.Name)
		}
		for _, d := range c.Turn.Deps {
			if d.Kind == trace.KindJoin {
				turn.Joins = append(turn.Joins, d.Turn.Session.ID)
			}
		}
		s.Turns = append(s.Turns, turn)
	}
	return s
}
