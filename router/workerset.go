package router

import "math/bits"

// workerSet is a set of workers, one bit each.
type workerSet []uint64

func newWorkerSet(workers int) workerSet { return make(workerSet, (workers+63)/64) }

func allWorkers(workers int) workerSet {
	s := newWorkerSet(workers)
	for worker := range workers {
		s.add(worker)
	}
	return s
}

func (s workerSet) has(worker int) bool { return s[worker>>6]&(1<<(worker&63)) != 0 }
func (s workerSet) add(worker int)      { s[worker>>6] |= 1 << (worker & 63) }
func (s workerSet) remove(worker int)   { s[worker>>6] &^= 1 << (worker & 63) }

func (s workerSet) empty() bool {
	for _, word := range s {
		if word != 0 {
			return false
		}
	}
	return true
}

// each calls f with the members in increasing order.
func (s workerSet) each(f func(worker int)) {
	for i, word := range s {
		eachBit(i, word, f)
	}
}

// eachBit calls f with the members that are in word i of a set.
func eachBit(i int, word uint64, f func(worker int)) {
	for ; word != 0; word &= word - 1 {
		f(i<<6 + bits.TrailingZeros64(word))
	}
}
