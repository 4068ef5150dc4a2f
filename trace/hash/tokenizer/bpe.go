package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxCached     = 1 << 14 // words whose tokens an encoder keeps
	maxCachedWord = 128     // bytes of such a word
)

// A merge is what two neighbouring tokens become. Lower ranks go first.
type merge struct{ rank, id uint32 }

// bpe is the model: it splits a word into runes, and merges neighbours until none can be merged.
type bpe struct {
	vocab        map[string]uint32
	merges       map[[2]uint32]merge
	ignoreMerges bool // a word that is a token stays one
	prefix       string
	suffix       string
	bytes        []uint32 // tokens <0x00> to <0xFF>, to write out a rune that is none; nil: there are none
	unknown      *uint32  // token of a rune that cannot be written otherwise; nil: such runes are left out
	fuseUnknown  bool     // one for neighbouring ones
	cutSpaces    bool     // see cutsSpaces
}

func readBPE(text json.RawMessage) (*bpe, error) {
	kind, err := readKind(text, 0)
	if err != nil {
		return nil, err
	}
	if kind != "BPE" && kind != "" { // old files have no type
		return nil, fmt.Errorf("type %q is not supported: only BPE is", kind)
	}
	var f struct {
		Type         string            `json:"type"`
		Dropout      *float64          `json:"dropout"`
		Unknown      *string           `json:"unk_token"`
		Prefix       string            `json:"continuing_subword_prefix"`
		Suffix       string            `json:"end_of_word_suffix"`
		FuseUnknown  bool              `json:"fuse_unk"`
		ByteFallback bool              `json:"byte_fallback"`
		IgnoreMerges bool              `json:"ignore_merges"`
		Vocab        map[string]uint32 `json:"vocab"`
		Merges       []pair            `json:"merges"`
	}
	if err := decode(text, &f); err != nil {
		return nil, err
	}
	if f.Dropout != nil && *f.Dropout != 0 {
		return nil, fmt.Errorf("dropout %v gives other tokens each time: set it to null", *f.Dropout)
	}
	m := &bpe{vocab: f.Vocab, ignoreMerges: f.IgnoreMerges, prefix: f.Prefix, suffix: f.Suffix, fuseUnknown: f.FuseUnknown}
	if f.Unknown != nil {
		id, ok := f.Vocab[*f.Unknown]
		if !ok {
			return nil, fmt.Errorf("unk_token: %q is not in the vocabulary", *f.Unknown)
		}
		m.unknown = &id
	}
	if f.ByteFallback {
		if m.bytes, err = byteTokens(f.Vocab); err != nil {
			return nil, fmt.Errorf("byte_fallback: %w", err)
		}
	}
	if err := m.addMerges(f.Merges); err != nil {
		return nil, err
	}
	m.cutSpaces = m.cutsSpaces(f.Merges)
	return m, nil
}

// byteTokens returns the tokens of single bytes, or nil if there are none.
func byteTokens(vocab map[string]uint32) ([]uint32, error) {
	var tokens []uint32
	missing := ""
	for b := range 256 {
		name := fmt.Sprintf("<0x%02X>", b)
		if id, ok := vocab[name]; ok {
			tokens = append(tokens, id)
		} else {
			missing = name
		}
	}
	if tokens != nil && missing != "" {
		return nil, fmt.Errorf("%s is not in the vocabulary, but others like it are", missing)
	}
	return tokens, nil
}

func (m *bpe) addMerges(pairs []pair) error {
	m.merges = make(map[[2]uint32]merge, len(pairs))
	for i, p := range pairs {
		left, leftOK := m.vocab[p[0]]
		right, rightOK := m.vocab[p[1]]
		rest, prefixOK := strings.CutPrefix(p[1], m.prefix)
		both, bothOK := m.vocab[p[0]+rest]
		if !leftOK || !rightOK || !prefixOK || !bothOK {
			return fmt.Errorf("merges[%d]: %q and %q, or what they make, are not in the vocabulary", i, p[0], p[1])
		}
		m.merges[[2]uint32{left, right}] = merge{uint32(i), both}
	}
	return nil
}

// spaceMark is what SentencePiece writes for a space.
const spaceMark = "▁"

// cutsSpaces tells whether a word may be cut before each ▁ that stands behind something else. It may if no merge
// reaches across: then both sides come out alike, apart or together. So whole texts, which SentencePiece's models take
// for one word, fall into words that the cache knows.
func (m *bpe) cutsSpaces(pairs []pair) bool {
	_, known := m.vocab[spaceMark]
	whole := m.prefix == "" && m.suffix == "" && !m.ignoreMerges && (m.bytes != nil || m.unknown != nil)
	if !known || !whole {
		return false
	}
	for _, p := range pairs {
		if strings.Contains(strings.TrimLeft(p[0]+p[1], spaceMark), spaceMark) {
			return false
		}
	}
	return true
}

// pair is a merge as a file has it: "a b", or ["a", "b"].
type pair [2]string

