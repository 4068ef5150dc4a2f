package kvcache

import (
	"slices"
	"sort"

	"github.com/agentsim/agentsim/trace"
)

// Pin is a hold on cached blocks that keeps them from eviction.
type Pin struct{ table Table }

// Pin keeps the cached leading blocks of the path, at most limit, of which at most room are free ones, and returns how many
// there were.
func (p *Pool) Pin(path []trace.Span, limit int32, room int) (*Pin, int) {
	pin := &Pin{table: Table{Path: path, pin: true}}
	hits := p.Lookup(path, limit)
	if int(p.idleHits(path, hits)) > room {
		hits = int32(sort.Search(int(hits), func(n int) bool { return int(p.idleHits(path, int32(n)+1)) > room }))
	}
	p.hold(&pin.table, hits)
	return pin, int(pin.table.blocks)
}

// Keep makes a pin of the blocks that a table refers to, and empties it. Where it has others than the cache had, they count as
// running in the accounts.
func (p *Pool) Keep(t *Table) (*Pin, int) {
	if len(t.spares) == 0 {
		pin, blocks := p.Pin(slices.Clone(t.Path), t.hashed, p.Free())
		p.Release(t)
		return pin, blocks
	}
	pin := &Pin{table: *t}
	pin.table.Path, pin.table.spares = slices.Clone(t.Path), slices.Clone(t.spares)
	*t = Table{Path: t.Path, Owner: t.Owner}
	return pin, int(pin.table.blocks)
}

// Unpin gives up a pin. Its blocks join the tail of the free queue unless others refer to them.
func (p *Pool) Unpin(pin *Pin) { p.Release(&pin.table) }

// Warm makes the first blocks blocks of the path resident, as if a request of the owner that computed them had just ended,
// and returns how many it added. It adds what fits.
func (p *Pool) Warm(path []trace.Span, owner Owner, blocks int32) int {
	if !p.PrefixCaching {
		return 0
	}
	hits := p.Lookup(path, blocks)
	room := int32(p.Free()) - p.idleHits(path, hits)
	if blocks = min(blocks, hits+room); blocks <= hits {
		return 0
	}
	t := Table{Path: path, Class: Normal, Owner: owner}
	size := int32(p.BlockSize)
	p.Admit(&t, hits, blocks*size, blocks, 0)
	p.Release(&t)
	return int(blocks - hits)
}

// Drop removes blocks [from, to) of a node from the cache and returns how many it removed and how many it had to
// leave because somebody refers to them.
func (p *Pool) Drop(s trace.Span) (dropped, left int) {
	n := p.nodes[s.Key]
	if n == nil {
		return 0, 0
	}
	p.sync(n)
	for _, l := range []*[]*run{&n.spare, &n.runs} {
		if l == &n.runs {
			for _, r := range n.spare { // so that what a spare run keeps is a run of its own
				p.isolate(l, r.from, r.to)
			}
		}
		for _, r := range p.isolate(l, s.From, s.To) {
			size := int(r.to - r.from)
			if r.refs > 0 || r.copy == 0 && overlaps(n.spare, r) {
				left += size
				continue
			}
			if r.copy == 0 {
				p.note(n.key, r.from, r.to, true)
			}
			p.queues[r.class].remove(r)
			p.kept -= size
			p.fresh += size
			p.count(r.owner, idle, -int32(size))
			dropped += size
			p.drop(r)
		}
	}
	return dropped, left
}

// Flush drops all cached blocks that nobody refers to.
func (p *Pool) Flush() {
	for _, s := range p.Under(func(trace.Key) bool { return true }) {
		p.Drop(s)
	}
}

// overlaps tells whether a spare run has blocks of r.
func overlaps(spare []*run, r *run) bool {
	return slices.ContainsFunc(spare, func(s *run) bool { return s.from < r.to && s.to > r.from })
}

// Under returns the resident spans of all nodes for which under is true, in order of key: a subtree, when under tells
// whether a node lies below another.
func (p *Pool) Under(under func(trace.Key) bool) []trace.Span {
	var keys []trace.Key
	for k := range p.nodes {
		if under(k) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var spans []trace.Span
	for _, k := range keys {
		n := p.nodes[k]
		p.sync(n)
		for i, r := range n.runs {
			if i > 0 && n.runs[i-1].to == r.from {
				spans[len(spans)-1].To = r.to
				continue
			}
			spans = append(spans, trace.Span{Key: k, From: r.from, To: r.to})
		}
	}
	return spans
}

// SetClass changes the eviction class of cached blocks. Those that nobody refers to join the tail of their new queue,
// the last first.
func (p *Pool) SetClass(s trace.Span, class Class) {
	n := p.nodes[s.Key]
	if n == nil {
		return
	}
	p.sync(n)
	for _, r := range slices.Backward(p.isolate(&n.runs, s.From, s.To)) {
		if r.class == class {
			continue
		}
		queued := r.queued
		if queued {
			p.queues[r.class].remove(r)
		}
		if r.class = class; queued {
			p.queues[class].push(r)
		}
	}
}
