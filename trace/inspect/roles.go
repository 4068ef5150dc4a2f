package inspect

import (
	"cmp"
	"slices"

	"github.com/agentsim/agentsim/trace/report"
)

// Role is a kind of calls of which an agent could tell a server beforehand what they are like: those of root sessions or of
// subagents, of a class, to a model.
type Role struct {
	Subagent bool   `json:"subagent"`
	Class    string `json:"class,omitempty"`
	Model    string `json:"model,omitempty"`
	Sessions int64  `json:"sessions"`
	Turns    int64  `json:"turns"`
	// Output is the generated tokens of a turn, ToolS the waits for tools before its turns.
	Output Spread `json:"output_tokens"`
	ToolS  Spread `json:"tool_s"`
	// Awaited is the share of a subagent's sessions for which a turn of another session waits; the others run in the
	// background.
	Awaited report.Figure `json:"awaited,omitzero"`
}

// roles returns the roles of the trace, those with most turns first.
func (t *trail) roles() []Role {
	type key struct {
		subagent     bool
		class, model string
	}
	type member struct {
		sessions, awaited int64
		last              int32 // session that was counted last
		output, tool      []float64
	}
	members := map[key]*member{}
	awaited := t.awaited()
	for i := range t.w.Calls {
		c := &t.w.Calls[i]
		k := key{t.parents[c.Session] != c.Session, t.w.Sessions[c.Session].Class, c.Turn.Model}
		m := members[k]
		if m == nil {
			m = &member{last: -1}
			members[k] = m
		}
		if m.last != c.Session {
			m.last = c.Session
			m.sessions++
			if awaited[c.Session] {
				m.awaited++
			}
		}
		m.output = append(m.output, float64(c.Output))
		if tool := c.Turn.Gap.Tool; tool > 0 {
			m.tool = append(m.tool, tool.Seconds())
		}
	}
	list := []Role{}
	for k, m := range members {
		r := Role{Subagent: k.subagent, Class: k.class, Model: k.model, Sessions: m.sessions, Turns: int64(len(m.output)),
			Output: newSpread(m.output), ToolS: newSpread(m.tool)}
		if k.subagent {
			r.Awaited = share(m.awaited, m.sessions)
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Role) int {
		return cmp.Or(cmp.Compare(b.Turns, a.Turns), compareBools(a.Subagent, b.Subagent), cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Model, b.Model))
	})
	return list
}

// awaited tells for which sessions a turn of another session waits that they did not spawn.
func (t *trail) awaited() []bool {
	awaited := make([]bool, len(t.w.Sessions))
	for i := range t.w.Calls {
		for _, e := range t.w.Successors(&t.w.Calls[i]) {
			from, to := t.w.Calls[i].Session, t.w.Calls[e.To].Session
			if from != to && t.parents[to] != from {
				awaited[from] = true
			}
		}
	}
	return awaited
}
