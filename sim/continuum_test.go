package sim

import (
	"context"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// With a benefit of 2 s, waiting until 90 % of the tools are back (1 s) costs 0.1 · 1 s and brings 1.8 s; the last one
// takes 100 s: 10 s for 0.2 s more.
func TestLeaseLeavesOutTheTail(t *testing.T) {
	d := new(durations)
	for range 9 {
		d.add(time.Second)
	}
	d.add(100 * time.Second)
	if got := d.best(2, 0.1); got != time.Second {
		t.Errorf("lease is %v, want 1s", got)
	}
	if got := d.best(200, 0.1); got != 100*time.Second { // 20 more for 10
		t.Errorf("lease is %v, want 100s", got)
	}
	if got := d.best(0.05, 0.1); got != 0 { // 0.045 for 0.1
		t.Errorf("lease is %v, want none", got)
	}
}

// Before any tool returned they are taken to be exponential with a mean of 2 s: with a benefit of 2 s at a tenth of the
// cache the lease is 2 · ln(2 / 0.2) = 4.605 s.
func TestLeaseOfAnUnseenTool(t *testing.T) {
	var d *durations
	if got := d.best(2, 0.1).Seconds(); got < 4.604 || got > 4.606 {
		t.Errorf("lease is %v s, want 4.605", got)
	}
	if got := d.best(0.1, 0.1); got != 0 {
		t.Errorf("lease is %v, want none: it costs more than it brings from the start", got)
	}
}

func TestDurationsForgetTheOldest(t *testing.T) {
	d := new(durations)
	d.add(time.Hour)
	for range maxDurations {
		d.add(time.Second)
	}
	if n := len(d.sorted); n != maxDurations || d.sorted[n-1] != time.Second {
		t.Errorf("%d durations up to %v, want %d of 1s", n, d.sorted[n-1], maxDurations)
	}
}

// The preview's rule looks at the mean alone: nine tools of 1 s and one of 8 s have 1.7 s, another of 8 s makes it 2.3 s.
func TestPreviewPinsByTheMean(t *testing.T) {
	c := &continuum{preview: true, tools: newToolTimes()}
	lease := func() time.Duration { return c.lease("", 100) }
	if got := lease(); got != unseenTool {
		t.Errorf("the lease of an unseen tool is %v, want 2s", got)
	}
	d := new(durations)
	c.tools.tools[""] = d
	for range 9 {
		d.add(time.Second)
	}
	d.add(8 * time.Second)
	if got := lease(); got != unseenTool {
		t.Errorf("with a mean of %v the lease is %v, want 2s", d.mean(), got)
	}
	d.add(8 * time.Second)
	if got := lease(); got != 0 {
		t.Errorf("with a mean of %v the lease is %v, want none", d.mean(), got)
	}
}

// A pin spares a wait for the engine, and not that for router.max_programs: a program is let in once. Of two programs
// the first holds up the second; their leases, for tools not seen before, are the same.
func TestLeaseDoesNotPayForTheGate(t *testing.T) {
	var sessions []*trace.Session
	for i, tool := range []string{"bash", "edit"} {
		sessions = append(sessions, session(tool, uint64(100*i),
			trace.Turn{Input: 40, Output: 4, Start: 0, End: 30 * ms, ToolCalls: []trace.ToolCall{{Name: tool}}},
			trace.Turn{Input: 48, Output: 1, Start: 300 * ms, End: 310 * ms}))
	}
	d := fixed()
	d.Engine.Scheduling, d.Engine.KVBlocks, d.Router.MaxPrograms = "continuum", "100000", "1"
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	var leases []time.Duration
	_, err = Run(context.Background(), compile(t, sessions...), p, Options{Observe: func(e Event) {
		if e.What == Leased {
			leases = append(leases, e.Until-e.At)
		}
	}})
	if err != nil || len(leases) != 2 || leases[0] != leases[1] {
		t.Errorf("leases are %v (error %v), want two of the same length", leases, err)
	}
}
