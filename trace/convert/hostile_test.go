package convert

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

// sample is a small file of a format, with two rows or more where rows are lines.
type sample struct{ format, name, text string }

var samples = []sample{
	{FormatBailian, "a.jsonl", `{"chat_id":1,"parent_chat_id":-1,"timestamp":1.5,"input_length":40,"output_length":9,"type":"text","turn":1,"hash_ids":[1,2,3]}
{"chat_id":2,"parent_chat_id":1,"timestamp":11.5,"input_length":50,"output_length":2,"type":"text","turn":2,"hash_ids":[1,2,4,5]}`},
	{FormatTracelab, "a.jsonl", `{"provider":"claude","session_id":"s","round_index":0,"round_id":"msg_a","model":"m","input_tokens_total":90,"prefix_tokens":80,"output_tokens":5,"timing_events":[{"event_type":"user_message","timestamp":"2026-06-01T05:40:10Z"},{"event_type":"text","timestamp":"2026-06-01T05:40:12Z"}],"tools":[]}
{"provider":"claude","session_id":"s","round_index":1,"round_id":"msg_b","model":"m","input_tokens_total":190,"prefix_tokens":90,"output_tokens":5,"timing_events":[{"event_type":"user_message","timestamp":"2026-06-01T05:41:10Z"},{"event_type":"text","timestamp":"2026-06-01T05:41:12Z"}],"tools":null}`},
	{FormatServingSim, "a.jsonl", `{"input_toks":3,"output_toks":2,"arrival_time_ns":2500,"input_tok_ids":[7,8,9],"output_tok_ids":[1,2]}
{"session_id":"agent","arrival_time_ns":500,"sub_requests":[{"input_toks":10,"output_toks":4,"tool_duration_ns":1000},{"input_toks":30,"output_toks":1,"tool_duration_ns":0}]}`},
	{FormatApplied, "a.jsonl", `{"num_turns":1,"input_prompt_length":6,"assistant_response_length":[3],"tool_call_output_length":[4],"tool_call_latency":[0.5],"final_assistant_response_length":7}
{"num_turns":0,"input_prompt_length":6,"assistant_response_length":[],"tool_call_output_length":[],"tool_call_latency":[],"final_assistant_response_length":7}`},
	{FormatArrivals, "a.csv", "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,12,2.5,ChatGPT,30,7,37,Conversation log\n60,12,1,ChatGPT,50,2,52,Conversation log"},
	{FormatBLIS, "a.csv", "request_id,session_id,prefix_group,prefix_length,input_tokens,output_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,status,error_message\n0,s,g,32,10,4,1000,1500,2500,5500,ok,\n1,s,g,32,10,4,9000,9500,9600,9700,error,\"a, b\""},
	{FormatTracelabReplay, "a.csv", "session_id,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\n0,0,12461,5875,124,182\n0,1,18333,13570,15950,28"},
	{FormatLMCache, "a.jsonl", `{"timestamp":1760000000000000,"session_id":"s","input":"prompt","output":"answer"}
{"timestamp":1760000001500000,"session_id":"s","input":"prompt and more","output":""}`},
	{FormatOpenHands, "a.jsonl", `{"instance_id":"a","history":[{"id":0,"timestamp":"2025-04-30T16:00:00","source":"agent","action":"run","args":{}}]}
{"instance_id":"b","history":[{"id":0,"timestamp":"2025-04-30T16:00:00","source":"agent","action":"run","args":{}}],"metrics":{"token_usages":[]}}`},
	{FormatOpenHands, "a.json", `[{"id":0,"timestamp":"2025-04-30T16:00:00","source":"user","action":"message","args":{"content":"x"}},
{"id":1,"timestamp":"2025-04-30T16:00:01","source":"agent","action":"run","args":{}}]`},
	{FormatSWEAgent, "a.traj", `{"trajectory":[{"action":"ls","execution_time":0.5}],"history":[{"role":"user","content":"u","agent":"main"},
{"role":"assistant","content":"a","agent":"main"}]}`},
	{FormatMiniSWEAgent, "a.json", `[{"role":"user","content":"u"},
{"role":"assistant","content":"a"}]`},
}

