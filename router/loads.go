package router

import (
	"cmp"
	"math/bits"
	"sort"
	"time"
)

// A pickFunc is a policy: it chooses among the candidates, of which there is at least one, with at most one draw of 64
// random bits, and tells how many leading blocks of the prompt the worker holds: 0 under policies that ignore that.
type pickFunc func(r *Router, now time.Duration, q *Request, draw uint64) (worker int, overlap int32)

// pickRoundRobin takes workers in turn, with one cursor for all sessions.
func (r *Router) pickRoundRobin(time.Duration, *Request, uint64) (int, int32) {
	i := sort.Search(len(r.candidates), func(i int) bool { return r.candidates[i] >= r.turn }) % len(r.candidates)
	worker := r.candidates[i]
	r.turn = worker + 1
	return int(worker), 0
}

// pickRandom takes any worker with equal probability.
func (r *Router) pickRandom(_ time.Duration, _ *Request, draw uint64) (int, int32) {
	i, _ := below(draw, len(r.candidates))
	return int(r.candidates[i]), 0
}

// pickPowerOfTwo draws two distinct workers and takes the one with fewer active requests, the first drawn when they
// are equal.
func (r *Router) pickPowerOfTwo(_ time.Duration, _ *Request, draw uint64) (int, int32) {
	n := len(r.candidates)
	i, rest := below(draw, n)
	first := int(r.candidates[i])
	if n == 1 {
		return first, 0
	}
	j, _ := below(rest, n-1)
	if j >= i {
		j++
	}
	if second := int(r.candidates[j]); r.loads[second].requests < r.loads[first].requests {
		return second, 0
	}
	return first, 0
}

// pickLeastLoaded takes the worker with the fewest active requests, any of them with equal probability on a tie.
func (r *Router) pickLeastLoaded(_ time.Duration, _ *Request, draw uint64) (int, int32) {
	i := least(len(r.candidates), func(i int) int64 { return r.loads[r.candidates[i]].requests }, draw)
	return int(r.candidates[i]), 0
}

// lowest returns the first of the workers with the least value.
func lowest[T cmp.Ordered](workers []int32, value func(worker int) T) int {
	best := int(workers[0])
	least := value(best)
	for _, w := range workers[1:] {
		if v := value(int(w)); v < least {
			best, least = int(w), v
		}
	}
	return best
}

// least returns the index below n of the least value, any of them with equal probability on a tie.
func least[T int64 | float64](n int, value func(int) T, draw uint64) int {
	best, ties := value(0), 0
	for i := range n {
		switch v := value(i); {
		case v < best:
			best, ties = v, 1
		case v == best:
			ties++
		}
	}
	nth, _ := below(draw, ties)
	for i := 0; ; i++ {
		if value(i) == best {
			if nth == 0 {
				return i
			}
			nth--
		}
	}
}

// below maps 64 random bits to 0..n-1 and returns bits for one more draw. For the few thousand workers of a fleet
// the bias is below 2^-50.
func below(draw uint64, n int) (value int, rest uint64) {
	hi, lo := bits.Mul64(draw, uint64(n))
	return int(hi), lo
}
