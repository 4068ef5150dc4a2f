package trace

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func readDetailed(t *testing.T, text string) *Capture {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	segments, err := Find([]string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadDetailed(context.Background(), segments, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReadDetailed(t *testing.T) {
	id, rank := uint64(9007199254740993), uint32(1)
	for _, test := range []struct {
		name, request, context string
		want                   Detail
	}{
		{"all", `"request_id":"a","x_request_id":"call-1","input_tokens":130,"request_received_ms":1000,"prefill_wait_time_ms":40.25,
			"prefill_time_ms":459.75,"avg_itl_ms":100,"kv_hit_rate":0.25,"queue_depth":2,"kv_transfer_estimated_latency_ms":1.5,
			"worker":{"prefill_worker_id":9007199254740993,"prefill_dp_rank":1},
			"finish_reason_metadata":{"finish_reason":"tool_calls","backend_finish_reason":"stop","stop_reason":7,"choices":[{"choice_index":0}]}`,
			`"session_id":"s","compaction":{"trigger":"auto"},"kv_hints":{"evict_session":true}`,
			Detail{CallerID: "call-1", PrefillWait: 40250 * time.Microsecond, Prefill: 459750 * time.Microsecond, ITL: 100 * time.Millisecond,
				KVTransfer: 1500 * time.Microsecond, HitRate: 0.25, QueueDepth: 2, Workers: &Worker{PrefillWorkerID: &id, PrefillDPRank: &rank},
				FinishReason: "tool_calls", Backend: "stop", StopReason: "7", Choices: `[{"choice_index":0}]`,
				Compaction: `{"trigger":"auto"}`, KVHints: `{"evict_session":true}`}},
		{"nothing told, or nonsense", `"request_id":"a","input_tokens":130,"request_received_ms":1000,"avg_itl_ms":1e300,
			"replay":{"trace_block_size":64,"input_length":130,"input_sequence_hashes":[1,2,3,4,5,6,7]}`, `"session_id":"s"`,
			Detail{PrefillWait: NoTime, Prefill: NoTime, ITL: NoTime, KVTransfer: NoTime, HitRate: -1, QueueDepth: Unknown}},
		{"of a run", `"request_id":"a","input_tokens":130,"request_received_ms":1000,"agentsim":{"copy":2,"status":"failed","worker":3,
			"hit_tokens":64,"arrival_ns":5,"held_ns":7,"waited_ns":100,"tool_ns":60,"human_ns":30,"preemptions":1,"inferred":["gap"]}`, `"session_id":"s"`,
			Detail{PrefillWait: NoTime, Prefill: NoTime, ITL: NoTime, KVTransfer: NoTime, HitRate: -1, QueueDepth: Unknown,
				Run: &RunDetail{Status: "failed", Copy: 2, Worker: 3, Arrival: 5, Planned: NoTime, Ready: NoTime, Due: NoTime, Held: 7,
					Gap: Gap{Tool: 60, Human: 30, Other: 10}, Hit: 64, Computed: Unknown, Preemptions: 1, Inferred: []string{"gap"}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			row := ""
			for _, line := range []byte(end(test.request, test.context)) { // a row is one line
				if line != '\n' && line != '\t' {
					row += string(line)
				}
			}
			c := readDetailed(t, row)
			turn := c.Sessions[0].Turns[0]
			if diff := cmp.Diff(&test.want, turn.Detail); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(turn.Hashes) > 0 {
				t.Errorf("%d hashes, which nobody shows", len(turn.Hashes))
			}
		})
	}
}

// Whoever shows a capture also wants tools of which only the start or only the end is told.
func TestReadDetailedTools(t *testing.T) {
	tool := func(kind, at, id string) string {
		return `{"schema":"dynamo.request.trace.v1","event_type":"tool_` + kind + `","event_time_unix_ms":` + at +
			`,"agent_context":{"session_id":"s"},"tool":{"tool_call_id":"` + id + `","tool_class":"sh"}}` + "\n"
	}
	c := readDetailed(t, end(`"request_id":"a","input_tokens":5,"request_received_ms":1000`, `"session_id":"s"`)+
		tool("start", "1001", "whole")+tool("start", "1002", "begun")+tool("end", "1003", "whole")+tool("error", "1004", "ended"))
	type span struct {
		id         string
		start, end time.Duration
	}
	var got []span
	for _, s := range c.Sessions[0].Tools {
		if s.Row == nil || s.Row.ToolCallID != s.ID {
			t.Errorf("tool %q without its row", s.ID)
		}
		got = append(got, span{s.ID, s.Start, s.End})
	}
	ms := time.Millisecond
	want := []span{{"whole", ms, 3 * ms}, {"ended", 4 * ms, 4 * ms}, {"begun", 2 * ms, NoTime}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(span{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
