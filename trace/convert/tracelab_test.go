package convert

import (
	"slices"
	"strings"
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

// The second prompt is 576 tokens, all of the first with its answer, and 128 more: 36 of its 44 blocks of 16 are known. The third keeps
// 320 tokens of that, 20 blocks. Sessions share nothing, whatever the prefix of their first round.
func TestTracelabReplay(t *testing.T) {
	c, err := openText(`session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms
0,0,1,576,128,64,250.5
0,0,0,64,448,64,100
0,0,2,320,10,8,0
b,200,0,64,10,48,80`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	turns := c.Sessions[0].Turns
	a, b, d, other := chain(turns[0]), chain(turns[1]), chain(turns[2]), chain(c.Sessions[1].Turns[0])
	if !slices.Equal(a, b[:32]) || !slices.Equal(turns[0].OutputHashes, b[32:36]) || len(b) != 44 || slices.Contains(turns[0].OutputHashes, b[36]) {
		t.Errorf("the second prompt has blocks %x, the first %x and %x", b, a, turns[0].OutputHashes)
	}
	if !slices.Equal(d[:20], b[:20]) || d[20] == b[20] || a[0] == other[0] {
		t.Errorf("the third prompt has blocks %x, the other session's %x", d, other)
	}
	for _, turn := range append(turns, c.Sessions[1].Turns...) {
		turn.Base, turn.Hashes = nil, nil
	}
	checkText(t, describe(c), `
session-0 parent="" class="" scope=0
  session-0/0:3 0s..? 512+64 [] /user_message
  session-0/1:2 ?..? 704+64 [] waits=session-0/0+100ms,sequence,false /tool_result tool=100ms
  session-0/2:4 ?..? 330+8 [] waits=session-0/1+250.5ms,sequence,false /tool_result tool=250.5ms
session-b parent="" class="" scope=0
  session-b/0:5 200ms..? 74+48 [] /user_message
`)
	for _, c := range []struct{ row, want string }{
		{"0,0,0,64,10,48,80\n0,0,0,64,10,48,80", "-:3: round_idx 0 of session-0: missing, or used before"},
		{",0,0,64,10,48,80", "-:2: session_id is missing"},
		{"0,0,0,0,0,48,80", "-:2: prefix_len + input_len is 0"},
		{"0,0,0,0,5,,80", "-:2: output_len is -1"},
		{"0,-5,0,0,5,5,80", "-:2: arrival_time is -5"},
		{"0,0,0,268435456,268435456,5,80", "-:2: prefix_len + input_len is 536870912"},
	} {
		if _, err := openText("session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\n"+c.row, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.row, err, c.want)
		}
	}
}

// TraceLab's examples: one session of 11 rounds, and three of 8, which begin at times of their own.
func TestTracelabReplayShared(t *testing.T) {
	one := openShared(t, "tracelab/session_workload_example.csv")
	if one.Read.Calls != 11 || len(one.Sessions) != 1 || one.SharedClock || one.Sessions[0].Turns[10].Input != 48060+9844 {
		t.Errorf("%s", describe(one))
	}
	three := openShared(t, "tracelab/multi_session_example.csv")
	if three.Read.Calls != 8 || len(three.Sessions) != 3 || !three.SharedClock || three.Sessions[2].Turns[0].Start != 500*time.Millisecond {
		t.Errorf("%s", describe(three))
	}
}

func FuzzTracelabReplay(f *testing.F) {
	fuzzFormat(f, "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\n0,0,0,64,448,64,100\n0,0,1,576,128,0,",
		"id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len\na,5,5,1.5,0,,0")
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
