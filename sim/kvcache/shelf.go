package kvcache

import (
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// shelf is cached blocks by the tree nodes whose tokens they hold, and the queues of those that nobody refers to: what a Pool
// and a Store have in common.
type shelf struct {
	nodes  map[trace.Key]*node
	queues [classes]queue
	ledger *Ledger // of a Pool, which accounts for owners

	idle    []*node // node structs for reuse
	idleRun []*run
	between []*run // what isolate returned
}

// node is the resident part of one node of the prefix tree.
type node struct {
	key     trace.Key
	runs    []*run // one block for each position, sorted by position
	spare   []*run // of a Pool: further blocks for the same positions, oldest first
	writers []*Table
}

func newShelf() shelf {
	s := shelf{nodes: map[trace.Key]*node{}}
	for c := range s.queues {
		s.queues[c].class = Class(c)
	}
	return s
}

// node returns the resident part of a tree node, made if need be.
func (s *shelf) node(key trace.Key) *node {
	n := s.nodes[key]
	if n == nil {
		if k := len(s.idle); k > 0 {
			n, s.idle = s.idle[k-1], s.idle[:k-1]
		} else {
			n = &node{}
		}
		n.key = key
		s.nodes[key] = n
	}
	return n
}

// upTo is the block up to which, from block at on, all primary ones are there.
func (n *node) upTo(at int32) int32 {
	for _, r := range n.runs {
		if r.from > at || r.to > at && r.refs == onWay {
			break
		}
		at = max(at, r.to)
	}
	return at
}

// Here is how many blocks of the path are there, wherever on it. It changes nothing: what decoding requests have filled it
// sees once somebody has looked it up.
func (s *shelf) Here(path []trace.Span) int {
	count := int32(0)
	for i := range path {
		n := s.nodes[path[i].Key]
		if n == nil {
			continue
		}
		for _, r := range n.runs {
			if r.refs != onWay {
				count += max(0, min(r.to, path[i].To)-max(r.from, path[i].From))
			}
		}
	}
	return int(count)
}

// forget removes a node that holds nothing.
func (s *shelf) forget(n *node) {
	if len(n.runs)+len(n.spare)+len(n.writers) == 0 {
		delete(s.nodes, n.key)
		s.idle = append(s.idle, n)
	}
}

func (s *shelf) newRun(n *node, from, to, refs int32, copy int64, class Class) *run {
	var r *run
	if k := len(s.idleRun); k > 0 {
		r, s.idleRun = s.idleRun[k-1], s.idleRun[:k-1]
	} else {
		r = &run{}
	}
	*r = run{node: n, from: from, to: to, refs: refs, copy: copy, class: class}
	return r
}

// drop removes a run that is in no queue from its node.
func (s *shelf) drop(r *run) {
	if n := r.node; n != nil {
		l := r.list()
		i := slices.Index(*l, r)
		*l = slices.Delete(*l, i, i+1)
		s.forget(n)
	}
	s.idleRun = append(s.idleRun, r)
}

// split cuts r at block at, leaves [from, at) in r and returns the new run [at, to).
func (s *shelf) split(r *run, at int32) *run {
	upper := s.newRun(r.node, at, r.to, r.refs, r.copy, r.class)
	upper.pins, upper.owner = r.pins, r.owner
	r.to = at
	l := r.list()
	*l = slices.Insert(*l, slices.Index(*l, r)+1, upper)
	if r.queued {
		s.queues[r.class].before(r, upper)
	}
	return upper
}

// change adds a reference to a run, or takes one away: of a table, nil in a Store.
func (s *shelf) change(r *run, t *Table, by int32) {
	if t == nil {
		r.refs += by
		return
	}
	size := r.to - r.from
	s.ledger.count(r.owner, r.state(), -size)
	if r.refs += by; t.pin {
		r.pins += by
	}
	if r.refs == 0 || r.refs == by { // it joins the free queue or leaves it
		r.owner = s.ledger.Accounts.heir(r.owner, t)
	}
	s.ledger.count(r.owner, r.state(), size)
}

// refer adds a reference of t to the primary blocks [from, to) of n and returns how many had none.
func (s *shelf) refer(t *Table, n *node, from, to int32) (taken int) {
	for i := 0; i < len(n.runs); i++ {
		r := n.runs[i]
		if r.to <= from {
			continue
		}
		if r.from >= to {
			s.join(n, i)
			return taken
		}
		if r.from < from {
			s.split(r, from)
			continue
		}
		if r.to > to {
			s.split(r, to)
		}
		if r.queued {
			s.queues[r.class].remove(r)
			taken += int(r.to - r.from)
		}
		s.change(r, t, 1)
		i -= s.join(n, i)
	}
	return taken
}

// join merges run i of n with the one before when both are referred to equally, and returns how many runs that saved.
func (s *shelf) join(n *node, i int) int {
	if i == 0 {
		return 0
	}
	a, b := n.runs[i-1], n.runs[i]
	if a.to != b.from || a.refs != b.refs || a.refs == 0 || a.pins != b.pins || a.owner != b.owner || a.class != b.class {
		return 0
	}
	a.to = b.to
	n.runs = slices.Delete(n.runs, i, i+1)
	s.idleRun = append(s.idleRun, b)
	return 1
}

// release takes a reference of t from the blocks [from, to) of n, last block first: from the spare run of the given number
// where it still exists, else from the primary run. It returns how many have none now.
func (s *shelf) release(t *Table, n *node, copy int64, from, to int32) (freed int) {
	for to > from {
		l, i := &n.runs, 0
		for i = len(n.spare) - 1; copy != 0 && i >= 0; i-- {
			if c := n.spare[i]; c.copy == copy && c.from < to && c.to >= to {
				l = &n.spare
				break
			}
		}
		if l == &n.runs {
			for i = len(n.runs) - 1; n.runs[i].from >= to; {
				i--
			}
		}
		r := (*l)[i]
		if r.to > to {
			s.split(r, to)
		}
		low := max(from, r.from)
		if copy != 0 && l == &n.runs {
			low = max(low, to-1) // the block before may still be a spare one
		}
		if r.from < low {
			r = s.split(r, low)
			i++
		}
		to = low
		if s.change(r, t, -1); r.refs == 0 {
			freed += int(r.to - r.from)
			s.enqueue(r)
		} else if r.copy == 0 && i+1 < len(n.runs) {
			s.join(n, i+1)
		}
	}
	return freed
}

// enqueue puts a run that nobody refers to at the tail of its queue, merged with the tail when that is the run
// behind it.
func (s *shelf) enqueue(r *run) {
	q := &s.queues[r.class]
	if t := q.tail; t != nil && t.node == r.node && t.copy == r.copy && t.owner == r.owner && t.from == r.to {
		t.from = r.from
		s.drop(r)
		return
	}
	q.push(r)
}

// isolate splits the runs of a list at from and to and returns those in between, until the next call.
func (s *shelf) isolate(l *[]*run, from, to int32) []*run {
	s.between = s.between[:0]
	for i := 0; i < len(*l); i++ {
		r := (*l)[i]
		if r.to <= from || r.from >= to {
			continue
		}
		if r.from < from {
			s.split(r, from)
			continue
		}
		if r.to > to {
			s.split(r, to)
		}
		s.between = append(s.between, r)
	}
	return s.between
}
