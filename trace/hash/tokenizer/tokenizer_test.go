package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// parts are what the tests write of a tokenizer.json; the rest is null.
type parts struct {
	added, normalizer, pre string
	model                  string   // keys of the model beside vocab and merges
	tokens                 []string // by id
	merges                 []string // "a b"
}

func (p parts) JSON() string {
	or := func(s string) string {
		if s == "" {
			return "null"
		}
		return s
	}
	vocab := map[string]int{}
	for i, t := range p.tokens {
		vocab[t] = i
	}
	v, err := json.Marshal(vocab)
	if err != nil {
		panic(err)
	}
	m, err := json.Marshal(append([]string{}, p.merges...))
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [%s], "normalizer": %s, "pre_tokenizer": %s, "post_processor": null, "decoder": null,
		"model": {"type": "BPE", %s "vocab": %s, "merges": %s}}`, p.added, or(p.normalizer), or(p.pre), p.model, v, m)
}

func (p parts) load(t testing.TB) *Tokenizer {
	t.Helper()
	tokenizer, err := read(strings.NewReader(p.JSON()))
	if err != nil {
		t.Fatal(err)
	}
	return tokenizer
}

// words names tokens of a tokenizer in a row: as they stand in the vocabulary, or <id> if they are added.
func (p parts) words(ids []uint32) string {
	var words []string
	for _, id := range ids {
		if int(id) < len(p.tokens) {
			words = append(words, p.tokens[id])
		} else {
			words = append(words, fmt.Sprintf("<%d>", id))
		}
	}
	return strings.Join(words, " ")
}

const byteLevel = `{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}`

// byteLevelOf is a byte-level tokenizer of all bytes and some merges.
func byteLevelOf(merges ...string) parts {
	p := parts{pre: byteLevel, tokens: slices.Clone(byteRunes[:]), merges: merges}
	for _, m := range merges {
		p.tokens = append(p.tokens, strings.ReplaceAll(m, " ", ""))
	}
	return p
}

func letters(also ...string) []string {
	return append(strings.Split("abcdefghijklmnopqrstuvwxyz", ""), also...)
}

func TestEncode(t *testing.T) {
	hello := byteLevelOf("h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o")
	spaced := hello
	spaced.pre = strings.Replace(byteLevel, "false", "true", 1)
	whole := hello
	whole.model = `"ignore_merges": true,`
	whole.tokens = append(slices.Clone(hello.tokens), "world")
	mixed := parts{tokens: letters("bc", "ab", "aa"), merges: []string{"b c", "a b", "a a"}}
	llama := parts{
		normalizer: `{"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}`,
		model:      `"byte_fallback": true, "fuse_unk": true, "unk_token": "a",`,
		tokens:     letters("▁", "▁h", "▁hi", "▁▁"), merges: []string{"▁ h", "▁h i", "▁ ▁"},
	}
	for b := range 256 {
		llama.tokens = append(llama.tokens, fmt.Sprintf("<0x%02X>", b))
	}
	metaspace := func(scheme string) parts {
		return parts{pre: `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "` + scheme + `", "split": true}`,
			tokens: letters("▁", "▁h", "▁hi"), merges: []string{"▁ h", "▁h i"}, added: added(100, "<s>", "")}
	}
	unknown := parts{tokens: letters("?"), model: `"unk_token": "?",`}
	fused := parts{tokens: letters("?"), model: `"unk_token": "?", "fuse_unk": true,`}
	affixes := parts{tokens: []string{"a", "b", "##b", "##b</w>", "a</w>", "ab", "ab##b"}, model: `"continuing_subword_prefix": "##", "end_of_word_suffix": "</w>",`,
		merges: []string{"a ##b"}}
	specials := parts{tokens: letters(" ", "A"), normalizer: `{"type": "Lowercase"}`, added: strings.Join([]string{added(100, "<s>", ""), added(101, "<s>x", ""), added(102, "<L>", `"lstrip": true,`),
		added(103, "<R>", `"rstrip": true,`), added(104, "one", `"single_word": true,`), added(105, "Big", `"normalized": true,`)}, ",")}
	composed := parts{tokens: []string{"é", "e", "\u0301"}, normalizer: `{"type": "NFC"}`}
	for _, c := range []struct {
		name  string
		parts parts
		text  string
		want  string
	}{
		{"nothing", hello, "", ""},
		{"byte level", hello, "hello world", "hello Ġwo r l d"},
		{"a word is no more than the pattern's", hello, "hello hello", "hello Ġ hello"},
		{"other scripts byte by byte", hello, "é", "Ã ©"},
		{"a space in front", spaced, "world", "Ġwo r l d"},
		{"no second space in front", spaced, " world", "Ġwo r l d"},
		{"bytes that are no UTF-8", hello, "h\xff", "h ï ¿ ½"},
		{"a whole word with merges", hello, "world", "w o r l d"},
		{"a whole word that is a token, merges ignored", whole, "world", "world"},
		{"lowest rank before leftmost", mixed, "abc", "a bc"},
		{"leftmost of one rank", mixed, "aaa", "aa a"},
		{"merges chain", mixed, "aabc", "aa bc"},
		{"SentencePiece", llama, "hi  hi", "▁hi ▁ ▁hi"},
		{"SentencePiece, bytes of what is no token", llama, "hi é", "▁hi ▁ <0xC3> <0xA9>"},
		{"Metaspace always", metaspace("always"), "hi<s>hi hi", "▁hi <100> ▁hi ▁hi"},
		{"Metaspace first", metaspace("first"), "hi<s>hi hi", "▁hi <100> h i ▁hi"},
		{"Metaspace first, behind a token", metaspace("first"), "<s>hi", "<100> h i"},
		{"Metaspace never", metaspace("never"), "hi hi", "h i ▁hi"},
		{"unknown", unknown, "a12b", "a ? ? b"},
		{"unknown, fused", fused, "a12b3", "a ? b ?"},
		{"not even unknown", mixed, "a1b", "ab"},
		{"affixes", affixes, "abb", "ab ##b</w>"},
		{"affixes of a word of one letter", affixes, "a", "a</w>"},
		{"added: the longest", specials, "a<s>xb", "a <101> b"},
		{"added: in a row", specials, "<s><s>", "<100> <100>"},
		{"added: spaces before", specials, "a  <L> b", "a <102>   b"},
		{"added: spaces behind", specials, "a <R>  b", "a   <103> b"},
		{"added: a word", specials, "one ones", "<104>   o n e s"},
		{"added: not normalized", specials, "<S>A", "s a"},
		{"added: normalized", specials, "bIG", "<105>"},
		{"NFC", composed, "e\u0301e", "é e"},
	} {
		tokenizer := c.parts.load(t)
		for range 2 { // the second time from the cache
			if got := c.parts.words(tokenizer.Encode(c.text)); got != c.want {
				t.Errorf("%s: %q has tokens %q, want %q", c.name, c.text, got, c.want)
			}
		}
	}
}

