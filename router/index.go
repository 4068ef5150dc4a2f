package router

import (
	"math/bits"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// index tells which KV blocks are resident on which workers. Its size follows residency: a node that no worker holds
// has no entry.
type index struct {
	nodes map[trace.Key]*residency
	free  []*residency // entries to reuse
	match workerSet    // scratch of overlap
	all   workerSet
}

// residency tells who holds the blocks of one prefix-tree node.
//
// Nearly always a worker holds all of a node's blocks or none, so those that hold all of [from, to) are one bit in
// full; only the others have runs.
type residency struct {
	from, to int32 // all blocks ever stored since the entry was made lie in it
	full     workerSet
	runs     []run // by worker, then by block; never touching, never all of [from, to)
}

// run is blocks [from, to) on one worker.
type run struct{ worker, from, to int32 }

func newIndex(workers int) *index {
	return &index{
		nodes: make(map[trace.Key]*residency),
		match: newWorkerSet(workers),
		all:   allWorkers(workers),
	}
}

// store makes blocks of a node resident on worker. Storing what is resident already changes nothing.
func (x *index) store(worker int, s trace.Span) {
	if s.From >= s.To {
		return
	}
	n := x.nodes[s.Key]
	if n == nil {
		n = x.newEntry()
		n.from, n.to = s.From, s.To
		x.nodes[s.Key] = n
	}
	n.widen(min(n.from, s.From), max(n.to, s.To))
	if !n.full.has(worker) {
		n.join(run{int32(worker), s.From, s.To})
	}
}

// remove ends the residency of blocks of a node on worker. Removing what is not resident changes nothing.
func (x *index) remove(worker int, s trace.Span) {
	n := x.nodes[s.Key]
	if n == nil || s.From >= s.To || s.To <= n.from || s.From >= n.to {
		return
	}
	if n.full.has(worker) {
		n.full.remove(worker)
		if s.From > n.from || s.To < n.to {
			n.runs = slices.Insert(n.runs, n.firstRun(worker), run{int32(worker), n.from, n.to})
		}
	}
	n.cut(run{int32(worker), s.From, s.To})
	if len(n.runs) == 0 && n.full.empty() {
		delete(x.nodes, s.Key)
		x.free = append(x.free, n)
	}
}

// overlap sets out, for each worker, to the number of blocks at the head of path that it holds, at most limit.
func (x *index) overlap(path []trace.Span, limit int32, out []int32) {
	copy(x.match, x.all)
	heads(x.nodes, path, limit, x.match, out)
}

// clear ends the residency of all blocks on worker. It costs a look at every node.
func (x *index) clear(worker int) {
	for key, n := range x.nodes {
		x.remove(worker, trace.Span{Key: key, From: n.from, To: n.to})
	}
}

// holders are the workers that hold blocks of one prefix-tree node.
type holders interface {
	// whole returns workers that hold all of blocks [from, to), nil when it takes reach to tell.
	whole(from, to int32) workerSet
	// reach returns the end of the blocks that worker holds from block on, block itself when it does not hold that.
	reach(worker int, block int32) int32
}

// heads sets out, for each worker in match, to the number of blocks at the head of path that it holds, at most limit.
// It costs a lookup per node, a word per 64 workers and node, and a search for each worker that leaves the path.
// Match is used up.
func heads[H holders](nodes map[trace.Key]H, path []trace.Span, limit int32, match workerSet, out []int32) {
	end := int32(0)
	for _, s := range path {
		if s.From >= limit {
			break
		}
		end = min(s.To, limit)
		n, held := nodes[s.Key]
		if !held {
			match.each(func(worker int) { out[worker] = s.From })
			return
		}
		whole := n.whole(s.From, end)
		matching := uint64(0)
		for i, workers := range match {
			check := workers
			if whole != nil {
				check &^= whole[i]
			}
			for ; check != 0; check &= check - 1 {
				bit := bits.TrailingZeros64(check)
				worker := i<<6 + bit
				if upTo := n.reach(worker, s.From); upTo < end {
					out[worker] = upTo
					match[i] &^= 1 << bit
				}
			}
			matching |= match[i]
		}
		if matching == 0 {
			return
		}
	}
	match.each(func(worker int) { out[worker] = end })
}

func (x *index) newEntry() *residency {
	if last := len(x.free) - 1; last >= 0 {
		n := x.free[last]
		x.free = x.free[:last]
		return n
	}
	return &residency{full: make(workerSet, len(x.all))}
}

// widen makes [from, to) the node's range. Workers that were full and have become partial get a run.
func (n *residency) widen(from, to int32) {
	if from == n.from && to == n.to {
		return
	}
	n.full.each(func(worker int) {
		n.runs = slices.Insert(n.runs, n.firstRun(worker), run{int32(worker), n.from, n.to})
	})
	clear(n.full)
	n.from, n.to = from, to
}

// join adds r to the runs of its worker, or makes the worker full.
func (n *residency) join(r run) {
	first := n.firstRun(int(r.worker))
	for first < len(n.runs) && n.runs[first].worker == r.worker && n.runs[first].to < r.from {
		first++
	}
	last := first
	for last < len(n.runs) && n.runs[last].worker == r.worker && n.runs[last].from <= r.to {
		r.from = min(r.from, n.runs[last].from)
		r.to = max(r.to, n.runs[last].to)
		last++
	}
	if r.from == n.from && r.to == n.to {
		n.runs = slices.Delete(n.runs, first, last)
		n.full.add(int(r.worker))
		return
	}
	n.runs = slices.Replace(n.runs, first, last, r)
}

// cut takes the blocks of c from the runs of its worker.
func (n *residency) cut(c run) {
	for i := n.firstRun(int(c.worker)); i < len(n.runs) && n.runs[i].worker == c.worker; {
		r := &n.runs[i]
		switch {
		case r.to <= c.from || r.from >= c.to: // apart
			i++
		case r.from < c.from && r.to > c.to: // c is inside
			right := run{r.worker, c.to, r.to}
			r.to = c.from
			n.runs = slices.Insert(n.runs, i+1, right)
			return
		case r.from < c.from:
			r.to = c.from
			i++
		case r.to > c.to:
			r.from = c.to
			i++
		default:
			n.runs = slices.Delete(n.runs, i, i+1)
		}
	}
}

func (n *residency) whole(from, to int32) workerSet {
	if n.from <= from && to <= n.to {
		return n.full
	}
	return nil
}

func (n *residency) reach(worker int, block int32) int32 {
	if n.full.has(worker) {
		if n.from <= block && block < n.to {
			return n.to
		}
		return block
	}
	for _, r := range n.runs[n.firstRun(worker):] {
		if r.worker != int32(worker) || r.from > block {
			break
		}
		if block < r.to {
			return r.to
		}
	}
	return block
}

// firstRun returns the position of worker's first run, or where it would be.
func (n *residency) firstRun(worker int) int {
	i, _ := slices.BinarySearchFunc(n.runs, int32(worker), func(r run, w int32) int { return int(r.worker - w) })
	return i
}
