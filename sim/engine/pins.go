package engine

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// pinnedFirst is taken from the rank of requests whose session has a pin.
const pinnedFirst = 1 << 62

// pins are the sessions whose cached blocks are kept from eviction for a time, as Continuum does while a session's tool
// runs (arXiv 2511.02230).
type pins struct {
	of     map[uint64]*pin
	leases leases
	blocks int // of all pins, shared ones once for each
}

// pin is what one session holds until its lease ends. While a request of the session waits it does not.
type pin struct {
	session uint64
	rank    int64 // of its requests
	leased  time.Duration
	until   time.Duration // leased, or Never
	order   int64
	blocks  int
	held    *kvcache.Pin
	heap    int
}

// leases is a heap of pins by the end of their lease, then by age.
type leases []*pin

func (h leases) Len() int { return len(h) }
func (h leases) Less(i, j int) bool {
	return h[i].until < h[j].until || h[i].until == h[j].until && h[i].order < h[j].order
}
func (h leases) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = i, j
}
func (h *leases) Push(x any) {
	p := x.(*pin)
	p.heap = len(*h)
	*h = append(*h, p)
}
func (h *leases) Pop() any {
	old := *h
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return p
}

// Pin keeps the cached blocks of the path's first tokens from eviction, until the time given, or where the engine is Ranked
// until the session's next request is admitted if that has come by then, or until running requests need the room. It is
// called between steps. A session has one pin. Those of the highest rank lose theirs first. It returns how many blocks it keeps.
func (e *Engine) Pin(now time.Duration, session uint64, rank int64, path []trace.Span, tokens int32, until time.Duration) int {
	pool, ok := e.cache.(*kvcache.Pool)
	if !ok || until <= now {
		return 0
	}
	e.look(now)
	e.unpin(session)
	held, blocks := pool.Pin(slices.Clone(path), tokens/int32(e.kv.BlockSize), e.style.room())
	if blocks > 0 {
		e.lease(session, rank, held, blocks, until)
	}
	return blocks
}

// lease keeps what is pinned for a session, which has no other pin, until its time is over.
func (e *Engine) lease(session uint64, rank int64, held *kvcache.Pin, blocks int, until time.Duration) {
	if e.pins.of == nil {
		e.pins.of = map[uint64]*pin{}
	}
	e.order++
	p := &pin{session: session, rank: rank, leased: until, until: until, order: e.order, blocks: blocks, held: held}
	e.pins.of[session] = p
	heap.Push(&e.pins.leases, p)
	e.pins.blocks += blocks
	e.Stats.Pinned++
}

// Pins calls f for each session that has a pin whose time is not over, with the number of blocks, in no order that means
// anything.
func (e *Engine) Pins(now time.Duration, f func(session uint64, blocks int)) {
	for _, p := range e.pins.leases {
		if p.until > now { // an idle engine still has the others
			f(p.session, p.blocks)
		}
	}
}

// Unpin ends a session's pin. It does nothing when there is none.
func (e *Engine) Unpin(now time.Duration, session uint64) {
	e.look(now)
	e.unpin(session)
}

func (e *Engine) unpin(session uint64) {
	p := e.pins.of[session]
	if p == nil {
		return
	}
	heap.Remove(&e.pins.leases, p.heap)
	delete(e.pins.of, session)
	e.pins.blocks -= p.blocks
	e.pool().Unpin(p.held)
	e.style.freed()
}

// await keeps a session's pin while a request of it waits, as Continuum does (arXiv 2511.02230, section 5.2; its preview's
// unpin_requests_regular), or lets the pin have its end again when the request is gone. It tells whether there is a pin. Where
// pinned sessions do not go first it keeps none longer: all that wait in the queue would be pinned, and little could run.
func (e *Engine) await(session uint64, waits bool) bool {
	p := e.pins.of[session]
	if p == nil || !e.Ranked {
		return p != nil
	}
	p.until = p.leased
	if waits {
		p.until = Never
	}
	heap.Fix(&e.pins.leases, p.heap)
	return true
}

// endLeases unpins what has had its time.
func (e *Engine) endLeases(now time.Duration) {
	for l := &e.pins.leases; len(*l) > 0 && (*l)[0].until <= now; {
		e.unpin((*l)[0].session)
	}
}

// makeRoom ends the pin of the highest rank, of equal ones the youngest, or where there is none lets a request surrender. It
// tells whether that has freed any blocks.
func (e *Engine) makeRoom() bool {
	var last *pin
	for _, p := range e.pins.leases {
		if last == nil || cmp.Or(cmp.Compare(p.rank, last.rank), cmp.Compare(p.order, last.order)) > 0 {
			last = p
		}
	}
	if last == nil {
		return e.surrender()
	}
	e.unpin(last.session)
	e.Stats.Unpinned++
	return true
}