// added writes an added token.
func added(id int, content, flags string) string {
	return fmt.Sprintf(`{"id": %d, %s "content": %q}`, id, flags, content)
}

func TestNormalizers(t *testing.T) {
	for _, c := range []struct{ normalizer, text, want string }{
		{`null`, "É ", "É "},
		{`{"type": "NFD"}`, "é", "e\u0301"},
		{`{"type": "NFKC"}`, "ﬁ²", "fi2"},
		{`{"type": "NFKD"}`, "é²", "e\u03012"},
		{`{"type": "Lowercase"}`, "ÀİΣ", "ài\u0307σ"},
		{`{"type": "Prepend", "prepend": "▁"}`, "a", "▁a"},
		{`{"type": "Prepend", "prepend": "▁"}`, "", ""},
		{`{"type": "Strip", "strip_left": true, "strip_right": false}`, " a ", "a "},
		{`{"type": "Strip", "strip_left": false, "strip_right": true}`, " a ", " a"},
		{`{"type": "Replace", "pattern": {"Regex": " +"}, "content": "_"}`, "a  b c", "a_b_c"},
		{`{"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}`, "E\u0301", "é"},
	} {
		normalize, err := readNormalizer([]byte(c.normalizer), 0)
		if err != nil {
			t.Errorf("%s: %v", c.normalizer, err)
		} else if got := normalize(c.text); got != c.want {
			t.Errorf("%s: %q becomes %q, want %q", c.normalizer, c.text, got, c.want)
		}
	}
}

