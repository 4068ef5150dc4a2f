package convert

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
)

// sessionCount is what the calls of a session sum up to. Estimated counts the calls whose output is an estimate.
type sessionCount struct {
	Parent, Class                                  string
	Calls, Input, Cached, Output, Estimated, Tools int
}

func countSessions(c *trace.Capture) map[string]sessionCount {
	counts := map[string]sessionCount{}
	for _, s := range c.Sessions {
		n := sessionCount{Parent: s.Parent, Class: s.Class, Calls: len(s.Turns), Tools: len(s.Tools)}
		for _, t := range s.Turns {
			n.Input += int(t.Input)
			n.Cached += int(max(t.Cached, 0))
			n.Output += int(t.Output)
			if t.Inferred&trace.FieldOutput != 0 {
				n.Estimated++
			}
		}
		counts[s.ID] = n
	}
	return counts
}

// TestClaudeHandCounts compares with counts made by hand from the files: rows of one message id are one call, whose input is
// input_tokens + cache_creation_input_tokens + cache_read_input_tokens of any of its rows and whose output is the largest
// output_tokens. Where no row has a stop reason, the output is at least a quarter of the bytes of its text, thinking and
// tool inputs.
func TestClaudeHandCounts(t *testing.T) {
	dir := filepath.Join(sharedTraces(t), "claude-code")
	for _, c := range []struct {
		name, path string
		want       map[string]sessionCount
	}{
		// Six subagents in files of their own; output grows from row to row; results of parallel agents hang beside the
		// main line; results of tools stand between the rows of one response.
		{"subagents", "claude-code-log/real/experiments-worktrees", map[string]sessionCount{
			"ef958aa1-0e93-49f0-bb71-150f63befcd1":                   {"", "", 17, 832157, 728660, 22901, 0, 40},
			"ef958aa1-0e93-49f0-bb71-150f63befcd1/a36efb2a1231c41e2": {"ef958aa1-0e93-49f0-bb71-150f63befcd1", "general-purpose", 6, 146920, 118168, 2739, 1, 7},
			"ef958aa1-0e93-49f0-bb71-150f63befcd1/a4ca7529859c158c2": {"ef958aa1-0e93-49f0-bb71-150f63befcd1", "general-purpose", 20, 729908, 615694, 8080, 2, 24},
			"ef958aa1-0e93-49f0-bb71-150f63befcd1/a52886dc180afb356": {"ef958aa1-0e93-49f0-bb71-150f63befcd1", "general-purpose", 15, 516270, 430337, 6475, 0, 17},
			"ef958aa1-0e93-49f0-bb71-150f63befcd1/a6aa8ad077d9ea083": {"ef958aa1-0e93-49f0-bb71-150f63befcd1", "general-purpose", 5, 118979, 101254, 3122, 0, 6},
			"ef958aa1-0e93-49f0-bb71-150f63befcd1/ab1e6e141221a29ab": {"ef958aa1-0e93-49f0-bb71-150f63befcd1", "general-purpose", 15, 394842, 360852, 8203, 1, 17},
			"ef958aa1-0e93-49f0-bb71-150f63befcd1/aef063ba534d73153": {"ef958aa1-0e93-49f0-bb71-150f63befcd1", "general-purpose", 5, 117738, 100730, 2404, 1, 6},
		}},
		// Two files of no bytes, whose agents are in files beside them; agents that only warmed up.
		{"empty files", "claude-code-log/real/JSSoundRecorder", map[string]sessionCount{
			"7acd37a8-2745-4b58-a8a9-46164b22ad9e":          {"", "", 36, 1687656, 1502915, 20797, 0, 71},
			"7acd37a8-2745-4b58-a8a9-46164b22ad9e/3430b97e": {"7acd37a8-2745-4b58-a8a9-46164b22ad9e", "subagent", 1, 1138, 0, 166, 0, 0},
			"7acd37a8-2745-4b58-a8a9-46164b22ad9e/388fb764": {"7acd37a8-2745-4b58-a8a9-46164b22ad9e", "subagent", 1, 2545, 0, 266, 0, 0},
			"7acd37a8-2745-4b58-a8a9-46164b22ad9e/88061e52": {"7acd37a8-2745-4b58-a8a9-46164b22ad9e", "subagent", 1, 1127, 0, 142, 0, 0},
			"7acd37a8-2745-4b58-a8a9-46164b22ad9e/8d27fe83": {"7acd37a8-2745-4b58-a8a9-46164b22ad9e", "subagent", 1, 2556, 2553, 75, 0, 0},
			"2c5941bd-b9de-41d6-9414-221d175776f7/650d3273": {"2c5941bd-b9de-41d6-9414-221d175776f7", "subagent", 1, 2545, 0, 164, 0, 0},
			"2c5941bd-b9de-41d6-9414-221d175776f7/aa1e905b": {"2c5941bd-b9de-41d6-9414-221d175776f7", "subagent", 1, 2556, 0, 100, 0, 0},
			"b23cbd1d-a39d-4f31-98fd-98f8ff69b816/7d618812": {"b23cbd1d-a39d-4f31-98fd-98f8ff69b816", "subagent", 1, 1127, 0, 230, 0, 0},
			"b23cbd1d-a39d-4f31-98fd-98f8ff69b816/9c2b663e": {"b23cbd1d-a39d-4f31-98fd-98f8ff69b816", "subagent", 1, 1138, 0, 106, 0, 0},
		}},
		// Two sidechains in the file of their parent, which are told apart by their roots and named by the text of the Task
		// that ran them; an error row of a model "<synthetic>"; responses that never became final.
		{"sidechains", "agentcgroup/haiku/numba__numba-9636/trace.jsonl.gz", map[string]sessionCount{
			"e389b5a3-6301-4b87-b09f-f50a72da2b6b":                                      {"", "", 8, 132331, 124257, 886, 8, 8},
			"e389b5a3-6301-4b87-b09f-f50a72da2b6b/321785bc-d170-4bf6-8477-32128e8af466": {"e389b5a3-6301-4b87-b09f-f50a72da2b6b", "general-purpose", 29, 1551970, 1467381, 7123, 0, 33},
			"e389b5a3-6301-4b87-b09f-f50a72da2b6b/dd2de65b-bd94-4681-9693-b79a783c5b21": {"e389b5a3-6301-4b87-b09f-f50a72da2b6b", "general-purpose", 8, 332828, 280698, 3098, 0, 13},
		}},
		// A local server: other message ids, no request ids, no cached tokens.
		{"local server", "agentcgroup/local/libp2p__py-libp2p-533/trace.jsonl.gz", map[string]sessionCount{
			"96ae46a6-b1fb-4588-b565-41ee2ac7c025": {"", "", 90, 6637052, 0, 25307, 0, 112},
		}},
		// Three sessions in a file, two of which go on from rows of the first.
		{"forks", "claude-code-log/dag_fork.jsonl.gz", map[string]sessionCount{
			"s1": {"", "", 2, 25, 0, 13, 0, 0},
			"s2": {"", "", 1, 20, 0, 10, 0, 0},
			"s3": {"", "", 1, 25, 0, 12, 0, 0},
		}},
		// Neither uuids nor types nor content.
		{"bare usage", "ccusage_fixture/project-alpha/session-alpha/chat.jsonl", map[string]sessionCount{
			"session-alpha": {"", "", 3, 745, 70, 250, 0, 0},
		}},
		// The newest layout: modes, titles, attachments and hooks between the rows.
		{"newest", "tracelab/claude-session-01.jsonl.gz", map[string]sessionCount{
			"2f8b1c4d-6a73-4e9b-91c0-5d7f3a8e2b46": {"", "", 10, 418193, 394068, 9423, 0, 9},
		}},
		// Rows that are strings and numbers, messages that are strings, rows without a time.
		{"odd rows", "claude-code-log/edge_cases.jsonl.gz", map[string]sessionCount{
			"edge_cases":        {"", "", 3, 320, 0, 350, 0, 1},
			"todowrite_session": {"", "", 1, 168, 0, 93, 1, 0},
		}},
		// Sidechains whose first rows name rows that are gone.
		{"torn sidechains", "claude-code-log/sidechain.jsonl.gz", map[string]sessionCount{
			"df749439-8556-41bf-9965-9f49cf38bf2a":                                      {"", "", 1, 17755, 17190, 309, 0, 0},
			"df749439-8556-41bf-9965-9f49cf38bf2a/a42c6fa0-5937-49b4-b1ad-42e99d44bef9": {"df749439-8556-41bf-9965-9f49cf38bf2a", "subagent", 2, 27553, 12272, 207, 0, 1},
			"df749439-8556-41bf-9965-9f49cf38bf2a/f1768ccb-8fe6-44a1-8248-55a42dadd364": {"df749439-8556-41bf-9965-9f49cf38bf2a", "subagent", 1, 56359, 56226, 521, 0, 0},
		}},
	} {
		got, err := Open(context.Background(), []string{filepath.Join(dir, c.path)}, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, countSessions(got)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// logFile writes rows as a log and returns its path.
func logFile(t *testing.T, dir, name string, rows ...string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Join(rows, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// claudeUser and claudeAnswer make rows at a second of a minute. More keys of the row are given as JSON.
func claudeUser(session, uuid, parent string, second int, content, more string) string {
	return fmt.Sprintf(`{"type":"user","sessionId":%q,"uuid":%q,"parentUuid":%s,"timestamp":"2026-01-01T00:00:%02dZ","message":{"role":"user","content":%s}%s}`,
		session, uuid, parentJSON(parent), second, content, more)
}

func claudeAnswer(session, uuid, parent string, second int, id string, output int, content, more string) string {
	return fmt.Sprintf(`{"type":"assistant","sessionId":%q,"uuid":%q,"parentUuid":%s,"timestamp":"2026-01-01T00:00:%02dZ","requestId":"req_%s",`+
		`"message":{"id":%q,"role":"assistant","model":"m","stop_reason":"end_turn","usage":{"input_tokens":1000,"cache_creation_input_tokens":500,"cache_read_input_tokens":2000,"output_tokens":%d},"content":%s}%s}`,
		session, uuid, parentJSON(parent), second, id, id, output, content, more)
}

func parentJSON(parent string) string {
	if parent == "" {
		return "null"
	}
	return fmt.Sprintf("%q", parent)
}

func openFiles(t *testing.T, args ...string) *trace.Capture {
	t.Helper()
	c, err := Open(context.Background(), args, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sessionNamed returns a session of a capture.
func sessionNamed(t *testing.T, c *trace.Capture, id string) *trace.Session {
	t.Helper()
	for _, s := range c.Sessions {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("no session %q", id)
	return nil
}

func textOf(text string) string { return fmt.Sprintf(`[{"type":"text","text":%q}]`, text) }

// Rows of one message with outputs of 9, 9 and 159 are one call of 159 tokens, its input counted once. It began when the
// question came and ended with its last row.
func TestClaudeStreamingRows(t *testing.T) {
	path := logFile(t, t.TempDir(), "s.jsonl",
		claudeUser("s", "u1", "", 1, `"hi"`, ""),
		claudeAnswer("s", "a1", "u1", 3, "m1", 9, `[{"type":"thinking","thinking":"hm"}]`, ""),
		claudeAnswer("s", "a2", "a1", 4, "m1", 9, textOf("hello"), ""),
		claudeAnswer("s", "a3", "a2", 5, "m1", 159, `[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]`, ""),
		claudeUser("s", "u2", "a3", 8, `[{"type":"tool_result","tool_use_id":"t1","content":"ok","is_error":true}]`, ""),
		claudeAnswer("s", "a4", "u2", 9, "m2", 7, textOf("done"), ""))
	s := openFiles(t, path).Sessions[0]
	first, second := s.Turns[0], s.Turns[1]
	if len(s.Turns) != 2 || first.Output != 159 || first.Input != 3500 || first.Cached != 2000 || first.Start.Seconds() != 0 || first.End.Seconds() != 4 || first.Trigger != "user_message" {
		t.Errorf("first call %+v", first)
	}
	if second.Start.Seconds() != 7 || second.Trigger != "tool_result" || second.Inferred&trace.FieldStart == 0 {
		t.Errorf("second call %+v", second)
	}
	want := []trace.ToolSpan{{ID: "t1", Class: "Bash", Start: 4e9, End: 7e9, Status: "error"}}
	if diff := cmp.Diff(want, s.Tools); diff != "" {
		t.Error(diff)
	}
}

// A resumed session copies the rows of the one before: they count once, where they came from, and the prompt goes on from
// there. So it is with the ids of rows kept, and with new ones.
func TestClaudeResumed(t *testing.T) {
	long := strings.Repeat("All of these words are said in the first message. ", 300)
	for name, id := range map[string]string{"same uuids": "", "new uuids": "x"} {
		dir := t.TempDir()
		old := logFile(t, dir, "b-old.jsonl",
			claudeUser("b-old", "u1", "", 1, fmt.Sprintf("%q", long), ""),
			claudeAnswer("b-old", "a1", "u1", 3, "m1", 5, textOf("one"), ""))
		resumed := logFile(t, dir, "a-new.jsonl",
			claudeUser("a-new", "u1"+id, "", 1, fmt.Sprintf("%q", long), ""),
			claudeAnswer("a-new", "a1"+id, "u1"+id, 3, "m1", 5, textOf("one"), ""),
			claudeUser("a-new", "u2", "a1"+id, 20, `"and now?"`, ""),
			claudeAnswer("a-new", "a2", "u2", 22, "m2", 5, textOf("two"), ""))
		c := openFiles(t, dir)
		if got := countSessions(c); got["b-old"].Calls != 1 || got["a-new"].Calls != 1 {
			t.Errorf("%s: %+v", name, got)
		}
		a, b := chain(sessionNamed(t, c, "b-old").Turns[0]), chain(sessionNamed(t, c, "a-new").Turns[0])
		if n := len(a) - 1; !slices.Equal(a[:n], b[:n]) {
			t.Errorf("%s: the prompts part before the first one's last block", name)
		}
		if describe(c) != describe(openFiles(t, resumed, old)) {
			t.Errorf("%s: another order of the files gives another capture", name)
		}
	}
}

// Compaction begins a prompt anew: what was said before is not shared with what comes after.
func TestClaudeCompaction(t *testing.T) {
	long := strings.Repeat("All of these words are said in the first message. ", 300)
	path := logFile(t, t.TempDir(), "s.jsonl",
		claudeUser("s", "u1", "", 1, fmt.Sprintf("%q", long), ""),
		claudeAnswer("s", "a1", "u1", 3, "m1", 5, textOf("one"), ""),
		claudeUser("s", "u2", "a1", 5, `"go on"`, ""),
		claudeAnswer("s", "a2", "u2", 6, "m2", 5, textOf("two"), ""),
		`{"type":"system","subtype":"compact_boundary","sessionId":"s","uuid":"c","parentUuid":null,"logicalParentUuid":"a2","timestamp":"2026-01-01T00:00:07Z"}`,
		claudeUser("s", "u3", "c", 8, fmt.Sprintf("%q", "Summary: "+long), `,"isCompactSummary":true`),
		claudeAnswer("s", "a3", "u3", 9, "m3", 5, textOf("three"), ""))
	turns := openFiles(t, path).Sessions[0].Turns
	one, two, three := chain(turns[0]), chain(turns[1]), chain(turns[2])
	shared := func(a, b []uint64) (n int) {
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	// 3500 tokens are 54 full blocks of 64. All three found 2000 tokens in the cache when their prompts began: 31 blocks.
	if shared(one, two) != 54 || shared(two, three) != 31 {
		t.Errorf("the second call shares %d blocks with the first, the third %d with the second", shared(one, two), shared(two, three))
	}
}

// The results of parallel tools hang on the rows of their calls; the next prompt has them all.
func TestClaudeParallelTools(t *testing.T) {
	result := func(tool, text string) string {
		return fmt.Sprintf(`[{"tool_use_id":%q,"type":"tool_result","content":[{"type":"text","text":%q}]}]`, tool, text)
	}
	rows := func(second string) []string {
		return []string{
			claudeUser("s", "u1", "", 1, `"hi"`, ""),
			claudeAnswer("s", "a1", "u1", 3, "m1", 9, `[{"type":"tool_use","id":"t1","name":"Task","input":{"prompt":"p","subagent_type":"Explore"}}]`, ""),
			claudeAnswer("s", "a2", "a1", 4, "m1", 9, `[{"type":"tool_use","id":"t2","name":"Bash","input":{}}]`, ""),
			claudeUser("s", "r2", "a2", 5, result("t2", "two"), ""),
			claudeUser("s", "r1", "a1", 7, result("t1", second), `,"toolUseResult":{"agentId":"k1"}`),
			claudeAnswer("s", "a3", "r2", 9, "m2", 7, textOf("done"), ""),
			`{"type":"user","isSidechain":true,"agentId":"k1","sessionId":"s","uuid":"k","timestamp":"2026-01-01T00:00:04Z","message":{"role":"user","content":"p"}}`,
			claudeAnswer("s", "k2", "k", 6, "m3", 7, textOf("found"), `,"isSidechain":true,"agentId":"k1"`),
		}
	}
	dir := t.TempDir()
	c := openFiles(t, logFile(t, dir, "1.jsonl", rows("one")...))
	last := sessionNamed(t, c, "s").Turns[1]
	if last.Start.Seconds() != 6 {
		t.Errorf("the last call starts at %v, want when the later result came", last.Start)
	}
	if kid := sessionNamed(t, c, "s/k1"); kid.Parent != "s" || kid.Class != "Explore" {
		t.Errorf("subagent %+v", kid)
	}
	other := openFiles(t, logFile(t, dir, "2.jsonl", rows("another result")...))
	if slices.Equal(chain(last), chain(sessionNamed(t, other, "s").Turns[1])) {
		t.Error("the result beside the main line is not in the prompt")
	}
}

// A row that names itself, or one behind it, as the one before ends no walk; a response without a time is no call.
func TestClaudeLoops(t *testing.T) {
	path := logFile(t, t.TempDir(), "s.jsonl",
		claudeUser("s", "u1", "a2", 1, `"hi"`, ""),
		claudeAnswer("s", "a1", "u1", 3, "m1", 9, textOf("one"), ""),
		claudeAnswer("s", "a2", "a1", 4, "m2", 9, textOf("two"), ""),
		claudeAnswer("s", "a3", "a3", 5, "m3", 9, textOf("three"), ""),
		claudeAnswer("s", "b1", "b4", 5, "m4", 9, textOf("three"), ""),
		claudeAnswer("s", "b2", "b3", 5, "m4", 9, textOf("three"), ""),
		claudeAnswer("s", "b3", "b2", 5, "m5", 9, textOf("three"), ""),
		claudeAnswer("s", "b4", "b1", 5, "m5", 9, textOf("three"), ""),
		strings.ReplaceAll(claudeAnswer("s", "a4", "a3", 5, "m6", 9, textOf("three"), ""), "2026-01-01", "soon"))
	c := openFiles(t, path)
	if c.Read.Calls != 5 || c.Read.Skipped["without a time"] != 1 {
		t.Errorf("%+v", c.Read)
	}
	checkCapture(t, c)
}

// TestClaudeTruncated cuts a transcript at every byte: what is left is read, and at most one row is lost.
func TestClaudeTruncated(t *testing.T) {
	whole := strings.Join([]string{
		"\xef\xbb\xbf" + claudeUser("s", "u1", "", 1, `"h\u00e9i"`, ""),
		claudeAnswer("s", "a1", "u1", 3, "m1", 9, `[{"type":"tool_use","id":"t1","name":"Bash","input":{"a":[1,null]}}]`, ""),
		claudeUser("s", "u2", "a1", 8, `[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"ok"},7]}]`, ""),
		claudeAnswer("s", "a4", "u2", 9, "m2", 7, textOf("done"), ""),
	}, "\r\n")
	truncate(t, whole, 2)
}

// A line of 50 MB is read as any other.
func TestClaudeLongLine(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	c, err := openText(claudeUser("s", "u1", "", 1, `"`+strings.Repeat(`long \"line\" `, 50<<20/14)+`"`, "")+"\n"+
		claudeAnswer("s", "a1", "u1", 3, "m1", 9, textOf("one"), ""), Options{})
	if err != nil || c.Read.Calls != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

func FuzzClaude(f *testing.F) {
	fuzzFormat(f, claudeUser("s", "u1", "", 1, `"hi"`, "")+"\n"+
		claudeAnswer("s", "a1", "u1", 3, "m1", 9, `[{"type":"tool_use","id":"t1","name":"Task","input":{"prompt":"p","subagent_type":"x"}}]`, "")+"\n"+
		claudeUser("s", "u2", "a1", 8, `[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"ok"},7]}]`, `,"toolUseResult":{"agentId":"k"}`)+"\n"+
		claudeAnswer("s", "k1", "", 5, "m3", 9, textOf("one"), `,"isSidechain":true,"agentId":"k"`),
		`{"sessionId":"s","message":{"role":"assistant","usage":{}},"timestamp":"2026-01-09T10:00:00.000Z"}`)
}

// Rows of a few bytes that claim endless prompts are refused before their blocks fill the memory.
func TestClaudeClaims(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var rows []string
	for i := range 40 {
		rows = append(rows, fmt.Sprintf(`{"type":"assistant","sessionId":"s%d","timestamp":"2026-01-01T00:00:00Z","message":{"id":"m%d","usage":{"input_tokens":268435456,"cache_read_input_tokens":0,"output_tokens":1}}}`, i, i))
	}
	if _, err := openText(strings.Join(rows, "\n"), Options{}); err == nil || !strings.Contains(err.Error(), "blocks in all") {
		t.Errorf("error %v", err)
	}
}
