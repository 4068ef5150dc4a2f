// Package kvcache models one worker's paged KV cache: block accounting, prefix reuse and eviction, at the cost of tree
// nodes and not of blocks. Pool follows vLLM, Radix follows SGLang.
//
// The rules of Pool are those of vLLM V1 (vllm/v1/core/block_pool.py, kv_cache_manager.py, version 0.19):
//   - a block enters the prefix cache when the step that fills it is scheduled;
//   - a freed block joins the tail of one free queue, a request's last block first; new blocks are taken from its
//     head, and a cached block leaves the cache when it is taken;
//   - several blocks may hold the same tokens; the oldest of them is the one that is hit.
//
// Invariants, checked by Pool.Check:
//   - fresh blocks + blocks in queues + blocks that somebody refers to = Blocks;
//   - the runs of a node are sorted, do not overlap and are not empty;
//   - a run is in a queue exactly when nobody refers to it;
//   - a spare run covers only blocks that a (primary) run covers too.
package kvcache

import (
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// Class is an eviction class. Blocks of a lower class are all evicted before those of a higher one.
type Class uint8

// The eviction classes. vLLM and SGLang without priority eviction use Normal only.
const (
	Low Class = iota
	Normal
	High
	classes
)

// Pool is the KV blocks of one worker rank under the rules of vLLM. It is not safe for concurrent use.
type Pool struct {
	Ledger
	shelf
	spares int64 // numbers spare runs
}

// New returns an empty pool. It fails when a size is out of range.
func New(o Options) (*Pool, error) {
	l, err := newLedger(o)
	if err != nil {
		return nil, err
	}
	p := &Pool{Ledger: l, shelf: newShelf()}
	p.shelf.ledger = &p.Ledger
	return p, nil
}

// Lookup returns how many leading blocks of the path are cached, at most limit.
func (p *Pool) Lookup(path []trace.Span, limit int32) int32 {
	if !p.PrefixCaching {
		return 0
	}
	found := int32(0)
	for i := range path {
		s := &path[i]
		if s.From >= limit || s.From != found {
			break
		}
		n := p.nodes[s.Key]
		if n == nil {
			break
		}
		if len(n.writers) > 0 {
			p.sync(n)
		}
		found = min(n.upTo(found), s.To)
	}
	return min(found, limit)
}

// Filling tells whether a decoding request may fill blocks of the path from number at on.
func (p *Pool) Filling(path []trace.Span, at int32) bool {
	return slices.ContainsFunc(path, func(s trace.Span) bool {
		n := p.nodes[s.Key]
		return s.To > at && n != nil && len(n.writers) > 0
	})
}

// Take takes n blocks from the free queue, evicting what they hold. The caller has checked that Free is enough.
func (p *Pool) Take(n int) {
	m := min(n, p.fresh)
	p.fresh -= m
	for n -= m; n > 0; {
		n -= p.evict(n)
	}
}

// evict takes up to n blocks from the head of the lowest class's queue and returns how many.
func (p *Pool) evict(n int) int {
	q := &p.queues[0]
	for q.head == nil {
		q = &p.queues[q.class+1]
	}
	r := q.head
	if r.node != nil && len(r.node.writers) > 0 {
		p.sync(r.node)
	}
	m := min(n, int(r.to-r.from))
	if r.node != nil && r.copy == 0 && len(r.node.spare) > 0 {
		m = 1
	}
	r.to -= int32(m)
	p.kept -= m
	if nd := r.node; nd != nil {
		p.Evicted += int64(m)
		p.count(r.owner, idle, -int32(m))
		if r.copy == 0 && !(len(nd.spare) > 0 && p.promote(nd, r, r.to)) {
			p.note(nd.key, r.to, r.to+int32(m), true)
			if p.Evictions {
				p.lost = append(p.lost, trace.Span{Key: nd.key, From: r.to, To: r.to + int32(m)})
			}
		}
	}
	if r.to == r.from {
		q.remove(r)
		p.drop(r)
	}
	return m
}

// enqueueBlank frees n blocks without reusable content.
func (p *Pool) enqueueBlank(n int32) {
	if n <= 0 {
		return
	}
	if p.FreeTailFirst || !p.PrefixCaching {
		// Which of the blocks that hold nothing is taken next makes no difference.
		p.fresh += int(n)
		return
	}
	p.kept += int(n)
	q := &p.queues[Normal]
	if t := q.tail; t != nil && t.node == nil {
		t.to += n
		return
	}
	q.push(p.newRun(nil, 0, n, 0, 0, Normal))
}

// promote makes the oldest spare block at position at the primary one, in the place of run r, which has just lost
// it. It returns false when there is none.
func (p *Pool) promote(n *node, r *run, at int32) bool {
	for _, s := range n.spare {
		if at < s.from || at >= s.to {
			continue
		}
		if s.to > at+1 {
			p.split(s, at+1)
		}
		if s.from < at {
			s = p.split(s, at)
		}
		i := slices.Index(n.spare, s)
		n.spare = slices.Delete(n.spare, i, i+1)
		s.copy = 0
		n.runs = slices.Insert(n.runs, slices.Index(n.runs, r)+1, s)
		if j := slices.Index(n.runs, s); s.refs > 0 {
			if j+1 < len(n.runs) {
				p.join(n, j+1)
			}
			// r may be empty now; it cannot be referred to, so it never joins with s.
		}
		return true
	}
	return false
}
