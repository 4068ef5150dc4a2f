package kvcache

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// exact is a time as a whole number of block-ns.
func (t BlockTime) exact() *big.Int {
	n := new(big.Int).Lsh(new(big.Int).SetUint64(t.hi), 64)
	return n.Add(n, new(big.Int).SetUint64(t.lo))
}

// Sums of products of any size are those of math/big, modulo 2^128, in whatever order they are added and taken away.
func TestBlockTime(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	modulus := new(big.Int).Lsh(big.NewInt(1), 128)
	for range 1000 {
		var got, others BlockTime
		want := new(big.Int)
		for range 1 + r.IntN(5) {
			blocks, d := r.Int64()>>r.IntN(63), time.Duration(r.Int64()>>r.IntN(63))
			if r.IntN(2) == 0 {
				blocks = -blocks
			}
			product := new(big.Int).Mul(big.NewInt(blocks), big.NewInt(int64(d)))
			switch r.IntN(3) {
			case 0:
				got = got.Plus(blocks, d)
				want.Add(want, product)
			case 1:
				got = got.Add(BlockTime{}.Plus(blocks, d))
				want.Add(want, product)
			case 2:
				got = got.Sub(BlockTime{}.Plus(blocks, d))
				want.Sub(want, product)
			}
			others = BlockTime{}.Plus(blocks, d)
		}
		want.Mod(want, modulus)
		if got.exact().Cmp(want) != 0 {
			t.Fatalf("got %v, want %v", got.exact(), want)
		}
		if c := got.Compare(others); c != got.exact().Cmp(others.exact()) {
			t.Fatalf("%v compares to %v as %d", got.exact(), others.exact(), c)
		}
	}
	if s := (BlockTime{}).Plus(1<<30, 1<<62).Seconds(); s != (1<<30)*(1<<62)/1e9 {
		t.Errorf("a full cache for 146 years is %g block-seconds", s)
	}
}
