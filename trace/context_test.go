package trace

import (
	"encoding/json"
	"slices"
	"testing"
)

// sum is what tests look at of a turn with a limited context.
type sum struct {
	input, cached int32
	chain         []uint64
}

func sums(s *Session) (list []sum) {
	for _, t := range s.Turns {
		list = append(list, sum{t.Input, t.Cached, t.Chain()})
	}
	return list
}

// growing makes a session of blocks of 4 tokens, each turn told by the one before it: 10, 18, 26 and 34 prompt
// tokens with 2 output tokens each.
func growing() *Session {
	turns := []*Turn{prompt(10, 2, 1, 2, 3), prompt(18, 2, 30, 4, 5), prompt(26, 2, 50, 6, 7), prompt(34, 2, 70, 8, 9)}
	for i, shared := range []int32{0, 2, 4, 6} {
		if turns[i].Shared = shared; i > 0 {
			turns[i].Base = turns[i-1]
		}
	}
	turns[1].Cached, turns[3].Cached = 8, 24
	return oneByOne(session("s", "", turns...))[0]
}

func TestLimitContext(t *testing.T) {
	tests := []struct {
		name    string
		limit   int
		how     string
		changed int
		want    []sum
	}{
		{"all fit", 36, "truncate", 0, []sum{
			{10, Unknown, []uint64{1, 2, 3}}, {18, 8, []uint64{1, 2, 30, 4, 5}},
			{26, Unknown, []uint64{1, 2, 30, 4, 50, 6, 7}}, {34, 24, []uint64{1, 2, 30, 4, 50, 6, 70, 8, 9}}}},
		// 23 - 2 output tokens leave room for 21: 5 full blocks and a tail without a hash, as no recorded hash
		// stands for it. The last turn's 24 cached tokens are no longer all there.
		{"the head of long prompts", 23, "truncate", 2, []sum{
			{10, Unknown, []uint64{1, 2, 3}}, {18, 8, []uint64{1, 2, 30, 4, 5}},
			{21, Unknown, []uint64{1, 2, 30, 4, 50}}, {21, Unknown, []uint64{1, 2, 30, 4, 50}}}},
		// 26 + 2 > 23: the third turn starts over where the second prompt's full blocks ended, at 18/4*4 = 16; the
		// fourth keeps that off, 34 - 16 + 2 = 20 fit. Of its 24 cached tokens 8 are left.
		{"a new chain", 23, "split", 2, []sum{
			{10, Unknown, []uint64{1, 2, 3}}, {18, 8, []uint64{1, 2, 30, 4, 5}},
			{10, Unknown, []uint64{50, 6, 7}}, {18, 8, []uint64{50, 6, 70, 8, 9}}}},
		// 34 - 16 + 2 > 19: the fourth starts over again, at 26/4*4 = 24.
		{"a new chain again", 19, "split", 3, []sum{
			{10, Unknown, []uint64{1, 2, 3}}, {10, 0, []uint64{30, 4, 5}},
			{10, Unknown, []uint64{50, 6, 7}}, {10, 0, []uint64{70, 8, 9}}}},
		// What is new is too long by itself, 10 + 2 > 11: the first turn starts at 4, the next block after 10 + 2 - 11,
		// the second at 12, after 18 + 2 - 11, and so on.
		{"as late as the limit demands", 11, "split", 4, []sum{
			{6, Unknown, []uint64{2, 3}}, {6, 0, []uint64{4, 5}}, {6, Unknown, []uint64{6, 7}}, {6, 0, []uint64{8, 9}}}},
		{"outputs that leave no room stay", 2, "truncate", 0, sums(growing())},
		{"however they are limited", 2, "split", 0, sums(growing())},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := capture(4, growing())
			limited, changed, err := c.LimitContext(test.limit, test.how)
			if err != nil {
				t.Fatal(err)
			}
			equal := func(a, b sum) bool {
				return a.input == b.input && a.cached == b.cached && slices.Equal(a.chain, b.chain)
			}
			if got := sums(limited.Sessions[0]); !slices.EqualFunc(got, test.want, equal) {
				t.Errorf("got  %v\nwant %v", got, test.want)
			}
			if changed != test.changed {
				t.Errorf("%d calls changed, want %d", changed, test.changed)
			}
			mine := map[*Turn]bool{}
			for _, turn := range limited.Sessions[0].Turns {
				mine[turn] = true
				if turn.Base == nil && test.changed == 0 && turn.ID != "t0" {
					t.Errorf("%s has its chain written out, with no need", turn.ID)
				}
				if turn.Base != nil && !mine[turn.Base] {
					t.Errorf("%s is told by a turn of the original", turn.ID)
				}
			}
		})
	}
	for how, limit := range map[string]int{"truncate": 1, "split": 0, "reject": 100, "": 100} {
		if _, _, err := capture(4, growing()).LimitContext(limit, how); err == nil {
			t.Errorf("LimitContext(%d, %q) gives no error", limit, how)
		}
	}
}

