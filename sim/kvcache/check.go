package kvcache

import (
	"fmt"
)

// Check verifies the pool's invariants and returns the first that is broken. held is the number of blocks that
// requests and pins refer to, counted by their owners with shared blocks counted once per owner; pass a negative
// number when it is not known.
func (p *Pool) Check() error {
	queued := 0
	for c := range p.queues {
		var prev *run
		for r := p.queues[c].head; r != nil; prev, r = r, r.next {
			if r.prev != prev || !r.queued || r.refs != 0 || r.to <= r.from || int(r.class) != c && r.node != nil {
				return fmt.Errorf("kv cache: queue %d holds a bad run of blocks [%d, %d) with %d references", c, r.from, r.to, r.refs)
			}
			queued += int(r.to - r.from)
		}
		if p.queues[c].tail != prev {
			return fmt.Errorf("kv cache: queue %d ends at the wrong run", c)
		}
	}
	if queued != p.kept {
		return fmt.Errorf("kv cache: %d blocks in queues, but %d are accounted", queued, p.kept)
	}
	if p.fresh < 0 || p.Free() > p.Blocks {
		return fmt.Errorf("kv cache: %d fresh and %d queued blocks of %d", p.fresh, p.kept, p.Blocks)
	}
	for k, n := range p.nodes {
		end := int32(-1)
		for _, r := range n.runs {
			if r.node != n || r.from < end || r.to <= r.from || r.copy != 0 || (r.refs == 0) != r.queued {
				return fmt.Errorf("kv cache: node %d has a bad run of blocks [%d, %d) with %d references", k.Node(), r.from, r.to, r.refs)
			}
			end = r.to
		}
		for _, r := range n.spare {
			if r.node != n || r.to <= r.from || r.copy == 0 || (r.refs == 0) != r.queued {
				return fmt.Errorf("kv cache: node %d has a bad spare run of blocks [%d, %d) with %d references", k.Node(), r.from, r.to, r.refs)
			}
		}
		if len(n.runs)+len(n.spare)+len(n.writers) == 0 {
			return fmt.Errorf("kv cache: node %d is kept but holds nothing", k.Node())
		}
	}
	return nil
}

// Referenced is the number of distinct blocks that runs with references hold: cached ones only, not the partial
// blocks at the end of a request.
func (p *Pool) Referenced() int {
	total := 0
	for _, n := range p.nodes {
		for _, l := range [][]*run{n.runs, n.spare} {
			for _, r := range l {
				if r.refs > 0 {
					total += int(r.to - r.from)
				}
			}
		}
	}
	return total
}
