package perfetto

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// The categories of events. Perfetto filters by them; sums over tool_time, paused and held equal the figures of the same
// run's report.json.
const (
	catProgram    = "program"
	catSession    = "session"
	catTurn       = "turn"
	catStage      = "stage"
	catFirstToken = "first_token"
	catTool       = "tool"          // as a harness reported it
	catInferred   = "tool_inferred" // as it follows from the calls around it
	catToolTime   = "tool_time"     // of a session between two turns, parallel tools counted once
	catHumanTime  = "human_time"
	catPaused     = "paused" // a program, by the program scheduler
	catHeld       = "held"   // a request
	catCompaction = "compaction"
	catFinal      = "session_final"
	catError      = "error"
	catCancelled  = "cancelled"
	catCritical   = "critical" // on the critical path of its program
	catStep       = "step"
	catPreemption = "preemption"
	catEviction   = "eviction"
	catFault      = "fault"
	catDecision   = "decision"
	catTransfer   = "transfer" // of KV
	catAction     = "kv_action"
)

// arg is an argument of an event: text, or a number.
type arg struct {
	key    string
	kind   argKind
	text   string
	number int64
	real   float64
}

type argKind uint8

const (
	argText argKind = iota // that other events have too
	argID                  // that hardly another event has
	argNumber
	argReal
	argTrue
)

// args gathers arguments. What is not told is left out.
type args []arg

func (a *args) text(key, text string) {
	if text != "" {
		*a = append(*a, arg{key: key, kind: argText, text: text})
	}
}

// id adds a text that hardly any other event has.
func (a *args) id(key, text string) {
	if text != "" {
		*a = append(*a, arg{key: key, kind: argID, text: text})
	}
}

func (a *args) number(key string, n int64) {
	*a = append(*a, arg{key: key, kind: argNumber, number: n})
}

// count adds a number that is told if it is not negative.
func (a *args) count(key string, n int64) {
	if n >= 0 {
		a.number(key, n)
	}
}

// given adds a number that is told if it is not 0.
func (a *args) given(key string, n int64) {
	if n != 0 {
		a.number(key, n)
	}
}

func (a *args) real(key string, v float64) {
	*a = append(*a, arg{key: key, kind: argReal, real: v})
}

// ms adds a duration in milliseconds that is told if it is not negative.
func (a *args) ms(key string, d time.Duration) {
	if d >= 0 {
		a.real(key, float64(d)/1e6)
	}
}

func (a *args) yes(key string, v bool) {
	if v {
		*a = append(*a, arg{key: key, kind: argTrue})
	}
}

// big adds a number that may not fit the 53 bits that browsers keep.
func (a *args) big(key string, n *uint64) {
	if n != nil {
		a.text(key, strconv.FormatUint(*n, 10))
	}
}

func (a *args) rank(key string, n *uint32) {
	if n != nil {
		a.number(key, int64(*n))
	}
}

// turn adds all that is known of a call.
func (a *args) turn(c *call, epochMs int64) {
	t := c.Turn
	a.text("session_id", t.Session.ID)
	a.text("parent_session_id", t.Session.Parent)
	a.text("class", t.Session.Class)
	a.id("request_id", t.ID)
	a.text("model", t.Model)
	if epochMs >= firstEpochMs && !c.placed {
		a.number("request_received_ms", epochMs+t.Start.Milliseconds())
	}
	a.number("input_tokens", int64(t.Input))
	a.number("output_tokens", int64(t.Output))
	a.count("cached_tokens", int64(t.Cached))
	a.count("reasoning_tokens", int64(t.Reasoning))
	if !c.endless {
		a.ms("total_time_ms", c.took())
	}
	a.ms("ttft_ms", t.TTFT)
	a.text("input_trigger", t.Trigger)
	a.text("status", t.Status)
	if d := t.Detail; d != nil {
		a.detail(d)
	}
	a.toolCalls(t.ToolCalls)
	a.yes("session_final", t.Final)
	h := t.Hints
	a.given("priority", int64(h.Priority))
	a.given("strict_priority", int64(h.StrictPriority))
	a.given("expected_output_tokens", int64(h.OSL))
	a.yes("speculative_prefill", h.SpeculativePrefill)
	a.text("policy_class", h.PolicyClass)
	for _, w := range t.Waits {
		a.id("waits_for", w.ID)
	}
	a.given("tokens_before_capture", int64(t.Cut))
	a.text("inferred", strings.Join(c.inferred(), ", "))
	a.id("row", t.File+":"+strconv.Itoa(int(t.Line)))
}

// inferred names what the trace does not tell of the call.
func (c *call) inferred() []string {
	list := c.Inferred.Names()
	if r := run(c.Turn); r != nil {
		list = append(list, r.Inferred...)
	}
	if c.placed {
		list = append(list, "start, by what it waits for")
	}
	if c.endless {
		list = append(list, "end, not told")
	}
	return list
}

// firstEpochMs is the earliest Unix time that is taken for one: times of a run that began at 0 are earlier.
const firstEpochMs = 1e11 // 1973

func (a *args) toolCalls(calls []trace.ToolCall) {
	var names, ids []string
	for _, c := range calls {
		names = append(names, c.Name)
		if c.ID != "" {
			ids = append(ids, c.ID)
		}
	}
	a.given("tool_call_count", int64(len(calls)))
	a.text("tool_call_names", strings.Join(names, ", "))
	a.id("tool_call_ids", strings.Join(ids, ", "))
}

