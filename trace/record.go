package trace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	"github.com/goccy/go-json"
)

// Schema names of trace records. Both stayed v1 through several renamings of their identity fields.
const (
	Schema       = "dynamo.request.trace.v1"
	legacySchema = "dynamo.agent.trace.v1"
)

// The event types of records.
const (
	EventRequestEnd     = "request_end"
	EventRequestPayload = "request_payload"
	EventToolStart      = "tool_start"
	EventToolEnd        = "tool_end"
	EventToolError      = "tool_error"
)

// Record is one line of a Dynamo request trace (dynamo.request.trace.v1, v1.4). Nil pointers and empty strings are
// keys that are absent. Wall times are Unix milliseconds, durations are milliseconds.
type Record struct {
	Schema    string `json:"schema"`
	EventType string `json:"event_type"`
	// EventTimeMs is when the row's event happened; for a request_end the time of the last token.
	EventTimeMs *int64 `json:"event_time_unix_ms,omitempty"`
	// EventSource is "dynamo" or "harness".
	EventSource  string        `json:"event_source,omitempty"`
	AgentContext *AgentContext `json:"agent_context,omitempty"`
	Request      *RequestEnd   `json:"request,omitempty"`
	Tool         *ToolEvent    `json:"tool,omitempty"`
	Payload      *Payload      `json:"payload,omitempty"`
	// Lost is what a recorder of this project tells of rows that are not there. Foreign readers ignore it.
	Lost *LostRows `json:"agentsim,omitempty"`

	// The identity of tool rows in the flat form that harnesses send to Dynamo.
	FlatSessionID       string `json:"session_id,omitempty"`
	FlatParentSessionID string `json:"parent_session_id,omitempty"`
}

// AgentContext says which session a row belongs to. Use Identity to read it: its names changed three times.
type AgentContext struct {
	SessionID       string `json:"session_id,omitempty"`
	ParentSessionID string `json:"parent_session_id,omitempty"`
	SessionFinal    bool   `json:"session_final,omitempty"`
	// Compaction is an object, possibly empty, on a call that writes a summary of the context.
	Compaction json.RawMessage `json:"compaction,omitempty"`
	KVHints    json.RawMessage `json:"kv_hints,omitempty"`
	// InputTrigger is "user_message", "tool_result" or "other".
	InputTrigger string          `json:"input_trigger,omitempty"`
	AgentHeaders json.RawMessage `json:"agent_headers,omitempty"`

	// v1.2 and June 2026: SessionID is the whole run, TrajectoryID the chain.
	SessionTypeID      string `json:"session_type_id,omitempty"`
	TrajectoryID       string `json:"trajectory_id,omitempty"`
	ParentTrajectoryID string `json:"parent_trajectory_id,omitempty"`
	TrajectoryFinal    bool   `json:"trajectory_final,omitempty"`
	// Before v1.2.
	WorkflowTypeID  string `json:"workflow_type_id,omitempty"`
	WorkflowID      string `json:"workflow_id,omitempty"`
	ProgramID       string `json:"program_id,omitempty"`
	ParentProgramID string `json:"parent_program_id,omitempty"`
}

// Identity is an AgentContext in the terms of today, whatever the era of the row.
type Identity struct {
	// Session is the reasoning chain, Parent the chain that spawned it.
	Session, Parent string
	// Run groups the chains of one job; "" when the row does not tell.
	Run   string
	Class string
	Final bool
}

// Identity applies the naming rules of all eras: session_id meant the run where a trajectory_id stands beside it.
func (a *AgentContext) Identity() Identity {
	id := Identity{
		Session: cmp.Or(a.TrajectoryID, a.ProgramID, a.SessionID),
		Parent:  cmp.Or(a.ParentSessionID, a.ParentTrajectoryID, a.ParentProgramID),
		Run:     a.WorkflowID,
		Class:   cmp.Or(a.SessionTypeID, a.WorkflowTypeID),
		Final:   a.SessionFinal || a.TrajectoryFinal,
	}
	if a.TrajectoryID != "" && a.SessionID != "" {
		id.Run = a.SessionID
	}
	if id.Parent == id.Session {
		id.Parent = ""
	}
	return id
}

