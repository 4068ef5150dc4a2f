package wire

import (
	"bytes"
	"unicode/utf8"
)

// Parser reads the events of one stream into its Chunk. Nearly all of them differ from the one before in their text alone:
// those it reads without decoding them again.
type Parser struct {
	Chunk

	// An event that is like, but for what stands between before and after, says what like does with that as its text.
	like          Chunk
	reasoning     bool // the text is like's reasoning
	before, after []byte
	misses        int
}

// maxMisses is after how many events without a like one the Parser looks for none any more.
const maxMisses = 16

// Parse reads the data of an event, as Chunk.Parse does.
func (p *Parser) Parse(data []byte) error {
	if text, ok := p.between(data); ok {
		p.Chunk = p.like
		if p.reasoning {
			p.Reasoning = string(text)
		} else {
			p.Text = string(text)
		}
		p.misses = 0
		return nil
	}
	if err := p.Chunk.Parse(data); err != nil {
		return err
	}
	known := len(p.before) > 0 && bytes.HasPrefix(data, p.before) // its text has something to decode
	if !known && p.misses < maxMisses && (p.Text == "") != (p.Reasoning == "") {
		p.misses++
		p.learn(data)
	}
	return nil
}

// between is the text of an event that is like the one that was learnt.
func (p *Parser) between(data []byte) ([]byte, bool) {
	if len(p.before) == 0 || len(data) <= len(p.before)+len(p.after) || !bytes.HasPrefix(data, p.before) || !bytes.HasSuffix(data, p.after) {
		return nil, false
	}
	text := data[len(p.before) : len(data)-len(p.after)]
	for _, b := range text {
		if b == '"' || b == '\\' || b < ' ' {
			return nil, false
		}
	}
	return text, utf8.Valid(text)
}

// probe is a text that stands in no event.
const probe = "\u2063agentsim\u2063"

// learn looks where the text of an event stands: where another text in its place is read as the event's.
func (p *Parser) learn(data []byte) {
	p.before = p.before[:0]
	text := p.Text + p.Reasoning
	quoted := appendString(nil, text)
	at := bytes.LastIndex(data, quoted)
	if at < 0 || len(p.ToolCalls)+len(p.TokenIDs)+len(p.PromptTokenIDs) > 0 || p.Usage != nil || p.Err != nil {
		return
	}
	before, after := data[:at+1], data[at+len(quoted)-1:]
	tried := append(append(append([]byte(nil), before...), probe...), after...)
	if p.like.Parse(tried) != nil || p.like.Text+p.like.Reasoning != probe || len(p.like.ToolCalls) > 0 {
		return
	}
	p.reasoning = p.like.Reasoning != ""
	p.before, p.after = append(p.before, before...), append(p.after[:0], after...)
}
