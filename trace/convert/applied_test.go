package convert

import (
	"slices"
	"strings"
	"testing"
)

// The prompt grows from 6 tokens by 3 and 4 to 13, and by 2 and 5 to 20. In blocks of 4 the first answer ends in token 9 and the
// second in 15: of the second prompt 2 full blocks are shared, of the third 3.
func TestApplied(t *testing.T) {
	c, err := openText(`{"num_turns":2,"input_prompt_length":6,"assistant_response_length":[3,2],"tool_call_output_length":[4,5],"tool_call_latency":[0.5,1.25],"final_assistant_response_length":7}`,
		Options{BlockSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	turns := c.Sessions[0].Turns
	chains := [][]uint64{chain(turns[0]), chain(turns[1]), chain(turns[2])}
	for i, want := range []struct{ blocks, shared, outputs int }{{2, 0, 2}, {4, 1, 1}, {5, 3, 2}} {
		if len(chains[i]) != want.blocks || len(turns[i].OutputHashes) != want.outputs || i > 0 && !slices.Equal(chains[i][:want.shared], chains[i-1][:want.shared]) ||
			i > 0 && chains[i][want.shared] == chains[i-1][min(want.shared, len(chains[i-1])-1)] {
			t.Errorf("prompt %d: %x and %x behind it, want %+v", i+1, chains[i], turns[i].OutputHashes, want)
		}
	}
	// Block 1 of the second prompt holds the last two tokens of the first and the first two of its answer.
	if chains[1][1] != turns[0].OutputHashes[0] {
		t.Errorf("the answer %x is not in the next prompt %x", turns[0].OutputHashes, chains[1])
	}
	for _, turn := range turns {
		turn.Base, turn.Hashes = nil, nil
	}
	checkText(t, describe(c), `
row-1 parent="" class="" scope=0
  row-1/1:1 0s..? 6+3 [] /user_message inferred=1
  row-1/2:1 ?..? 13+2 [] waits=row-1/1+500ms,sequence,false /tool_result tool=500ms
  row-1/3:1 ?..? 20+7 [] waits=row-1/2+1.25s,sequence,false /tool_result tool=1.25s
`)
}

// A row that claims an endless prompt does not get the memory for it.
func TestAppliedBounds(t *testing.T) {
	row := `{"num_turns":0,"input_prompt_length":268435456,"assistant_response_length":[],"tool_call_output_length":[],"tool_call_latency":[],"final_assistant_response_length":1}`
	_, err := openText(row, Options{BlockSize: 1})
	if err == nil || !strings.Contains(err.Error(), "-:1: prompts of more than 67108864 blocks in all") {
		t.Error(err)
	}
}

func FuzzApplied(f *testing.F) {
	fuzzFormat(f, `{"num_turns":2,"input_prompt_length":6,"assistant_response_length":[3,2],"tool_call_output_length":[4,5],"tool_call_latency":[0.5,1.25],"final_assistant_response_length":7}`,
		`{"num_turns":0,"input_prompt_length":6,"assistant_response_length":[],"tool_call_output_length":[],"tool_call_latency":[],"final_assistant_response_length":7}`)
}