func TestPreTokenizers(t *testing.T) {
	split := func(pattern, behavior string, invert bool) string {
		return fmt.Sprintf(`{"type": "Split", "pattern": %s, "behavior": %q, "invert": %v}`, pattern, behavior, invert)
	}
	const dash = `{"String": "-"}`
	for _, c := range []struct {
		pre, text string
		want      []string
	}{
		{"null", "a b", []string{"a b"}},
		{split(dash, "Isolated", false), "-a-b--c", []string{"-", "a", "-", "b", "-", "-", "c"}},
		{split(dash, "Removed", false), "-a-b--c", []string{"a", "b", "c"}},
		{split(dash, "Removed", true), "-a-b--c", []string{"-", "-", "-", "-"}},
		{split(dash, "MergedWithPrevious", false), "-a-b--c", []string{"-", "a-", "b-", "-", "c"}},
		{split(dash, "MergedWithNext", false), "-a-b--c-", []string{"-a", "-b", "-", "-c", "-"}},
		{split(dash, "Contiguous", false), "-a-b--c", []string{"-", "a", "-", "b", "--", "c"}},
		{split(`{"Regex": "[0-9]{1,3}"}`, "Isolated", false), "a12345", []string{"a", "123", "45"}},
		{`{"type": "Digits", "individual_digits": true}`, "a12b", []string{"a", "1", "2", "b"}},
		{`{"type": "Digits", "individual_digits": false}`, "a12b", []string{"a", "12", "b"}},
		{`{"type": "Punctuation"}`, "a,-b", []string{"a", ",", "-", "b"}},
		{`{"type": "Punctuation", "behavior": "Contiguous"}`, "a,-b", []string{"a", ",-", "b"}},
		{`{"type": "Whitespace"}`, "ab, c", []string{"ab", ",", "c"}},
		{`{"type": "WhitespaceSplit"}`, "ab,  c", []string{"ab,", "c"}},
		{byteLevel, "it's  é 12", []string{"it", "'s", "Ġ", "ĠÃ©", "Ġ12"}},
		{`{"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": false}]}`, "a1 2", []string{"a", "1", "2"}},
		{`{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false}`, "a b", []string{"▁a▁b"}},
		{`{"type": "Metaspace", "replacement": "▁", "add_prefix_space": true}`, "a b", []string{"▁a", "▁b"}},
	} {
		var got []string
		chain := &chain{}
		first, err := chain.read([]byte(c.pre), func(_ *encoder, text []byte, _ bool) { got = append(got, string(text)) }, 0)
		if err != nil {
			t.Errorf("%s: %v", c.pre, err)
			continue
		}
		if first(newEncoder(chain.buffers), []byte(c.text), true); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q falls into %q, want %q", c.pre, c.text, got, c.want)
		}
	}
}

