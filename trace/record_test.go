package trace

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// readText reads lines as if they came on standard input.
func readText(text string) (*Capture, error) {
	segments, err := Find([]string{"-"}, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	return Read(context.Background(), segments, nil)
}

// chain expands the turn's prompt hashes.
func (t *Turn) chain() []uint64 {
	if t.Base == nil {
		return slices.Clone(t.Hashes)
	}
	return append(t.Base.chain()[:t.Shared:t.Shared], t.Hashes...)
}

func TestIdentityOfAllEras(t *testing.T) {
	for _, c := range []struct {
		era  string
		in   AgentContext
		want Identity
	}{
		{"before v1.2", AgentContext{WorkflowTypeID: "fixer", WorkflowID: "run", ProgramID: "kid", ParentProgramID: "root"},
			Identity{Session: "kid", Parent: "root", Run: "run", Class: "fixer"}},
		{"v1.2: session_id is the run", AgentContext{SessionTypeID: "fixer", SessionID: "run", TrajectoryID: "kid",
			ParentTrajectoryID: "root", TrajectoryFinal: true},
			Identity{Session: "kid", Parent: "root", Run: "run", Class: "fixer", Final: true}},
		{"June 2026", AgentContext{TrajectoryID: "kid", ParentTrajectoryID: "root"}, Identity{Session: "kid", Parent: "root"}},
		{"v1.3: session_id is the chain", AgentContext{SessionID: "kid", ParentSessionID: "root", SessionFinal: true},
			Identity{Session: "kid", Parent: "root", Final: true}},
		{"its own parent", AgentContext{SessionID: "a", ParentSessionID: "a"}, Identity{Session: "a"}},
	} {
		if got := c.in.Identity(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.era, got, c.want)
		}
	}
}

