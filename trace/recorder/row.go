package recorder

import (
	"cmp"
	"time"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/wire"
)

// maxModel bounds the name of a model, in bytes.
const maxModel = 256

// emit makes the record of an exchange: at its place in a session, or of one that was not analysed (nil).
func (r *Recorder) emit(e *exchange, c *wire.Conversation, s *place) {
	defer r.held.Add(-e.held)
	r.options.Emit(r.record(e, c, s))
}

func (r *Recorder) record(e *exchange, c *wire.Conversation, s *place) *trace.Record {
	a := &e.answer
	received := e.started.UnixMilli()
	total := e.ended.Sub(e.started)
	ended := received + total.Round(time.Millisecond).Milliseconds()
	q := &trace.RequestEnd{
		RequestID: e.id, XRequestID: e.callID, Model: model(c.Model, a.model),
		ReceivedMs: &received, TotalTimeMs: new(ms(total)), CachedTokens: a.usage.Cached,
		FinishReason: e.finish(),
		Agentsim: &trace.Extension{Status: e.result(), HTTPStatus: e.status, ResponseID: short(a.id), ReasoningTokens: a.usage.Reasoning,
			TokenGapsUs: a.gaps, Hints: hints(wire.HintsOf(e.header, c.Hints))},
	}
	x := q.Agentsim
	input, output := tokens(a.usage.Prompt), tokens(a.usage.Completion)
	if a.usage.Completion == nil {
		if output = int(a.events); output > 0 {
			x.Inferred = append(x.Inferred, "output_tokens")
		}
	}
	q.OutputTokens = new(int64(output))
	found := r.analyst.blocks.of(e, c, s, input, output)
	q.Replay = &trace.Replay{BlockSize: int64(r.options.BlockSize), InputLength: new(int64(found.input)), Hashes: found.prompt}
	x.CompletionHashes = found.answered
	if input == 0 {
		input = found.input
		x.Inferred = append(x.Inferred, "input_tokens")
	}
	if found.private {
		x.Inferred = append(x.Inferred, "input_sequence_hashes")
	}
	q.InputTokens = new(int64(input))
	if !a.first.IsZero() {
		q.TTFTMs = new(ms(a.first.Sub(e.started)))
		if output >= 2 {
			q.AvgITLMs = new(ms(e.ended.Sub(a.first)) / float64(output-1))
		}
	}
	context := &trace.AgentContext{SessionID: e.session.ID, ParentSessionID: e.session.Parent, SessionFinal: e.session.Final,
		Compaction: e.compaction, InputTrigger: c.Trigger}
	if context.SessionID == "" {
		context.SessionID = "inferred-" + e.id
		if s != nil {
			context.SessionID = s.id
		}
		x.Inferred = append(x.Inferred, "session")
	}
	if context.SessionFinal {
		context.KVHints = json.RawMessage(`{"evict_session":true}`) // as Dynamo writes it
	}
	return &trace.Record{Schema: trace.Schema, EventType: trace.EventRequestEnd, EventTimeMs: &ended, EventSource: "dynamo",
		AgentContext: context, Request: q}
}

// model is the one that was asked for, else the one that answered.
func model(names ...string) string {
	name := cmp.Or(names...)
	return name[:min(len(name), maxModel)]
}

// maxTokens bounds what a server may count: the largest contexts hold ten million tokens.
const maxTokens = 1 << 24

// tokens is a count that a server told, 0 for none and for what is no count.
func tokens(n *int64) int {
	if n == nil || *n < 0 || *n > maxTokens {
		return 0
	}
	return int(*n)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// hints turns what a client told into what a record tells.
func hints(h *wire.AgentHints) *trace.AgentHints {
	if h == nil {
		return nil
	}
	return &trace.AgentHints{Priority: h.Priority, StrictPriority: h.StrictPriority, OSL: h.OSL,
		SpeculativePrefill: h.SpeculativePrefill, LatencySensitivity: h.LatencySensitivity}
}
