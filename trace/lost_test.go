package trace

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Rows that a recorder lost are counted by readers, and are no rows themselves.
func TestLostRows(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "run")
	var lost LostRows
	late, early := int64(1790000000900), int64(1790000000000)
	for _, at := range []*int64{&late, &early, nil} {
		lost.Add(LostRows{Rows: 1, FirstMs: at, LastMs: at})
	}
	w, err := NewWriter(prefix, WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.WriteLost(lost), w.Write(request("a", 1790000001000)), w.WriteLost(LostRows{Rows: 1}), w.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	segments, err := Find([]string{prefix}, nil)
	if err != nil {
		t.Fatal(err)
	}
	head, err := segments[0].Head(1 << 10)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(head), "\n")
	if want := `{"timestamp":0,"event":"agentsim.rows_lost","agentsim":{"rows":3,"first_unix_ms":1790000000000,"last_unix_ms":1790000000900}}`; line != want {
		t.Errorf("line %s, want %s", line, want)
	}
	var ids []string
	report, err := ReadRecords(context.Background(), segments, func(_ string, _ int, r *Record) error {
		ids = append(ids, r.Request.RequestID)
		return nil
	})
	if err != nil || !slices.Equal(ids, []string{"a"}) {
		t.Errorf("read %q, %v", ids, err)
	}
	file := segments[0].Path
	want := []string{
		file + ":1: the recorder lost 3 rows between 2026-09-21 14:13:20.000 and 2026-09-21 14:13:20.900: its disk was full or slow",
		file + ":3: the recorder lost 1 rows: its disk was full or slow",
	}
	if report.LostRows != 4 || report.SkippedRows != 2 || !slices.Equal(report.Warnings, want) {
		t.Errorf("%+v, want 4 lost, 2 skipped, warnings %q", report, want)
	}
}

func TestLinesThatTellOfNoLostRows(t *testing.T) {
	for _, text := range []string{`[]`, `{"event":"agentsim.rows_lost"}`, `{"event":"agentsim.rows_lost","agentsim":{"rows":-5}}`,
		`{"event":"agentsim.rows_lost","agentsim":{"rows":"5"}}`, `{"event":"other","agentsim":{"rows":5}}`} {
		var r ReadReport
		r.skip("f", 1, []byte(text))
		if r.SkippedRows != 1 || r.LostRows != 0 || len(r.Warnings) > 0 {
			t.Errorf("%s: %+v", text, r)
		}
	}
}
