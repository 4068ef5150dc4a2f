package perfetto

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// shownAs maps keys of a row to the argument, or the part of the drawing, that has their value. Keys that are not here are
// arguments under their own name.
var shownAs = map[string]string{
	// hashes and their sizes are no use to a reader
	"replay": "",
	// in other words
	"worker.prefill_worker_id": "prefill_worker_id", "worker.prefill_dp_rank": "prefill_dp_rank",
	"worker.decode_worker_id": "decode_worker_id", "worker.decode_dp_rank": "decode_dp_rank",
	"finish_reason_metadata.finish_reason": "finish_reason", "finish_reason_metadata.backend_finish_reason": "backend_finish_reason",
	"finish_reason_metadata.stop_reason": "stop_reason", "finish_reason_metadata.choices": "choices",
	"finish_reason_metadata.tool_calls": "tool_call_names",
	"agentsim.copy":                     "run.copy", "agentsim.turn": "", "agentsim.status": "run.status", "agentsim.worker": "run.worker",
	"agentsim.hit_tokens": "run.hit_tokens", "agentsim.computed_tokens": "run.computed_tokens",
	"agentsim.planned_ns": "run.planned_ms", "agentsim.ready_ns": "run.ready_ms", "agentsim.due_ns": "run.due_ms",
	"agentsim.preemptions": "run.preemptions", "agentsim.reasoning_tokens": "reasoning_tokens", "agentsim.inferred": "inferred",
	"agentsim.held_ns": "run.held_ms", "agentsim.waited_ns": "run.waited_ms",
	"agentsim.agent_hints": "priority",
	// where the slices are
	"agentsim.arrival_ns": "", "agentsim.admitted_ns": "", "agentsim.first_token_ns": "", "agentsim.end_ns": "",
	"agentsim.tool_ns": "", "agentsim.human_ns": "",
}

// Everything that a row tells of a call is among the arguments of its slice.
func TestArgumentsTellTheWholeRow(t *testing.T) {
	request := `{"request_id":"r","x_request_id":"x","model":"m","input_tokens":10,"output_tokens":5,"cached_tokens":3,"request_received_ms":1790000000000,
"prefill_wait_time_ms":1,"prefill_time_ms":2,"ttft_ms":3,"total_time_ms":9,"avg_itl_ms":1.5,"kv_hit_rate":0.5,"kv_transfer_estimated_latency_ms":0.25,
"queue_depth":4,"worker":{"prefill_worker_id":5,"prefill_dp_rank":6,"decode_worker_id":7,"decode_dp_rank":8},
"replay":{"trace_block_size":16,"input_length":10,"input_sequence_hashes":[1]},
"finish_reason_metadata":{"finish_reason":"stop","backend_finish_reason":"eos","stop_reason":"</s>","tool_calls":[{"choice_index":0,"tool_call_index":0,"id":"i","name":"n"}],"choices":[{}]},
"agentsim":{"copy":1,"turn":2,"status":"completed","worker":3,"hit_tokens":4,"computed_tokens":6,"arrival_ns":0,"admitted_ns":1000000,"first_token_ns":3000000,"end_ns":9000000,
"planned_ns":0,"ready_ns":0,"due_ns":0,"preemptions":1,"held_ns":500000,"waited_ns":7,"tool_ns":3,"human_ns":2,"reasoning_tokens":2,"inferred":["gap"],"agent_hints":{"priority":3}}}`
	context := `{"session_id":"s","parent_session_id":"p","session_final":true,"compaction":{"trigger":"auto"},"kv_hints":{"evict_session":true},"input_trigger":"tool_result","agent_headers":{"x-agent":"pi","X-Api-Key":"s3cr3t"}}`
	row := fmt.Sprintf(`{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1790000000009,"agent_context":%s,"request":%s}`, context, request)
	path := filepath.Join(t.TempDir(), "row.jsonl")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(row, "\n", "")), 0o644); err != nil {
		t.Fatal(err)
	}
	in := draw(t, Options{}, Source{Label: "row", Capture: open(t, path)})
	var call *slice
	for _, s := range in.slices {
		if s.is(catTurn) {
			call = s
		}
	}
	if got, want := call.args["agent_headers"], `{"X-Api-Key":"not shown","x-agent":"pi"}`; got != want {
		t.Errorf("agent_headers %v, want %s", got, want)
	}
	keys := map[string]bool{}
	for _, text := range []string{request, context} {
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		for key, value := range object {
			nested, ok := value.(map[string]any)
			if !ok || key == "replay" || text == context {
				keys[key] = true
				continue
			}
			for inner := range nested {
				keys[key+"."+inner] = true
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		name, ok := shownAs[key]
		if !ok {
			name = key
		}
		if _, told := call.args[name]; name != "" && !told {
			t.Errorf("%s is not told: no argument %s", key, name)
		}
	}
}
