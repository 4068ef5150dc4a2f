package server

import (
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// prefixes is the tree of all prompts and answers that matter now, in KV blocks. It grows with every request, and forgets
// what no request uses and no cache holds. Each block is told by its sequence hash (hash.Blocks).
//
// A node is a run of blocks that only ever grows at its end. A prompt that leaves it in the middle goes on in a child that
// begins there, so that keys which caches and routers know keep their meaning: nothing is ever split.
type prefixes struct {
	nodes  map[trace.Key]*prefix
	forks  map[fork]*prefix
	root   prefix
	lastID uint64
}

// prefix is a node.
type prefix struct {
	key    trace.Key
	parent *prefix
	at     int32 // its first block, counted from the start of the prompt
	hashes []uint64
	// users counts requests that end here, children nodes below, and cached the blocks of it in caches, of all workers.
	users, children, cached int32
}

// fork finds the child of a node that begins with a block at a place.
type fork struct {
	parent trace.Key
	at     int32
	hash   uint64
}

func newPrefixes() *prefixes {
	return &prefixes{nodes: map[trace.Key]*prefix{}, forks: map[fork]*prefix{}}
}

// add returns the path of blocks, and the node in which it ends, which is kept until it is freed.
func (t *prefixes) add(blocks []uint64) ([]trace.Span, *prefix) {
	var path []trace.Span
	n := &t.root
	for at := 0; at < len(blocks); {
		within := at - int(n.at)
		if next := t.forks[fork{n.key, int32(at), blocks[at]}]; next != nil {
			n = next
		} else if n == &t.root || within < len(n.hashes) {
			n = t.branch(n, int32(at), blocks[at:])
		} else {
			n.hashes = append(n.hashes, blocks[at:]...)
		}
		from := at
		for at < len(blocks) && at-int(n.at) < len(n.hashes) && n.hashes[at-int(n.at)] == blocks[at] {
			at++
		}
		if k := len(path); k > 0 && path[k-1].Key == n.key {
			path[k-1].To = int32(at)
		} else {
			path = append(path, trace.Span{Key: n.key, From: int32(from), To: int32(at)})
		}
	}
	n.users++
	return path, n
}

// branch adds a child of n that begins with blocks at a place.
func (t *prefixes) branch(n *prefix, at int32, blocks []uint64) *prefix {
	t.lastID++
	child := &prefix{key: trace.Key(t.lastID), parent: n, at: at, hashes: append([]uint64(nil), blocks...)}
	t.nodes[child.key], t.forks[fork{n.key, at, blocks[0]}] = child, child
	n.children++
	return child
}

// free gives up the end of a request's path.
func (t *prefixes) free(n *prefix) {
	n.users--
	t.prune(n)
}

// cached notes that blocks entered or left a cache.
func (t *prefixes) cached(ev kvcache.Event) {
	n := t.nodes[ev.Key]
	if n == nil {
		return
	}
	if !ev.Removed {
		n.cached += ev.To - ev.From
		return
	}
	n.cached -= ev.To - ev.From
	t.prune(n)
}

// prune forgets a node, and those above it, that nobody needs.
func (t *prefixes) prune(n *prefix) {
	for n.parent != nil && n.users == 0 && n.children == 0 && n.cached == 0 {
		delete(t.nodes, n.key)
		delete(t.forks, fork{n.parent.key, n.at, n.hashes[0]})
		n.parent.children--
		n = n.parent
	}
}