func (a *args) detail(d *trace.Detail) {
	a.id("x_request_id", d.CallerID)
	a.ms("prefill_wait_time_ms", d.PrefillWait)
	a.ms("prefill_time_ms", d.Prefill)
	a.ms("avg_itl_ms", d.ITL)
	a.ms("kv_transfer_estimated_latency_ms", d.KVTransfer)
	if d.HitRate >= 0 {
		a.real("kv_hit_rate", d.HitRate)
	}
	a.count("queue_depth", d.QueueDepth)
	if w := d.Workers; w != nil {
		a.big("prefill_worker_id", w.PrefillWorkerID)
		a.rank("prefill_dp_rank", w.PrefillDPRank)
		a.big("decode_worker_id", w.DecodeWorkerID)
		a.rank("decode_dp_rank", w.DecodeDPRank)
	}
	a.text("finish_reason", d.FinishReason)
	a.text("backend_finish_reason", d.Backend)
	a.text("stop_reason", d.StopReason)
	a.text("choices", d.Choices)
	a.text("compaction", d.Compaction)
	a.text("kv_hints", d.KVHints)
	a.headers(d.AgentHeaders)
	if r := d.Run; r != nil {
		a.run(r)
	}
}

// headers shows what an agent sent of itself, which the trace has as it came. What may be a credential is not shown: people
// pass timelines on.
func (a *args) headers(text string) {
	if text == "" {
		return
	}
	var all map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return
	}
	for name := range all {
		for _, secret := range []string{"auth", "cookie", "key", "secret", "token"} {
			if strings.Contains(strings.ToLower(name), secret) {
				all[name] = "not shown"
			}
		}
	}
	if shown, err := json.Marshal(all); err == nil { // by name
		a.text("agent_headers", string(shown))
	}
}

func (a *args) run(r *trace.RunDetail) {
	a.text("run.status", r.Status)
	a.given("run.copy", int64(r.Copy))
	a.count("run.worker", int64(r.Worker))
	a.count("run.hit_tokens", r.Hit)
	a.count("run.computed_tokens", r.Computed)
	a.given("run.preemptions", r.Preemptions)
	a.ms("run.held_ms", r.Held)
	if r.Gap != (trace.Gap{}) {
		a.ms("run.waited_ms", r.Gap.Total())
	}
	a.ms("run.planned_ms", r.Planned)
	a.ms("run.ready_ms", r.Ready)
	a.ms("run.due_ms", r.Due)
}

// stage adds what is known of a part of a call.
func (a *args) stage(c *call, s *stage) {
	a.id("request_id", c.ID)
	a.text("inferred", s.inferred)
	switch s.name {
	case stageWait:
		if c.Detail != nil {
			a.count("queue_depth", c.Detail.QueueDepth)
		}
	case stagePrefill:
		a.number("input_tokens", int64(c.Input))
		a.count("cached_tokens", int64(c.Cached))
	case stageDecode:
		a.number("output_tokens", int64(c.Output))
		if c.Detail != nil {
			a.ms("avg_itl_ms", c.Detail.ITL)
		}
	}
}

// tool adds all that is known of a tool.
func (a *args) tool(p *plan, s *session, t *tool) {
	a.text("session_id", s.ID)
	a.text("tool_class", t.Class)
	a.id("tool_call_id", t.ID)
	a.text("status", t.Status)
	a.yes("duration_unknown", t.endless)
	if r := t.Row; r != nil {
		if r.DurationMs != nil {
			a.real("duration_ms", *r.DurationMs)
		}
		if r.OutputTokens != nil {
			a.number("output_tokens", *r.OutputTokens)
		}
		if r.OutputBytes != nil {
			a.number("output_bytes", *r.OutputBytes)
		}
		a.text("error_type", r.ErrorType)
		a.id("tool_name_hash", r.ToolNameHash)
	}
	if t.from >= 0 {
		a.id("source_request_id", p.calls[t.from].ID)
	}
	if t.to >= 0 {
		a.id("next_request_id", p.calls[t.to].ID)
	}
	if !t.inferred {
		return
	}
	a.yes("inferred", true)
	a.number("tool_call_index", int64(t.place))
	switch {
	case t.ID == "" && t.Class == unnamed:
		a.text("source", "the wait before the next call")
	default:
		a.text("source", "request.finish_reason_metadata.tool_calls")
	}
	if t.endless && t.to < 0 && t.from >= 0 && t.from+1 < s.last {
		a.id("overlapping_request_id", p.calls[t.from+1].ID)
	}
}

// critical adds the parts of a program's critical path.
func (a *args) critical(c *criticalPath) {
	a.number("critical_calls", int64(c.calls))
	a.ms("critical_path_ms", c.length)
	for _, part := range []struct {
		name string
		took time.Duration
	}{{"model", c.model}, {"tool", c.gap.Tool}, {"human", c.gap.Human}, {"other", c.gap.Other}} {
		if part.took > 0 {
			a.ms(fmt.Sprintf("critical_%s_ms", part.name), part.took)
			a.real(fmt.Sprintf("critical_%s_share", part.name), c.share(part.took))
		}
	}
}
