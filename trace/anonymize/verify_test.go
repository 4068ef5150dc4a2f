package anonymize

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each way to spoil a result is found out.
func TestVerifyFindsWhatIsWrong(t *testing.T) {
	rows := request("r-1", "root", 0, 40, 11, 12, 13) + request("r-2", "root", 500, 60, 11, 12, 14, 15) + request("r-3", "kid", 900, 33, 11, 12, 16)
	original := folder(t, map[string]string{"day.jsonl": rows, "s-main.jsonl": claudeMain})
	names := newPseudonyms(testKey(t))
	hash := func(h uint64) string {
		return expected(names, "<hash "+string(rune('0'+h/10))+string(rune('0'+h%10))+">")
	}
	tests := []struct {
		name, file, old, new string
		want                 string
	}{
		{"nothing", "trace", "", "", ""},
		{"a token count", "trace", `"input_tokens":60`, `"input_tokens":61`, "token counts"},
		{"a duration", "trace", `"total_time_ms":100`, `"total_time_ms":101`, "no row of .*day.jsonl has"},
		{"one time", "trace", `"request_received_ms":1790000000500`, `"request_received_ms":1790000000501`, "moved by 1 ms"},
		{"a hash that was not keyed", "trace", hash(14), "14", "was not keyed"},
		{"two hashes that became one", "trace", hash(14), hash(13), "stands for two values"},
		{"one hash that became two", "trace", "[" + hash(11) + "," + hash(12) + "," + hash(16), "[5," + hash(12) + "," + hash(16), "stands for two values"},
		{"a hash of a likely prompt", "trace", hash(14), "11011797887259449313", "hashed without a key"}, // token 7, see trace/hash
		{"two sessions that became one", "trace", names.id("kid"), names.id("root"), "stands for two ids"},
		{"an id that stayed", "trace", names.id("kid"), "kid", `"kid" is neither`},
		{"an id of the original in another place", "trace", names.id("kid"), names.id("root") + `","x":"`, "not on the list"},
		{"a word", "trace", `"event_source":"dynamo"`, `"event_source":"secret"`, "not on the list"},
		{"a row that is missing", "trace", strings.Split(strings.TrimSpace(expectedRows(t, names, rows)), "\n")[1] + "\n", "", "token counts"},
		{"text that stayed", names.id("s-main"), string(names.appendFiller(nil, []byte("Fixing the parser"))), "Fixing the parser", `"Fixing the parser" is neither`},
		{"text that a filler hides", names.id("s-main"), string(names.appendFiller(nil, []byte("Fixing the parser"))), "Fixing bbbbbbbbbb", `is neither`},
		{"filler of another length", names.id("s-main"), string(names.appendFiller(nil, []byte("Fixing the parser"))), "bbb", "no row of .*s-main.jsonl has"},
		{"a canary", names.id("s-main"), string(names.appendFiller(nil, []byte("Fixing the parser"))), "PARSER.GO please", `canary "parser.go please"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, _ := anonymized(t, original, Options{Key: testKey(t)})
			paths, err := filepath.Glob(filepath.Join(out, test.file+"*"))
			if err != nil || len(paths) != 1 {
				t.Fatalf("%v, %v", paths, err)
			}
			text := readSource(t, paths[0])
			if !strings.Contains(text, test.old) {
				t.Fatalf("%s is not in %s", test.old, text)
			}
			if err := os.WriteFile(paths[0], []byte(strings.Replace(text, test.old, test.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			proof := verified(t, original, out, "parser.go please")
			said := strings.Join(proof.Failures, "\n")
			if test.want == "" {
				if said != "" {
					t.Errorf("failures %s", said)
				}
			} else if !matches(test.want, said) {
				t.Errorf("failures %q, want %q", said, test.want)
			}
		})
	}
}

// expectedRows is what becomes of the rows of a Dynamo trace.
func expectedRows(t *testing.T, names *pseudonyms, rows string) string {
	t.Helper()
	r := newRewriter(Options{Key: testKey(t)})
	for _, row := range strings.Split(strings.TrimSpace(rows), "\n") {
		if r.row([]byte(row), dynamoRow()) != kept {
			t.Fatalf("%s is not kept", row)
		}
	}
	return string(r.out)
}

// A canary that was not planted proves nothing.
func TestVerifyWantsPlantedCanaries(t *testing.T) {
	original := folder(t, map[string]string{"s-main.jsonl": claudeMain})
	out, _ := anonymized(t, original, Options{Key: testKey(t)})
	if proof := verified(t, original, out, "never planted"); len(proof.Failures) != 1 || !strings.Contains(proof.Failures[0], "is not in the original") {
		t.Errorf("failures %q", proof.Failures)
	}
}

// The result of one trace is not that of another, nor is a trace that of itself.
func TestVerifyTellsTracesApart(t *testing.T) {
	a := folder(t, map[string]string{"a.jsonl": request("r-1", "root", 0, 40, 11, 12, 13)})
	b := folder(t, map[string]string{"a.jsonl": request("r-1", "root", 0, 41, 11, 12, 13)})
	out, _ := anonymized(t, b, Options{Key: testKey(t)})
	if proof := verified(t, a, out); len(proof.Failures) != 2 {
		t.Errorf("failures %q", proof.Failures)
	}
	if proof := verified(t, a, a); !matches("neither a kept word", strings.Join(proof.Failures, "\n")) {
		t.Errorf("failures %q", proof.Failures)
	}
}

// Files with the same token counts, none or few, find their originals by the ids in them.
func TestVerifyPairsFilesThatAreAlike(t *testing.T) {
	files := map[string]string{}
	for _, name := range []string{"b", "a", "d", "c"} {
		files[name+".jsonl"] = strings.ReplaceAll(claudeAgent, "s-main", name)
		files[name+"/subagents/agent-x.jsonl"] = strings.NewReplacer("s-main", name, "u3", name+"-u3", "u4", name+"-u4").Replace(claudeAgent)
	}
	original := folder(t, files)
	out, _ := anonymized(t, original, Options{Key: testKey(t)})
	if proof := verified(t, original, out); len(proof.Failures) > 0 || proof.Files != 8 {
		t.Errorf("proof %+v", proof)
	}
}

// FuzzVerify holds any text against any other: it may fail, not fall over; and a text verifies against its own result.
func FuzzVerify(f *testing.F) {
	f.Add(claudeMain, claudeAgent)
	f.Add(codexRollout, `{"type":"event_msg","payload":{"type":"token_count","info":{"text":"bbb"}}}`)
	f.Add(request("r", "s", 0, 16, 1), `{"event_type":"request_end","request":{"input_tokens":[{}],"replay":{"input_sequence_hashes":[1,"2",{}]}}}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		dir := folder(t, map[string]string{"a/a.jsonl": a, "b/b.jsonl": b})
		left, right := find(t, filepath.Join(dir, "a")), find(t, filepath.Join(dir, "b"))
		if _, err := Verify(context.Background(), left, right, []string{"canary-1"}); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, "out")
		report, err := Run(context.Background(), left, out, Options{Key: testKey(t), ShiftTime: true}, nil)
		if err != nil || report.Read.SkippedRows > 0 {
			return // a row that is not kept may have had token counts
		}
		if files := find(t, out); looks(t, files[0]) != looks(t, left[0]) {
			return // only a row that was lost told what it is
		}
		if proof := verified(t, filepath.Join(dir, "a"), out); len(proof.Failures) > 0 {
			t.Fatalf("%s", strings.Join(proof.Failures, "\n"))
		}
	})
}

// looks returns the format that a file looks like.
func looks(t *testing.T, f File) string {
	t.Helper()
	head, err := f.Head(headSize)
	if err != nil {
		t.Fatal(err)
	}
	return detect(head)
}
