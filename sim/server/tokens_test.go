package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/trace/wire"
)

// cut returns the pieces of a text.
func cut(text string) (pieces []string) {
	for len(text) > 0 {
		n := piece(text)
		pieces, text = append(pieces, text[:n]), text[n:]
	}
	return pieces
}

func TestPieces(t *testing.T) {
	for text, want := range map[string]string{
		"hello world":     "hello| world",
		" a b":            " a| b",
		"x  y":            "x| | y",
		"if(a==10234){\n": "if|(|a|=|=|102|34|)|{|\n",
		"a\n\n  b":        "a|\n\n | b",
		"naïve":           "naïve",
		"  ":              "  ",
	} {
		if got := strings.Join(cut(text), "|"); got != want {
			t.Errorf("%q is cut into %q, want %q", text, got, want)
		}
	}
}

// An answer that comes back in the next prompt, as text or as ids, has the tokens that were counted when it was given.
func TestAnswersKeepTheirTokens(t *testing.T) {
	for _, bare := range []bool{false, true} {
		o := output{seed: 7, bare: bare}
		var text strings.Builder
		var ids []uint32
		for k := range 500 {
			text.WriteString(o.word(k))
			ids = append(ids, o.id(k))
		}
		if got := appendTokens(nil, text.String()); !slices.Equal(got, ids) {
			t.Errorf("bare %v: an answer of %d tokens has %d in the next prompt", bare, len(ids), len(got))
		}
	}
	first := &wire.Request{Messages: []wire.Message{{Role: "user", Content: "hi"}}}
	prompt := appendChat(nil, first)
	o := output{seed: 1, bare: true}
	var answer string
	want := slices.Clone(prompt)
	for k := range 20 {
		answer += o.word(k)
		want = append(want, o.id(k))
	}
	next := &wire.Request{Messages: append(first.Messages, wire.Message{Role: "assistant", Content: wire.Content(answer)}, wire.Message{Role: "user", Content: "more"})}
	if got := appendChat(nil, next); !slices.Equal(got[:len(want)], want) {
		t.Error("the second prompt of a chat does not begin with the first and its answer")
	}
}

func TestForcedOutput(t *testing.T) {
	o := output{seed: 1, forced: []uint32{5, 6}}
	if o.id(0) != 5 || o.id(1) != 6 || o.id(2) == 6 {
		t.Errorf("ids %d %d %d, want 5, 6 and one of its own", o.id(0), o.id(1), o.id(2))
	}
}

func FuzzTokens(f *testing.F) {
	f.Add("a b\n\n 12ß", "  x")
	f.Fuzz(func(t *testing.T, text, more string) {
		if got := strings.Join(cut(text), ""); got != text {
			t.Fatalf("the pieces of %q make %q", text, got)
		}
		// What follows a line end changes no token before it.
		a, b := appendTokens(nil, text+"."), appendTokens(nil, text+"."+more)
		if len(b) < len(a) || !slices.Equal(b[:len(a)], a) {
			t.Fatalf("%q behind %q changes the tokens before it", more, text)
		}
	})
}
