package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// A set is a set of runes. Those below U+10000, nearly all, are looked up in a bitmap.
type set struct {
	low  [1 << 10]uint64
	high func(rune) bool
}

// newSet makes a set of the runes that has tells.
func newSet(has func(rune) bool) *set {
	s := &set{high: has}
	for r := range rune(1 << 16) {
		if has(r) {
			s.low[r>>6] |= 1 << (r & 63)
		}
	}
	return s
}

// single makes a set of one rune, in either case if fold.
func single(r rune, fold bool) *set {
	s := &set{high: one(r, fold)}
	for f := r; ; {
		if f < 1<<16 {
			s.low[f>>6] |= 1 << (f & 63)
		}
		if f = unicode.SimpleFold(f); f == r || !fold {
			return s
		}
	}
}

// match returns the size of the rune at a position if it is in the set, else 0.
func (s *set) match(text []byte, at int) int {
	if at < len(text) && text[at] < utf8.RuneSelf {
		return s.ascii(text[at])
	}
	return s.matchRune(text[at:])
}

// ascii returns 1 if a byte below 0x80 is in the set, else 0.
func (s *set) ascii(b byte) int { return int(s.low[b>>6] >> (b & 63) & 1) }

func (s *set) matchRune(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	r, size := utf8.DecodeRune(text)
	if r < 1<<16 {
		return size * int(s.low[r>>6]>>(r&63)&1)
	}
	if s.high(r) {
		return size
	}
	return 0
}

// one returns a test for a single rune, in either case if fold.
func one(want rune, fold bool) func(rune) bool {
	if !fold {
		return func(r rune) bool { return r == want }
	}
	return func(r rune) bool {
		for f := unicode.SimpleFold(want); ; f = unicode.SimpleFold(f) {
			if f == r {
				return true
			}
			if f == want {
				return false
			}
		}
	}
}

// property returns the test for a \p{name}: a general category or a script.
func property(name string) (func(rune) bool, bool) {
	table := unicode.Categories[name]
	if table == nil {
		table = unicode.Scripts[name]
	}
	return func(r rune) bool { return unicode.Is(table, r) }, table != nil
}

// shorthand returns the test for \s, \d or \w, or for the capital letter that means the opposite.
func shorthand(letter byte) (func(rune) bool, bool) {
	switch letter {
	case 's':
		return unicode.IsSpace, true
	case 'd':
		return unicode.IsDigit, true
	case 'w':
		return isWord, true
	case 'S', 'D', 'W':
		has, _ := shorthand(letter - 'A' + 'a')
		return not(has), true
	}
	return nil, false
}

func not(has func(rune) bool) func(rune) bool { return func(r rune) bool { return !has(r) } }
