package tokenizer

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReference compares with what Hugging Face's tokenizers make of the same texts. TOKENIZERS names a folder of
// pairs NAME.json, a tokenizer, and NAME.cases, a line {"text": ..., "ids": [...]} for each text; `make interop` makes
// one.
func TestReference(t *testing.T) {
	folder := os.Getenv("TOKENIZERS")
	if folder == "" {
		t.Skip("TOKENIZERS names no folder of tokenizers and texts")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.cases"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no *.cases in %s (%v)", folder, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".cases"), func(t *testing.T) { compareCases(t, file) })
	}
}

func compareCases(t *testing.T, file string) {
	tokenizer, err := Load(strings.TrimSuffix(file, ".cases") + ".json")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	compared, wrong := 0, 0
	for lines.Scan() {
		var c struct {
			Text string
			IDs  []uint32
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		compared++
		if got := tokenizer.Encode(c.Text); !slices.Equal(got, c.IDs) {
			if wrong++; wrong <= 3 {
				n := 0
				for n < min(len(got), len(c.IDs)) && got[n] == c.IDs[n] {
					n++
				}
				t.Errorf("%.200q: from token %d on %d, want %d", c.Text, n, got[n:min(n+8, len(got))], c.IDs[n:min(n+8, len(c.IDs))])
			}
		}
	}
	if err := lines.Err(); err != nil || compared == 0 {
		t.Fatalf("%d texts read from %s (%v)", compared, file, err)
	}
	t.Logf("%d of %d texts have the same tokens", compared-wrong, compared)
}
