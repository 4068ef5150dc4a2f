// Package router chooses the worker that serves a request, from the load it has booked itself and from the KV
// events that engines publish.
//
// A Router is one frontend's view of its workers. For each request the caller asks Pick, tells where the request
// went with Dispatched, and reports FirstToken and Done. Time is an argument, there is no clock and no goroutine, so
// the same code serves a simulation and a live server. A Router is not safe for concurrent use.
package router

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Router chooses among workers 0..n-1. A worker is one (worker, data-parallel rank) pair.
type Router struct {
	settings  Settings
	blockSize int64
	pick      pickFunc
	random    *rand.PCG
	loads     []load

	next  int              // round-robin: the worker of the next request
	homes map[uint64]*home // sticky: the worker of each session
	swept time.Duration    // sticky: when idle sessions were last dropped
	feeds []feed           // kv: events under way, one feed per worker
	cache *index           // kv: resident blocks by worker; nil when overlap earns no credit
	held  *footprint       // kv: distinct prompt blocks of active requests; nil when reuse is not assumed
	score scores           // kv: scratch of one Pick
}

// load is what the router has booked on one worker.
type load struct {
	requests int64 // dispatched and not done
	prefill  int64 // uncached prompt tokens of requests before their first token
	blocks   int64 // prompt blocks of active requests, distinct ones where held counts them
}

// Request is one request as the router sees it. The caller fills the exported fields before Pick and leaves them,
// and the spans of Path, alone until Done.
type Request struct {
	// Session tells which requests belong to one chain of turns.
	Session uint64
	// Input is the number of prompt tokens.
	Input int32
	// PromptBlocks is the number of full KV blocks in the prompt: floor(Input / block size).
	PromptBlocks int32
	// Path holds at least the prompt's blocks, in engine blocks from block 0. What follows them is ignored.
	Path []trace.Span

	booked  bool
	worker  int32
	prefill int64
}

// randomStream tells the router's random numbers from those of other parts that share a seed.
const randomStream = 0x726f75746572 // "router"

// New returns a router of workers that keep KV in blocks of blockSize tokens. Errors name the setting and what it may
// be.
func New(s Settings, workers, blockSize int, seed uint64) (*Router, error) {
	pick, err := s.check(workers, blockSize)
	if err != nil {
		return nil, err
	}
	r := &Router{
		settings:  s,
		blockSize: int64(blockSize),
		pick:      pick,
		random:    rand.NewPCG(seed, randomStream),
		loads:     make([]load, workers),
	}
	switch s.Policy {
	case "sticky":
		r.homes = make(map[uint64]*home)
	case "kv":
		r.score = newScores(workers)
		// A Dynamo router whose overlap_score_credit is 0 runs without an index: it knows no cached tokens.
		if s.OverlapScoreCredit > 0 {
			r.feeds = make([]feed, workers)
			r.cache = newIndex(workers)
		}
		if s.AssumeKVReuse {
			r.held = newFootprint(workers)
		}
	}
	return r, nil
}

// Pick returns the worker that should serve q, and how many leading blocks of its prompt that worker is known to
// hold: 0 under policies that ignore the cache. It books nothing.
//
// Every Pick draws one random number, whether it needs it or not, so the n-th Pick of two routers with one seed sees
// the same number however their policies and loads differ.
func (r *Router) Pick(now time.Duration, q *Request) (worker int, overlapBlocks int32) {
	return r.pick(r, now, q, r.random.Uint64())
}

// Overlap returns how many leading blocks of q's prompt a worker is known to hold, for requests that are bound to
// one. It draws no random number.
func (r *Router) Overlap(now time.Duration, q *Request, worker int) int32 {
	r.lookup(now, q)
	if r.cache == nil {
		return 0
	}
	return r.score.overlap[worker]
}

// Dispatched books q on worker: one active request, the prompt tokens beyond overlapBlocks until the first token,
// and the prompt's blocks until q is done. A request that is booked elsewhere leaves there first.
func (r *Router) Dispatched(q *Request, worker int, overlapBlocks int32) {
	r.Done(q)
	q.booked, q.worker = true, int32(worker)
	q.prefill = max(int64(q.Input)-int64(overlapBlocks)*r.blockSize, 0)
	l := &r.loads[worker]
	l.requests++
	l.prefill += q.prefill
	if r.held != nil {
		l.blocks += r.held.hold(worker, q.Path, q.PromptBlocks)
	} else {
		l.blocks += int64(q.PromptBlocks)
	}
}

// FirstToken ends q's prefill load. It does nothing when q has none.
func (r *Router) FirstToken(q *Request) {
	if q.booked {
		r.loads[q.worker].prefill -= q.prefill
		q.prefill = 0
	}
}

// Done takes all of q's load from its worker, however q ended. It does nothing when q is not booked.
func (r *Router) Done(q *Request) {
	if !q.booked {
		return
	}
	r.FirstToken(q)
	l := &r.loads[q.worker]
	l.requests--
	if r.held != nil {
		l.blocks -= r.held.release(int(q.worker), q.Path, q.PromptBlocks)
	} else {
		l.blocks -= int64(q.PromptBlocks)
	}
	q.booked = false
}

// A pickFunc is a policy: it chooses with at most one draw of 64 random bits.
type pickFunc func(r *Router, now time.Duration, q *Request, draw uint64) (worker int, overlapBlocks int32)

// pickRoundRobin takes workers in turn, with one cursor for all sessions.
func (r *Router) pickRoundRobin(time.Duration, *Request, uint64) (int, int32) {
	worker := r.next
	r.next = (r.next + 1) % len(r.loads)
	return worker, 0
}

// pickRandom takes any worker with equal probability.
func (r *Router) pickRandom(_ time.Duration, _ *Request, draw uint64) (int, int32) {
	worker, _ := below(draw, len(r.loads))
	return worker, 0
}

// pickPowerOfTwo draws two distinct workers and takes the one with fewer active requests, the first drawn when they
// are equal.
func (r *Router) pickPowerOfTwo(_ time.Duration, _ *Request, draw uint64) (int, int32) {
	first, rest := below(draw, len(r.loads))
	if len(r.loads) == 1 {
		return first, 0
	}
	second, _ := below(rest, len(r.loads)-1)
	if second >= first {
		second++
	}
	if r.loads[second].requests < r.loads[first].requests {
		return second, 0
	}
	return first, 0
}

// pickLeastLoaded takes the worker with the fewest active requests, any of them with equal probability on a tie.
func (r *Router) pickLeastLoaded(_ time.Duration, _ *Request, draw uint64) (int, int32) {
	return least(len(r.loads), func(worker int) int64 { return r.loads[worker].requests }, draw), 0
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
