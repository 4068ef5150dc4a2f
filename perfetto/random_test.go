package perfetto

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsim/agentsim/trace"
)

// genCapture makes linked captures whose times are a few units apart, so that many are equal: overlapping and empty calls, calls
// and tools without an end, tools before any call, children that outlive their parents or come before them, rows that
// contradict themselves.
func genCapture(t *rapid.T) *trace.Capture {
	unit := rapid.SampledFrom([]time.Duration{1, time.Microsecond, time.Second}).Draw(t, "unit")
	at := rapid.Custom(func(t *rapid.T) time.Duration { return unit * time.Duration(rapid.IntRange(0, 12).Draw(t, "at")) })
	maybe := func(label string) time.Duration {
		if rapid.IntRange(0, 3).Draw(t, label+"?") == 0 {
			return trace.NoTime
		}
		return at.Draw(t, label)
	}
	c := &trace.Capture{Resolution: rapid.SampledFrom([]time.Duration{0, unit, 3 * unit}).Draw(t, "resolution"), Epoch: 1_700_000_000_000}
	worker := []uint64{1, 1 << 63}
	for i := range rapid.IntRange(1, 5).Draw(t, "sessions") {
		s := &trace.Session{ID: fmt.Sprint("s", i)}
		if i > 0 && rapid.Bool().Draw(t, "child") {
			s.Parent = fmt.Sprint("s", rapid.IntRange(0, i-1).Draw(t, "parent"))
		}
		for n := range rapid.IntRange(1, 6).Draw(t, "turns") {
			start := at.Draw(t, "start")
			turn := &trace.Turn{ID: fmt.Sprint(s.ID, "-", n), Start: start, End: trace.NoTime, TTFT: maybe("ttft"), Session: s,
				Input: 10, Output: int32(rapid.IntRange(0, 3).Draw(t, "output")), Cached: int32(rapid.IntRange(-1, 10).Draw(t, "cached")),
				Trigger: rapid.SampledFrom([]string{"", "tool_result", "user_message"}).Draw(t, "trigger"),
				Status:  rapid.SampledFrom([]string{"", "error", "cancelled"}).Draw(t, "status"),
				Final:   rapid.Bool().Draw(t, "final"), Compaction: rapid.Bool().Draw(t, "compaction")}
			if took := maybe("took"); took != trace.NoTime {
				turn.End = start + took
			}
			for range rapid.IntRange(0, 2).Draw(t, "calls") {
				id := fmt.Sprint("t", rapid.IntRange(0, 4).Draw(t, "call"))
				turn.ToolCalls = append(turn.ToolCalls, trace.ToolCall{ID: id, Name: "sh"})
			}
			if rapid.Bool().Draw(t, "detailed") {
				turn.Detail = &trace.Detail{PrefillWait: maybe("wait"), Prefill: maybe("prefill"), ITL: trace.NoTime, KVTransfer: trace.NoTime,
					HitRate: -1, QueueDepth: -1, Workers: &trace.Worker{DecodeWorkerID: &worker[rapid.IntRange(0, 1).Draw(t, "worker")]}}
				if rapid.Bool().Draw(t, "of a run") {
					turn.Detail.Run = &trace.RunDetail{Worker: -1, Arrival: start, Planned: trace.NoTime, Ready: trace.NoTime, Due: trace.NoTime,
						Held: maybe("held"), Hit: -1, Computed: -1,
						Gap: trace.Gap{Tool: at.Draw(t, "tool"), Human: at.Draw(t, "human"), Other: at.Draw(t, "other")}}
				}
			}
			if n > 0 && rapid.IntRange(0, 4).Draw(t, "stated") == 0 {
				turn.Explicit = true
				turn.Waits = []trace.Wait{{ID: fmt.Sprint(s.ID, "-", rapid.IntRange(0, n-1).Draw(t, "on")), Delay: at.Draw(t, "delay"),
					OnDispatch: rapid.Bool().Draw(t, "on dispatch")}}
				if rapid.Bool().Draw(t, "unplaced") {
					turn.Start, turn.End = trace.NoTime, trace.NoTime
				}
			}
			s.Turns = append(s.Turns, turn)
		}
		for n := range rapid.IntRange(0, 5).Draw(t, "tools") {
			start := at.Draw(t, "begun") - 2*unit
			span := trace.ToolSpan{ID: fmt.Sprint("t", n), Class: "sh", Start: start, End: trace.NoTime}
			if took := maybe("ran"); took != trace.NoTime {
				span.End = start + took
			}
			s.Tools = append(s.Tools, span)
		}
		c.Sessions = append(c.Sessions, s)
	}
	if err := c.Link(); err != nil {
		t.Skip(err)
	}
	return c
}

// Whatever the capture, the file has no faults (draw sees to that), and every call is in it once with the times of its row.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genCapture(t)
		o := Options{NoStages: rapid.Bool().Draw(t, "no stages"), NoCounters: rapid.Bool().Draw(t, "no counters"), AbsoluteTime: rapid.Bool().Draw(t, "absolute")}
		in := draw(t, o, Source{Label: "random", Capture: c})
		zero := time.Duration(0)
		if o.AbsoluteTime {
			zero = time.Duration(c.Epoch) * time.Millisecond
		}
		for _, s := range c.Sessions {
			for _, span := range s.Tools {
				if !o.AbsoluteTime {
					zero = max(zero, -span.Start)
				}
			}
		}
		calls := map[string]*slice{}
		for _, s := range in.slices {
			if s.is(catTurn) {
				if calls[s.args["request_id"].(string)] != nil {
					t.Fatalf("call %v is there twice", s.args["request_id"])
				}
				calls[s.args["request_id"].(string)] = s
			}
			if s.is(catStage) && (s.parent == nil || !s.parent.is(catTurn)) {
				t.Fatalf("stage %q outside a call", s.name)
			}
		}
		for _, s := range c.Sessions {
			for _, turn := range s.Turns {
				got := calls[turn.ID]
				if got == nil {
					t.Fatalf("call %s is not there", turn.ID)
				}
				if turn.Start != trace.NoTime && got.at != turn.Start+zero {
					t.Fatalf("call %s is at %v, want %v", turn.ID, got.at, turn.Start+zero)
				}
				if turn.End != trace.NoTime && got.took() != turn.End-turn.Start {
					t.Fatalf("call %s takes %v, want %v", turn.ID, got.took(), turn.End-turn.Start)
				}
			}
		}
		checkOrder(t, in)
	})
}

// checkOrder verifies that the subagents of each group are in order of start.
func checkOrder(t *rapid.T, in *imported) {
	starts := map[uint64][]*slice{}
	for _, s := range in.slices {
		if s.is(catProgram) || s.is(catSession) {
			starts[s.track.parent] = append(starts[s.track.parent], s)
		}
	}
	for _, list := range starts {
		slices.SortFunc(list, func(a, b *slice) int { return int(a.track.rank - b.track.rank) })
		for i := 1; i < len(list); i++ {
			if firstTurn(in, list[i]) < firstTurn(in, list[i-1]) {
				t.Fatalf("group %q stands behind %q", list[i].track.name, list[i-1].track.name)
			}
		}
	}
}

// firstTurn is when the first call of a session began whose row says so.
func firstTurn(in *imported, extent *slice) time.Duration {
	first := time.Duration(1<<63 - 1)
	for _, s := range in.slices {
		placed, _ := s.args["inferred"].(string)
		if s.is(catTurn) && s.args["session_id"] == extent.args["session_id"] && !strings.HasPrefix(placed, "start") {
			first = min(first, s.at)
		}
	}
	return first
}
