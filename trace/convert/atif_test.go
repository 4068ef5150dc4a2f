package convert

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
)

const atifText = `{"schema_version":"ATIF-v1.7","session_id":"s","agent":{"name":"a","version":"1","model_name":"m"},"steps":[
	{"step_id":1,"timestamp":"2026-01-01T00:00:00Z","source":"user","message":"do it"},
	{"step_id":2,"timestamp":"2026-01-01T00:00:10Z","source":"agent","message":[{"type":"text","text":"I will"}],"reasoning_content":"hm",
	 "tool_calls":[{"tool_call_id":"c1","function_name":"bash","arguments":{"cmd":"ls"}}],
	 "observation":{"results":[{"source_call_id":"c1","content":"a.go"},{"subagent_trajectory_ref":[{"trajectory_id":"kid"}]}]},
	 "metrics":{"prompt_tokens":640,"completion_tokens":100,"cached_tokens":64}},
	{"step_id":3,"timestamp":"2026-01-01T00:00:11Z","source":"agent","message":"copied","is_copied_context":true,"metrics":{"prompt_tokens":9}},
	{"step_id":4,"timestamp":"2026-01-01T00:00:12Z","source":"agent","message":"done","metrics":{"prompt_tokens":1280,"completion_tokens":500}}],
	"subagent_trajectories":[{"trajectory_id":"kid","agent":{"name":"explorer"},"steps":[
	 {"step_id":1,"timestamp":"2026-01-01T00:00:11Z","source":"agent","message":"found","metrics":{"completion_tokens":5}}]}]}`

// The first call of 100 tokens takes 2 s at 50 tokens per second, so it began 8 s after the message. The second of 500
// would take 10 s, but began when the first had ended. The copied step is none. The prompt of the subagent is not told: all
// that it is known to have is "system\nexplorer\n\n", 17 bytes.
func TestATIF(t *testing.T) {
	c, err := openText(atifText, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]sessionCount{"s": {"", "", 2, 1920, 64, 600, 0, 0}, "kid": {"s", "explorer", 1, 5, 0, 5, 0, 0}}
	if diff := cmp.Diff(want, countSessions(c)); diff != "" {
		t.Error(diff)
	}
	s := sessionNamed(t, c, "s")
	first, second := s.Turns[0], s.Turns[1]
	if first.End-first.Start != 2e9 || second.Start != first.End || second.End-second.Start != 2e9 || second.Trigger != "other" {
		t.Errorf("%s", describe(c))
	}
	if a, b := chain(first), chain(second); len(a) != 10 || !slices.Equal(a, b[:10]) {
		t.Error("the second prompt does not go on from the first")
	}
}

// Where the ids of the prompt's tokens are told, their hashes are those of any tokenizer's.
func TestATIFTokenIDs(t *testing.T) {
	c, err := openText(`{"schema_version":"ATIF-v1.4","session_id":"s","steps":[{"source":"agent","message":"x","timestamp":"2026-01-01T00:00:00Z","metrics":{"prompt_tokens":3,"completion_tokens":1,"prompt_token_ids":[7,8,9]}}]}`, Options{BlockSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	turn := c.Sessions[0].Turns[0]
	if len(turn.Hashes) != 2 || turn.Inferred&trace.FieldTextHashes != 0 {
		t.Errorf("%+v", turn)
	}
}

// The login sample: six steps of the agent at one time, without counts.
func TestATIFShared(t *testing.T) {
	c := openFiles(t, filepath.Join(sharedTraces(t), "atif"))
	s := c.Sessions[0]
	if s.ID != "login-trace-trajectory" || len(s.Turns) != 6 || c.Read.LostRows > 0 {
		t.Errorf("%+v", s)
	}
	for _, turn := range s.Turns {
		if turn.Inferred&(trace.FieldInput|trace.FieldOutput) != trace.FieldInput|trace.FieldOutput {
			t.Errorf("%+v", turn)
		}
	}
}

func TestATIFTruncated(t *testing.T) { truncate(t, atifText, 3) }

func FuzzATIF(f *testing.F) {
	fuzzFormat(f, atifText, `{"schema_version":"ATIF-v1.0","steps":[{"source":"agent"}]}`)
}
