package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// A chain puts stages together, from the last to the first.
type chain struct{ buffers int }

// buffer gives a stage that rewrites text a buffer of its own.
func (c *chain) buffer() int {
	c.buffers++
	return c.buffers - 1
}

// read returns the stage that a pre_tokenizer describes, before next.
func (c *chain) read(text json.RawMessage, next stage, depth int) (stage, error) {
	if isNull(text) {
		return next, nil
	}
	kind, err := readKind(text, depth)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "Sequence":
		return c.readSequence(text, next, depth)
	case "ByteLevel":
		return c.readByteLevel(text, next)
	case "Metaspace":
		return c.readMetaspace(text, next)
	case "Split":
		return readSplit(text, next)
	case "Digits":
		var p struct {
			Type       string `json:"type"`
			Individual bool   `json:"individual_digits"`
		}
		if err := decode(text, &p); err != nil {
			return nil, err
		}
		if p.Individual {
			return newSplitter(`\p{N}`, "Isolated", false, next)
		}
		return newSplitter(`\p{N}`, "Contiguous", false, next)
	case "Punctuation":
		p := struct {
			Type     string `json:"type"`
			Behavior string `json:"behavior"`
		}{Behavior: "Isolated"}
		if err := decode(text, &p); err != nil {
			return nil, err
		}
		return newSplitter(`[!-/:-@\[-`+"`"+`{-~\p{P}]`, p.Behavior, false, next)
	case "Whitespace", "WhitespaceSplit":
		var p struct {
			Type string `json:"type"`
		}
		if err := decode(text, &p); err != nil {
			return nil, err
		}
		if kind == "Whitespace" {
			return newSplitter(`\w+|[^\w\s]+`, "Removed", true, next)
		}
		return newSplitter(`\s`, "Removed", false, next)
	}
	return nil, fmt.Errorf("type %q is not supported: only ByteLevel, Metaspace, Split, Digits, Punctuation, Whitespace, WhitespaceSplit and Sequence are", kind)
}

func (c *chain) readSequence(text json.RawMessage, next stage, depth int) (stage, error) {
	var p struct {
		Type          string            `json:"type"`
		PreTokenizers []json.RawMessage `json:"pretokenizers"`
	}
	if err := decode(text, &p); err != nil {
		return nil, err
	}
	for i := len(p.PreTokenizers) - 1; i >= 0; i-- {
		before, err := c.read(p.PreTokenizers[i], next, depth+1)
		if err != nil {
			return nil, fmt.Errorf("pretokenizers[%d]: %w", i, err)
		}
		next = before
	}
	return next, nil
}

// gpt2 is the pattern that ByteLevel splits by.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// byteRunes are GPT-2's visible runes for the 256 bytes, in UTF-8.
var byteRunes = func() (runes [256]string) {
	hidden := rune(256)
	for b := range runes {
		if b >= '!' && b <= '~' || b >= 0xa1 && b != 0xad {
			runes[b] = string(rune(b))
		} else {
			runes[b] = string(hidden)
			hidden++
		}
	}
	return runes
}()

// readByteLevel returns a stage that writes a visible rune for each byte, as GPT-2 does.
func (c *chain) readByteLevel(text json.RawMessage, next stage) (stage, error) {
	p := struct {
		Type           string `json:"type"`
		AddPrefixSpace bool   `json:"add_prefix_space"`
		TrimOffsets    bool   `json:"trim_offsets"`
		UseRegex       bool   `json:"use_regex"`
	}{UseRegex: true}
	if err := decode(text, &p); err != nil {
		return nil, err
	}
	mapped := c.buffer()
	write := func(e *encoder, text []byte, first bool) {
		out := e.buffers[mapped][:0]
		for _, b := range text {
			out = append(out, byteRunes[b]...)
		}
		e.buffers[mapped] = out
		next(e, out, first)
	}
	if p.UseRegex {
		var err error
		if write, err = newSplitter(gpt2, "Isolated", false, write); err != nil {
			return nil, err
		}
	}
	if !p.AddPrefixSpace {
		return write, nil
	}
	spaced := c.buffer()
	return func(e *encoder, text []byte, first bool) {
		if text[0] != ' ' {
			e.buffers[spaced] = append(append(e.buffers[spaced][:0], ' '), text...)
			text = e.buffers[spaced]
		}
		write(e, text, first)
	}, nil
}