// TestLoadErrors names what is wrong, and where.
func TestLoadErrors(t *testing.T) {
	deep := strings.Repeat(`{"type": "Sequence", "pretokenizers": [`, 20) + strings.Repeat("]}", 20)
	for _, c := range []struct{ name, text, want string }{
		{"no JSON", "tokens", "invalid character"},
		{"another file", `{"config": {}}`, `unknown field "config"`},
		{"no model", `{"version": "1.0"}`, "no model"},
		{"two values", parts{}.JSON() + "{}", "follows"},
		{"another model", `{"model": {"type": "Unigram", "vocab": []}}`, `model: type "Unigram"`},
		{"a new key of the model", parts{model: `"fresh": 1,`}.JSON(), `"fresh"`},
		{"dropout", parts{model: `"dropout": 0.1,`}.JSON(), "dropout 0.1"},
		{"unk_token", parts{model: `"unk_token": "?",`}.JSON(), `unk_token: "?"`},
		{"some bytes", parts{model: `"byte_fallback": true,`, tokens: letters("<0x00>")}.JSON(), "byte_fallback: <0xFF>"},
		{"a merge without its token", parts{tokens: letters(), merges: []string{"a b"}}.JSON(), `merges[0]: "a" and "b"`},
		{"a merge of three", parts{tokens: letters(), merges: []string{"a b c"}}.JSON(), "not two tokens"},
		{"a list of three", `{"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b", "c"]]}}`, "a merge of 3"},
		{"normalizer", parts{normalizer: `{"type": "Precompiled"}`}.JSON(), `normalizer: type "Precompiled"`},
		{"normalizer in a sequence", parts{normalizer: `{"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]}`}.JSON(), `normalizers[1]: type "Nmt"`},
		{"pre_tokenizer", parts{pre: `{"type": "UnicodeScripts"}`}.JSON(), `pre_tokenizer: type "UnicodeScripts"`},
		{"a key of one", parts{pre: `{"type": "ByteLevel", "fresh": 1}`}.JSON(), `"fresh"`},
		{"a behavior", parts{pre: `{"type": "Split", "pattern": {"String": "-"}, "behavior": "Odd"}`}.JSON(), `behavior: "Odd"`},
		{"a pattern", parts{pre: `{"type": "Split", "pattern": {"Regex": "(?<=a)b"}, "behavior": "Isolated"}`}.JSON(), `pattern: its Regex "(?<=a)b"`},
		{"no pattern", parts{pre: `{"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated"}`}.JSON(), "pattern: it is empty"},
		{"a scheme", parts{pre: `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "odd"}`}.JSON(), `prepend_scheme: "odd"`},
		{"a replacement", parts{pre: `{"type": "Metaspace", "replacement": ""}`}.JSON(), `replacement: ""`},
		{"contradiction", parts{pre: `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "add_prefix_space": false}`}.JSON(), "add_prefix_space"},
		{"an empty added token", parts{added: added(1, "", "")}.JSON(), "added_tokens: [0].content"},
		{"depth", parts{pre: deep}.JSON(), "more than 16 deep"},
	} {
		if _, err := read(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v does not name the file %s", err, path)
	}
}

// TestEncodeLongRuns encodes texts on which a square of their length would take minutes.
func TestEncodeLongRuns(t *testing.T) {
	p := byteLevelOf("a a", "aa aa", "Ġ Ġ")
	p.pre = `{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": ` + strconv.Quote(llama3) + `}, "behavior": "Isolated"},
		{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}`
	p.added = added(1000, "<s>", `"lstrip": true,`) + "," + added(1001, "<<", "")
	tokenizer := p.load(t)
	for text, size := range map[string]int{"a": 4, " ": 2, "\n": 1, " \n": 1, "<": 2, "<s": 1, "日": 1, " <s>": 4, "' ": 1} {
		long := strings.Repeat(text, 1<<17)
		if got, want := len(tokenizer.Encode(long)), len(long)/size; got != want {
			t.Errorf("%q again and again: %d tokens, want %d", text, got, want)
		}
	}
}

// TestEncodeConcurrently uses one tokenizer in several goroutines.
func TestEncodeConcurrently(t *testing.T) {
	tokenizer := byteLevelOf("h e", "l l", "he ll").load(t)
	text := strings.Repeat("hello, you! ", 50)
	want := tokenizer.Encode(text)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if got := tokenizer.Encode(text); !slices.Equal(got, want) {
					t.Errorf("%d, want %d", got, want)
				}
			}
		})
	}
	all.Wait()
}

