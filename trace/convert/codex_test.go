package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
)

// codexRowAt writes a row at a second of a minute.
func codexRowAt(second int, kind, payload string) string {
	return fmt.Sprintf(`{"timestamp":"2026-01-01T00:00:%02d.000Z","type":%q,"payload":%s}`, second, kind, payload)
}

// codexTotal writes a count of tokens: the session's input, cached part and output so far.
func codexTotal(second, input, cached, output int) string {
	return codexRowAt(second, "event_msg", fmt.Sprintf(`{"type":"token_count","info":{"total_token_usage":{"input_tokens":%d,"cached_input_tokens":%d,`+
		`"output_tokens":%d,"reasoning_output_tokens":%d,"total_tokens":%d}},"rate_limits":null}`, input, cached, output, output/2, input+output))
}

func codexMessage(second int, role, text string) string {
	return codexRowAt(second, "response_item", fmt.Sprintf(`{"type":"message","role":%q,"content":[{"type":"input_text","text":%q}]}`, role, text))
}

// twoCalls are the rows of two calls with counts that are written again: 3300 tokens in all.
func twoCalls(id string) []string {
	return []string{
		codexRowAt(1, "session_meta", fmt.Sprintf(`{"id":%q,"cli_version":"0.1","base_instructions":{"text":"Be good."}}`, id)),
		codexRowAt(1, "turn_context", `{"turn_id":"1","model":"gpt"}`),
		codexMessage(1, "user", "do it"),
		codexRowAt(2, "event_msg", `{"type":"token_count","info":null}`),
		codexRowAt(3, "response_item", `{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}`),
		codexRowAt(4, "response_item", `{"type":"function_call","name":"shell","arguments":"{\"cmd\":\"ls\"}","call_id":"c1"}`),
		codexTotal(5, 1000, 0, 100),
		codexTotal(5, 1000, 0, 100),
		codexRowAt(6, "response_item", `{"type":"function_call_output","call_id":"c1","output":"a.go"}`),
		codexMessage(8, "assistant", "done"),
		codexTotal(9, 3000, 900, 300),
		codexTotal(9, 3000, 900, 300),
		codexRowAt(9, "event_msg", `{"type":"task_complete"}`),
	}
}

