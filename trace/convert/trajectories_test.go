package convert

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// openFile opens text as a file of the given name, which some formats take the session's name from.
func openFile(t testing.TB, name, text string, opts Options) (*trace.Capture, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return Open(context.Background(), []string{path}, opts)
}

// without clears the hashes, which tests of the rest do not spell out.
func without(c *trace.Capture) *trace.Capture {
	for _, s := range c.Sessions {
		for _, turn := range s.Turns {
			turn.Base, turn.Shared, turn.Hashes = nil, 0, nil
		}
	}
	return c
}

// shares tells whether each later prompt of a session begins with all full blocks of the one before.
func shares(c *trace.Capture) bool {
	for _, s := range c.Sessions {
		for i := 1; i < len(s.Turns); i++ {
			before, now := chain(s.Turns[i-1]), chain(s.Turns[i])
			full := int(s.Turns[i-1].Input) / c.BlockSize
			if len(now) < full || !slices.Equal(now[:full], before[:full]) {
				return false
			}
		}
	}
	return true
}

const inferredTimes = trace.FieldStart | trace.FieldEnd

// The first answer has 12 bytes, 3 tokens, which take 60 ms at 50 tokens per second; its tool takes 0.5 s. How long the second
// one's took is not told. The demonstration is in the prompt and is no call.
func TestSWEAgent(t *testing.T) {
	long := strings.Repeat("long prompt ", 200)
	c, err := openFile(t, "task.traj", `{"environment":"main","trajectory":[{"action":"ls -l","execution_time":0.5,"response":"x"},{"action":"cat\nfoo"}],
	"history":[{"role":"system","content":"`+long+`","agent":"main"},{"role":"assistant","content":"an example","agent":"main","is_demo":true},
	{"role":"user","content":[{"type":"text","text":"do it"}],"agent":"main"},{"role":"assistant","content":"I look at it","agent":"main"},
	{"role":"user","content":"a file","agent":"main"},{"role":"assistant","content":"read","agent":"main"},{"role":"user","content":"end","agent":"main"}],
	"replay_config":"{\"agent\":{\"model\":{\"name\":\"gpt-4o\"}}}"}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.SharedClock || !shares(c) {
		t.Errorf("shared clock %v, shares %v", c.SharedClock, shares(c))
	}
	first, second := c.Sessions[0].Turns[0], c.Sessions[0].Turns[1]
	if first.Output != 3 || first.Start != 0 || first.End != 60*time.Millisecond || second.Start != 560*time.Millisecond || second.Output != 1 ||
		first.Model != "gpt-4o" || second.Trigger != "tool_result" || second.Input <= first.Input {
		t.Errorf("calls %+v and %+v", first, second)
	}
	filled := inferredTimes | trace.FieldInput | trace.FieldOutput | trace.FieldTextHashes
	if first.Inferred != filled || second.Inferred != filled|trace.FieldToolEnd {
		t.Errorf("inferred %v and %v", first.Inferred.Names(), second.Inferred.Names())
	}
	if tools := c.Sessions[0].Tools; len(tools) != 1 || tools[0].Class != "ls" || second.ToolCalls[0].Name != "cat" {
		t.Errorf("tools %+v, %+v", tools, second.ToolCalls)
	}
}

// History processors leave parts out of prompts: what a step says was sent is the prompt, whatever the history has. Both names of
// it are known.
func TestSWEAgentQueries(t *testing.T) {
	long := strings.Repeat("long output ", 200)
	step := func(key string) string {
		return `{"action":"ls","` + key + `":[{"role":"user","content":"do it"},{"role":"user","content":"Old output omitted"}]}`
	}
	for _, c := range []struct {
		name, steps string
		input       int32 // of the second call
	}{
		{"not told", `{"action":"ls"},{"action":"ls"}`, int32(len("user\ndo it\n\nassistant\na\n\nuser\n"+long+"\n\n")/4 + 1)},
		{"query", `{"action":"ls"},` + step("query"), int32(len("user\ndo it\n\nuser\nOld output omitted\n\n")/4 + 1)},
		{"messages", `{"action":"ls"},` + step("messages"), int32(len("user\ndo it\n\nuser\nOld output omitted\n\n")/4 + 1)},
	} {
		got, err := openFile(t, "task.traj", `{"trajectory":[`+c.steps+`],"history":[{"role":"user","content":"do it"},{"role":"assistant","content":"a"},
			{"role":"user","content":"`+long+`"},{"role":"assistant","content":"b"}]}`, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if turn := got.Sessions[0].Turns[1]; turn.Input != c.input {
			t.Errorf("%s: a prompt of %d tokens, want %d", c.name, turn.Input, c.input)
		}
	}
}

// The counts of calls are those of the answers in the histories that are no examples.
func TestTrajectoriesShared(t *testing.T) {
	for _, c := range []struct {
		path, format    string
		sessions, calls int
		tools           int
	}{
		{"swe-agent", FormatSWEAgent, 11, 112, 15},
		{"mini-swe-agent", FormatMiniSWEAgent, 1, 10, 0},
		{"openhands/multi_swe_bench_example_output.jsonl.gz", FormatOpenHands, 3, 105, 103},
		{"openhands/traj_basic_interactions.json", FormatOpenHands, 1, 3, 0},
		{"lmcache-agent", FormatLMCache, 35, 847, 0},
	} {
		got := openShared(t, c.path)
		if got.Format != c.format || len(got.Sessions) != c.sessions || got.Read.Calls != c.calls || got.Read.Tools != c.tools || got.Read.LostRows > 0 {
			t.Errorf("%s: %s, %d sessions, %d calls, %d tools, %d rows lost; want %+v", c.path, got.Format, len(got.Sessions), got.Read.Calls, got.Read.Tools, got.Read.LostRows, c)
		}
		if err := got.Link(); err != nil {
			t.Errorf("%s: %v", c.path, err)
		}
	}
}

// Older trajectories have no times: an answer of 8 bytes takes 2 tokens' time. A message is written as role, content and tool
// calls, each with an end of line: the first prompt has 10 + 8 bytes, the second 20 + 10 more.
func TestMiniSWEAgentOld(t *testing.T) {
	c, err := openFile(t, "old.traj.json", `[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"12345678"},{"role":"user","content":"out"},{"role":"assistant","content":"bye"}]`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.SharedClock {
		t.Error("files without times have a common clock")
	}
	checkText(t, describe(without(c)), `
old parent="" class="" scope=0
  old:1:3 0s..40ms 5+2 [] /user_message inferred=100110000111
  old:2:5 40ms..60ms 13+1 [] /tool_result inferred=110000111
`)
}

// Newer ones tell when a message was written down and what the API counted.
func TestMiniSWEAgent(t *testing.T) {
	c, err := openFile(t, "new.traj.json", `{"info":{"config":{"model":{"model_name":"m"}}},"trajectory_format":"mini-swe-agent-1.1","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},
	{"role":"assistant","content":"a","extra":{"timestamp":1760000010.5,"response":{"usage":{"prompt_tokens":100,"completion_tokens":50,"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":null}}}},
	{"role":"user","content":"out","extra":{"timestamp":1760000012.75,"returncode":0}},
	{"role":"assistant","content":"b","extra":{"timestamp":1760000020,"response":{"usage":{"prompt_tokens":180,"completion_tokens":7}}}},{"role":"exit","content":"done"}]}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !shares(c) || c.Epoch != 1760000009500 {
		t.Errorf("shares %v, epoch %d", shares(c), c.Epoch)
	}
	checkText(t, describe(without(c)), `
new parent="" class="" scope=0
  new:1:3 0s..1s 100+50 [] m/user_message inferred=100000011
  new:2:5 3.25s..10.5s 180+7 [] m/tool_result inferred=100000011
`)
	if tools := c.Sessions[0].Tools; len(tools) != 1 || tools[0].End != 3250*time.Millisecond || c.Sessions[0].Turns[0].Cached != 64 {
		t.Errorf("tools %+v", tools)
	}
}

