package trace

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// reference is the slow, obvious twin of Compile: it gives every token of every call an identity of its own, a
// string, by the rules that Compile states. Two calls share what their lists of tokens have in common at the front.
type reference struct {
	prompts, tokens [][]string // by call: the prompt, and all tokens whose KV is computed
	counts          OutputTokens
	forks           int64
}

func newReference(w *Workload, outputs Outputs) *reference {
	n := len(w.Calls)
	r := &reference{prompts: make([][]string, n), tokens: make([][]string, n)}
	for i := n - 1; i >= 0; i-- {
		r.add(w, i, outputs)
	}
	r.countForks(w)
	return r
}

// fullTokens returns the tokens of full blocks: each is named by the chain of hashes up to its own, and its place.
func fullTokens(scope int32, size int, hashes []uint64) (tokens []string) {
	for i := range hashes {
		for k := range size {
			tokens = append(tokens, fmt.Sprint("scope ", scope, hashes[:i+1], " token ", k))
		}
	}
	return tokens
}

func (r *reference) add(w *Workload, i int, outputs Outputs) {
	c := &w.Calls[i]
	t, scope, size := c.Turn, c.Turn.Session.Scope, w.Capture.BlockSize
	in, out := int(t.Input), int(t.Output)
	computed := in + max(out-1, 0)
	chain := t.chain()
	full := min(len(chain), in/size)
	own := fullTokens(scope, size, chain[:full])
	identified, known := in, false
	if recorded := (in+out)/size - in/size; recorded > 0 && recorded <= len(t.OutputHashes) {
		known = true
		all := fullTokens(scope, size, slices.Concat(chain[:full], t.OutputHashes[:recorded]))
		identified = max(in, min(computed, len(all)))
		r.prompts[i], r.tokens[i] = all[:in], all[:identified]
	} else if next := r.continuation(w, i, own, outputs); next >= 0 {
		switch outputs {
		case OutputsInferred:
			identified = computed - max(0, int(t.Reasoning))
			if cached := w.Calls[next].Turn.Cached; cached != Unknown {
				identified = min(identified, int(cached))
			}
			identified = max(identified, in)
		case OutputsAll:
			identified = min(computed, len(r.prompts[next]))
		}
		r.prompts[i], r.tokens[i] = r.prompts[next][:in], r.prompts[next][:identified]
	} else {
		prompt := slices.Clone(own)
		for k := len(own); k < in; k++ {
			token := fmt.Sprint("prompt of call ", i, " token ", k)
			if len(chain) > full { // the last hash stands for the tail
				token = fmt.Sprint("scope ", scope, chain[:full], " tail ", chain[full], " of ", in-len(own), " token ", k)
			}
			prompt = append(prompt, token)
		}
		r.prompts[i], r.tokens[i] = prompt, prompt
	}
	r.tokens[i] = slices.Clone(r.tokens[i])
	for k := identified; k < computed; k++ {
		r.tokens[i] = append(r.tokens[i], fmt.Sprint("output of call ", i, " token ", k))
	}
	if known {
		r.counts.Known += int64(identified - in)
	} else {
		r.counts.Inferred += int64(identified - in)
	}
	r.counts.Unknown += int64(computed - identified)
}

// continuation is the first later turn of the session, else the first call spawned, whose prompt begins with the
// full blocks of call i and is long enough to hold its output.
func (r *reference) continuation(w *Workload, i int, own []string, outputs Outputs) int {
	c := &w.Calls[i]
	need := int(c.Input + c.Output)
	if outputs == OutputsAll {
		need = int(c.Input) + 1
	}
	if len(own) == 0 {
		return -1
	}
	continues := func(j int) bool {
		if n := w.Calls[j].Turn; n.Start < c.Turn.End-w.Capture.Resolution { // it began before the output was there
			return false
		}
		return len(r.prompts[j]) >= need && slices.Equal(r.prompts[j][:len(own)], own)
	}
	for j := i + 1; j < len(w.Calls); j++ {
		if w.Calls[j].Turn.Session == c.Turn.Session && continues(j) {
			return j
		}
	}
	for j := range w.Calls {
		for _, d := range w.Calls[j].Turn.Deps {
			if d.Kind == KindSpawn && d.Turn == c.Turn {
				if j > i && continues(j) {
					return j
				}
				return -1
			}
		}
	}
	return -1
}

// countForks counts the blocks that leave a chain where another one goes on.
func (r *reference) countForks(w *Workload) {
	parents, seen := map[string]bool{}, map[string]bool{}
	size := w.Capture.BlockSize
	for i := range w.Calls {
		t := w.Calls[i].Turn
		chain := t.chain()[:min(int(t.Shared)+len(t.Hashes), int(t.Input)/size)]
		chain = append(chain, t.OutputHashes[:t.knownBlocks(int32(size))]...)
		for k := range chain {
			parent, block := fmt.Sprint(t.Session.Scope, chain[:k]), fmt.Sprint(t.Session.Scope, chain[:k+1])
			if parents[parent] && !seen[block] {
				r.forks += int64(size - 1)
			}
			parents[parent], seen[block] = true, true
		}
	}
}

