package router

import (
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// footprint counts the distinct prompt blocks of the requests that are active on each worker: blocks that they have in
// common count once (Dynamo, lib/kv-router sequences).
//
// Prompts share whole nodes. When one ends inside a node, its blocks there count as its own.
type footprint struct {
	nodes map[trace.Key]*tenancy
	free  []*tenancy // entries to reuse
	match workerSet  // scratch of shared
	all   workerSet
}

// tenancy tells on which workers active requests hold one prefix-tree node.
type tenancy struct {
	workers workerSet
	tenants []tenants // by worker
}

// tenants are the active requests of one worker that hold a node; at least one.
type tenants struct{ worker, requests int32 }

func newFootprint(workers int) *footprint {
	return &footprint{
		nodes: make(map[trace.Key]*tenancy),
		match: newWorkerSet(workers),
		all:   allWorkers(workers),
	}
}

// hold adds a request with that many prompt blocks to worker. It returns how many blocks the worker's active requests
// hold in addition.
func (f *footprint) hold(worker int, path []trace.Span, prompt int32) (added int64) {
	whole, end := wholeNodes(path, prompt)
	for _, s := range whole {
		n := f.nodes[s.Key]
		if n == nil {
			n = f.newEntry()
			f.nodes[s.Key] = n
		}
		i := n.position(worker)
		if !n.workers.has(worker) {
			n.workers.add(worker)
			n.tenants = slices.Insert(n.tenants, i, tenants{worker: int32(worker)})
			added += int64(s.To - s.From)
		}
		n.tenants[i].requests++
	}
	return added + int64(prompt-end)
}

// release undoes hold. It returns how many blocks the worker's active requests hold no more.
func (f *footprint) release(worker int, path []trace.Span, prompt int32) (freed int64) {
	whole, end := wholeNodes(path, prompt)
	for _, s := range whole {
		n := f.nodes[s.Key]
		i := n.position(worker)
		n.tenants[i].requests--
		if n.tenants[i].requests > 0 {
			continue
		}
		n.workers.remove(worker)
		n.tenants = slices.Delete(n.tenants, i, i+1)
		freed += int64(s.To - s.From)
		if len(n.tenants) == 0 {
			delete(f.nodes, s.Key)
			f.free = append(f.free, n)
		}
	}
	return freed + int64(prompt-end)
}

// shared sets out, for each worker, to the number of a prompt's blocks that its active requests hold already. Every
// active prompt begins at the root, so these are the head of the path.
func (f *footprint) shared(path []trace.Span, prompt int32, out []int32) {
	match := f.match
	copy(match, f.all)
	whole, end := wholeNodes(path, prompt)
	for _, s := range whole {
		n := f.nodes[s.Key]
		if n == nil {
			match.each(func(worker int) { out[worker] = s.From })
			return
		}
		matching := uint64(0)
		for i, workers := range match {
			leave := workers &^ n.workers[i]
			eachBit(i, leave, func(worker int) { out[worker] = s.From })
			match[i] &= n.workers[i]
			matching |= match[i]
		}
		if matching == 0 {
			return
		}
	}
	match.each(func(worker int) { out[worker] = end })
}

// wholeNodes returns the head of path whose nodes lie within the prompt, and its length in blocks.
func wholeNodes(path []trace.Span, prompt int32) (whole []trace.Span, end int32) {
	n := 0
	for n < len(path) && path[n].To <= prompt {
		end = path[n].To
		n++
	}
	return path[:n], end
}

func (f *footprint) newEntry() *tenancy {
	if last := len(f.free) - 1; last >= 0 {
		n := f.free[last]
		f.free = f.free[:last]
		return n
	}
	return &tenancy{workers: make(workerSet, len(f.all))}
}

// position returns the position of worker's tenants, or where it would be.
func (n *tenancy) position(worker int) int {
	i, _ := slices.BinarySearchFunc(n.tenants, int32(worker), func(t tenants, w int32) int { return int(t.worker - w) })
	return i
}