// RequestEnd is one LLM call, written when its last token was sent.
type RequestEnd struct {
	RequestID string `json:"request_id"`
	// XRequestID is the caller's own id.
	XRequestID string `json:"x_request_id,omitempty"`
	Model      string `json:"model,omitempty"`
	// InputTokens counts the prompt, cached tokens included; OutputTokens all generated tokens.
	InputTokens  *int64 `json:"input_tokens,omitempty"`
	OutputTokens *int64 `json:"output_tokens,omitempty"`
	CachedTokens *int64 `json:"cached_tokens,omitempty"`

	ReceivedMs        *int64   `json:"request_received_ms,omitempty"`
	PrefillWaitTimeMs *float64 `json:"prefill_wait_time_ms,omitempty"`
	PrefillTimeMs     *float64 `json:"prefill_time_ms,omitempty"`
	TTFTMs            *float64 `json:"ttft_ms,omitempty"`
	TotalTimeMs       *float64 `json:"total_time_ms,omitempty"`
	// AvgITLMs is (end - first token) / (output tokens - 1).
	AvgITLMs *float64 `json:"avg_itl_ms,omitempty"`
	// KVHitRate is the share of prompt blocks that the router expected in the worker's cache, 0 to 1.
	KVHitRate           *float64 `json:"kv_hit_rate,omitempty"`
	KVTransferLatencyMs *float64 `json:"kv_transfer_estimated_latency_ms,omitempty"`
	// QueueDepth is the number of requests waiting at the router at routing time.
	QueueDepth *int64  `json:"queue_depth,omitempty"`
	Worker     *Worker `json:"worker,omitempty"`
	Replay     *Replay `json:"replay,omitempty"`

	FinishReason *FinishReason `json:"finish_reason_metadata,omitempty"`
	// Agentsim is what Dynamo's schema has no field for. Foreign readers ignore it.
	Agentsim *Extension `json:"agentsim,omitempty"`
}

// Worker names the workers of a request. Ids use all 64 bits.
type Worker struct {
	PrefillWorkerID *uint64 `json:"prefill_worker_id,omitempty"`
	PrefillDPRank   *uint32 `json:"prefill_dp_rank,omitempty"`
	DecodeWorkerID  *uint64 `json:"decode_worker_id,omitempty"`
	DecodeDPRank    *uint32 `json:"decode_dp_rank,omitempty"`
}

// Replay identifies the prompt's KV blocks by the hashes of trace/hash.
type Replay struct {
	// BlockSize is the tokens per hash, InputLength the prompt's tokens.
	BlockSize   int64  `json:"trace_block_size"`
	InputLength *int64 `json:"input_length,omitempty"`
	// Hashes has ceil(InputLength/BlockSize) entries.
	Hashes Hashes `json:"input_sequence_hashes"`
	// CompletionHashes is the chain over prompt and generated tokens (Dynamo pull request 13964, not merged).
	CompletionHashes Hashes `json:"completion_sequence_hashes,omitempty"`
}

// Hashes is a list of 64-bit block hashes. In JSON they are integers, never floats.
type Hashes []uint64

// UnmarshalJSON reads an array of unsigned integers, reusing the slice.
func (h *Hashes) UnmarshalJSON(text []byte) error {
	if string(bytes.TrimSpace(text)) == "null" {
		return nil
	}
	hashes, err := AppendHashes((*h)[:0], text)
	*h = hashes
	return err
}

// FinishReason is how generation ended.
type FinishReason struct {
	// FinishReason is the OpenAI value; Backend is the engine's: eos, stop, length, cancelled, or "error: ...".
	FinishReason string          `json:"finish_reason,omitempty"`
	Backend      string          `json:"backend_finish_reason,omitempty"`
	StopReason   json.RawMessage `json:"stop_reason,omitempty"` // a string or a token id
	ToolCalls    []ToolCallRef   `json:"tool_calls,omitempty"`
	Choices      json.RawMessage `json:"choices,omitempty"`
}

// ToolCallRef is a tool call that the model asked for.
type ToolCallRef struct {
	ChoiceIndex   uint32 `json:"choice_index"`
	ToolCallIndex uint32 `json:"tool_call_index"`
	ID            string `json:"id,omitempty"`
	Name          string `json:"name,omitempty"`
}

// ToolEvent is the start or the end of a tool execution, as the agent's harness reports it.
type ToolEvent struct {
	// ToolCallID is unique within its session.
	ToolCallID   string   `json:"tool_call_id"`
	ToolClass    string   `json:"tool_class"`
	StartedMs    *int64   `json:"started_at_unix_ms,omitempty"`
	EndedMs      *int64   `json:"ended_at_unix_ms,omitempty"`
	Status       string   `json:"status,omitempty"`
	DurationMs   *float64 `json:"duration_ms,omitempty"`
	OutputTokens *int64   `json:"output_tokens,omitempty"`
	OutputBytes  *int64   `json:"output_bytes,omitempty"`
	ToolNameHash string   `json:"tool_name_hash,omitempty"`
	ErrorType    string   `json:"error_type,omitempty"`
}

// Payload is the part of a request_payload row that a reader of schedules needs. Bodies are not kept.
type Payload struct {
	RequestID string `json:"request_id"`
	// Endpoint is the interface that was called, such as "openai.chat_completion".
	Endpoint string `json:"endpoint"`
	Model    string `json:"model"`
	// Complete tells that request and response are there; DropReason why not.
	Complete   bool   `json:"payload_complete"`
	DropReason string `json:"payload_drop_reason,omitempty"`
	Request    *struct {
		Nvext *struct {
			Hints *AgentHints `json:"agent_hints,omitempty"`
		} `json:"nvext,omitempty"`
	} `json:"request,omitempty"`
}

