package trace

import (
	"os"
	"testing"
)

// FuzzReadDynamo checks that whatever is read keeps the promises of Capture.
func FuzzReadDynamo(f *testing.F) {
	eras, err := os.ReadFile("testdata/eras.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(eras)
	f.Add(compress(f, string(eras)))
	f.Add([]byte(numbered(1, 3)))
	f.Add([]byte(`{"event_type":"request_end","request":{"request_id":"a","input_tokens":1,"request_received_ms":0,"total_time_ms":-1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := readText(string(text))
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, s := range c.Sessions {
			for _, turn := range s.Turns {
				if seen[turn.ID] || turn.Session != s {
					t.Fatalf("turn %q is twice in the capture, or of another session", turn.ID)
				}
				seen[turn.ID] = true
				if turn.Start < 0 || turn.End != NoTime && turn.End < turn.Start || turn.Input <= 0 || turn.Output < 0 || turn.Cached > turn.Input {
					t.Fatalf("turn %+v", turn)
				}
				if chain := turn.chain(); len(chain) > 0 {
					if err := CheckHashCount(len(chain), turn.Input, int32(c.BlockSize)); err != nil {
						t.Fatalf("turn %q: %v", turn.ID, err)
					}
				}
			}
		}
	})
}
