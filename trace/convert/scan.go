package convert

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds how deep JSON values may nest.
const maxDepth = 256

// errNotFinite is NaN, Infinity or a number beyond the range of a float64 where a number is wanted. JSON has no such
// numbers; programs write them all the same.
var errNotFinite = errors.New("not a finite number")

// scanner reads JSON text from front to back without building values. The first fault is kept in err; from then on
// every method returns a zero value, so that a reader checks once, at the end:
//
//	for key, ok := s.object(); ok; key, ok = s.next() {
//		switch string(key) {
//		case "in":
//			in = s.integer()
//		default:
//			s.skip()
//		}
//	}
type scanner struct {
	data []byte
	pos  int
	err  error
}

// fail keeps the first fault.
func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: "+format, append([]any{s.pos}, args...)...)
		s.pos = len(s.data)
	}
}

// peek goes to the next byte that is not white space and returns it; 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\n', '\t', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// accept consumes the byte c, which is not 0, if it comes next.
func (s *scanner) accept(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

// expect consumes the byte c.
func (s *scanner) expect(c byte) {
	if s.byte() == c { // nearly always
		s.pos++
	} else if !s.accept(c) {
		s.fail("want %q, got %s", c, s.look())
	}
}

// look describes what comes next, for messages.
func (s *scanner) look() string {
	if s.peek(); s.pos >= len(s.data) {
		return "the end of the text"
	}
	return strconv.Quote(string(s.data[s.pos:min(s.pos+12, len(s.data))]))
}

// end checks that nothing follows.
func (s *scanner) end() error {
	if s.peek(); s.err == nil && s.pos < len(s.data) {
		s.fail("%s behind the value", s.look())
	}
	return s.err
}

// object enters an object and returns its first key; false if it has none.
func (s *scanner) object() (key []byte, ok bool) {
	s.expect('{')
	if s.err != nil || s.accept('}') {
		return nil, false
	}
	return s.key()
}

// looseObject is object for a value that may be something else, which is skipped and has no keys.
func (s *scanner) looseObject() (key []byte, ok bool) {
	if s.peek() != '{' {
		s.skip()
		return nil, false
	}
	return s.object()
}

// next goes on after a value of an object and returns the next key; false at the end of the object.
func (s *scanner) next() (key []byte, ok bool) {
	if s.err != nil || s.accept('}') {
		return nil, false
	}
	s.expect(',')
	return s.key()
}

func (s *scanner) key() (key []byte, ok bool) {
	key = s.text()
	s.expect(':')
	return key, s.err == nil
}

// array enters an array and tells whether it has a first element.
func (s *scanner) array() bool {
	s.expect('[')
	return s.err == nil && !s.accept(']')
}

// more goes on after an element of an array and tells whether another follows.
func (s *scanner) more() bool {
	if s.err != nil || s.accept(']') {
		return false
	}
	s.expect(',')
	return s.err == nil
}

// null consumes a null.
func (s *scanner) null() bool {
	if s.peek() == 'n' {
		s.literal("null")
		return s.err == nil
	}
	return false
}

func (s *scanner) literal(want string) {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(want)) {
		s.fail("unexpected %s", s.look())
		return
	}
	s.pos += len(want)
}

// text reads a string. The bytes are part of the scanned text unless the string has escapes.
func (s *scanner) text() []byte {
	raw, escaped := s.raw()
	if escaped {
		return appendUnescaped(make([]byte, 0, len(raw)), raw)
	}
	return raw
}

// appendText appends a string to dst, which is returned.
func (s *scanner) appendText(dst []byte) []byte {
	raw, escaped := s.raw()
	if escaped {
		return appendUnescaped(dst, raw)
	}
	return append(dst, raw...)
}

// plain counts the bytes at the beginning of text that are neither quotes, backslashes nor control characters. It looks at
// eight at a time: the first byte of x that is 0 is where (x - 0x01…) & ^x has its first high bit.
func plain(text []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; n+8 <= len(text); n += 8 {
		x := binary.LittleEndian.Uint64(text[n:])
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		if found := ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x) & highs; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(text) && text[n] != '"' && text[n] != '\\' && text[n] >= ' ' {
		n++
	}
	return n
}

// raw reads a string as it is written, and tells whether it has escapes.
func (s *scanner) raw() (raw []byte, escaped bool) {
	if s.expect('"'); s.err != nil {
		return nil, false
	}
	data, start := s.data, s.pos
	for at := start; ; {
		at += plain(data[at:])
		if at < len(data) && data[at] == '\\' {
			escaped = true
			n, ok := escape(data[at+1:])
			if at += 1 + n; ok {
				continue
			}
		}
		s.pos = min(at, len(data))
		switch {
		case at >= len(data):
			s.fail("string is cut off")
		case data[at] == '"':
			s.pos++
			return data[start:at], escaped
		case data[at] < ' ':
			s.fail("control character in a string")
		default:
			s.fail("string: invalid escape %s", s.look())
		}
		return nil, false
	}
}

