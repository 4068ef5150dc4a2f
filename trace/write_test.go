package trace

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// optional draws nil or a pointer to a value.
func optional[T any](t *rapid.T, g *rapid.Generator[T], label string) *T {
	return rapid.Ptr(g, true).Draw(t, label)
}

func genRecord(t *rapid.T) *Record {
	text := rapid.String()
	number := rapid.Int64Range(0, 1<<60)
	float := rapid.Float64Range(-1e15, 1e15)
	r := &Record{Schema: Schema, EventType: rapid.SampledFrom([]string{EventRequestEnd, EventToolEnd, "new_event"}).Draw(t, "type"),
		EventTimeMs: optional(t, number, "time"), EventSource: text.Draw(t, "source")}
	if rapid.Bool().Draw(t, "context") {
		r.AgentContext = &AgentContext{SessionID: text.Draw(t, "session"), ParentSessionID: text.Draw(t, "parent"),
			SessionFinal: rapid.Bool().Draw(t, "final"), KVHints: json.RawMessage(`{"evict_session":true}`)}
	}
	if rapid.Bool().Draw(t, "tool") {
		r.Tool = &ToolEvent{ToolCallID: text.Draw(t, "call"), DurationMs: optional(t, float, "duration"), EndedMs: optional(t, number, "ended")}
	}
	if rapid.Bool().Draw(t, "request") {
		r.Request = &RequestEnd{RequestID: text.Draw(t, "id"), Model: text.Draw(t, "model"), InputTokens: optional(t, number, "input"),
			TotalTimeMs: optional(t, float, "total"), AvgITLMs: optional(t, float, "itl"),
			Worker: &Worker{DecodeWorkerID: optional(t, rapid.Uint64(), "worker"), DecodeDPRank: optional(t, rapid.Uint32(), "rank")},
			Replay: &Replay{BlockSize: 16, InputLength: optional(t, number, "length"),
				Hashes: rapid.SliceOfN(rapid.Uint64(), 1, 20).Draw(t, "hashes")},
			FinishReason: &FinishReason{Backend: text.Draw(t, "reason"), StopReason: json.RawMessage("7"),
				ToolCalls: []ToolCallRef{{ToolCallIndex: 1, ID: text.Draw(t, "toolcall")}}},
			Agentsim: &Extension{Copy: rapid.Uint32().Draw(t, "copy"), Worker: optional(t, number, "worker index"), Status: "completed",
				ArrivalNs: optional(t, number, "arrival"), Inferred: []string{"end"}, Hints: &AgentHints{Priority: rapid.Int32().Draw(t, "priority")}},
		}
	}
	return r
}

// Records that are written are read back as they were, over any number of segments.
func TestWriteReadRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(genRecord), 1, 8).Draw(t, "records")
		w, err := NewWriter(filepath.Join(dir, "round"), WriterOptions{Existing: ReplaceExisting,
			RollBytes: rapid.IntRange(1, 4000).Draw(t, "roll"), FlushBytes: rapid.IntRange(1, 2000).Draw(t, "flush")})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range want {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		segments, err := Find([]string{filepath.Join(dir, "round")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []*Record
		report, err := ReadRecords(context.Background(), segments, func(_ string, _ int, r *Record) error {
			got = append(got, r)
			return nil
		})
		if err != nil || report.LostRows > 0 || len(report.Warnings) > 0 {
			t.Fatal(err, report)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-written +read):\n%s", diff)
		}
	})
}

func request(id string, ms int64) *Record {
	return &Record{Schema: Schema, EventType: EventRequestEnd, EventTimeMs: &ms, Request: &RequestEnd{RequestID: id}}
}

