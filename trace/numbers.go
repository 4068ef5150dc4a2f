package trace

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
)

// AppendHashes appends to dst the numbers of a JSON array of unsigned 64-bit integers. Nothing goes through a
// float, which would lose digits above 2^53; a sign, a fraction or a number over 2^64-1 is an error.
func AppendHashes(dst []uint64, array []byte) ([]uint64, error) {
	i := skipSpace(array, 0)
	if i == len(array) || array[i] != '[' {
		return dst, fmt.Errorf("hash array does not begin with '['")
	}
	i = skipSpace(array, i+1)
	if i < len(array) && array[i] == ']' {
		if end := skipSpace(array, i+1); end < len(array) {
			return dst, fmt.Errorf("%q behind a hash array", array[end])
		}
		return dst, nil
	}
	return appendNumbers(dst, array, i)
}

const maxUint64 = "18446744073709551615"

// appendNumbers reads a JSON array from one of its numbers, at or behind array[i], to its end.
func appendNumbers(dst []uint64, array []byte, i int) ([]uint64, error) {
	for {
		// Nearly all ids that count up: seven digits or fewer, a comma, perhaps a space.
		for i+8 <= len(array) {
			text := binary.LittleEndian.Uint64(array[i:])
			n, v := leadingDigits(text)
			if n == 0 || n == 8 || text&0xff == '0' && n > 1 || text>>(8*uint(n))&0xff != ',' {
				break
			}
			dst = append(dst, v)
			if i += n + 1; i < len(array) && array[i] == ' ' {
				i++
			}
		}
		i = skipSpace(array, i)
		start := i
		var v uint64
		for n := 8; n == 8 && i+8 <= len(array); i += n {
			var digits uint64
			n, digits = leadingDigits(binary.LittleEndian.Uint64(array[i:]))
			v = v*powersOf10[n] + digits
		}
		for i < len(array) && array[i]-'0' <= 9 {
			v = v*10 + uint64(array[i]-'0')
			i++
		}
		digits := i - start
		if digits == 0 || digits > 1 && array[start] == '0' {
			return dst, fmt.Errorf("hash %d is not an unsigned integer", len(dst)+1)
		}
		if digits > len(maxUint64) || digits == len(maxUint64) && string(array[start:i]) > maxUint64 {
			return dst, fmt.Errorf("hash %d is over 2^64-1", len(dst)+1)
		}
		dst = append(dst, v)
		if i = skipSpace(array, i); i == len(array) {
			return dst, fmt.Errorf("hash array is cut off after %d numbers", len(dst))
		}
		switch array[i] {
		case ',':
			i++
		case ']':
			if i = skipSpace(array, i+1); i < len(array) {
				return dst, fmt.Errorf("%q behind a hash array", array[i])
			}
			return dst, nil
		default:
			return dst, fmt.Errorf("%q after hash %d", array[i], len(dst))
		}
	}
}

var powersOf10 = [9]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8}

// leadingDigits returns how many of eight characters, the first in the lowest byte, are digits before any other, and the
// number that those make. It works on all eight at a time: on pairs of digits, then on fours, then on all.
func leadingDigits(text uint64) (n int, value uint64) {
	x := text ^ 0x3030303030303030 // digits are 0 to 9, others more
	n = 8
	if other := (x | (x + 0x0606060606060606)) & 0xf0f0f0f0f0f0f0f0; other != 0 { // the first is right: carries come from others alone
		first := bits.TrailingZeros64(other) &^ 7
		n = first / 8
		x <<= 64 - uint(first) // zeros in front of the number
	}
	x = x * (1 + 10<<8) >> 8 & 0x00ff00ff00ff00ff
	x = x * (1 + 100<<16) >> 16 & 0x0000ffff0000ffff
	return n, x * (1 + 10000<<32) >> 32
}

// skipSpace returns the index of the first byte at or after i that is not JSON white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// commonBytes returns the length of the common prefix of a and b.
func commonBytes(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// integralNumbers returns a copy of a JSON text in which numbers with a fraction or an exponent that are whole all
// the same (130.0, 1.3e2) are written as integers, so that they decode into integer fields. It expects valid JSON.
func integralNumbers(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		start := i
		switch c := text[i]; {
		case c == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i = min(i+1, len(text))
		case c == '-' || c-'0' <= 9:
			for i < len(text) && isNumberByte(text[i]) {
				i++
			}
			// Above 2^53 a float is not the number that was written.
			if f, err := strconv.ParseFloat(string(text[start:i]), 64); err == nil && !isInteger(text[start:i]) &&
				f == float64(int64(f)) && f > -1<<53 && f < 1<<53 {
				out = strconv.AppendInt(out, int64(f), 10)
				continue
			}
		default:
			i++
		}
		out = append(out, text[start:i]...)
	}
	return out
}

func isNumberByte(c byte) bool {
	return c-'0' <= 9 || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

func isInteger(number []byte) bool {
	for _, c := range number {
		if c-'0' > 9 && c != '-' {
			return false
		}
	}
	return true
}
