package anonymize

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsim/agentsim/trace"
)

func readSource(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// folder writes files, gzip where the name says so, and returns their folder.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".gz") {
			text = compress(text)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func compress(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

func find(t testing.TB, path string) []File {
	t.Helper()
	files, err := Find([]string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// anonymized runs Run on a folder and returns the new one.
func anonymized(t testing.TB, dir string, opts Options) (string, *Report) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	report, err := Run(context.Background(), find(t, dir), out, opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out, report
}

// verified runs Verify on two folders.
func verified(t testing.TB, original, result string, canaries ...string) *Proof {
	t.Helper()
	proof, err := Verify(context.Background(), find(t, original), find(t, result), canaries)
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// tree returns the decompressed text of all files below a folder by name.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if strings.HasSuffix(name, ".gz") {
			r, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				return err
			}
			if text, err = io.ReadAll(r); err != nil {
				return err
			}
		}
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// request is a row of a Dynamo trace.
func request(id, session string, at int, input int, hashes ...uint64) string {
	list, _ := json.Marshal(hashes)
	return fmt.Sprintf(`{"timestamp":%d,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":%d,"event_source":"dynamo","agent_context":{"session_id":%q},"request":{"request_id":%q,"model":"demo-8b","input_tokens":%d,"output_tokens":5,"cached_tokens":0,"request_received_ms":%d,"total_time_ms":100,"replay":{"trace_block_size":16,"input_length":%d,"input_sequence_hashes":%s}}}}`,
		at, 1790000000100+at, session, id, input, 1790000000000+at, input, list) + "\n"
}

const (
	claudeMain = `{"type":"summary","summary":"Fixing the parser","leafUuid":"u2"}
{"parentUuid":null,"isSidechain":false,"type":"user","uuid":"u1","sessionId":"s-main","cwd":"/home/ana/secret","timestamp":"2026-02-04T04:13:30.000Z","message":{"role":"user","content":"Fix the bug in parser.go please, it fails on empty input and nobody knows why"}}
{"parentUuid":"u1","isSidechain":false,"type":"assistant","uuid":"u2","sessionId":"s-main","requestId":"req-1","timestamp":"2026-02-04T04:13:36.103Z","message":{"id":"m1","model":"claude-x","role":"assistant","type":"message","content":[{"type":"tool_use","id":"t1","name":"Task","input":{"prompt":"look at parser.go","description":"search"}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"cache_read_input_tokens":1000,"cache_creation_input_tokens":20,"output_tokens":30}}}
`
	claudeAgent = `{"parentUuid":null,"isSidechain":true,"agentId":"a77","type":"user","uuid":"u3","sessionId":"s-main","timestamp":"2026-02-04T04:13:37.000Z","message":{"role":"user","content":"look at parser.go"}}
{"parentUuid":"u3","isSidechain":true,"agentId":"a77","type":"assistant","uuid":"u4","sessionId":"s-main","timestamp":"2026-02-04T04:13:39.000Z","message":{"id":"m2","model":"claude-x","role":"assistant","type":"message","content":[{"type":"text","text":"It is in line 7"}],"stop_reason":"end_turn","usage":{"input_tokens":7,"output_tokens":9}}}
`
	codexRollout = `{"timestamp":"2026-03-21T10:05:59.326Z","type":"session_meta","payload":{"id":"thread-1","timestamp":"2026-03-21T10:05:38.219Z","cwd":"/home/ana","base_instructions":{"text":"You are a coding agent that works in this folder, carefully"}}}
{"timestamp":"2026-03-21T10:06:05.542Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":9324,"output_tokens":444,"total_tokens":9768},"last_token_usage":{"input_tokens":9324,"cached_input_tokens":6912,"output_tokens":444,"reasoning_output_tokens":347,"total_tokens":9768}}}}
`
)

// everything is a folder with all kinds of files.
func everything(t testing.TB) string {
	return folder(t, map[string]string{
		"server/day.000000.jsonl.gz":                                     request("r-1", "s-main", 0, 40, 11, 12, 13) + request("r-2", "s-main", 500, 60, 11, 12, 14, 15),
		"server/day.000001.jsonl.gz":                                     request("r-3", "kid", 900, 33, 11, 12, 16),
		"server/day.000000.jsonl.gz.lock":                                "",
		"projects/-home-ana-secret/s-main.jsonl":                         claudeMain,
		"projects/-home-ana-secret/s-main/subagents/agent-a77.jsonl":     claudeAgent,
		"projects/-home-ana-secret/s-main/subagents/agent-a77.meta.json": `{"agentType":"Explore","toolUseId":"t1"}`,
		"projects/-home-ana-secret/empty.jsonl":                          "",
		"codex/2026/03/21/rollout-2026-03-21T10-05-38-thread-1.jsonl":    codexRollout,
		"notes.json": `{"about":"nothing of ours"}`,
	})
}

// One run over everything keeps names that are the same in all files the same: the server's session and the transcript's.
func TestRunOverManyFormats(t *testing.T) {
	original := everything(t)
	out, report := anonymized(t, original, Options{Key: testKey(t)})
	id := newPseudonyms(testKey(t)).id
	var names []string
	files := tree(t, out)
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	project := id("projects") + "/" + id("-home-ana-secret") + "/"
	want := []string{
		project + id("s-main") + ".jsonl",
		project + id("s-main") + "/subagents/agent-" + id("a77") + ".jsonl",
		project + id("s-main") + "/subagents/agent-" + id("a77") + ".meta.json",
		"rollout-2026-03-21T10-05-38-" + id("thread-1") + ".jsonl",
		"trace.000000.jsonl.gz", "trace.000001.jsonl.gz",
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	if len(report.DroppedFiles) != 2 || report.Rows != 11 || report.Files != 6 || report.Hashes != 10 {
		t.Errorf("report %+v", report)
	}
	if !strings.Contains(files["trace.000000.jsonl.gz"], id("s-main")) {
		t.Error("the session of the server's trace is not that of the transcript")
	}
	proof := verified(t, original, out, "look at parser.go")
	if len(proof.Failures) > 0 || proof.Files != 6 || proof.Hashes != 6 || proof.Shifted {
		t.Errorf("proof %+v", proof)
	}
}

// The same input and key give the same bytes, and a trace reads back with the same calls.
func TestRunIsDeterministic(t *testing.T) {
	original := everything(t)
	opts := Options{Key: testKey(t), ShiftTime: true, DropModel: true, DropToolNames: true}
	a, _ := anonymized(t, original, opts)
	b, _ := anonymized(t, original, opts)
	left, right := tree(t, a), tree(t, b)
	if len(left) != len(right) {
		t.Fatalf("%d and %d files", len(left), len(right))
	}
	for name, text := range left {
		if right[name] != text {
			t.Errorf("%s differs", name)
		}
	}
	if proof := verified(t, original, a); len(proof.Failures) > 0 || !proof.Shifted || len(proof.Models)+len(proof.Tools) > 0 {
		t.Errorf("proof %+v", proof)
	}
	was, is := capture(t, filepath.Join(original, "server")), capture(t, filepath.Join(a, "trace"))
	if len(was.Sessions) != len(is.Sessions) || was.BlockSize != is.BlockSize || was.Epoch == is.Epoch {
		t.Fatalf("%d sessions, %d before", len(is.Sessions), len(was.Sessions))
	}
	for i, s := range was.Sessions {
		for j, turn := range s.Turns {
			got := is.Sessions[i].Turns[j]
			if got.Start != turn.Start || got.End != turn.End || got.Input != turn.Input || got.Output != turn.Output || got.Shared != turn.Shared {
				t.Errorf("turn %+v, before %+v", got, turn)
			}
		}
	}
}

func capture(t *testing.T, path string) *trace.Capture {
	t.Helper()
	segments, err := trace.Find([]string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := trace.Read(context.Background(), segments, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Damage costs the rows that it hits and nothing else.
func TestRunSurvivesDamage(t *testing.T) {
	whole := compress(request("r-1", "a", 0, 20, 1, 2))
	torn := compress(request("r-2", "a", 100, 20, 1, 2))
	half := request("r-3", "b", 200, 20, 1, 2)[:150]
	original := folder(t, map[string]string{
		"torn.jsonl": whole + compress(request("r-4", "a", 300, 20, 1, 2)) + torn[:len(torn)-20],
		"half.jsonl": half + request("r-5", "b", 400, 20, 1, 2) + "\n" + half,
		"crlf.jsonl": "\xef\xbb\xbf" + strings.ReplaceAll(request("r-6", "c", 500, 20, 1, 2), "\n", "\r\n") + "[1]\n42\n",
	})
	out, report := anonymized(t, original, Options{Key: testKey(t)})
	if report.Rows != 4 || report.Read.LostRows < 2 || report.Read.SkippedRows != 2 {
		t.Errorf("rows %d, lost %d, skipped %d", report.Rows, report.Read.LostRows, report.Read.SkippedRows)
	}
	if proof := verified(t, original, out); len(proof.Failures) > 0 {
		t.Errorf("proof %+v", proof)
	}
}

func TestRunRefuses(t *testing.T) {
	one := folder(t, map[string]string{"a.jsonl": request("r", "s", 0, 16, 1)})
	tests := []struct{ name, in, out, want string }{
		{"a folder with something in it", one, one, "has a.jsonl in it"},
		{"prose", filepath.Join(folder(t, map[string]string{"a.txt": "Dear Ana"}), "a.txt"), t.TempDir(), "neither a request trace"},
		{"a folder of something else", folder(t, map[string]string{"a.json": `{"a":1}`}), t.TempDir(), "nothing to anonymize"},
		{"rows that are all unknown", folder(t, map[string]string{"a.jsonl": `{"event_type":"dump"}`}), t.TempDir(), "no row is left"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Run(context.Background(), find(t, test.in), test.out, Options{Key: testKey(t)}, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			left, err := os.ReadDir(filepath.Dir(test.out))
			if err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") }) {
				t.Errorf("left %v behind, %v", left, err)
			}
		})
	}
}

// plant puts canaries where the row has strings, but for those that say the kind of something, and adds keys that no
// format has.
func plant(t *rapid.T, tree any, key string, canary func() string) any {
	switch v := tree.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			v[k] = plant(t, v[k], k, canary)
		}
		v[canary()] = canary()
		v["hidden"] = map[string]any{"deep": []any{canary()}}
		return v
	case []any:
		for i := range v {
			v[i] = plant(t, v[i], key, canary)
		}
		return v
	case string:
		if slices.Contains([]string{"type", "event_type", "schema", "event_source", "timestamp"}, key) && rapid.IntRange(0, 9).Draw(t, "kind") > 0 {
			return v
		}
		return canary()
	case json.Number:
		if rapid.IntRange(0, 9).Draw(t, "number") == 0 {
			return canary()
		}
	}
	return tree
}

// Of canaries in every place of a string, of some numbers and in keys that nobody knows none survives, and Verify agrees.
func TestNoCanarySurvives(t *testing.T) {
	samples := strings.Split(strings.TrimSpace(claudeMain+claudeAgent+codexRollout+request("r", "s", 0, 20, 1, 2)+
		`{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_source":"harness","agent_context":{"session_id":"s","parent_session_id":"p","session_type_id":"c","input_trigger":"other","compaction":{"trigger":"auto","reason":"r"},"agent_headers":{"a":"b"}},"tool":{"tool_call_id":"t","tool_class":"grep","status":"ok","error_type":"e","tool_name_hash":"h"}}
{"event_type":"request_payload","payload":{"request_id":"r","endpoint":"e","model":"m","request":{"messages":[{"role":"user","content":"c"}],"nvext":{"agent_hints":{"policy_class":"p"}}},"response":{"choices":[{"message":{"content":"c"}}]},"http_request_headers":{"h":"v"},"payload_drop_reason":"x"}}
{"type":"response_item","payload":{"type":"custom_tool_call","name":"n","input":"i","call_id":"c","output":{"content":[{"type":"text","text":"o"}]}}}
{"timestamp":0,"input_length":4,"output_length":2,"hash_ids":[1],"session_id":"s","request_id":"r","wait_for":["a"],"tool_events":[{"tool_call_id":"t","tool_class":"c"}],"text_input":"t"}
{"id":"w","block_size":64,"models":["m"],"requests":[{"t":0,"type":"n","model":"m","in":4,"out":2,"hash_ids":[1],"input_types":["text"],"agent_id":"a"}]}`), "\n")
	rapid.Check(t, func(rt *rapid.T) {
		n := 0
		canary := func() string { n++; return fmt.Sprintf("Canary%d-%d", rapid.IntRange(100, 999).Draw(rt, "n"), n) }
		var rows []string
		for _, sample := range rapid.SliceOfN(rapid.SampledFrom(samples), 1, 4).Draw(rt, "rows") {
			tree, err := decode([]byte(sample))
			if err != nil {
				t.Fatal(err)
			}
			row, err := json.Marshal(plant(rt, tree, "", canary))
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, string(row))
		}
		for _, format := range newFormats() {
			r := newRewriter(Options{Key: testKey(t), DropModel: true, DropToolNames: true})
			for _, row := range rows {
				r.row([]byte(row), format.row)
			}
			if out := string(r.out); strings.Contains(strings.ToLower(out), "canary") {
				rt.Fatalf("%s: a canary survives in %s", format.name, out)
			}
		}
	})
}

// The real files of others keep nothing that they should not, and all that they should.
func TestRealFiles(t *testing.T) {
	root := filepath.Join("..", "..", "..", "shared", "traces")
	if _, err := os.Stat(root); err != nil {
		t.Skipf("no real traces beside the repository: %v", err)
	}
	for _, name := range []string{"dynamo", "codex", "claude-code/claude-code-log", "claude-code/tracelab", "claude-code/ccusage_fixture"} {
		t.Run(name, func(t *testing.T) {
			original := filepath.Join(root, name)
			out, report := anonymized(t, original, Options{Key: testKey(t), ShiftTime: true})
			if proof := verified(t, original, out); len(proof.Failures) > 0 || proof.Rows != report.Rows || proof.Counts == 0 || !proof.Shifted {
				t.Errorf("report %+v\nproof %+v", report, proof)
			}
		})
	}
}
