package toolevent

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
)

// event is a tool event with some of its fields changed: name and value alternate, a nil value takes the field out, and
// a dot goes into an object.
func event(t testing.TB, changes ...any) map[string]any {
	t.Helper()
	var e map[string]any
	err := json.Unmarshal([]byte(`{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1790000000400,"event_source":"harness",
		"agent_context":{"session_id":"root"},
		"tool":{"tool_call_id":"tc-1","tool_class":"grep","started_at_unix_ms":1790000000000,"ended_at_unix_ms":1790000000400,"duration_ms":400.5,"status":"ok","output_bytes":912}}`), &e)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(changes); i += 2 {
		in, name := e, changes[i].(string)
		if outer, inner, ok := strings.Cut(name, "."); ok {
			in, name = e[outer].(map[string]any), inner
		}
		if in[name] = changes[i+1]; changes[i+1] == nil {
			delete(in, name)
		}
	}
	return e
}

func eventJSON(t testing.TB, changes ...any) string {
	t.Helper()
	text, err := json.Marshal(event(t, changes...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// grep is the row of event without changes.
func grep() *trace.Record {
	return &trace.Record{Schema: trace.Schema, EventType: trace.EventToolEnd, EventTimeMs: ptr(int64(1790000000400)), EventSource: "harness",
		AgentContext: &trace.AgentContext{SessionID: "root"},
		Tool: &trace.ToolEvent{ToolCallID: "tc-1", ToolClass: "grep", StartedMs: ptr(int64(1790000000000)), EndedMs: ptr(int64(1790000000400)),
			Status: "succeeded", DurationMs: ptr(400.5), OutputBytes: ptr(int64(912))}}
}

// post sends a body and returns the rows that came of it and the answer.
func post(t *testing.T, method, body string) (rows []*trace.Record, status int, answer string) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(func(r *trace.Record) { rows = append(rows, r) }).ServeHTTP(w, httptest.NewRequest(method, Path, strings.NewReader(body)))
	return rows, w.Code, w.Body.String()
}

func TestHandler(t *testing.T) {
	one := eventJSON(t)
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(one), "", "  "); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, body string
		rows       int
	}{
		{"one", one, 1},
		{"on several lines", indented.String(), 1},
		{"array", "\n[" + one + ", " + one + "]", 2},
		{"lines", one + "\r\n\n" + one + "\n" + one, 3},
		{"in an envelope", `{"timestamp":7,"event":` + one + `}`, 1},
		{"flat", eventJSON(t, "agent_context", nil, "event_source", nil, "session_id", "root"), 1},
		{"flat with a source", eventJSON(t, "agent_context", nil, "session_id", "root"), 1},
		{"whole floats", eventJSON(t, "event_time_unix_ms", json.RawMessage("1790000000400.0")), 1},
		{"what a harness adds", eventJSON(t, "agent_context.agent_headers", map[string]any{"authorization": "secret"}, "tool.claude", map[string]any{}, "note", "hi"), 1},
		{"before the session era", eventJSON(t, "agent_context", map[string]any{"session_id": "run", "trajectory_id": "root"}), 1},
	} {
		rows, status, answer := post(t, "POST", c.body)
		if status != http.StatusOK || answer != `{"recorded":`+strconv.Itoa(c.rows)+"}\n" || len(rows) != c.rows {
			t.Errorf("%s: %d rows, %d %s; want %d", c.name, len(rows), status, answer, c.rows)
		}
		for _, r := range rows {
			if diff := cmp.Diff(grep(), r); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.name, diff)
			}
		}
	}
	rows, _, _ := post(t, "POST", eventJSON(t, "agent_context", nil, "session_id", "kid", "parent_session_id", "root"))
	if len(rows) != 1 || !cmp.Equal(rows[0].AgentContext, &trace.AgentContext{SessionID: "kid", ParentSessionID: "root"}) {
		t.Errorf("rows %+v, want one of session kid below root", rows)
	}
}

