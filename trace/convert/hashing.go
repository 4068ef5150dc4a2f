package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
)

// estimateBlockSize is the tokens per hash of prompts whose hashes are made here. What text and counts tell is not more
// exact than that.
const estimateBlockSize = 64

// A hasher makes the block hashes of the calls of a log, which has none: from the text of prompts where there is text (see
// hash.Estimator), else from the counts of cached tokens, else none.
type hasher struct {
	blockSize  int
	estimators map[string]*hash.Estimator // by model
	hidden     map[hiddenKey]int32        // the tokens of the hidden system prompts, as far as they are known
	shared     map[string][]uint64        // by model: what first prompts of sessions share
	speller    speller
	made       int // hashes that are new in their prompts
}

type hiddenKey struct{ model, name string }

func newHasher(blockSize int) *hasher {
	return &hasher{blockSize: blockSize, estimators: map[string]*hash.Estimator{}, hidden: map[hiddenKey]int32{}, shared: map[string][]uint64{}}
}

// hash fills the counts and hashes of calls, which are in the order of time. Calls whose prompts begin with the same
// passage are hashed together, and those without text by session.
func (h *hasher) hash(calls []*call) error {
	type first struct {
		group   any
		session *trace.Session
	}
	groups, begun := map[any][]*call{}, map[first]bool{}
	var order []any
	for _, c := range calls {
		group := any(c.Session)
		if c.prompt != nil {
			group = c.prompt.root
		}
		if groups[group] == nil {
			order = append(order, group)
		}
		if at := (first{group, c.Session}); !begun[at] {
			begun[at] = true
			h.measureHidden(c)
		}
		groups[group] = append(groups[group], c)
	}
	for _, group := range order {
		calls := groups[group]
		rank := map[*trace.Session]int{}
		for _, c := range calls {
			if _, ok := rank[c.Session]; !ok {
				rank[c.Session] = len(rank)
			}
		}
		// One session after the other: so most prompts go on from the one before.
		slices.SortStableFunc(calls, func(a, b *call) int { return rank[a.Session] - rank[b.Session] })
		if err := h.hashGroup(calls); err != nil {
			return err
		}
	}
	return nil
}

// measureHidden learns the length of a hidden system prompt: the least that the first prompts of sessions behind it found
// in the cache, for only that prompt can have been there.
func (h *hasher) measureHidden(first *call) {
	if first.prompt == nil || !first.prompt.root.hidden || first.Cached <= 0 {
		return
	}
	key := hiddenKey{first.Model, string(first.prompt.root.text)}
	if n := h.hidden[key]; n == 0 || first.Cached < n {
		h.hidden[key] = first.Cached
	}
}

func (h *hasher) hashGroup(calls []*call) error {
	h.speller.reset()
	prompts := map[string]*hash.Prompt{} // by model
	var chain trace.Chain
	var before *call
	for _, c := range calls {
		text := ""
		if c.prompt != nil {
			text = h.speller.spell(c.prompt)
		}
		c.fillCounts(text)
		switch {
		case len(c.tokens) > 0 && len(c.tokens) == int(c.Input):
			chain.Add(&c.Turn, hash.Blocks(c.tokens, h.blockSize))
		case c.prompt != nil && !(c.prompt.root.hidden && len(text) == len(c.prompt.root.text)):
			prompt := prompts[c.Model]
			if prompt == nil {
				prompt = h.begin(c, text)
				prompts[c.Model] = prompt
			}
			chain.Add(&c.Turn, prompt.Blocks(text, int(c.Input)))
			c.Inferred |= trace.FieldTextHashes
		case c.Cached != trace.Unknown:
			chain.Add(&c.Turn, h.fromCached(c, before))
			c.Inferred |= trace.FieldCachedHashes
		}
		if h.made += len(c.Hashes); h.made > maxMinted {
			return &trace.InputError{File: c.File, Line: int(c.Line), Err: fmt.Errorf("prompts of more than %d blocks in all up to here: load less, or take larger blocks", maxMinted)}
		}
		before = c
	}
	return nil
}

// begin begins the growing prompt of calls to one model.
func (h *hasher) begin(c *call, text string) *hash.Prompt {
	e := h.estimators[c.Model]
	if e == nil {
		e = hash.NewEstimator(h.blockSize)
		h.estimators[c.Model] = e
	}
	p := e.Prompt()
	if root := c.prompt.root; root.hidden {
		// Measured first, or its tokens would count as those of the text behind it.
		told := len(root.text)/bytesPerToken + 1 // what is known of its text
		p.Blocks(text[:len(root.text)], max(int(h.hidden[hiddenKey{c.Model, string(root.text)}]), told))
	}
	return p
}

// fromCached makes hashes so that a prompt shares its cached tokens, in whole blocks, with the prompt before it in the
// session, or the first prompt of a session with those of other sessions of its model.
func (h *hasher) fromCached(c, before *call) []uint64 {
	n := int(c.Cached) / h.blockSize
	hashes := make([]uint64, 0, (int(c.Input)+h.blockSize-1)/h.blockSize)
	if before == nil || before.Session != c.Session {
		shared := h.shared[c.Model]
		for i := len(shared); i < n; i++ {
			shared = append(shared, hash.Combine(xxh3.HashString(c.Model), uint64(i)))
		}
		h.shared[c.Model] = shared
		hashes = append(hashes, shared[:n]...)
	} else {
		known := before.Chain()
		hashes = append(hashes, known[:min(n, len(known), int(before.Input)/h.blockSize)]...)
	}
	own := xxh3.HashString(c.Session.ID + "\x00" + c.ID)
	for len(hashes) < cap(hashes) {
		hashes = append(hashes, hash.Combine(own, uint64(len(hashes))))
	}
	return hashes
}

// A speller writes out prompts. It keeps the text of the last one: most go on from there.
type speller struct {
	text  strings.Builder
	stack []spelled
	path  []*passage
}

// spelled is a passage that ends at a place in the text.
type spelled struct {
	passage *passage
	end     int
}

func (s *speller) reset() { s.cut(0) }

// cut keeps the first passages.
func (s *speller) cut(keep int) {
	if keep == len(s.stack) {
		return
	}
	end := 0
	if keep > 0 {
		end = s.stack[keep-1].end
	}
	for _, gone := range s.stack[keep:] {
		gone.passage.place = 0
	}
	text := s.text.String()[:end]
	s.stack = s.stack[:keep]
	s.text = strings.Builder{}
	s.text.WriteString(text)
}

// spell returns the text of the prompt that ends with a passage.
func (s *speller) spell(p *passage) string {
	s.path = s.path[:0]
	size := 0
	for ; p != nil && p.place == 0; p = p.before {
		s.path = append(s.path, p)
		size += len(p.text)
	}
	keep := 0
	if p != nil {
		keep = p.place
	}
	s.cut(keep)
	s.text.Grow(size)
	for _, next := range slices.Backward(s.path) {
		s.text.Write(next.text)
		s.stack = append(s.stack, spelled{next, s.text.Len()})
		next.place = len(s.stack)
	}
	return s.text.String()
}
