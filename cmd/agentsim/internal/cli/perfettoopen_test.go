package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// A browser asks for permission, perhaps for a part, and then for the file. Only a whole file that went to the page of
// ui.perfetto.dev ends the serving.
func TestFileOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a day.pftrace")
	if err := os.WriteFile(file, []byte("0123456789"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := newFileOnce(file)
	for _, step := range []struct {
		method, host, path, span string
		status                   int
		body                     string
		fetched                  bool
	}{
		{"GET", "127.0.0.1:9001", "/other", "", 404, "404 page not found\n", false},
		{"GET", "evil.example:9001", "/a%20day.pftrace", "", 421, "ask for 127.0.0.1\n", false},
		{"POST", "127.0.0.1:9001", "/a%20day.pftrace", "", 405, "only GET\n", false},
		{"OPTIONS", "127.0.0.1:9001", "/a%20day.pftrace", "", 204, "", false},
		{"HEAD", "localhost:9001", "/a%20day.pftrace", "", 200, "", false},
		{"GET", "127.0.0.1:9001", "/a%20day.pftrace", "bytes=2-4", 206, "234", false},
		{"GET", "127.0.0.1:9001", "/a%20day.pftrace", "", 200, "0123456789", true},
		{"GET", "127.0.0.1:9001", "/a%20day.pftrace", "", 200, "0123456789", true},
	} {
		r := httptest.NewRequest(step.method, step.path, nil)
		r.Host = step.host
		if step.span != "" {
			r.Header.Set("Range", step.span)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != step.status || w.Body.String() != step.body {
			t.Errorf("%s %s: %d %q, want %d %q", step.method, step.path, w.Code, w.Body, step.status, step.body)
		}
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != "https://ui.perfetto.dev" {
			t.Errorf("%s %s allows %q", step.method, step.path, got)
		}
		select {
		case <-h.fetched:
			if !step.fetched {
				t.Fatalf("%s %s %s ends the serving", step.method, step.host, step.path)
			}
		default:
			if step.fetched {
				t.Fatalf("%s %s does not end the serving", step.method, step.path)
			}
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/a%20day.pftrace", nil)
	r.Host = "127.0.0.1:9001"
	h.ServeHTTP(w, r)
	if w.Code != http.StatusGone {
		t.Errorf("of a file that is gone: %d", w.Code)
	}
}
