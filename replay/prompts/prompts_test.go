package prompts_test

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

// sample is synthetic work of many prompts that share much.
func sample(t testing.TB) *trace.Workload {
	t.Helper()
	capture, err := synth.Generate("claude-code", synth.Options{Programs: 3, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	if err := capture.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := capture.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// tokens reads a prompt of token ids, and checks its length.
func tokens(t testing.TB, p *prompts.Prompt) []uint32 {
	t.Helper()
	text, err := io.ReadAll(p.Reader())
	if err != nil || int64(len(text)) != p.Len() {
		t.Fatalf("read %d bytes, want %d (%v)", len(text), p.Len(), err)
	}
	var ids []uint32
	if err := json.Unmarshal(text, &ids); err != nil {
		t.Fatal(err)
	}
	if len(ids) != p.Symbols {
		t.Fatalf("%d ids, want %d", len(ids), p.Symbols)
	}
	return ids
}

// words reads a prompt of text.
func words(t testing.TB, p *prompts.Prompt) []string {
	t.Helper()
	text, err := io.ReadAll(p.Reader())
	if err != nil || int64(len(text)) != p.Len() {
		t.Fatalf("read %d bytes, want %d (%v)", len(text), p.Len(), err)
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return strings.Fields(s)
}

// common is how many elements two lists share at their beginning.
func common[T comparable](a, b []T) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// shared is how many tokens two calls share by the workload's own account, in blocks of one token.
func shared(w *trace.Workload, a, b int32) int {
	path := func(i int32) []trace.Span { return w.Path(w.Calls[i].Prompt, w.Calls[i].Input, 1, 0, nil) }
	n := 0
	x, y := path(a), path(b)
	for i := range min(len(x), len(y)) {
		if x[i].Key != y[i].Key {
			break
		}
		n = int(min(x[i].To, y[i].To))
		if x[i].To != y[i].To {
			break
		}
	}
	return n
}

// Prompts share exactly the tokens that the workload says, so blocks of any size are shared alike.
func TestPromptsShareWhatTheWorkloadShares(t *testing.T) {
	w := sample(t)
	a, err := prompts.TokenIDs(prompts.DefaultLowID, prompts.DefaultHighID)
	if err != nil {
		t.Fatal(err)
	}
	m := prompts.NewMaker(w, a, 1, prompts.Scale{})
	n := min(len(w.Calls), 40)
	var all [][]uint32
	for i := range n {
		ids := tokens(t, m.Prompt(int32(i), 0))
		if len(ids) != int(w.Calls[i].Input) {
			t.Fatalf("call %d has %d tokens, want %d", i, len(ids), w.Calls[i].Input)
		}
		if lowest, highest := slices.Min(ids), slices.Max(ids); lowest < prompts.DefaultLowID || highest >= prompts.DefaultHighID {
			t.Fatalf("ids from %d to %d", lowest, highest)
		}
		all = append(all, ids)
	}
	sharing := 0
	for i := range n {
		for j := range i {
			got, want := common(all[i], all[j]), shared(w, int32(i), int32(j))
			if got < want || got > want+1 { // one more is equal by chance in 1 of 20,000
				t.Errorf("calls %d and %d share %d tokens, want %d", i, j, got, want)
			}
			if want > 0 {
				sharing++
			}
		}
	}
	if sharing < n {
		t.Errorf("only %d pairs share anything: the sample tests nothing", sharing)
	}
}

func TestSaltsAndCopies(t *testing.T) {
	w := sample(t)
	a, _ := prompts.TokenIDs(prompts.DefaultLowID, prompts.DefaultHighID)
	one, again, other := prompts.NewMaker(w, a, 1, prompts.Scale{}), prompts.NewMaker(w, a, 1, prompts.Scale{}), prompts.NewMaker(w, a, 2, prompts.Scale{})
	last := int32(len(w.Calls) - 1)
	first := tokens(t, one.Prompt(last, 0))
	if !slices.Equal(first, tokens(t, again.Prompt(last, 0))) {
		t.Error("the same salt gives other prompts")
	}
	if n := common(first, tokens(t, other.Prompt(last, 0))); n > 1 {
		t.Errorf("another salt leaves %d tokens", n)
	}
	// A copy keeps what two programs share, and nothing else.
	keep := 0
	for _, s := range w.Path(w.Calls[last].Prompt, w.Calls[last].Input, 1, 1, nil) {
		if s.Key.Copy() == 0 {
			keep = int(s.To)
		}
	}
	if n := common(first, tokens(t, one.Prompt(last, 1))); n < keep || n > keep+1 {
		t.Errorf("a copy shares %d tokens, want %d", n, keep)
	}
	if n := common(tokens(t, one.Probe(1, 64)), tokens(t, one.Probe(2, 64))); n > 1 {
		t.Errorf("two probes share %d tokens", n)
	}
}

// Text keeps the sharing too: exactly where a word is a token, at the same share of the length where it is not.
func TestTextKeepsTheSharing(t *testing.T) {
	w := sample(t)
	a, err := prompts.Words(prompts.List())
	if err != nil {
		t.Fatal(err)
	}
	for _, scale := range []prompts.Scale{{PerWord: 1}, {Overhead: 20, PerWord: 1}, {Overhead: 3, PerWord: 1.25}} {
		m := prompts.NewMaker(w, a, 1, scale)
		var all [][]string
		n := min(len(w.Calls), 20)
		for i := range n {
			list := words(t, m.Prompt(int32(i), 0))
			tokens := float64(len(list))*scale.PerWord + float64(scale.Overhead)
			if off := tokens - float64(w.Calls[i].Input); off < -2 || off > 2 {
				t.Errorf("%+v: call %d has %v tokens, want %d", scale, i, tokens, w.Calls[i].Input)
			}
			all = append(all, list)
		}
		for i := range n {
			for j := range i {
				want := int(float64(shared(w, int32(i), int32(j))) / scale.PerWord)
				want = min(want, len(all[i]), len(all[j]))
				if got := common(all[i], all[j]); got < want || got > want+4 { // one of 400 words is equal by chance
					t.Errorf("%+v: calls %d and %d share %d words, want %d", scale, i, j, got, want)
				}
			}
		}
	}
}

// A reader gives the same bytes however it is read, and as often as it is asked.
func TestReadersAreAlike(t *testing.T) {
	w := sample(t)
	a, _ := prompts.TokenIDs(0, 300) // ids of one to three digits
	p := prompts.NewMaker(w, a, 1, prompts.Scale{}).Prompt(5, 0)
	whole, _ := io.ReadAll(p.Reader())
	bytewise, err := io.ReadAll(iotest.OneByteReader(p.Reader()))
	if err != nil || string(whole) != string(bytewise) {
		t.Errorf("%v: %d bytes at once, %d one by one", err, len(whole), len(bytewise))
	}
	tokens(t, p)
}

func TestRefusedAlphabets(t *testing.T) {
	for _, r := range [][2]int{{-1, 1000}, {0, 10}, {5, 1 << 30}} {
		if _, err := prompts.TokenIDs(r[0], r[1]); err == nil {
			t.Errorf("ids %v are taken", r)
		}
	}
	for _, list := range [][]string{nil, {"four", "five", "sixth"}, {"Four"}, {"fünf"}, {`fo"r`}} {
		if _, err := prompts.Words(list); err == nil {
			t.Errorf("words %q are taken", list)
		}
	}
	list := prompts.List()
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	if len(list) < 256 || len(slices.Compact(sorted)) != len(list) {
		t.Errorf("%d words, not all different: %q", len(list), list)
	}
}

// BenchmarkPrompt makes the body of a prompt of 100,000 tokens.
func BenchmarkPrompt(b *testing.B) {
	w := sample(b)
	a, _ := prompts.TokenIDs(prompts.DefaultLowID, prompts.DefaultHighID)
	m := prompts.NewMaker(w, a, 1, prompts.Scale{})
	p := m.Probe(1, 100_000)
	b.SetBytes(p.Len())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.Copy(io.Discard, p.Reader()); err != nil {
			b.Fatal(err)
		}
	}
}
