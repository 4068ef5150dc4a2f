// Package toolevent takes from agent harnesses what they tell of the tools that they run, over HTTP and over ZeroMQ as
// Dynamo does, and makes trace records of it.
package toolevent

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/agentsim/agentsim/trace"
)

// maxText bounds an id or a name in a tool event, in bytes.
const maxText = 1 << 10

// statuses are the states of a tool and their other spellings.
var statuses = map[string]string{
	"": "", "running": "running", "succeeded": "succeeded", "error": "error", "cancelled": "cancelled",
	"ok": "succeeded", "success": "succeeded", "failed": "error", "canceled": "cancelled", "timeout": "cancelled",
}

// rowOf returns the row that an event of a harness stands for, by Dynamo's rules of ingress: schema v1, a tool event,
// event_source harness, with agent_context and tool, without request and payload, all numbers finite. In the flat form
// session_id stands in the place of agent_context and event_source. Only what identifies the session is kept of the
// context, since a harness may put anything there. An error names the field.
func rowOf(r *trace.Record) (*trace.Record, error) {
	if r.Schema != trace.Schema {
		return nil, fmt.Errorf("schema is %.60q: want %q", r.Schema, trace.Schema)
	}
	switch r.EventType {
	case trace.EventToolStart, trace.EventToolEnd, trace.EventToolError:
	default:
		return nil, fmt.Errorf("event_type is %.60q: want %s, %s or %s", r.EventType, trace.EventToolStart, trace.EventToolEnd, trace.EventToolError)
	}
	flat := r.AgentContext == nil && r.FlatSessionID != ""
	if r.EventSource != "harness" && !(flat && r.EventSource == "") {
		return nil, fmt.Errorf("event_source is %.60q: want %q", r.EventSource, "harness")
	}
	switch {
	case r.Request != nil:
		return nil, errors.New("request does not belong in a tool event")
	case r.Payload != nil:
		return nil, errors.New("payload does not belong in a tool event")
	case r.Tool == nil:
		return nil, errors.New("tool is missing")
	case r.EventTimeMs == nil:
		return nil, errors.New("event_time_unix_ms is missing")
	}
	context, err := contextOf(r)
	if err != nil {
		return nil, err
	}
	tool := *r.Tool
	if err := checkTool(&tool, *r.EventTimeMs); err != nil {
		return nil, err
	}
	return &trace.Record{Schema: trace.Schema, EventType: r.EventType, EventTimeMs: r.EventTimeMs, EventSource: "harness",
		AgentContext: context, Tool: &tool}, nil
}

// contextOf says whose tool it was.
func contextOf(r *trace.Record) (*trace.AgentContext, error) {
	field, id := "agent_context.session_id", trace.Identity{}
	switch {
	case r.AgentContext != nil:
		id = r.AgentContext.Identity()
	case r.FlatSessionID != "":
		field, id = "session_id", trace.Identity{Session: r.FlatSessionID, Parent: r.FlatParentSessionID}
	default:
		return nil, errors.New("agent_context is missing")
	}
	if id.Session == "" {
		return nil, fmt.Errorf("%s is missing", field)
	}
	if len(id.Session) > maxText || len(id.Parent) > maxText {
		return nil, fmt.Errorf("%s or that of the parent is longer than %d bytes", field, maxText)
	}
	return &trace.AgentContext{SessionID: id.Session, ParentSessionID: id.Parent}, nil
}

// checkTool checks the fields of a tool and spells its status in one way.
func checkTool(tool *trace.ToolEvent, eventMs int64) error {
	for _, f := range []struct {
		field    string
		text     string
		required bool
	}{
		{"tool.tool_call_id", tool.ToolCallID, true},
		{"tool.tool_class", tool.ToolClass, true},
		{"tool.tool_name_hash", tool.ToolNameHash, false},
		{"tool.error_type", tool.ErrorType, false},
	} {
		if f.required && f.text == "" {
			return fmt.Errorf("%s is missing", f.field)
		}
		if len(f.text) > maxText {
			return fmt.Errorf("%s is longer than %d bytes", f.field, maxText)
		}
	}
	zero := int64(0)
	for _, f := range []struct {
		field string
		n     int64
		most  int64
	}{
		{"event_time_unix_ms", eventMs, trace.MaxUnixMs},
		{"tool.started_at_unix_ms", *cmp.Or(tool.StartedMs, &zero), trace.MaxUnixMs},
		{"tool.ended_at_unix_ms", *cmp.Or(tool.EndedMs, &zero), trace.MaxUnixMs},
		{"tool.output_tokens", *cmp.Or(tool.OutputTokens, &zero), math.MaxInt64},
		{"tool.output_bytes", *cmp.Or(tool.OutputBytes, &zero), math.MaxInt64},
	} {
		if f.n < 0 || f.n > f.most {
			return fmt.Errorf("%s is %d: want a number from 0 to %d", f.field, f.n, f.most)
		}
	}
	if d := tool.DurationMs; d != nil && !(math.Abs(*d) <= trace.MaxDurationMs) {
		return fmt.Errorf("tool.duration_ms is %g: want a duration in milliseconds", *d)
	}
	status, ok := statuses[tool.Status]
	if !ok {
		return fmt.Errorf("tool.status is %.60q: want running, succeeded, error or cancelled", tool.Status)
	}
	tool.Status = status
	return nil
}
