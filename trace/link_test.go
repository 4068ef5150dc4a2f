package trace

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// call makes a turn with its start and end in milliseconds.
func call(id string, start, end float64) *Turn {
	at := func(x float64) time.Duration { return time.Duration(x * float64(ms)) }
	return &Turn{ID: id, Start: at(start), End: at(end), TTFT: NoTime, Input: 1, Output: 1, Cached: Unknown, Reasoning: Unknown}
}

// stated makes a turn whose source states what it waits for, and not when it started.
func stated(id string, waits ...Wait) *Turn {
	return &Turn{ID: id, Start: NoTime, End: NoTime, TTFT: NoTime, Input: 1, Output: 1, Cached: Unknown, Reasoning: Unknown,
		Explicit: true, Waits: waits}
}

func session(id, parent string, turns ...*Turn) *Session {
	return &Session{ID: id, Parent: parent, Turns: turns}
}

// capture makes a capture on a clock of one millisecond.
func capture(blockSize int, sessions ...*Session) *Capture {
	return &Capture{BlockSize: blockSize, Resolution: ms, SharedClock: true, Sessions: sessions}
}

// edges lists what each turn waits for: "b < a sequence +5ms, x join +5ms".
func edges(c *Capture) (lines []string) {
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			var deps []string
			for _, d := range t.Deps {
				from := "+"
				if d.OnDispatch {
					from = "dispatch+"
				}
				deps = append(deps, fmt.Sprintf("%s %s %s%v", d.Turn.ID, d.Kind, from, d.Delay))
			}
			if deps != nil {
				lines = append(lines, t.ID+" < "+strings.Join(deps, ", "))
			}
		}
	}
	return lines
}

