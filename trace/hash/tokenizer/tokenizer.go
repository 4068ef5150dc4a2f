// Package tokenizer turns text into token ids as a Hugging Face tokenizer.json says, for the byte-pair encodings of
// today's language models: the byte-level kind (GPT-2, Llama 3, Qwen, DeepSeek) and the SentencePiece kind with byte
// fallback (Llama 2, Mistral, Gemma).
//
// It follows the order and the corner cases of Hugging Face's tokenizers 0.23. What it cannot do is an error of Load.
package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxFile is how many bytes a tokenizer.json may have. The largest known have 35 million.
const maxFile = 256 << 20

// A Tokenizer is what a tokenizer.json describes. It is safe for concurrent use.
type Tokenizer struct {
	verbatim   addedTokens // found in the text as it is
	normalized addedTokens // found in normalized text
	normalize  func(string) string
	split      stage
	pool       sync.Pool // of *encoder
}

// Load reads a tokenizer.json. Its decoder is not needed, and neither are its post_processor, truncation and padding:
// Encode gives the tokens of the text and no others.
func Load(path string) (*Tokenizer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("loading a tokenizer: %w", err)
	}
	defer f.Close()
	t, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("loading the tokenizer %s: %w", path, err)
	}
	return t, nil
}

// file is a tokenizer.json.
type file struct {
	Version       string          `json:"version"`
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	Model         json.RawMessage `json:"model"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
}

func read(r io.Reader) (*Tokenizer, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("it has more than %d MB; no tokenizer.json is so large", maxFile>>20)
	}
	var f file
	if err := decode(text, &f); err != nil {
		return nil, err
	}
	if isNull(f.Model) {
		return nil, errors.New("it has no model; is it a tokenizer.json? tokenizer.model and tekken.json are other formats")
	}
	model, err := readBPE(f.Model)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	t := &Tokenizer{}
	if t.normalize, err = readNormalizer(f.Normalizer, 0); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	chain := &chain{}
	t.split, err = chain.read(f.PreTokenizer, model.encode, 0)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if t.verbatim, t.normalized, err = readAddedTokens(f.AddedTokens, t.normalize); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	t.pool.New = func() any { return newEncoder(chain.buffers) }
	return t, nil
}

// Encode returns the tokens of a text. Special tokens are found where they are written out; none are put in front or
// behind. Bytes that are no UTF-8 count as U+FFFD.
func (t *Tokenizer) Encode(text string) []uint32 {
	e := t.pool.Get().(*encoder)
	defer t.pool.Put(e)
	e.ids = make([]uint32, 0, len(text)/3+1)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	start := true
	t.verbatim.split(text, e.add, func(part string) {
		t.normalized.split(t.normalize(part), e.add, func(part string) {
			t.split(e, []byte(part), start && len(e.ids) == 0)
			start = false
		})
		start = false
	})
	ids := e.ids
	e.ids = nil
	return ids
}

// An encoder is what one call of Encode works with. A pool keeps it for later calls.
type encoder struct {
	ids     []uint32
	cache   map[string][]uint32 // tokens of words met before
	symbols []symbol
	queue   []candidate
	buffers [][]byte // of the stages that rewrite text, one each
}

func newEncoder(buffers int) *encoder {
	return &encoder{cache: map[string][]uint32{}, buffers: make([][]byte, buffers)}
}

// add appends a token.
func (e *encoder) add(id uint32) { e.ids = append(e.ids, id) }

// A stage takes a piece of text, and hands pieces to the next one. first tells that the piece begins the text.
type stage func(e *encoder, text []byte, first bool)

// decode reads JSON whose keys are all known.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the JSON value")
	}
	return nil
}

func isNull(text json.RawMessage) bool { return len(text) == 0 || string(text) == "null" }

// maxDepth bounds how deep sequences may lie in sequences.
const maxDepth = 16

// readKind returns the value of "type", and tells whether what it is in lies too deep.
func readKind(text json.RawMessage, depth int) (string, error) {
	if depth > maxDepth {
		return "", fmt.Errorf("sequences lie more than %d deep in each other", maxDepth)
	}
	var k struct{ Type string }
	if err := json.Unmarshal(text, &k); err != nil {
		return "", err
	}
	return k.Type, nil
}
