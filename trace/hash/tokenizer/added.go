package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxAdded bounds the added tokens. Models have up to a few thousand.
const maxAdded = 1 << 17

// An addedToken is found in the text as a whole, before anything else is done with it.
type addedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // not as a part of a word
	LStrip     bool   `json:"lstrip"`      // with the spaces before it
	RStrip     bool   `json:"rstrip"`      // with those behind it
	Normalized bool   `json:"normalized"`  // found in normalized text
	Special    bool   `json:"special"`
}

// addedTokens are those found in one pass.
type addedTokens struct {
	byContent map[string]addedToken
	lengths   [256][]int // of those that begin with a byte, longest first
}

// readAddedTokens returns the tokens to find in text as it is, and those to find in normalized text.
func readAddedTokens(tokens []addedToken, normalize func(string) string) (verbatim, normalized addedTokens, err error) {
	if len(tokens) > maxAdded {
		return verbatim, normalized, fmt.Errorf("%d are more than %d", len(tokens), maxAdded)
	}
	for i, t := range tokens {
		into := &verbatim
		if t.Normalized {
			t.Content = normalize(t.Content)
			into = &normalized
		}
		if t.Content == "" {
			return verbatim, normalized, fmt.Errorf("[%d].content: an empty token is in every text; remove it", i)
		}
		into.add(t)
	}
	return verbatim, normalized, nil
}

func (a *addedTokens) add(t addedToken) {
	if a.byContent == nil {
		a.byContent = map[string]addedToken{}
	}
	a.byContent[t.Content] = t
	lengths := &a.lengths[t.Content[0]]
	at, known := slices.BinarySearchFunc(*lengths, len(t.Content), func(a, b int) int { return b - a })
	if !known {
		*lengths = slices.Insert(*lengths, at, len(t.Content))
	}
}

// split hands over the tokens in a text and the text between them, in order. The leftmost token wins, and of those the
// longest.
func (a *addedTokens) split(text string, token func(uint32), between func(string)) {
	done := 0
	for i := 0; i < len(text); {
		t, ok := a.at(text[i:])
		if !ok {
			i++
			continue
		}
		start, end := i, i+len(t.Content)
		i = end
		if t.SingleWord && (endsWithWord(text[:start]) || startsWithWord(text[end:])) {
			continue
		}
		if t.LStrip {
			start = max(done, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
		}
		if t.RStrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if start > done {
			between(text[done:start])
		}
		token(t.ID)
		done = end
	}
	if done < len(text) {
		between(text[done:])
	}
}

// at returns the longest token that a text begins with.
func (a *addedTokens) at(text string) (addedToken, bool) {
	for _, n := range a.lengths[text[0]] {
		if n <= len(text) {
			if t, ok := a.byContent[text[:n]]; ok {
				return t, true
			}
		}
	}
	return addedToken{}, false
}

func endsWithWord(text string) bool {
	r, n := utf8.DecodeLastRuneInString(text)
	return n > 0 && isWord(r)
}

func startsWithWord(text string) bool {
	r, n := utf8.DecodeRuneInString(text)
	return n > 0 && isWord(r)
}

// isWord tells what a regular expression's \w matches.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd, unicode.Pc, unicode.Join_Control)
}