// What a recorder knows beyond Dynamo's fields is read from its extension.
func TestReadExtension(t *testing.T) {
	row := func(id, backend, extension string) string {
		return `{"schema":"dynamo.request.trace.v1","event_type":"request_end","agent_context":{"session_id":"s"},"request":{"request_id":"` + id +
			`","request_received_ms":1790000000000,"total_time_ms":1,"output_tokens":3,"replay":{"trace_block_size":4,"input_length":6,"input_sequence_hashes":[1,2]},` +
			`"finish_reason_metadata":{"backend_finish_reason":"` + backend + `"},"agentsim":` + extension + "}}\n"
	}
	c, err := readText(row("a", "stop", `{"status":"completed","completion_sequence_hashes":[1,7,8]}`) +
		row("b", "cancelled", `{"status":"unfinished","inferred":["session"]}`) + row("c", "stop", `{"status":"rejected","completion_sequence_hashes":[1]}`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		status   string
		output   []uint64
		inferred Fields
	}{{"", []uint64{7, 8}, 0}, {"cancelled", nil, FieldSession}, {"error", nil, 0}} {
		got := c.Sessions[0].Turns[i]
		if got.Status != want.status || !slices.Equal(got.OutputHashes, want.output) || got.Inferred&FieldSession != want.inferred {
			t.Errorf("request %s: status %q, output %v, inferred %v; want %+v", got.ID, got.Status, got.OutputHashes, got.Inferred.Names(), want)
		}
	}
}

func TestReadEras(t *testing.T) {
	segments, err := Find([]string{"testdata/eras.jsonl"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Read(context.Background(), segments, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Epoch != 1700000000000 || c.BlockSize != 4 || c.Resolution != time.Millisecond || !c.SharedClock {
		t.Errorf("epoch %d, block size %d, resolution %v, shared clock %v", c.Epoch, c.BlockSize, c.Resolution, c.SharedClock)
	}
	// The blank line counts for nothing; the unknown event, the array and the string in an envelope are skipped.
	want := ReadReport{Files: 1, Lines: 7, Calls: 4, SkippedRows: 3}
	if diff := cmp.Diff(want, c.Read); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	var ids []string
	for _, s := range c.Sessions {
		ids = append(ids, s.ID+"<"+s.Parent+"<"+s.Class)
	}
	if want := []string{"old-kid<old-root<fixer", "mid-kid<mid-root<fixer", "new-kid<new-root<", "alone<<"}; !slices.Equal(ids, want) {
		t.Errorf("sessions %q, want %q", ids, want)
	}
	mid := c.Sessions[1].Turns[0]
	if mid.Start != 2*time.Second || mid.End != 3*time.Second+250*time.Microsecond || !mid.Final || !c.Sessions[1].Final {
		t.Errorf("mid-kid: start %v, end %v, final %v", mid.Start, mid.End, mid.Final)
	}
	kid := *c.Sessions[2].Turns[0]
	kid.Session = nil
	wantKid := Turn{ID: "r3", Model: "demo", Start: 4 * time.Second, End: 4*time.Second + 900000001*time.Nanosecond,
		TTFT: 250500 * time.Microsecond, Input: 10, Output: 3, Cached: 4, Reasoning: Unknown,
		Hashes:  []uint64{14643705804678351452, 4945711292740353085, 18446744073709551615},
		Trigger: "tool_result", Compaction: true, Final: true, Hints: Hints{Priority: 3}, Status: "cancelled",
		ToolCalls: []ToolCall{{ID: "tc-1", Name: "grep"}}, File: "testdata/eras.jsonl", Line: 4}
	if diff := cmp.Diff(wantKid, kid, cmp.AllowUnexported(Turn{})); diff != "" {
		t.Errorf("new-kid (-want +got):\n%s", diff)
	}
	// Without a total time the event time is the end, and that is inferred. Without a context the input length is in
	// the replay object.
	alone := c.Sessions[3].Turns[0]
	if alone.End != 6400*time.Millisecond || alone.Inferred != FieldEnd || alone.Input != 8 || alone.Cached != Unknown {
		t.Errorf("alone: end %v, inferred %b, input %d, cached %d", alone.End, alone.Inferred, alone.Input, alone.Cached)
	}
}

// end makes a bare request_end row from the inside of its request object and its context.
func end(request, context string) string {
	row := `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1000000`
	if context != "" {
		row += `,"agent_context":{` + context + `}`
	}
	return row + `,"request":{` + request + "}}\n"
}

func TestReadErrors(t *testing.T) {
	ok := `"input_tokens":5,"output_tokens":1,"request_received_ms":1000`
	for _, c := range []struct{ name, text, want string }{
		{"no start", end(`"request_id":"a","input_tokens":5`, ""), `-:1: request "a": no request_received_ms`},
		{"start out of range", end(`"request_id":"a","input_tokens":5,"request_received_ms":99999999999999`, ""), "not a Unix time"},
		{"endless duration", end(`"request_id":"a","total_time_ms":1e200,`+ok, ""), "not a duration"},
		{"no input", end(`"request_id":"a","request_received_ms":1000`, ""), "no input tokens"},
		{"input of 0", end(`"request_id":"a","input_tokens":0,"request_received_ms":1000`, ""), "no input tokens"},
		{"negative output", end(`"request_id":"a","input_tokens":5,"output_tokens":-1,"request_received_ms":1000`, ""), "output_tokens is -1"},
		{"no id", end(ok, ""), "without a request_id"},
		{"hash count", end(`"request_id":"b",`+ok, "") +
			end(`"request_id":"a","request_received_ms":1000,"replay":{"trace_block_size":4,"input_length":10,"input_sequence_hashes":[1]}`, ""),
			`-:2: request "a": 1 hashes for 10 tokens in blocks of 4: want 3, or 2`},
		{"block size 0", end(`"request_id":"a","request_received_ms":1000,"replay":{"trace_block_size":0,"input_length":10,"input_sequence_hashes":[1]}`, ""),
			"trace_block_size is 0"},
		{"two block sizes", end(`"request_id":"a","request_received_ms":1000,"replay":{"trace_block_size":4,"input_length":4,"input_sequence_hashes":[1]}`, "") + "\n" +
			end(`"request_id":"b","request_received_ms":1000,"replay":{"trace_block_size":8,"input_length":8,"input_sequence_hashes":[1]}`, ""),
			"-:3: request \"b\": block size 8, but 4 at -:1"},
		{"no calls", `{"schema":"dynamo.request.trace.v1","event_type":"tool_end"}` + "\n{oops\n", "no LLM calls in 2 lines"},
	} {
		_, err := readText(c.text)
		var input *InputError
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		} else if !asInput(err, &input) {
			t.Errorf("%s: %T, want an *InputError", c.name, err)
		}
	}
}

func TestReadMovesOn(t *testing.T) {
	row := func(id string) string {
		return end(`"request_id":"`+id+`","input_tokens":5,"output_tokens":1,"request_received_ms":1000`, `"session_id":"s"`)
	}
	half := row("half")[:60]
	for _, c := range []struct {
		name, text string
		want       []string
		lost, dup  int
	}{
		{"BOM, CRLF, blank lines", "\xef\xbb\xbf" + strings.ReplaceAll(row("a")+"\n \n"+row("b"), "\n", "\r\n"), []string{"a", "b"}, 0, 0},
		{"no last newline", row("a") + strings.TrimSpace(row("b")), []string{"a", "b"}, 0, 0},
		{"torn last line", row("a") + half, []string{"a"}, 1, 0},
		{"half a line in the middle", row("a") + half + "\n" + row("b"), []string{"a", "b"}, 1, 0},
		{"half a line before a whole one", row("a") + half + `{"timestamp":1,"event":` + strings.TrimSpace(row("b")) + "}\n" + row("c"),
			[]string{"a", "b", "c"}, 1, 0},
		{"a key of the wrong type", row("a") + end(`"request_id":7`, "") + row("b"), []string{"a", "b"}, 1, 0},
		{"binary garbage", row("a") + "\x00\xff{{{{\n" + row("b"), []string{"a", "b"}, 1, 0},
		{"a second row with one id", row("a") + row("b") + row("a"), []string{"a", "b"}, 0, 1},
		{"another schema", row("a") + strings.Replace(row("b"), "dynamo.request", "other.request", 1), []string{"a"}, 0, 0},
	} {
		got, err := readText(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var ids []string
		for _, turn := range got.Sessions[0].Turns {
			ids = append(ids, turn.ID)
		}
		if !slices.Equal(ids, c.want) || got.Read.LostRows != c.lost || got.Read.Duplicates != c.dup || len(got.Read.Warnings) != c.lost+c.dup {
			t.Errorf("%s: calls %q, lost %d, duplicates %d, warnings %q; want %q, %d, %d", c.name, ids, got.Read.LostRows,
				got.Read.Duplicates, got.Read.Warnings, c.want, c.lost, c.dup)
		}
	}
}

// Overlapping calls of different sessions stay overlapping: B starts at 1 s, while A runs from 0 to 10 s.
func TestReadKeepsOverlap(t *testing.T) {
	c, err := readText(end(`"request_id":"B","input_tokens":5,"request_received_ms":1000,"total_time_ms":500`, `"session_id":"b"`) +
		end(`"request_id":"A","input_tokens":5,"request_received_ms":0,"total_time_ms":10000`, `"session_id":"a"`))
	if err != nil {
		t.Fatal(err)
	}
	b, a := c.Sessions[0].Turns[0], c.Sessions[1].Turns[0]
	if a.Start != 0 || a.End != 10*time.Second || b.Start != time.Second || b.End != 1500*time.Millisecond {
		t.Errorf("A %v to %v, B %v to %v", a.Start, a.End, b.Start, b.End)
	}
}

func TestToolSpans(t *testing.T) {
	tool := func(kind string, at int, id, more string) string {
		return `{"schema":"dynamo.request.trace.v1","event_type":"tool_` + kind + `","event_time_unix_ms":` + itoa(1000+at) +
			`,"agent_context":{"session_id":"s"},"tool":{"tool_call_id":"` + id + `","tool_class":"sh"` + more + "}}\n"
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	span := func(start, end time.Duration, status string) ToolSpan {
		return ToolSpan{ID: "x", Class: "sh", Start: start, End: end, Status: status}
	}
	for _, c := range []struct {
		name, rows string
		want       []ToolSpan
	}{
		{"start and end", tool("end", 99, "x", `,"started_at_unix_ms":1010,"ended_at_unix_ms":1020,"duration_ms":5`),
			[]ToolSpan{span(ms(10), ms(20), "succeeded")}},
		{"wall times rounded to milliseconds", tool("end", 99, "x", `,"started_at_unix_ms":1010,"ended_at_unix_ms":1016,"duration_ms":5.5`),
			[]ToolSpan{span(ms(10), ms(15)+500*time.Microsecond, "succeeded")}},
		{"start and duration", tool("end", 99, "x", `,"started_at_unix_ms":1010,"duration_ms":5.5,"status":"failed"`),
			[]ToolSpan{span(ms(10), ms(15)+500*time.Microsecond, "error")}},
		{"end and duration", tool("end", 99, "x", `,"ended_at_unix_ms":1020,"duration_ms":5,"status":"timeout"`),
			[]ToolSpan{span(ms(15), ms(20), "cancelled")}},
		{"event time and duration", tool("error", 20, "x", `,"duration_ms":5`), []ToolSpan{span(ms(15), ms(20), "error")}},
		{"paired with its start, which comes later in the file", tool("end", 20, "x", "") + tool("start", 7, "x", ""),
			[]ToolSpan{span(ms(7), ms(20), "succeeded")}},
		{"two runs of one id", tool("start", 1, "x", "") + tool("start", 5, "x", "") + tool("end", 6, "x", "") + tool("end", 9, "x", ""),
			[]ToolSpan{span(ms(5), ms(6), "succeeded"), span(ms(1), ms(9), "succeeded")}},
		{"no span", tool("end", 20, "x", ""), nil},
		{"a start alone", tool("start", 20, "x", ""), nil},
		{"the start comes after the end", tool("end", 20, "x", "") + tool("start", 30, "x", ""), nil},
	} {
		got, err := readText(end(`"request_id":"a","input_tokens":5,"request_received_ms":1000`, `"session_id":"s"`) + c.rows)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(c.want, got.Sessions[0].Tools); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestHintsOfPayloadRows(t *testing.T) {
	payload := func(id, more string) string {
		return `{"timestamp":1,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_payload","event_time_unix_ms":1,"payload":{"request_id":"` +
			id + `","request":{"messages":[{"content":"` + more + `"}],"nvext":{"agent_hints":{"priority":-2,"osl":77,"speculative_prefill":true}}}}}}` + "\n"
	}
	row := func(id string) string {
		return end(`"request_id":"`+id+`","input_tokens":5,"request_received_ms":1000`, `"session_id":"s"`)
	}
	c, err := readText(payload("before", "") + row("before") + row("after") + payload("after", "") +
		row("large") + payload("large", strings.Repeat("x", maxHintPayload)))
	if err != nil {
		t.Fatal(err)
	}
	want := Hints{Priority: -2, OSL: 77, SpeculativePrefill: true}
	turns := c.Sessions[0].Turns
	if turns[0].Hints != want || turns[1].Hints != want || turns[2].Hints != (Hints{}) {
		t.Errorf("hints %+v, %+v, %+v; want them but on the large row", turns[0].Hints, turns[1].Hints, turns[2].Hints)
	}
	if c.Read.SkippedRows != 3 || c.Read.LostRows != 0 {
		t.Errorf("skipped %d, lost %d rows, want 3 and 0", c.Read.SkippedRows, c.Read.LostRows)
	}
}