func openSample(t testing.TB, s sample) (*trace.Capture, error) {
	return openFile(t, s.name, s.text, Options{})
}

// A file may be cut off at any byte: what is read of it is sound, and what is wrong with it is a fault of the input.
func TestTruncatedSamples(t *testing.T) {
	for _, s := range samples {
		whole, err := openSample(t, s)
		if err != nil || whole.Format != s.format || whole.Read.LostRows > 0 {
			t.Errorf("%s: %v", s.format, err)
			continue
		}
		checkCapture(t, whole)
		checkWritten(t, whole)
		for end := 0; end < len(s.text); end += cutStep() {
			got, err := openSample(t, sample{s.format, s.name, s.text[:end]})
			var input *trace.InputError
			switch {
			case err == nil:
				checkCapture(t, got)
				if got.Read.Calls > whole.Read.Calls {
					t.Errorf("%s cut off at byte %d: %d calls, of %d", s.format, end, got.Read.Calls, whole.Read.Calls)
				}
			case !errors.As(err, &input):
				t.Errorf("%s cut off at byte %d: %v", s.format, end, err)
			}
		}
	}
}

// Byte order marks, line ends of Windows, blank lines and keys that are not known change nothing.
func TestSamplesInDisguise(t *testing.T) {
	for _, s := range samples {
		want, err := openSample(t, s)
		if err != nil {
			t.Errorf("%s: %v", s.format, err)
			continue
		}
		for name, text := range map[string]string{
			"byte order mark": "\xef\xbb\xbf" + s.text,
			"CRLF":            strings.ReplaceAll(s.text, "\n", "\r\n") + "\r\n",
			"unknown keys":    strings.ReplaceAll(strings.ReplaceAll(s.text, `{"input`, `{"zz":{"deep":[[1]]},"input`), `{"timestamp`, `{"zz":null,"timestamp`),
		} {
			got, err := openSample(t, sample{s.format, s.name, text})
			if err != nil || describe(got) != describe(want) {
				t.Errorf("%s with %s: %v", s.format, name, err)
			}
		}
		empty := filepath.Join(t.TempDir(), "empty.jsonl")
		if err := os.WriteFile(empty, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), s.name)
		if err := os.WriteFile(path, []byte(s.text), 0o666); err != nil {
			t.Fatal(err)
		}
		if got, err := Open(context.Background(), []string{path, empty}, Options{}); err != nil || got.Read.Calls != want.Read.Calls {
			t.Errorf("%s beside an empty file: %v", s.format, err)
		}
	}
}

// Two files give the same whatever the order in which they are named.
func TestFileOrder(t *testing.T) {
	for _, s := range samples {
		dir := t.TempDir()
		other := strings.NewReplacer(`"chat_id":1,`, `"chat_id":3,`, `"chat_id":2,`, `"chat_id":4,`, `"parent_chat_id":1,`, `"parent_chat_id":3,`, `"session_id":"`, `"session_id":"b`,
			"msg_", "msg_b", `"instance_id":"`, `"instance_id":"b`, ",12,", ",13,", ",s,g", ",t,g").Replace(s.text)
		var paths []string
		for name, text := range map[string]string{"x": s.text, "y": other} {
			path := filepath.Join(dir, name+s.name)
			if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		there, err := Open(context.Background(), paths, Options{})
		if err != nil {
			t.Errorf("%s: %v", s.format, err)
			continue
		}
		back, err := Open(context.Background(), []string{paths[1], paths[0]}, Options{})
		if err != nil || describe(there) != describe(back) {
			t.Errorf("%s: %v; the order of the files tells:\n%s\nand\n%s", s.format, err, describe(there), describe(back))
		}
	}
}

// A line of 50 MB is read.
func TestLongLine(t *testing.T) {
	if testing.Short() {
		t.Skip("50 MB of text")
	}
	c, err := openText(`{"timestamp":1760000000000000,"session_id":"s","input":"`+strings.Repeat("a long prompt ", 50<<20/14)+`","output":"answer"}`, Options{})
	if err != nil || c.Read.Calls != 1 || c.Sessions[0].Turns[0].Input < 10<<20 {
		t.Errorf("%v", err)
	}
}
