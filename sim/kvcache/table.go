package kvcache

import (
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// Table is the blocks that one request refers to. The zero value with a Path refers to none.
type Table struct {
	// Path is where the request's tokens lie in the prefix tree, prompt and output.
	Path []trace.Span
	// Class is the eviction class of the blocks that the request adds.
	Class Class
	// Priority is that of the request, for a Radix.
	Priority int32
	// Order ranks requests that fill a block in the same step: vLLM's running order.
	Order int64
	// Owner is whom its blocks count for in Accounts.
	Owner Owner

	blocks int32      // held, extra blocks not counted
	extra  int32      // held for state that does not grow, such as window layers
	hashed int32      // leading blocks that are in the prefix cache
	last   *radixNode // of a Radix: the node in which these end
	span   int        // index in Path of the span that holds block number hashed
	spares []spareRange
	// A decoding request holds tokens base+Step. Its growth is noted only when somebody looks.
	decoding bool
	base     int64
	pin      bool      // of a Pin
	started  BlockTime // Ledger.started when growth was last counted
}

// spareRange is blocks of a table for which the cache had others when they were filled.
type spareRange struct {
	key      trace.Key
	from, to int32
	copy     int64
}

// Admit gives a request that holds nothing its first blocks: a reference to the hits leading cached blocks, new ones
// up to tokens, and extra blocks for state that does not grow. It refuses, and changes nothing, when reserve blocks, of
// which the request's hits are some, would not fit now.
func (p *Pool) Admit(t *Table, hits, tokens, reserve, extra int32) bool {
	if !p.Reserve(t, hits, tokens, reserve, extra) {
		return false
	}
	p.Fill(t, tokens)
	return true
}

// Reserve is Admit for tokens that are still to come: nobody can hit their blocks before Fill.
func (p *Pool) Reserve(t *Table, hits, tokens, reserve, extra int32) bool {
	need := reserve - hits + extra + p.idleHits(t.Path, hits)
	if int(need) > p.Free() {
		return false
	}
	p.hold(t, hits)
	t.extra = extra
	fresh := p.blocksFor(tokens) - hits
	p.Take(int(fresh + extra))
	p.count(t.Owner, Running, fresh+extra)
	t.blocks = hits + fresh
	return true
}

// Fill enters those of the table's blocks into the prefix cache that are full with its first tokens.
func (p *Pool) Fill(t *Table, tokens int32) { p.register(t, tokens/int32(p.BlockSize)) }

// idleHits counts those of the first hits blocks of the path that are in a queue: taking them uses up free blocks.
func (p *Pool) idleHits(path []trace.Span, hits int32) int32 {
	idle := int32(0)
	for i := range path {
		s := &path[i]
		if s.From >= hits {
			break
		}
		for _, r := range p.nodes[s.Key].runs { // another path may go on where this one leaves the node
			if r.refs == 0 {
				idle += max(0, min(r.to, s.To, hits)-max(r.from, s.From))
			}
		}
	}
	return idle
}

// hold refers to the first hits blocks of the table's path.
func (p *Pool) hold(t *Table, hits int32) {
	for i := range t.Path {
		s := &t.Path[i]
		if s.From >= hits {
			break
		}
		p.kept -= p.refer(t, p.nodes[s.Key], s.From, min(s.To, hits))
		t.span = i
	}
	t.hashed, t.blocks = hits, hits
}

// Grow gives the table blocks up to tokens and enters those that are full into the prefix cache. It refuses, and
// changes nothing, when they do not fit.
func (p *Pool) Grow(t *Table, tokens int32) bool { return p.GrowAhead(t, tokens, tokens) }

// GrowAhead is Grow with blocks for slots tokens: those beyond tokens may not stand, so nobody can hit them.
func (p *Pool) GrowAhead(t *Table, tokens, slots int32) bool {
	need := int(p.blocksFor(slots) - t.blocks)
	if need > p.Free() {
		return false
	}
	if need > 0 {
		p.Take(need)
		p.count(t.Owner, Running, int32(need))
		t.blocks += int32(need)
	}
	p.register(t, tokens/int32(p.BlockSize))
	return true
}

// register enters the table's blocks before block number full into the prefix cache. Where the cache has blocks of
// these tokens already, the table's own are spare.
func (p *Pool) register(t *Table, full int32) {
	if !p.PrefixCaching {
		return
	}
	for t.hashed < full && t.span < len(t.Path) {
		s := &t.Path[t.span]
		if t.hashed >= s.To {
			t.span++
			continue
		}
		n := p.node(s.Key)
		if len(n.writers) > 0 {
			p.sync(n) // what decodes have filled so far came first
		}
		to := min(full, s.To)
		p.enter(t, n, t.hashed, to)
		t.hashed = to
	}
}

// enter adds the table's blocks [from, to) to a node.
func (p *Pool) enter(t *Table, n *node, from, to int32) {
	i := len(n.runs)
	for i > 0 && n.runs[i-1].from >= from {
		i--
	}
	if i > 0 && n.runs[i-1].to > from {
		i--
	}
	for from < to {
		switch {
		case i == len(n.runs) || n.runs[i].from >= to: // nothing there
			p.insert(t, n, i, from, to)
			return
		case n.runs[i].from > from: // a hole before run i
			end := n.runs[i].from
			before := len(n.runs)
			p.insert(t, n, i, from, end)
			i += len(n.runs) - before
			from = end
		default: // run i has these tokens
			end := min(to, n.runs[i].to)
			p.addSpare(t, n, from, end)
			from = end
			i++
		}
	}
}

// insert adds a primary run, to which t alone refers, at index i of n's runs.
func (p *Pool) insert(t *Table, n *node, i int, from, to int32) {
	p.note(n.key, from, to, false)
	if i > 0 {
		if a := n.runs[i-1]; a.to == from && a.refs == 1 && a.pins == 0 && a.owner == t.Owner && a.class == t.Class {
			a.to = to
			return
		}
	}
	r := p.newRun(n, from, to, 1, 0, t.Class)
	r.owner = t.Owner
	n.runs = slices.Insert(n.runs, i, r)
}

func (p *Pool) addSpare(t *Table, n *node, from, to int32) {
	if k := len(t.spares); k > 0 {
		last := &t.spares[k-1]
		if last.key == n.key && last.to == from {
			for _, r := range n.spare {
				if r.copy == last.copy && r.to == from && r == n.spare[len(n.spare)-1] {
					r.to, last.to = to, to
					return
				}
			}
		}
	}
	p.spares++
	r := p.newRun(n, from, to, 1, p.spares, t.Class)
	r.owner = t.Owner
	n.spare = append(n.spare, r)
	t.spares = append(t.spares, spareRange{n.key, from, to, p.spares})
}

// StartDecode lets the table grow by one token a step: in step Step+1 it holds tokens+1. The caller takes the blocks
// that this needs with Take.
func (p *Pool) StartDecode(t *Table, tokens int32) {
	t.decoding, t.base = true, int64(tokens)-p.Step
	p.beginGrowth(t)
	if !p.PrefixCaching {
		return
	}
	for t.span < len(t.Path) && t.Path[t.span].To <= t.hashed {
		t.span++
	}
	for i := t.span; i < len(t.Path); i++ {
		n := p.node(t.Path[i].Key)
		n.writers = append(n.writers, t)
	}
}

// sync enters into the cache what the writers of n have filled in it so far, in the order in which they did.
func (p *Pool) sync(n *node) {
	if len(n.writers) == 1 {
		w := n.writers[0]
		p.catchUp(w, n)
		p.advance(w, n, w.fullBlocks(p))
		return
	}
	for _, w := range n.writers {
		p.catchUp(w, n)
	}
	size := int64(p.BlockSize)
	for {
		var first *Table
		var step int64
		for _, w := range n.writers {
			at := (int64(w.hashed)+1)*size - w.base // the step that fills its next block
			if at > p.Step || w.Path[w.span].Key != n.key {
				continue
			}
			if first == nil || at < step || at == step && w.Order < first.Order {
				first, step = w, at
			}
		}
		if first == nil {
			return
		}
		p.advance(first, n, first.hashed+1)
	}
}

// fullBlocks is the number of full blocks of a decoding table.
func (t *Table) fullBlocks(p *Pool) int32 {
	return int32((t.base + p.Step) / int64(p.BlockSize))
}

// catchUp syncs the nodes that w fills before n.
func (p *Pool) catchUp(w *Table, n *node) {
	for w.hashed < w.fullBlocks(p) && w.Path[w.span].Key != n.key {
		p.sync(p.nodes[w.Path[w.span].Key])
	}
}

// advance enters w's blocks of node n before block number full. A writer that has filled a node leaves it.
func (p *Pool) advance(w *Table, n *node, full int32) {
	s := &w.Path[w.span]
	if s.Key != n.key || full <= w.hashed {
		return
	}
	to := min(full, s.To)
	p.enter(w, n, w.hashed, to)
	if w.hashed = to; to == s.To {
		w.span++
		p.leave(w, n)
	}
}

// leave removes w from the writers of n.
func (p *Pool) leave(w *Table, n *node) {
	if k := slices.Index(n.writers, w); k >= 0 {
		n.writers = slices.Delete(n.writers, k, k+1)
		p.forget(n)
	}
}

// Ahead counts the token of step Step+1 of a decoding table as there: it was scheduled before the others'.
func (p *Pool) Ahead(t *Table) {
	for i := t.span; i < len(t.Path) && p.PrefixCaching; i++ {
		if n := p.nodes[t.Path[i].Key]; n != nil && len(n.writers) > 0 {
			p.sync(n)
		}
	}
	p.CountGrowth(t)
	t.base++
	if n := int32(p.Uncounted(t)); p.Accounts != nil {
		p.count(t.Owner, Running, n)
		t.blocks += n
	}
}

// StopDecode ends the growth that StartDecode began, at the present step.
func (p *Pool) StopDecode(t *Table) {
	if !t.decoding {
		return
	}
	p.CountGrowth(t)
	t.blocks = p.blocksFor(int32(t.base + p.Step))
	for i := t.span; i < len(t.Path) && p.PrefixCaching; i++ {
		if n := p.nodes[t.Path[i].Key]; n != nil && slices.Contains(n.writers, t) {
			p.sync(n)
			p.leave(t, n)
		}
	}
	t.decoding = false
}

// Finish ends a request, whose tokens the cache has already.
func (p *Pool) Finish(t *Table, tokens int32) { p.Release(t) }

// Release gives up all blocks of the table, the last first, and empties it.
func (p *Pool) Release(t *Table) {
	p.StopDecode(t)
	p.fresh += int(t.extra)
	p.enqueueBlank(t.blocks - t.hashed)
	p.count(t.Owner, Running, t.hashed-t.blocks-t.extra)
	k := len(t.spares)
	for i := min(t.span, len(t.Path)-1); i >= 0; i-- {
		s := &t.Path[i]
		to := min(s.To, t.hashed)
		if to <= s.From {
			continue
		}
		n := p.nodes[s.Key]
		for ; k > 0 && t.spares[k-1].key == s.Key; k-- {
			sp := &t.spares[k-1]
			p.kept += p.release(t, n, 0, sp.to, to)
			p.kept += p.release(t, n, sp.copy, sp.from, sp.to)
			to = sp.from
		}
		p.kept += p.release(t, n, 0, s.From, to)
	}
	t.blocks, t.extra, t.hashed, t.span, t.spares = 0, 0, 0, 0, t.spares[:0]
}
