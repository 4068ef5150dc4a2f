package trace

import "slices"

// tree builds the prefix tree of a capture: a radix trie over block hashes, on which tails shorter than a block and
// outputs of unknown identity then hang as leaves. A leaf may begin in the middle of a branch.
type tree struct {
	blockSize int32
	branches  []branch
	children  map[childKey]int32
	roots     map[int32]int32 // by hash scope
	tails     map[tailKey]int32
	forks     int64 // tokens, one block less one for each branch that leaves another
}

// branch is a run of blocks (or, for leaves, of tokens) without forks inside.
type branch struct {
	parent     int32
	start, end int32 // tokens
	hashes     []uint64
	inner      bool // others continue it at its end
}

// childKey finds the branch that continues a branch at its end.
type childKey struct {
	parent int32
	hash   uint64
}

// tailKey names a partial block by what makes it equal to another: place, hash and length.
type tailKey struct {
	at     position
	hash   uint64
	length int32
}

// position is a token boundary in the tree: the end of the first tokens tokens on the way to a branch.
type position struct {
	branch int32
	tokens int32
}

func newTree(blockSize, turns int) *tree {
	t := &tree{
		blockSize: int32(max(blockSize, 1)),
		branches:  make([]branch, 1, turns+turns/2+8),
		children:  make(map[childKey]int32, turns),
		roots:     map[int32]int32{},
		tails:     map[tailKey]int32{},
	}
	return t
}

// root returns the root branch of a hash scope. Scopes share the root node of the workload, which holds no tokens.
func (t *tree) root(scope int32) position {
	if r, ok := t.roots[scope]; ok {
		return position{branch: r}
	}
	r := int32(0)
	if len(t.roots) > 0 {
		r = t.add(branch{parent: 0})
	}
	t.roots[scope] = r
	return position{branch: r}
}

func (t *tree) add(b branch) int32 {
	t.branches = append(t.branches, b)
	return int32(len(t.branches) - 1)
}

// up returns the position of the first tokens tokens on the way to p.
func (t *tree) up(p position, tokens int32) position {
	for b := &t.branches[p.branch]; tokens <= b.start && b.end > 0; b = &t.branches[p.branch] {
		p.branch = b.parent
	}
	p.tokens = tokens
	return p
}

// extend follows hashes of full blocks from p, adding what is not in the tree yet, and returns where they end.
func (t *tree) extend(p position, hashes []uint64) position {
	p = t.up(p, p.tokens)
	for len(hashes) > 0 {
		b := &t.branches[p.branch]
		if p.tokens < b.end {
			at := (p.tokens - b.start) / t.blockSize
			n := commonPrefix(b.hashes[at:], hashes)
			p.tokens += int32(n) * t.blockSize
			if hashes = hashes[n:]; len(hashes) == 0 {
				return p
			}
			if p.tokens < b.end {
				p = t.split(p)
			}
			continue
		}
		next, ok := t.children[childKey{p.branch, hashes[0]}]
		if !ok {
			next = t.grow(p, hashes)
			return position{next, t.branches[next].end}
		}
		p.branch = next
	}
	return p
}

// grow adds blocks at the end of p's branch and returns the branch that holds them: the same one when nothing else
// continues it, so that a chain of turns is one branch.
func (t *tree) grow(p position, hashes []uint64) int32 {
	b := &t.branches[p.branch]
	added := int32(len(hashes)) * t.blockSize
	if !b.inner && b.end > 0 {
		b.hashes = append(b.hashes, hashes...)
		b.end += added
		return p.branch
	}
	if b.inner {
		t.forks += int64(t.blockSize - 1)
	}
	b.inner = true
	next := t.add(branch{parent: p.branch, start: p.tokens, end: p.tokens + added, hashes: slices.Clip(hashes)})
	t.children[childKey{p.branch, hashes[0]}] = next
	return next
}

// split cuts p's branch at p. The lower part keeps the branch number, so positions below stay valid; those above are
// found again by up.
func (t *tree) split(p position) position {
	b := &t.branches[p.branch]
	at := (p.tokens - b.start) / t.blockSize
	upper := branch{parent: b.parent, start: b.start, end: p.tokens, hashes: b.hashes[:at], inner: true}
	b.start, b.hashes = p.tokens, b.hashes[at:]
	lowerHash := b.hashes[0]
	u := t.add(upper)
	t.branches[p.branch].parent = u
	t.children[childKey{upper.parent, upper.hashes[0]}] = u
	t.children[childKey{u, lowerHash}] = p.branch
	return position{u, p.tokens}
}

// tail returns the end of a partial block of the given length behind p. Two tails are one if place, hash and length
// are equal.
func (t *tree) tail(p position, hash uint64, length int32) position {
	p = t.up(p, p.tokens)
	key := tailKey{p, hash, length}
	leaf, ok := t.tails[key]
	if !ok {
		leaf = t.leaf(p, length)
		t.tails[key] = leaf
	}
	return position{leaf, p.tokens + length}
}

// leaf adds a private run of tokens behind p.
func (t *tree) leaf(p position, length int32) int32 {
	p = t.up(p, p.tokens)
	return t.add(branch{parent: p.branch, start: p.tokens, end: p.tokens + length})
}

// precedes tells whether the first a.tokens tokens on the way to a are those on the way to b.
func (t *tree) precedes(a, b position) bool {
	return a.tokens <= b.tokens && t.up(b, a.tokens).branch == t.up(a, a.tokens).branch
}

func commonPrefix(a, b []uint64) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// nodes returns the finished tree. Positions keep their branch numbers as node ids.
func (t *tree) nodes() []node {
	nodes := make([]node, len(t.branches))
	for i := range t.branches {
		b := &t.branches[i]
		nodes[i] = node{parent: NodeID(b.parent), start: b.start, sharedTo: b.start}
	}
	return nodes
}
