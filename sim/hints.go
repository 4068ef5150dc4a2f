package sim

import (
	"fmt"
	"path"
	"slices"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/trace"
)

// HintRule gives hints to the calls that it matches, as if their agents had sent them (Dynamo: nvext.agent_hints).
type HintRule struct {
	Match HintMatch `yaml:"match"`
	// What is nil is not changed.
	Priority       *int32  `yaml:"priority,omitempty"`
	StrictPriority *uint32 `yaml:"strict_priority,omitempty"`
	OSL            *int32  `yaml:"osl,omitempty"`
	PolicyClass    *string `yaml:"policy_class,omitempty"`
}

// HintMatch says which calls a rule is for: those for which all that is set holds. The zero value matches every call.
type HintMatch struct {
	// Root matches calls of root sessions, Subagent those of sessions that another session spawned.
	Root     bool `yaml:"root,omitempty"`
	Subagent bool `yaml:"subagent,omitempty"`
	// First matches the first call of a session.
	First bool `yaml:"first,omitempty"`
	// Class and Model are globs of the session's class and the call's model.
	Class string `yaml:"class,omitempty"`
	Model string `yaml:"model,omitempty"`
}

// maxHintRules bounds the rules: every call is held against each of them once.
const maxHintRules = 100

// checkHints reports the first rule that cannot be meant.
func (d *Deployment) checkHints() error {
	if len(d.Hints) > maxHintRules {
		return bad("hints", "%d rules, want at most %d", len(d.Hints), maxHintRules)
	}
	for i, h := range d.Hints {
		key := fmt.Sprintf("hints[%d]", i)
		switch {
		case h.Match.Root && h.Match.Subagent:
			return bad(key+".match", "no call is of a root session and of a subagent")
		case h.Priority == nil && h.StrictPriority == nil && h.OSL == nil && h.PolicyClass == nil:
			return bad(key, "gives no hint, want priority, strict_priority, osl or policy_class")
		case h.OSL != nil && (*h.OSL < 1 || *h.OSL > 1<<28):
			return bad(key+".osl", "%d is out of range, want 1 to %d tokens", *h.OSL, 1<<28)
		case h.Priority != nil && (*h.Priority < -maxPriority || *h.Priority > maxPriority):
			return bad(key+".priority", "%d is out of range, want %d to %d", *h.Priority, -maxPriority, maxPriority)
		}
		for _, glob := range []string{h.Match.Class, h.Match.Model} {
			if _, err := path.Match(glob, ""); err != nil {
				return bad(key+".match", "%q is not a glob: %v", glob, err)
			}
		}
	}
	return nil
}

// maxPriority bounds priorities, so that ranks and scores made of them stay exact.
const maxPriority = 1 << 30

// matches tells whether the rule is for a call.
func (m *HintMatch) matches(w *trace.Workload, call int32) bool {
	c := &w.Calls[call]
	s := w.Sessions[c.Session]
	switch {
	case m.Root && s.Parent != "", m.Subagent && s.Parent == "":
		return false
	case m.First && len(s.Turns) > 0 && s.Turns[0] != c.Turn:
		return false
	case m.Class != "" && !matches(m.Class, s.Class), m.Model != "" && !matches(m.Model, c.Turn.Model):
		return false
	}
	return true
}

// idleRules tells of rules that give no call a hint, and of hints that nothing knows.
func (p *Plan) idleRules(w *trace.Workload) []string {
	var idle []string
	for i := range p.Deployment.Hints {
		h := &p.Deployment.Hints[i]
		call := int32(0)
		for call < int32(len(w.Calls)) && !h.Match.matches(w, call) {
			call++
		}
		if call == int32(len(w.Calls)) {
			idle = append(idle, fmt.Sprintf("hints[%d] matches no call of the trace", i))
		}
		named := func(c router.Class) bool { return c.Name == *h.PolicyClass || c.Family == *h.PolicyClass }
		if h.PolicyClass != nil && !slices.ContainsFunc(p.Router.Classes, named) {
			idle = append(idle, fmt.Sprintf("hints[%d]: policy_class %q is none of router.policy_classes, and counts as none", i, *h.PolicyClass))
		}
	}
	return idle
}

// hints are the hints of a call: those of the trace, and what the rules say, the later ones last.
func (p *Plan) hints(w *trace.Workload, call int32) trace.Hints {
	h := w.Calls[call].Turn.Hints
	for i := range p.Deployment.Hints {
		r := &p.Deployment.Hints[i]
		if !r.Match.matches(w, call) {
			continue
		}
		if r.Priority != nil {
			h.Priority = *r.Priority
		}
		if r.StrictPriority != nil {
			h.StrictPriority = *r.StrictPriority
		}
		if r.OSL != nil {
			h.OSL = *r.OSL
		}
		if r.PolicyClass != nil {
			h.PolicyClass = *r.PolicyClass
		}
	}
	return h
}
