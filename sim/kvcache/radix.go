package kvcache

import (
	"container/heap"
	"fmt"

	"github.com/agentsim/agentsim/trace"
)

// Radix is the KV blocks ("pages") of one worker rank under the rules of SGLang 0.5 (sglang/srt/mem_cache:
// radix_cache.py, common.py). It is not safe for concurrent use.
//
//   - Tokens enter the radix tree when the step that computes them has ended: those of a prefill then, generated ones
//     when their request finishes. Until then they are the request's own, and what the tree has by then already is freed.
//   - A match splits the node in which it ends, and makes all nodes on its way the most recently used.
//   - Eviction takes whole leaves that nobody has locked, those of the lowest priority first and of these the least
//     recently used (evict_policy.py), and as many blocks as are wanted, not only those that lack. A node has the highest
//     priority of the requests whose tokens were entered through it.
//
// Invariants, checked by Radix.Check:
//   - fresh blocks + blocks of unlocked nodes + those of locked nodes + those that requests hold beside the tree = Blocks;
//   - a node is locked at least as often as any child;
//   - a node is in the heap of leaves exactly when it has neither children nor locks.
type Radix struct {
	Ledger

	nodes  map[place]*radixNode // by first block
	leaves leafHeap
	clock  int64 // orders accesses
	idle   []*radixNode
}

// place is block number at of a node of the prefix tree, which tells all blocks before it.
type place struct {
	key trace.Key
	at  int32
}

// radixNode is an edge of the radix tree: blocks [from, to) of the paths through it.
type radixNode struct {
	spans    []trace.Span
	from, to int32
	parent   *radixNode // nil below the root
	children int
	locks    int32
	priority int32
	owner    Owner
	access   int64
	heap     int // index in the heap of leaves, -1 outside
}

// NewRadix returns an empty tree. It fails when a size is out of range.
func NewRadix(o Options) (*Radix, error) {
	l, err := newLedger(o)
	if err != nil {
		return nil, err
	}
	return &Radix{Ledger: l, nodes: map[place]*radixNode{}}, nil
}

// Match finds how many leading blocks of the table's path are cached, at most limit. A Lock that follows at once refers
// to them.
func (r *Radix) Match(t *Table, limit int32) int32 {
	if r.PrefixCaching {
		t.hashed, t.last = r.walk(t.Path, limit)
	}
	return t.hashed
}

// Lock refers to the blocks that were matched.
func (r *Radix) Lock(t *Table) {
	t.blocks = t.hashed
	r.lock(t, t.last, nil)
}

// Unlock gives up what Lock referred to, and empties the table.
func (r *Radix) Unlock(t *Table) {
	r.unlock(t)
	t.blocks, t.extra, t.hashed, t.last, t.decoding = 0, 0, 0, nil, false
}

// Evict makes room when fewer than want blocks are fresh: it evicts leaves until they had want blocks together, or none
// is left.
func (r *Radix) Evict(want int) {
	if r.fresh >= want {
		return
	}
	for got := 0; got < want && len(r.leaves) > 0; {
		n := heap.Pop(&r.leaves).(*radixNode)
		size := n.size()
		got += size
		r.kept -= size
		r.fresh += size
		r.Evicted += int64(size)
		r.count(n.owner, idle, -int32(size))
		r.noteNode(n, true)
		delete(r.nodes, n.place())
		if p := n.parent; p != nil {
			p.children--
			r.settle(p)
		}
		n.parent = nil
		r.idle = append(r.idle, n)
	}
}

// Flush drops all blocks that nobody refers to. They are not taken for other tokens, so they do not count as evicted.
func (r *Radix) Flush() {
	evicted := r.Evicted
	r.Evict(r.Blocks + 1)
	r.Evicted = evicted
}

// Take takes n fresh blocks.
func (r *Radix) Take(n int) { r.fresh -= n }

// Grow gives the table fresh blocks, to hold the given tokens and extra blocks for state that does not grow.
func (r *Radix) Grow(t *Table, tokens, extra int32) {
	blocks := r.blocksFor(tokens)
	more := blocks - t.blocks + extra - t.extra
	r.Take(int(more))
	r.count(t.Owner, Running, more)
	t.blocks, t.extra = blocks, extra
}

// Insert enters the full blocks of the table's first tokens into the tree (cache_unfinished_req). Where the tree has
// them by now, the table's own are freed.
func (r *Radix) Insert(t *Table, tokens int32) {
	if !r.PrefixCaching {
		return
	}
	full := r.fullBlocks(t, tokens)
	at, last := r.insert(t, full)
	r.fresh += int(at - t.hashed)
	r.count(t.Owner, Running, t.hashed-full)
	r.lock(t, last, t.last)
	t.hashed, t.last = full, last
}