// AgentHints are Dynamo's nvext.agent_hints.
type AgentHints struct {
	Priority           int32   `json:"priority,omitempty"`
	StrictPriority     uint32  `json:"strict_priority,omitempty"`
	OSL                uint32  `json:"osl,omitempty"`
	SpeculativePrefill bool    `json:"speculative_prefill,omitempty"`
	LatencySensitivity float64 `json:"latency_sensitivity,omitempty"`
	// PolicyClass names a router policy class (Mooncake rows have it; not part of nvext).
	PolicyClass string `json:"policy_class,omitempty"`
}

func (h *AgentHints) hints() Hints {
	p := h.Priority
	if p == 0 { // the deprecated alias of priority
		p = int32(max(-1e9, min(1e9, h.LatencySensitivity)))
	}
	return Hints{Priority: p, StrictPriority: h.StrictPriority, OSL: int32(min(h.OSL, maxTokens)),
		SpeculativePrefill: h.SpeculativePrefill, PolicyClass: h.PolicyClass}
}

// Extension is request.agentsim: what a recorded, simulated or replayed run knows of a request beyond Dynamo's
// fields. Times are nanoseconds since the start of the run.
type Extension struct {
	// Copy counts repeated runs of the same program from 0. Turn is the call's index in the workload.
	Copy uint32 `json:"copy,omitempty"`
	Turn *int64 `json:"turn,omitempty"`
	// Status is "completed", "rejected", "failed" or "unfinished".
	Status string `json:"status,omitempty"`
	// Worker is the index of the worker that served the call.
	Worker *int64 `json:"worker,omitempty"`
	// HitTokens were found in the prefix cache at first admission; ComputedTokens were computed, again ones included.
	HitTokens      *int64 `json:"hit_tokens,omitempty"`
	ComputedTokens *int64 `json:"computed_tokens,omitempty"`
	// BroughtTokens are those of HitTokens that the call waited for until they came from below the GPUs.
	BroughtTokens *int64 `json:"brought_tokens,omitempty"`
	ArrivalNs     *int64 `json:"arrival_ns,omitempty"`
	AdmittedNs    *int64 `json:"admitted_ns,omitempty"`
	FirstTokenNs  *int64 `json:"first_token_ns,omitempty"`
	EndNs         *int64 `json:"end_ns,omitempty"`
	// PlannedNs is when a replay should have sent the call by the recording, ReadyNs when what it waited for let it go, DueNs
	// the later of both. It was sent at ArrivalNs.
	PlannedNs   *int64 `json:"planned_ns,omitempty"`
	ReadyNs     *int64 `json:"ready_ns,omitempty"`
	DueNs       *int64 `json:"due_ns,omitempty"`
	Preemptions int64  `json:"preemptions,omitempty"`
	// HeldNs is how long a program scheduler or a cap on programs held the call.
	HeldNs *int64 `json:"held_ns,omitempty"`
	// WaitedNs is the time from the end of what the call waited for to its arrival; ToolNs and HumanNs are the parts of it
	// that went to tools and people.
	WaitedNs *int64 `json:"waited_ns,omitempty"`
	ToolNs   *int64 `json:"tool_ns,omitempty"`
	HumanNs  *int64 `json:"human_ns,omitempty"`
	// ReasoningTokens is the part of the output that was reasoning.
	ReasoningTokens *int64 `json:"reasoning_tokens,omitempty"`
	// HTTPStatus is what the server answered, 0 when it did not.
	HTTPStatus int `json:"http_status,omitempty"`
	// ResponseID is the id that the server gave its answer.
	ResponseID string `json:"response_id,omitempty"`
	// TokenGapsUs are the microseconds between the events of a stream that had generated text.
	TokenGapsUs []int64 `json:"token_gaps_us,omitempty"`
	// CompletionHashes is the chain over prompt and generated tokens, as Replay.CompletionHashes.
	CompletionHashes Hashes `json:"completion_sequence_hashes,omitempty"`
	// Inferred names the fields of the row that were filled by rule, not recorded.
	Inferred []string    `json:"inferred,omitempty"`
	Hints    *AgentHints `json:"agent_hints,omitempty"`
}

// errNotRecord tells a line that is JSON but no record: an array, a number, or an envelope around something else.
var errNotRecord = errors.New("not a record object")

// framed is either framing of a record: {"timestamp": ms, "event": record} or the bare record.
type framed struct {
	Event *Record `json:"event"`
	Record
}

// ParseRecord reads one line of a trace in either framing. It accepts null for absent and whole floats (130.0) for
// integers. Unknown fields are ignored.
func ParseRecord(text []byte) (*Record, error) {
	f := new(framed)
	if err := json.Unmarshal(text, f); err != nil {
		if !json.Valid(text) {
			return nil, fmt.Errorf("not a JSON object: %w", err)
		}
		var envelope struct {
			Event json.RawMessage `json:"event"`
		}
		if json.Unmarshal(text, &envelope) != nil || len(envelope.Event) > 0 && envelope.Event[0] != '{' {
			return nil, errNotRecord
		}
		f = new(framed) // a failed decode may leave fields behind
		if err = json.Unmarshal(integralNumbers(text), f); err != nil {
			return nil, err
		}
	}
	if f.Event != nil {
		return f.Event, nil
	}
	return &f.Record, nil
}
