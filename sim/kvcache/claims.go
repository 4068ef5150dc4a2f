package kvcache

import "github.com/agentsim/agentsim/trace"

// Claims tells which cached blocks were counted already, so that each counts once however many paths share it: of each node
// of the prefix tree, those before a block.
type Claims map[trace.Key]int32

// take claims blocks [from, to) of a node and returns how many of them were not claimed before.
func (c Claims) take(key trace.Key, from, to int32) int {
	if from = max(from, c[key]); from >= to {
		return 0
	}
	c[key] = to
	return int(to - from)
}

// Claim returns how many of the blocks that the path would find cached nobody refers to and nobody has claimed, and claims
// them. It changes nothing in the pool: what decoding requests have filled it sees once somebody has looked it up.
func (p *Pool) Claim(path []trace.Span, claims Claims) int {
	at, count := int32(0), 0
	for i := range path {
		s := &path[i]
		n := p.nodes[s.Key]
		if s.From != at || n == nil {
			break
		}
		for _, r := range n.runs {
			if r.from > at || at == s.To {
				break
			}
			if to := min(r.to, s.To); to > at {
				if r.refs == 0 {
					count += claims.take(s.Key, at, to)
				}
				at = to
			}
		}
	}
	return count
}

// Claim returns how many of the blocks that the path would find cached nobody has locked or claimed, and claims them. It
// counts as no access.
func (r *Radix) Claim(path []trace.Span, claims Claims) int {
	at, count := int32(0), 0
	for i := 0; i < len(path); {
		n := r.nodes[place{path[i].Key, at}]
		if n == nil {
			break
		}
		end := n.common(path[i:], n.to)
		for ; i < len(path) && path[i].From < end; i++ {
			s := &path[i]
			if to := min(s.To, end); n.locks == 0 {
				count += claims.take(s.Key, max(s.From, at), to)
			}
			if s.To > end {
				break
			}
		}
		if at = end; end < n.to {
			break
		}
	}
	return count
}