// TestMergesLikeTwin compares with a twin that looks for the lowest and leftmost merge in the whole text, again and
// again, for random vocabularies: with and without merges across ▁, where words must not be cut.
func TestMergesLikeTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := parts{tokens: []string{"a", "b", "c", "▁", "?"}, model: `"unk_token": "?",`}
		for range rapid.IntRange(0, 12).Draw(t, "merges") {
			left, right := rapid.SampledFrom(p.tokens).Draw(t, "left"), rapid.SampledFrom(p.tokens).Draw(t, "right")
			if slices.Contains(p.tokens, left+right) || strings.Contains(left+right, "?") {
				continue
			}
			p.tokens, p.merges = append(p.tokens, left+right), append(p.merges, left+" "+right)
		}
		tokenizer, err := read(strings.NewReader(p.JSON()))
		if err != nil {
			t.Fatal(err)
		}
		text := rapid.StringOfN(rapid.SampledFrom([]rune("abc▁▁1")), 0, 40, -1).Draw(t, "text")
		symbols := strings.Split(strings.ReplaceAll(text, "1", "?"), "")
		for {
			rank, at := len(p.merges), 0
			for i := range max(0, len(symbols)-1) {
				if r := slices.Index(p.merges, symbols[i]+" "+symbols[i+1]); r >= 0 && r < rank {
					rank, at = r, i
				}
			}
			if rank == len(p.merges) {
				break
			}
			symbols = slices.Replace(symbols, at, at+2, symbols[at]+symbols[at+1])
		}
		if got, want := p.words(tokenizer.Encode(text)), strings.Join(symbols, " "); got != want {
			t.Errorf("merges %q: %q has tokens %q, want %q", p.merges, text, got, want)
		}
	})
}

// FuzzEncode takes any text: the tokens of the byte level, put together, are the text.
func FuzzEncode(f *testing.F) {
	p := byteLevelOf("h e", "l l", "he ll", "Ġ t", "Ġt h", "Ã ©")
	tokenizer := p.load(f)
	for _, seed := range []string{"", "hello, the world's  end\n\n", "é日本🙂\x00", "\xff\xfe", "  \r\n\t 123 it'll"} {
		f.Add(seed)
	}
	bytesOf := map[string]string{}
	for b, r := range byteRunes {
		bytesOf[r] = string([]byte{byte(b)})
	}
	f.Fuzz(func(t *testing.T, text string) {
		var back strings.Builder
		for _, id := range tokenizer.Encode(text) {
			for _, r := range p.tokens[id] {
				back.WriteString(bytesOf[string(r)])
			}
		}
		if want := strings.ToValidUTF8(text, "\uFFFD"); back.String() != want {
			t.Errorf("%q comes back as %q", want, back.String())
		}
	})
}

// FuzzLoad reads any file; one that is good encodes.
func FuzzLoad(f *testing.F) {
	f.Add(byteLevelOf("h e").JSON())
	f.Add(parts{tokens: letters("▁"), pre: `{"type": "Metaspace", "replacement": "▁"}`, normalizer: `{"type": "NFC"}`, added: added(7, "ab", `"lstrip": true,`)}.JSON())
	f.Add(parts{tokens: letters(), pre: `{"type": "Split", "pattern": {"Regex": "\\s+(?!\\S)|[^a-c]{2,3}|(?i:x)?\\p{L}+"}, "behavior": "Removed", "invert": true}`}.JSON())
	f.Fuzz(func(t *testing.T, text string) {
		if tokenizer, err := read(strings.NewReader(text)); err == nil {
			tokenizer.Encode("ab  hello é 12\n")
		}
	})
}