// StartDecode lets the table grow by one token a step: in step Step+1 it holds tokens+1. The caller takes the blocks
// that this needs with Take.
func (r *Radix) StartDecode(t *Table, tokens int32) {
	t.decoding, t.base = true, int64(tokens)-r.Step
	r.beginGrowth(t)
}

// Finish ends a request that has computed the given tokens: it enters their full blocks into the tree and gives up all
// (cache_finished_req).
func (r *Radix) Finish(t *Table, tokens int32) {
	r.giveUp(t)
	if r.PrefixCaching {
		full := r.fullBlocks(t, tokens)
		at, _ := r.insert(t, full)
		r.fresh -= int(full - at)
	}
	r.Unlock(t)
}

// Release takes all blocks from a request; what it has beside the tree is lost.
func (r *Radix) Release(t *Table) {
	r.giveUp(t)
	r.Unlock(t)
}

// giveUp frees what the table holds beside the tree.
func (r *Radix) giveUp(t *Table) {
	r.CountGrowth(t)
	own := r.Held(t) - int(t.hashed)
	r.fresh += own
	r.count(t.Owner, Running, -int32(own))
}

// Warm makes the first blocks blocks of the path resident, as if a request of the owner that computed them had just ended,
// and returns how many it added. It adds what fits.
func (r *Radix) Warm(path []trace.Span, owner Owner, blocks int32) int {
	if !r.PrefixCaching {
		return 0
	}
	t := Table{Path: path, Owner: owner}
	hits := r.Match(&t, blocks)
	r.Lock(&t)
	added := max(0, min(int(blocks-hits), r.Free()))
	r.Evict(added)
	tokens := (hits + int32(added)) * int32(r.BlockSize)
	r.Grow(&t, tokens, 0)
	r.Finish(&t, tokens)
	return added
}

// fullBlocks is the number of full blocks of the table's first tokens, as far as its path names them.
func (r *Radix) fullBlocks(t *Table, tokens int32) int32 {
	if len(t.Path) == 0 {
		return 0
	}
	return min(tokens/int32(r.BlockSize), t.Path[len(t.Path)-1].To)
}

// walk follows a path from the root as far as the tree goes, at most to block limit. It returns the block it came to,
// and the node that ends there.
func (r *Radix) walk(path []trace.Span, limit int32) (at int32, last *radixNode) {
	r.clock++
	now := r.clock
	for i := 0; i < len(path) && at < limit; {
		n := r.nodes[place{path[i].Key, at}]
		if n == nil {
			break
		}
		r.touch(n, now)
		if at = n.common(path[i:], limit); at < n.to {
			return at, r.split(n, at)
		}
		for last = n; i < len(path) && path[i].To <= at; {
			i++
		}
	}
	return at, last
}

// common returns the block up to which the node agrees with a path that has its first block in its first span.
func (n *radixNode) common(path []trace.Span, limit int32) int32 {
	at := n.from
	for i, s := range n.spans {
		if i == len(path) || path[i].Key != s.Key {
			break
		}
		if at = min(s.To, path[i].To, limit); at < s.To {
			break
		}
	}
	return at
}

// insert adds blocks to the tree that the path has before block to, and returns the block before which the tree had
// them, and the node that ends at to.
func (r *Radix) insert(t *Table, to int32) (at int32, last *radixNode) {
	at, last = r.walk(t.Path, to)
	for n := last; n != nil && n.priority < t.Priority; n = n.parent {
		n.priority = t.Priority
		r.touch(n, n.access)
	}
	if at == to {
		return at, last
	}
	n := r.newNode()
	n.from, n.to, n.parent, n.priority, n.owner = at, to, last, t.Priority, t.Owner
	for _, s := range t.Path {
		if s.From = max(s.From, at); s.From >= to {
			break
		}
		if s.To = min(s.To, to); s.From < s.To {
			n.spans = append(n.spans, s)
		}
	}
	r.nodes[n.place()] = n
	if last != nil {
		last.children++
		r.settle(last)
	}
	r.kept += n.size()
	r.count(n.owner, idle, int32(n.size()))
	r.settle(n)
	r.noteNode(n, false)
	return at, n
}

// split cuts a node at a block and returns the upper part, which is new.
func (r *Radix) split(n *radixNode, at int32) *radixNode {
	upper := r.newNode()
	upper.from, upper.to, upper.parent, upper.children, upper.locks, upper.priority, upper.owner = n.from, at, n.parent, 1, n.locks, n.priority, n.owner
	r.nodes[n.place()] = upper
	i := 0
	for ; n.spans[i].To <= at; i++ {
		upper.spans = append(upper.spans, n.spans[i])
	}
	if s := n.spans[i]; s.From < at {
		s.To = at
		upper.spans = append(upper.spans, s)
		n.spans[i].From = at
	}
	n.spans = append(n.spans[:0], n.spans[i:]...)
	n.from, n.parent = at, upper
	r.nodes[n.place()] = n
	return upper
}

