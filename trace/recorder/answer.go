package recorder

import (
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/wire"
)

// Bounds on what is kept of one answer.
const (
	maxGaps  = 1 << 16
	maxCalls = 1 << 10
	maxName  = 256     // bytes of a tool's name or the id of a call
	maxText  = 8 << 20 // bytes of generated text
)

// answer is what was seen of an answer while it passed.
type answer struct {
	id, model   string
	first, last time.Time // when generated text was read; zero without any
	gaps        []int64   // between the events that had some, in microseconds
	events      int64     // that had some

	usage  wire.Usage
	finish string
	// text is all that was generated: reasoning, content and the arguments of calls. It is cut off, and cut is set, when
	// it is too long.
	text []byte
	cut  bool
	// prompt and output are token ids, where the client asked for them.
	prompt, output []uint32
	calls          []call
	complete       bool // the answer said that it is
}

// call is a tool call that the model asked for.
type call struct {
	choice, index int
	id, name      string
}

// take adds what an event tells that was read at a time, or a whole answer.
func (a *answer) take(c *wire.Chunk, at time.Time) {
	if a.id == "" {
		a.id = c.ID
	}
	if a.model == "" {
		a.model = c.Model
	}
	a.usage.Update(c.Usage)
	if c.Finish != "" {
		a.finish = c.Finish
	}
	if c.PromptTokenIDs != nil {
		a.prompt = c.PromptTokenIDs
	}
	a.output = append(a.output, c.TokenIDs...)
	a.complete = a.complete || c.End
	for i := range c.ToolCalls {
		a.call(c.Choice, &c.ToolCalls[i])
	}
	if !c.Generates() {
		return
	}
	a.events++
	if a.first.IsZero() {
		a.first = at
	} else if len(a.gaps) < maxGaps {
		a.gaps = append(a.gaps, at.Sub(a.last).Microseconds())
	}
	a.last = at
	a.write(c.Reasoning)
	a.write(c.Text)
	for i := range c.ToolCalls {
		a.write(c.ToolCalls[i].Arguments)
	}
}

func (a *answer) write(text string) {
	if a.cut = a.cut || len(a.text)+len(text) > maxText; !a.cut {
		a.text = append(a.text, text...)
	}
}

// call notes a part of a tool call: the first id and name that it tells.
func (a *answer) call(choice int, t *wire.ToolCall) {
	for i := range a.calls {
		c := &a.calls[i]
		if c.choice == choice && c.index == t.Index {
			if c.id == "" {
				c.id = short(t.ID)
			}
			if c.name == "" {
				c.name = short(t.Name)
			}
			return
		}
	}
	if len(a.calls) < maxCalls {
		a.calls = append(a.calls, call{choice, t.Index, short(t.ID), short(t.Name)})
	}
}

func short(s string) string {
	if len(s) > maxName {
		return ""
	}
	return s
}

// refs lists the calls. Dialects count them differently, records from 0 for each choice.
func (a *answer) refs() []trace.ToolCallRef {
	var refs []trace.ToolCallRef
	next := map[int]uint32{}
	for _, c := range a.calls {
		refs = append(refs, trace.ToolCallRef{ChoiceIndex: uint32(max(0, c.choice)), ToolCallIndex: next[c.choice], ID: c.id, Name: c.name})
		next[c.choice]++
	}
	return refs
}
