package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Headers of any size a client may think of do not reach a handler.
func TestServerBoundsHeaders(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.Config = newServer(http.NotFoundHandler(), time.Minute, nil)
	s.Start()
	defer s.Close()
	for size, want := range map[int]int{32 << 10: 404, 128 << 10: 431} {
		q, err := http.NewRequest("GET", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("X-Long", strings.Repeat("x", size))
		a, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("a header of %d bytes: status %d, want %d", size, a.StatusCode, want)
		}
	}
}
