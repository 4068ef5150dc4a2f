package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// readNormalizer returns what is done to text before it is split.
func readNormalizer(text json.RawMessage, depth int) (func(string) string, error) {
	if isNull(text) {
		return func(s string) string { return s }, nil
	}
	kind, err := readKind(text, depth)
	if err != nil {
		return nil, err
	}
	var bare struct {
		Type string `json:"type"`
	}
	switch kind {
	case "NFC", "NFD", "NFKC", "NFKD":
		form := map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}[kind]
		return form.String, decode(text, &bare)
	case "Lowercase":
		return lowercase, decode(text, &bare)
	case "Sequence":
		return readNormalizers(text, depth)
	case "Prepend":
		var n struct {
			Type    string `json:"type"`
			Prepend string `json:"prepend"`
		}
		err := decode(text, &n)
		return func(s string) string {
			if s == "" {
				return s
			}
			return n.Prepend + s
		}, err
	case "Strip":
		var n struct {
			Type  string `json:"type"`
			Left  bool   `json:"strip_left"`
			Right bool   `json:"strip_right"`
		}
		err := decode(text, &n)
		return func(s string) string {
			if n.Left {
				s = strings.TrimLeftFunc(s, unicode.IsSpace)
			}
			if n.Right {
				s = strings.TrimRightFunc(s, unicode.IsSpace)
			}
			return s
		}, err
	case "Replace":
		return readReplace(text)
	}
	return nil, fmt.Errorf("type %q is not supported: only NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Strip, Replace and Sequence are", kind)
}

func readNormalizers(text json.RawMessage, depth int) (func(string) string, error) {
	var n struct {
		Type        string            `json:"type"`
		Normalizers []json.RawMessage `json:"normalizers"`
	}
	if err := decode(text, &n); err != nil {
		return nil, err
	}
	var steps []func(string) string
	for i, text := range n.Normalizers {
		step, err := readNormalizer(text, depth+1)
		if err != nil {
			return nil, fmt.Errorf("normalizers[%d]: %w", i, err)
		}
		steps = append(steps, step)
	}
	return func(s string) string {
		for _, step := range steps {
			s = step(s)
		}
		return s
	}, nil
}

func readReplace(text json.RawMessage) (func(string) string, error) {
	var n struct {
		Type    string        `json:"type"`
		Pattern stringOrRegex `json:"pattern"`
		Content string        `json:"content"`
	}
	if err := decode(text, &n); err != nil {
		return nil, err
	}
	p, err := n.Pattern.compile()
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	return func(s string) string {
		var out strings.Builder
		text := []byte(s)
		p.split(text, func(start, end int, match bool) {
			if match {
				out.WriteString(n.Content)
			} else {
				out.Write(text[start:end])
			}
		})
		return out.String()
	}, nil
}

// lowercase lowers each rune, as Rust's char::to_lowercase does: İ is the only one that becomes two.
func lowercase(s string) string {
	return strings.ReplaceAll(strings.Map(func(r rune) rune {
		if r == 'İ' {
			return r
		}
		return unicode.ToLower(r)
	}, s), "İ", "i\u0307")
}

// stringOrRegex is what a Replace or a Split looks for.
type stringOrRegex struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

func (s stringOrRegex) compile() (*pattern, error) {
	switch {
	case s.Regex != nil:
		p, err := compile(*s.Regex)
		if err != nil {
			return nil, fmt.Errorf("its Regex %w", err)
		}
		return p, nil
	case s.String != nil && *s.String != "":
		return literal(*s.String), nil
	}
	return nil, errors.New("it is empty")
}
