package convert

import "strings"

// list enters an array as array does; null is an empty one.
func (s *scanner) list() bool { return !s.null() && s.array() }

// content reads the content of a message: a string, null, or a list of parts of which those with a text count.
func (s *scanner) content() string {
	switch s.peek() {
	case '[':
		var text strings.Builder
		for ok := s.array(); ok; ok = s.more() {
			if s.peek() == '"' {
				text.WriteString(s.str())
				continue
			}
			for key, ok := s.object(); ok; key, ok = s.next() {
				if (string(key) == "text" || string(key) == "content") && s.peek() == '"' {
					text.WriteString(s.str())
				} else {
					s.skip()
				}
			}
		}
		return text.String()
	case '"', 'n':
		return s.str()
	default:
		return string(s.span())
	}
}

// appendTextOf enters an object and appends what it has as text.
func (s *scanner) appendTextOf(dst []byte) []byte {
	for key, ok := s.object(); ok; key, ok = s.next() {
		if string(key) == "text" {
			dst = appendString(dst, s.span())
		} else {
			s.skip()
		}
	}
	return dst
}

// name reads an id, which some programs write as a number; null is "".
func (s *scanner) name() string { return validString(s.nameText()) }

func (s *scanner) nameText() []byte {
	if c := s.peek(); c == '-' || c-'0' <= 9 {
		return s.number()
	}
	return s.nullable()
}

// whole reads an integer in a range; null is 0, or the least if that is more.
func (s *scanner) whole(least, most int64) int64 {
	if s.null() {
		return max(least, 0)
	}
	n := s.integer()
	if s.err == nil && (n < least || n > most) {
		s.fail("%d is not in %d to %d", n, least, most)
	}
	return n
}

// names has one copy of each of the names that rows repeat.
type names map[string]string

func (n names) of(text []byte) string {
	name, ok := n[string(text)]
	if !ok {
		name = validString(text)
		n[string(text)] = name
	}
	return name
}
