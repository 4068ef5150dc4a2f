package perfetto

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentsim/agentsim/trace/convert"
	"github.com/agentsim/agentsim/trace/events"
)

// FuzzDraw draws whatever can be read: the file has no faults, in either format.
func FuzzDraw(f *testing.F) {
	for _, pair := range [][2]string{{"day.jsonl", "run.events.jsonl"}, {"run.trace.jsonl", "run.events.jsonl"}} {
		rows, err := os.ReadFile(filepath.Join("testdata", pair[0]))
		if err != nil {
			f.Fatal(err)
		}
		happened, err := os.ReadFile(filepath.Join("testdata", pair[1]))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(rows, happened)
	}
	f.Fuzz(func(t *testing.T, rows, happened []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "x.jsonl")
		sidecar := filepath.Join(dir, "x.events.jsonl")
		if os.WriteFile(path, rows, 0o644) != nil || os.WriteFile(sidecar, happened, 0o644) != nil {
			t.Fatal("cannot write")
		}
		c, err := convert.Open(context.Background(), []string{path}, convert.Options{Details: true})
		if err != nil || c.Link() != nil {
			return
		}
		source := Source{Label: "x", Capture: c}
		if file, err := events.Open(sidecar); err == nil {
			source.Events = file
		}
		file, summary := write(t, Options{}, source)
		mustImport(t, file, summary)
		file, _ = write(t, Options{JSON: true}, source)
		checkChrome(t, file)
	})
}
