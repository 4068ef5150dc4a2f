package replay

import (
	"time"

	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/trace"
)

// Line is an outcome as one line of JSON. Times are nanoseconds since the start of the replay; what is not known is absent.
type Line struct {
	RequestID string `json:"request_id"`
	SessionID string `json:"session_id"`
	ParentID  string `json:"parent_session_id,omitempty"`
	Final     bool   `json:"session_final,omitempty"`
	// Turn is the call's index in the workload.
	Turn   int32  `json:"turn"`
	Copy   uint32 `json:"copy,omitempty"`
	Model  string `json:"model,omitempty"`
	Server string `json:"server"`

	PlannedNs    *int64 `json:"planned_ns,omitempty"`
	ReadyNs      *int64 `json:"ready_ns,omitempty"`
	DueNs        *int64 `json:"due_ns,omitempty"`
	SentNs       *int64 `json:"sent_ns,omitempty"`
	ConnectedNs  *int64 `json:"connected_ns,omitempty"`
	WroteNs      *int64 `json:"wrote_ns,omitempty"`
	FirstByteNs  *int64 `json:"first_byte_ns,omitempty"`
	FirstTokenNs *int64 `json:"first_token_ns,omitempty"`
	LastTokenNs  *int64 `json:"last_token_ns,omitempty"`
	EndNs        *int64 `json:"end_ns,omitempty"`
	// LagNs is the client's own lateness, SlipNs that which servers caused.
	LagNs  int64 `json:"lag_ns"`
	SlipNs int64 `json:"slip_ns"`

	RecordedInput   int32  `json:"recorded_input_tokens"`
	RecordedOutput  int32  `json:"recorded_output_tokens"`
	InputTokens     *int64 `json:"input_tokens,omitempty"`
	CachedTokens    *int64 `json:"cached_tokens,omitempty"`
	OutputTokens    *int64 `json:"output_tokens,omitempty"`
	ReasoningTokens *int64 `json:"reasoning_tokens,omitempty"`
	Events          int32  `json:"events"`

	Status       int    `json:"status,omitempty"`
	FinishReason string `json:"finish_reason,omitempty"`
	ErrorKind    string `json:"error_kind,omitempty"`
	Error        string `json:"error,omitempty"`
	RetryAfter   string `json:"retry_after,omitempty"`
	Retries      int    `json:"retries,omitempty"`
	Connections  int    `json:"connections,omitempty"`
	Reused       bool   `json:"connection_reused,omitempty"`
	Held         bool   `json:"held,omitempty"`
	Cancelled    bool   `json:"cancelled,omitempty"`
}

// NewLine returns an outcome's line.
func NewLine(o *Outcome, w *trace.Workload, c *client.Client) *Line {
	a, call := o.Answer, &w.Calls[o.Call]
	l := &Line{RequestID: o.ID, SessionID: o.Session.ID, ParentID: o.Session.Parent, Final: o.Session.Final, Turn: o.Call, Copy: o.Copy,
		Model: o.Model, Server: c.Base(o.Server),
		PlannedNs: nanoseconds(o.Planned), ReadyNs: nanoseconds(o.Ready), DueNs: nanoseconds(o.Due), SentNs: nanoseconds(a.Sent),
		ConnectedNs: nanoseconds(a.Connected), WroteNs: nanoseconds(a.Wrote), FirstByteNs: nanoseconds(a.FirstByte),
		FirstTokenNs: nanoseconds(a.FirstToken), LastTokenNs: nanoseconds(a.LastToken), EndNs: nanoseconds(a.End),
		LagNs: int64(o.Lag()), SlipNs: int64(o.Slip()), RecordedInput: call.Input, RecordedOutput: call.Output,
		InputTokens: tokens(a.Prompt), CachedTokens: tokens(a.Cached), OutputTokens: tokens(a.Completion), ReasoningTokens: tokens(a.Reasoning),
		Events: a.Events, Status: a.Status, FinishReason: a.Finish, RetryAfter: a.RetryAfter, Retries: o.Retries,
		Connections: a.Connections, Reused: a.Reused, Held: o.Held, Cancelled: a.Cancelled}
	if a.Err != nil {
		l.ErrorKind, l.Error = string(a.Err.Kind), a.Err.Text
	}
	return l
}

// nanoseconds is nil for a time that does not exist.
func nanoseconds(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	n := int64(d)
	return &n
}

func tokens(n int32) *int64 {
	if n == trace.Unknown {
		return nil
	}
	v := int64(n)
	return &v
}