// newNode returns a node that was accessed just now.
func (r *Radix) newNode() *radixNode {
	var n *radixNode
	if k := len(r.idle); k > 0 {
		n, r.idle = r.idle[k-1], r.idle[:k-1]
	} else {
		n = &radixNode{}
	}
	r.clock++
	*n = radixNode{spans: n.spans[:0], access: r.clock, heap: -1}
	return n
}

func (n *radixNode) size() int    { return int(n.to - n.from) }
func (n *radixNode) place() place { return place{n.spans[0].Key, n.from} }

// lock locks for t the nodes from n up to, and without, a node that it has locked already.
func (r *Radix) lock(t *Table, n, locked *radixNode) {
	for ; n != locked; n = n.parent {
		if n.locks++; n.locks == 1 {
			r.kept -= n.size()
			r.pass(t, n, idle, Running)
			r.settle(n)
		}
	}
}

// unlock gives up all nodes that t has locked.
func (r *Radix) unlock(t *Table) {
	for n := t.last; n != nil; n = n.parent {
		if n.locks--; n.locks == 0 {
			r.kept += n.size()
			r.pass(t, n, Running, idle)
			r.settle(n)
		}
	}
}

// pass accounts for a node that t has taken up or let go of.
func (r *Radix) pass(t *Table, n *radixNode, from, to State) {
	r.count(n.owner, from, -int32(n.size()))
	n.owner = r.Accounts.heir(n.owner, t)
	r.count(n.owner, to, int32(n.size()))
}

// settle puts a node into the heap of leaves, or takes it out, as its children and locks demand.
func (r *Radix) settle(n *radixNode) {
	switch leaf := n.children == 0 && n.locks == 0; {
	case leaf && n.heap < 0:
		heap.Push(&r.leaves, n)
	case !leaf && n.heap >= 0:
		heap.Remove(&r.leaves, n.heap)
	}
}

func (r *Radix) touch(n *radixNode, now int64) {
	if n.access = now; n.heap >= 0 {
		heap.Fix(&r.leaves, n.heap)
	}
}

func (r *Radix) noteNode(n *radixNode, removed bool) {
	for _, s := range n.spans {
		r.note(s.Key, s.From, s.To, removed)
	}
}

// leafHeap orders leaves by priority, then by their last access. No two have the same: those of one walk are ancestors of
// each other.
type leafHeap []*radixNode

func (h leafHeap) Len() int { return len(h) }
func (h leafHeap) Less(i, j int) bool {
	return h[i].priority < h[j].priority || h[i].priority == h[j].priority && h[i].access < h[j].access
}
func (h leafHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heap, h[j].heap = i, j
}
func (h *leafHeap) Push(x any) {
	n := x.(*radixNode)
	n.heap = len(*h)
	*h = append(*h, n)
}
func (h *leafHeap) Pop() any {
	old := *h
	n := old[len(old)-1]
	n.heap = -1
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return n
}

// Check verifies the tree's invariants and returns the first that is broken.
func (r *Radix) Check() error {
	kept, leaves, held := 0, 0, holders{}
	children := map[*radixNode]int{}
	for at, n := range r.nodes {
		if at != n.place() || n.to <= n.from || n.parent != nil && (n.parent.to != n.from || n.parent.locks < n.locks) {
			return fmt.Errorf("kv cache: bad radix node of blocks [%d, %d) with %d locks", n.from, n.to, n.locks)
		}
		children[n.parent]++
		if n.locks == 0 {
			kept += n.size()
			held.add(n.owner, idle, int32(n.size()))
		}
	}
	for _, n := range r.nodes {
		leaf := n.locks == 0 && children[n] == 0
		if leaf {
			leaves++
		}
		if n.children != children[n] || leaf != (n.heap >= 0) || leaf && r.leaves[n.heap] != n {
			return fmt.Errorf("kv cache: radix node of blocks [%d, %d) has %d children, not %d, or is misplaced among the leaves",
				n.from, n.to, children[n], n.children)
		}
	}
	if kept != r.kept || leaves != len(r.leaves) {
		return fmt.Errorf("kv cache: %d evictable blocks and %d leaves, but %d and %d are accounted", kept, leaves, r.kept, len(r.leaves))
	}
	if r.fresh < 0 || r.Free() > r.Blocks {
		return fmt.Errorf("kv cache: %d fresh and %d evictable blocks of %d", r.fresh, r.kept, r.Blocks)
	}
	return r.Accounts.compare(held)
}
