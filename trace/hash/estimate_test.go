package hash

import (
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

// sumOf hashes a block's text, or the first part tokens of it.
func sumOf(text string, part int) uint64 { return xxh3.HashStringSeed(text, seed+uint64(part)) }

// chainOf chains local hashes.
func chainOf(sums ...uint64) []uint64 {
	for i := 1; i < len(sums); i++ {
		sums[i] = Combine(sums[i-1], sums[i])
	}
	return sums
}

// TestEstimateByHand cuts texts whose every byte weighs the same, a lead byte of three: so many to a block of four tokens.
func TestEstimateByHand(t *testing.T) {
	const b = "\xe0"
	if first[lead3] != further[lead3] {
		t.Fatal("this test wants a byte whose weight does not hang on its predecessor")
	}
	block := int((4*token + further[lead3] - 1) / further[lead3]) // bytes that fill a first block
	text := func(n int) string { return strings.Repeat(b, n) }
	for _, c := range []struct {
		name   string
		text   string
		tokens int
		want   []uint64
	}{
		{"nothing", "", 0, nil},
		{"one full block, length not known", text(block), 0, chainOf(sumOf(text(block), 0))},
		{"a block's tokens too few: its text is the tail's", text(block), 3, chainOf(sumOf(text(block), 3))},
		{"just as many", text(block), 4, chainOf(sumOf(text(block), 0))},
		{"more tokens than text: blocks without any", text(1), 9, chainOf(sumOf(text(1), 0), sumOf("", 0), sumOf("", 1))},
		{"more text than tokens: the last block has all that is left", text(5 * block), 4, chainOf(sumOf(text(5*block), 0))},
		{"tokens and no text", "", 5, chainOf(sumOf("", 0), sumOf("", 1))},
	} {
		if got := NewEstimator(4).Prompt().Blocks(c.text, c.tokens); !slices.Equal(got, c.want) {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	for _, c := range []struct{ blockSize, tokens int }{{0, 10}, {-1, 10}, {4, maxTokens + 1}} {
		if got := NewEstimator(c.blockSize).Prompt().Blocks("text", c.tokens); got != nil {
			t.Errorf("block size %d, %d tokens: %d, want nothing", c.blockSize, c.tokens, got)
		}
	}
}

// prose draws text of words, numbers, code and other scripts.
var prose = rapid.Custom(func(t *rapid.T) string {
	words := rapid.SliceOfN(rapid.SampledFrom([]string{"the ", "quick", "\n\n", "HTTP", "_name", "1234567", "  ", "{\"a\": [1,2]}", "für ", "日本語", "🙂", "\xff", "Привет "}), 0, 60).Draw(t, "words")
	return strings.Join(words, "")
})

// TestEstimateShares draws two sessions that begin with the same text and part in their first prompt, and then grow.
func TestEstimateShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blockSize := rapid.IntRange(1, 8).Draw(t, "blockSize")
		e := NewEstimator(blockSize)
		common := prose.Draw(t, "common")
		alone := e.Prompt().Blocks(common, 0)
		whole := int(weigh(common) / (int64(blockSize) * token)) // blocks that end in the common text
		for range 2 {
			p := e.Prompt()
			text, tokens := common, 0
			var before []uint64
			for turn := range 3 {
				text += prose.Draw(t, "new") + string(rune('a'+turn))
				estimated := int(weigh(text)/token) + 1
				tokens = max(tokens+1, estimated+rapid.IntRange(-estimated/3, estimated).Draw(t, "error"))
				sums := p.Blocks(text, tokens)
				if want := (tokens + blockSize - 1) / blockSize; len(sums) != want {
					t.Fatalf("turn %d: %d blocks of %d for %d tokens, want %d", turn, len(sums), blockSize, tokens, want)
				}
				if n := min(whole, max(0, len(sums)-1)); turn == 0 && !slices.Equal(sums[:n], alone[:n]) {
					t.Fatalf("%d blocks of the common text: %x, alone %x", n, sums[:n], alone[:n])
				}
				if n := len(before); !slices.Equal(sums[:n], before) {
					t.Fatalf("turn %d: begins %x, want the blocks that the last turn filled, %x", turn, sums[:n], before)
				}
				before = slices.Clone(sums[:tokens/blockSize])
				if other := p.Clone().Blocks(text+"x", tokens); other[len(other)-1] == sums[len(sums)-1] {
					t.Fatalf("turn %d: more text, and the same last hash", turn)
				}
				for i := range sums {
					sums[i] = 0 // the caller may do as it likes with them
				}
			}
		}
	})
}