// escape returns the length of the escape whose backslash precedes text; of one that is none, not ok, where it is wrong.
func escape(text []byte) (n int, ok bool) {
	switch {
	case len(text) == 0:
		return 0, false
	case text[0] == 'u':
		switch {
		case len(text) < 5:
			return len(text), false
		case hex4(text[1:]) < 0:
			return 0, false
		}
		return 5, true
	}
	switch text[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1, true
	}
	return 0, false
}

// hex4 reads four hexadecimal digits; -1 if they are not.
func hex4(text []byte) (r rune) {
	if len(text) < 4 {
		return -1
	}
	for _, c := range text[:4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20-'a' <= 5:
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 + rune(c)
	}
	return r
}

// appendUnescaped appends what a string with valid escapes stands for.
func appendUnescaped(dst, raw []byte) []byte {
	for {
		at := bytes.IndexByte(raw, '\\')
		if at < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:at]...)
		c := raw[at+1]
		raw = raw[at+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(raw)
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if bytes.HasPrefix(raw, []byte(`\u`)) {
					low = hex4(raw[2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					raw = raw[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
}

// str reads a string, or null as "".
func (s *scanner) str() string { return validString(s.nullable()) }

// nullable is text, or null as no text.
func (s *scanner) nullable() []byte {
	if s.null() {
		return nil
	}
	return s.text()
}

// validString returns text with each run of bytes that are no UTF-8 replaced.
func validString(text []byte) string {
	if utf8.Valid(text) {
		return string(text)
	}
	return string(bytes.ToValidUTF8(text, []byte(string(utf8.RuneError))))
}

// number consumes a number and returns its text.
func (s *scanner) number() []byte {
	s.peek()
	start := s.pos
	if s.byte() == '-' {
		s.pos++
	}
	ok := s.byte() == '0'
	if ok {
		s.pos++
	} else {
		ok = s.digits()
	}
	if ok && s.byte() == '.' {
		s.pos++
		ok = s.digits()
	}
	if ok && s.byte()|0x20 == 'e' {
		if s.pos++; s.byte() == '+' || s.byte() == '-' {
			s.pos++
		}
		ok = s.digits()
	}
	if ok {
		return s.data[start:s.pos]
	}
	s.pos = start
	for _, name := range []string{"NaN", "Infinity", "-Infinity"} { // as Python writes them
		if bytes.HasPrefix(s.data[s.pos:], []byte(name)) {
			s.fail("%w", errNotFinite)
		}
	}
	s.fail("want a number, got %s", s.look())
	return nil
}

// byte returns the next byte, white space or not; 0 at the end.
func (s *scanner) byte() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// digits consumes digits and tells whether there was one.
func (s *scanner) digits() bool {
	start := s.pos
	for s.byte()-'0' <= 9 {
		s.pos++
	}
	return s.pos > start
}

// float reads a finite number, or null as NaN.
func (s *scanner) float() float64 {
	if s.null() {
		return math.NaN()
	}
	text := s.number()
	if s.err != nil {
		return 0
	}
	if n, ok := smallInteger(text); ok {
		return float64(n)
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		s.fail("%s: %w", text, errNotFinite)
	}
	return f
}

// smallInteger reads a number that is written with digits alone, up to 18, so that it fits.
func smallInteger(text []byte) (n int64, ok bool) {
	if len(text) > 18 {
		return 0, false
	}
	for _, c := range text {
		if c-'0' > 9 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// integer reads a whole number, which may be written as a float (3.0).
func (s *scanner) integer() int64 {
	text := s.number()
	if s.err != nil {
		return 0
	}
	if n, ok := smallInteger(text); ok {
		return n
	}
	return s.wholeFloat(text)
}

func (s *scanner) wholeFloat(text []byte) int64 {
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		s.fail("%s is not a whole number that fits", text)
		return 0
	}
	return int64(f)
}

// flat consumes an array that holds no strings, arrays or objects and returns its text, unchecked inside; nil for
// null.
func (s *scanner) flat() []byte {
	if s.null() {
		return nil
	}
	if s.peek() != '[' {
		s.fail("want an array, got %s", s.look())
		return nil
	}
	end := bytes.IndexByte(s.data[s.pos:], ']')
	if end < 0 {
		s.fail("array is cut off")
		return nil
	}
	text := s.data[s.pos : s.pos+end+1]
	s.pos += end + 1
	return text
}

// skip consumes a value of any kind.
func (s *scanner) skip() { s.skipNested(0) }

func (s *scanner) skipNested(depth int) {
	if depth > maxDepth {
		s.fail("values nest deeper than %d", maxDepth)
		return
	}
	switch c := s.peek(); c {
	case '{':
		for _, ok := s.object(); ok; _, ok = s.next() {
			s.skipNested(depth + 1)
		}
	case '[':
		for ok := s.array(); ok; ok = s.more() {
			s.skipNested(depth + 1)
		}
	case '"':
		s.raw()
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		s.number()
	}
}
