// Package hash identifies KV blocks by the tokens that they hold and by all tokens before them.
package hash

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// seed is that of Dynamo's block hashes.
const seed = 1337

// Blocks returns the sequence hashes of a prompt in blocks of blockSize tokens, as Dynamo's request traces list them
// (input_sequence_hashes): ceil(len(tokens)/blockSize) values, of which the last may stand for a partial block. Equal
// values stand for equal prompts up to the block's end. A blockSize that is not positive gives nil.
//
// With b(i) the XXH3-64 of block i's tokens as little-endian u32, the values are s(0) = b(0) and
// s(i) = XXH3-64(LE64(s(i-1)) || LE64(b(i))), all with seed 1337.
func Blocks(tokens []uint32, blockSize int) []uint64 {
	if blockSize <= 0 {
		return nil
	}
	sums := make([]uint64, 0, (len(tokens)+blockSize-1)/blockSize)
	block := make([]byte, 0, 4*min(blockSize, len(tokens)))
	for len(tokens) > 0 {
		n := min(blockSize, len(tokens))
		block = block[:0]
		for _, t := range tokens[:n] {
			block = binary.LittleEndian.AppendUint32(block, t)
		}
		sum := xxh3.HashSeed(block, seed)
		if len(sums) > 0 {
			sum = Combine(sums[len(sums)-1], sum)
		}
		sums = append(sums, sum)
		tokens = tokens[n:]
	}
	return sums
}

// Combine chains a value to another: the sequence hash of a block whose local hash is next, behind a prefix whose
// sequence hash is previous.
func Combine(previous, next uint64) uint64 {
	var pair [16]byte
	binary.LittleEndian.PutUint64(pair[:8], previous)
	binary.LittleEndian.PutUint64(pair[8:], next)
	return xxh3.HashSeed(pair[:], seed)
}
