package recorder

import (
	"slices"
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
	// What was generated. Where it is too long to keep, cut is set and it is not all there.
	text, reasoning []byte
	calls           []call
	kept            int
	cut             bool
	// prompt and output are token ids, where the client asked for them.
	prompt, output []uint32
	complete       bool // the answer said that it is
}

// call is a tool call that the model asked for.
type call struct {
	choice, index int
	id, name      string
	arguments     []byte
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
	a.text = a.keep(a.text, c.Text)
	a.reasoning = a.keep(a.reasoning, c.Reasoning)
	for i := range c.ToolCalls {
		part := &c.ToolCalls[i]
		if known := a.call(c.Choice, part); known != nil {
			known.arguments = a.keep(known.arguments, part.Arguments)
		}
	}
}

func (a *answer) keep(b []byte, text string) []byte {
	if a.kept += len(text); a.kept > maxText {
		a.cut = true
		return b
	}
	return append(b, text...)
}

// call notes a part of a tool call, and the first id and name that it tells. It is nil when there are too many.
func (a *answer) call(choice int, part *wire.ToolCall) *call {
	i := slices.IndexFunc(a.calls, func(c call) bool { return c.choice == choice && c.index == part.Index })
	if i < 0 {
		if len(a.calls) == maxCalls {
			a.cut = true
			return nil
		}
		i = len(a.calls)
		a.calls = append(a.calls, call{choice: choice, index: part.Index})
	}
	c := &a.calls[i]
	if c.id == "" {
		c.id = short(part.ID)
	}
	if c.name == "" {
		c.name = short(part.Name)
	}
	return c
}

// item is the answer as a client sends it back.
func (a *answer) item() *wire.Item {
	item := &wire.Item{Role: "assistant", Text: string(a.text), Reasoning: string(a.reasoning)}
	for _, c := range a.calls {
		item.Calls = append(item.Calls, wire.ToolCall{ID: c.id, Name: c.name, Arguments: string(c.arguments)})
	}
	return item
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
