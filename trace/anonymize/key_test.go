package anonymize

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// testKey is the key 000102...1f.
func testKey(t testing.TB) Key {
	t.Helper()
	var secret [32]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	return NewKey(secret)
}

// A key is in no message, whatever prints it.
func TestKeyIsNotPrinted(t *testing.T) {
	k := testKey(t)
	wrapped := errors.Join(fmt.Errorf("with %v", k), fmt.Errorf("with %+v", Options{Key: k}))
	text := fmt.Sprintf("%v %+v %#v %s %q %x %d %v", k, k, k, k, k, k, k, wrapped)
	for _, digits := range []string{"0001020304", "0 1 2 3 4", `\x00\x01`, "0x1, 0x2"} {
		if strings.Contains(text, digits) {
			t.Errorf("%q is in %q", digits, text)
		}
	}
}

// What a key makes stays the same from version to version: who keeps a key keeps his pseudonyms.
func TestPseudonymsGolden(t *testing.T) {
	p := newPseudonyms(testKey(t))
	got := fmt.Sprint(p.id("job7:root"), " ", keyed(p, 14643705804678351452), " ", keyed(p, 1), " ", string(p.appendFiller(nil, []byte("please fix the bug"))))
	want := goldenPseudonyms
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if by := testKey(t).shift(); by < year || by > 10*year || by%time.Second != 0 {
		t.Errorf("shift %v", by)
	}
}

// Another key gives other pseudonyms.
func TestPseudonymsDependOnTheKey(t *testing.T) {
	other := NewKey([32]byte{7})
	a, b := newPseudonyms(testKey(t)), newPseudonyms(other)
	if a.id("x") == b.id("x") || keyed(a, 1) == keyed(b, 1) || testKey(t).shift() == other.shift() ||
		string(a.appendFiller(nil, make([]byte, 40))) == string(b.appendFiller(nil, make([]byte, 40))) {
		t.Error("two keys give the same pseudonym")
	}
}

// Fillers are as long as their texts, have only filler letters, and are equal exactly as far as the texts are, in steps.
func TestFillerSharesWhatTextsShare(t *testing.T) {
	p := newPseudonyms(testKey(t))
	rapid.Check(t, func(t *rapid.T) {
		common := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "common")
		a := append(bytes.Clone(common), rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "a")...)
		b := append(bytes.Clone(common), rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "b")...)
		fa, fb := p.appendFiller(nil, a), p.appendFiller(nil, b)
		if len(fa) != len(a) || len(fb) != len(b) || !isFiller(string(fa)) {
			t.Fatalf("fillers %q and %q", fa, fb)
		}
		shared := 0
		for shared < min(len(a), len(b)) && a[shared] == b[shared] {
			shared++
		}
		whole := shared / fillerStep * fillerStep
		if bytes.Equal(a, b) {
			whole = len(a)
		}
		if !bytes.Equal(fa[:whole], fb[:whole]) {
			t.Fatalf("%d bytes are shared, the fillers are %q and %q", shared, fa, fb)
		}
		if end := whole + certain; whole < len(a) && end <= min(len(a), len(b)) && bytes.Equal(fa[whole:end], fb[whole:end]) {
			t.Fatalf("only %d bytes are shared, the fillers are %q and %q", shared, fa, fb)
		}
	})
}

// keyed returns the keyed value of one hash.
func keyed(p *pseudonyms, h uint64) uint64 {
	hashes := []uint64{h}
	p.keyed(hashes)
	return hashes[0]
}

// Remembering hashes changes nothing: the slow twin remembers none.
func TestHashesAreRemembered(t *testing.T) {
	k := testKey(t)
	p := newPseudonyms(k)
	rapid.Check(t, func(t *rapid.T) {
		// Few enough to meet again, and some that share a slot.
		chain := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) uint64 {
			return rapid.Uint64Range(0, 3).Draw(t, "turn")*uint64(len(p.recent)) + rapid.Uint64Range(0, 2).Draw(t, "slot")
		}), 0, 20).Draw(t, "chain")
		got := slices.Clone(chain)
		p.keyed(got)
		for i, h := range chain {
			if want := keyed(newPseudonyms(k), h); got[i] != want {
				t.Fatalf("hash %d became %d, want %d", h, got[i], want)
			}
		}
	})
}

const goldenPseudonyms = "6ac02094-7fe6-8629-b317-84176bba5dc2 4767690650312554263 2774405698395594016 h grc rmdpd bhjr r"
