package convert

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/goccy/go-json"
	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
)

// Records yields the calls of a linked capture as Dynamo request records, in the order of their starts, and then the tools.
// It returns what records have no place for, too, as Write does.
//
// Dynamo's hashes are of one space: those of other scopes are chained with the scope.
func Records(c *trace.Capture) (records iter.Seq[*trace.Record], lost []Count) {
	w := newWriter(c, []string{factID, factModel, factHints, factEnd, factParent, factCross, factCached, factReasoning, factTTFT, factTrigger,
		factClass, factFinal, factCompaction, factOutputs, factTools, factToolCalls, factStatus, factInferred})
	if !c.SharedClock {
		w.lose("clocks of programs, each with its own", 1)
	}
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			if row := t.Row; row != nil && row.AgentContext != nil && row.AgentContext.Identity().Run != "" {
				w.lose("ids of runs", 1)
			}
			if t.Explicit && len(t.Deps) > 0 {
				w.lose("what calls wait for, as it was stated", 1)
			}
			if w.begins[t].start%time.Millisecond != 0 {
				w.lose("parts of starts below a millisecond", 1)
			}
			if t.End == trace.NoTime {
				w.lose("ends that are not known, which the default speed tells", 1)
			}
		}
	}
	return func(yield func(*trace.Record) bool) {
		for _, t := range w.byStart() {
			if !yield(w.record(t)) {
				return
			}
		}
		for _, s := range c.Sessions {
			for _, tool := range s.Tools {
				if tool.End != trace.NoTime && !yield(w.toolRecord(s, tool)) {
					return
				}
			}
		}
	}, counts(w.lost)
}

// wallMs is a time of the capture as milliseconds since 1970, or since its own time zero if that is all that is known.
func (w *writer) wallMs(at time.Duration) int64 { return w.capture.Epoch + at.Milliseconds() }

func countOf(n int32) *int64 {
	if n < 0 {
		return nil
	}
	count := int64(n)
	return &count
}

// record is the request_end of a call: its row, if that was kept, with what the call now tells.
func (w *writer) record(t *trace.Turn) *trace.Record {
	at := w.begins[t]
	received := w.wallMs(at.start)
	ended := received + int64(math.Round(float64(at.end-at.start)/1e6))
	r, x, agent := rowOf(t)
	r.RequestID, r.Model, r.InputTokens, r.OutputTokens, r.CachedTokens = t.ID, t.Model, countOf(t.Input), countOf(t.Output), countOf(t.Cached)
	r.ReceivedMs, r.TotalTimeMs, r.Replay, r.FinishReason = &received, msOf(at.end-at.start), w.replay(t), finishOf(t, r.FinishReason)
	if t.TTFT != trace.NoTime {
		r.TTFTMs = msOf(t.TTFT)
	}
	x.ReasoningTokens = countOf(t.Reasoning)
	filled := t.Inferred
	if t.Start == trace.NoTime {
		filled |= trace.FieldStart
	}
	if t.End == trace.NoTime {
		filled |= trace.FieldEnd
	}
	for _, name := range filled.Names() {
		if !slices.Contains(x.Inferred, name) {
			x.Inferred = append(x.Inferred, name)
		}
	}
	if h := t.Hints; h != (trace.Hints{}) && x.Hints == nil {
		x.Hints = &trace.AgentHints{Priority: h.Priority, StrictPriority: h.StrictPriority, OSL: uint32(h.OSL),
			SpeculativePrefill: h.SpeculativePrefill, PolicyClass: h.PolicyClass}
	}
	if r.Agentsim != nil || x.ReasoningTokens != nil || len(x.Inferred) > 0 || x.Hints != nil {
		r.Agentsim = &x
	}
	agent.SessionID, agent.ParentSessionID, agent.SessionTypeID = t.Session.ID, t.Session.Parent, t.Session.Class
	agent.InputTrigger, agent.SessionFinal = t.Trigger, t.Final
	if t.Compaction && len(agent.Compaction) == 0 {
		agent.Compaction = json.RawMessage("{}")
	}
	return &trace.Record{Schema: trace.Schema, EventType: trace.EventRequestEnd, EventTimeMs: &ended, EventSource: "dynamo",
		AgentContext: &agent, Request: &r}
}