// Two actions of one response are one call; it ends with the first. The second call has a latency.
func TestOpenHands(t *testing.T) {
	event := func(rest string) string { return `{"source":"agent",` + rest + `}` }
	c, err := openFile(t, "output.jsonl", `{"instance_id":"task","metadata":{"llm_config":{"model":"m"}},"history":[`+strings.Join([]string{
		event(`"id":0,"timestamp":"2025-04-30T16:00:00","action":"system","args":{"content":"be good"}`),
		`{"source":"user","id":1,"timestamp":"2025-04-30T16:00:01","action":"message","args":{"content":"do it"}}`,
		event(`"id":2,"timestamp":"2025-04-30T16:00:05.5","action":"run","args":{"command":"ls"},"tool_call_metadata":{"function_name":"bash","model_response":{"id":"r1","usage":{"prompt_tokens":30,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":16}}}}`),
		event(`"id":3,"timestamp":"2025-04-30T16:00:05.6","action":"read","args":{"path":"x"},"tool_call_metadata":{"function_name":"read","model_response":{"id":"r1","usage":{"prompt_tokens":30,"completion_tokens":8}}}`),
		event(`"id":4,"cause":2,"timestamp":"2025-04-30T16:00:06.5","observation":"run","content":"files"`),
		event(`"id":5,"cause":0,"timestamp":"2025-04-30T16:00:06.6","observation":"agent_state_changed","content":"running"`),
		event(`"id":6,"timestamp":"2025-04-30T16:00:09","action":"finish","args":{"message":"done"},"tool_call_metadata":{"function_name":"finish","model_response":{"id":"r2","usage":{"prompt_tokens":60,"completion_tokens":2}}}`),
	}, ",")+`],"metrics":{"token_usages":[{"prompt_tokens":61,"completion_tokens":3,"cache_read_tokens":32,"response_id":"r2"}],"response_latencies":[{"latency":2,"response_id":"r2"}]}}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkText(t, describe(without(c)), `
task parent="" class="" scope=0
  r1:1 0s..4.5s 30+8 [] m/user_message inferred=100100000011
  r2:1 6s..8s 61+3 [] m/tool_result inferred=100000011
`)
	s := c.Sessions[0]
	if len(s.Tools) != 1 || s.Tools[0].Class != "bash" || s.Tools[0].End-s.Tools[0].Start != time.Second || len(s.Turns[0].ToolCalls) != 2 ||
		s.Turns[0].Cached != 16 || s.Turns[1].Cached != 32 {
		t.Errorf("tools %+v, calls %+v, cached %d and %d", s.Tools, s.Turns[0].ToolCalls, s.Turns[0].Cached, s.Turns[1].Cached)
	}
}

// Rows are in no order. The answer of the first call would take 2 s, but the second call began after 1.5 s.
func TestLMCache(t *testing.T) {
	prompt := strings.Repeat("prompt ", 300)
	c, err := openText(`{"timestamp":1760000001500000,"session_id":"s","input":"`+prompt+`more","output":""}
{"timestamp":1760000000000000,"session_id":"s","input":"`+prompt+`","output":"`+strings.Repeat("12345678", 50)+`"}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !shares(c) {
		t.Error("a prompt that goes on from another shares nothing")
	}
	checkText(t, describe(without(c)), `
s parent="" class="" scope=0
  s/1:2 0s..1.5s 526+100 [] inferred=110000110
  s/2:1 1.5s..1.5s 527+0 [] inferred=110000110
`)
}

// What stands before the end of a file that is cut off is read, wherever the end is.
func TestTruncatedTrajectories(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"t.traj", `{"history":[{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}],"trajectory":[{"action":"x","execution_time":1}]}`},
		{"t.json", `[{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"é"},{"role":"assistant","content":"b"}]`},
		{"e.json", `[{"id":0,"timestamp":"2025-02-01T00:14:10.787622","source":"user","action":"message","args":{"content":"x"}},{"id":1,"timestamp":"2025-02-01T00:14:12","source":"agent","action":"message","args":{"content":"y"}},{"id":2,"timestamp":"2025-02-01T00:14:12","source":"agent","action":"message","args":{}}]`},
	} {
		read := 0
		for end := range len(c.text) + 1 {
			got, err := openFile(t, c.name, c.text[:end], Options{})
			if err != nil {
				continue
			}
			checkCapture(t, got)
			if got.Read.Calls < read {
				t.Errorf("%s: %d calls in %d bytes, %d in fewer", c.name, got.Read.Calls, end, read)
			}
			if read = got.Read.Calls; (got.Read.LostRows > 0) != (end < len(c.text)) {
				t.Errorf("%s: cut off at %d of %d bytes: %d rows lost", c.name, end, len(c.text), got.Read.LostRows)
			}
		}
		if read != 2 {
			t.Errorf("%s: %d calls, want 2", c.name, read)
		}
	}
}