// twin is a Prompt that keeps all texts and borders, and hashes everything each time.
type twin struct {
	blockSize int
	known     []measured
}

// measured is a prompt of known length: ends are where its full blocks end.
type measured struct {
	text   string
	tokens int
	ends   []int
}

func (w *twin) blocks(text string, tokens int) []uint64 {
	var from measured
	for _, m := range w.known {
		if strings.HasPrefix(text, m.text) && (tokens == 0 || m.tokens < tokens || m.tokens == tokens && m.text == text) && len(m.text) >= len(from.text) {
			from = m
		}
	}
	ends := slices.Clone(from.ends)
	full := int64(w.blockSize) * token
	open := int64(from.tokens%w.blockSize) * full / int64(w.blockSize)
	for i := len(from.text); i < len(text); i++ {
		before := byte('\n')
		if i > 0 {
			before = text[i-1]
		}
		weight := first[classOf(text[i])]
		if classOf(before) == classOf(text[i]) {
			weight = further[classOf(text[i])]
		}
		for open += weight; open >= full; open -= full {
			ends = append(ends, i+1)
		}
	}
	last := func() int { return append([]int{0}, ends...)[len(ends)] }
	counted := tokens
	if tokens == 0 {
		counted = len(ends)*w.blockSize + int(open*int64(w.blockSize)/full)
		if counted%w.blockSize == 0 && last() < len(text) {
			counted++
		}
	}
	n := counted / w.blockSize
	if ends = ends[:min(n, len(ends))]; counted%w.blockSize == 0 && len(ends) == n && n > 0 {
		ends[n-1] = len(text)
	}
	for len(ends) < n {
		ends = append(ends, len(text))
	}
	var sums []uint64
	begin := 0
	for _, end := range ends {
		sums = append(sums, sumOf(text[begin:end], 0))
		begin = end
	}
	if part := counted % w.blockSize; part > 0 {
		sums = append(sums, sumOf(text[begin:], part))
	}
	if tokens > 0 && !slices.ContainsFunc(w.known, func(m measured) bool { return m.text == text }) {
		w.known = append(w.known, measured{text, tokens, ends})
	}
	return chainOf(sums...)
}

// TestEstimateLikeTwin draws histories in which prompts grow, are cut short, repeated, and measured oddly or not at all.
func TestEstimateLikeTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blockSize := rapid.IntRange(1, 6).Draw(t, "blockSize")
		p, w := NewEstimator(blockSize).Prompt(), &twin{blockSize: blockSize}
		texts := []string{""}
		for range rapid.IntRange(1, 12).Draw(t, "prompts") {
			old := rapid.SampledFrom(texts).Draw(t, "old")
			text := old[:len(old)-rapid.IntRange(0, min(10, len(old))).Draw(t, "cut")] + prose.Draw(t, "new")
			texts = append(texts, text)
			tokens := 0
			if rapid.IntRange(0, 4).Draw(t, "measured") > 0 {
				tokens = rapid.IntRange(1, 2*int(weigh(text)/token)+3).Draw(t, "tokens")
			}
			if got, want := p.Blocks(text, tokens), w.blocks(text, tokens); !slices.Equal(got, want) {
				t.Fatalf("%q of %d tokens: %x, want %x", text, tokens, got, want)
			}
		}
	})
}