func TestCodex(t *testing.T) {
	c, err := openText(strings.Join(twoCalls("s"), "\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := c.Sessions[0]
	first, second := s.Turns[0], s.Turns[1]
	if len(s.Turns) != 2 || first.Input+first.Output+second.Input+second.Output != 3300 {
		t.Errorf("%s: want 2 calls and 3300 tokens", describe(c))
	}
	if first.Start != 0 || first.End.Seconds() != 3 || first.Reasoning != 50 || first.Model != "gpt" || first.Trigger != "user_message" {
		t.Errorf("first call %+v", first)
	}
	if second.Start.Seconds() != 5 || second.End.Seconds() != 7 || second.Cached != 900 || second.Input != 2000 || second.Trigger != "tool_result" {
		t.Errorf("second call %+v", second)
	}
	if diff := cmp.Diff([]trace.ToolSpan{{ID: "c1", Class: "shell", Start: 3e9, End: 5e9}}, s.Tools); diff != "" {
		t.Error(diff)
	}
	// 1000 tokens are 15 full blocks of 64: the second prompt goes on from there.
	if a, b := chain(first), chain(second); len(a) != 16 || !slices.Equal(a[:15], b[:15]) {
		t.Errorf("%d and %d blocks", len(a), len(b))
	}
}

// The rollout of a fork begins with the rows of its parent, written at one time. Of two forks, one has a turn of its own,
// which counts like the same turn of the other; a third has none.
func TestCodexForks(t *testing.T) {
	replay := func(id, source string) []string {
		rows := []string{codexRowAt(30, "session_meta", fmt.Sprintf(`{"id":%q,"cli_version":"0.1","base_instructions":{"text":"Be good."},%s}`, id, source))}
		for _, row := range twoCalls("parent") {
			_, rest, _ := strings.Cut(row, ".000Z")
			rows = append(rows, `{"timestamp":"2026-01-01T00:00:30`+".000Z"+rest)
		}
		return rows
	}
	own := []string{codexMessage(31, "user", "and more"), codexMessage(35, "assistant", "more"), codexTotal(35, 5400, 2900, 350)}
	dir := t.TempDir()
	parent := logFile(t, dir, "rollout-1.jsonl", twoCalls("parent")...)
	fork := logFile(t, dir, "rollout-2.jsonl", append(replay("fork", `"forked_from_id":"parent"`), own...)...)
	kid := logFile(t, dir, "rollout-3.jsonl", append(replay("kid", `"source":{"subagent":{"thread_spawn":{"parent_thread_id":"parent","depth":1}}}`), own...)...)
	idle := logFile(t, dir, "rollout-4.jsonl", replay("idle", `"forked_from_id":"parent"`)...)
	c := openFiles(t, dir)
	want := map[string]sessionCount{
		"parent": {"", "", 2, 3000, 900, 300, 0, 1},
		"fork":   {"", "", 1, 2400, 2000, 50, 0, 0},
		"kid":    {"parent", "subagent", 1, 2400, 2000, 50, 0, 0},
	}
	if diff := cmp.Diff(want, countSessions(c)); diff != "" {
		t.Error(diff)
	}
	if describe(c) != describe(openFiles(t, idle, kid, fork, parent)) {
		t.Error("another order of the files gives another capture")
	}
	a, b := chain(sessionNamed(t, c, "parent").Turns[1]), chain(sessionNamed(t, c, "fork").Turns[0])
	if n := len(a) - 1; !slices.Equal(a[:n], b[:n]) {
		t.Error("the fork does not share its history with its parent")
	}
}

// Old rollouts have neither envelopes nor times nor counts: calls are told apart by what comes between answers.
func TestCodexOld(t *testing.T) {
	c, err := openText(`{"id":"old","timestamp":"2025-05-01T00:00:00Z","instructions":"Be good.","git":{}}
{"record_type":"state"}
{"type":"message","role":"user","content":[{"type":"input_text","text":"do it"}]}
{"type":"reasoning","summary":[{"type":"summary_text","text":"thinking of it"}]}
{"type":"function_call","name":"shell","arguments":"{\"cmd\":\"ls\"}","call_id":"c1"}
{"record_type":"state"}
{"type":"function_call_output","call_id":"c1","output":"a.go"}
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	turns := sessionNamed(t, c, "old").Turns
	const filled = trace.FieldStart | trace.FieldEnd | trace.FieldInput | trace.FieldOutput | trace.FieldTextHashes
	if len(turns) != 2 || turns[0].Inferred != filled || turns[1].Start < turns[0].End || len(turns[0].ToolCalls) != 1 {
		t.Errorf("%s", describe(c))
	}
	// "thinking of it" and {"cmd":"ls"} are 25 bytes and an end of line: 7 tokens.
	if turns[0].Output != 7 {
		t.Errorf("output %d, want 7", turns[0].Output)
	}
}

// A count that falls begins anew; a rollout that ends in an answer loses that.
func TestCodexFallingCount(t *testing.T) {
	rows := append(twoCalls("s"), codexMessage(10, "user", "again"), codexMessage(11, "assistant", "yes"), codexTotal(12, 700, 0, 10),
		codexMessage(13, "user", "again"), codexMessage(14, "assistant", "ye"))
	c, err := openText(strings.Join(rows, "\n")+"\n{\"timest", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := countSessions(c)["s"]; got.Calls != 3 || got.Input != 3700 || c.Read.LostRows != 1 || len(c.Read.Warnings) != 2 {
		t.Errorf("%+v, %q", got, c.Read.Warnings)
	}
}

// The rollout of TraceLab's sample, counted with jq: its last total.
func TestCodexShared(t *testing.T) {
	c := openFiles(t, filepath.Join(sharedTraces(t), "codex"))
	want := map[string]sessionCount{"01a7c9e4-6d12-7b3a-9f42-8c6d5e1a0b73": {"", "", 9, 95819, 79488, 1912, 0, 10}}
	if diff := cmp.Diff(want, countSessions(c)); diff != "" {
		t.Error(diff)
	}
}

func TestCodexTruncated(t *testing.T) {
	truncate(t, "\xef\xbb\xbf"+strings.Join(twoCalls("s"), "\r\n"), 2)
}

// cutStep is how many bytes lie between the places at which tests cut a text: they try all, or with -short some in each row.
func cutStep() int {
	if testing.Short() {
		return 23
	}
	return 1
}

// truncate cuts a text of n calls at every byte: what is left is read, and at most one row lost.
func truncate(t *testing.T, whole string, calls int) {
	t.Helper()
	path := logFile(t, t.TempDir(), "log.json", whole)
	for n := len(whole); n >= 0; n -= cutStep() {
		if err := os.Truncate(path, int64(n)); err != nil {
			t.Fatal(err)
		}
		c, err := Open(t.Context(), []string{path}, Options{})
		if err != nil {
			continue // not a call in it yet
		}
		if checkCapture(t, c); c.Read.LostRows > 1 {
			t.Fatalf("%d rows lost of %q", c.Read.LostRows, whole[:n])
		}
	}
	c, err := openText(whole, Options{})
	if err != nil || c.Read.Calls != calls || c.Read.LostRows > 0 {
		t.Errorf("whole: %+v, %v", c, err)
	}
}

func FuzzCodex(f *testing.F) {
	fuzzFormat(f, strings.Join(twoCalls("s"), "\n"),
		`{"id":"old","timestamp":"2025-05-01T00:00:00Z","instructions":"x"}`+"\n"+`{"type":"message","role":"assistant","content":"x"}`,
		codexRowAt(1, "session_meta", `{"id":"k","source":{"subagent":{"thread_spawn":{"parent_thread_id":"p"}}}}`)+"\n"+
			codexRowAt(3, "compacted", `{"message":"m"}`)+"\n"+codexTotal(4, 5, 6, 7))
}
