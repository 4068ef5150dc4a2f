package kvcache

import "slices"

// run is a range of blocks [from, to) of one node that are alike in all respects: who refers to them, and where they
// stand in the free queue. A run without node is blocks without reusable content.
type run struct {
	node       *node
	from, to   int32
	refs       int32
	copy       int64 // 0 for primary runs; spare runs are numbered
	class      Class
	queued     bool
	prev, next *run
}

// queue is a free queue of runs. From head to tail is the order of eviction; inside a run the last block goes first.
type queue struct {
	class      Class
	head, tail *run
}

func (q *queue) push(r *run) {
	r.queued, r.prev, r.next = true, q.tail, nil
	if q.tail == nil {
		q.head = r
	} else {
		q.tail.next = r
	}
	q.tail = r
}

// before inserts r in front of at.
func (q *queue) before(at, r *run) {
	r.queued, r.prev, r.next = true, at.prev, at
	if at.prev == nil {
		q.head = r
	} else {
		at.prev.next = r
	}
	at.prev = r
}

func (q *queue) remove(r *run) {
	if r.prev == nil {
		q.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		q.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.queued, r.prev, r.next = false, nil, nil
}

func (p *Pool) newRun(n *node, from, to, refs int32, copy int64, class Class) *run {
	var r *run
	if k := len(p.idleRun); k > 0 {
		r, p.idleRun = p.idleRun[k-1], p.idleRun[:k-1]
	} else {
		r = &run{}
	}
	*r = run{node: n, from: from, to: to, refs: refs, copy: copy, class: class}
	return r
}

// list is the list of the node that holds the run.
func (r *run) list() *[]*run {
	if r.copy != 0 {
		return &r.node.spare
	}
	return &r.node.runs
}

// drop removes a run that is in no queue from its node.
func (p *Pool) drop(r *run) {
	if n := r.node; n != nil {
		l := r.list()
		i := slices.Index(*l, r)
		*l = slices.Delete(*l, i, i+1)
		p.forget(n)
	}
	p.idleRun = append(p.idleRun, r)
}

// split cuts r at block at, leaves [from, at) in r and returns the new run [at, to).
func (p *Pool) split(r *run, at int32) *run {
	upper := p.newRun(r.node, at, r.to, r.refs, r.copy, r.class)
	r.to = at
	l := r.list()
	*l = slices.Insert(*l, slices.Index(*l, r)+1, upper)
	if r.queued {
		p.queues[r.class].before(r, upper)
	}
	return upper
}

// refer adds a reference to the primary blocks [from, to) of n.
func (p *Pool) refer(n *node, from, to int32) {
	for i := 0; i < len(n.runs); i++ {
		r := n.runs[i]
		if r.to <= from {
			continue
		}
		if r.from >= to {
			p.join(n, i)
			return
		}
		if r.from < from {
			p.split(r, from)
			continue
		}
		if r.to > to {
			p.split(r, to)
		}
		if r.queued {
			p.queues[r.class].remove(r)
			p.kept -= int(r.to - r.from)
		}
		r.refs++
		i -= p.join(n, i)
	}
}

// join merges run i of n with the one before when both are referred to equally, and returns how many runs that saved.
func (p *Pool) join(n *node, i int) int {
	if i == 0 {
		return 0
	}
	a, b := n.runs[i-1], n.runs[i]
	if a.to != b.from || a.refs != b.refs || a.refs == 0 || a.class != b.class {
		return 0
	}
	a.to = b.to
	n.runs = slices.Delete(n.runs, i, i+1)
	p.idleRun = append(p.idleRun, b)
	return 1
}

// release takes a reference from the blocks [from, to) of n, last block first: from the spare run of the given number
// where it still exists, else from the primary run.
func (p *Pool) release(n *node, copy int64, from, to int32) {
	for to > from {
		l, i := &n.runs, 0
		for i = len(n.spare) - 1; copy != 0 && i >= 0; i-- {
			if s := n.spare[i]; s.copy == copy && s.from < to && s.to >= to {
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
			p.split(r, to)
		}
		low := max(from, r.from)
		if copy != 0 && l == &n.runs {
			low = max(low, to-1) // the block before may still be a spare one
		}
		if r.from < low {
			r = p.split(r, low)
			i++
		}
		to = low
		if r.refs--; r.refs == 0 {
			p.enqueue(r)
		} else if r.copy == 0 && i+1 < len(n.runs) {
			p.join(n, i+1)
		}
	}
}

// enqueue puts a run that nobody refers to at the tail of its queue, merged with the tail when that is the run
// behind it.
func (p *Pool) enqueue(r *run) {
	p.kept += int(r.to - r.from)
	q := &p.queues[r.class]
	if t := q.tail; t != nil && t.node == r.node && t.copy == r.copy && t.from == r.to {
		t.from = r.from
		p.drop(r)
		return
	}
	q.push(r)
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
