package toolevent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPyzmq takes events from libzmq and msgpack for Python, which harness plugins use. INTEROP_PYTHON names a Python that
// has them; `make interop` sets it.
func TestPyzmq(t *testing.T) {
	python := os.Getenv("INTEROP_PYTHON")
	if python == "" {
		t.Skip("INTEROP_PYTHON names no Python with pyzmq and msgpack: run make interop")
	}
	const count = 1000
	s := serve(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, "-B", "../../../interop/tool_events.py", "tcp://"+s.address, strconv.Itoa(count)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	taken := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.rows)
	}
	for start := time.Now(); taken() < count && time.Since(start) < 20*time.Second; {
		time.Sleep(time.Millisecond)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	told := 0 // a connection that is reset as it closes may be told of too
	for _, line := range s.log {
		if strings.Contains(line, "2 frames") {
			told++
		}
	}
	if len(s.rows) != count || s.Dropped() != 3*count/10 || told != 2 {
		t.Fatalf("%d rows, %d dropped, logged %q; want %d, %d and a line of each connection on 2 frames", len(s.rows), s.Dropped(), s.log, count, 3*count/10)
	}
	for i, r := range s.rows {
		session := [...]string{"kid of root", "root of "}[i%2]
		got := fmt.Sprint(r.AgentContext.SessionID, " of ", r.AgentContext.ParentSessionID, " ", *r.EventTimeMs, " ", r.Tool.ToolCallID, " ", *r.Tool.DurationMs, " ", *r.Tool.OutputBytes)
		want := fmt.Sprint(session, " ", 1790000000000+i, " call-", i, " ", 400.5, " ", 1<<40+i)
		if got != want {
			t.Fatalf("row %d is %s, want %s", i, got, want)
		}
	}
	t.Logf("%d events, %d dropped", len(s.rows), s.Dropped())
}