func (p *pair) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		var parts []string
		if err := json.Unmarshal(text, &parts); err != nil {
			return err
		}
		if len(parts) != 2 {
			return fmt.Errorf("a merge of %d tokens; it takes two", len(parts))
		}
		*p = pair(parts)
		return nil
	}
	var line string
	if err := json.Unmarshal(text, &line); err != nil {
		return err
	}
	left, right, ok := strings.Cut(line, " ")
	if !ok || strings.Contains(right, " ") {
		return errors.New("a merge that is not two tokens with a space between them")
	}
	*p = pair{left, right}
	return nil
}

// encode is the last stage: it appends a word's tokens.
func (m *bpe) encode(e *encoder, word []byte, _ bool) {
	if m.cutSpaces {
		start := 0
		for i := 1; i+len(spaceMark) <= len(word); i++ {
			if word[i] == spaceMark[0] && string(word[i:i+len(spaceMark)]) == spaceMark && !endsWithMark(word[start:i]) {
				m.encodeWord(e, word[start:i])
				start = i
			}
		}
		word = word[start:]
	}
	m.encodeWord(e, word)
}

func endsWithMark(text []byte) bool {
	return len(text) >= len(spaceMark) && string(text[len(text)-len(spaceMark):]) == spaceMark
}

func (m *bpe) encodeWord(e *encoder, word []byte) {
	if ids, ok := e.cache[string(word)]; ok {
		e.ids = append(e.ids, ids...)
		return
	}
	from := len(e.ids)
	if id, ok := m.vocab[string(word)]; ok && m.ignoreMerges {
		e.add(id)
	} else {
		m.symbols(e, word)
		m.merge(e)
		for i := int32(0); int(i) < len(e.symbols); i = e.symbols[i].next {
			e.add(e.symbols[i].id)
		}
	}
	if len(word) <= maxCachedWord {
		if len(e.cache) >= maxCached {
			clear(e.cache)
		}
		e.cache[string(word)] = append([]uint32(nil), e.ids[from:]...)
	}
}

// A symbol is a token of a word in the making. Its neighbours are given by index: -1 and the number of symbols for none.
type symbol struct {
	id             uint32
	previous, next int32
}

// symbols makes the symbols of a word before any merge.
func (m *bpe) symbols(e *encoder, word []byte) {
	e.symbols = e.symbols[:0]
	add := func(id uint32) {
		n := int32(len(e.symbols))
		e.symbols = append(e.symbols, symbol{id, n - 1, n + 1})
	}
	unknown := false // one is to be added
	flush := func() {
		if unknown {
			add(*m.unknown)
		}
		unknown = false
	}
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRune(word[i:])
		r := word[i : i+n]
		id, ok := m.vocab[string(r)]
		if m.prefix != "" || m.suffix != "" {
			id, ok = m.affixed(r, i == 0, i+n == len(word))
		}
		switch {
		case ok:
			flush()
			add(id)
		case m.bytes != nil:
			for _, b := range r {
				add(m.bytes[b])
			}
		case m.unknown != nil:
			if !m.fuseUnknown {
				flush()
			}
			unknown = true
		}
		i += n
	}
	flush()
}

// affixed looks a rune up with what marks the inside and the end of words.
func (m *bpe) affixed(r []byte, first, last bool) (uint32, bool) {
	s := string(r)
	if !first {
		s = m.prefix + s
	}
	if last {
		s += m.suffix
	}
	id, ok := m.vocab[s]
	return id, ok
}

// A candidate is a merge that may be due: its rank, and in the lower half the index of its left symbol.
type candidate uint64

// merge merges the symbols: always the pair of the lowest rank, and of several the leftmost. It works through a heap
// of candidates, of which those that no longer hold are passed over.
func (m *bpe) merge(e *encoder) {
	s := e.symbols
	e.queue = e.queue[:0]
	propose := func(left int32) {
		if left < 0 || int(s[left].next) >= len(s) {
			return
		}
		if due, ok := m.merges[[2]uint32{s[left].id, s[s[left].next].id}]; ok {
			e.push(candidate(due.rank)<<32 | candidate(left))
		}
	}
	for i := range int32(len(s)) {
		propose(i)
	}
	const gone = -2
	for len(e.queue) > 0 {
		c := e.pop()
		left := int32(c & (1<<32 - 1))
		right := s[left].next
		if right == gone || int(right) >= len(s) {
			continue
		}
		due, ok := m.merges[[2]uint32{s[left].id, s[right].id}]
		if !ok || due.rank != uint32(c>>32) {
			continue
		}
		s[left].id = due.id
		s[left].next = s[right].next
		if int(s[right].next) < len(s) {
			s[s[right].next].previous = left
		}
		s[right].next = gone
		propose(s[left].previous)
		propose(left)
	}
}

func (e *encoder) push(c candidate) {
	q := append(e.queue, c)
	i := len(q) - 1
	for i > 0 && c < q[(i-1)/2] {
		q[i] = q[(i-1)/2]
		i = (i - 1) / 2
	}
	q[i] = c
	e.queue = q
}

func (e *encoder) pop() candidate {
	q := e.queue
	top, c := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	i := 0
	for child := 1; child < len(q); child = 2*i + 1 {
		if child+1 < len(q) && q[child+1] < q[child] {
			child++
		}
		if c <= q[child] {
			break
		}
		q[i] = q[child]
		i = child
	}
	if len(q) > 0 {
		q[i] = c
	}
	e.queue = q
	return top
}
