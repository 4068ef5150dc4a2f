package perfetto

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsim/agentsim/trace"
)

// Lanes are those that looking through all of them gives.
func TestLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 40).Draw(t, "starts")
		slices.Sort(times)
		var l lanes
		var ends []time.Duration // by lane
		for _, at := range times {
			start := time.Duration(at)
			end := start + time.Duration(rapid.IntRange(0, 6).Draw(t, "length"))
			want := slices.IndexFunc(ends, func(e time.Duration) bool { return e <= start })
			if want < 0 {
				want = len(ends)
				ends = append(ends, 0)
			}
			ends[want] = end
			if got := l.take(start, end); got != want {
				t.Fatalf("[%v, %v] is on lane %d, want %d", start, end, got, want)
			}
		}
	})
}

// Late lanes overlap nowhere, and are no more than those of the same intervals in order of start.
func TestLateLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(0, 1).Draw(t, "least length")
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) interval {
			start := rapid.IntRange(0, 20).Draw(t, "start")
			return interval{time.Duration(start), time.Duration(start + rapid.IntRange(least, 6).Draw(t, "length"))}
		}), 1, 40).Draw(t, "intervals")
		slices.SortStableFunc(list, func(a, b interval) int { return int(a.end - b.end) })
		var late lateLanes
		on := map[int]time.Duration{} // the end of the last one
		for _, v := range list {
			lane, ok := late.take(v.start, v.end)
			if !ok || on[lane] > v.start {
				t.Fatalf("%v is on lane %d (%v), where one ends at %v", v, lane, ok, on[lane])
			}
			on[lane] = v.end
		}
		slices.SortStableFunc(list, func(a, b interval) int { return int(a.start - b.start) })
		var early lanes
		for _, v := range list {
			early.take(v.start, v.end)
		}
		if least > 0 && len(on) != early.used {
			t.Errorf("%d lanes, want %d", len(on), early.used)
		}
	})
}

// There is no end of lanes.
func TestLateLanesAreBounded(t *testing.T) {
	var l lateLanes
	for i := range maxLate {
		if lane, ok := l.take(0, time.Second); !ok || lane != i {
			t.Fatalf("interval %d is on lane %d (%v)", i, lane, ok)
		}
	}
	if lane, ok := l.take(0, time.Second); ok {
		t.Errorf("one too many is on lane %d", lane)
	}
	if _, ok := l.take(time.Second, 2*time.Second); !ok {
		t.Error("no lane is free again")
	}
}

// The parts of intervals between two times are those that looking at every instant gives.
func TestWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := session{Session: &trace.Session{}}
		at := 0
		for range rapid.IntRange(0, 5).Draw(t, "tools") {
			at += rapid.IntRange(0, 5).Draw(t, "gap")
			span := trace.ToolSpan{Start: time.Duration(at), End: time.Duration(at + rapid.IntRange(0, 8).Draw(t, "length"))}
			if rapid.IntRange(0, 5).Draw(t, "endless") == 0 {
				span.End = trace.NoTime
			}
			s.Tools = append(s.Tools, span)
		}
		from := rapid.IntRange(0, 20).Draw(t, "from")
		to := from + rapid.IntRange(0, 20).Draw(t, "length")
		var got [40]bool
		for _, v := range within(s.busy(), time.Duration(from), time.Duration(to)) {
			for at := v.start; at < v.end; at++ {
				if got[at] {
					t.Fatalf("%v is there twice", at)
				}
				got[at] = true
			}
		}
		for at := range got {
			ran := slices.ContainsFunc(s.Tools, func(tool trace.ToolSpan) bool { return tool.Start <= time.Duration(at) && time.Duration(at) < tool.End })
			if want := ran && from <= at && at < to; got[at] != want {
				t.Fatalf("%d: %v, want %v", at, got[at], want)
			}
		}
	})
}
