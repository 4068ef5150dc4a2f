package synth

import "math/rand/v2"

// stream is the random numbers of one session. Its state follows from the seed and the session's place in the
// workload alone, so a program is the same in a workload of any size.
type stream struct {
	*rand.Rand
	source *rand.PCG
}

func newStream() stream {
	source := rand.NewPCG(0, 0)
	return stream{rand.New(source), source}
}

// arrivals stands for the program number in the stream that spaces the programs.
const arrivals = 1<<32 - 1

// reset puts the stream at its beginning for a session: PCG with state (mix64(seed), mix64(program<<32 | session)).
func (s stream) reset(seed uint64, program, session int) {
	s.source.Seed(mix64(seed), mix64(uint64(program)<<32|uint64(session)))
}

// resetMore puts the stream at the beginning of a second one for a session.
func (s stream) resetMore(seed uint64, program, session int) {
	s.source.Seed(mix64(^seed), mix64(uint64(program)<<32|uint64(session)))
}

// mix64 is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection of the 64-bit numbers in
// which every input bit reaches every output bit.
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// blockHashes makes the block hashes of one program: mix64 of (program, number), so that no two different blocks of
// a workload have the same.
type blockHashes struct {
	salt    uint64 // of the seed
	program uint64 // counted from 1, in the upper half
	made    uint64
}

func newBlockHashes(seed uint64, program int) blockHashes {
	return blockHashes{salt: mix64(seed + 1), program: uint64(program+1) << 32}
}

// common returns the hash of block i of a prompt that all programs share. The numbers of a prompt's blocks are below 1<<31.
func (b *blockHashes) common(p commonPrompt, i int32) uint64 {
	return mix64(b.salt ^ (uint64(p)<<31 | uint64(i)))
}

// private returns the hash of a block that is nowhere else.
func (b *blockHashes) private() uint64 {
	b.made++
	return mix64(b.salt ^ (b.program | b.made))
}
