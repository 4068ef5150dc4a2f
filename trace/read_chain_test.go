package trace

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestChain(t *testing.T) {
	var c Chain
	a, b, d := &Turn{}, &Turn{}, &Turn{}
	c.Add(a, []uint64{1, 2, 3})
	c.Add(b, []uint64{1, 2, 4, 5})
	c.Add(d, []uint64{9})
	if a.Base != nil || b.Base != a || b.Shared != 2 || !slices.Equal(b.Hashes, []uint64{4, 5}) {
		t.Errorf("b is the first %d of %p and %d", b.Shared, b.Base, b.Hashes)
	}
	if d.Base != nil || d.Shared != 0 || !slices.Equal(d.Hashes, []uint64{9}) {
		t.Errorf("d shares nothing, but is the first %d of %p and %d", d.Shared, d.Base, d.Hashes)
	}
}

// genChains makes chains that tend to extend one another.
func genChains(t *rapid.T) [][]uint64 {
	var chains [][]uint64
	var last []uint64
	for range rapid.IntRange(1, 12).Draw(t, "turns") {
		keep := rapid.IntRange(0, len(last)).Draw(t, "keep")
		fresh := rapid.SliceOfN(rapid.OneOf(rapid.Uint64Range(0, 12), rapid.Uint64()), 0, 5).Draw(t, "fresh")
		last = slices.Concat(last[:keep], fresh)
		chains = append(chains, last)
	}
	return chains
}

func TestChainProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Chain
		var turns []*Turn
		chains := genChains(t)
		for i, hashes := range chains {
			turn := &Turn{ID: fmt.Sprint(i)}
			turns = append(turns, turn)
			if rapid.Bool().Draw(t, "numbers") {
				c.Add(turn, hashes)
				continue
			}
			text := []byte{'['}
			for k, h := range hashes {
				if k > 0 {
					text = append(text, rapid.SampledFrom([]string{",", ", "}).Draw(t, "comma")...)
				}
				text = fmt.Append(text, h)
			}
			if n, err := c.AddText(turn, append(text, ']')); err != nil || n != len(hashes) {
				t.Fatalf("%d of %d hashes, %v", n, len(hashes), err)
			}
		}
		check := func() {
			for i, turn := range turns {
				if turn == nil {
					continue
				}
				if got := turn.chain(); !slices.Equal(got, chains[i]) {
					t.Fatalf("turn %d: chain %d, want %d", i, got, chains[i])
				}
				if (turn.Base == nil) != (turn.Shared == 0) {
					t.Fatalf("turn %d shares %d of %p", i, turn.Shared, turn.Base)
				}
			}
		}
		check()
		// Dropping any turn leaves the other chains as they are.
		drop := rapid.IntRange(0, len(turns)-1).Draw(t, "drop")
		for _, turn := range turns[drop+1:] {
			if turn.Base == turns[drop] {
				turn.skipBase()
			}
		}
		turns[drop] = nil
		check()
	})
}

func TestChainTextFaults(t *testing.T) {
	for _, text := range []string{"[1,2", "[1,2,", "[1,2,x]", "[1,2,3]]", "[1,2,-3]", "[1,2,]"} {
		var c Chain
		if _, err := c.AddText(&Turn{}, []byte("[1,2,3]")); err != nil {
			t.Fatal(err)
		}
		if n, err := c.AddText(&Turn{}, []byte(text)); err == nil {
			t.Errorf("%s behind [1,2,3]: %d hashes and no error", text, n)
		}
	}
}

// A conversation of 500 turns whose prompt grows by 4 blocks of 7 digits each.
func BenchmarkChainAddText(b *testing.B) {
	var texts [][]byte
	total := 0
	for turn := range 500 {
		text := []byte{'['}
		for i := range 4 * (turn + 1) {
			text = fmt.Appendf(text, "%d,", 1000000+i)
		}
		text[len(text)-1] = ']'
		texts = append(texts, text)
		total += len(text)
	}
	b.SetBytes(int64(total))
	b.ReportAllocs()
	for b.Loop() {
		var c Chain
		for _, text := range texts {
			if _, err := c.AddText(new(Turn), text); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkReadDynamo(b *testing.B) {
	var text bytes.Buffer
	for i := range 2000 {
		fmt.Fprintf(&text, `{"timestamp":%d,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":%d,`+
			`"event_source":"dynamo","agent_context":{"session_id":"s%d","input_trigger":"tool_result"},"request":{"request_id":"r%d","model":"demo",`+
			`"input_tokens":800,"output_tokens":10,"cached_tokens":64,"request_received_ms":%d,"ttft_ms":50.25,"total_time_ms":250.5,`+
			`"worker":{"decode_worker_id":9007199254740995},"replay":{"trace_block_size":16,"input_length":800,"input_sequence_hashes":[`, i, 5000+i, i%20, i, 5000+i)
		for k := range 50 {
			fmt.Fprintf(&text, "%d,", uint64(11400714819323198485)*uint64(k+1))
		}
		text.Truncate(text.Len() - 1)
		text.WriteString("]}}}}\n")
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		p, err := parseRows(Chunk{File: "bench", Line: 1, Data: text.Bytes()}, keepWork)
		if err != nil || len(p.Turns) != 2000 {
			b.Fatal(len(p.Turns), err)
		}
	}
}
