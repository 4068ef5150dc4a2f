package kvcache

import "fmt"

// Check verifies the pool's invariants and returns the first that is broken.
func (p *Pool) Check() error {
	queued, err := p.shelf.check()
	if err != nil {
		return err
	}
	if queued != p.kept {
		return fmt.Errorf("kv cache: %d blocks in queues, but %d are accounted", queued, p.kept)
	}
	if p.fresh < 0 || p.Free() > p.Blocks {
		return fmt.Errorf("kv cache: %d fresh and %d queued blocks of %d", p.fresh, p.kept, p.Blocks)
	}
	if p.Accounts == nil {
		return nil
	}
	return p.Accounts.compare(p.holders())
}

// holders counts the cached blocks that no request refers to by their owners.
func (p *Pool) holders() holders {
	held := holders{}
	for _, n := range p.nodes {
		for _, l := range [][]*run{n.runs, n.spare} {
			for _, r := range l {
				held.add(r.owner, r.state(), r.to-r.from)
			}
		}
	}
	return held
}

// check verifies queues and nodes, and returns how many blocks are in queues.
func (s *shelf) check() (queued int, err error) {
	for c := range s.queues {
		var prev *run
		for r := s.queues[c].head; r != nil; prev, r = r, r.next {
			if r.prev != prev || !r.queued || r.refs != 0 || r.to <= r.from || int(r.class) != c && r.node != nil {
				return 0, fmt.Errorf("kv cache: queue %d holds a bad run of blocks [%d, %d) with %d references", c, r.from, r.to, r.refs)
			}
			queued += int(r.to - r.from)
		}
		if s.queues[c].tail != prev {
			return 0, fmt.Errorf("kv cache: queue %d ends at the wrong run", c)
		}
	}
	for k, n := range s.nodes {
		end := int32(-1)
		for _, r := range n.runs {
			if r.node != n || r.from < end || r.to <= r.from || r.copy != 0 || (r.refs == 0) != r.queued {
				return 0, fmt.Errorf("kv cache: node %d has a bad run of blocks [%d, %d) with %d references", k.Node(), r.from, r.to, r.refs)
			}
			end = r.to
		}
		for _, r := range n.spare {
			if r.node != n || r.to <= r.from || r.copy == 0 || (r.refs == 0) != r.queued || r.pins > 0 {
				return 0, fmt.Errorf("kv cache: node %d has a bad spare run of blocks [%d, %d) with %d references", k.Node(), r.from, r.to, r.refs)
			}
		}
		if len(n.runs)+len(n.spare)+len(n.writers) == 0 {
			return 0, fmt.Errorf("kv cache: node %d is kept but holds nothing", k.Node())
		}
	}
	return queued, nil
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
