package wire

import "bytes"

// object goes through the members of a JSON object without decoding what nobody asks for:
//
//	o := object{text: text}
//	for o.next() {
//		... o.key, o.value
//	}
//	if !o.whole { text is no JSON object, or not the whole of one }
type object struct {
	text []byte
	// key is as it is written, without its quotes. The value begins at from.
	key, value []byte
	from       int
	whole      bool

	at    int
	begun bool
}

// next goes to the next member.
func (o *object) next() bool {
	separator := byte(',')
	if !o.begun {
		o.begun, separator = true, '{'
	}
	c := o.skip()
	if c == '}' && separator == ',' {
		o.at++
		o.whole = true
		return false
	}
	if c != separator {
		return false
	}
	o.at++
	if c = o.skip(); c != '"' {
		if o.whole = c == '}' && separator == '{'; o.whole {
			o.at++
		}
		return false
	}
	end := o.at + stringEnd(o.text[o.at:])
	o.key = o.text[o.at+1 : max(o.at+1, end-1)]
	if o.at = end; o.skip() != ':' {
		return false
	}
	o.at++
	if o.skip() == 0 {
		return false
	}
	o.from = o.at
	o.at += valueEnd(o.text[o.at:])
	o.value = o.text[o.from:o.at]
	return len(o.value) > 0
}

// skip goes to the next byte that is no space and returns it, 0 at the end.
func (o *object) skip() byte {
	for ; o.at < len(o.text); o.at++ {
		switch c := o.text[o.at]; c {
		case ' ', '\n', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

// valueEnd is the length of the JSON value that the text begins with, up to the comma or bracket behind it.
func valueEnd(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringEnd(text[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return len(bytes.TrimRight(text[:i], " \n\t\r"))
			}
		case ',':
			if depth == 0 {
				return len(bytes.TrimRight(text[:i], " \n\t\r"))
			}
		}
	}
	return len(text)
}

// stringEnd is the length of the JSON string that the text begins with, with its quotes.
func stringEnd(text []byte) int {
	for at := 1; at < len(text); {
		next := bytes.IndexByte(text[at:], '"')
		if next < 0 {
			break
		}
		at += next
		slashes := 0
		for slashes < at-1 && text[at-1-slashes] == '\\' {
			slashes++
		}
		if at++; slashes%2 == 0 {
			return at
		}
	}
	return len(text)
}
