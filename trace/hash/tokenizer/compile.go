package tokenizer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxPattern = 1 << 14 // bytes of a regular expression
	maxGroups  = 32      // groups within groups
	maxRepeat  = 1000    // of {n,m}
)

// literal returns the pattern that matches a text.
func literal(text string) *pattern {
	p := &pattern{}
	last := &p.first
	for _, r := range text {
		*last = &node{set: single(r, false), min: 1, max: 1}
		last = &(*last).next
	}
	return p
}

// compile reads a regular expression in the syntax of Oniguruma, as far as tokenizers use it: alternatives, groups,
// (?i:...), (?=...), (?!...), classes, \p{...}, \s, \d and \w, and quantifiers behind a single character or class.
func compile(expression string) (*pattern, error) {
	if len(expression) > maxPattern {
		return nil, fmt.Errorf("it has more than %d bytes", maxPattern)
	}
	if !utf8.ValidString(expression) {
		return nil, errors.New("it is not UTF-8")
	}
	c := &compiler{text: expression}
	first, err := c.alternatives(nil, 0)
	if err == nil && c.at < len(c.text) {
		err = errors.New("unexpected )")
	}
	if err == nil && shortest(first, map[*node]int{}) == 0 {
		err = errors.New("it matches empty text")
	}
	if err != nil {
		return nil, fmt.Errorf("%q at byte %d: %w", expression, c.at, err)
	}
	if first.either != nil {
		first.index()
	}
	return &pattern{first}, nil
}

type compiler struct {
	text string
	at   int
	fold bool
}

// take reads a prefix, if it is there.
func (c *compiler) take(prefix string) bool {
	if !strings.HasPrefix(c.text[c.at:], prefix) {
		return false
	}
	c.at += len(prefix)
	return true
}

// rune reads a rune.
func (c *compiler) rune() rune {
	r, size := utf8.DecodeRuneInString(c.text[c.at:])
	c.at += size
	return r
}

// alternatives reads up to the end of a group or of the expression. All lead on to next.
func (c *compiler) alternatives(next *node, depth int) (*node, error) {
	if depth > maxGroups {
		return nil, fmt.Errorf("groups lie more than %d deep in each other", maxGroups)
	}
	var ways []*node
	for {
		way, err := c.sequence(next, depth)
		if err != nil {
			return nil, err
		}
		ways = append(ways, way)
		if !c.take("|") {
			break
		}
	}
	if len(ways) == 1 {
		return ways[0], nil
	}
	return &node{either: ways}, nil
}

// sequence reads an alternative.
func (c *compiler) sequence(next *node, depth int) (*node, error) {
	head := &node{}
	tail := head
	for c.at < len(c.text) && strings.IndexByte("|)", c.text[c.at]) < 0 {
		first, last, err := c.part(depth)
		if err != nil {
			return nil, err
		}
		tail.next, tail = first, last
	}
	tail.next = next
	return head.next, nil
}

// part reads a group, or a character or class with its quantifier. It returns the first and last of its nodes; what
// follows is chained to the last.
func (c *compiler) part(depth int) (first, last *node, err error) {
	switch {
	case c.take("(?!"):
		return c.lookahead(depth, func(n, inner *node) { n.behind = inner })
	case c.take("(?="):
		return c.lookahead(depth, func(n, inner *node) { n.ahead = inner })
	case c.take("(?:"):
		return c.group(depth, c.fold)
	case c.take("(?i:"):
		return c.group(depth, true)
	case c.take("(?"):
		return nil, nil, errors.New("of groups with (? only (?:, (?i:, (?= and (?! are supported")
	case c.take("("):
		return c.group(depth, c.fold)
	}
	s, err := c.set()
	if err != nil {
		return nil, nil, err
	}
	n := &node{set: s, min: 1, max: 1}
	return n, n, c.quantifier(n)
}

func (c *compiler) lookahead(depth int, put func(n, inner *node)) (first, last *node, err error) {
	n := &node{}
	inner, err := c.alternatives(nil, depth+1)
	if err != nil {
		return nil, nil, err
	}
	put(n, inner)
	if !c.take(")") {
		return nil, nil, errors.New("missing )")
	}
	return n, n, c.noQuantifier("a lookahead")
}

// group reads a group behind its opening. It may be left out, if a ? follows, but not repeated.
func (c *compiler) group(depth int, fold bool) (first, last *node, err error) {
	defer func(outer bool) { c.fold = outer }(c.fold)
	c.fold = fold
	last = &node{} // where its alternatives meet
	inner, err := c.alternatives(last, depth+1)
	if err != nil {
		return nil, nil, err
	}
	if !c.take(")") {
		return nil, nil, errors.New("missing )")
	}
	first = inner
	if c.take("?") {
		first = &node{either: []*node{inner, last}}
	}
	return first, last, c.noQuantifier("a group")
}

func (c *compiler) noQuantifier(what string) error {
	if c.at < len(c.text) && strings.IndexByte("*+?{", c.text[c.at]) >= 0 {
		return fmt.Errorf("the quantifier %c of %s is not supported", c.text[c.at], what)
	}
	return nil
}

