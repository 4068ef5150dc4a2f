package router

import (
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// footprint counts the distinct prompt blocks of the requests that are active on each worker: blocks that they have in
// common count once (Dynamo, lib/kv-router sequences).
type footprint struct {
	nodes map[trace.Key]*tenancy
	free  []*tenancy // entries to reuse
	match workerSet  // scratch of shared
	all   workerSet
}

// tenancy tells which active requests hold blocks of one prefix-tree node. A prompt holds the node's first blocks, up
// to where it ends or leaves the node.
type tenancy struct {
	tenants []tenants // by worker, then by to
	top     int32     // no tenants reach beyond it
	full    workerSet // workers with tenants up to top
}

// tenants are the active requests of one worker that hold a node's blocks before to; at least one.
type tenants struct{ worker, to, requests int32 }

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
	end := int32(0)
	for _, s := range path {
		if s.From >= prompt {
			break
		}
		end = min(s.To, prompt)
		n := f.nodes[s.Key]
		if n == nil {
			n = f.newEntry()
			f.nodes[s.Key] = n
		}
		before := n.reach(worker, s.From)
		i, held := n.position(worker, end)
		if !held {
			n.tenants = slices.Insert(n.tenants, i, tenants{worker: int32(worker), to: end})
		}
		n.tenants[i].requests++
		if end > n.top {
			n.top = end
			clear(n.full)
		}
		if end == n.top {
			n.full.add(worker)
		}
		added += int64(max(0, end-before))
	}
	return added + int64(prompt-end)
}

// release undoes hold. It returns how many blocks the worker's active requests hold no more.
func (f *footprint) release(worker int, path []trace.Span, prompt int32) (freed int64) {
	end := int32(0)
	for _, s := range path {
		if s.From >= prompt {
			break
		}
		end = min(s.To, prompt)
		n := f.nodes[s.Key]
		i, _ := n.position(worker, end)
		if n.tenants[i].requests--; n.tenants[i].requests > 0 {
			continue
		}
		n.tenants = slices.Delete(n.tenants, i, i+1)
		reach := n.reach(worker, s.From)
		freed += int64(max(0, end-reach))
		if reach < n.top {
			n.full.remove(worker)
		}
		if len(n.tenants) == 0 {
			delete(f.nodes, s.Key)
			n.top = 0
			f.free = append(f.free, n)
		}
	}
	return freed + int64(prompt-end)
}

// shared sets out, for each worker, to the number of a prompt's blocks that its active requests hold already. Every
// active prompt begins at the root, so these are the head of the path.
func (f *footprint) shared(path []trace.Span, prompt int32, out []int32) {
	copy(f.match, f.all)
	heads(f.nodes, path, prompt, f.match, out)
}

func (f *footprint) newEntry() *tenancy {
	if last := len(f.free) - 1; last >= 0 {
		n := f.free[last]
		f.free = f.free[:last]
		return n
	}
	return &tenancy{full: make(workerSet, len(f.all))}
}

// position returns where the tenants of worker up to block to are, or would be.
func (n *tenancy) position(worker int, to int32) (int, bool) {
	return slices.BinarySearchFunc(n.tenants, tenants{worker: int32(worker), to: to}, func(a, b tenants) int {
		if a.worker != b.worker {
			return int(a.worker - b.worker)
		}
		return int(a.to - b.to)
	})
}

func (n *tenancy) whole(_, to int32) workerSet {
	if to <= n.top {
		return n.full
	}
	return nil
}

// reach returns the block up to which worker's active requests hold the node, from when none does.
func (n *tenancy) reach(worker int, from int32) int32 {
	i, _ := n.position(worker+1, 0)
	if i > 0 && n.tenants[i-1].worker == int32(worker) {
		return n.tenants[i-1].to
	}
	return from
}
