package toolevent

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// pack appends a value as MessagePack, all sizes in the form of width bytes, as far as there is one.
func pack(b []byte, v any, width int) []byte {
	size := func(b []byte, code1 byte, n int) []byte { // code1 is the code of the form with one byte, or of what it would be
		switch width {
		case 1:
			return append(b, code1, byte(n))
		case 2:
			return binary.BigEndian.AppendUint16(append(b, code1+1), uint16(n))
		}
		return binary.BigEndian.AppendUint32(append(b, code1+2), uint32(n))
	}
	switch v := v.(type) {
	case nil:
		return append(b, 0xc0)
	case bool:
		if v {
			return append(b, 0xc3)
		}
		return append(b, 0xc2)
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
	case int64:
		if v >= -32 && v < 128 && width == 1 {
			return append(b, byte(v))
		}
		return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
	case uint64:
		return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
	case string:
		if len(v) < 32 && width == 1 {
			return append(append(b, 0xa0+byte(len(v))), v...)
		}
		return append(size(b, 0xd9, len(v)), v...)
	case []any:
		if b = append(b, 0x90+byte(len(v))); width > 1 {
			b = size(b[:len(b)-1], 0xdb, len(v))
		}
		for _, e := range v {
			b = pack(b, e, width)
		}
		return b
	case map[string]any:
		if b = append(b, 0x80+byte(len(v))); width > 1 {
			b = size(b[:len(b)-1], 0xdd, len(v))
		}
		for k, e := range v {
			b = pack(pack(b, k, width), e, width)
		}
		return b
	}
	panic("no such value")
}

func genValue(depth int) *rapid.Generator[any] {
	number := rapid.OneOf(rapid.Map(rapid.Int64(), func(n int64) any { return n }), rapid.Map(rapid.Int64Range(-40, 140), func(n int64) any { return n }),
		rapid.Map(rapid.Float64(), func(f float64) any { return f }), rapid.Map(rapid.Uint64(), func(n uint64) any { return n }))
	leaf := rapid.OneOf(number, rapid.Just(any(nil)), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.StringN(0, 40, 200), func(s string) any { return s }))
	if depth == 0 {
		return leaf
	}
	inner := genValue(depth - 1)
	return rapid.OneOf(leaf, rapid.Map(rapid.SliceOfN(inner, 0, 15), func(s []any) any { return s }),
		rapid.Map(rapid.MapOfN(rapid.StringN(0, 20, 60), inner, 0, 15), func(m map[string]any) any { return m }))
}

// MessagePack and JSON of one value are the same JSON.
func TestMsgpackJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := genValue(3).Draw(t, "value")
		got, err := msgpackJSON(pack(nil, v, rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "width")))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var want, have any
		if err := errors.Join(json.Unmarshal(text, &want), json.Unmarshal(got, &have)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Fatalf("%s is not %s:\n%s", got, text, diff)
		}
	})
}

// The examples are in hexadecimal, by the table of formats at msgpack.org.
func TestMsgpackFormats(t *testing.T) {
	for _, c := range []struct{ hex, want string }{
		{"00", "0"}, {"7f", "127"}, {"ff", "-1"}, {"e0", "-32"},
		{"ccff", "255"}, {"cdffff", "65535"}, {"ceffffffff", "4294967295"}, {"cfffffffffffffffff", "18446744073709551615"},
		{"d0ff", "-1"}, {"d18000", "-32768"}, {"d2ffffffff", "-1"}, {"d38000000000000000", "-9223372036854775808"},
		{"ca3fc00000", "1.5"}, {"cb3ff8000000000000", "1.5"}, {"cb426d1a94a2000000", "1e+12"},
		{"c0", "null"}, {"c2", "false"}, {"c3", "true"},
		{"a0", `""`}, {"a2c3a9", `"é"`}, {"d90161", `"a"`}, {"da000161", `"a"`}, {"db0000000161", `"a"`}, {"a122", `"\""`},
		{"90", "[]"}, {"920102", "[1,2]"}, {"dc000101", "[1]"}, {"dd0000000101", "[1]"},
		{"80", "{}"}, {"82a16101a162c0", `{"a":1,"b":null}`}, {"de0001a16101", `{"a":1}`}, {"df00000001d9016101", `{"a":1}`},

		{"", "error: MessagePack is cut off"}, {"cd00", "error: MessagePack is cut off"}, {"a561", "error: MessagePack is cut off"},
		{"92", "error: MessagePack is cut off"}, {"ddffffffff00", "error: MessagePack is cut off"}, {"81", "error: MessagePack is cut off"},
		{"0000", "error: 1 bytes behind the MessagePack value"},
		{"c1", "error: MessagePack type 0xc1 has no place in a tool event"}, {"c40100", "error: MessagePack type 0xc4 has no place in a tool event"},
		{"d40100", "error: MessagePack type 0xd4 has no place in a tool event"},
		{"810102", "error: a MessagePack key is not a string"}, {"a1ff", "error: a MessagePack string is not UTF-8"},
		{"81a16181a162cb7ff8000000000000", `error: "a": "b": a number is NaN: want a finite one`}, {"ca7f800000", "error: a number is +Inf: want a finite one"},
		{strings.Repeat("91", 40), "error: MessagePack nests deeper than 32"},
	} {
		data, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		text, err := msgpackJSON(data)
		got := string(text)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s is %s, want %s", c.hex, got, c.want)
		}
	}
}