func common[T comparable](a, b []T) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// genCapture makes sessions of a few programs whose prompts are forks of one another, coded in random ways.
func genCapture(t *rapid.T) *Capture {
	c := capture(rapid.SampledFrom([]int{1, 2, 3, 4, 5, 8, 16}).Draw(t, "block size"))
	int32s := func(from, to int, label string) int32 { return int32(rapid.IntRange(from, to).Draw(t, label)) }
	for i := range rapid.IntRange(1, 5).Draw(t, "sessions") {
		s := session(fmt.Sprint("s", i), "")
		if i > 0 && rapid.Bool().Draw(t, "child") {
			s.Parent = fmt.Sprint("s", rapid.IntRange(0, i-1).Draw(t, "parent"))
		}
		s.Scope = max(0, int32s(-2, 1, "scope"))
		c.Sessions = append(c.Sessions, s)
	}
	var read []*Turn
	scope := map[*Turn]int32{}
	for i := range rapid.IntRange(1, 14).Draw(t, "turns") {
		s := rapid.SampledFrom(c.Sessions).Draw(t, "session")
		start := rapid.IntRange(0, 40).Draw(t, "start")
		turn := call(fmt.Sprint("t", i), float64(start), float64(start+rapid.IntRange(0, 8).Draw(t, "took")))
		var chain []uint64
		earlier := slices.DeleteFunc(slices.Clone(read), func(e *Turn) bool { return scope[e] != s.Scope })
		if len(earlier) > 0 && rapid.IntRange(0, 4).Draw(t, "fork") > 0 {
			from := rapid.SampledFrom(earlier).Draw(t, "from")
			source := from.chain()
			if rapid.Bool().Draw(t, "with output") {
				source = append(source[:min(len(source), int(from.Input)/c.BlockSize)], from.OutputHashes...)
			}
			chain = source[:rapid.IntRange(0, len(source)).Draw(t, "kept")]
		}
		chain = append(slices.Clone(chain), rapid.SliceOfN(rapid.Uint64Range(1, 3), 0, 4).Draw(t, "new")...)
		size, n := c.BlockSize, len(chain)
		if n == 0 && size == 1 {
			chain, n = []uint64{1}, 1
		}
		if n == 0 || rapid.Bool().Draw(t, "floor") { // the source counts full blocks
			turn.Input = int32s(max(n*size, 1), (n+1)*size-1, "input")
		} else { // or a partial one at the end too
			turn.Input = int32s((n-1)*size+1, n*size, "input")
		}
		turn.Hashes = chain
		if len(earlier) > 0 && rapid.Bool().Draw(t, "delta") {
			turn.Base = rapid.SampledFrom(earlier).Draw(t, "base")
			turn.Shared = int32s(0, common(turn.Base.chain(), chain), "shared")
			turn.Hashes = chain[turn.Shared:]
		}
		turn.Output = int32s(0, 3*size, "output")
		turn.Cached = int32s(-1, int(turn.Input), "cached")
		turn.Reasoning = int32s(-1, int(turn.Output), "reasoning")
		if rapid.IntRange(0, 3).Draw(t, "known") == 0 {
			in, out := int(turn.Input), int(turn.Output)
			blocks := (in+out+size-1)/size - in/size
			turn.OutputHashes = rapid.SliceOfN(rapid.Uint64Range(1, 3), blocks, blocks).Draw(t, "output hashes")
		}
		s.Turns, read = append(s.Turns, turn), append(read, turn)
		scope[turn] = s.Scope
	}
	return c
}

// TestCompileAgainstReference compares, for random captures, what any two paths have in common with what the tokens
// of the calls have in common, for block sizes below, at and above the trace's, and for repeated programs.
func TestCompileAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := genCapture(t)
		if err := c.Link(); err != nil {
			t.Fatal(err)
		}
		outputs := rapid.SampledFrom([]Outputs{OutputsInferred, OutputsNone, OutputsAll}).Draw(t, "outputs")
		w, err := c.Compile(outputs)
		if err != nil {
			t.Fatal(err)
		}
		r := newReference(w, outputs)
		if w.OutputTokens != r.counts {
			t.Errorf("output tokens %+v, want %+v", w.OutputTokens, r.counts)
		}
		if w.ForkTokens != r.forks {
			t.Errorf("%d tokens behind forks, want %d", w.ForkTokens, r.forks)
		}
		for _, size := range []int{1, 2, 3, 4, 16, 64} {
			comparePaths(t, w, r, size)
		}
	})
}

