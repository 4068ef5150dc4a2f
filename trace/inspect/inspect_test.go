package inspect

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

const block = 100 // tokens of a hash in these tests

// call is a turn of a test: [start, end) in seconds, and the hashes of its prompt's blocks.
func call(id string, start, end int, output int32, hashes ...uint64) *trace.Turn {
	return &trace.Turn{ID: id, Start: time.Duration(start) * time.Second, End: time.Duration(end) * time.Second, TTFT: trace.NoTime,
		Input: int32(len(hashes)) * block, Output: output, Cached: trace.Unknown, Reasoning: trace.Unknown, Hashes: hashes}
}

// family is two programs, drawn over time in seconds:
//
//	root   0─10 user      tools 10─19    20─30 joins   person 30─90   90─95
//	child       12─18
//	other                                      40─45
//
// Blocks 1 is the system prompt of all. The root's first answer of 101 tokens is block 3 of its second prompt; its third
// prompt begins anew behind the system prompt.
func family() *trace.Capture {
	root := &trace.Session{ID: "root", Class: "planner", Turns: []*trace.Turn{
		call("r1", 0, 10, 101, 1, 2),
		call("r2", 20, 30, 11, 1, 2, 3, 4, 5),
		call("r3", 90, 95, 1, 1, 6),
	}, Tools: []trace.ToolSpan{
		{ID: "t1", Class: "bash", Start: 10 * time.Second, End: 14 * time.Second, Status: "succeeded"},
		{ID: "t2", Class: "bash", Start: 12 * time.Second, End: 19 * time.Second, Status: "error"},
	}}
	root.Turns[1].Cached = 250
	root.Turns[0].Cached = 0
	root.Turns[2].Trigger = "user_message"
	root.Turns[2].Compaction = true
	child := &trace.Session{ID: "child", Parent: "root", Class: "explorer", Turns: []*trace.Turn{call("c1", 12, 18, 11, 1, 7)}}
	other := &trace.Session{ID: "other", Class: "planner", Turns: []*trace.Turn{call("o1", 40, 45, 1, 1, 8, 9)}}
	return &trace.Capture{Format: "test", BlockSize: block, SharedClock: true, Sessions: []*trace.Session{root, child, other}}
}

