package engine

import (
	"time"

	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// Request is one LLM call inside an engine. The caller sets the fields up to Seed; the other exported fields are
// results. A request belongs to one engine at a time.
type Request struct {
	// ID is the caller's. Session tells whose pin it takes over.
	ID      int32
	Session uint64
	// Owner is whom its KV blocks count for in the engine's Accounts.
	Owner kvcache.Owner
	// Group is that of Generated; 0 for requests that are not counted.
	Group int32
	// Path is where prompt and output lie in the prefix tree, in blocks of the engine's size.
	Path []trace.Span
	// Input and Output are token counts.
	Input, Output int32
	// MaxOutput is the most output tokens that the client allows (max_tokens): what SGLang and TensorRT-LLM reserve
	// KV for. Less than Output, or more than fits beside the prompt, counts as Output.
	MaxOutput int32
	// History is the number of leading tokens that were computed before the run began: what a session had when the
	// capture of it began. They become resident when the request is first tried.
	History int32
	// Rank orders waiting requests where the engine is Ranked: the lowest first. vLLM's priority is a rank.
	Rank int64
	// Priority is that of the tokens it leaves in SGLang's cache: those of the lowest are evicted first.
	Priority int32
	// Seed is that of the draws by which the request's draft tokens are accepted.
	Seed uint64

	// Admitted is when the request was first scheduled.
	Admitted time.Duration
	// Warmed is the tokens of History that were not resident already.
	Warmed int32
	// Brought is the part of Hit that came from Source. Hit is the prompt tokens found cached at first admission, Computed the prompt and output tokens computed in
	// prefill, ReadmitHit of Readmit tokens those found cached when it came back after preemptions.
	Hit, Brought, Computed, ReadmitHit, Readmit int32
	// Recomputed counts tokens that had been computed before, by the cause of their loss.
	Recomputed Recomputed
	// Preemptions counts how often the request lost its blocks.
	Preemptions int32

	table   kvcache.Table
	state   state
	arrival int64 // number of its arrival
	// target is the number of tokens to prefill: the prompt, and after a preemption what had been generated.
	target int32
	limit  int32 // MaxOutput, within its bounds
	// computed is the number of tokens in the KV cache while prefilling, chunk those of the step in flight included;
	// high the most there ever were.
	computed, chunk, high int32
	// loaded is the tokens that the request holds while it waits, brought for it, of which fetched were not cached. With
	// unloadable a load has failed since it was last preempted. Aside numbers when it was set aside first since then.
	loaded, fetched int32
	unloadable      bool
	aside           int64
	guest           *guest // of a load without a request
	// generated is the number of output tokens when prefill ended.
	generated int32
	// again is the tokens still to prefill that were computed before.
	again Recomputed
	// base + step is the number of tokens computed after a decode step; last is the step of its last token.
	base, last int64
	// lastToken is when prefill ended, or the latest token came out before a preemption.
	lastToken  time.Duration
	heap       int
	prev, next *Request
}

// allTokens is the most tokens that the request will have in the KV cache: that of the last one is never computed.
func (r *Request) allTokens() int32 { return r.Input + max(r.limit-1, 0) }

// Left tells whether the request is in no engine: it has finished, or it was cancelled and the step it was in has ended.
func (r *Request) Left() bool { return r.state == idle }

// Recomputed counts tokens computed again, by why their KV was gone.
type Recomputed struct {
	Preemption int32 // the request itself was preempted
	Eviction   int32 // this worker had evicted them
	Migration  int32 // another worker had computed them
}

// move moves at most n tokens to another count and returns how many.
func (c *Recomputed) move(n int32, to *Recomputed) int32 {
	left := n
	for _, cause := range [][2]*int32{{&c.Preemption, &to.Preemption}, {&c.Eviction, &to.Eviction}, {&c.Migration, &to.Migration}} {
		k := min(*cause[0], left)
		*cause[0] -= k
		*cause[1] += k
		left -= k
	}
	return n - left
}

// Lost is the prompt tokens, computed already or to be computed, that a worker had and were gone when the request was
// first admitted.
func (r *Request) Lost() Recomputed {
	return Recomputed{Eviction: r.Recomputed.Eviction + r.again.Eviction, Migration: r.Recomputed.Migration + r.again.Migration}
}

type state uint8

const (
	idle   state = iota
	coming       // to wait from the next step boundary on
	waiting
	loading // its KV is on its way from outside
	prefilling
	decoding
	stalled // decoding, but not in the step in flight
)

// list is a queue of requests in order.
type list struct {
	head, tail *Request
	size       int
}

func (l *list) pushBack(r *Request) {
	r.prev, r.next = l.tail, nil
	if l.tail == nil {
		l.head = r
	} else {
		l.tail.next = r
	}
	l.tail = r
	l.size++
}

// insert puts r before next, which is in the list.
func (l *list) insert(r, next *Request) {
	r.prev, r.next = next.prev, next
	if next.prev == nil {
		l.head = r
	} else {
		next.prev.next = r
	}
	next.prev = r
	l.size++
}

func (l *list) remove(r *Request) {
	if r.prev == nil {
		l.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	l.size--
}

// finishHeap orders decoding requests by the step of their last token, then by running order.
type finishHeap []*Request

func (h finishHeap) Len() int { return len(h) }
func (h finishHeap) Less(i, j int) bool {
	if h[i].last != h[j].last {
		return h[i].last < h[j].last
	}
	return h[i].table.Order < h[j].table.Order
}
func (h finishHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = i, j
}
func (h *finishHeap) Push(x any) {
	r := x.(*Request)
	r.heap = len(*h)
	*h = append(*h, r)
}
func (h *finishHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}
