package convert

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestScanner(t *testing.T) {
	s := scanner{data: []byte(` {"a":1,"list":[1,{"x":[]}],"\u0062":"q\"\u00e9", "f":-1.5e1 ,"none":null,"yes":true,"ids":[1, 2]}  `)}
	got := map[string]any{}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch k := string(key); k {
		case "a":
			got[k] = s.integer()
		case "b":
			got[k] = s.str()
		case "f":
			got[k] = s.float()
		case "none":
			got[k] = s.str()
		case "yes":
			s.skip()
		case "ids":
			got[k] = string(s.flat())
		default:
			s.skip()
		}
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]any{"a": int64(1), "b": "q\"é", "f": -15.0, "none": "", "ids": "[1, 2]"} {
		if got[k] != want {
			t.Errorf("%s is %v, want %v", k, got[k], want)
		}
	}
}

func TestScannerFaults(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"a" 1}`, `byte 5: want ':', got "1}"`},
		{`{"a":1,}`, `want '"'`},
		{`{"a":01}`, `want ','`},
		{`[1 2]`, `want ','`},
		{`{"a":"x`, "string is cut off"},
		{`{"a":"x\`, "string is cut off"},
		{`["` + "\x01" + `"]`, "control character"},
		{`["\x"]`, "string"},
		{`[-]`, "want a number"},
		{`[1.]`, "want a number"},
		{`[NaN]`, "not a finite number"},
		{`[-Infinity]`, "not a finite number"},
		{`[tru]`, "unexpected"},
		{`1 2`, "behind the value"},
		{``, "the end of the text"},
		{strings.Repeat("[", 300), "nest deeper than 256"},
	} {
		s := scanner{data: []byte(c.text)}
		s.skip()
		if err := s.end(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestScannerIntegers(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"-7", -7, true}, {"3.0", 3, true}, {"1.3e2", 130, true}, {"9223372036854775807", math.MaxInt64, true},
		{"9223372036854775808", 0, false}, {"1.5", 0, false}, {"1e300", 0, false}, {"-", 0, false}, {"00", 0, false}, {`"1"`, 0, false},
	} {
		s := scanner{data: []byte(c.text)}
		got := s.integer()
		if err := s.end(); (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("%s: %d, %v; want %d, ok %v", c.text, got, err, c.want, c.ok)
		}
	}
}

// FuzzScan compares the scanner with encoding/json: what is valid, and what numbers are.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e-3,"x\u00e9\n"],"b":null}`, "1e400", "-0", "0.0", "1E+2", `"\ud800"`, `"\ud83d\ude00\ud83dx\/\b\f\r\t\""`, `"\ud800\u0041"`, "[[]]", "01", "1.", "{}", "1e19"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := scanner{data: text}
		s.skip()
		if err := s.end(); err != nil && strings.Contains(err.Error(), "nest deeper") {
			return
		} else if (err == nil) != json.Valid(text) {
			t.Fatalf("%q: %v, but encoding/json says valid=%v", text, err, json.Valid(text))
		}
		var want string
		if len(text) > 0 && text[0] == '"' && utf8.Valid(text) && json.Unmarshal(text, &want) == nil {
			s = scanner{data: text}
			if got := s.str(); got != want {
				t.Fatalf("%q: %q; encoding/json says %q", text, got, want)
			}
		}
		if len(text) == 0 || text[0] != '-' && text[0]-'0' > 9 {
			return
		}
		var number float64
		wantErr := json.Unmarshal(text, &number)
		s = scanner{data: text}
		got := s.float()
		if err := s.end(); (err == nil) != (wantErr == nil) || err == nil && got != number {
			t.Fatalf("%q: %v, %v; encoding/json says %v, %v", text, got, err, number, wantErr)
		}
		var whole int64
		if json.Unmarshal(text, &whole) == nil {
			s = scanner{data: text}
			if n := s.integer(); n != whole || s.err != nil {
				t.Fatalf("%q: %d, %v; encoding/json says %d", text, n, s.err, whole)
			}
		}
	})
}