func writeAll(t *testing.T, prefix string, options WriterOptions, records ...*Record) {
	t.Helper()
	w, err := NewWriter(prefix, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriterSegments(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "run.jsonl.gz")
	one := WriterOptions{RollBytes: 1} // each row is over the limit and stays alone in its segment
	writeAll(t, prefix, one, request("a", 100), request("b", 103), request("c", 90))
	if got, want := names(t, dir), []string{"run.000000.jsonl.gz", "run.000001.jsonl.gz", "run.000002.jsonl.gz"}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	segments, err := Find([]string{prefix}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, s := range segments {
		head, err := s.Head(1 << 10)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(head[:bytes.IndexByte(head, ',')]))
	}
	// Timestamps count from the first record and never below 0.
	if got, want := strings.Join(lines, " "), `{"timestamp":0 {"timestamp":3 {"timestamp":0`; got != want {
		t.Errorf("lines begin %s, want %s", got, want)
	}

	if _, err := NewWriter(prefix, WriterOptions{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("existing segments: error %v", err)
	}
	writeAll(t, prefix, WriterOptions{Existing: AppendExisting}, request("d", 1))
	if got := names(t, dir); len(got) != 4 || got[3] != "run.000003.jsonl.gz" {
		t.Errorf("after appending: %q", got)
	}
	writeAll(t, prefix, WriterOptions{Existing: ReplaceExisting}, request("e", 1))
	if got, want := names(t, dir), []string{"run.000000.jsonl.gz"}; !slices.Equal(got, want) {
		t.Errorf("after replacing: %q, want %q", got, want)
	}
}

func TestWriterKeepsUnfinishedSegmentsApart(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWriter(filepath.Join(dir, "run"), WriterOptions{FlushBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(request("a", 1)); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, dir), []string{"run.000000.jsonl.gz.tmp"}; !slices.Equal(got, want) {
		t.Errorf("while writing: %q, want %q", got, want)
	}
	if _, err := Find([]string{dir}, nil); err == nil {
		t.Error("an unfinished segment was found")
	}
	w.Discard()
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("after Discard: %q", got)
	}
}

func TestWriterFaults(t *testing.T) {
	if _, err := NewWriter(filepath.Join(t.TempDir(), "no", "such"), WriterOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	w, err := NewWriter(filepath.Join(t.TempDir(), "run"), WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	if err := w.Write(&Record{EventType: EventRequestEnd, Request: &RequestEnd{TTFTMs: &nan}}); !errors.Is(err, ErrRecord) {
		t.Errorf("NaN: error %v", err)
	}
}

func TestWriterIsDeterministic(t *testing.T) {
	var files [2][]byte
	for i := range files {
		dir := t.TempDir()
		writeAll(t, filepath.Join(dir, "run"), WriterOptions{FlushBytes: 100}, request("a", 1), request("b", 2), request("c", 3))
		var err error
		if files[i], err = os.ReadFile(filepath.Join(dir, "run.000000.jsonl.gz")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("equal records gave unequal bytes")
	}
}

// A live segment has its name from the first flush on, and what is flushed reads back while the Writer is at work.
func TestLiveSegments(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "run")
	w, err := NewWriter(prefix, WriterOptions{Live: true, RollLines: 2})
	if err != nil {
		t.Fatal(err)
	}
	// Another process takes an index in between.
	if err := os.WriteFile(prefix+".000001.jsonl.gz", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"a", "b", "c"} {
		if err := w.Write(request(id, int64(i))); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if got, want := requestIDs(t, prefix), []string{"a", "b", "c"}[:i+1]; !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
	}
	want := []string{"run.000000.jsonl.gz", "run.000001.jsonl.gz", "run.000002.jsonl.gz"}
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// requestIDs reads the ids of all rows of a prefix, which must be sound.
func requestIDs(t *testing.T, prefix string) (ids []string) {
	t.Helper()
	segments, err := Find([]string{prefix}, nil)
	if err != nil {
		t.Fatal(err)
	}
	report, err := ReadRecords(context.Background(), segments, func(_ string, _ int, r *Record) error {
		ids = append(ids, r.Request.RequestID)
		return nil
	})
	if err != nil || report.LostRows > 0 || len(report.Warnings) > 0 {
		t.Fatal(err, report)
	}
	return ids
}

// After a failure a Writer is as it was before, but for the row that it refused.
func TestWriterGoesOnAfterFailures(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "run")
	w, err := NewWriter(prefix, WriterOptions{Live: true, FlushBytes: 300})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	refused := 0
	for i := range 200 {
		id := strconv.Itoa(i)
		sound := w.segment.file
		if i%20 >= 10 && sound != nil { // the disk fails: half a member arrives
			if _, err := sound.WriteAt([]byte("\x1f\x8b\x08torn"), w.segment.stored); err != nil {
				t.Fatal(err)
			}
			if w.segment.file, err = os.Open(sound.Name()); err != nil {
				t.Fatal(err)
			}
		}
		err := w.Write(request(id, int64(i)))
		if w.segment.file != sound && sound != nil {
			w.segment.file.Close()
			w.segment.file = sound
		}
		if err == nil {
			want = append(want, id)
		} else {
			refused++
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := requestIDs(t, prefix); !slices.Equal(got, want) || refused < 50 {
		t.Errorf("%d rows were refused; read %q, want %q", refused, got, want)
	}
}
