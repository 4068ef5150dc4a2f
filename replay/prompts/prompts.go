// Package prompts makes the prompts of a replay. No trace records text, but its prefix tree says which tokens of which
// prompts are equal; so each token is made from where it lies in the tree, and a server finds the same sharing as the
// recorded one whatever the size of its KV blocks.
package prompts

import (
	"io"
	"math"
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
	chat     *conversation // nil for prompts that are no chats

	mu    sync.RWMutex
	live  map[trace.Key][]splice
	texts map[trace.Key][]said
}

// Scale is how many tokens a server makes of a text of words.
type Scale struct {
	// Overhead is the tokens of a prompt without words: a token that marks the beginning, or a chat template but for what
	// it adds to each message, which is PerMessage. Where that is 0 all of a chat is one message.
	Overhead, PerMessage int
	// PerWord is the tokens of a word; 0 is 1.
	PerWord float64
}

// NewMaker returns a Maker of prompts for a workload's calls. Equal salts give equal prompts. Scale is that of words; the
// zero Scale is that of token ids.
func NewMaker(w *trace.Workload, a *Alphabet, salt uint64, scale Scale) *Maker {
	if scale.PerWord == 0 {
		scale.PerWord = 1
	}
	return &Maker{workload: w, alphabet: a, salt: salt, scale: scale, live: map[trace.Key][]splice{}, texts: map[trace.Key][]said{}}
}

// NewChatMaker returns a Maker of prompts that are chats: of a system prompt, users and assistants.
func NewChatMaker(w *trace.Workload, a *Alphabet, salt uint64, scale Scale) *Maker {
	m := NewMaker(w, a, salt, scale)
	m.chat = newConversation(w, int32(scale.PerMessage))
	return m
}

// Prompt is the prompt of one request. It may be read any number of times.
type Prompt struct {
	// Symbols is its length in token ids or words.
	Symbols int

	alphabet   *Alphabet
	perWord    float64
	head, tail string // of the JSON value
	pieces     []piece
	length     int64 // of the pieces, in bytes
}

// piece is a run of symbols: generated ones for the token positions [from, to), or text as it stands.
type piece struct {
	seed     uint64
	from, to int32
	text     []byte
}

// IDs tells that prompts are lists of token ids.
func (m *Maker) IDs() bool { return m.alphabet.ids }

// Prompt returns the prompt of a call in a copy of its program.
func (m *Maker) Prompt(call int32, copy uint32) *Prompt {
	c := &m.workload.Calls[call]
	path := m.workload.Path(c.Prompt, c.Input, 1, copy, nil)
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.prompt(m.messages(path, c.Input), func(p *Prompt, from, to int32) { m.along(p, path, from, to) })
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
	seed := hash.Combine(hash.Combine(m.salt, math.MaxUint64), number)
	return m.prompt(m.messages(nil, tokens), func(p *Prompt, from, to int32) { p.add(piece{seed: seed, from: from, to: to}) })
}

// Text returns a prompt of a given text of words.
func Text(text string) *Prompt {
	p := &Prompt{alphabet: &Alphabet{}, head: `"`, tail: `"`}
	p.literal(text)
	return p
}

// Chat returns a prompt of messages with given texts of words, whose roles are those of Roles.
func Chat(texts ...string) *Prompt {
	p := &Prompt{alphabet: &Alphabet{}, head: `[`, tail: `]`}
	for i, role := range Roles(len(texts)) {
		p.open(role)
		p.literal(texts[i] + endOfMessage)
	}
	return p
}

// Roles are those of a chat of n messages: a user alone, or a system prompt and what user and assistant say in turn.
func Roles(n int) []string {
	if n == 1 {
		return []string{user}
	}
	roles := make([]string, n)
	for i := range roles {
		switch {
		case i == 0:
			roles[i] = system
		case i%2 == 1:
			roles[i] = user
		default:
			roles[i] = assistant
		}
	}
	return roles
}

const endOfMessage = `"}`

// open begins a message.
func (p *Prompt) open(role string) {
	if len(p.pieces) > 0 {
		p.literal(",")
	}
	p.literal(`{"role":"` + role + `","content":"`)
}

// literal appends text that is no symbols.
func (p *Prompt) literal(text string) {
	p.pieces = append(p.pieces, piece{text: []byte(text)})
	p.length += int64(len(text))
}

// messages are the parts of a prompt of so many tokens on a path. The server's own tokens stand before it.
func (m *Maker) messages(path []trace.Span, tokens int32) []message {
	own := int32(m.scale.Overhead)
	switch {
	case m.chat == nil:
		return []message{{"", 0, max(tokens-own, 1)}}
	case m.scale.PerMessage == 0:
		return []message{{user, 0, max(tokens-own, 1)}}
	}
	return m.chat.messages(path, tokens, &m.scale)
}

// prompt makes a prompt of messages, the content of which fill appends.
func (m *Maker) prompt(messages []message, fill func(p *Prompt, from, to int32)) *Prompt {
	p := &Prompt{alphabet: m.alphabet, perWord: m.scale.PerWord, head: `"`, tail: `"`}
	if m.alphabet.ids || m.chat != nil {
		p.head, p.tail = "[", "]"
	}
	for _, part := range messages {
		if m.chat == nil {
			fill(p, part.from, part.to)
			continue
		}
		p.open(part.role)
		fill(p, part.from, part.to)
		p.literal(endOfMessage)
	}
	return p
}

// along appends the tokens [from, to) of a path of spans of single tokens, and in place of some what a server generated.
func (m *Maker) along(p *Prompt, path []trace.Span, from, to int32) {
	for _, s := range path {
		for i := range m.texts[s.Key] {
			t := &m.texts[s.Key][i]
			if t.from < max(from, s.From) || t.to > to || !t.on(path) {
				continue
			}
			m.generated(p, path, from, t.from)
			p.pieces = append(p.pieces, piece{text: t.text})
			p.Symbols += int(t.to - t.from)
			p.length += int64(len(t.text))
			from = t.to
		}
	}
	m.generated(p, path, from, to)
}

// generated appends the tokens [from, to) of a path, with the ids that a server generated in their places.
func (m *Maker) generated(p *Prompt, path []trace.Span, begin, end int32) {
	for _, s := range path {
		seed := hash.Combine(m.salt, uint64(s.Key))
		from, to := max(s.From, begin), min(s.To, end)
		for _, live := range m.live[s.Key] {
			last := min(to, live.from+int32(len(live.ids)))
			if live.from < from || live.from >= last {
				continue
			}
			p.add(piece{seed: seed, from: from, to: live.from})
			p.addIDs(live.ids[:last-live.from])
			from = last
		}
		p.add(piece{seed: seed, from: from, to: to})
	}
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

// Len is the length in bytes of the prompt as a JSON value: an array of integers, a string, or an array of messages.
func (p *Prompt) Len() int64 {
	n := int64(len(p.head)+len(p.tail)) + p.length
	if p.alphabet.ids {
		n-- // the first comma falls away
	}
	return n
}

// Reader reads the prompt as a JSON value.
func (p *Prompt) Reader() io.Reader {
	r := &reader{prompt: p, skip: p.alphabet.ids}
	if len(p.pieces) > 0 && p.pieces[0].text == nil {
		r.next, _ = p.words(p.pieces[0])
	}
	r.buf = append(r.buf, p.head...)
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
		r.buf = append(r.buf, p.tail...)
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
