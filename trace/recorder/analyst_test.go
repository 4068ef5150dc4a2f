package recorder

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/wire"
)

// When records are made more slowly than requests end, some say less, none is missing, and nobody waits.
func TestTooManyForTheAnalyst(t *testing.T) {
	const n = maxJobs + 100
	rows := make(chan *trace.Record, n)
	release := make(chan bool)
	r, err := New(Options{Upstream: &url.URL{Scheme: "http", Host: "localhost"}, Run: "run", Emit: func(row *trace.Record) {
		if !slices.Contains(row.Request.Agentsim.Inferred, "input_sequence_hashes") {
			<-release // of a worker: the disk of its machine has stopped, say
		}
		rows <- row
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		e := &exchange{id: fmt.Sprint(i), header: http.Header{}, started: time.Now(), body: []byte(`{"messages":[{"role":"user","content":"hi"}]}`)}
		e.end("", time.Now())
		r.analyst.take(e)
	}
	if early := len(rows); early == 0 || early > 100 {
		t.Errorf("%d were recorded without their text, want 1 to 100", early)
	}
	close(release)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range n {
		q := (<-rows).Request
		if seen[q.RequestID] = true; len(q.Replay.Hashes) == 0 || *q.InputTokens == 0 {
			t.Fatalf("row %+v", q)
		}
	}
	if len(seen) != n {
		t.Errorf("%d requests are recorded, want %d", len(seen), n)
	}
}

// A conversation of another's session is placed after it, however many workers there are.
func TestTurnsArePlacedInOrder(t *testing.T) {
	rows := make(chan *trace.Record, 100)
	r, err := New(Options{Upstream: &url.URL{Scheme: "http", Host: "localhost"}, AskTokens: true, Emit: func(row *trace.Record) { rows <- row }})
	if err != nil {
		t.Fatal(err)
	}
	body := `{"messages":[{"role":"user","content":"hi"}`
	for i := range 100 {
		e := &exchange{id: fmt.Sprint(i), dialect: wire.Responses, header: http.Header{}, started: time.Now(), body: []byte(body + "]}")}
		e.answer.text = []byte("A")
		e.end("", time.Now())
		r.analyst.take(e)
		body += `,{"role":"assistant","content":"A"},{"role":"user","content":"go on"}`
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if got := (<-rows).AgentContext.SessionID; got != "inferred-0" {
			t.Fatalf("session %s, want inferred-0", got)
		}
	}
}
