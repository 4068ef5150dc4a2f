package convert

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

// recorded writes a capture as records and reads it back.
func recorded(t *testing.T, c *trace.Capture) (*trace.Capture, []Count) {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "x")
	w, err := trace.NewWriter(prefix, trace.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	records, lost := Records(c)
	for r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	back, err := Open(context.Background(), []string{prefix}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return link(t, back), lost
}

// A program with every fact that a trace may tell comes back as it was, and nothing is lost.
func TestRecordsKeepAll(t *testing.T) {
	s := &trace.Session{ID: "s", Class: "planner", Tools: []trace.ToolSpan{{ID: "t", Class: "bash", Start: 2e9, End: 3e9, Status: "error"}}}
	kid := &trace.Session{ID: "k", Parent: "s", Class: "explorer"}
	c := &trace.Capture{Format: "test", BlockSize: 4, Resolution: 1e6, SharedClock: true, Epoch: 1e12, Sessions: []*trace.Session{s, kid}}
	add := func(s *trace.Session, id string, start, end int64, hashes ...uint64) *trace.Turn {
		turn := newCall(s).Turn
		turn.ID, turn.Start, turn.End, turn.Input, turn.Output, turn.Hashes = id, time.Duration(start)*time.Second, time.Duration(end)*time.Second, int32(4*len(hashes)), 3, hashes
		s.Turns = append(s.Turns, &turn)
		return &turn
	}
	first := add(s, "a", 0, 2, 1, 2)
	first.Model, first.Trigger, first.TTFT, first.Cached, first.Reasoning = "m", "user_message", 5e8, 4, 2
	first.OutputHashes = []uint64{9}
	first.ToolCalls = []trace.ToolCall{{ID: "t", Name: "bash"}}
	first.Hints = trace.Hints{Priority: 1, StrictPriority: 2, OSL: 3, SpeculativePrefill: true, PolicyClass: "p"}
	second := add(s, "b", 4, 5, 1, 2, 3)
	second.Trigger, second.Compaction, second.Final, second.Inferred = "tool_result", true, true, trace.FieldStart|trace.FieldTextHashes
	add(kid, "c", 2, 3, 7).Status = trace.Cancelled
	link(t, c)
	back, lost := recorded(t, c)
	if len(lost) > 0 {
		t.Errorf("lost %v", lost)
	}
	if back.Epoch != c.Epoch || back.BlockSize != 4 {
		t.Errorf("epoch %d, block size %d", back.Epoch, back.BlockSize)
	}
	for i, s := range c.Sessions {
		if diff := cmp.Diff(facts(s), facts(back.Sessions[i])); diff != "" {
			t.Errorf("session %s: %s", s.ID, diff)
		}
		for j, want := range s.Turns {
			got := back.Sessions[i].Turns[j]
			if !slices.Equal(want.Chain(), got.Chain()) || !slices.Equal(want.OutputHashes, got.OutputHashes) || want.Hints != got.Hints ||
				want.Start != got.Start || want.End != got.End || want.TTFT != got.TTFT || want.Gap != got.Gap || want.Inferred != got.Inferred ||
				want.Reasoning != got.Reasoning || want.Cached != got.Cached || want.Status != got.Status {
				t.Errorf("call %s: %+v, want %+v", want.ID, got, want)
			}
		}
	}
}

// A simulation of an invented workload, and of conversations with hashes of their own, sees no difference.
func TestRecordsRunAlike(t *testing.T) {
	for _, profile := range []string{"claude-code", "mini-swe-agent"} {
		c, err := synth.Generate(profile, synth.Options{Programs: 3, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		c.Rebase()
		c.Resolution = time.Millisecond
		for _, s := range c.Sessions { // records have milliseconds
			for _, turn := range s.Turns {
				fine := turn.Start % time.Millisecond
				turn.Start, turn.End = turn.Start-fine, turn.End-fine
			}
			for i := range s.Tools {
				tool := &s.Tools[i]
				tool.Start, tool.End = tool.Start.Truncate(time.Millisecond), tool.End.Truncate(time.Millisecond)
			}
		}
		back, lost := recorded(t, link(t, c))
		if len(lost) > 0 {
			t.Errorf("%s: lost %v", profile, lost)
		}
		if diff := cmp.Diff(reportOf(t, c), reportOf(t, back)); diff != "" {
			t.Errorf("%s: %s", profile, diff)
		}
	}
	twice := `{"id":"x","block_size":4,"requests":[{"t":0,"in":9,"out":2,"hash_ids":[1,2],"api_time":1},{"t":3,"in":12,"out":2,"hash_ids":[1,2,3],"api_time":1}]}`
	c, err := openText(twice+"\n"+twice+"\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	back, lost := recorded(t, link(t, c))
	if diff := cmp.Diff([]Count{{"clocks of programs, each with its own", 1}}, lost); diff != "" {
		t.Error(diff)
	}
	a, b := back.Sessions[0].Turns, back.Sessions[1].Turns
	if !slices.Equal(a[0].Chain()[:2], a[1].Chain()[:2]) || slices.Equal(a[0].Chain()[:1], b[0].Chain()[:1]) || len(a[0].Chain()) != 3 {
		t.Errorf("chains %d and %d, %d", a[0].Chain(), a[1].Chain(), b[0].Chain())
	}
}
