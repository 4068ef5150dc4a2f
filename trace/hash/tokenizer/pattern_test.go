package tokenizer

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// llama3 is the pattern of Llama 3 (and of cl100k and Qwen, but for {1,3}).
const llama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// parted returns the matches of a pattern, and what lies between them in brackets.
func parted(t testing.TB, expression, text string) []string {
	t.Helper()
	p, err := compile(expression)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	p.split([]byte(text), func(start, end int, match bool) {
		if match {
			all = append(all, text[start:end])
		} else {
			all = append(all, "["+text[start:end]+"]")
		}
	})
	return all
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		expression, text string
		want             []string
	}{
		{gpt2, "I'm  here!! 12 a", []string{"I", "'m", " ", " here", "!!", " 12", " a"}},
		{gpt2, "a   ", []string{"a", "   "}},
		{gpt2, "a \n b", []string{"a", " \n", " b"}},
		{llama3, "I'M 12345\n\n  x  \n", []string{"I", "'M", " ", "123", "45", "\n\n", " ", " x", "  \n"}},
		{llama3, "'ſ", []string{"'ſ"}}, // ſ is another lower case of S
		{llama3, "日本語 text", []string{"日本語", " text"}},
		{`a|ab`, "ab", []string{"a", "[b]"}},
		{`(?:ab|a)(?:c|bcd)?`, "abcd", []string{"abc", "[d]"}},
		{`a+ab`, "aaab", []string{"aaab"}},
		{`a++ab|b`, "aaab", []string{"[aaa]", "b"}},
		{`a{2,3}`, "aaaaa", []string{"aaa", "aa"}},
		{`a{2}`, "aaaaa", []string{"aa", "aa", "[a]"}},
		{`a{2,}`, "aaaaa a", []string{"aaaaa", "[ a]"}},
		{`x(?=y)`, "xyx", []string{"x", "[yx]"}},
		{`[^a-c\-]+`, "a-xyz", []string{"[a-]", "xyz"}},
		{`[a-]+`, "x-a", []string{"[x]", "-a"}},
		{`[\x41-\x{43}é]+`, "ABCDé", []string{"ABC", "[D]", "é"}},
		{`(?i:[a-c]+)`, "aBcD", []string{"aBc", "[D]"}},
		{`\p{Han}+|\P{L}`, "日x1", []string{"日", "[x]", "1"}},
		{`\p{^L}`, "x1", []string{"[x]", "1"}},
		{`.\.`, "\n.a.", []string{"[\n.]", "a."}},
		{`(a|)b`, "ab b", []string{"ab", "[ ]", "b"}},
		{`[🙂-🙄]`, "🙂x🙃", []string{"🙂", "[x]", "🙃"}},
	} {
		if got := parted(t, c.expression, c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q falls into %q, want %q", c.expression, c.text, got, c.want)
		}
	}
}

func TestPatternErrors(t *testing.T) {
	for _, c := range []struct{ expression, want string }{
		{"", "matches empty text"},
		{"a*", "matches empty text"},
		{"a|b?", "matches empty text"},
		{"(?!a)", "matches empty text"},
		{"(a|b)+", "quantifier + of a group"},
		{"(?:a)*", "quantifier * of a group"},
		{"a{2}+", "quantifier + of a quantifier"},
		{"a+?", "quantifier ? of a quantifier"},
		{"a{3,2}", "{3,2"},
		{"a{1001}", "{1001"},
		{"a{,2}", "{,2"},
		{"a{2", "{2"},
		{"^a", "^ is not supported"},
		{"a$", "$ is not supported"},
		{"*a", "* is not supported"},
		{"(a", "missing )"},
		{"a)", "unexpected )"},
		{"[a", "missing ]"},
		{"[]", "empty class"},
		{"[a&&b]", "&&"},
		{"[[:alpha:]]", "[ in a class"},
		{"[b-a]", "a range"},
		{`[a-\s]`, "a range"},
		{`\h`, `\h is not supported`},
		{`\b`, `\b is not supported`},
		{`\1`, `\1 is not supported`},
		{`\`, `character after \`},
		{`\pL`, "braces"},
		{`\p{Greekish}`, `\p{Greekish}`},
		{`\x{110000}`, "no character"},
		{`\xff`, "no character"},
		{`\u12`, "no character"},
		{"(?<=a)b", "(?"},
		{"(?i)a", "(?"},
		{"\xff", "UTF-8"},
		{strings.Repeat("(", 40), "groups lie more than"},
		{strings.Repeat("a", maxPattern+1), "bytes"},
	} {
		if _, err := compile(c.expression); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.50q: error %v, want one with %q", c.expression, err, c.want)
		}
	}
}

// TestPatternsLikeRegexp compares with package regexp, whose leftmost-first matches are the same where it has no
// lookahead and no possessive quantifier to miss. (Its \s and \w are those of ASCII, so \p stands for them.)
func TestPatternsLikeRegexp(t *testing.T) {
	expressions := []string{
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^ \n\p{L}\p{N}]+[\r\n]*|[ \n]*[\r\n]+|[ \n]+`,
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]+[\p{Ll}\p{M}]*`,
		`a+b*a|(?:ab|a)(?:c|bc)?x`, `(?i:s+|k)`, `[^a]`, `(a|b|)(1|)c`,
	}
	patterns := map[string]*pattern{}
	for _, expression := range expressions {
		p, err := compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		patterns[expression] = p
	}
	rapid.Check(t, func(t *rapid.T) {
		expression := rapid.SampledFrom(expressions).Draw(t, "expression")
		text := rapid.StringOfN(rapid.OneOf(rapid.SampledFrom([]rune("aabbcx1 '\r\nsSſKtTéÉ日ǅ²🙂")), rapid.Rune()), 0, 40, -1).Draw(t, "text")
		var got []int
		patterns[expression].split([]byte(text), func(start, end int, match bool) {
			if match {
				got = append(got, start, end)
			}
		})
		if want := slices.Concat(regexp.MustCompile(expression).FindAllStringIndex(text, -1)...); !slices.Equal(got, want) {
			t.Errorf("%s in %q: matches %d, want %d", expression, text, got, want)
		}
	})
}
