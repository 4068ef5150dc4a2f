package convert

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-json"
	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

// recorded writes a capture as records and reads it back.
func recorded(t *testing.T, c *trace.Capture) (*trace.Capture, []Count) {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "x")
	w, err := trace.NewWriter(prefix, trace.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	records, lost := Records(c)
	for r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	back, err := Open(context.Background(), []string{prefix}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return link(t, back), lost
}

// A program with every fact that a trace may tell comes back as it was, and nothing is lost.
func TestRecordsKeepAll(t *testing.T) {
	s := &trace.Session{ID: "s", Class: "planner", Tools: []trace.ToolSpan{{ID: "t", Class: "bash", Start: 2e9, End: 3e9, Status: "error"}}}
	kid := &trace.Session{ID: "k", Parent: "s", Class: "explorer"}
	c := &trace.Capture{Format: "test", BlockSize: 4, Resolution: 1e6, SharedClock: true, Epoch: 1e12, Sessions: []*trace.Session{s, kid}}
	add := func(s *trace.Session, id string, start, end int64, hashes ...uint64) *trace.Turn {
		turn := newCall(s).Turn
		turn.ID, turn.Start, turn.End, turn.Input, turn.Output, turn.Hashes = id, time.Duration(start)*time.Second, time.Duration(end)*time.Second, int32(4*len(hashes)), 3, hashes
		s.Turns = append(s.Turns, &turn)
		return &turn
	}
	first := add(s, "a", 0, 2, 1, 2)
	first.Model, first.Trigger, first.TTFT, first.Cached, first.Reasoning = "m", "user_message", 5e8, 4, 2
	first.OutputHashes = []uint64{9}
	first.ToolCalls = []trace.ToolCall{{ID: "t", Name: "bash"}}
	first.Hints = trace.Hints{Priority: 1, StrictPriority: 2, OSL: 3, SpeculativePrefill: true, PolicyClass: "p"}
	second := add(s, "b", 4, 5, 1, 2, 3)
	second.Trigger, second.Compaction, second.Final, second.Inferred = "tool_result", true, true, trace.FieldStart|trace.FieldTextHashes
	add(kid, "c", 2, 3, 7).Status = trace.Cancelled
	link(t, c)
	back, lost := recorded(t, c)
	if len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
	if back.Epoch != c.Epoch || back.BlockSize != 4 {
		t.Errorf("epoch %d, block size %d", back.Epoch, back.BlockSize)
	}
	for i, s := range c.Sessions {
		if diff := cmp.Diff(facts(s), facts(back.Sessions[i])); diff != "" {
			t.Errorf("session %s: %s", s.ID, diff)
		}
		for j, want := range s.Turns {
			got := back.Sessions[i].Turns[j]
			if !slices.Equal(want.Chain(), got.Chain()) || !slices.Equal(want.OutputHashes, got.OutputHashes) || want.Hints != got.Hints ||
				want.Start != got.Start || want.End != got.End || want.TTFT != got.TTFT || want.Gap != got.Gap || want.Inferred != got.Inferred ||
				want.Reasoning != got.Reasoning || want.Cached != got.Cached || want.Status != got.Status {
				t.Errorf("call %s: %+v, want %+v", want.ID, got, want)
			}
		}
	}
}

// A record has a start and an end. Those that nobody told, of which the second call knows neither, are marked as filled: it
// begins when the first, with 2 tokens at 20 ms, is done.
func TestRecordsMarkFilledTimes(t *testing.T) {
	c, err := openText(`{"request_id":"a","wait_for":[],"timestamp":1000,"input_length":5,"output_length":2}`+"\n"+
		`{"request_id":"b","wait_for":["a"],"input_length":5,"output_length":2}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	back, lost := recorded(t, link(t, c))
	if diff := cmp.Diff([]Count{{"ends that are not known, which the default speed tells", 2}, {"starts, which followed from what calls wait for", 1},
		{"what calls wait for, as it was stated", 1}}, lost); diff != "" {
		t.Error(diff)
	}
	var got []string
	for _, s := range back.Sessions {
		for _, turn := range s.Turns {
			got = append(got, fmt.Sprintf("%s %v %v %v", turn.ID, turn.Start, turn.End, turn.Inferred.Names()))
		}
	}
	if diff := cmp.Diff([]string{"a 0s 40ms [end]", "b 40ms 80ms [start end]"}, got); diff != "" {
		t.Error(diff)
	}
}

// A simulation of an invented workload, and of conversations with hashes of their own, sees no difference.
func TestRecordsRunAlike(t *testing.T) {
	for _, profile := range []string{"claude-code", "mini-swe-agent"} {
		c, err := synth.Generate(profile, synth.Options{Programs: 3, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		c.Rebase()
		c.Resolution = time.Millisecond
		for _, s := range c.Sessions { // records have milliseconds
			for _, turn := range s.Turns {
				fine := turn.Start % time.Millisecond
				turn.Start, turn.End = turn.Start-fine, turn.End-fine
			}
			for i := range s.Tools {
				tool := &s.Tools[i]
				tool.Start, tool.End = tool.Start.Truncate(time.Millisecond), tool.End.Truncate(time.Millisecond)
			}
		}
		back, lost := recorded(t, link(t, c))
		if len(lost) > 0 {
			t.Errorf("%s: lost %v", profile, lost)
		}
		if diff := cmp.Diff(reportOf(t, c), reportOf(t, back)); diff != "" {
			t.Errorf("%s: %s", profile, diff)
		}
	}
	twice := `{"id":"x","block_size":4,"requests":[{"t":0,"in":9,"out":2,"hash_ids":[1,2],"api_time":1},{"t":3,"in":12,"out":2,"hash_ids":[1,2,3],"api_time":1}]}`
	c, err := openText(twice+"\n"+twice+"\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	back, lost := recorded(t, link(t, c))
	if diff := cmp.Diff([]Count{{"clocks of programs, each with its own", 1}}, lost); diff != "" {
		t.Error(diff)
	}
	a, b := back.Sessions[0].Turns, back.Sessions[1].Turns
	if !slices.Equal(a[0].Chain()[:2], a[1].Chain()[:2]) || slices.Equal(a[0].Chain()[:1], b[0].Chain()[:1]) || len(a[0].Chain()) != 3 {
		t.Errorf("chains %d and %d, %d", a[0].Chain(), a[1].Chain(), b[0].Chain())
	}
}

// Rows that were kept whole are written again with all that they tell, and so are tools without a call.
func TestWholeRowsAreWrittenAgain(t *testing.T) {
	const call = `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1790000002500,"event_source":"dynamo","agent_context":{"session_id":"s","session_final":true,"kv_hints":{"evict_session":true}},"request":{"request_id":"r","x_request_id":"x","model":"m","input_tokens":6,"output_tokens":21,"cached_tokens":4,"request_received_ms":1790000000000,"prefill_wait_time_ms":40.25,"prefill_time_ms":459.75,"ttft_ms":500,"total_time_ms":2500,"avg_itl_ms":100,"kv_hit_rate":0.5,"queue_depth":2,"worker":{"prefill_worker_id":9007199254740993,"decode_worker_id":9007199254740995,"decode_dp_rank":1},"replay":{"trace_block_size":4,"input_length":6,"input_sequence_hashes":[1,2]},"finish_reason_metadata":{"finish_reason":"length","backend_finish_reason":"length","stop_reason":7,"tool_calls":[{"choice_index":1,"tool_call_index":2,"id":"t","name":"grep"}]},"agentsim":{"status":"completed","http_status":200,"response_id":"a","token_gaps_us":[1,2]}}}`
	const tool = `{"schema":"dynamo.request.trace.v1","event_type":"tool_error","event_time_unix_ms":1790000004000,"event_source":"harness","agent_context":{"session_id":"other"},"tool":{"tool_call_id":"t","tool_class":"grep","started_at_unix_ms":1790000003000,"ended_at_unix_ms":1790000004000,"status":"error","duration_ms":1000,"output_bytes":912,"error_type":"timeout"}}`
	for _, text := range []string{call + "\n" + tool + "\n", tool + "\n"} {
		c, err := openText(text, Options{Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		if c.Epoch == 0 {
			t.Error("the times are not absolute")
		}
		records, _ := Records(link(t, c))
		var got strings.Builder
		for r := range records {
			line, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			got.Write(append(line, '\n'))
		}
		if diff := cmp.Diff(text, got.String()); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := openText(tool, Options{}); err == nil {
		t.Error("tools alone are taken for a workload")
	}
}

// Ids by which other recordings may know a call.
func TestAliases(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{`{"event_type":"request_end","request":{"request_id":"r","x_request_id":"x","input_tokens":1,"request_received_ms":1,"agentsim":{"response_id":"a"}}}`, []string{"x", "a"}},
		{`{"type":"assistant","sessionId":"s","uuid":"2","timestamp":"2026-01-01T00:00:02Z","requestId":"q","message":{"id":"m","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":3}}}`, []string{"q"}},
		{`{"trace_id":"t","spans":[{"span_id":"s","parent_span_id":"p","start_time":"2026-01-01T00:00:02Z","end_time":"2026-01-01T00:00:03Z","attributes":{"gen_ai.operation.name":"chat","gen_ai.request.model":"m","gen_ai.response.id":"a","gen_ai.usage.input_tokens":3}}]}`, []string{"a", "t/p"}},
	} {
		c, err := openText(test.text, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, c.Sessions[0].Turns[0].Aliases); diff != "" {
			t.Errorf("%s: %s", c.Format, diff)
		}
	}
}
