package tokenizer

import (
	"os"
	"strings"
	"testing"
)

// BenchmarkEncode encodes this package's own source by a tokenizer.json that TOKENIZER names, or else by a small one.
func BenchmarkEncode(b *testing.B) {
	t := byteLevelOf("i n", "e r", "Ġ t", "o n", "Ġt e", "r e").load(b)
	if path := os.Getenv("TOKENIZER"); path != "" {
		var err error
		if t, err = Load(path); err != nil {
			b.Fatal(err)
		}
	}
	var text strings.Builder
	for _, name := range []string{"bpe.go", "compile.go", "pretokenizer.go", "tokenizer.go", "pattern.go"} {
		source, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		text.Write(source)
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		t.Encode(text.String())
	}
}

func BenchmarkLoad(b *testing.B) {
	path := os.Getenv("TOKENIZER")
	if path == "" {
		b.Skip("TOKENIZER names no tokenizer.json")
	}
	for b.Loop() {
		if _, err := Load(path); err != nil {
			b.Fatal(err)
		}
	}
}
