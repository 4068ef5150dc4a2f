package trace

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Rows that a recorder lost are told of by a record, which is no call, and counted by readers.
func TestLostRows(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "run")
	var lost LostRows
	late, early := int64(1790000000900), int64(1790000000000)
	for _, at := range []*int64{&late, &early, nil} {
		lost.Add(LostRows{Rows: 1, FirstMs: at, LastMs: at})
	}
	call := end(`"request_id":"a","input_tokens":5,"output_tokens":1,"request_received_ms":5`, "")
	rec, err := ParseRecord([]byte(call))
	if err != nil {
		t.Fatal(err)
	}
	writeAll(t, prefix, WriterOptions{}, lost.Record(), rec, LostRows{Rows: 1}.Record(), LostRows{Rows: -5}.Record())
	segments, err := Find([]string{prefix}, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := segments[0].Path
	head, err := segments[0].Head(1 << 10)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(head), "\n")
	if want := `{"timestamp":0,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_payload","event_time_unix_ms":1790000000900,` +
		`"payload":{"request_id":"agentsim.rows_lost","endpoint":"agentsim.rows_lost","model":"","payload_complete":false,"payload_drop_reason":"agentsim.rows_lost"},` +
		`"agentsim":{"lost_rows":3,"first_unix_ms":1790000000000,"last_unix_ms":1790000000900}}}`; line != want {
		t.Errorf("line %s, want %s", line, want)
	}

	check := func(what string, report ReadReport) {
		want := []string{
			file + ":1: the recorder lost 3 rows between 2026-09-21 14:13:20.000 and 2026-09-21 14:13:20.900: its disk was full or slow",
			file + ":3: the recorder lost 1 rows: its disk was full or slow",
		}
		if report.LostRows != 4 || !slices.Equal(report.Warnings, want) {
			t.Errorf("%s: %+v, want 4 lost rows and warnings %q", what, report, want)
		}
	}
	c, err := Read(context.Background(), segments, nil)
	if err != nil {
		t.Fatal(err)
	}
	check("Read", c.Read)
	if c.Read.Calls != 1 || c.Read.SkippedRows != 3 {
		t.Errorf("%+v, want 1 call and 3 skipped rows", c.Read)
	}
	report, err := ReadRecords(context.Background(), segments, func(string, int, *Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	check("ReadRecords", report)
}
