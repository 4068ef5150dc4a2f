package hash

import (
	"slices"
	"testing"
)

func count(from, to uint32) []uint32 {
	var tokens []uint32
	for t := from; t <= to; t++ {
		tokens = append(tokens, t)
	}
	return tokens
}

// TestBlocksGolden pins values that Dynamo publishes (the first row) or that its rule gives.
func TestBlocksGolden(t *testing.T) {
	for _, c := range []struct {
		name      string
		tokens    []uint32
		blockSize int
		want      []uint64
	}{
		{"no tokens", nil, 4, nil},
		{"no block size", count(1, 3), 0, nil},
		{"three full blocks", count(1, 12), 4, []uint64{14643705804678351452, 4945711292740353085, 12583592247330656132}},
		{"partial tail", count(1, 10), 4, []uint64{14643705804678351452, 4945711292740353085, 1450562244474778881}},
		{"one token", []uint32{7}, 4, []uint64{11011797887259449313}},
		{"prompt", count(10, 12), 2, []uint64{7369860969341005925, 14289713951177587099}},
		{"prompt and output", append(count(10, 12), 20, 21, 22), 2, []uint64{7369860969341005925, 8245508808426466151, 11506626587452923693}},
		{"two blocks of 64", count(100, 227), 64, []uint64{8113873337580740840, 8935047882395932518}},
		{"two blocks of 64 and a tail", count(100, 229), 64, []uint64{8113873337580740840, 8935047882395932518, 8929498711126007876}},
		{"a block alone is its local hash", count(5, 8), 4, []uint64{16777012769546811212}},
	} {
		if got := Blocks(c.tokens, c.blockSize); !slices.Equal(got, c.want) {
			t.Errorf("%s: Blocks(%d tokens, %d) = %d, want %d", c.name, len(c.tokens), c.blockSize, got, c.want)
		}
	}
}

func BenchmarkBlocks(b *testing.B) {
	tokens := count(1, 32768)
	b.SetBytes(int64(4 * len(tokens)))
	b.ReportAllocs()
	for b.Loop() {
		Blocks(tokens, 16)
	}
}