func FuzzTrajectories(f *testing.F) {
	fuzzFormat(f, `{"history":[{"role":"user","content":"u"},{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"x"}}]}],"trajectory":[{"action":"x","execution_time":1,"query":[{"role":"user","content":"u"}]}]}`,
		`[{"role":"user","content":"u"},{"role":"assistant","content":"a"}]`,
		`{"info":{},"messages":[{"role":"assistant","content":"a","extra":{"timestamp":1760000010.5,"response":{"usage":{"prompt_tokens":100,"completion_tokens":50}}}}]}`,
		`[{"id":0,"timestamp":"2025-02-01T00:14:10.787622","source":"agent","action":"run","args":{"content":"x"}},{"id":1,"cause":0,"timestamp":"2025-02-01T00:14:12","source":"agent","observation":"run","content":"y"}]`,
		`{"instance_id":"a","history":[{"id":0,"timestamp":"2025-02-01T00:14:10","source":"agent","action":"run"}],"metrics":{"token_usages":[{"prompt_tokens":1,"response_id":"r"}]}}`,
		`{"timestamp":1760000001500000,"session_id":"s","input":"i","output":"o"}`)
}

// Of the prompts of LMCache's agents, these shares of the characters stand in an earlier prompt of the session as well. So do as
// many of their tokens by the hashes.
func TestLMCacheReuse(t *testing.T) {
	for set, want := range map[string]float64{"miniswe": 0.936, "magagent": 0.822} {
		c, err := Open(context.Background(), []string{filepath.Join(sharedTraces(t), "lmcache-agent", set)}, Options{BlockSize: 16})
		if err != nil {
			t.Fatal(err)
		}
		var input, reused int
		for _, s := range c.Sessions {
			seen := map[uint64]bool{}
			for _, turn := range s.Turns {
				input += int(turn.Input)
				hit := 0
				for i, h := range chain(turn) {
					if seen[h] && hit == i*16 {
						hit = min((i+1)*16, int(turn.Input))
					}
					seen[h] = true
				}
				reused += hit
			}
		}
		if got := float64(reused) / float64(input); got < want-0.02 || got > want+0.02 {
			t.Errorf("%s: %.3f of the tokens stand in an earlier prompt, want %.3f", set, got, want)
		}
	}
}
