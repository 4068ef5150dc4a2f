package trace

import (
	"bytes"
	"slices"
)

// Chain codes prompt hashes by difference: a turn that begins like the turn before it keeps only the hashes that
// follow the common part. One Chain serves the turns of one session, or any rows that tend to begin alike.
type Chain struct {
	last   *Turn
	hashes []uint64 // the whole chain of last
	text   []byte   // its JSON text
	fresh  []uint64
	slab   []uint64 // holds the Hashes of several turns
}

// Add sets the turn's Base, Shared and Hashes so that its chain is hashes, which is not kept.
func (c *Chain) Add(t *Turn, hashes []uint64) {
	c.text = nil
	shared := commonPrefix(c.hashes, hashes)
	c.set(t, shared, hashes[shared:])
}

// AddText is Add for the JSON array of the hashes. The text must stay valid until the next call. Where it begins
// like the array before, the common part is compared as text and not parsed. It returns the length of the chain.
func (c *Chain) AddText(t *Turn, text []byte) (int, error) {
	shared, from := 0, 0
	if same := commonBytes(c.text, text); same > 0 {
		// The number behind the last comma of the common text may go on differently.
		from = bytes.LastIndexByte(text[:same], ',') + 1
		shared = bytes.Count(text[:from], []byte{','})
	}
	var err error
	if from == 0 {
		c.fresh, err = AppendHashes(c.fresh[:0], text)
	} else {
		c.fresh, err = appendNumbers(c.fresh[:0], text, from)
	}
	if err != nil {
		return 0, err
	}
	more := commonPrefix(c.hashes[shared:], c.fresh)
	c.set(t, shared+more, c.fresh[more:])
	c.text = text
	return len(c.hashes), nil
}

// set makes t the last turn: a chain of the first shared hashes of the turn before and then fresh ones.
func (c *Chain) set(t *Turn, shared int, fresh []uint64) {
	if shared > 0 {
		t.Base, t.Shared = c.last, int32(shared)
		for t.Base.Shared >= t.Shared { // the base is the turn that has the last shared hash itself
			t.Base = t.Base.Base
		}
	}
	t.Hashes = c.keep(fresh)
	c.hashes = append(c.hashes[:shared], fresh...)
	c.last = t
}

// maxSlab bounds a slab, in hashes. Those of a longer chain get one of their own.
const maxSlab = 512

// keep copies hashes to where they can stay.
func (c *Chain) keep(fresh []uint64) []uint64 {
	if len(fresh) > cap(c.slab)-len(c.slab) {
		c.slab = make([]uint64, 0, max(len(fresh), min(2*cap(c.slab), maxSlab)))
	}
	from := len(c.slab)
	c.slab = append(c.slab, fresh...)
	return c.slab[from:len(c.slab):len(c.slab)]
}

// skipBase describes the turn's chain by its base's base, so that the base can be dropped.
func (t *Turn) skipBase() {
	b := t.Base
	if t.Shared > b.Shared {
		t.Hashes = slices.Concat(b.Hashes[:t.Shared-b.Shared], t.Hashes)
		t.Shared = b.Shared
	}
	if t.Base = b.Base; t.Shared == 0 {
		t.Base = nil
	}
}
