package kvcache

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// blockPool is the slow and obvious twin of Pool: every block is one entry, the free queue is a list of block numbers
// and the prefix cache a map from what a block holds to the blocks that hold it, oldest first (vLLM 0.19,
// vllm/v1/core/block_pool.py and single_type_kv_cache_manager.py).
type blockPool struct {
	Options
	blocks []block
	// queues[0] holds the blocks that hold nothing and are taken first; the others are the free queues of the classes.
	queues  [1 + classes][]int
	cached  map[slot][]int
	evicted int64
	held    []Holding // by owner
	states  []State
}

// block is one KV block.
type block struct {
	refs   int
	pins   int // of refs
	class  Class
	hashed bool // it is in the cache, under holds
	holds  slot
	owner  Owner
}

// slot is a block's worth of tokens: block number at of a tree node. It stands for vLLM's block hash.
type slot struct {
	key trace.Key
	at  int32
}

// blockTable is the blocks of one request.
type blockTable struct {
	path   []trace.Span
	class  Class
	ids    []int // by position
	extra  []int
	hashed int // leading blocks that are in the cache
	tokens int32
	owner  Owner
	pin    bool
}

func newBlockPool(o Options) *blockPool {
	p := &blockPool{Options: o, blocks: make([]block, o.Blocks), cached: map[slot][]int{}}
	for i := range p.blocks {
		p.queues[0] = append(p.queues[0], i)
	}
	return p
}

// slotAt is the slot of block number at of a path; false behind its end.
func slotAt(path []trace.Span, at int32) (slot, bool) {
	for _, s := range path {
		if s.From <= at && at < s.To {
			return slot{s.Key, at}, true
		}
	}
	return slot{}, false
}

func (p *blockPool) free() int {
	total := 0
	for _, q := range p.queues {
		total += len(q)
	}
	return total
}

// lookup counts the leading blocks of the path that are cached, at most limit (get_computed_blocks).
func (p *blockPool) lookup(path []trace.Span, limit int32) int32 {
	for i := range limit {
		if s, ok := slotAt(path, i); !ok || len(p.cached[s]) == 0 {
			return i
		}
	}
	return limit
}

// claim counts the leading cached blocks of the path that nobody refers to, each once.
func (p *blockPool) claim(path []trace.Span, claimed map[slot]bool) int {
	count := 0
	for i := range p.lookup(path, path[len(path)-1].To) {
		if s, _ := slotAt(path, i); !claimed[s] && p.blocks[p.cached[s][0]].refs == 0 {
			claimed[s] = true
			count++
		}
	}
	return count
}

// pass lets time pass: every block counts for its owner, but for those that hold nothing.
func (p *blockPool) pass(d time.Duration) {
	for i := range p.blocks {
		b := &p.blocks[i]
		s := p.states[b.owner]
		switch {
		case b.refs > b.pins:
			s = Running
		case b.refs > 0:
			s = Pinned
		case !b.hashed:
			continue
		}
		p.held[b.owner][s] = p.held[b.owner][s].Plus(1, d)
	}
}

// take pops the head of the free queue for a request; what it held leaves the cache (get_new_blocks).
func (p *blockPool) take(t *blockTable) int {
	for c := range p.queues {
		if len(p.queues[c]) == 0 {
			continue
		}
		id := p.queues[c][0]
		p.queues[c] = p.queues[c][1:]
		if p.blocks[id].hashed {
			p.evicted++
			p.uncache(id)
		}
		p.blocks[id].refs, p.blocks[id].owner = 1, t.owner
		return id
	}
	panic("no free block")
}

func (p *blockPool) uncache(id int) {
	b := &p.blocks[id]
	same := p.cached[b.holds]
	same = slices.Delete(slices.Clone(same), slices.Index(same, id), slices.Index(same, id)+1)
	if p.cached[b.holds] = same; len(same) == 0 {
		delete(p.cached, b.holds)
	}
	b.hashed = false
}

// unqueue takes a block that nobody refers to out of the free queue.
func (p *blockPool) unqueue(id int) {
	for c := range p.queues {
		if i := slices.Index(p.queues[c], id); i >= 0 {
			p.queues[c] = slices.Delete(slices.Clone(p.queues[c]), i, i+1)
		}
	}
}

// hold refers to the first hits blocks of the path: of several copies, to the oldest (touch).
func (p *blockPool) hold(t *blockTable, hits int32) {
	for i := range hits {
		s, _ := slotAt(t.path, i)
		id := p.cached[s][0]
		if p.blocks[id].refs == 0 {
			p.unqueue(id)
		}
		p.refer(id, t, 1)
		t.ids = append(t.ids, id)
	}
	t.hashed = int(hits)
}

// refer adds a reference to a block or takes one away. A block whose owner has ended passes to who takes it from the free
// queue or puts it there.
func (p *blockPool) refer(id int, t *blockTable, by int) {
	b := &p.blocks[id]
	ended := p.states[b.owner] == Ended || p.states[b.owner] == EndedSubagent
	if (b.refs == 0 || b.refs+by == 0) && ended && t.owner != 0 {
		b.owner = t.owner
	}
	if b.refs += by; t.pin {
		b.pins += by
	}
}