// TestSplitAfterCompaction checks a session whose agent starts over by itself, after split did so for it.
func TestSplitAfterCompaction(t *testing.T) {
	s := growing() // the third turn is cut at token 16, as above
	s.Turns[3] = prompt(9, 2, 11, 12, 13)
	s.Turns = append(s.Turns, prompt(21, 2, 11, 12, 14, 15, 16, 17), prompt(25, 2, 11, 12, 14, 15, 16, 18, 19))
	limited, changed, err := capture(4, oneByOne(s)...).LimitContext(23, "split")
	if err != nil {
		t.Fatal(err)
	}
	// The last turn is cut where the one before ended, at 21/4*4 = 20.
	want := [][]uint64{{1, 2, 3}, {1, 2, 30, 4, 5}, {50, 6, 7}, {11, 12, 13}, {11, 12, 14, 15, 16, 17}, {18, 19}}
	for i, turn := range limited.Sessions[0].Turns {
		if got := turn.Chain(); !slices.Equal(got, want[i]) {
			t.Errorf("turn %d: got %d, want %d", i, got, want[i])
		}
	}
	if changed != 2 {
		t.Errorf("%d calls changed, want 2", changed)
	}
}

// TestLimitContextOfOthers checks a session that is told by turns of another one, which is cut.
func TestLimitContextOfOthers(t *testing.T) {
	long := growing()
	other := prompt(20, 2, 90)
	other.Base, other.Shared = long.Turns[2], 4
	long.Turns[2].OutputHashes = []uint64{70} // of a block that begins elsewhere when the turn is cut
	c := capture(4, long, session("r", "", with(other, func(t *Turn) { t.ID, t.Start, t.End = "r0", 100*ms, 105*ms })))
	limited, changed, err := c.LimitContext(23, "split")
	if err != nil {
		t.Fatal(err)
	}
	if got := limited.Sessions[0].Turns[2].OutputHashes; got != nil {
		t.Errorf("output hashes %d of a turn that was cut", got)
	}
	if got, want := limited.Sessions[1].Turns[0].Chain(), []uint64{1, 2, 30, 4, 90}; changed != 2 || !slices.Equal(got, want) {
		t.Errorf("%d changed, chain %d, want 2 and %d", changed, got, want)
	}
}

// TestLimitContextRelinks checks that the copy links and compiles, and that the original stays as it was.
func TestLimitContextRelinks(t *testing.T) {
	for _, how := range []string{"truncate", "split"} {
		s := growing()
		s.Tools = []ToolSpan{{Start: 37 * ms, End: 38 * ms}, {Start: 7 * ms, End: 8 * ms}}
		wait := stated("w", Wait{ID: "t0", Delay: 9 * ms})
		wait.Input, wait.Gap.Tool = 30, 4*ms
		c := capture(4, s, session("r", "", wait))
		before := snapshot(t, c)
		unlinked, _, err := c.LimitContext(23, how)
		if err != nil {
			t.Fatal(err)
		}
		if err := unlinked.Link(); err != nil {
			t.Fatal(err)
		}
		if after := snapshot(t, c); after != before {
			t.Errorf("%s: linking the copy changed the original from %s to %s", how, before, after)
		}

		original := compile(t, OutputsInferred, c)
		before = snapshot(t, c)
		limited, _, err := c.LimitContext(23, how)
		if err != nil {
			t.Fatal(err)
		}
		w := compile(t, OutputsInferred, limited)
		if after := snapshot(t, c); after != before {
			t.Errorf("%s: compiling the copy changed the original from %s to %s", how, before, after)
		}
		if got, want := edges(limited), edges(c); !slices.Equal(got, want) {
			t.Errorf("%s: edges %q, want %q", how, got, want)
		}
		for i := range w.Calls {
			if got, want := w.Calls[i].Turn.Gap, original.Calls[i].Turn.Gap; got != want {
				t.Errorf("%s: gap of %s is %+v, want %+v", how, w.Calls[i].Turn.ID, got, want)
			}
		}
	}
}

// snapshot writes out all that a capture holds, pointers by their ids.
func snapshot(t *testing.T, c *Capture) string {
	type flat struct {
		Turn  Turn
		Base  string
		Chain []uint64
		Edges []string
	}
	all := struct {
		Sessions []Session
		Turns    []flat
	}{}
	for _, s := range c.Sessions {
		copied := *s
		copied.Turns = nil
		all.Sessions = append(all.Sessions, copied)
		for _, turn := range s.Turns {
			f := flat{Turn: *turn, Chain: turn.Chain()}
			if turn.Base != nil {
				f.Base = turn.Base.ID
			}
			for _, d := range turn.Deps {
				f.Edges = append(f.Edges, d.Turn.ID)
			}
			f.Turn.Base, f.Turn.Session, f.Turn.Deps = nil, nil, nil
			all.Turns = append(all.Turns, f)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
