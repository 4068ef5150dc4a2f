package trace

import (
	"bytes"
	"strconv"
)

// hashLists are the arrays of hashes of one row. They are most of its text, so that they are taken out before it is decoded
// and read by a Chain, which compares those of a session's calls as text.
type hashLists struct {
	lists [][]byte
	rest  []byte
}

// hashesKey ends the keys of the arrays.
var hashesKey = []byte(`_sequence_hashes"`)

// cut returns the row without its arrays. In place of the one that is number 3 stands [3]. The result is valid until the next
// call.
func (l *hashLists) cut(text []byte) []byte {
	l.lists, l.rest = l.lists[:0], l.rest[:0]
	whole := text
	for {
		key := bytes.Index(text, hashesKey)
		if key < 0 {
			break
		}
		from := skipSpace(text, key+len(hashesKey))
		if from < len(text) && text[from] == ':' { // else no key, but a string that looks like one
			from = skipSpace(text, from+1)
		}
		end := from
		if from < len(text) && text[from] == '[' {
			end += bytes.IndexByte(text[from:], ']') + 1
		}
		l.rest = append(l.rest, text[:from]...)
		if end > from && skipSpace(text, from+1) < end-1 { // else nothing is in it
			l.rest = append(strconv.AppendInt(append(l.rest, '['), int64(len(l.lists)), 10), ']')
			l.lists = append(l.lists, text[from:end])
			from = end
		}
		text = text[from:]
	}
	if len(l.lists) == 0 {
		return whole
	}
	l.rest = append(l.rest, text...)
	return l.rest
}

// number returns which array h stands for; -1 if h is hashes.
func (l *hashLists) number(h Hashes) int {
	if len(h) == 1 && h[0] < uint64(len(l.lists)) {
		return int(h[0])
	}
	return -1
}

// readHashes begins the turn of a call with its chain. An error is an array that was cut out of the row and is none of hashes.
func (p *rowParser) readHashes(rec *Record) (err error) {
	var prompt Hashes
	p.turn, p.completion = nil, nil
	if isCall(rec) {
		p.turn = &Turn{}
		if r := rec.Request.Replay; r != nil {
			prompt, p.completion = r.Hashes, r.CompletionHashes
		}
		if x := rec.Request.Agentsim; x != nil && len(p.completion) == 0 {
			p.completion = x.CompletionHashes
		}
	}
	own, completion := p.number(prompt), p.number(p.completion)
	for i, text := range p.lists {
		if i == own {
			continue
		}
		hashes, err := AppendHashes(nil, text)
		if err != nil {
			return err
		}
		if i == completion {
			p.completion = hashes
		}
	}
	if own >= 0 {
		_, err = p.chain(rec).AddText(p.turn, p.lists[own])
	} else if len(prompt) > 0 {
		p.chain(rec).Add(p.turn, prompt)
	}
	return err
}

// chain returns the chain of the session of a call; calls without one share that of "".
func (p *rowParser) chain(rec *Record) *Chain {
	session := identity(rec, "").Session
	c := p.chains[session]
	if c == nil {
		c = new(Chain)
		p.chains[session] = c
	}
	return c
}
