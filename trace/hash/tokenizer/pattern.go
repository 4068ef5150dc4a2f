package tokenizer

import "unicode/utf8"

// A pattern is a regular expression as tokenizers use them. It stands in for package regexp, which lacks the
// lookahead of \s+(?!\S), and takes the first alternative that matches, as Oniguruma does. It matches no empty text.
//
// No group can be repeated, so a match takes at most as many steps as the text's length to the power of the number of
// quantifiers behind each other; the patterns of known tokenizers take a number in proportion.
type pattern struct{ first *node }

// A node matches a part of the text and then what follows it in the pattern; a nil node is the end of the pattern.
type node struct {
	// One of these four is set, or none: such a node matches nothing and leads on.
	set    *set    // between min and max runes of a set, as many as the rest allows
	either []*node // the first of these that matches; each leads on to next
	ahead  *node   // text ahead that this matches
	behind *node   // text ahead that this does not match

	byASCII    *[utf8.RuneSelf][]*node // of either, those that can match what begins with a character
	min, max   int                     // of a set; max < 0: any number
	possessive bool                    // a set gives nothing back
	next       *node
}

// match returns where a match that begins at a position ends, or -1.
func (n *node) match(text []byte, at int) int {
	for n != nil {
		switch {
		case n.set != nil && n.min == 1 && n.max == 1:
			size := n.set.match(text, at)
			if size == 0 {
				return -1
			}
			at += size
		case n.set != nil:
			start, count := at, 0
			for n.max < 0 || count < n.max {
				size := n.set.match(text, at)
				if size == 0 {
					break
				}
				at += size
				count++
			}
			if count < n.min {
				return -1
			}
			if n.possessive || n.next == nil || count == n.min {
				break
			}
			return n.giveBack(text, start, at, count)
		case n.either != nil:
			for _, way := range n.ways(text, at) {
				if end := way.match(text, at); end >= 0 {
					return end
				}
			}
			return -1
		case n.ahead != nil && n.ahead.match(text, at) < 0, n.behind != nil && n.behind.match(text, at) >= 0:
			return -1
		}
		n = n.next
	}
	return at
}

// ways returns the alternatives worth trying.
func (n *node) ways(text []byte, at int) []*node {
	if at < len(text) && text[at] < utf8.RuneSelf && n.byASCII != nil {
		return n.byASCII[text[at]]
	}
	return n.either
}

// index sets byASCII of a node of alternatives, whose nodes are all chained.
func (n *node) index() {
	n.byASCII = new([utf8.RuneSelf][]*node)
	for b := range n.byASCII {
		for _, way := range n.either {
			if way.canBegin(byte(b)) {
				n.byASCII[b] = append(n.byASCII[b], way)
			}
		}
	}
}

// canBegin tells whether a node might match text that begins with a character; if in doubt, it might.
func (n *node) canBegin(b byte) bool {
	for ; n != nil && n.set != nil; n = n.next {
		if n.set.ascii(b) == 1 {
			return true
		}
		if n.min > 0 {
			return false
		}
	}
	return true
}

// giveBack matches what follows a set that took count runes: behind all of them, or behind fewer and fewer.
func (n *node) giveBack(text []byte, start, at, count int) int {
	for {
		if end := n.next.match(text, at); end >= 0 {
			return end
		}
		if count == n.min {
			return -1
		}
		_, size := utf8.DecodeLastRune(text[start:at])
		at -= size
		count--
	}
}

// split hands over the matches in a text and what lies between them, in order.
func (p *pattern) split(text []byte, part func(start, end int, match bool)) {
	done := 0
	for at := 0; at < len(text); {
		end := p.first.match(text, at)
		if end <= at {
			_, size := utf8.DecodeRune(text[at:])
			at += size
			continue
		}
		if done < at {
			part(done, at, false)
		}
		part(at, end, true)
		at, done = end, end
	}
	if done < len(text) {
		part(done, len(text), false)
	}
}

// shortest returns how many runes the shortest match has. known keeps what was found, for nodes that several lead to.
func shortest(n *node, known map[*node]int) int {
	if n == nil {
		return 0
	}
	if runes, ok := known[n]; ok {
		return runes
	}
	runes := 0
	switch {
	case n.either != nil: // they all lead on
		runes = shortest(n.either[0], known)
		for _, way := range n.either[1:] {
			runes = min(runes, shortest(way, known))
		}
	case n.set != nil:
		runes = n.min + shortest(n.next, known)
	default:
		runes = shortest(n.next, known)
	}
	known[n] = runes
	return runes
}
