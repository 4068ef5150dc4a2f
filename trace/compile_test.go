package trace

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// prompt makes a call without a place in time: prompt and output tokens, and the hashes of the prompt's blocks.
func prompt(in, out int32, hashes ...uint64) *Turn {
	return &Turn{Start: NoTime, End: NoTime, TTFT: NoTime, Input: in, Output: out, Cached: Unknown, Reasoning: Unknown, Hashes: hashes}
}

// with returns the turn after a change.
func with(t *Turn, change func(t *Turn)) *Turn {
	change(t)
	return t
}

// oneByOne gives the turns of sessions their ids, "t0" and so on, and times one after the other.
func oneByOne(sessions ...*Session) []*Session {
	n := 0
	for _, s := range sessions {
		for _, t := range s.Turns {
			at := call(fmt.Sprint("t", n), float64(10*n), float64(10*n+5))
			t.ID, t.Start, t.End = at.ID, at.Start, at.End
			n++
		}
	}
	return sessions
}

func compile(t testing.TB, outputs Outputs, c *Capture) *Workload {
	t.Helper()
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := c.Compile(outputs)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// blockKeys returns the key of each block of the call's tokens.
func blockKeys(w *Workload, call, blockSize int) (keys []Key) {
	c := &w.Calls[call]
	for _, s := range w.Path(c.End, c.Computed(), blockSize, 0, nil) {
		for range s.To - s.From {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// TestCompileShares checks what the first two calls of small captures have in common, in tokens, and in blocks of the
// trace. Trace blocks have 4 tokens.
func TestCompileShares(t *testing.T) {
	two := func(a, b *Turn) []*Session { return []*Session{session("s", "", a), session("r", "", b)} }
	base := prompt(6, 1, 7, 8) // 7 is full, 8 stands for 2 tokens
	tests := []struct {
		name           string
		sessions       []*Session
		tokens, blocks int
	}{
		{"two blocks, then a fork", two(prompt(16, 1, 1, 2, 3, 4), prompt(20, 1, 1, 2, 5, 6, 7)), 8, 2},
		{"the same id behind another block is another block", two(prompt(8, 1, 1, 2), prompt(8, 1, 3, 2)), 0, 0},
		{"one prompt begins with the other", two(prompt(8, 1, 1, 2), prompt(16, 1, 1, 2, 3, 4)), 8, 2},
		{"ids beyond 32 bits stay apart", two(prompt(4, 1, 1), prompt(4, 1, 1<<32+1)), 0, 0},
		{"and are found again", two(prompt(4, 1, 18446744073709551615), prompt(4, 1, 18446744073709551615)), 4, 1},
		{"no hashes share nothing", two(prompt(8, 1), prompt(8, 1)), 0, 0},

		{"tails of equal hash and length", two(prompt(6, 1, 1, 2), prompt(6, 1, 1, 2)), 6, 1},
		{"tails of equal hash and other length", two(prompt(6, 1, 1, 2), prompt(7, 1, 1, 2)), 4, 1},
		{"tails of equal length and other hash", two(prompt(6, 1, 1, 2), prompt(6, 1, 1, 3)), 4, 1},
		{"tails behind other blocks", two(prompt(6, 1, 1, 2), prompt(6, 1, 3, 2)), 0, 0},
		{"tails that the source gives no hash", two(prompt(6, 1, 1), prompt(6, 1, 1)), 4, 1},
		{"prompts of a token", two(prompt(1, 1, 1), prompt(1, 1, 1)), 1, 0},
		{"a hash that is partial in one prompt and full in the other", two(prompt(2, 1, 7), prompt(12, 1, 7, 8, 9)), 0, 0},
		{"the same, the one told by the other", two(base, with(prompt(12, 1, 9), func(t *Turn) { t.Base, t.Shared = base, 2 })), 4, 1},
		{"hash scopes", []*Session{session("s", "", prompt(8, 1, 1, 2)), {ID: "r", Scope: 1, Turns: []*Turn{prompt(8, 1, 1, 2)}}}, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := compile(t, OutputsInferred, capture(4, oneByOne(test.sessions...)...))
			for size, want := range map[int]int{1: test.tokens, 4: test.blocks} {
				if got := common(blockKeys(w, 0, size), blockKeys(w, 1, size)); got != want {
					t.Errorf("%d blocks of %d tokens in common, want %d", got, size, want)
				}
			}
			for i := range w.Calls {
				if got, want := len(blockKeys(w, i, 1)), int(w.Calls[i].Input); got != want {
					t.Errorf("call %d has %d tokens, want %d", i, got, want)
				}
			}
		})
	}
}

// TestCompileDeltaOfPartial checks that a block which is partial in the prompt that a chain is told by is the same
// full block as in a prompt told in full.
func TestCompileDeltaOfPartial(t *testing.T) {
	base := prompt(6, 1, 7, 8)
	delta := with(prompt(12, 1, 9), func(t *Turn) { t.Base, t.Shared = base, 2 }) // 7 8 9
	w := compile(t, OutputsInferred, capture(4, oneByOne(session("s", "", base), session("r", "", delta),
		session("q", "", prompt(12, 1, 7, 8, 9)))...))
	if got := common(blockKeys(w, 1, 4), blockKeys(w, 2, 4)); got != 3 {
		t.Errorf("%d blocks in common, want 3", got)
	}
}

// TestCompileKeepsInputs checks that prompts have the tokens that their source says, however many hashes it gives:
// editions of one data set round up, round down, and give the exact number.
func TestCompileKeepsInputs(t *testing.T) {
	w := compile(t, OutputsInferred, capture(64, oneByOne(session("a", "", prompt(100, 1, 1, 2)), session("b", "", prompt(128, 1, 1, 3)),
		session("c", "", prompt(100, 1, 1)))...))
	for i, want := range []int{100, 128, 100} {
		// 100 tokens are 25 blocks of 4, 128 are 32.
		if got := len(blockKeys(w, i, 4)); int(w.Calls[i].Input) != want || got != want/4 {
			t.Errorf("call %d: %d tokens in %d blocks of 4, want %d in %d", i, w.Calls[i].Input, got, want, want/4)
		}
	}
}

// TestCompileOutputs checks which generated tokens of the first call the second one is taken to contain. The first
// call has 10 prompt tokens, 2 blocks of 4 and a tail of 2, and 7 output tokens, of which 6 are computed: the path is
// 16 tokens long. The next prompt has 24 tokens, enough for 10 + 7.
func TestCompileOutputs(t *testing.T) {
	first := func() *Turn { return prompt(10, 7, 1, 2, 3) }
	next := func() *Turn { return prompt(24, 1, 1, 2, 30, 31, 32, 33) }
	recorded := func() *Turn { // blocks 2, 3 and the partial 4 of prompt and output
		return with(first(), func(t *Turn) { t.OutputHashes = []uint64{40, 41, 42} })
	}
	tests := []struct {
		name    string
		outputs Outputs
		first   *Turn
		next    *Turn
		tokens  int // in common
		want    OutputTokens
	}{
		{"the next prompt extends the first", OutputsInferred, first(), next(), 16, OutputTokens{Inferred: 6}},
		{"the lower bound", OutputsNone, first(), next(), 10, OutputTokens{Unknown: 6}},
		{"the upper bound", OutputsAll, first(), next(), 16, OutputTokens{Inferred: 6}},
		{"a server found 12 tokens of it", OutputsInferred, first(),
			with(next(), func(t *Turn) { t.Cached = 12 }), 12, OutputTokens{Inferred: 2, Unknown: 4}},
		{"a server found not even the prompt", OutputsInferred, first(),
			with(next(), func(t *Turn) { t.Cached = 8 }), 10, OutputTokens{Unknown: 6}},
		{"3 of the output tokens are reasoning", OutputsInferred,
			with(first(), func(t *Turn) { t.Reasoning = 3 }), next(), 13, OutputTokens{Inferred: 3, Unknown: 3}},
		{"all of them are", OutputsInferred,
			with(first(), func(t *Turn) { t.Reasoning = 7 }), next(), 10, OutputTokens{Unknown: 6}},
		{"the upper bound knows neither limit", OutputsAll,
			with(first(), func(t *Turn) { t.Reasoning = 3 }), with(next(), func(t *Turn) { t.Cached = 8 }), 16, OutputTokens{Inferred: 6}},
		{"the next prompt is a token too short", OutputsInferred, first(), prompt(16, 1, 1, 2, 30, 31), 8, OutputTokens{Unknown: 6}},
		{"the next prompt just holds the output", OutputsInferred, first(), prompt(17, 1, 1, 2, 30, 31, 32), 16, OutputTokens{Inferred: 6}},
		{"the upper bound takes what there is", OutputsAll, first(), prompt(14, 1, 1, 2, 30, 31), 14, OutputTokens{Inferred: 4, Unknown: 2}},
		{"the next prompt forks off", OutputsInferred, first(), prompt(24, 1, 1, 5, 30, 31, 32, 33), 4, OutputTokens{Unknown: 6}},
		{"prompts shorter than a block are no evidence", OutputsInferred, prompt(3, 7, 1), next(), 0, OutputTokens{Unknown: 6}},
		{"no output", OutputsInferred, prompt(10, 0, 1, 2, 3), next(), 10, OutputTokens{}},
		{"a single output token is never computed", OutputsInferred, prompt(10, 1, 1, 2, 3), next(), 10, OutputTokens{}},

		// The recorded chain is 1 2 40 41, 16 tokens. The prompt's tail is the head of block 40.
		{"recorded, and found again", OutputsInferred, recorded(), prompt(24, 1, 1, 2, 40, 41, 50, 51), 16, OutputTokens{Known: 6}},
		{"recorded, and half of it found again", OutputsInferred, recorded(), prompt(24, 1, 1, 2, 40, 60, 61, 62), 12, OutputTokens{Known: 6}},
		{"recorded, and not found again", OutputsInferred, recorded(), next(), 8, OutputTokens{Known: 6}},
		{"what is recorded holds in the lower bound too", OutputsNone, recorded(), prompt(24, 1, 1, 2, 40, 41, 50, 51), 16, OutputTokens{Known: 6}},
		// 5 output tokens end at 15: block 2 is full, 13 and 14 are not known. (The last output token is never computed.)
		{"behind the last full block nothing is known", OutputsInferred, with(prompt(10, 5, 1, 2, 3), func(t *Turn) { t.OutputHashes = []uint64{40, 41} }),
			prompt(24, 1, 1, 2, 40, 50, 51, 52), 12, OutputTokens{Known: 2, Unknown: 2}},
		{"fewer hashes than blocks are none", OutputsInferred, with(first(), func(t *Turn) { t.OutputHashes = []uint64{40} }),
			next(), 16, OutputTokens{Inferred: 6}},
		{"output hashes do not follow where those of the prompt are missing", OutputsInferred,
			with(prompt(10, 7, 1), func(t *Turn) { t.OutputHashes = []uint64{40, 41, 42} }), next(), 4, OutputTokens{Unknown: 6}},
		// 8 + 3 tokens end inside block 2: its hash stands for a partial block and tells nothing.
		{"an output that fills no block is inferred as any other", OutputsInferred, with(prompt(8, 3, 1, 2), func(t *Turn) { t.OutputHashes = []uint64{40} }),
			next(), 10, OutputTokens{Inferred: 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := compile(t, test.outputs, capture(4, oneByOne(session("s", "", test.first, test.next))...))
			if got := common(blockKeys(w, 0, 1), blockKeys(w, 1, 1)); got != test.tokens {
				t.Errorf("%d tokens in common, want %d", got, test.tokens)
			}
			if w.OutputTokens != test.want {
				t.Errorf("output tokens %+v, want %+v", w.OutputTokens, test.want)
			}
			if c := w.Calls[0]; int64(c.Identified-c.Input) != test.want.Known+test.want.Inferred {
				t.Errorf("identified up to token %d", c.Identified)
			}
		})
	}
}

// TestCompileSpawnedOutput checks that an output goes to a child that it spawned, if no later turn of the session
// takes it.
func TestCompileSpawnedOutput(t *testing.T) {
	// t0 generates 5 tokens behind 8; t2 of the child extends it, and so does t3 of the second child.
	sessions := func(second *Turn) []*Session {
		return oneByOne(session("p", "", prompt(8, 5, 1, 2)), session("c", "p", prompt(16, 1, 1, 2, 5, 6)),
			session("d", "p", second))
	}
	w := compile(t, OutputsInferred, capture(4, sessions(prompt(16, 1, 1, 2, 7, 8))...))
	if got := common(blockKeys(w, 0, 1), blockKeys(w, 1, 1)); got != 12 {
		t.Errorf("%d tokens in common with the child, want 8 + 5 - 1", got)
	}
	if got := common(blockKeys(w, 0, 1), blockKeys(w, 2, 1)); got != 8 {
		t.Errorf("%d tokens in common with the second child, want 8", got)
	}
	own := sessions(prompt(16, 1, 1, 2, 7, 8))
	own[0].Turns = append(own[0].Turns, with(prompt(16, 1, 1, 2, 9, 9), func(t *Turn) {
		t.ID, t.Start, t.End = "t3", 100*ms, 105*ms
	}))
	w = compile(t, OutputsInferred, capture(4, own...))
	// Calls are in the order p0 p1 c0 d0.
	if got := []int{common(blockKeys(w, 0, 1), blockKeys(w, 1, 1)), common(blockKeys(w, 0, 1), blockKeys(w, 2, 1))}; !slices.Equal(got, []int{12, 8}) {
		t.Errorf("%d tokens in common with the session's next turn and the child, want 12 and 8", got)
	}
}

// TestCompileLookahead checks how far the turn that continues a call may be.
func TestCompileLookahead(t *testing.T) {
	for distance, want := range map[int]int64{maxLookahead: 4, maxLookahead + 1: 0} {
		turns := []*Turn{prompt(8, 5, 1, 2)}
		for range distance - 1 {
			turns = append(turns, prompt(4, 0, 9))
		}
		turns = append(turns, prompt(16, 0, 1, 2, 3, 4))
		w := compile(t, OutputsInferred, capture(4, oneByOne(session("s", "", turns...))...))
		if got := w.OutputTokens; got.Inferred != want || got.Unknown != 4-want {
			t.Errorf("the continuation %d turns later: %+v, want %d inferred", distance, got, want)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	tests := []struct {
		name string
		turn *Turn
		want string
	}{
		{"no prompt", prompt(0, 1), `"t0": 0 prompt and 1 output`},
		{"a prompt below nothing", prompt(-1, 1), `"t0": -1 prompt`},
		{"a prompt beyond all bounds", prompt(maxTokens+1, 1), `"t0"`},
		{"an output below nothing", prompt(4, -1, 1), `"t0": 4 prompt and -1 output`},
		{"an output beyond all bounds", prompt(4, maxTokens+1, 1), `"t0"`},
	}
	for _, test := range tests {
		c := capture(4, oneByOne(session("s", "", test.turn))...)
		if err := c.Link(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Compile(OutputsInferred); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %s", test.name, err, test.want)
		}
	}
	if _, err := capture(4, session("s", "")).Compile(OutputsInferred); err == nil || !strings.Contains(err.Error(), "no LLM calls") {
		t.Errorf("no calls: error %v", err)
	}
	for name, want := range map[string]Outputs{"": OutputsInferred, "inferred": OutputsInferred, "none": OutputsNone, "all": OutputsAll} {
		if got, err := ParseOutputs(name); got != want || err != nil {
			t.Errorf("ParseOutputs(%q) = %v, %v", name, got, err)
		}
	}
	if _, err := ParseOutputs("some"); err == nil {
		t.Error("ParseOutputs takes any name")
	}
}

// TestCompileCuts checks sessions whose first call hit more in the recorded server's cache than earlier calls of the
// capture could have left there. Trace blocks have 4 tokens.
func TestCompileCuts(t *testing.T) {
	// cached is what the server found of 1 2 3 4 5, 20 tokens.
	cached := func(tokens int32) *Turn {
		return with(prompt(20, 1, 1, 2, 3, 4, 5), func(t *Turn) { t.Cached = tokens })
	}
	tests := []struct {
		name    string
		earlier *Turn
		cached  int32
		want    int32
	}{
		{"nothing came before", prompt(8, 1, 9, 9), 16, 16},
		{"an earlier call explains all of it", prompt(16, 1, 1, 2, 3, 4), 16, 0},
		{"up to a block", prompt(12, 1, 1, 2, 3), 16, 0},
		{"not more", prompt(8, 1, 1, 2), 16, 16},
		{"nothing was found", prompt(8, 1, 1, 2), 0, 0},
		{"not told what was found", prompt(8, 1, 1, 2), Unknown, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := compile(t, OutputsInferred, capture(4, oneByOne(session("r", "", test.earlier), session("s", "", cached(test.cached)))...))
			if w.Calls[0].Cut != 0 || w.Calls[1].Cut != test.want {
				t.Errorf("cut %d and %d, want 0 and %d", w.Calls[0].Cut, w.Calls[1].Cut, test.want)
			}
		})
	}
	// A later call of a session is never cut, and one that Link cut keeps that.
	later := session("s", "", prompt(4, 1, 9), cached(16))
	w := compile(t, OutputsInferred, capture(4, oneByOne(later)...))
	if w.Calls[1].Cut != 0 {
		t.Errorf("the second call is cut to %d", w.Calls[1].Cut)
	}
	answer := cached(Unknown)
	answer.Trigger = "tool_result"
	w = compile(t, OutputsInferred, capture(4, oneByOne(session("s", "", answer))...))
	if w.Calls[0].Cut != 16 {
		t.Errorf("a session that begins with a tool result is cut to %d, want all but the last block", w.Calls[0].Cut)
	}
}

// A prompt that began before a call ended cannot hold what the call generated, whatever its hashes say.
func TestOutputIsNotSharedWithOverlappingCalls(t *testing.T) {
	for _, test := range []struct {
		start      time.Duration
		identified int32
	}{{60 * time.Millisecond, 8}, {100 * time.Millisecond, 13}} {
		s := &Session{ID: "a", Turns: []*Turn{
			{ID: "1", Input: 8, Output: 6, Start: 0, End: 100 * time.Millisecond, Cached: Unknown, Hashes: []uint64{1, 2}},
			{ID: "2", Input: 16, Output: 1, Start: test.start, End: 200 * time.Millisecond, Cached: Unknown, Hashes: []uint64{1, 2, 3, 4}},
		}}
		c := &Capture{BlockSize: 4, Resolution: time.Millisecond, SharedClock: true, Sessions: []*Session{s}}
		if err := c.Link(); err != nil {
			t.Fatal(err)
		}
		w, err := c.Compile(OutputsInferred)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Calls[0].Identified; got != test.identified {
			t.Errorf("next call at %v: identified up to token %d, want %d", test.start, got, test.identified)
		}
	}
}
