package anonymize

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	stdhash "hash"
	"io"
	"time"

	"github.com/agentsim/agentsim/trace/hash"
)

// Key is the secret that pseudonyms are made with: who has it can tell which pseudonym stands for a name that he
// guesses, who has not cannot. One key gives one name one pseudonym, in all files and all runs.
type Key struct{ secret [32]byte }

// NewKey returns the key of a secret.
func NewKey(secret [32]byte) Key { return Key{secret} }

// Format keeps the secret out of whatever prints a Key.
func (Key) Format(s fmt.State, _ rune) { io.WriteString(s, "(secret key)") }

// derive returns a key for one purpose.
func (k Key) derive(purpose string) []byte {
	mac := hmac.New(sha256.New, k.secret[:])
	io.WriteString(mac, "agentsim anonymize v1: "+purpose)
	return mac.Sum(nil)
}

const year = 365 * 24 * time.Hour

// shift is by how much --shift-time moves all times: one to ten years ahead, to a second that only the key tells, so that
// neither the date nor the time of day nor the day of the week stays. Whole seconds keep times exact that have no more.
func (k Key) shift() time.Duration {
	return year + time.Duration(binary.LittleEndian.Uint64(k.derive("shift"))%uint64(9*year/time.Second))*time.Second
}

// pseudonyms makes the replacements of ids, hashes and text. One goroutine uses it.
type pseudonyms struct {
	ids, text stdhash.Hash
	sum       []byte
	blocks    *hash.Key
	recent    [1 << 14]keyedHash // prompts of one session begin alike
	fresh     []uint64           // hashes that are not among them
	where     []int
}

func newPseudonyms(k Key) *pseudonyms {
	blocks, _ := hash.NewKey(k.secret[:]) // its only error is a short secret
	return &pseudonyms{ids: hmac.New(sha256.New, k.derive("ids")), text: hmac.New(sha256.New, k.derive("text")), blocks: blocks}
}

// id returns the pseudonym of a name: a UUID of version 8 (RFC 9562), of which 122 bits depend on the key and the name.
// Ids of all kinds are one space, so that a reference stays one whatever its key is called.
func (p *pseudonyms) id(name string) string {
	p.ids.Reset()
	io.WriteString(p.ids, name)
	p.sum = p.ids.Sum(p.sum[:0])
	u := p.sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// keyed replaces block hashes, or ids of workers, by the keyed values that a recorder with this key writes.
func (p *pseudonyms) keyed(hashes []uint64) {
	p.fresh, p.where = p.fresh[:0], p.where[:0]
	for i, h := range hashes {
		if slot := p.slot(h); slot.from == h && slot.to != 0 {
			hashes[i] = slot.to
			continue
		}
		p.fresh, p.where = append(p.fresh, h), append(p.where, i)
	}
	p.blocks.Apply(p.fresh)
	for k, i := range p.where {
		*p.slot(hashes[i]) = keyedHash{hashes[i], p.fresh[k]}
		hashes[i] = p.fresh[k]
	}
}

// slot is where the keyed value of a hash is kept until another one takes the place.
func (p *pseudonyms) slot(h uint64) *keyedHash { return &p.recent[h%uint64(len(p.recent))] }

type keyedHash struct{ from, to uint64 }

// What stands for text: letters and spaces in which no language is written, as no word has a vowel.
const (
	fillerLetters = "bcdfghjkmnpqr   "
	// fillerStep is the number of bytes of text that are replaced at once.
	fillerStep = 2 * sha256.Size
)

// appendFiller appends as many bytes as the text has. Texts that begin alike have fillers that begin alike, in steps
// of fillerStep bytes, so that what prompts share can still be told; each step depends on all the text before it.
func (p *pseudonyms) appendFiller(dst, text []byte) []byte {
	p.sum = p.sum[:0]
	for len(text) > 0 {
		step := text[:min(len(text), fillerStep)]
		text = text[len(step):]
		p.text.Reset()
		p.text.Write(p.sum)
		p.text.Write(step)
		p.sum = p.text.Sum(p.sum[:0])
		for i := range step {
			dst = append(dst, fillerLetters[p.sum[i/2]>>(4*(i%2))&15])
		}
	}
	return dst
}