// readMetaspace returns a stage that writes ▁ for spaces, as SentencePiece does.
func (c *chain) readMetaspace(text json.RawMessage, next stage) (stage, error) {
	p := struct {
		Type           string `json:"type"`
		Replacement    string `json:"replacement"`
		PrependScheme  string `json:"prepend_scheme"`
		Split          *bool  `json:"split"`
		AddPrefixSpace *bool  `json:"add_prefix_space"` // of older files
		Written        string `json:"str_rep"`          // the same as replacement
	}{PrependScheme: "always"}
	if err := decode(text, &p); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(p.Replacement) != 1 {
		return nil, fmt.Errorf("replacement: %q is not one character", p.Replacement)
	}
	var prepend func(first bool) bool
	switch p.PrependScheme {
	case "always":
		prepend = func(bool) bool { return true }
	case "first":
		prepend = func(first bool) bool { return first }
	case "never":
		prepend = func(bool) bool { return false }
	default:
		return nil, fmt.Errorf("prepend_scheme: %q is none of always, first and never", p.PrependScheme)
	}
	if p.AddPrefixSpace != nil && !*p.AddPrefixSpace && p.PrependScheme != "never" {
		return nil, errors.New(`add_prefix_space: false goes with no prepend_scheme but "never"`)
	}
	if p.Split == nil || *p.Split {
		next = splitter(literal(p.Replacement), behaviors["MergedWithNext"], false, false, next)
	}
	buffer := c.buffer()
	return func(e *encoder, text []byte, first bool) {
		out := e.buffers[buffer][:0]
		if prepend(first) && text[0] != ' ' && !bytes.HasPrefix(text, []byte(p.Replacement)) {
			out = append(out, p.Replacement...)
		}
		for _, b := range text {
			if b == ' ' {
				out = append(out, p.Replacement...)
			} else {
				out = append(out, b)
			}
		}
		e.buffers[buffer] = out
		next(e, out, first)
	}, nil
}

func readSplit(text json.RawMessage, next stage) (stage, error) {
	var p struct {
		Type     string        `json:"type"`
		Pattern  stringOrRegex `json:"pattern"`
		Behavior string        `json:"behavior"`
		Invert   bool          `json:"invert"`
	}
	if err := decode(text, &p); err != nil {
		return nil, err
	}
	pattern, err := p.Pattern.compile()
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	join, ok := behaviors[p.Behavior]
	if !ok && p.Behavior != "Removed" {
		return nil, fmt.Errorf("behavior: %q is not known", p.Behavior)
	}
	return splitter(pattern, join, p.Behavior == "Removed", p.Invert, next), nil
}

// behaviors tell whether a part belongs to the one before it, by which of them are matches of the pattern.
var behaviors = map[string]func(before, match bool) bool{
	"Isolated":           func(_, _ bool) bool { return false },
	"Contiguous":         func(before, match bool) bool { return before == match },
	"MergedWithPrevious": func(before, match bool) bool { return match && !before },
	"MergedWithNext":     func(before, match bool) bool { return before && !match },
}

func newSplitter(expression, behavior string, invert bool, next stage) (stage, error) {
	p, err := compile(expression)
	if err != nil {
		return nil, err
	}
	join, ok := behaviors[behavior]
	if !ok && behavior != "Removed" {
		return nil, fmt.Errorf("behavior: %q is not known", behavior)
	}
	return splitter(p, join, behavior == "Removed", invert, next), nil
}

// splitter returns a stage that splits at the matches of a pattern; with invert at all else. remove leaves those out.
func splitter(p *pattern, join func(before, match bool) bool, remove, invert bool, next stage) stage {
	return func(e *encoder, text []byte, first bool) {
		start, end, before := 0, 0, false // of the open piece
		p.split(text, func(from, to int, match bool) {
			match = match != invert
			if remove {
				if !match {
					next(e, text[from:to], first && from == 0)
				}
				return
			}
			if end > start && !join(before, match) {
				next(e, text[start:end], first && start == 0)
				start = from
			}
			end, before = to, match
		})
		if end > start {
			next(e, text[start:end], first && start == 0)
		}
	}
}