func TestHandlerErrors(t *testing.T) {
	long := strings.Repeat("x", maxText+1)
	for _, c := range []struct{ body, want string }{
		{eventJSON(t, "schema", "dynamo.agent.trace.v1"), `event 1: schema is \"dynamo.agent.trace.v1\": want \"dynamo.request.trace.v1\"`},
		{eventJSON(t, "schema", nil), "schema is"},
		{eventJSON(t, "event_type", "request_end"), `event_type is \"request_end\"`},
		{eventJSON(t, "event_source", "dynamo"), `event_source is \"dynamo\"`},
		{eventJSON(t, "event_source", nil), `event_source is \"\"`},
		{eventJSON(t, "agent_context", nil), "agent_context is missing"},
		{eventJSON(t, "agent_context.session_id", ""), "agent_context.session_id is missing"},
		{eventJSON(t, "agent_context.session_id", long), "agent_context.session_id or that of the parent is longer than 1024 bytes"},
		{eventJSON(t, "tool", nil), "tool is missing"},
		{eventJSON(t, "request", map[string]any{}), "request does not belong"},
		{eventJSON(t, "payload", map[string]any{}), "payload does not belong"},
		{eventJSON(t, "event_time_unix_ms", nil), "event_time_unix_ms is missing"},
		{eventJSON(t, "event_time_unix_ms", -1), "event_time_unix_ms is -1"},
		{eventJSON(t, "event_time_unix_ms", "now"), "event_time_unix_ms"},
		{eventJSON(t, "tool.tool_call_id", nil), "tool.tool_call_id is missing"},
		{eventJSON(t, "tool.tool_class", ""), "tool.tool_class is missing"},
		{eventJSON(t, "tool.error_type", long), "tool.error_type is longer"},
		{eventJSON(t, "tool.status", "fine"), `tool.status is \"fine\"`},
		{eventJSON(t, "tool.started_at_unix_ms", int64(5e12)), "tool.started_at_unix_ms is 5000000000000"}, // microseconds
		{eventJSON(t, "tool.output_bytes", -3), "tool.output_bytes is -3"},
		{eventJSON(t, "tool.duration_ms", 1e13), "tool.duration_ms is 1e+13"},
		{eventJSON(t, "tool.duration_ms", json.RawMessage("1e999")), "duration_ms"},
		{eventJSON(t) + "\n" + eventJSON(t, "tool", nil), "event 2: tool is missing"},
		{"[" + eventJSON(t) + ",7]", "event 2: not a record object"},
		{"", "no event in the body"},
		{"[]", "no event in the body"},
		{"{", "event 1: not a JSON object"},
		{"[{", "not a JSON array"},
		{strings.Repeat("[", maxBody), "not a JSON array"},
		{eventJSON(t, "note", strings.Repeat("x", maxEvent)), "an event has at most 65536"},
		{"[" + strings.Repeat("1,", maxEvents) + "1]", "10001 events in one body"},
	} {
		rows, status, answer := post(t, "POST", c.body)
		if len(rows) > 0 || status != http.StatusBadRequest || !strings.Contains(answer, c.want) || !json.Valid([]byte(answer)) {
			t.Errorf("%.200s: %d rows, %d %s; want %s", c.body, len(rows), status, answer, c.want)
		}
	}
	if _, status, answer := post(t, "POST", strings.Repeat(" ", maxBody+1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a long body: %d %s", status, answer)
	}
	if _, status, answer := post(t, "GET", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d %s", status, answer)
	}
}

// Tool events that were posted are tools of their session in the trace.
func TestEventsInATrace(t *testing.T) {
	rows, _, answer := post(t, "POST", eventJSON(t)+"\n"+eventJSON(t, "tool.tool_call_id", "tc-2", "tool.status", "timeout"))
	if len(rows) != 2 {
		t.Fatal(answer)
	}
	var got []string
	for _, span := range capture(t, rows).Sessions[0].Tools {
		got = append(got, span.ID+" "+span.Status+" "+(span.End-span.Start).String())
	}
	if want := []string{"tc-1 succeeded 400.5ms", "tc-2 cancelled 400.5ms"}; !cmp.Equal(got, want) {
		t.Errorf("tools %q, want %q", got, want)
	}
}

// FuzzHandler checks that no event is taken that spoils a trace.
func FuzzHandler(f *testing.F) {
	f.Add([]byte(eventJSON(f)))
	f.Add([]byte(eventJSON(f, "agent_context", nil, "session_id", "s", "event_source", nil)))
	f.Add([]byte("[" + eventJSON(f, "event_time_unix_ms", int64(4e12)) + "," + eventJSON(f, "tool.duration_ms", -1e12) + "]"))
	f.Add([]byte(eventJSON(f, "tool.status", "timeout") + "\n" + eventJSON(f, "event_type", "tool_start", "tool.started_at_unix_ms", nil)))
	f.Fuzz(func(t *testing.T, body []byte) {
		rows, err := parseBody(body)
		if err != nil {
			return
		}
		if len(rows) == 0 {
			t.Fatal("neither rows nor an error")
		}
		if read := capture(t, rows).Read; read.LostRows+read.SkippedRows > 0 || read.Lines != 1+len(rows) {
			t.Errorf("%+v of %d tool events", read, len(rows))
		}
	})
}

// capture reads a trace of one call of session root, and of the rows.
func capture(t *testing.T, rows []*trace.Record) *trace.Capture {
	t.Helper()
	received := int64(1790000000000)
	call := &trace.Record{Schema: trace.Schema, EventType: trace.EventRequestEnd, EventTimeMs: &received, AgentContext: &trace.AgentContext{SessionID: "root"},
		Request: &trace.RequestEnd{RequestID: "r", InputTokens: ptr(int64(5)), OutputTokens: ptr(int64(1)), ReceivedMs: &received}}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	for _, r := range append([]*trace.Record{call}, rows...) {
		if err := out.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	segments, err := trace.Find([]string{"-"}, &text)
	if err != nil {
		t.Fatal(err)
	}
	c, err := trace.Read(context.Background(), segments, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ptr[T any](v T) *T { return &v }
