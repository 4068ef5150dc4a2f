package convert

import (
	"os"
	"path/filepath"
	"testing"
)

// sharedTraces returns the folder of recorded traces beside the repository, or skips the test.
func sharedTraces(t testing.TB) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			traces := filepath.Join(filepath.Dir(dir), "shared", "traces")
			if _, err := os.Stat(traces); err == nil {
				return traces
			}
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Skip("needs the recorded traces in ../shared/traces beside the repository")
	return ""
}
