package trace

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestHashesCutOut checks that rows whose arrays are cut out say what they say as they are.
func TestHashesCutOut(t *testing.T) {
	const row = `{"event":{"event_type":"request_end","agent_context":{"session_id":"_sequence_hashes"},"request":{"request_id":"a",
		"input_tokens":32,"replay":{"input_sequence_hashes" : %s,"completion_sequence_hashes":%s},"agentsim":{"completion_sequence_hashes":[8]}}}}`
	arrays := []string{"[1,2]", "[ 18446744073709551615 , 2 ]", "[1.0,2e1]", "[0]", "[1]", "[7]", "[]", "[ ]", "null", "[1,-2]", "[1,x]", "[1,2", `["]"]`,
		"[[1],2]", "[1,]", `[1,"_sequence_hashes"]`}
	for _, input := range arrays {
		for _, completion := range arrays {
			text := fmt.Appendf(nil, row, input, completion)
			if end := strings.LastIndexByte(input, ']'); end > 0 && strings.Count(input, "[") == 1 && !strings.Contains(input, `"`) {
				if rest := new(hashLists).cut(text); end > 2 && strings.Contains(string(rest), input) {
					t.Errorf("%s was left in its row: %s", input, rest)
				}
			}
			p := rowParser{chains: map[string]*Chain{}}
			_, err := p.record(text)
			whole := rowParser{chains: map[string]*Chain{}}
			_, wholeErr := whole.decode(text)
			if fmt.Sprint(err) != fmt.Sprint(wholeErr) {
				t.Errorf("%s: %v; the whole row: %v", text, err, wholeErr)
			} else if err == nil && (!slices.Equal(p.turn.chain(), whole.turn.chain()) || !slices.Equal(p.completion, whole.completion)) {
				t.Errorf("%s: %d and %d; the whole row: %d and %d", text, p.turn.chain(), p.completion, whole.turn.chain(), whole.completion)
			}
		}
	}
}