// quantifier reads how often a character or class stands. In Oniguruma's Ruby syntax a + behind ?, * or + makes it
// possessive.
func (c *compiler) quantifier(n *node) error {
	switch {
	case c.take("?"):
		n.min = 0
	case c.take("*"):
		n.min, n.max = 0, -1
	case c.take("+"):
		n.max = -1
	case c.take("{"):
		bounds, _, ok := strings.Cut(c.text[c.at:], "}")
		low, high, pair := strings.Cut(bounds, ",")
		var err1, err2 error
		n.min, err1 = strconv.Atoi(low)
		n.max = n.min
		if pair && high == "" {
			n.max = -1
		} else if pair {
			n.max, err2 = strconv.Atoi(high)
		}
		if !ok || err1 != nil || err2 != nil || n.min < 0 || n.max == 0 || n.max > 0 && n.max < n.min || max(n.min, n.max) > maxRepeat {
			return fmt.Errorf("the quantifier {%s is not supported", bounds)
		}
		c.at += len(bounds) + 1
		return c.noQuantifier("a quantifier")
	default:
		return nil
	}
	n.possessive = c.take("+")
	return c.noQuantifier("a quantifier")
}

// set reads a character or a class.
func (c *compiler) set() (*set, error) {
	switch {
	case c.take("["):
		has, err := c.class()
		if err != nil {
			return nil, err
		}
		return newSet(has), nil
	case c.take("."):
		return newSet(func(r rune) bool { return r != '\n' }), nil
	case c.take(`\`):
		has, r, err := c.escape()
		if err != nil {
			return nil, err
		}
		if has != nil {
			return newSet(has), nil
		}
		return single(r, c.fold), nil
	}
	if strings.IndexByte("^$*+?{", c.text[c.at]) >= 0 {
		return nil, fmt.Errorf("%c is not supported here", c.text[c.at])
	}
	return single(c.rune(), c.fold), nil
}

// class reads a class behind its [.
func (c *compiler) class() (func(rune) bool, error) {
	negated := c.take("^")
	var tests []func(rune) bool
	for !c.take("]") {
		if c.at == len(c.text) {
			return nil, errors.New("missing ]")
		}
		if strings.HasPrefix(c.text[c.at:], "&&") || c.text[c.at] == '[' {
			return nil, errors.New("&& and [ in a class are not supported")
		}
		has, from, err := c.member()
		if err != nil {
			return nil, err
		}
		if has == nil && strings.HasPrefix(c.text[c.at:], "-") && !strings.HasPrefix(c.text[c.at:], "-]") {
			c.at++
			class, to, err := c.member()
			if err != nil {
				return nil, err
			}
			if class != nil || to < from {
				return nil, errors.New("a range in a class goes from one character to a later one")
			}
			has = between(from, to, c.fold)
		} else if has == nil {
			has = one(from, c.fold)
		}
		tests = append(tests, has)
	}
	if len(tests) == 0 {
		return nil, errors.New("empty class")
	}
	return func(r rune) bool {
		for _, has := range tests {
			if has(r) {
				return !negated
			}
		}
		return negated
	}, nil
}

// member reads what a class lists: a test, or if that is nil a character.
func (c *compiler) member() (func(rune) bool, rune, error) {
	switch {
	case c.at == len(c.text):
		return nil, 0, errors.New("missing ]")
	case c.take(`\`):
		return c.escape()
	}
	return nil, c.rune(), nil
}

// between returns a test for a range of runes, in either case if fold.
func between(from, to rune, fold bool) func(rune) bool {
	return func(r rune) bool {
		if from <= r && r <= to {
			return true
		}
		if fold {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				if from <= f && f <= to {
					return true
				}
			}
		}
		return false
	}
}

// escape reads what follows a backslash: a test, or if that is nil a character.
func (c *compiler) escape() (func(rune) bool, rune, error) {
	if c.at == len(c.text) {
		return nil, 0, errors.New(`missing character after \`)
	}
	letter := c.text[c.at]
	if has, ok := shorthand(letter); ok {
		c.at++
		return has, 0, nil
	}
	switch letter {
	case 'p', 'P':
		c.at++
		return c.property(letter == 'P')
	case 'x', 'u':
		c.at++
		r, err := c.hex(letter)
		return nil, r, err
	}
	if r, ok := map[byte]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v'}[letter]; ok {
		c.at++
		return nil, r, nil
	}
	r := c.rune()
	if r >= utf8.RuneSelf || isWord(r) {
		return nil, 0, fmt.Errorf(`\%c is not supported`, r)
	}
	return nil, r, nil
}

// property reads the {...} of a \p.
func (c *compiler) property(negated bool) (func(rune) bool, rune, error) {
	name, _, ok := strings.Cut(c.text[c.at:], "}")
	name, opened := strings.CutPrefix(name, "{")
	if !ok || !opened {
		return nil, 0, errors.New(`\p takes a name in braces`)
	}
	c.at += len(name) + 2
	name, inverse := strings.CutPrefix(name, "^")
	has, ok := property(name)
	if !ok {
		return nil, 0, fmt.Errorf(`\p{%s} is not supported: only general categories and scripts are`, name)
	}
	if negated != inverse {
		has = not(has)
	}
	return has, 0, nil
}

// hex reads the digits of \xHH, \x{H...} and \uHHHH.
func (c *compiler) hex(letter byte) (rune, error) {
	digits, rest := "", c.text[c.at:]
	switch {
	case letter == 'x' && strings.HasPrefix(rest, "{"):
		inner, _, _ := strings.Cut(rest[1:], "}")
		digits = inner
		c.at += len(inner) + 2
	case letter == 'x' && len(rest) >= 2:
		digits = rest[:2]
		c.at += 2
	case letter == 'u' && len(rest) >= 4:
		digits = rest[:4]
		c.at += 4
	}
	n, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || n > utf8.MaxRune || c.at > len(c.text) || letter == 'x' && len(digits) == 2 && n >= utf8.RuneSelf {
		c.at = min(c.at, len(c.text))
		return 0, fmt.Errorf(`\%c%s is no character`, letter, digits)
	}
	return rune(n), nil
}
