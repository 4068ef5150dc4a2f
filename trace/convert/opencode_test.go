package convert

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
)

// openCodeObjects is a session with a message of two steps, the first of which ran a tool, and a child session with a message of
// which no parts are kept: by their places in the storage.
var openCodeObjects = [][2]string{
	{"session/p/ses_1.json", `{"id":"ses_1","projectID":"p","title":"t","time":{"created":1000000000000,"updated":1000000009000}}`},
	{"message/ses_1/msg_1.json", `{"id":"msg_1","sessionID":"ses_1","role":"user","time":{"created":1000000000000}}`},
	{"part/msg_1/prt_1.json", `{"id":"prt_1","messageID":"msg_1","sessionID":"ses_1","type":"text","text":"look"}`},
	{"message/ses_1/msg_2.json", `{"id":"msg_2","sessionID":"ses_1","role":"assistant","mode":"build","modelID":"m","time":{"created":1000000000500,"completed":1000000009000},` +
		`"tokens":{"input":1200,"output":60,"reasoning":20,"cache":{"read":1000,"write":0}}}`},
	{"part/msg_2/prt_21.json", `{"id":"prt_21","messageID":"msg_2","sessionID":"ses_1","type":"step-start"}`},
	{"part/msg_2/prt_22.json", `{"id":"prt_22","messageID":"msg_2","sessionID":"ses_1","type":"tool","callID":"c1","tool":"read","state":{"status":"completed","input":{"a":1},"output":"text","time":{"start":1000000003000,"end":1000000004000}}}`},
	{"part/msg_2/prt_23.json", `{"id":"prt_23","messageID":"msg_2","sessionID":"ses_1","type":"step-finish","tokens":{"input":1000,"output":30,"reasoning":10,"cache":{"read":0,"write":24}}}`},
	{"part/msg_2/prt_24.json", `{"id":"prt_24","messageID":"msg_2","sessionID":"ses_1","type":"text","text":"done","time":{"start":1000000005000,"end":1000000008000}}`},
	{"part/msg_2/prt_25.json", `{"id":"prt_25","messageID":"msg_2","sessionID":"ses_1","type":"step-finish","tokens":{"input":200,"output":30,"reasoning":10,"cache":{"read":1000,"write":0}}}`},
	{"session/p/ses_2.json", `{"id":"ses_2","projectID":"p","parentID":"ses_1","time":{"created":1000000001000}}`},
	{"message/ses_2/msg_3.json", `{"id":"msg_3","sessionID":"ses_2","role":"assistant","mode":"explore","modelID":"m","time":{"created":1000000003000,"completed":1000000003900},` +
		`"tokens":{"input":10,"output":5,"reasoning":0,"cache":{"read":0,"write":0}}}`},
	{"message/ses_2/msg_4.json", `{"id":"msg_4","sessionID":"ses_2","role":"assistant","time":{"created":1000000003950},"error":{"name":"aborted"},"tokens":{"input":0,"output":0}}`},
	{"session_diff/ses_1.json", `[]`},
}

// openCodeFiles writes the objects as OpenCode did before version 1.2.
func openCodeFiles(t *testing.T) string {
	dir := t.TempDir()
	for _, o := range openCodeObjects {
		logFile(t, dir, o[0], o[1])
	}
	return dir
}

// openCodeExports are the objects as opencode export writes them, one text a session.
func openCodeExports() []string {
	var exports []string
	for _, o := range openCodeObjects {
		last := len(exports) - 1
		kind, _, _ := strings.Cut(o[0], "/")
		switch kind {
		case "session":
			exports = append(exports, `{"info":`+o[1]+`,"messages":[]}`)
		case "message":
			exports[last] = strings.TrimSuffix(exports[last], "]}") + `,{"info":` + o[1] + `,"parts":[]}]}`
			exports[last] = strings.Replace(exports[last], "[,", "[", 1)
		case "part":
			exports[last] = strings.TrimSuffix(exports[last], "]}]}") + "," + o[1] + "]}]}"
			exports[last] = strings.Replace(exports[last], "[,", "[", 1)
		}
	}
	return exports
}

