package convert

import (
	"slices"
	"testing"
	"time"
)

// The call begins at the later tool result and ends at the last thing emitted. It found 33 tokens in the cache, 2 blocks of
// 16, of the 40 of the call before.
func TestTracelab(t *testing.T) {
	c, err := openText(`{"session_id":"claude:s","round_index":1,"round_id":"msg_b","model":"m","input_tokens_total":50,"prefix_tokens":33,"output_tokens":7,"reasoning_output_tokens":2,"timing_events":[{"event_type":"tool_result","timestamp":"2026-06-01T05:40:20.500Z"},{"event_type":"tool_result","timestamp":"2026-06-01T05:40:21Z"},{"event_type":"text","timestamp":"2026-06-01T05:40:23Z"}],"tools":[]}
{"session_id":"claude:s","round_index":0,"round_id":"msg_a","model":"m","input_tokens_total":40,"prefix_tokens":0,"output_tokens":5,"timing_events":[{"event_type":"user_message","timestamp":"2026-06-01T05:40:10Z"},{"event_type":"tool_call","timestamp":"2026-06-01T05:40:12Z"}],"tools":[{"tool_name":"Bash","tool_call_id":"t","emitted_at":"2026-06-01T05:40:12Z","result_at":"2026-06-01T05:40:20.500Z","is_error":true},{"tool_name":"Read","tool_call_id":"u","emitted_at":"2026-06-01T05:40:12Z","result_at":null}]}`, Options{BlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	turns := c.Sessions[0].Turns
	if a, b := chain(turns[0]), chain(turns[1]); len(a) != 3 || len(b) != 4 || !slices.Equal(a[:2], b[:2]) || a[2] == b[2] {
		t.Errorf("blocks %x and %x", a, b)
	}
	turns[0].Hashes, turns[1].Base, turns[1].Hashes = nil, nil, nil
	checkText(t, describe(c), `
claude:s parent="" class="" scope=0
  msg_a:2 0s..2s 40+5 [] m/user_message inferred=101000000011
  msg_b:1 11s..13s 50+7 [] m/tool_result inferred=1000000011
`)
	if tools := c.Sessions[0].Tools; len(tools) != 1 || tools[0].Class != "Bash" || tools[0].Status != "error" || tools[0].End-tools[0].Start != 8500*time.Millisecond {
		t.Errorf("tools %+v", c.Sessions[0].Tools)
	}
	if turns[0].Cached != 0 || turns[1].Cached != 33 || turns[1].Reasoning != 2 {
		t.Errorf("cached %d and %d, reasoning %d", turns[0].Cached, turns[1].Cached, turns[1].Reasoning)
	}
}

// Two sample sessions of TraceLab: 19 rounds, of whose input tokens 92.1% came from the cache.
func TestTracelabShared(t *testing.T) {
	c := openShared(t, "tracelab/round_trace.sanitized.jsonl")
	var input, cached, shared int64
	for _, s := range c.Sessions {
		for i, turn := range s.Turns {
			input += int64(turn.Input)
			cached += int64(turn.Cached)
			if i > 0 {
				shared += int64(turn.Shared) * int64(c.BlockSize)
			}
		}
	}
	if c.Read.Calls != 19 || len(c.Sessions) != 2 || cached*1000/input != 921 {
		t.Errorf("%d calls, %d sessions, %d of %d tokens cached", c.Read.Calls, len(c.Sessions), cached, input)
	}
	if share := float64(shared) / float64(input); share < 0.8 || share > 0.921 {
		t.Errorf("the prompts share %.3f of their tokens; 0.921 came from the cache", share)
	}
	if err := c.Link(); err != nil {
		t.Error(err)
	}
}

func FuzzTracelab(f *testing.F) {
	fuzzFormat(f, `{"session_id":"s","round_index":0,"round_id":"msg_a","model":"m","input_tokens_total":40,"prefix_tokens":20,"output_tokens":5,"timing_events":[{"event_type":"user_message","timestamp":"2026-06-01T05:40:10Z"}],"tools":[{"tool_name":"Bash","tool_call_id":"t","emitted_at":"2026-06-01T05:40:12Z","result_at":null}]}`)
}
