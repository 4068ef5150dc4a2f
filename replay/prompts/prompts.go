// Package prompts makes the prompts of a replay. No trace records text, but its prefix tree says which tokens of which
// prompts are equal; so each token is made from where it lies in the tree, and a server finds the same sharing as the
// recorded one whatever the size of its KV blocks.
package prompts

import (
	"cmp"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
)

// Maker makes prompts. It is safe for concurrent use.
type Maker struct {
	workload *trace.Workload
	alphabet *Alphabet
	salt     uint64
	scale    Scale

	mu   sync.RWMutex
	live map[trace.Key][]splice
}

// Scale is how many tokens a server makes of a text of words.
type Scale struct {
	// Overhead is the tokens of a prompt without words: a chat template, a token that marks the beginning.
	Overhead int
	// PerWord is the tokens of a word; 0 is 1.
	PerWord float64
}

// NewMaker returns a Maker of prompts for a workload's calls. Equal salts give equal prompts. Scale is that of words; the
// zero Scale is that of token ids.
func NewMaker(w *trace.Workload, a *Alphabet, salt uint64, scale Scale) *Maker {
	if scale.PerWord == 0 {
		scale.PerWord = 1
	}
	return &Maker{workload: w, alphabet: a, salt: salt, scale: scale, live: map[trace.Key][]splice{}}
}

// Prompt is the prompt of one request. It may be read any number of times.
type Prompt struct {
	// Symbols is its length in token ids or words.
	Symbols int

	alphabet *Alphabet
	perWord  float64
	pieces   []piece
	length   int64
}

// piece is a run of symbols: generated ones for the token positions [from, to), or what a server generated.
type piece struct {
	seed     uint64
	from, to int32
	text     []byte
}

// splice is tokens that a server generated at a place of a tree node.
type splice struct {
	from int32
	ids  []uint32
}

// IDs tells that prompts are lists of token ids.
func (m *Maker) IDs() bool { return m.alphabet.ids }

// Prompt returns the prompt of a call in a copy of its program.
func (m *Maker) Prompt(call int32, copy uint32) *Prompt {
	c := &m.workload.Calls[call]
	return m.along(m.workload.Path(c.Prompt, c.Input, 1, copy, nil), c.Input)
}

// Output returns the token ids that a call's answer has in the later prompts that contain it: a server that is made to
// generate them (vLLM's --enable-trace-replay) finds the recorded reuse of generated tokens. It is nil for text.
func (m *Maker) Output(call int32, copy uint32) []uint32 {
	c := &m.workload.Calls[call]
	if !m.alphabet.ids || c.Output == 0 {
		return nil
	}
	ids := make([]uint32, 0, c.Output)
	for _, s := range m.workload.Path(c.End, c.Computed(), 1, copy, nil) {
		seed := hash.Combine(m.salt, uint64(s.Key))
		for at := max(s.From, c.Input); at < s.To; at++ {
			ids = append(ids, m.alphabet.low+uint32(m.alphabet.pick(mix(seed+uint64(at)))))
		}
	}
	return append(ids, m.alphabet.low) // the last token's KV is never computed, so nothing can share it
}

// Probe returns a prompt of about tokens tokens that shares nothing with others of another number.
func (m *Maker) Probe(number uint64, tokens int32) *Prompt {
	p := m.along(nil, tokens)
	p.add(piece{seed: hash.Combine(hash.Combine(m.salt, math.MaxUint64), number), to: max(1, tokens-int32(m.scale.Overhead))})
	return p
}

// Text returns a prompt of a given text of words.
func Text(text string) *Prompt {
	return &Prompt{alphabet: &Alphabet{}, pieces: []piece{{text: []byte(text)}}, length: int64(len(text))}
}

// along makes a prompt of the spans of single tokens on a path. The server's own tokens stand before it.
func (m *Maker) along(spans []trace.Span, tokens int32) *Prompt {
	p := &Prompt{alphabet: m.alphabet, perWord: m.scale.PerWord}
	tokens -= int32(m.scale.Overhead)
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, s := range spans {
		seed := hash.Combine(m.salt, uint64(s.Key))
		from, to := s.From, min(s.To, max(tokens, 1))
		for _, live := range m.live[s.Key] {
			end := min(to, live.from+int32(len(live.ids)))
			if live.from < from || live.from >= end {
				continue
			}
			p.add(piece{seed: seed, from: from, to: live.from})
			p.addIDs(live.ids[:end-live.from])
			from = end
		}
		p.add(piece{seed: seed, from: from, to: to})
	}
	return p
}

