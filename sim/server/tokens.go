package server

import (
	"fmt"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace/wire"
)

// The tokenizer of a server without a model: texts are cut where most models' tokenizers cut them, into words with the
// space before them, up to three digits, single signs, and runs of white space; the id of a piece is its hash. Equal
// prefixes of texts have equal prefixes of tokens, and a text that is appended to another keeps its tokens.
const (
	// textIDs begin behind those of special tokens; vocabulary is their number. Together they fit the vocabularies of
	// Llama 3 and Qwen.
	firstTextID = 1000
	vocabulary  = 120_000
	// maxPiece bounds a piece, in bytes.
	maxPiece = 16
)

// The special tokens of chat prompts.
const (
	tokenStart   = 1 // a message begins: its role follows
	tokenEnd     = 2 // a message ends
	tokenContent = 3 // between role and content
)

// appendTokens appends the token ids of a text.
func appendTokens(ids []uint32, text string) []uint32 {
	for len(text) > 0 {
		n := piece(text)
		ids = append(ids, tokenID(text[:n]))
		text = text[n:]
	}
	return ids
}

func tokenID(piece string) uint32 { return firstTextID + uint32(xxh3.HashString(piece)%vocabulary) }

// class is what a byte is to the tokenizer.
type class uint8

const (
	sign class = iota
	letter
	digit
	space
)

func classOf(c byte) class {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= 0x80:
		return letter
	case c >= '0' && c <= '9':
		return digit
	case c == ' ', c == '\n', c == '\t', c == '\r':
		return space
	}
	return sign
}

// piece is the length of the first token of a text, in bytes.
func piece(text string) int {
	start := 0
	if text[0] == ' ' && len(text) > 1 && classOf(text[1]) == letter {
		start = 1
	}
	of, limit := classOf(text[start]), maxPiece
	switch of {
	case sign:
		return start + 1
	case digit:
		limit = 3
	}
	n := start + 1
	for n < len(text) && n-start < limit && classOf(text[n]) == of {
		n++
	}
	if of == space && n > 1 && n < len(text) && text[n-1] == ' ' && classOf(text[n]) == letter {
		n-- // the last space is that of the word
	}
	return n
}

// appendChat appends the tokens of a chat: each message as start, role, content and end, then the start of the answer.
// Tool definitions stand before the messages.
func appendChat(ids []uint32, r *wire.Request) []uint32 {
	if len(r.Tools) > 0 {
		ids = append(appendTokens(append(ids, tokenStart), "tools"), tokenContent)
		ids = append(appendTokens(ids, string(r.Tools)), tokenEnd)
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		ids = append(appendTokens(append(ids, tokenStart), m.Role), tokenContent)
		ids = appendTokens(ids, m.Reasoning)
		ids = appendTokens(ids, string(m.Content))
		ids = appendTokens(ids, string(m.ToolCalls))
		ids = append(appendTokens(ids, m.ToolCallID), tokenEnd)
	}
	return append(appendTokens(append(ids, tokenStart), "assistant"), tokenContent)
}

// appendMessages appends the tokens of a chat in Anthropic's form, whose system prompt stands beside the messages.
func appendMessages(ids []uint32, r *wire.Request) ([]uint32, *wire.Error) {
	if len(r.System) == 0 {
		return appendChat(ids, r), nil
	}
	system := wire.Message{Role: "system"}
	if err := system.Content.UnmarshalJSON(r.System); err != nil {
		return nil, badRequest("system: %v", err)
	}
	chat := *r
	chat.Messages = append([]wire.Message{system}, r.Messages...)
	return appendChat(ids, &chat), nil
}

// output is the answer to a request before it is given: a token is a word, so that an answer sent back as part of a later
// prompt has the same tokens, as ids and as text.
type output struct {
	seed uint64
	// bare leaves out the space before the first word: a chat's answer stands alone.
	bare bool
	// forced are the ids that the client wants (vLLM's trace_decode_token_ids).
	forced []uint32
	// stop is the stop string that ends it, "" for none; textEnd is where it begins in the text, in bytes.
	stop    string
	textEnd int
}

// A word is three syllables, each a consonant and a vowel.
const consonants, vowels = "bcdfghklmnprstvz", "aeio"

// word returns the text of token number k.
func (o *output) word(k int) string {
	z := o.seed + uint64(k+1)*0x9e3779b97f4a7c15 // SplitMix64 (Steele et al., OOPSLA 2014)
	if k < len(o.forced) {
		z = uint64(o.forced[k]) * 0x9e3779b97f4a7c15
	}
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	word := syllables(z, 3)
	if k == 0 && o.bare {
		return word[1:]
	}
	return word
}

// syllables is a space and a word, told by the lowest six bits of z for each syllable.
func syllables(z uint64, n int) string {
	b := append(make([]byte, 0, 9), ' ')
	for range n {
		b = append(b, consonants[z&15], vowels[z>>4&3])
		z >>= 6
	}
	return string(b)
}

// words are those of all token ids of text: the first of three or four syllables that has the id.
var words = sync.OnceValue(func() []string {
	list := make([]string, vocabulary)
	left := len(list)
	for n := 3; n <= 4; n++ {
		for z := range uint64(1) << (6 * n) {
			word := syllables(z, n)
			if at := tokenID(word) - firstTextID; list[at] == "" {
				if list[at], left = word, left-1; left == 0 {
					return list
				}
			}
		}
	}
	return list
})

// textOf is a text that has the given tokens. The tokenizer keeps no texts, so that it is made of other words than a text
// from which the tokens came; those of chats' roles have no text that means them.
func textOf(tokens []uint32) (string, error) {
	var text strings.Builder
	for _, id := range tokens {
		switch {
		case id >= firstTextID && id < firstTextID+vocabulary:
			text.WriteString(words()[id-firstTextID])
		case id >= tokenStart && id <= tokenContent:
			text.WriteString([...]string{"<|start|>", "<|end|>", "<|content|>"}[id-tokenStart])
		default:
			return "", fmt.Errorf("token %d is not in the vocabulary: want %d to %d", id, firstTextID, firstTextID+vocabulary-1)
		}
	}
	return text.String(), nil
}

// id returns the id of token number k.
func (o *output) id(k int) uint32 {
	if k < len(o.forced) {
		return o.forced[k]
	}
	return tokenID(o.word(k))
}