// rowOf returns what the row of a call, if it was kept, tells that Turn has no field for, in copies.
func rowOf(t *trace.Turn) (r trace.RequestEnd, x trace.Extension, agent trace.AgentContext) {
	if t.Row == nil {
		return r, x, agent
	}
	r = *t.Row.Request
	if r.Agentsim != nil {
		x = *r.Agentsim
		x.Inferred = slices.Clone(x.Inferred)
	}
	if told := t.Row.AgentContext; told != nil {
		agent = trace.AgentContext{Compaction: told.Compaction, KVHints: told.KVHints, AgentHeaders: told.AgentHeaders}
	}
	return r, x, agent
}

// finishOf is how a call ended; nil if nothing is told of it. Told is what its row says.
func finishOf(t *trace.Turn, told *trace.FinishReason) *trace.FinishReason {
	f := &trace.FinishReason{}
	if told != nil {
		*f = *told
	}
	switch {
	case f.Backend != "" || t.Status == "" || t.Status == "ok":
	case t.Status == trace.Cancelled:
		f.Backend = trace.Cancelled
	default:
		f.Backend = "error: " + t.Status
	}
	same := func(call trace.ToolCall, ref trace.ToolCallRef) bool {
		return call == trace.ToolCall{ID: ref.ID, Name: ref.Name}
	}
	if !slices.EqualFunc(t.ToolCalls, f.ToolCalls, same) {
		f.ToolCalls = nil
		for i, call := range t.ToolCalls {
			f.ToolCalls = append(f.ToolCalls, trace.ToolCallRef{ToolCallIndex: uint32(i), ID: call.ID, Name: call.Name})
		}
	}
	if len(f.ToolCalls) > 0 {
		f.FinishReason = cmp.Or(f.FinishReason, "tool_calls")
	}
	if told == nil && f.Backend == "" && len(f.ToolCalls) == 0 {
		return nil
	}
	return f
}

// replay is the hashes of a prompt. Dynamo's loader wants one for each block: blocks of which nothing is known are like no
// others.
func (w *writer) replay(t *trace.Turn) *trace.Replay {
	size := int32(cmp.Or(w.capture.BlockSize, estimateBlockSize))
	r := &trace.Replay{BlockSize: int64(size), InputLength: countOf(t.Input), Hashes: w.global(t, t.Chain())}
	if len(t.OutputHashes) > 0 {
		r.CompletionHashes = append(slices.Clone(r.Hashes[:t.Input/size]), w.global(t, t.OutputHashes)...)
	}
	own := xxh3.HashString(t.ID)
	for i := int32(len(r.Hashes)); i < (t.Input+size-1)/size; i++ {
		r.Hashes = append(r.Hashes, hash.Combine(own, uint64(i)))
	}
	return r
}

// global makes hashes of the turn's scope comparable with those of all.
func (w *writer) global(t *trace.Turn, hashes []uint64) trace.Hashes {
	global := slices.Clone(hashes)
	if scope := t.Session.Scope; scope != 0 {
		for i, h := range global {
			global[i] = hash.Combine(uint64(scope), h)
		}
	}
	return global
}

// toolRecord is the tool_end or tool_error of a tool.
func (w *writer) toolRecord(s *trace.Session, t trace.ToolSpan) *trace.Record {
	start, end := w.wallMs(t.Start), w.wallMs(t.End)
	kind := trace.EventToolEnd
	if t.Status == "error" {
		kind = trace.EventToolError
	}
	e := trace.ToolEvent{}
	if t.Row != nil {
		e = *t.Row
	}
	e.ToolCallID, e.ToolClass, e.Status = t.ID, t.Class, t.Status
	e.StartedMs, e.EndedMs, e.DurationMs = &start, &end, msOf(t.End-t.Start)
	return &trace.Record{Schema: trace.Schema, EventType: kind, EventSource: "harness", EventTimeMs: &end,
		AgentContext: &trace.AgentContext{SessionID: s.ID, ParentSessionID: s.Parent}, Tool: &e}
}
