package hash

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

func newKey(t testing.TB, secret string) *Key {
	t.Helper()
	k, err := NewKey([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// derive returns what NewKey makes of a secret.
func derive(t *testing.T, secret string) []byte {
	t.Helper()
	derived, err := hkdf.Key(sha256.New, []byte(secret), nil, "agentsim block hash v1", 32)
	if err != nil {
		t.Fatal(err)
	}
	return derived
}

// TestKeyIsHMAC computes a keyed hash by the words of Apply's comment.
func TestKeyIsHMAC(t *testing.T) {
	const secret = "sixteen bytes ok"
	derived := derive(t, secret)
	hashes := Blocks(count(1, 12), 4)
	var want []uint64
	for _, h := range hashes {
		mac := hmac.New(sha256.New, derived)
		mac.Write(binary.LittleEndian.AppendUint64(nil, h))
		want = append(want, binary.LittleEndian.Uint64(mac.Sum(nil)))
	}
	newKey(t, secret).Apply(hashes)
	if !slices.Equal(hashes, want) {
		t.Errorf("keyed hashes %x, want %x", hashes, want)
	}
}

// TestKeyKeepsSharing keys two prompts that begin alike, under one key and under another.
func TestKeyKeepsSharing(t *testing.T) {
	short, long := Blocks(count(1, 64), 16), Blocks(count(1, 96), 16)
	other := slices.Clone(long)
	newKey(t, "the first secret").Apply(short)
	newKey(t, "the first secret").Apply(long)
	newKey(t, "the other secret").Apply(other)
	if !slices.Equal(short, long[:len(short)]) {
		t.Errorf("one key: %x is no prefix of %x", short, long)
	}
	for _, h := range other {
		if slices.Contains(long, h) {
			t.Errorf("two keys give the same hash %x", h)
		}
	}
}

// TestKeyDefeatsDictionary guesses short prompts. Unkeyed, the guess is proved right by one equal hash.
func TestKeyDefeatsDictionary(t *testing.T) {
	dictionary := map[uint64]string{}
	var recorded []uint64
	for _, word := range []string{"hi", "hello", "yes", "continue", "fix the tests", "what is the weather today"} {
		for _, blockSize := range []int{1, 16, 64} {
			for _, h := range NewEstimator(blockSize).Prompt().Blocks(word, 0) {
				dictionary[h] = word
				recorded = append(recorded, h)
			}
		}
	}
	found := func() (n int) {
		for _, h := range recorded {
			if _, ok := dictionary[h]; ok {
				n++
			}
		}
		return n
	}
	if n := found(); n != len(recorded) {
		t.Errorf("unkeyed: %d of %d hashes guessed: this test tests nothing", n, len(recorded))
	}
	newKey(t, "nobody knows this").Apply(recorded)
	if n := found(); n != 0 {
		t.Errorf("keyed: %d hashes guessed", n)
	}
}

// TestKeyUsesAllBits keys so many numbers that two would meet if hashes had 35 bits or fewer.
func TestKeyUsesAllBits(t *testing.T) {
	hashes := make([]uint64, 1<<18)
	var or, and uint64 = 0, 1<<64 - 1
	for i := range hashes {
		hashes[i] = uint64(i)
	}
	newKey(t, "sixteen bytes ok").Apply(hashes)
	for _, h := range hashes {
		or, and = or|h, and&h
	}
	slices.Sort(hashes)
	if n := len(slices.Compact(hashes)); n != len(hashes) || or != 1<<64-1 || and != 0 {
		t.Errorf("%d distinct of 2^18; bits ever set %x, always set %x", n, or, and)
	}
}

func TestKeyRefusesShortSecret(t *testing.T) {
	if _, err := NewKey([]byte("fifteen bytes..")); err == nil || strings.Contains(err.Error(), "fifteen") {
		t.Errorf("error %v: want one that does not show the secret", err)
	}
}

// TestKeyIsNeverPrinted prints a key in every way that a log might.
func TestKeyIsNeverPrinted(t *testing.T) {
	k := newKey(t, "sixteen bytes ok")
	type holder struct {
		Open   *Key
		hidden *Key
		Value  Key
	}
	h := holder{k, k, *k}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
		for _, v := range []any{k, *k, h, &h, []*Key{k}, map[string]*Key{"a": k}} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	if err := json.NewEncoder(&out).Encode(h); err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("key", "key", k, "holder", h)
	slog.New(slog.NewTextHandler(&out, nil)).Info("key", "key", k, "holder", h)
	derived := derive(t, "sixteen bytes ok")[:4]
	for _, form := range []string{hex.EncodeToString(derived), strings.Trim(fmt.Sprint(derived), "[]"), string(derived), base64.StdEncoding.EncodeToString(derived[:3])} {
		if strings.Contains(strings.ToLower(out.String()), strings.ToLower(form)) {
			t.Errorf("%q of the secret is printed", form)
		}
	}
}

func BenchmarkKey(b *testing.B) {
	k := newKey(b, "sixteen bytes ok")
	hashes := make([]uint64, 1024)
	b.SetBytes(int64(8 * len(hashes)))
	b.ReportAllocs()
	for b.Loop() {
		k.Apply(hashes)
	}
}