// TestLinkEdges checks the edges that follow from times. Numbers are milliseconds.
func TestLinkEdges(t *testing.T) {
	tests := []struct {
		name       string
		resolution time.Duration // 1 ms if 0
		sessions   []*Session
		want       []string
	}{
		{"a turn waits for the one before it, from its end", 0,
			[]*Session{session("s", "", call("a", 0, 10), call("b", 15, 20))},
			[]string{"b < a sequence +5ms"}},
		{"rows in order of completion", 0,
			[]*Session{session("s", "", call("b", 15, 20), call("a", 0, 10))},
			[]string{"b < a sequence +5ms"}},
		{"of two that begin together the shorter comes first", 0,
			[]*Session{session("s", "", call("a", 0, 10), call("b", 0, 1))},
			[]string{"a < b sequence +0s"}},
		{"calls that overlap stay parallel", 0,
			[]*Session{session("s", "", call("a", 0, 10), call("b", 5, 8))}, nil},
		{"calls of two sessions that overlap stay parallel", 0,
			[]*Session{session("s", "", call("a", 0, 10000)), session("r", "", call("b", 1000, 2000))}, nil},
		{"a turn waits for two that ran in parallel", 0,
			[]*Session{session("s", "", call("a", 0, 10), call("b", 5, 12), call("c", 20, 30))},
			[]string{"c < a sequence +8ms, b sequence +8ms"}},
		{"siblings follow the same turn", 0,
			[]*Session{session("s", "", call("a", 0, 10), call("b", 12, 20), call("c", 13, 21), call("d", 25, 30))},
			[]string{"b < a sequence +2ms", "c < a sequence +3ms", "d < b sequence +4ms, c sequence +4ms"}},
		// a is still running at 12, and joins at 150: 150 - max(100, 20) = 50.
		{"a long call does not stop short ones beside it", 0,
			[]*Session{session("s", "", call("a", 0, 100), call("b", 5, 10), call("c", 12, 20), call("d", 150, 160))},
			[]string{"c < b sequence +2ms", "d < c sequence +50ms, a sequence +50ms"}},
		{"end and start within the resolution of the clock", time.Second,
			[]*Session{session("s", "", call("a", 5000, 7550), call("b", 7000, 9000))},
			[]string{"b < a sequence +0s"}},
		{"the same times on a finer clock overlap", 0,
			[]*Session{session("s", "", call("a", 5000, 7550), call("b", 7000, 9000))}, nil},
		{"a row without an end is waited for by nobody", 0,
			[]*Session{session("s", "", &Turn{ID: "a", Start: 0, End: NoTime}, call("b", 15, 20))}, nil},

		{"a child is spawned and joined", 0,
			[]*Session{session("p", "", call("p0", 0, 10), call("p1", 30, 40)), session("c", "p", call("c0", 12, 20))},
			[]string{"p1 < p0 sequence +10ms, c0 join +10ms", "c0 < p0 spawn +2ms"}},
		{"a child hangs on the last parent turn that had ended, not on one under way", 0,
			[]*Session{session("p", "", call("p0", 0, 10), call("p1", 12, 30)), session("c", "p", call("c0", 15, 20))},
			[]string{"p1 < p0 sequence +2ms", "c0 < p0 spawn +5ms"}},
		{"of two parent turns that end together the later one spawns", 0,
			[]*Session{session("p", "", call("p0", 0, 10), call("p1", 5, 10)), session("c", "p", call("c0", 12, 20))},
			[]string{"c0 < p1 spawn +2ms"}},
		{"a child does not hang on a parent turn that began after it, on a coarse clock either", time.Second,
			[]*Session{session("p", "", call("p0", 7200, 7500)), session("c", "p", call("c0", 7000, 9000))}, nil},
		{"a child that begins before any parent turn ended hangs on nothing", 0,
			[]*Session{session("p", "", call("p0", 0, 10), call("p1", 30, 31)), session("c", "p", call("c0", 5, 20))},
			[]string{"p1 < p0 sequence +10ms, c0 join +10ms"}},
		{"all first calls of a child are spawned, all last ones joined", 0,
			[]*Session{session("p", "", call("p0", 0, 10), call("p1", 30, 40)),
				session("c", "p", call("c0", 12, 20), call("c1", 13, 22))},
			[]string{"p1 < p0 sequence +8ms, c0 join +8ms, c1 join +8ms", "c0 < p0 spawn +2ms", "c1 < p0 spawn +3ms"}},
		// The parent calls at 0, 10 and 30 s; children end at 8, 25 and 99 s. The turn at 30 s waits for the first
		// child through the turn at 10 s.
		{"a parent waits for the children that had ended, others run in the background", 0,
			[]*Session{session("p", "", call("p0", 0, 1000), call("p1", 10000, 11000), call("p2", 30000, 31000)),
				session("c1", "p", call("c1", 2000, 8000)), session("c2", "p", call("c2", 3000, 25000)),
				session("c3", "p", call("c3", 4000, 99000))},
			[]string{"p1 < p0 sequence +2s, c1 join +2s", "p2 < p1 sequence +5s, c2 join +5s",
				"c1 < p0 spawn +1s", "c2 < p0 spawn +2s", "c3 < p0 spawn +3s"}},
		{"children of children", 0,
			[]*Session{session("p", "", call("p0", 0, 10), call("p1", 60, 70)),
				session("c", "p", call("c0", 11, 20), call("c1", 50, 55)),
				session("g", "c", call("g0", 22, 40))},
			[]string{"p1 < p0 sequence +5ms, c1 join +5ms", "c0 < p0 spawn +1ms",
				"c1 < c0 sequence +10ms, g0 join +10ms", "g0 < c0 spawn +2ms"}},
		// On the coarse clock q1 had ended when k0 began, and k0 when q1 began: only one edge can hold.
		{"a coarse clock makes no cycle of parent and child", time.Second,
			[]*Session{session("q", "", call("q0", 7000, 7100), call("q1", 7000, 8000)), session("k", "q", call("k0", 7000, 7100))},
			[]string{"q1 < q0 sequence +0s", "k0 < q1 spawn +0s"}},
		{"a parent that is not in the trace", 0,
			[]*Session{session("c", "gone", call("c0", 12, 20), call("c1", 21, 22))},
			[]string{"c1 < c0 sequence +1ms"}},
		{"a session that is its own parent is a root and may have children", 0,
			[]*Session{session("p", "p", call("p0", 0, 10), call("p1", 30, 40)), session("c", "p", call("c0", 12, 20))},
			[]string{"p1 < p0 sequence +10ms, c0 join +10ms", "c0 < p0 spawn +2ms"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := capture(0, test.sessions...)
			if test.resolution > 0 {
				c.Resolution = test.resolution
			}
			if err := c.Link(); err != nil {
				t.Fatal(err)
			}
			if got := edges(c); !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestLinkStatedEdges checks dependencies that the source states, and that they tie sessions into programs.
func TestLinkStatedEdges(t *testing.T) {
	first := stated("a")
	first.Start = 0
	plain := session("q", "", call("q0", 0, 10), stated("q1", Wait{ID: "a", Delay: ms}))
	c := capture(0,
		session("p", "", first, stated("b", Wait{ID: "a", Delay: 5 * ms}, Wait{ID: "x", Delay: 2 * ms, Kind: KindJoin})),
		session("x", "", stated("x", Wait{ID: "a", Delay: 3 * ms, OnDispatch: true, Kind: KindSpawn})),
		plain)
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	want := []string{"b < a sequence +5ms, x join +2ms", "x < a spawn dispatch+3ms", "q1 < a sequence +1ms"}
	if got := edges(c); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// x waits for a turn of p first of all, so it is p's child, though b of p waits for it too. q states a
	// dependency in its second turn only, and is as much a part of the program.
	if got := []string{c.Sessions[0].Parent, c.Sessions[1].Parent, c.Sessions[2].Parent}; !slices.Equal(got, []string{"", "p", "p"}) {
		t.Errorf("parents of p, x and q are %q, want none, p and p", got)
	}
	// An empty list that is complete means: waits for nothing, though s0 and a child had ended long ago.
	alone := stated("s1")
	alone.Start = 100 * ms
	c = capture(0, session("s", "", call("s0", 0, 10), alone), session("child", "s", call("c0", 12, 20)))
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	if got, want := edges(c), []string{"c0 < s0 spawn +2ms"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLinkLongChain checks that a chain of sessions, each of which waits for the one before, is one program, and that
// its length costs no more than time in proportion: quadratic, 100,000 sessions take minutes.
func TestLinkLongChain(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 20_000
	}
	var sessions []*Session
	for i := range n {
		turn := stated(fmt.Sprint("t", i))
		if i > 0 {
			turn.Waits = []Wait{{ID: fmt.Sprint("t", i-1)}}
		}
		sessions = append(sessions, session(fmt.Sprint("s", i), "", turn))
	}
	slices.Reverse(sessions) // children first: the worst order
	start := time.Now()
	w := compile(t, OutputsInferred, capture(0, sessions...))
	if len(w.Programs) != 1 || w.Calls[0].Turn.ID != "t0" || w.Calls[n-1].Turn.ID != fmt.Sprint("t", n-1) {
		t.Errorf("%d programs, from %s to %s", len(w.Programs), w.Calls[0].Turn.ID, w.Calls[n-1].Turn.ID)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestLinkErrors(t *testing.T) {
	var nested []*Session
	for i := range maxDepth + 2 {
		nested = append(nested, session(fmt.Sprint("s", i), fmt.Sprint("s", i-1), call(fmt.Sprint("t", i), 0, 1)))
	}
	tests := []struct {
		name     string
		sessions []*Session
		want     []string // parts of the message
	}{
		{"parents in a circle", []*Session{session("p", "q", call("a", 0, 1)), session("q", "p", call("b", 0, 1))}, []string{`"p"`, "cycle"}},
		{"a child below a circle", []*Session{session("c", "p", call("c", 0, 1)), session("p", "q", call("a", 0, 1)),
			session("q", "p", call("b", 0, 1))}, []string{`"c"`, "cycle"}},
		{"too deep", nested, []string{`"s65"`, "deeper than 64"}},
		{"unknown request", []*Session{session("s", "", stated("a", Wait{ID: "gone"}))}, []string{`"a"`, `"gone"`}},
		{"waits for itself", []*Session{session("s", "", stated("a", Wait{ID: "a"}))}, []string{`"a"`, "cycle"}},
		{"each waits for the other", []*Session{session("s", "", stated("a", Wait{ID: "b"})), session("r", "", stated("b", Wait{ID: "a"}))},
			[]string{`"a"`, "cycle", `"b"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := capture(0, test.sessions...).Link()
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %s", err, part)
				}
			}
		})
	}
	if err := capture(0, nested[:maxDepth+1]...).Link(); err != nil {
		t.Errorf("%d levels of subagents: %v", maxDepth, err)
	}
}

// TestLinkGap checks how the time between turns is split. Turn a ends at 10 ms, b starts at 110 ms.
func TestLinkGap(t *testing.T) {
	span := func(start, end int) ToolSpan {
		return ToolSpan{Start: time.Duration(start) * ms, End: time.Duration(end) * ms}
	}
	tests := []struct {
		name    string
		trigger string
		tools   []ToolSpan
		want    Gap
	}{
		{"nothing known", "", nil, Gap{Other: 100 * ms}},
		{"a human", "user_message", nil, Gap{Human: 100 * ms}},
		{"a tool without a span", "tool_result", nil, Gap{Tool: 100 * ms}},
		{"something else", "other", nil, Gap{Other: 100 * ms}},
		{"one tool", "tool_result", []ToolSpan{span(20, 50)}, Gap{Tool: 30 * ms, Other: 70 * ms}},
		{"tools, then a human", "user_message", []ToolSpan{span(20, 50)}, Gap{Tool: 30 * ms, Human: 70 * ms}},
		// 20..60 and 80..90: 40 + 10, not 40 + 20 + 10.
		{"parallel tools count once", "", []ToolSpan{span(20, 60), span(30, 50), span(80, 90)}, Gap{Tool: 50 * ms, Other: 50 * ms}},
		{"tools in no order", "", []ToolSpan{span(80, 90), span(30, 50), span(20, 60)}, Gap{Tool: 50 * ms, Other: 50 * ms}},
		// 10..20 and 100..110.
		{"tools are clipped to the gap", "", []ToolSpan{span(5, 20), span(100, 300)}, Gap{Tool: 20 * ms, Other: 80 * ms}},
		{"tools outside the gap", "", []ToolSpan{span(0, 10), span(110, 120)}, Gap{Other: 100 * ms}},
		{"a tool that ends before it starts", "", []ToolSpan{span(60, 20)}, Gap{Other: 100 * ms}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := session("s", "", call("a", 0, 10), call("b", 110, 120))
			s.Tools, s.Turns[1].Trigger = test.tools, test.trigger
			if err := capture(0, s).Link(); err != nil {
				t.Fatal(err)
			}
			if got := s.Turns[1].Gap; got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if s.Turns[0].Gap != (Gap{}) {
				t.Errorf("the first turn has the gap %+v", s.Turns[0].Gap)
			}
			if delay := s.Turns[1].Deps[0].Delay; delay != 100*ms {
				t.Errorf("delay %v, want the whole gap", delay)
			}
		})
	}
}

// TestLinkGapOfOverlap checks turns that began, within the resolution, before the end of what they wait for.
func TestLinkGapOfOverlap(t *testing.T) {
	s := session("s", "", call("a", 0, 1900), call("b", 1000, 3000))
	s.Tools = []ToolSpan{{Start: 900 * ms, End: 1950 * ms}}
	c := capture(0, s)
	c.Resolution = time.Second
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	if b := s.Turns[1]; len(b.Deps) != 1 || b.Deps[0].Delay != 0 || b.Gap != (Gap{}) {
		t.Errorf("edges %q, gap %+v, want a wait without a gap", edges(c), b.Gap)
	}
}

// TestLinkStatedGap checks that a stated delay is split by the tool wait that the source gave in Gap.Tool.
func TestLinkStatedGap(t *testing.T) {
	tests := []struct {
		tool, delay int
		want        Gap
	}{
		{30, 100, Gap{Tool: 30 * ms, Other: 70 * ms}},
		{0, 100, Gap{Other: 100 * ms}},
		{300, 100, Gap{Tool: 100 * ms}},
	}
	for _, test := range tests {
		b := stated("b", Wait{ID: "a", Delay: time.Duration(test.delay) * ms}, Wait{ID: "a", Delay: 500 * ms, OnDispatch: true})
		b.Gap.Tool = time.Duration(test.tool) * ms
		if err := capture(0, session("s", "", call("a", 0, 10), b)).Link(); err != nil {
			t.Fatal(err)
		}
		if b.Gap != test.want {
			t.Errorf("tool wait %d of %d ms: got %+v, want %+v", test.tool, test.delay, b.Gap, test.want)
		}
	}
}

// TestLinkCut checks sessions whose first turn answers a tool call made before the capture.
func TestLinkCut(t *testing.T) {
	tests := []struct {
		name          string
		trigger       string
		input, cached int32
		want          int32
		inferred      Fields
	}{
		{"begins with a user", "user_message", 100, 90, 0, 0},
		{"begins with a tool result; the recorded server had 90 tokens of it", "tool_result", 100, 90, 90, FieldCut},
		{"all but the last block when the cached tokens are not told", "tool_result", 100, Unknown, 100 - 16, FieldCut},
		{"shorter than a block", "tool_result", 10, Unknown, 0, FieldCut},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a, b := call("a", 0, 10), call("b", 20, 30)
			a.Trigger, a.Input, a.Cached = test.trigger, test.input, test.cached
			child := call("c", 12, 15)
			for _, t := range []*Turn{b, child} { // these wait for a call that is in the capture
				t.Trigger, t.Input = "tool_result", 200
			}
			if err := capture(16, session("s", "", a, b), session("c", "s", child)).Link(); err != nil {
				t.Fatal(err)
			}
			if a.Cut != test.want || a.Inferred != test.inferred {
				t.Errorf("cut %d, inferred %q, want %d and %q", a.Cut, a.Inferred.Names(), test.want, test.inferred.Names())
			}
			if b.Cut != 0 || child.Cut != 0 {
				t.Errorf("a later turn is cut to %d, a child to %d", b.Cut, child.Cut)
			}
		})
	}
}
