package convert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSummary(t *testing.T) {
	text := `{"id":"x","block_size":4,"requests":[{"t":0,"in":9,"out":2,"hash_ids":[1,2],"api_time":1},{"t":3,"in":9,"out":2}]}` + "\n{\n"
	c, err := openText(text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Read.SkippedRows = 5
	c.Read.Skipped = map[string]int{"of type b": 1, "of type a": 3}
	want := Summary{Format: FormatWeka, Files: 1, Rows: 2, Calls: 2, Sessions: 1, Lost: 1,
		Skipped:  []Count{{"neither calls nor tools", 1}, {"of type a", 3}, {"of type b", 1}},
		Inferred: []Count{{"end", 1}},
		Sharing:  []Count{{"nothing", 1}, {"recorded hashes", 1}},
	}
	if diff := cmp.Diff(want, Summarize(c)); diff != "" {
		t.Error(diff)
	}
	_, err = openText(text, Options{Strict: true})
	if err == nil || !strings.Contains(err.Error(), `-:2: strict: the source does not tell end of call "x:2", and a rule would fill it`) {
		t.Errorf("strict: %v", err)
	}
}
