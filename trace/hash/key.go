package hash

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
)

// minSecret is the fewest bytes that a secret may have: 128 bits, if they are random.
const minSecret = 16

// A Key turns block hashes, which anyone can compute from a guessed prompt, into ones that say nothing without the
// secret. Equal hashes stay equal, so what is shared stays shared. It is safe for concurrent use, and no verb of fmt
// and no encoder shows what is in it: they cannot look into a function.
type Key struct{ newMAC func() hash.Hash }

// NewKey makes a key of a secret of at least 16 bytes, which should come from crypto/rand. The key is derived (HKDF,
// RFC 5869), so that the same secret may serve for other things.
func NewKey(secret []byte) (*Key, error) {
	if len(secret) < minSecret {
		return nil, fmt.Errorf("making a key for block hashes: a secret of %d bytes can be guessed; give at least %d random ones", len(secret), minSecret)
	}
	derived, err := hkdf.Key(sha256.New, secret, nil, "agentsim block hash v1", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("making a key for block hashes: %w", err)
	}
	return &Key{newMAC: func() hash.Hash { return hmac.New(sha256.New, derived) }}, nil
}

// Apply replaces hashes by keyed ones: each by the first 8 bytes, little-endian, of the HMAC-SHA256 of its own 8. So a
// trace keyed while it was recorded and one keyed afterwards are equal. Among n distinct hashes two come out equal
// with a probability of n²/2^65, 3 in a million for ten million: the same as for the XXH3 of the blocks.
func (k *Key) Apply(hashes []uint64) {
	mac := k.newMAC()
	var in [8]byte
	var out [sha256.Size]byte
	for i, h := range hashes {
		binary.LittleEndian.PutUint64(in[:], h)
		mac.Reset()
		mac.Write(in[:])
		hashes[i] = binary.LittleEndian.Uint64(mac.Sum(out[:0]))
	}
}

// Format prints the kind of value and nothing of the secret, whatever the verb.
func (Key) Format(s fmt.State, _ rune) { io.WriteString(s, "hash.Key(secret)") }
