package cli

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// The API key reaches the server, and nothing that is written: no report, no trace, no list of requests, no log; even
// where the server repeats it.
func TestReplayWritesNoKey(t *testing.T) {
	const key = "sk-very-secret-key"
	var n, asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		if q.Header.Get("Authorization") != "Bearer "+key {
			t.Errorf("%s came without the key", q.URL.Path)
		}
		switch {
		case q.URL.Path == "/metrics":
			fmt.Fprintf(w, "vllm:num_requests_running 1\n# %s\n", key)
			return
		case !strings.HasSuffix(q.URL.Path, "completions"):
			http.NotFound(w, q)
			return
		}
		asked.Add(1)
		switch n.Add(1) % 3 {
		case 0:
			http.Error(w, "wrong key "+key, http.StatusForbidden)
		case 1:
			fmt.Fprintf(w, "data: {\"error\":{\"message\":\"%s\"}}\n\n", q.Header.Get("Authorization"))
		case 2:
			fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"%s\",\"finish_reason\":\"%s\"}]}\n\n", key, key)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, given := range map[string]struct {
		env  string
		args []string
	}{"environment": {key, nil}, "file": {"", []string{"--api-key-file", file}}} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			var stdout, stderr bytes.Buffer
			root := newRoot(&Global{Stdout: &stdout, Stderr: &stderr, Width: 100, Getenv: func(string) string { return given.env }})
			root.SetArgs(append([]string{"replay", "testdata/traces/dynamo.jsonl", "--url", server.URL, "--warmup", "0", "--timing", "asap",
				"--max-error-rate", "0", "-o", out}, given.args...))
			err := root.ExecuteContext(t.Context())
			if err == nil || exitCode(err) != exitUntrusted {
				t.Errorf("ended with %v", err)
			}
			written := map[string]string{"stdout": stdout.String(), "stderr": stderr.String(), "error": fmt.Sprint(err)}
			readAll(t, out, written)
			if len(written) != 6 || asked.Load() < 5 {
				t.Errorf("%d files and streams, %d requests", len(written), asked.Load())
			}
			for name, text := range written {
				if strings.Contains(text, "very-secret") {
					t.Errorf("the key stands in %s:\n%s", name, text)
				}
			}
			if !strings.Contains(written["requests.jsonl"], "[redacted]") {
				t.Error("no server repeated the key: the test tests nothing")
			}
		})
	}
}

// readAll adds the files of a folder, decompressed.
func readAll(t *testing.T, folder string, to map[string]string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				return err
			}
			if text, err = io.ReadAll(z); err != nil {
				return err
			}
		}
		to[filepath.Base(path)] = string(text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