// add appends generated symbols.
func (p *Prompt) add(next piece) {
	if next.from >= next.to {
		return
	}
	first, last := p.words(next)
	p.pieces = append(p.pieces, next)
	p.Symbols += int(last - first)
	p.length += int64(last-first) * int64(p.alphabet.width)
}

// words returns the range of symbols whose first token lies in a piece. Word j begins at token ⌈j·perWord⌉.
func (p *Prompt) words(of piece) (first, last int64) {
	if p.perWord == 1 {
		return int64(of.from), int64(of.to)
	}
	count := func(tokens int32) int64 { return int64(math.Ceil(float64(tokens) / p.perWord)) }
	return count(of.from), count(of.to)
}

// addIDs appends tokens that a server generated.
func (p *Prompt) addIDs(ids []uint32) {
	text := make([]byte, 0, len(ids)*p.alphabet.width)
	for _, id := range ids {
		text = strconv.AppendUint(append(text, ','), uint64(id), 10)
	}
	p.pieces = append(p.pieces, piece{text: text})
	p.Symbols += len(ids)
	p.length += int64(len(text))
}

// Len is the length in bytes of the prompt as a JSON value: an array of integers, or a string.
func (p *Prompt) Len() int64 {
	if p.alphabet.ids {
		return p.length - 1 + 2 // the first comma falls away
	}
	return p.length + 2
}

// Reader reads the prompt as a JSON value.
func (p *Prompt) Reader() io.Reader {
	r := &reader{prompt: p}
	if len(p.pieces) > 0 && p.pieces[0].text == nil {
		r.next, _ = p.words(p.pieces[0])
	}
	r.buf = append(r.buf, '"')
	if p.alphabet.ids {
		r.buf[0] = '['
		r.skip = true
	}
	return r
}

// reader makes the text of a prompt bit by bit.
type reader struct {
	prompt *Prompt
	at     int   // piece
	next   int64 // its next symbol
	buf    []byte
	off    int
	skip   bool // the comma that is to fall away
	closed bool
}

// chunk is how many bytes are made at a time.
const chunk = 32 << 10

func (r *reader) Read(b []byte) (int, error) {
	if r.off == len(r.buf) {
		if r.closed {
			return 0, io.EOF
		}
		r.buf, r.off = r.buf[:0], 0
		r.fill()
	}
	n := copy(b, r.buf[r.off:])
	r.off += n
	return n, nil
}

// fill makes the next bytes.
func (r *reader) fill() {
	p := r.prompt
	for len(r.buf) < chunk && r.at < len(p.pieces) {
		piece := &p.pieces[r.at]
		if piece.text != nil {
			r.buf = append(r.buf, piece.text...)
			r.advance()
			continue
		}
		_, last := p.words(*piece)
		for ; r.next < last && len(r.buf) < chunk; r.next++ {
			r.buf = p.alphabet.append(r.buf, mix(piece.seed+uint64(r.next)))
		}
		if r.next == last {
			r.advance()
		}
	}
	if r.skip {
		r.off, r.skip = 1, false
	}
	if r.at == len(p.pieces) {
		r.closed = true
		if p.alphabet.ids {
			r.buf = append(r.buf, ']')
		} else {
			r.buf = append(r.buf, '"')
		}
	}
}

func (r *reader) advance() {
	if r.at++; r.at < len(r.prompt.pieces) && r.prompt.pieces[r.at].text == nil {
		r.next, _ = r.prompt.words(r.prompt.pieces[r.at])
	}
}

// mix scrambles a counter (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Generated splices the token ids that a server generated for a call into the later prompts that contain its output. Of
// two calls whose outputs lie in the same place the first counts.
func (m *Maker) Generated(call int32, copy uint32, ids []uint32) {
	c := &m.workload.Calls[call]
	to := min(c.Identified, c.Input+int32(len(ids)))
	if !m.alphabet.ids || to <= c.Input {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.workload.Path(c.End, to, 1, copy, nil) {
		from := max(s.From, c.Input)
		if from >= s.To || m.covers(s.Key, from, s.To) {
			continue
		}
		m.live[s.Key] = append(m.live[s.Key], splice{from: from, ids: ids[from-c.Input : s.To-c.Input]})
		slices.SortFunc(m.live[s.Key], func(a, b splice) int { return cmp.Compare(a.from, b.from) })
	}
}

// covers tells whether a splice overlaps [from, to) of a node.
func (m *Maker) covers(key trace.Key, from, to int32) bool {
	for _, s := range m.live[key] {
		if s.from < to && from < s.from+int32(len(s.ids)) {
			return true
		}
	}
	return false
}