func summarise(t *testing.T, c *trace.Capture, pool int64) *Summary {
	t.Helper()
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	s, err := Summarise(context.Background(), c, pool)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func near(t *testing.T, what string, got report.Figure, want float64) {
	t.Helper()
	if !got.Known || math.Abs(got.Value-want) > 1e-9*math.Abs(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestByHand works out what family holds.
func TestByHand(t *testing.T) {
	s := summarise(t, family(), 500)
	type figures map[string]any
	got := figures{
		"programs": s.Programs, "sessions": s.Sessions, "subagents": s.Subagents, "turns": s.Turns, "span": s.SpanS.Value,
		"depth": s.Shape.Depth, "turns of the largest": s.Shape.SessionTurns.Max.Value,
		"input": s.Tokens.Input, "output": s.Tokens.Output, "cached": s.Tokens.Cached, "cached of": s.Tokens.CachedOf,
		"growth": s.Shape.Growth.Count, "grown": s.Shape.Growth.Max.Value, "compactions": s.Shape.Compactions, "shrunk": s.Shape.Shrunk,
		"tool wait": s.Waits.ToolS.Total.Value, "human wait": s.Waits.HumanS.Total.Value, "other wait": s.Waits.OtherS.Total.Value,
		"distinct": s.KV.Distinct, "programs' peaks": []float64{s.KV.ProgramPeak.Min.Value, s.KV.ProgramPeak.Max.Value},
		"peak": s.OverTime.WorkingSet.Peak.Value, "calls": s.OverTime.Calls.Peak.Value, "lives": s.OverTime.Programs.Peak.Value,
	}
	want := figures{
		"programs": int64(2), "sessions": int64(3), "subagents": int64(1), "turns": int64(5), "span": 95.0,
		"depth": []int64{2, 1}, "turns of the largest": 3.0,
		"input": int64(200 + 500 + 200 + 200 + 300), "output": int64(101 + 11 + 1 + 11 + 1), "cached": int64(250), "cached of": int64(700),
		// The second prompt of the root is 300 tokens longer than the first; the third is less than half of the second.
		"growth": int64(1), "grown": 300.0, "compactions": int64(1), "shrunk": int64(1),
		// r2 waits from 18 s, when the child ended, to 20 s, the first second for a tool; c1 waits 2 s after r1, r3 60 s for a person.
		"tool wait": 1.0, "human wait": 60.0, "other wait": 3.0,
		// Blocks 1 to 9, the half of its answer that r1 does not share with r2, as only 250 tokens of that were cached, and the
		// answers of r2 and c1, but for their last tokens.
		"distinct": int64(900 + 50 + 10 + 10),
		// While r2 runs, its 500 tokens and the 10 that it generates.
		"programs' peaks": []float64{300, 510},
		"peak":            510.0, "calls": 1.0, "lives": 2.0,
	}
	for name, value := range want {
		if !reflect.DeepEqual(got[name], value) {
			t.Errorf("%s: %v, want %v", name, got[name], value)
		}
	}
	// Block 1 lives for 95 s, block 2 and half of block 3 for 30 s, the rest of r1 and r2 for 10 s each, block 6 for 5 s, c1 for
	// 6 s, blocks 8 and 9 for 5 s.
	near(t, "mean working set", s.OverTime.WorkingSet.Mean, (100*95+150*30+50*10+260*10+100*5+110*6+200*5)/95.0)
	near(t, "turns a second, mean", s.OverTime.Starts.Mean, 5/95.0)
	near(t, "turns a second in the first part", s.OverTime.Starts.Means[0], 1/(95.0/60))
	near(t, "time above 500 tokens", s.OverTime.AbovePool, 10/95.0)
	near(t, "programs in 500 tokens", s.KV.PoolPrograms, 500/((18260/95.0+300)/2))
	bash := s.Tools[0]
	near(t, "CV of 4 s and 7 s", bash.CV, 1.5/5.5)
	if bash.Name != "bash" || bash.Seconds.Count != 2 || bash.Errors != 1 || bash.Inferred || bash.EstimateError.Known {
		t.Errorf("bash is %+v: it ran twice at once, so nothing was known before", bash)
	}
	// Prompts hit: r2 blocks 1 and 2; c1, o1 and r3 block 1. With outputs r2 also hits block 3, the answer of r1.
	if got, want := s.Reuse.Prompts.Value, 500.0/1400; got != want {
		t.Errorf("a cache of prompts hits %v, want %v", got, want)
	}
	if got, want := s.Reuse.Outputs.Value, (500.0+50)/1400; got != want {
		t.Errorf("a cache of outputs too hits %v, want %v: the recorded 250 cached tokens bound it", got, want)
	}
	if got, want := s.Reuse.Recorded.Value, 250.0/700; got != want {
		t.Errorf("the recorded hit rate is %v, want %v", got, want)
	}
}

// TestRoles tells roots from subagents, and classes from each other.
func TestRoles(t *testing.T) {
	s := summarise(t, family(), 0)
	type role struct {
		subagent        bool
		class           string
		sessions, turns int64
		output, awaited report.Figure
	}
	var got []role
	for _, r := range s.Roles {
		got = append(got, role{r.Subagent, r.Class, r.Sessions, r.Turns, r.Output.Mean, r.Awaited})
	}
	want := []role{{false, "planner", 2, 4, report.Known(28.5), report.Figure{}}, {true, "explorer", 1, 1, report.Known(11), report.Known(1)}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("roles are %+v, want %+v", got, want)
	}
	background := family()
	background.Sessions[1].Turns[0].End = 200 * time.Second
	if r := summarise(t, background, 0).Roles[1]; r.Awaited != report.Known(0) {
		t.Errorf("a child that outlives its parent is awaited: %+v", r)
	}
}

// TestNoCommonClock keeps programs apart that each begin at 0.
func TestNoCommonClock(t *testing.T) {
	c := family()
	c.SharedClock = false
	o := c.Sessions[2].Turns[0]
	o.Start, o.End = 0, 200*time.Second
	s := summarise(t, c, 500)
	if s.OverTime != nil {
		t.Errorf("there is a concurrency of programs that cannot be compared: %+v", s.OverTime)
	}
	near(t, "the longest program", s.SpanS, 200)
	near(t, "working set of the root's program", s.KV.ProgramPeak.Max, 510)
	alone := family()
	alone.SharedClock, alone.Sessions = false, alone.Sessions[:2]
	if s := summarise(t, alone, 0); s.OverTime == nil || !s.SharedClock {
		t.Error("one program has nothing over time, though its calls have one clock")
	}
	// The second program comes behind the first, so that it is the one that hits block 1.
	near(t, "prompts", s.Reuse.Prompts, 500.0/1400)
}

// Calls that tell no ends use KV for no time that is known. What one of them needs again of another, 10 s later, it uses from
// the start of that one on: 2 blocks for a third of 30 s.
func TestEndless(t *testing.T) {
	capture := func(second ...uint64) *trace.Capture {
		c := &trace.Capture{Format: "test", BlockSize: block, SharedClock: true}
		for i, turn := range []*trace.Turn{call("a", 0, 0, 1, 1, 2), call("b", 10, 0, 1, second...), call("c", 30, 0, 1, 8)} {
			turn.End = trace.NoTime
			c.Sessions = append(c.Sessions, &trace.Session{ID: fmt.Sprint(i), Turns: []*trace.Turn{turn}})
		}
		return c
	}
	if s := summarise(t, capture(5, 6), 1000); s.OverTime.WorkingSet.Peak.Known || s.OverTime.WorkingSet.Mean.Known || s.OverTime.AbovePool.Known {
		t.Errorf("nothing is known of the working set: %+v", s.OverTime)
	}
	near(t, "mean working set", summarise(t, capture(1, 2, 5), 1000).OverTime.WorkingSet.Mean, 2*block/3.)
}

// TestUntimed places calls whose times are not told where their dependencies allow.
func TestUntimed(t *testing.T) {
	c := family()
	s := c.Sessions[2]
	s.Turns = append(s.Turns, &trace.Turn{ID: "o2", Start: trace.NoTime, End: trace.NoTime, TTFT: 2 * time.Second, Input: 300, Output: 1,
		Cached: trace.Unknown, Reasoning: trace.Unknown, Hashes: []uint64{1, 8, 9}, Explicit: true,
		Waits: []trace.Wait{{ID: "o1", Delay: 60 * time.Second}}})
	s.Turns[0].Inferred = trace.FieldStart | trace.FieldEnd
	sum := summarise(t, c, 0)
	if sum.Untimed != 1 || sum.Endless != 1 || sum.Filled != 1 {
		t.Errorf("%d untimed, %d endless and %d turns with filled times, want one of each", sum.Untimed, sum.Endless, sum.Filled)
	}
	near(t, "o2 ends 62 s after 45 s", sum.SpanS, 107)
}

// TestShow prints a tree: the child below the turn that spawned it.
func TestShow(t *testing.T) {
	c := family()
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	s, err := Show(c, "root")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Turns) != 3 || len(s.Turns[0].Spawned) != 1 || s.Turns[0].Spawned[0].ID != "child" || len(s.Unplaced) != 0 {
		t.Fatalf("the tree is %+v", s)
	}
	r2 := s.Turns[1]
	if r2.Reusable != 250 || r2.Cached != report.Known(250) || !reflect.DeepEqual(r2.Joins, []string{"child"}) || r2.ToolS != report.Known(1) {
		t.Errorf("the second turn is %+v", r2)
	}
	if child, err := Show(c, "child"); err != nil || child.Parent != "root" || child.Turns[0].StartS != report.Known(12) {
		t.Errorf("the child alone is %+v, %v", child, err)
	}
	if none, err := Show(c, "nobody"); none != nil || err != nil {
		t.Errorf("nobody is %+v, %v", none, err)
	}
}

// TestHostileTimes adds up delays that no clock can hold, and sessions that spawn each other without end.
func TestHostileTimes(t *testing.T) {
	const long = 30 * 365 * 24 * time.Hour
	c := &trace.Capture{BlockSize: block, SharedClock: true}
	for i := range 100 {
		turn := &trace.Turn{ID: fmt.Sprint(i), Start: trace.NoTime, End: trace.NoTime, TTFT: long, Input: 1, Output: 1, Explicit: true,
			Cached: trace.Unknown, Reasoning: trace.Unknown}
		if i == 0 {
			turn.Start = 0
		} else {
			turn.Waits = []trace.Wait{{ID: fmt.Sprint(i - 1), Delay: long}}
		}
		c.Sessions = append(c.Sessions, &trace.Session{ID: fmt.Sprint(i), Turns: []*trace.Turn{turn}})
	}
	s := summarise(t, c, 1)
	if s.SpanS.Value != never.Seconds() || len(s.Shape.Depth) != 100 {
		t.Errorf("a span of %v with sessions %d deep, want never and 100", s.SpanS, len(s.Shape.Depth))
	}
	if _, err := Show(c, "0"); err == nil {
		t.Error("100 sessions are shown below each other")
	}
	if s, err := Show(c, "60"); err != nil || s.Turns[0].ID != "60" {
		t.Errorf("session 60 is %+v, %v", s, err)
	}
}
