// Package router chooses the worker that serves a request, from the load it has booked itself and from the KV
// events that engines publish.
//
// A Router is one frontend's view of its workers. The caller submits each request, acts on the decisions that Submit
// and Drain return, and reports FirstToken and Done. Time is an argument, there is no clock and no goroutine, so the
// same code serves a simulation and a live server. A Router is not safe for concurrent use.
package router

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Pool is what a router knows of its workers, which are alike. A worker is one (worker, data-parallel rank) pair.
type Pool struct {
	// Workers is their number, BlockSize the tokens of a KV block.
	Workers, BlockSize int
	// MaxBatchedTokens is the most tokens of an engine step; 0 is 10,000,000, Dynamo's figure for workers that do not
	// tell.
	MaxBatchedTokens int
	// KVBlocks is the KV blocks of a worker; 0 is not known.
	KVBlocks int
}

func (p *Pool) check() error {
	if p.Workers < 1 || p.Workers > maxWorkers {
		return fmt.Errorf("workers: %d is not within 1..%d", p.Workers, maxWorkers)
	}
	if p.BlockSize < 1 || p.BlockSize > maxBlockSize {
		return fmt.Errorf("engine.block_size: %d tokens is not within 1..%d", p.BlockSize, maxBlockSize)
	}
	return nil
}

// Router chooses among the workers of a pool, 0..n-1.
type Router struct {
	// Tokens returns how many tokens of an active request its worker has in its KV cache, also of one that the Drain under
	// way has placed. Only routers that track output blocks call it; while it is nil they count none.
	Tokens func(q *Request) int32

	settings  Settings
	pool      Pool
	blockSize int64
	policy    policy
	random    *rand.PCG
	loads     []load

	workers    []int32 // those that are there, in increasing order
	candidates []int32 // of them those that the present choice may take
	lost       bool    // a worker went since the last Drain
	queue      *queue
	affinity   *homes // nil: off
	decisions  []Decision
	snapshots  [][]int32 // overlaps of former waiting requests, to reuse

	turn   int32         // round-robin: the worker of the next request
	homes  *homes        // sticky policies: the worker of each session
	hot    hotspots      // lmetric
	others []int32       // lmetric: scratch
	feeds  []feed        // KV events under way, one feed per worker
	cache  *index        // resident blocks by worker, from KV events; nil without them
	below  [tiers]*index // what tiers of workers hold; nil where none has told of any
	guess  *predictions  // blocks that workers should hold; nil without
	held   *footprint    // distinct prompt blocks of active requests; nil when reuse is not assumed
	active [][]*Request  // by worker, where output blocks count
	score  scores        // scratch of one choice

	observe func(Choice) // nil: nobody asks
}

// load is what the router has booked on one worker.
type load struct {
	requests int64 // dispatched and not done
	prefill  int64 // uncached prompt tokens of requests before their first token
	blocks   int64 // prompt blocks of active requests, distinct ones where held counts them
}

// Request is one request as the router sees it. The caller fills the exported fields before Submit and leaves them,
// and the spans of Path, alone until Done or a rejection.
type Request struct {
	// ID is the caller's.
	ID int32
	// Session tells which requests belong to one chain of turns. Parent is the session that spawned it, Session itself
	// for a root.
	Session, Parent uint64
	// Input is the number of prompt tokens.
	Input int32
	// PromptBlocks is the number of full KV blocks in the prompt: floor(Input / block size).
	PromptBlocks int32
	// ExpectedOutput is the number of output tokens that the client expects (the osl hint); 0 when not told.
	ExpectedOutput int32
	// Path holds at least the prompt's blocks, in engine blocks from block 0. What follows them is ignored.
	Path []trace.Span
	// Pinned is the one worker that may serve the request, Preferred one that should; -1 for none.
	Pinned, Preferred int32
	// StrictPriority orders waiting requests, the highest first; among equals PriorityJump is worth so many seconds of
	// waiting. Below 0 it counts as 0.
	StrictPriority uint32
	PriorityJump   float64
	// Class names a class of the queue, or a family of classes; "" is the default family.
	Class string

	waiting
	exact   int32 // the one worker that may serve it, -1 any
	booked  bool
	worker  int32
	prefill int64
	home    *home // its session's binding
	at      int32 // its place among the worker's active requests
}

