package perfetto

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/convert"
)

// open reads a trace as the command does.
func open(t testing.TB, paths ...string) *trace.Capture {
	t.Helper()
	c, err := convert.Open(context.Background(), paths, convert.Options{Details: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	return c
}

// write draws sources to a file.
func write(t rapid.TB, o Options, sources ...Source) ([]byte, Summary) {
	t.Helper()
	var file bytes.Buffer
	summary, _, err := Write(context.Background(), &file, sources, o)
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes(), summary
}

// draw draws sources and checks what comes out.
func draw(t rapid.TB, o Options, sources ...Source) *imported {
	t.Helper()
	file, summary := write(t, o, sources...)
	return mustImport(t, file, summary)
}

// shared returns a file of published traces, which lie beside the repository.
func shared(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "traces", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no published traces beside the repository: %v", err)
	}
	return path
}

// A real session of a coding agent with three subagents. What is expected was counted in the file by hand.
func TestRealSession(t *testing.T) {
	in := draw(t, Options{}, Source{Label: "pi", Capture: open(t, shared(t, "dynamo/pi_request_trace.jsonl.gz"))})
	counts := map[string]int{}
	for _, s := range in.slices {
		for _, c := range s.categories {
			counts[c]++
		}
	}
	for category, want := range map[string]int{catTurn: 17, catTool: 22, catInferred: 0, catError: 2, catProgram: 2, catSession: 3, catFirstToken: 17} {
		if counts[category] != want {
			t.Errorf("%d of category %s, want %d", counts[category], category, want)
		}
	}
}
