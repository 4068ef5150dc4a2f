package synth

import "github.com/agentsim/agentsim/trace"

// emit gives the planned program its final form. All memory of a program comes in a few pieces of exact size.
func (p *plan) emit() []*trace.Session {
	block := int32(p.agent.block)
	var tools, hashes int
	for k := range p.calls {
		c := &p.calls[k]
		hashes += int(blocksOf(c.input, block) - c.shared/block)
	}
	for _, s := range p.sessions {
		tools += s.tools
	}
	var (
		turns     = make([]trace.Turn, len(p.calls))
		order     = make([]*trace.Turn, len(p.calls))
		spans     = make([]trace.ToolSpan, tools)
		toolCalls = make([]trace.ToolCall, 0, tools)
		chains    = make([]uint64, 0, hashes)
		sessions  = make([]trace.Session, len(p.sessions))
		list      = make([]*trace.Session, len(p.sessions))
		hash      = newBlockHashes(p.seed, p.program)
		ids       = p.ids()
		begin     = 0
	)
	for k, s := range p.sessions {
		list[k] = &sessions[k]
		sessions[k] = trace.Session{Class: p.agent.class, Final: true, Turns: order[:0:s.calls], Tools: spans[:0:s.tools]}
		order, spans = order[s.calls:], spans[s.tools:]
	}
	for k := range p.calls {
		c, t, s := &p.calls[k], &turns[k], &sessions[p.calls[k].session]
		end := p.names.ends[k]
		if len(s.Turns) == 0 {
			s.ID = ids[begin:end.session]
			if c.session > 0 {
				s.Parent, s.Class = sessions[0].ID, subagentTool
			}
		}
		s.Turns = append(s.Turns, t)
		t.ID = ids[begin:end.request]
		t.Start, t.End, t.TTFT = c.start, c.end, c.ttft
		t.Input, t.Output, t.Cached, t.Reasoning = c.input, c.output, trace.Unknown, trace.Unknown
		t.Trigger, t.Compaction, t.Final = c.trigger, c.compaction, c.final
		if c.tool != "" {
			id := ids[begin:end.tool]
			toolCalls = append(toolCalls, trace.ToolCall{ID: id, Name: c.tool})
			t.ToolCalls = toolCalls[len(toolCalls)-1 : len(toolCalls) : len(toolCalls)]
			s.Tools = append(s.Tools, trace.ToolSpan{ID: id, Class: c.tool, Start: c.end, End: c.toolEnd, Status: "succeeded"})
		}
		begin = end.tool

		// The full blocks of the shared tokens are the base's. A block that was partial there is full here, or
		// longer: it gets a new hash.
		if c.base >= 0 {
			t.Base, t.Shared = &turns[c.base], c.shared/block
		}
		first := len(chains)
		for b := t.Shared; b < blocksOf(c.input, block); b++ {
			if b < c.common/block {
				chains = append(chains, hash.common(p.sessions[c.session].common, b))
			} else {
				chains = append(chains, hash.private())
			}
		}
		t.Hashes = chains[first:len(chains):len(chains)]
	}
	return list
}

// ids returns the text of all ids of the program, divided by p.names.ends.
func (p *plan) ids() string {
	p.names.reset()
	for k := range p.calls {
		c := &p.calls[k]
		p.names.add(p.program, c.session, c.turn, c.tool)
	}
	return string(p.names.text)
}

// blocksOf returns the number of blocks that hold n tokens, the last of which may be partial.
func blocksOf(n, block int32) int32 { return (n + block - 1) / block }