// randomStream tells the router's random numbers from those of other parts that share a seed.
const randomStream = 0x726f75746572 // "router"

// New returns a router for the workers of a pool. Errors name the setting and what it may be.
func New(s Settings, p Pool, seed uint64) (*Router, error) {
	s = s.Effective()
	chosen, err := s.check(p)
	if err != nil {
		return nil, err
	}
	if p.MaxBatchedTokens == 0 {
		p.MaxBatchedTokens = 10_000_000
	}
	n := p.Workers
	r := &Router{
		settings:  s,
		pool:      p,
		blockSize: int64(p.BlockSize),
		policy:    chosen,
		random:    rand.NewPCG(seed, randomStream),
		loads:     make([]load, n),
		queue:     newQueue(s.classes()),
		homes:     newHomes(stickyTTL, n),
		hot:       hotspots{classes: make(map[trace.Key]*hotspot)},
		score:     newScores(n),
	}
	for worker := range n {
		r.Add(worker)
	}
	if s.SessionAffinity.on() {
		r.affinity = newHomes(s.SessionAffinity.TTL, n)
	}
	// A Dynamo router whose overlap_score_credit is 0 runs without an index: it knows no cached tokens.
	if chosen.index && s.OverlapScoreCredit > 0 {
		r.useIndex()
	}
	if chosen.footprint && s.AssumeKVReuse && s.TrackActiveBlocks {
		r.held = newFootprint(n)
	}
	if s.TrackOutputBlocks {
		r.active = make([][]*Request, n)
	}
	return r, nil
}

// dispatch books q on worker: one active request, the prompt tokens beyond overlap blocks until the first token, and
// the prompt's blocks until q is done. A request that is booked elsewhere leaves there first.
func (r *Router) dispatch(q *Request, worker int, overlap int32) {
	r.unbook(q)
	q.booked, q.worker = true, int32(worker)
	l := &r.loads[worker]
	l.requests++
	if r.settings.TrackPrefillTokens {
		q.prefill = max(int64(q.Input)-int64(overlap)*r.blockSize, 0)
		l.prefill += q.prefill
	}
	switch {
	case r.held != nil:
		l.blocks += r.held.hold(worker, q.Path, q.PromptBlocks)
	case r.settings.TrackActiveBlocks:
		l.blocks += int64(q.PromptBlocks)
	}
	if r.active != nil {
		q.at = int32(len(r.active[worker]))
		r.active[worker] = append(r.active[worker], q)
	}
}

// FirstToken ends q's prefill load. It does nothing when q has none.
func (r *Router) FirstToken(q *Request) {
	if q.booked {
		r.loads[q.worker].prefill -= q.prefill
		q.prefill = 0
	}
}

// Done takes all of q's load from its worker, or takes q out of the queue, however q ended. It does nothing when q
// is in neither.
func (r *Router) Done(now time.Duration, q *Request) {
	if q.class != nil {
		r.queue.remove(q)
		r.forget(q)
	}
	r.unbook(q)
	if h := q.home; h != nil {
		q.home = nil
		h.active--
		h.used = now
	}
}

// unbook takes q's load from its worker.
func (r *Router) unbook(q *Request) {
	if !q.booked {
		return
	}
	r.FirstToken(q)
	l := &r.loads[q.worker]
	l.requests--
	switch {
	case r.held != nil:
		l.blocks -= r.held.release(int(q.worker), q.Path, q.PromptBlocks)
	case r.settings.TrackActiveBlocks:
		l.blocks -= int64(q.PromptBlocks)
	}
	if r.active != nil {
		list := r.active[q.worker]
		last := list[len(list)-1]
		list[q.at], last.at = last, q.at
		list[len(list)-1] = nil
		r.active[q.worker] = list[:len(list)-1]
	}
	q.booked = false
}

// blocks is the number of KV blocks that q's prompt fills or begins, at least 1.
func (r *Router) blocks(q *Request) int64 {
	return max((int64(q.Input)+r.blockSize-1)/r.blockSize, 1)
}
