package trace

import (
	"slices"
	"testing"
	"time"
)

// TestPath cuts one tree at several block sizes. Two programs begin with the same 8 tokens, two trace blocks of 4,
// and go on to 16 and 14:
//
//	tokens  0        8                16
//	t0      [1  2   ][3  4           ]
//	t1      [1  2   ][5  6 (2 tokens)]
func TestPath(t *testing.T) {
	w := compile(t, OutputsInferred, capture(4, oneByOne(session("s", "", prompt(16, 1, 1, 2, 3, 4)),
		session("r", "", prompt(14, 1, 1, 2, 5, 6)))...))
	type span struct {
		shared   bool // with the other call
		copy     uint32
		from, to int32
	}
	tests := []struct {
		name            string
		call, blockSize int
		copy            uint32
		want            []span
	}{
		{"trace blocks", 0, 4, 0, []span{{true, 0, 0, 2}, {false, 0, 2, 4}}},
		{"tokens", 0, 1, 0, []span{{true, 0, 0, 8}, {false, 0, 8, 16}}},
		// Block 2 of 3 tokens is 6..8 and becomes full behind the fork; 15 of 16 tokens are in full blocks.
		{"a block over the fork belongs behind it", 0, 3, 0, []span{{true, 0, 0, 2}, {false, 0, 2, 5}}},
		{"one block over the fork", 0, 16, 0, []span{{false, 0, 0, 1}}},
		{"no full block", 0, 64, 0, nil},
		// t1 is 8 + 4 tokens and a tail of 2: the tail is a node of its own, but ends no block of 4.
		{"a tail shorter than a block is left out", 1, 4, 0, []span{{true, 0, 0, 2}, {false, 0, 2, 3}}},
		{"a tail of one block", 1, 2, 0, []span{{true, 0, 0, 4}, {false, 0, 4, 6}, {false, 0, 6, 7}}},
		{"a repeated program shares what programs share", 0, 4, 3, []span{{true, 0, 0, 2}, {false, 3, 2, 4}}},
		{"and nothing over the fork", 0, 16, 3, []span{{false, 3, 0, 1}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, other := &w.Calls[test.call], &w.Calls[1-test.call]
			var got []span
			for _, s := range w.Path(c.End, c.Computed(), test.blockSize, test.copy, nil) {
				got = append(got, span{w.Within(other.End, s.Key.Node()), s.Key.Copy(), s.From, s.To})
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	c := &w.Calls[0]
	if got := w.Path(c.End, c.Computed(), 4, 0, []Span{{From: 7, To: 9}}); len(got) != 3 || got[0] != (Span{From: 7, To: 9}) {
		t.Errorf("Path does not append to its buffer: %+v", got)
	}
	if got := w.Path(0, 0, 4, 0, nil); len(got) != 0 {
		t.Errorf("the root has the path %+v", got)
	}
}

// TestPathSplitsSharedNode checks a node that another program shares in part: no fork divides it, so the shared
// extent does.
func TestPathSplitsSharedNode(t *testing.T) {
	w := compile(t, OutputsInferred, capture(4, oneByOne(session("s", "", prompt(24, 1, 1, 2, 3, 4, 5, 6)),
		session("r", "", prompt(12, 1, 1, 2, 3)))...))
	long, short := &w.Calls[0], &w.Calls[1]
	if long.End != short.End || w.Nodes() != 2 {
		t.Fatalf("%d nodes, ends %d and %d: want one node below the root", w.Nodes(), long.End, short.End)
	}
	n := long.End
	tests := []struct {
		blockSize int
		copy      uint32
		want      []Span
	}{
		{4, 0, []Span{{MakeKey(n, 0), 0, 6}}},
		{4, 5, []Span{{MakeKey(n, 0), 0, 3}, {MakeKey(n, 5), 3, 6}}},
		// 12 shared tokens hold one block of 8.
		{8, 5, []Span{{MakeKey(n, 0), 0, 1}, {MakeKey(n, 5), 1, 3}}},
		{16, 5, []Span{{MakeKey(n, 5), 0, 1}}},
	}
	for _, test := range tests {
		if got := w.Path(n, long.Computed(), test.blockSize, test.copy, nil); !slices.Equal(got, test.want) {
			t.Errorf("blocks of %d in copy %d: got %+v, want %+v", test.blockSize, test.copy, got, test.want)
		}
	}
}

func TestWithin(t *testing.T) {
	// t0 and t1 fork behind block 1; the output of t0 is a node of its own below its prompt.
	w := compile(t, OutputsNone, capture(4, oneByOne(session("s", "", prompt(8, 5, 1, 2)), session("r", "", prompt(8, 1, 1, 3)))...))
	a, b := &w.Calls[0], &w.Calls[1]
	tests := []struct {
		name     string
		n, under NodeID
		want     bool
	}{
		{"a node in itself", a.Prompt, a.Prompt, true},
		{"an output under its prompt", a.End, a.Prompt, true},
		{"a prompt under its output", a.Prompt, a.End, false},
		{"a branch under the other", b.Prompt, a.Prompt, false},
		{"all under the root", b.End, 0, true},
		{"the root under a node", 0, b.End, false},
	}
	for _, test := range tests {
		if got := w.Within(test.n, test.under); got != test.want {
			t.Errorf("%s: got %v", test.name, got)
		}
	}
}

func TestKey(t *testing.T) {
	for _, n := range []NodeID{0, 1, 1<<31 - 1} {
		for _, copies := range []uint32{0, 1, 1<<32 - 1} {
			if k := MakeKey(n, copies); k.Node() != n || k.Copy() != copies {
				t.Errorf("node %d, copy %d: got %d and %d", n, copies, k.Node(), k.Copy())
			}
		}
	}
}

// TestPrograms checks the order of programs and of their calls, and when they start.
func TestPrograms(t *testing.T) {
	waiting := stated("q1", Wait{ID: "q0", Delay: ms})
	c := capture(0,
		session("g", "c", call("g0", 50, 60)), // a child's child, listed before its parents
		session("q", "", call("q0", 7, 9), waiting),
		session("empty", ""),
		session("c", "p", call("c0", 45, 90)),
		session("p", "", call("p1", 95, 99), call("p0", 40, 44)),
		session("o", "gone", call("o0", 20, 30)),
		session("e", "o", call("e0", 15, 18)),
	)
	w := compile(t, OutputsInferred, c)
	var ids []string
	var offsets []time.Duration
	for _, c := range w.Calls {
		ids, offsets = append(ids, c.Turn.ID), append(offsets, c.Offset)
	}
	// Programs stand in the order in which their roots appear; parents before children.
	if want := []string{"q0", "q1", "p0", "p1", "c0", "g0", "o0", "e0"}; !slices.Equal(ids, want) {
		t.Errorf("calls %v, want %v", ids, want)
	}
	// p0 is the first call of its program, at 40 ms. In the last one a child's call, at 15 ms, is.
	if want := []time.Duration{0, NoTime, 0, 55 * ms, 5 * ms, 10 * ms, 5 * ms, 0}; !slices.Equal(offsets, want) {
		t.Errorf("offsets %v, want %v", offsets, want)
	}
	if want := []Program{{0, 2, 7 * ms}, {2, 6, 40 * ms}, {6, 8, 15 * ms}}; !slices.Equal(w.Programs, want) {
		t.Errorf("programs %+v, want %+v", w.Programs, want)
	}
	for i, want := range []struct{ program, session int32 }{{0, 1}, {0, 1}, {1, 4}, {1, 4}, {1, 3}, {1, 0}, {2, 5}, {2, 6}} {
		if c := w.Calls[i]; c.Program != want.program || c.Session != want.session {
			t.Errorf("%s is of program %d and session %d, want %+v", c.Turn.ID, c.Program, c.Session, want)
		}
	}
}

// TestProgramWithoutTimes checks that a program whose calls have no recorded start begins at zero.
func TestProgramWithoutTimes(t *testing.T) {
	w := compile(t, OutputsInferred, capture(0, session("s", "", stated("a"), stated("b", Wait{ID: "a"}))))
	if p := w.Programs[0]; p.Start != 0 || w.Calls[0].Offset != NoTime || w.Calls[1].Offset != NoTime {
		t.Errorf("program starts at %v, calls at %v and %v", p.Start, w.Calls[0].Offset, w.Calls[1].Offset)
	}
}

// TestSuccessors checks that edges lead to the calls that wait, with their delays.
func TestSuccessors(t *testing.T) {
	c := capture(0,
		session("p", "", call("p0", 0, 10), call("p1", 30, 40)),
		session("c", "p", call("c0", 12, 20)),
		session("d", "p", stated("d0", Wait{ID: "p0", Delay: 3 * ms, OnDispatch: true})))
	w := compile(t, OutputsInferred, c)
	// Calls: 0 p0, 1 p1, 2 c0, 3 d0.
	want := [][]Edge{
		{{To: 1, Delay: 10 * ms}, {To: 2, Delay: 2 * ms}, {To: 3, Delay: 3 * ms, OnDispatch: true}},
		nil,
		{{To: 1, Delay: 10 * ms}},
		nil,
	}
	for i, edges := range want {
		if got := w.Successors(&w.Calls[i]); !slices.Equal(got, edges) {
			t.Errorf("edges out of %s: %+v, want %+v", w.Calls[i].Turn.ID, got, edges)
		}
	}
	for i, waits := range []int32{0, 2, 1, 1} {
		if w.Calls[i].Waits != waits {
			t.Errorf("%s waits for %d calls, want %d", w.Calls[i].Turn.ID, w.Calls[i].Waits, waits)
		}
	}
}

// TestOutputBlocks counts blocks that become full in the output. The first call has 10 prompt tokens and 7 output
// tokens, 6 of them computed: tokens 10 to 15 of its path.
func TestOutputBlocks(t *testing.T) {
	recorded := with(prompt(10, 7, 1, 2, 3), func(t *Turn) { t.OutputHashes = []uint64{40, 41, 42} })
	limited := with(prompt(24, 1, 1, 2, 30, 31, 32, 33), func(t *Turn) { t.Cached = 13 })
	tests := []struct {
		name      string
		turns     []*Turn
		blockSize int
		want      OutputTokens
	}{
		// Blocks 8..11 and 12..15: ⌊16/4⌋ - ⌊10/4⌋.
		{"inferred", []*Turn{prompt(10, 7, 1, 2, 3), prompt(24, 1, 1, 2, 30, 31, 32, 33)}, 4, OutputTokens{Inferred: 2}},
		{"inferred, one block of 16", []*Turn{prompt(10, 7, 1, 2, 3), prompt(24, 1, 1, 2, 30, 31, 32, 33)}, 16, OutputTokens{Inferred: 1}},
		{"inferred up to token 13", []*Turn{prompt(10, 7, 1, 2, 3), limited}, 4, OutputTokens{Inferred: 1, Unknown: 1}},
		{"in tokens", []*Turn{prompt(10, 7, 1, 2, 3), limited}, 1, OutputTokens{Inferred: 3, Unknown: 3}},
		{"unknown", []*Turn{prompt(10, 7, 1, 2, 3)}, 4, OutputTokens{Unknown: 2}},
		{"known", []*Turn{recorded}, 4, OutputTokens{Known: 2}},
		{"none full", []*Turn{prompt(10, 7, 1, 2, 3)}, 32, OutputTokens{}},
	}
	for _, test := range tests {
		w := compile(t, OutputsInferred, capture(4, oneByOne(session("s", "", test.turns...))...))
		if got := w.OutputBlocks(test.blockSize); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

// TestForkTokens counts what hashes cannot show: each branch that leaves another may share up to 3 tokens more with
// it when hashes stand for 4.
func TestForkTokens(t *testing.T) {
	tests := []struct {
		name  string
		turns []*Turn
		want  int64
	}{
		{"a chain", []*Turn{prompt(8, 0, 1, 2), prompt(16, 0, 1, 2, 3, 4)}, 0},
		{"one fork", []*Turn{prompt(12, 0, 1, 2, 3), prompt(12, 0, 1, 4, 5)}, 3},
		{"three ways", []*Turn{prompt(8, 0, 1, 2), prompt(8, 0, 1, 3), prompt(8, 0, 1, 4)}, 6},
		{"a fork at the start", []*Turn{prompt(8, 0, 1, 2), prompt(8, 0, 3, 4)}, 3},
		{"two forks", []*Turn{prompt(12, 0, 1, 2, 3), prompt(12, 0, 1, 2, 4), prompt(12, 0, 1, 5, 6)}, 6},
	}
	for _, test := range tests {
		w := compile(t, OutputsInferred, capture(4, oneByOne(session("s", "", test.turns...))...))
		if w.ForkTokens != test.want {
			t.Errorf("%s: got %d, want %d", test.name, w.ForkTokens, test.want)
		}
	}
}
