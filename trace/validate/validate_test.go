package validate

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

// check validates a trace of one file.
func check(t testing.TB, text string) *Report {
	t.Helper()
	return checkFiles(t, map[string]string{"day.jsonl": text})
}

func checkFiles(t testing.TB, files map[string]string) *Report {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	segments, err := trace.Find([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Check(context.Background(), segments, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// names lists what was found: "rule@line", the places of one rule one by one.
func names(r *Report) []string {
	found := []string{}
	for _, f := range r.Found {
		for _, p := range f.Places {
			found = append(found, fmt.Sprintf("%s@%d", f.Name, p.Line))
		}
	}
	return found
}

const (
	good = `{"timestamp":1,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1790000002500,"event_source":"dynamo","agent_context":{"session_id":"root","input_trigger":"user_message"},"request":{"request_id":"r-1","model":"demo-8b","input_tokens":130,"output_tokens":21,"cached_tokens":64,"request_received_ms":1790000000000,"prefill_wait_time_ms":40.25,"prefill_time_ms":459.75,"ttft_ms":500.0,"total_time_ms":2500.0,"kv_hit_rate":0.33,"replay":{"trace_block_size":64,"input_length":130,"input_sequence_hashes":[8113873337580740840,8935047882395932518,8929498711126007876]}}}}`
	next = `{"timestamp":2,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1790000004500,"event_source":"dynamo","agent_context":{"session_id":"root","session_final":true},"request":{"request_id":"r-2","model":"demo-8b","input_tokens":65,"output_tokens":2,"request_received_ms":1790000004000,"total_time_ms":500,"replay":{"trace_block_size":64,"input_length":65,"input_sequence_hashes":[8113873337580740840,77]}}}}`
	kid  = `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1790000003500,"event_source":"dynamo","agent_context":{"session_id":"kid","parent_session_id":"root"},"request":{"request_id":"r-3","model":"demo-8b","input_tokens":64,"output_tokens":2,"request_received_ms":1790000003000,"total_time_ms":500,"replay":{"trace_block_size":64,"input_length":64,"input_sequence_hashes":[8113873337580740840]}}}`
	tool = `{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1790000002950,"event_source":"harness","agent_context":{"session_id":"root"},"tool":{"tool_call_id":"tc-1","tool_class":"grep","started_at_unix_ms":1790000002550,"ended_at_unix_ms":1790000002950,"status":"succeeded","duration_ms":400.0}}`
)

// Each case changes one thing of a trace in which nothing is wrong.
func TestRules(t *testing.T) {
	all := strings.Join([]string{good, tool, kid, next}, "\n")
	tests := []struct {
		name     string
		old, new string
		want     []string
	}{
		{"nothing", "", "", []string{}},
		{"the older schema", `"schema":"dynamo.request.trace.v1"`, `"schema":"dynamo.agent.trace.v1"`, []string{"schema@1"}},
		{"an unknown event type", `"event_type":"tool_end"`, `"event_type":"tool_done"`, []string{"event-type@2"}},
		{"no request", `"request":{"request_id":"r-3"`, `"x":{"request_id":"r-3"`, []string{"row-shape@3", "unknown-key@3"}},
		{"no request id", `"request_id":"r-3"`, `"request_id":""`, []string{"row-shape@3"}},
		{"a value of another type", `"request_id":"r-3"`, `"request_id":[]`, []string{"row-shape@3"}},
		{"no replay", `"replay":{"trace_block_size":64,"input_length":64,"input_sequence_hashes":[8113873337580740840]}`, `"kv_hit_rate":0`, []string{"no-replay@3"}},
		{"block size 0", `"trace_block_size":64,"input_length":64`, `"trace_block_size":0,"input_length":64`, []string{"block-size@3"}},
		{"another block size", `"trace_block_size":64,"input_length":64`, `"trace_block_size":128,"input_length":64`, []string{"mixed-block-sizes@3"}},
		{"a hash too few", `,8929498711126007876]`, `]`, []string{"hash-count@1"}},
		{"no input length", `"input_length":64,`, ``, []string{"hash-count@3"}},
		{"no start", `"request_received_ms":1790000003000,`, ``, []string{"no-start@3"}},
		{"no output tokens", `"output_tokens":2,"request_received_ms":1790000003000`, `"request_received_ms":1790000003000`, []string{"no-output-tokens@3"}},
		{"one request without context", `"agent_context":{"session_id":"kid","parent_session_id":"root"},`, ``, []string{"mixed-context@3"}},
		{"a tool without a session", `"agent_context":{"session_id":"root"},"tool"`, `"tool"`, []string{"tool-without-session@2"}},
		{"a repeated request id", `"request_id":"r-3"`, `"request_id":"r-1"`, []string{"duplicate-request@3"}},
		{"two parents", `"session_id":"root","session_final":true`, `"session_id":"kid","parent_session_id":"other"`, []string{"two-parents@4"}},
		{"a cycle", `"session_id":"root","session_final":true`, `"session_id":"root","parent_session_id":"kid"`, []string{"parent-cycle@4", "child-before-parent@1"}},

		{"half a line", `{"timestamp":2,`, `{"timestamp":2,"eve{"timestamp":2,`, []string{"not-json@4"}},
		{"a line that is no object", tool, `[1]`, []string{"ignored-line@2"}},
		{"an event that is no object", tool, `{"timestamp":4,"event":"hello"}`, []string{"ignored-line@2"}},
		{"lost rows", tool, `{"schema":"dynamo.request.trace.v1","event_type":"request_payload","payload":{"request_id":"agentsim.rows_lost","payload_complete":false},"agentsim":{"lost_rows":3}}`, []string{"rows-lost@2"}},
		{"a misspelt key", `"cached_tokens":64`, `"cache_tokens":64`, []string{"unknown-key@1"}},
		{"two lengths", `"input_tokens":130`, `"input_tokens":131`, []string{"two-lengths@1"}},
		{"an empty prompt", `"input_tokens":64,`, `"input_tokens":0,`, []string{"two-lengths@3"}},
		{"no output", `"output_tokens":21`, `"output_tokens":0`, []string{"zero-output@1"}},
		{"more cached than there is", `"cached_tokens":64`, `"cached_tokens":131`, []string{"cached-tokens@1"}},
		{"a hit rate in percent", `"kv_hit_rate":0.33`, `"kv_hit_rate":33`, []string{"cached-tokens@1"}},
		{"a negative duration", `"prefill_wait_time_ms":40.25,"prefill_time_ms":459.75`, `"prefill_wait_time_ms":-40.25,"prefill_time_ms":540.25`, []string{"durations@1"}},
		{"a first token after the last", `"ttft_ms":500.0,"total_time_ms":2500.0`, `"total_time_ms":2500,"prefill_time_ms":null,"ttft_ms":2600`, []string{"durations@1"}},
		{"parts that are not the whole", `"ttft_ms":500.0`, `"ttft_ms":510.0`, []string{"durations@1"}},
		{"two ends", `"event_time_unix_ms":1790000002500`, `"event_time_unix_ms":1790000002600`, []string{"end-time@1"}},
		{"no end", `"total_time_ms":500,"replay":{"trace_block_size":64,"input_length":64`, `"replay":{"trace_block_size":64,"input_length":64`, []string{"no-end@3"}},
		{"a time in seconds", `"event_time_unix_ms":1790000002950`, `"event_time_unix_ms":1790000002`, []string{"wall-time@2"}},
		{"a hash at two places", `[8113873337580740840,77]`, `[77,8113873337580740840]`, []string{"hash-chain@4"}},
		{"a tool without a span", `"started_at_unix_ms":1790000002550,"ended_at_unix_ms":1790000002950,"status":"succeeded","duration_ms":400.0`, `"ended_at_unix_ms":1790000002950`, []string{"tool-span@2"}},
		{"a tool that ended before it began", `"started_at_unix_ms":1790000002550`, `"started_at_unix_ms":1790000003550`, []string{"tool-span@2"}},
		{"a duration of another span", `"duration_ms":400.0`, `"duration_ms":300`, []string{"tool-span@2"}},
		{"a status nobody knows", `"status":"succeeded"`, `"status":"great"`, []string{"tool-status@2"}},
		{"an error that succeeded", `"event_type":"tool_end"`, `"event_type":"tool_error"`, []string{"tool-status@2"}},
		{"a tool that ends twice", tool, tool + "\n" + tool, []string{"tool-twice@3"}},
		{"a tool that does not end", `"event_type":"tool_end"`, `"event_type":"tool_start"`, []string{"tool-open@2"}},
		{"a tool of a session without requests", `"agent_context":{"session_id":"root"},"tool"`, `"agent_context":{"session_id":"nobody"},"tool"`, []string{"tool-orphan@2"}},
		{"a tool row that the harness did not send", `"event_source":"harness"`, `"event_source":"dynamo"`, []string{"event-source@2"}},
		{"a trigger nobody knows", `"input_trigger":"user_message"`, `"input_trigger":"clock"`, []string{"input-trigger@1"}},
		{"a parent that is not there", `"parent_session_id":"root"`, `"parent_session_id":"gone"`, []string{"parent-missing@3"}},
		{"a child before its parent", `"request_received_ms":1790000003000,"total_time_ms":500`, `"request_received_ms":1789999999500,"total_time_ms":4000`, []string{"child-before-parent@3"}},
		{"a request after the final one", `"input_trigger":"user_message"`, `"session_final":true`, []string{"after-final@4"}},
		{"requests that overlap", `"request_received_ms":1790000004000,"total_time_ms":500`, `"request_received_ms":1790000002000,"total_time_ms":2500`, []string{"overlap@4"}},
		{"a payload of no request", tool, `{"schema":"dynamo.request.trace.v1","event_type":"request_payload","payload":{"request_id":"r-9"}}`, []string{"payload-without-request@2"}},
		{"a payload with text", tool, `{"schema":"dynamo.request.trace.v1","event_type":"request_payload","payload":{"request_id":"r-1","payload_complete":true,"request":{"messages":[]},"response":{}}}`, []string{"private@2"}},
		{"a payload without an answer", tool, `{"schema":"dynamo.request.trace.v1","event_type":"request_payload","payload":{"request_id":"r-1","payload_complete":true,"request":{"messages":[]}}}`, []string{"payload-complete@2", "private@2"}},
		{"headers of clients", `"input_trigger":"user_message"`, `"agent_headers":{"x":"y"}`, []string{"private@1"}},
		{"the names of old", `"agent_context":{"session_id":"kid","parent_session_id":"root"}`, `"agent_context":{"session_id":"run","trajectory_id":"kid","parent_trajectory_id":"root"}`, []string{"legacy-identity@3"}},
		{"no requests", all, tool, []string{"no-requests@0", "tool-orphan@1"}},
		{"hashes that were floats", all, strings.Replace(good, `"trace_block_size":64,"input_length":130,"input_sequence_hashes":[8113873337580740840,8935047882395932518,8929498711126007876]`,
			`"trace_block_size":16,"input_length":130,"input_sequence_hashes":[8113873337580740608,8935047882395932672,8929498711126007808,9929498711126007808,7929498711126007808,8113873337580742656,8935047882395934720,8929498711126009856,9929498711126009856]`, 1),
			[]string{"float-hashes@1"}},
	}
	covered := map[string]bool{damageRule.Name: true, segmentRule.Name: true, inputRule.Name: true} // see below
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if !strings.Contains(all, test.old) {
				t.Fatalf("%s is not in the trace", test.old)
			}
			r := check(t, strings.Replace(all, test.old, test.new, 1)+"\n")
			if got := names(r); !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
			for _, f := range r.Found {
				covered[f.Name] = true
				if f.Remedy == "" || f.Places[0].Message == "" || f.Count != len(f.Places) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
	for _, rule := range rules {
		if !covered[rule.Name] {
			t.Errorf("no test finds anything by rule %s", rule.Name)
		}
	}
}

// Damage of files, holes between them, and what only shows in two of them.
func TestFiles(t *testing.T) {
	var whole, torn bytes.Buffer
	w := gzip.NewWriter(&whole)
	fmt.Fprintln(w, good)
	w.Close()
	w = gzip.NewWriter(&torn)
	fmt.Fprintln(w, strings.ReplaceAll(good, "r-1", "r-7"))
	w.Close()
	r := checkFiles(t, map[string]string{
		"day.000003.jsonl.gz": whole.String() + torn.String()[:torn.Len()-30],
		"day.000004.jsonl":    kid + "\n",
		"day.000006.jsonl":    good + "\n",
	})
	want := []string{"duplicate-request@1", "damage@0", "not-json@2", "missing-segment@0"}
	got := names(r)
	if !slices.Equal(got, want) || r.LostRows == 0 || r.Files != 3 || r.Requests != 3 || r.Sessions != 2 {
		t.Errorf("found %q, want %q; %+v", got, want, r)
	}
	if place := r.Found[0].Places[0]; filepath.Base(place.File) != "day.000006.jsonl" || !strings.Contains(place.Message, "day.000003.jsonl.gz:1") {
		t.Errorf("%+v does not name both places", place)
	}
}

// Many findings of one kind are counted, the first are shown.
func TestManyFindings(t *testing.T) {
	var rows []string
	for i := range 50 {
		rows = append(rows, strings.NewReplacer("r-3", fmt.Sprint("r-", i), `"parent_session_id":"root"`, `"x":1`, `"output_tokens":2`, `"output_tokens":0`, "kid", fmt.Sprint("s", i)).Replace(kid))
	}
	r := check(t, strings.Join(rows, "\n"))
	if len(r.Found) != 2 || r.Found[0].Name != "unknown-key" || r.Found[0].Count != 1 || r.Found[1].Count != 50 || len(r.Found[1].Places) != MaxPlaces || r.Warnings != 51 {
		t.Errorf("%+v", r)
	}
}

// What Dynamo recorded itself has nothing wrong.
func TestRealTrace(t *testing.T) {
	path := filepath.Join("..", "..", "..", "shared", "traces", "dynamo")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no real trace beside the repository: %v", err)
	}
	segments, err := trace.Find([]string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Check(context.Background(), segments, nil)
	if err != nil || r.Errors+r.Warnings > 0 || r.Requests != 17 || r.Sessions != 5 || r.Tools != 44 {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzCheck gives any text to the checks. What they find no error in, the reader of traces reads.
func FuzzCheck(f *testing.F) {
	f.Add(good + "\n" + tool + "\n" + kid + "\n" + next)
	f.Add(strings.ReplaceAll(kid, `"agent_context"`, `"session_id":"a","parent_session_id":"a","x"`))
	f.Add(`{"event":{"event":{}}}` + "\n" + `{"event_type":"tool_end","tool":null,"payload":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "day.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		segments, err := trace.Find([]string{path}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Check(context.Background(), segments, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Errors > 0 || slices.ContainsFunc(r.Found, func(f *Found) bool {
			return slices.Contains([]string{"no-requests", "no-input-tokens", "wall-time", "durations", "cached-tokens", "zero-output", "two-lengths"}, f.Name)
		}) {
			return
		}
		if _, err := trace.Read(context.Background(), segments, nil); err != nil {
			t.Fatalf("no error, but it does not read: %v", err)
		}
	})
}
