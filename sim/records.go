package sim

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/report"
)

// Records yields the predicted trace of the run: one request_end record for each call that was sent, in the order in
// which they reached the router. Any reader of Dynamo request traces takes them.
//
// Block hashes are the capture's own where those are global. Where they are local to a file, or a program ran more
// than once, they are chained with what tells the scopes and the copies apart; a call without hashes gets blocks that
// nothing shares.
func (r *Result) Records() iter.Seq[*trace.Record] {
	records := RequestRecords(r.Workload, r.Plan.Engine.BlockSize, r.Requests)
	if r.Handovers == nil {
		return records
	}
	return func(yield func(*trace.Record) bool) {
		i := 0
		for rec := range records {
			r.Handovers[i].tell(&r.Requests[i], rec.Request)
			if i++; !yield(rec) {
				return
			}
		}
	}
}

// RequestRecords yields a request_end record for each request of a run of a workload, simulated or live. Captures without
// hashes get them in blocks of blockSize.
func RequestRecords(w *trace.Workload, blockSize int, requests []report.Request) iter.Seq[*trace.Record] {
	return func(yield func(*trace.Record) bool) {
		h := hasher{w: w, size: int32(w.Capture.BlockSize)}
		if h.size == 0 {
			h.size = int32(blockSize)
		}
		for _, s := range w.Sessions {
			h.local = h.local || s.Scope != 0
		}
		for i := range requests {
			if !yield(record(w, &h, &requests[i])) {
				return
			}
		}
	}
}

func record(w *trace.Workload, h *hasher, q *report.Request) *trace.Record {
	c := &w.Calls[q.Turn]
	t := c.Turn
	suffix := copySuffix(q.Copy)
	arrival, end := max(q.Arrival, 0), q.End
	if end == report.None {
		end = arrival
	}
	received := w.Capture.Epoch + arrival.Milliseconds()
	ms := func(d time.Duration) *float64 { v := float64(d) / 1e6; return &v }
	count := func(n int32) *int64 { v := int64(n); return &v }
	known := func(n int32) *int64 {
		if n < 0 {
			return nil
		}
		return count(n)
	}
	nanos := func(d time.Duration) *int64 {
		if d == report.None {
			return nil
		}
		v := int64(d)
		return &v
	}
	turn := int64(q.Turn)
	req := &trace.RequestEnd{
		RequestID: t.ID + suffix, Model: t.Model,
		InputTokens: count(q.Input), OutputTokens: count(q.Output), CachedTokens: known(q.Hit),
		ReceivedMs: &received, TotalTimeMs: ms(end - arrival),
		Replay: &trace.Replay{BlockSize: int64(h.size), InputLength: count(q.Input), Hashes: h.prompt(q)},
		Agentsim: &trace.Extension{Copy: q.Copy, Turn: &turn, Status: q.Status.String(), HitTokens: known(q.Hit),
			ComputedTokens: known(q.Computed), ArrivalNs: nanos(q.Arrival), AdmittedNs: nanos(q.Admitted),
			FirstTokenNs: nanos(q.FirstToken), EndNs: nanos(q.End), Preemptions: int64(q.Preemptions), Inferred: t.Inferred.Names()},
	}
	if q.Brought > 0 {
		req.Agentsim.BroughtTokens = count(q.Brought)
	}
	for _, f := range []struct {
		from time.Duration
		to   **int64
	}{{q.Held, &req.Agentsim.HeldNs}, {q.Waited, &req.Agentsim.WaitedNs}, {q.Tool, &req.Agentsim.ToolNs}, {q.Human, &req.Agentsim.HumanNs}} {
		if f.from > 0 {
			*f.to = nanos(f.from)
		}
	}
	switch q.Status {
	case report.Rejected:
		req.OutputTokens, req.FinishReason = count(0), &trace.FinishReason{Backend: "error: rejected"}
	case report.Failed, report.Unfinished:
		req.OutputTokens, req.FinishReason = count(0), &trace.FinishReason{Backend: "cancelled"}
	}
	if q.Admitted != report.None {
		req.PrefillWaitTimeMs = ms(q.Admitted - q.Arrival)
		if q.FirstToken != report.None {
			req.PrefillTimeMs = ms(q.FirstToken - q.Admitted)
		}
	}
	if q.FirstToken != report.None {
		req.TTFTMs = ms(q.FirstToken - q.Arrival)
		if q.Status == report.Completed && q.Output > 1 {
			itl := float64(q.End-q.FirstToken) / 1e6 / float64(q.Output-1)
			req.AvgITLMs = &itl
		}
	}
	if q.Worker >= 0 {
		id := uint64(q.Worker) + 1 // 0 means unset
		worker := int64(q.Worker)
		req.Worker = &trace.Worker{PrefillWorkerID: &id, DecodeWorkerID: &id}
		req.Agentsim.Worker = &worker
	}
	for i, call := range t.ToolCalls {
		if q.Status != report.Completed {
			break
		}
		if req.FinishReason == nil {
			req.FinishReason = &trace.FinishReason{FinishReason: "tool_calls"}
		}
		req.FinishReason.ToolCalls = append(req.FinishReason.ToolCalls,
			trace.ToolCallRef{ToolCallIndex: uint32(i), ID: call.ID, Name: call.Name})
	}
	var compaction json.RawMessage
	if t.Compaction {
		compaction = json.RawMessage("{}")
	}
	parent := t.Session.Parent
	if parent != "" {
		parent += suffix
	}
	eventTime := received + int64(math.Round(float64(end-arrival)/1e6))
	return &trace.Record{
		Schema: trace.Schema, EventType: trace.EventRequestEnd, EventSource: "dynamo", EventTimeMs: &eventTime,
		AgentContext: &trace.AgentContext{SessionID: t.Session.ID + suffix, ParentSessionID: parent, InputTrigger: t.Trigger,
			Compaction: compaction, SessionFinal: t.Final},
		Request: req,
	}
}

// copySuffix ends the ids of a repetition of a program.
func copySuffix(copy uint32) string {
	if copy == 0 {
		return ""
	}
	return fmt.Sprintf("#%d", copy)
}

// hasher makes the prompt hashes of predicted requests.
type hasher struct {
	w     *trace.Workload
	size  int32 // tokens per hash
	local bool  // hashes of different scopes may be equal by chance
	spans []trace.Span
}

// prompt returns ceil(input/size) hashes.
func (h *hasher) prompt(q *report.Request) trace.Hashes {
	c := &h.w.Calls[q.Turn]
	recorded := c.Turn.Chain()
	n := (q.Input + h.size - 1) / h.size
	hashes := make(trace.Hashes, n)
	h.spans = h.w.Path(c.Prompt, c.Input, int(h.size), q.Copy, h.spans[:0])
	chain, span := uint64(0), 0
	for i := range hashes {
		for span < len(h.spans) && int32(i) >= h.spans[span].To {
			span++
		}
		value, salted := uint64(0), h.local
		if i < len(recorded) {
			value = recorded[i]
		} else {
			value, salted = hash.Combine(uint64(q.Turn)+1, uint64(i)), true
		}
		if q.Copy > 0 && (span >= len(h.spans) || h.spans[span].Key.Copy() > 0) {
			value, salted = hash.Combine(value, uint64(q.Copy)), true
		}
		if !salted {
			hashes[i] = value
			continue
		}
		if i == 0 {
			chain = hash.Combine(uint64(c.Turn.Session.Scope), value)
		} else {
			chain = hash.Combine(hashes[i-1], value)
		}
		hashes[i] = chain
	}
	return hashes
}
