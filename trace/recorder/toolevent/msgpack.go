package toolevent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/goccy/go-json"
)

// maxMsgpackDepth bounds how deep the maps and arrays of a tool event may nest.
const maxMsgpackDepth = 32

var errMsgpackShort = errors.New("MessagePack is cut off")

// msgpackJSON turns one MessagePack value, as the specification at msgpack.org has it, into JSON. What JSON cannot say is an
// error: binary data, extensions, keys that are no strings, numbers that are not finite. So are bytes behind the value.
func msgpackJSON(data []byte) ([]byte, error) {
	m := msgpack{rest: data, out: make([]byte, 0, 2*len(data))}
	if err := m.value(0); err != nil {
		return nil, err
	}
	if len(m.rest) > 0 {
		return nil, fmt.Errorf("%d bytes behind the MessagePack value", len(m.rest))
	}
	return m.out, nil
}

type msgpack struct {
	rest, out []byte
}

// value turns the next value, which lies in depth others.
func (m *msgpack) value(depth int) error {
	if len(m.rest) == 0 {
		return errMsgpackShort
	}
	if depth > maxMsgpackDepth {
		return fmt.Errorf("MessagePack nests deeper than %d", maxMsgpackDepth)
	}
	c := m.rest[0]
	m.rest = m.rest[1:]
	switch {
	case c <= 0x7f, c >= 0xe0: // fixint
		m.out = strconv.AppendInt(m.out, int64(int8(c)), 10)
		return nil
	case c <= 0x8f:
		return m.members(uint64(c&0x0f), depth, true)
	case c <= 0x9f:
		return m.members(uint64(c&0x0f), depth, false)
	case c <= 0xbf:
		return m.str(uint64(c & 0x1f))
	}
	switch c {
	case 0xc0:
		m.out = append(m.out, "null"...)
		return nil
	case 0xc2, 0xc3:
		m.out = strconv.AppendBool(m.out, c == 0xc3)
		return nil
	case 0xca, 0xcb: // float 32, 64
		return m.float(4 << (c - 0xca))
	case 0xcc, 0xcd, 0xce, 0xcf: // uint 8, 16, 32, 64
		n, err := m.number(1 << (c - 0xcc))
		m.out = strconv.AppendUint(m.out, n, 10)
		return err
	case 0xd0, 0xd1, 0xd2, 0xd3: // int 8, 16, 32, 64
		bytes := 1 << (c - 0xd0)
		n, err := m.number(bytes)
		shift := 64 - 8*bytes
		m.out = strconv.AppendInt(m.out, int64(n<<shift)>>shift, 10)
		return err
	case 0xd9, 0xda, 0xdb: // str 8, 16, 32
		return m.sized(1<<(c-0xd9), m.str)
	case 0xdc, 0xdd: // array 16, 32
		return m.sized(2<<(c-0xdc), func(n uint64) error { return m.members(n, depth, false) })
	case 0xde, 0xdf: // map 16, 32
		return m.sized(2<<(c-0xde), func(n uint64) error { return m.members(n, depth, true) })
	}
	return fmt.Errorf("MessagePack type 0x%02x has no place in a tool event", c)
}

// number reads a big-endian number.
func (m *msgpack) number(size int) (uint64, error) {
	if len(m.rest) < size {
		return 0, errMsgpackShort
	}
	var b [8]byte
	copy(b[8-size:], m.rest)
	m.rest = m.rest[size:]
	return binary.BigEndian.Uint64(b[:]), nil
}

// sized reads a count and calls read with it.
func (m *msgpack) sized(size int, read func(n uint64) error) error {
	n, err := m.number(size)
	if err != nil {
		return err
	}
	return read(n)
}

func (m *msgpack) float(size int) error {
	n, err := m.number(size)
	f := math.Float64frombits(n)
	if size == 4 {
		f = float64(math.Float32frombits(uint32(n)))
	}
	if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
		err = fmt.Errorf("a number is %g: want a finite one", f)
	}
	m.out = strconv.AppendFloat(m.out, f, 'g', -1, 64)
	return err
}

func (m *msgpack) str(n uint64) error {
	if uint64(len(m.rest)) < n {
		return errMsgpackShort
	}
	s := m.rest[:n]
	m.rest = m.rest[n:]
	if !utf8.Valid(s) {
		return errors.New("a MessagePack string is not UTF-8")
	}
	quoted, err := json.Marshal(string(s))
	m.out = append(m.out, quoted...)
	return err
}

// members turns the n values of an array, or the n pairs of a map.
func (m *msgpack) members(n uint64, depth int, pairs bool) error {
	open, end := byte('['), byte(']')
	if pairs {
		open, end = '{', '}'
	}
	m.out = append(m.out, open)
	for i := range n { // each takes a byte at least, so a false count ends soon
		if i > 0 {
			m.out = append(m.out, ',')
		}
		err := error(nil)
		if pairs {
			err = m.pair(depth + 1)
		} else {
			err = m.value(depth + 1)
		}
		if err != nil {
			return err
		}
	}
	m.out = append(m.out, end)
	return nil
}

// pair turns a key and its value.
func (m *msgpack) pair(depth int) error {
	if len(m.rest) > 0 && !isMsgpackString(m.rest[0]) {
		return errors.New("a MessagePack key is not a string")
	}
	start := len(m.out)
	if err := m.value(depth); err != nil {
		return err
	}
	end := len(m.out)
	m.out = append(m.out, ':')
	if err := m.value(depth); err != nil {
		return fmt.Errorf("%.60s: %w", m.out[start:end], err)
	}
	return nil
}

func isMsgpackString(c byte) bool { return c >= 0xa0 && c <= 0xbf || c >= 0xd9 && c <= 0xdb }