// TestEstimateForgetsTheOldest measures more prompts than are remembered.
func TestEstimateForgetsTheOldest(t *testing.T) {
	p := NewEstimator(4).Prompt()
	text := strings.Repeat("x", maxPoints+10)
	for n := 1; n <= len(text); n++ {
		p.Blocks(text[:n], n)
	}
	if len(p.points) != maxPoints || p.points[0].length != 11 || p.points[maxPoints-1].length != len(text) {
		t.Errorf("%d points, of %d to %d bytes", len(p.points), p.points[0].length, p.points[len(p.points)-1].length)
	}
	for _, text := range []string{"a", "b", "c"} { // of which a server says that they are huge
		p.Blocks(text, 4*(maxSums/2+1))
	}
	if p.sums > maxSums || len(p.points) != 1 {
		t.Errorf("%d points hold %d hashes, want one point", len(p.points), p.sums)
	}
}

// TestEstimateFindsWhatIsStillEqual grows a session as harnesses do: a reminder at the end that the next turn has no
// more, requests of another kind in between, and a turn taken back.
func TestEstimateFindsWhatIsStillEqual(t *testing.T) {
	const blockSize = 4
	p := NewEstimator(blockSize).Prompt()
	system := strings.Repeat("You are a coding agent. ", 20)
	turn1 := system + "user: fix it. "
	turn2 := turn1 + "assistant: reading. tool: " + strings.Repeat("func main() {} ", 20)
	turn3 := turn2 + "assistant: done. user: thanks."
	first := p.Blocks(turn1, 130)
	p.Blocks(turn2+"<reminder>", 250)
	p.Blocks("title: "+turn1, 140)
	p.Blocks("title", 3)
	shared := func(a, b []uint64) (n int) {
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	third := p.Blocks(turn3, 260)
	if n := shared(first, third); n != 130/blockSize {
		t.Errorf("the third turn shares %d blocks with the first, want all %d", n, 130/blockSize)
	}
	again := p.Blocks(turn2, 245)
	if n, least := shared(again, third), 130/blockSize+20; n < least {
		t.Errorf("the second turn without its reminder shares %d blocks with the third, want at least %d", n, least)
	}
	if fork := p.Clone().Blocks(turn3+" And more.", 270); shared(fork, third) != 260/blockSize {
		t.Errorf("a fork shares %d blocks with the third turn, want all %d", shared(fork, third), 260/blockSize)
	}
	if repeated := p.Blocks(turn3, 260); !slices.Equal(repeated, third) {
		t.Error("the same prompt has other hashes the second time")
	}
}

// TestEstimateScale lets one prompt set the scale of all sessions that begin after it.
func TestEstimateScale(t *testing.T) {
	const blockSize = 16
	e := NewEstimator(blockSize)
	text := strings.Repeat("Some words of a long prompt. ", 400)
	estimated := int(weigh(text) / token)
	early := e.Prompt()
	early.Blocks("hi", 1)
	e.Prompt().Blocks(text, 2*estimated)
	if got, want := len(e.Prompt().Blocks(text, 0)), 2*estimated/blockSize; got < want-1 || got > want+2 {
		t.Errorf("a later session estimates %d blocks, want about %d", got, want)
	}
	e.Prompt().Blocks(text, estimated/2)
	if got, want := len(e.Prompt().Blocks(text, 0)), 2*estimated/blockSize; got < want-1 || got > want+2 {
		t.Errorf("a second prompt moved the scale: %d blocks, want about %d", got, want)
	}
	if got, want := len(early.Blocks("hi"+text, 0)), estimated/blockSize; got < want-1 || got > want+2 {
		t.Errorf("an earlier session estimates %d blocks, want about %d", got, want)
	}
}

// BenchmarkEstimate adds 4 kB to a prompt of 400 kB, turn by turn.
func BenchmarkEstimate(b *testing.B) {
	text := strings.Repeat("func (p *Prompt) Clone() *Prompt { return p } // Some words, 123.\n", 1<<13)
	const old, step = 400_000, 4_000
	b.Run("first", func(b *testing.B) {
		b.SetBytes(old)
		for b.Loop() {
			NewEstimator(16).Prompt().Blocks(text[:old], old/4)
		}
	})
	b.Run("next", func(b *testing.B) {
		p := NewEstimator(16).Prompt()
		p.Blocks(text[:old], old/4)
		b.SetBytes(step)
		for b.Loop() {
			p.Clone().Blocks(text[:old+step], (old+step)/4)
		}
	})
}