// Exports tell what the storage tells, also beside it.
func TestOpenCodeExport(t *testing.T) {
	storage := openCodeFiles(t)
	want := describe(openFiles(t, storage))
	dir := t.TempDir()
	for i, text := range openCodeExports() {
		logFile(t, dir, fmt.Sprintf("export%d.json", i), text)
	}
	if got := openFiles(t, dir); got.Format != FormatOpenCode || describe(got) != want {
		t.Errorf("%s:\n%swant\n%s", got.Format, describe(got), want)
	}
	if got := openFiles(t, dir, storage); describe(got) != want || got.Read.Duplicates != 4 {
		t.Errorf("beside the storage: %d duplicates,\n%swant\n%s", got.Read.Duplicates, describe(got), want)
	}
}

// The steps of a message are calls, whose usages the message sums up. Output includes reasoning, input what was cached.
func TestOpenCode(t *testing.T) {
	c := openFiles(t, openCodeFiles(t))
	want := map[string]sessionCount{
		"ses_1": {"", "", 2, 1024 + 1200, 1000, 80, 0, 1},
		"ses_2": {"ses_1", "explore", 1, 10, 0, 5, 0, 0},
	}
	if diff := cmp.Diff(want, countSessions(c)); diff != "" {
		t.Error(diff)
	}
	s := sessionNamed(t, c, "ses_1")
	first, second := s.Turns[0], s.Turns[1]
	if first.Start != 0 || first.End.Milliseconds() != 2500 || second.Start.Milliseconds() != 3500 || second.End.Milliseconds() != 8500 {
		t.Errorf("the calls run %v..%v and %v..%v", first.Start, first.End, second.Start, second.End)
	}
	if first.Inferred&(trace.FieldStart|trace.FieldEnd) != trace.FieldEnd || second.Inferred&(trace.FieldStart|trace.FieldEnd) != trace.FieldStart {
		t.Errorf("inferred %q and %q", first.Inferred.Names(), second.Inferred.Names())
	}
	// 1024 tokens are 16 blocks of 64.
	if a, b := chain(first), chain(second); len(a) != 16 || !slices.Equal(a, b[:16]) || second.Trigger != "tool_result" {
		t.Errorf("the second call (%s) does not go on from the first", second.Trigger)
	}
	if c.Read.Skipped["of failed calls"] != 1 {
		t.Errorf("%+v", c.Read)
	}
}

// From 1.2 on sessions are in a database beside the storage of before: that is said, since it is not read.
func TestOpenCodeDatabase(t *testing.T) {
	dir := t.TempDir()
	for _, o := range openCodeObjects {
		logFile(t, dir, "storage/"+o[0], o[1])
	}
	told := func(path string) bool {
		return slices.ContainsFunc(openFiles(t, path).Read.Warnings, func(w string) bool { return strings.Contains(w, "opencode.db: newer sessions are in this database") })
	}
	if told(dir) {
		t.Error("a database that is not there is told of")
	}
	logFile(t, dir, "opencode.db", "SQLite format 3\x00")
	if !told(dir) || !told(filepath.Join(dir, "storage")) {
		t.Error("the database is not told of")
	}
}

// The shared fixture: 1000 + 200 + 100 prompt tokens.
func TestOpenCodeShared(t *testing.T) {
	c := openFiles(t, filepath.Join(sharedTraces(t), "opencode"))
	want := map[string]sessionCount{"ses_test001": {"", "", 1, 1300, 200, 500, 0, 0}}
	if diff := cmp.Diff(want, countSessions(c)); diff != "" {
		t.Error(diff)
	}
}

func TestOpenCodeTruncated(t *testing.T) {
	truncate(t, `{"id":"m","sessionID":"s","role":"assistant","modelID":"m","time":{"created":1000000000000},"tokens":{"input":1,"output":2,"cache":{"read":3}},"error":null}`, 1)
	truncate(t, openCodeExports()[0], 2)
}

func FuzzOpenCode(f *testing.F) {
	fuzzFormat(f, openCodeExports()[0], `{"id":"m","sessionID":"s","role":"assistant","modelID":"m","time":{"created":1000000000000,"completed":1},"tokens":{"input":1,"output":2,"cache":{"read":3}},"error":null}`,
		`{"id":"p","sessionID":"s","messageID":"m","type":"tool","state":{"input":{},"output":"x","time":{"start":5,"end":1}}}`)
}