// comparePaths compares all pairs of calls at one block size.
func comparePaths(t *rapid.T, w *Workload, r *reference, size int) {
	n := len(w.Calls)
	first, salted := make([][]Key, n), make([][]Key, n) // keys of blocks in copies 0 and 1
	starts := map[Key]int32{}
	for i := range w.Calls {
		c := &w.Calls[i]
		first[i] = keys(t, w.Path(c.End, c.Computed(), size, 0, nil), len(r.tokens[i])/size, starts)
		salted[i] = keys(t, w.Path(c.End, c.Computed(), size, 1, nil), len(r.tokens[i])/size, starts)
		prompt := keys(t, w.Path(c.Prompt, c.Input, size, 0, nil), len(r.prompts[i])/size, starts)
		if !slices.Equal(prompt, first[i][:len(prompt)]) {
			t.Errorf("size %d: the prompt of %s lies on %v, its path on %v", size, c.Turn.ID, prompt, first[i])
		}
	}
	for i := range n {
		shared := 0 // leading tokens that a call of another program has too
		for j := range n {
			same := common(r.tokens[i], r.tokens[j])
			if w.Calls[i].Program != w.Calls[j].Program {
				shared = max(shared, same)
			}
			for k := range min(len(first[i]), len(first[j])) {
				if want := k < same/size; (first[i][k] == first[j][k]) != want {
					t.Fatalf("size %d: block %d of %s and %s: shared is %v, want %v (%d common tokens)",
						size, k, w.Calls[i].Turn.ID, w.Calls[j].Turn.ID, !want, want, same)
				}
			}
		}
		for k, key := range salted[i] {
			copies := uint32(1)
			if k < shared/size {
				copies = 0
			}
			if want := MakeKey(first[i][k].Node(), copies); key != want {
				t.Fatalf("size %d: block %d of %s in copy 1 is %x, want %x: %d tokens are shared between programs",
					size, k, w.Calls[i].Turn.ID, key, want, shared)
			}
		}
	}
}

// keys lists the key of each block of a path and checks what Span promises: no holes, no empty spans, and one first
// block per key.
func keys(t *rapid.T, path []Span, blocks int, starts map[Key]int32) (keys []Key) {
	for _, s := range path {
		if int(s.From) != len(keys) || s.To <= s.From {
			t.Fatalf("span %+v behind %d blocks", s, len(keys))
		}
		if start, ok := starts[s.Key]; ok && start != s.From {
			t.Fatalf("span %+v begins at block %d on another path", s, start)
		}
		starts[s.Key] = s.From
		for range s.To - s.From {
			keys = append(keys, s.Key)
		}
	}
	if len(keys) != blocks {
		t.Fatalf("path %+v has %d blocks, want %d", path, len(keys), blocks)
	}
	return keys
}

// TestTurnChain compares Chain and hashAt with the definition of delta coding.
func TestTurnChain(t *testing.T) {
	a := &Turn{Hashes: []uint64{1, 2, 3, 4}}
	b := &Turn{Base: a, Shared: 2, Hashes: []uint64{5, 6}} // 1 2 5 6
	tests := []struct {
		name string
		turn *Turn
		want []uint64
	}{
		{"no hashes", &Turn{}, []uint64{}},
		{"no base", a, []uint64{1, 2, 3, 4}},
		{"a base", b, []uint64{1, 2, 5, 6}},
		{"all of its base and nothing else", &Turn{Base: b, Shared: 4}, []uint64{1, 2, 5, 6}},
		{"less than what its base shares with another", &Turn{Base: b, Shared: 1, Hashes: []uint64{7}}, []uint64{1, 7}},
		{"nothing of its base", &Turn{Base: b, Hashes: []uint64{8}}, []uint64{8}},
	}
	for _, test := range tests {
		if got := test.turn.Chain(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}

	random := rand.New(rand.NewPCG(1, 2))
	var turns []*Turn
	for i := range 2000 {
		turn := &Turn{}
		if i > 0 {
			turn.Base = turns[random.IntN(i)]
			turn.Shared = int32(random.IntN(len(turn.Base.Chain()) + 1))
		}
		for range random.IntN(4) {
			turn.Hashes = append(turn.Hashes, random.Uint64())
		}
		want := turn.chain()
		if got := turn.Chain(); !slices.Equal(got, want) {
			t.Fatalf("turn %d: got %d, want %d", i, got, want)
		}
		for k, hash := range want {
			if got := turn.hashAt(int32(k)); got != hash {
				t.Fatalf("turn %d: hash %d is %d, want %d", i, k, got, hash)
			}
		}
		turns = append(turns, turn)
	}
}
