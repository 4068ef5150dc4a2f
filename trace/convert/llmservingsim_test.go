package convert

import (
	"slices"
	"testing"

	"github.com/agentsim/agentsim/trace/hash"
)

func TestServingSim(t *testing.T) {
	c, err := openText(`{"input_toks":3,"output_toks":2,"arrival_time_ns":2500,"input_tok_ids":[7,8,9],"output_tok_ids":[1,2]}
{"session_id":"agent","arrival_time_ns":500,"sub_requests":[{"input_toks":10,"output_toks":4,"tool_duration_ns":1000},{"input_toks":30,"output_toks":1,"tool_duration_ns":0}]}`,
		Options{BlockSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	turn := c.Sessions[1].Turns[0]
	// Tokens 7 8 | 9 1 | 2: the prompt ends inside the second block.
	all := hash.Blocks([]uint32{7, 8, 9, 1, 2}, 2)
	if want := hash.Blocks([]uint32{7, 8, 9}, 2); !slices.Equal(chain(turn), want) || !slices.Equal(turn.OutputHashes, all[1:]) {
		t.Errorf("blocks %d and %d, want %d and %d", chain(turn), turn.OutputHashes, want, all[1:])
	}
	turn.Hashes = nil
	checkText(t, describe(c), `
agent parent="" class="" scope=0
  agent/1:2 500ns..? 10+4 []
  agent/2:2 ?..? 30+1 [] waits=agent/1+1µs,sequence,false /tool_result tool=1µs
row-1 parent="" class="" scope=0
  row-1:1 2.5µs..? 3+2 []
`)
}

// The workloads that LLMServingSim comes with.
func TestServingSimShared(t *testing.T) {
	for _, c := range []struct {
		path          string
		calls, output int
		hashed        bool
	}{{"llmservingsim/example_trace.jsonl", 10, 591, true}, {"llmservingsim/workload_me2_01_mixed.jsonl", 608, 0, false}, {"llmservingsim/sharegpt-llama-3.1-8b-300-sps10.jsonl.gz", 300, 0, true}} {
		got := openShared(t, c.path)
		output := 0
		for _, s := range got.Sessions {
			for _, turn := range s.Turns {
				output += int(turn.Output)
				if hashed := len(turn.Hashes)+int(turn.Shared) > 0; hashed != c.hashed || hashed != (len(turn.OutputHashes) > 0) {
					t.Fatalf("%s: %s has hashes: %v", c.path, turn.ID, hashed)
				}
			}
		}
		if got.Read.Calls != c.calls || c.output > 0 && output != c.output || got.Read.LostRows > 0 {
			t.Errorf("%s: %+v, output %d", c.path, got.Read, output)
		}
	}
}

func FuzzServingSim(f *testing.F) {
	fuzzFormat(f, `{"input_toks":3,"output_toks":2,"arrival_time_ns":2500,"input_tok_ids":[7,8,9],"output_tok_ids":[1,2]}`,
		`{"session_id":"a","arrival_time_ns":5,"sub_requests":[{"input_toks":10,"output_toks":4,"tool_duration_ns":1000},{"input_toks":30,"output_toks":1,"tool_duration_ns":0}]}`)
}
