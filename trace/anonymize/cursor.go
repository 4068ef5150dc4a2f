package anonymize

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// cursor walks a JSON text that is known to be valid.
type cursor struct {
	json []byte
	at   int
}

// peek returns the first byte of the next value or delimiter.
func (c *cursor) peek() byte {
	for c.json[c.at] == ' ' || c.json[c.at] == '\t' || c.json[c.at] == '\n' || c.json[c.at] == '\r' {
		c.at++
	}
	return c.json[c.at]
}

// value consumes the next value and returns its text.
func (c *cursor) value() []byte {
	first, from, depth := c.peek(), c.at, 0
	for {
		switch c.json[c.at] {
		case '"':
			for c.at++; c.json[c.at] != '"'; c.at++ {
				if c.json[c.at] == '\\' {
					c.at++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		c.at++
		if depth == 0 && (first == '"' || first == '{' || first == '[' || c.at == len(c.json) || endsScalar(c.json[c.at])) {
			return c.json[from:c.at]
		}
	}
}

func endsScalar(b byte) bool {
	switch b {
	case ',', '}', ']', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// object calls each with every key of the next value, an object. It must consume the key's value.
func (c *cursor) object(each func(key string)) {
	c.peek()
	c.at++
	for c.peek() != '}' {
		key := unquote(c.value())
		c.peek()
		c.at++ // the colon
		each(string(key))
		if c.peek() == ',' {
			c.at++
		}
	}
	c.at++
}

// array calls each before every element of the next value, an array. It must consume the element.
func (c *cursor) array(each func()) {
	c.peek()
	c.at++
	for c.peek() != ']' {
		each()
		if c.peek() == ',' {
			c.at++
		}
	}
	c.at++
}

// unquote returns the text that a JSON string stands for, as any reader of it gets it: bytes that are no UTF-8 are U+FFFD.
func unquote(quoted []byte) []byte {
	plain := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return plain
	}
	var s string
	json.Unmarshal(quoted, &s) // it is valid
	return []byte(s)
}