// admit is allocate_slots for a request without blocks.
func (p *blockPool) admit(t *blockTable, hits, tokens, reserve, extra int32) bool {
	if p.blocksFor(reserve)-int(hits)+p.idle(t.path, hits)+int(extra) > p.free() {
		return false
	}
	p.hold(t, hits)
	for range extra {
		t.extra = append(t.extra, p.take(t))
	}
	p.fill(t, tokens)
	return true
}

// idle counts those of the first hits blocks of a path that nobody refers to.
func (p *blockPool) idle(path []trace.Span, hits int32) (idle int) {
	for i := range hits {
		s, _ := slotAt(path, i)
		if p.blocks[p.cached[s][0]].refs == 0 {
			idle++
		}
	}
	return idle
}

// grow is allocate_slots for a request that has blocks.
func (p *blockPool) grow(t *blockTable, tokens int32) bool {
	if p.blocksFor(tokens)-len(t.ids) > p.free() {
		return false
	}
	p.fill(t, tokens)
	return true
}

func (p *blockPool) blocksFor(tokens int32) int {
	return (int(tokens) + p.BlockSize - 1) / p.BlockSize
}

// fill takes blocks up to tokens and caches those that are full (cache_full_blocks).
func (p *blockPool) fill(t *blockTable, tokens int32) {
	for len(t.ids) < p.blocksFor(tokens) {
		t.ids = append(t.ids, p.take(t))
	}
	t.tokens = tokens
	for p.PrefixCaching && t.hashed < int(tokens)/p.BlockSize {
		s, ok := slotAt(t.path, int32(t.hashed))
		if !ok {
			return
		}
		id := t.ids[t.hashed]
		b := &p.blocks[id]
		b.hashed, b.holds, b.class = true, s, t.class
		p.cached[s] = append(slices.Clone(p.cached[s]), id)
		t.hashed++
	}
}

// release frees the request's blocks, the last first (free).
func (p *blockPool) release(t *blockTable) {
	for _, id := range t.extra {
		p.blocks[id].refs = 0
		p.queues[0] = append([]int{id}, p.queues[0]...)
	}
	for _, id := range slices.Backward(t.ids) {
		b := &p.blocks[id]
		if p.refer(id, t, -1); b.refs > 0 {
			continue
		}
		switch {
		case b.hashed:
			p.queues[1+b.class] = append(p.queues[1+b.class], id)
		case p.FreeTailFirst || !p.PrefixCaching:
			p.queues[0] = append([]int{id}, p.queues[0]...)
		default:
			p.queues[1+Normal] = append(p.queues[1+Normal], id)
		}
	}
	t.ids, t.extra, t.hashed, t.tokens = nil, nil, 0, 0
}

// warm adds cached blocks as a request would that held the first blocks of the path and ended.
func (p *blockPool) warm(path []trace.Span, owner Owner, blocks int32) int {
	hits := p.lookup(path, blocks)
	for p.PrefixCaching && blocks > hits {
		t := &blockTable{path: path, class: Normal, owner: owner}
		if p.admit(t, hits, blocks*int32(p.BlockSize), blocks*int32(p.BlockSize), 0) {
			p.release(t)
			return int(blocks - hits)
		}
		blocks--
	}
	return 0
}

// drop removes all copies of the span's blocks, or none where somebody refers to one.
func (p *blockPool) drop(s trace.Span) (dropped, left int) {
	for at := s.From; at < s.To; at++ {
		ids := p.cached[slot{s.Key, at}]
		held := slices.ContainsFunc(ids, func(id int) bool { return p.blocks[id].refs > 0 })
		for i, id := range slices.Backward(ids) {
			if p.blocks[id].refs > 0 || i == 0 && held {
				continue // the copy that is hit stays as long as another is referred to
			}
			p.uncache(id)
			p.unqueue(id)
			p.queues[0] = append(p.queues[0], id)
			dropped++
		}
		left += len(p.cached[slot{s.Key, at}])
	}
	return dropped, left
}

// setClass changes the class of the blocks that would be hit.
func (p *blockPool) setClass(s trace.Span, class Class) {
	for at := s.To - 1; at >= s.From; at-- {
		ids := p.cached[slot{s.Key, at}]
		if len(ids) == 0 || p.blocks[ids[0]].class == class {
			continue
		}
		b := &p.blocks[ids[0]]
		if b.class = class; b.refs == 0 {
			p.unqueue(ids[0])
			p.queues[1+class] = append(p.queues[1+class], ids[0])
		}
	}
}

// referenced counts cached blocks that somebody refers to.
func (p *blockPool) referenced() int {
	total := 0
	for _, ids := range p.cached {
		for _, id := range ids {
			if p.blocks[id].refs > 0 {
				total++
			}
		}
	}
	return total
}

// resident is the set of what is cached.
func (p *blockPool) resident() map[slot]bool {
	set := map[slot]bool{}
	for s := range maps.Keys(p.cached) {
		set[s] = true
	}
	return set
}

// spans is what is cached, as spans without neighbours.
func (p *blockPool) spans() []trace.Span {
	slots := slices.SortedFunc(maps.Keys(p.cached), func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at))
	})
	var spans []trace.Span
	for _, s := range slots {
		if k := len(spans) - 1; k >= 0 && spans[k].Key == s.key && spans[k].To == s.at {
			spans[k].To++
			continue
		}
		spans = append(spans, trace.Span{Key: s.key, From: s.at, To: s.at + 1})
	}
	return spans
}
