package engine

import (
	"time"

	"github.com/agentsim/agentsim/models"
)

// adder forms a batch of prompts (PrefillAdder of schedule_policy.py). Its budgets are in tokens.
type adder struct {
	*sglang
	batch models.Batch
	added []*Request
	// reserved is what of the free blocks is spoken for: output to come of running requests, and all of those added.
	reserved       float64
	state          int // blocks for what does not grow
	input, chunk   int // left of MaxPrefillTokens and MaxBatchedTokens
	noRoom, closed bool
}

// prefill forms a batch of prompts; an empty one when there is none to form.
func (g *sglang) prefill(now time.Duration) models.Batch {
	if g.partial == nil && !g.admits() {
		return models.Batch{}
	}
	slots := g.MaxSeqs - len(g.finish) - g.left
	if g.partial == nil && slots <= 0 {
		g.full = true
		return models.Batch{}
	}
	if g.Options.SGLang.LongestPrefix && g.kv.PrefixCaching {
		g.queue.sort(g)
	}
	a := &g.adder
	*a = adder{sglang: g, added: a.added[:0], reserved: float64(g.toCome()) * g.newTokenRatio(),
		input: g.Options.SGLang.MaxPrefillTokens, chunk: g.MaxBatchedTokens}
	if g.partial != nil {
		a.goOn(g.partial)
	}
	for r := g.waiting.head; r != nil && !a.closed; {
		if len(a.added) >= slots {
			g.full = true
			break
		}
		next := r.next
		a.add(r, now)
		r = next
	}
	g.full = g.full || a.noRoom
	a.allocate()
	return a.batch
}

// room is the number of tokens that free blocks hold.
func (a *adder) room() int { return a.kv.Free() * a.kv.BlockSize }

// pages rounds tokens up to whole blocks.
func (a *adder) pages(tokens int) int { return int(a.blocksFor(int32(tokens))) * a.kv.BlockSize }

// goOn adds the next chunk of the request that is being prefilled in chunks (add_chunked_req).
func (a *adder) goOn(r *Request) {
	most := min(a.chunk, int(float64(a.room())-a.reserved))
	if most <= 0 { // it is added come what may
		most = a.chunk
	}
	n := min(int(r.target-r.computed), most)
	output := 0
	if n == int(r.target-r.computed) {
		output = min(int(r.limit-r.generated), clipNewTokens)
	}
	a.take(r, n, output)
}

// add admits a waiting request, or its first chunk, or closes the batch (add_one_req).
func (a *adder) add(r *Request, now time.Duration) {
	size := a.kv.BlockSize
	limit := (r.target - 1) / int32(size) // the last token is always computed
	a.warm(r)
	hits := a.tree.Match(&r.table, limit)
	n := int(r.target) - int(hits)*size
	output := min(int(r.limit-r.generated), clipNewTokens)
	a.tree.Lock(&r.table)
	if float64(n+output+(1+int(a.StateBlocks))*size) >= float64(a.room())-a.reserved {
		a.noRoom, a.closed = true, true
	} else if a.pages(n) >= a.input && len(a.added) > 0 {
		a.closed = true
	} else if a.pages(n) > a.chunk {
		n, output = a.chunk/size*size, 0
		a.closed = n == 0
	}
	if a.closed {
		a.tree.Unlock(&r.table)
		return
	}
	r.computed = hits * int32(size)
	cached := hits
	if hits == limit { // that the last tokens are computed again is no loss
		cached = r.target / int32(size)
	}
	a.begin(r, now, cached)
	a.state += int(a.StateBlocks)
	a.reserved += float64(int(a.StateBlocks) * size)
	a.take(r, n, output)
	a.noRoom = float64(a.room()) <= a.reserved
	a.closed = a.noRoom || a.input <= 0 || a.chunk <= 0
}

// take puts n tokens of a request into the batch and charges the budgets (_update_prefill_budget).
func (a *adder) take(r *Request, n, output int) {
	a.added = append(a.added, r)
	a.addChunk(&a.batch, r, int32(n))
	n = a.pages(n)
	a.reserved += float64(n + output + a.kv.BlockSize)
	a.input -= n
	a.chunk -= n
}

// allocate gives the requests of the batch their blocks. Like SGLang it evicts all that the batch needs when less is
// fresh, with pages of several tokens one more for each request (alloc_paged_token_slots_extend).
func (a *adder) allocate() {
	want, size := a.batch.PrefillTokens, a.kv.BlockSize
	if size > 1 {
		want = (want + (len(a.added)+1)*size - 1) / size
	}
	a.tree.Evict(want + a.state)
	for _, r := range a.added {
		a.tree.Grow(&r.table, r.computed, a.StateBlocks)
	}
}
