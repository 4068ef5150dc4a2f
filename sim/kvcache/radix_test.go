package kvcache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

func newRadix(t testing.TB, size, blocks int) *Radix {
	t.Helper()
	r, err := NewRadix(Options{BlockSize: size, Blocks: blocks, PrefixCaching: true, Events: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// compute prefills a request of the given tokens as an engine does, and returns its table and how many blocks it found.
func compute(t testing.TB, r *Radix, path []trace.Span, tokens int32) (*Table, int32) {
	t.Helper()
	table := &Table{Path: path}
	hits := r.Match(table, (tokens-1)/int32(r.BlockSize))
	r.Lock(table)
	need := int(r.blocksFor(tokens) - hits)
	r.Evict(need)
	if r.Fresh() < need {
		t.Fatalf("%d tokens on %v do not fit %d fresh blocks", tokens, path, r.Fresh())
	}
	r.Grow(table, tokens, 0)
	r.Insert(table, tokens)
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	return table, hits
}

// wantCounts checks how many blocks hold nothing, and how many hold what nobody has locked.
func wantCounts(t *testing.T, r *Radix, when string, fresh, kept int) {
	t.Helper()
	if r.Fresh() != fresh || r.Cached() != kept {
		t.Errorf("%s: %d fresh and %d kept blocks, want %d and %d", when, r.Fresh(), r.Cached(), fresh, kept)
	}
}

// TestRadixEvictsLeaves: whole leaves go, the least recently used first, and a node becomes a leaf with its last child.
func TestRadixEvictsLeaves(t *testing.T) {
	r := newRadix(t, 1, 20)
	for _, q := range []struct {
		path   []trace.Span
		tokens int32
		hits   int32
	}{
		{own(1, 6), 6, 0},
		{append(own(1, 4), trace.Span{Key: trace.MakeKey(2, 0), From: 4, To: 9}), 9, 4}, // splits node 1: 4 + 2, and adds 5
		{own(3, 3), 3, 0},
	} {
		table, hits := compute(t, r, q.path, q.tokens)
		if hits != q.hits {
			t.Errorf("%v finds %d blocks, want %d", q.path, hits, q.hits)
		}
		r.Finish(table, q.tokens)
	}
	wantCounts(t, r, "at first", 20-6-5-3, 6+5+3)
	r.DrainEvents()

	r.Evict(7) // 6 are fresh. The end of node 1 is the oldest leaf, of 2 blocks, then come 5 of node 2: as many as 7.
	wantCounts(t, r, "after 7", 6+7, 4+3)
	r.Evict(14) // 13 are fresh: the first 4 of node 1 are a leaf now, older than node 3, and both do not make 14
	wantCounts(t, r, "after all", 20, 0)
	var gone []string
	for _, e := range r.DrainEvents() {
		gone = append(gone, fmt.Sprintf("node %d from %d to %d, removed %v", e.Key.Node(), e.From, e.To, e.Removed))
	}
	want := []string{"node 1 from 4 to 6, removed true", "node 2 from 4 to 9, removed true", "node 1 from 0 to 4, removed true",
		"node 3 from 0 to 3, removed true"}
	if !slices.Equal(gone, want) {
		t.Errorf("evicted %q, want %q", gone, want)
	}
}

// TestRadixClaims: what nobody has locked counts once for all paths, and counting is no access.
func TestRadixClaims(t *testing.T) {
	r := newRadix(t, 1, 15)
	for _, path := range [][]trace.Span{own(1, 6), fork(2, 4, 9), fork(3, 2, 5)} { // node 1 is cut at 4 and at 2
		table, _ := compute(t, r, path, path[len(path)-1].To)
		r.Finish(table, path[len(path)-1].To)
	}
	held, _ := compute(t, r, fork(4, 2, 3), 3) // locks the first 2 blocks of node 1
	claims := Claims{}
	for _, q := range []struct {
		path []trace.Span
		want int
	}{
		{fork(2, 4, 7), 2 + 3}, // blocks 2 and 3 of node 1 and what the path has of node 2
		{own(1, 6), 2},
		{fork(3, 2, 9), 3},
		{fork(2, 4, 9), 2},
		{fork(5, 2, 9), 0},
		{own(6, 3), 0},
	} {
		if got := r.Claim(q.path, claims); got != q.want {
			t.Errorf("%v claims %d blocks, want %d", q.path, got, q.want)
		}
	}
	wantCounts(t, r, "all claimed", 0, 2+3+2+2+3)
	r.Finish(held, 3)
	r.Evict(1) // node 1 from 4 on is the oldest leaf, though it was claimed after others
	if n := r.Claim(own(1, 6), Claims{}); n != 4 {
		t.Errorf("after the eviction %d blocks of the oldest path are left, want 4", n)
	}
}

// TestRadixMatchRefreshes: a match makes what it finds the most recently used, even when nothing comes of it.
func TestRadixMatchRefreshes(t *testing.T) {
	r := newRadix(t, 1, 10)
	for id := range trace.NodeID(2) {
		table, _ := compute(t, r, own(id+1, 4), 4)
		r.Finish(table, 4)
	}
	r.Match(&Table{Path: own(1, 4)}, 4)
	r.Evict(3)
	if hits := r.Match(&Table{Path: own(1, 4)}, 4); hits != 4 {
		t.Errorf("%d blocks of the path that was matched are left, want 4", hits)
	}
	if hits := r.Match(&Table{Path: own(2, 4)}, 4); hits != 0 {
		t.Errorf("%d blocks of the other path are left, want none", hits)
	}
}

// TestRadixCopies: of two requests that compute the same tokens side by side, the later to end gives up its copies; what
// is locked stays.
func TestRadixCopies(t *testing.T) {
	r := newRadix(t, 2, 20)
	a, b := &Table{Path: own(1, 5)}, &Table{Path: own(1, 5)}
	for _, table := range []*Table{a, b} {
		r.Match(table, 4)
		r.Lock(table)
		r.Grow(table, 9, 0) // 5 blocks, the last half full
	}
	wantCounts(t, r, "side by side", 10, 0)
	r.Insert(a, 9)
	r.Insert(b, 9) // its first 4 blocks are a's now
	wantCounts(t, r, "in the tree", 14, 0)
	r.StartDecode(a, 9)
	r.Step++ // the tenth token goes into the fifth block
	r.Evict(100)
	wantCounts(t, r, "locked", 14, 0)
	r.Release(b) // it loses its half block
	wantCounts(t, r, "after the release", 15, 0)
	r.Finish(a, 10)
	wantCounts(t, r, "after the end", 15, 5)
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

// TestRadixWarm adds what fits beside what is locked.
func TestRadixWarm(t *testing.T) {
	r := newRadix(t, 1, 10)
	held, _ := compute(t, r, own(1, 6), 6)
	if added := r.Warm(own(2, 9), 0, 9); added != 4 {
		t.Errorf("added %d blocks, want 4", added)
	}
	wantCounts(t, r, "warm", 0, 4)
	if added := r.Warm(own(2, 9), 0, 3); added != 0 {
		t.Errorf("added %d blocks again, want none", added)
	}
	r.Finish(held, 6)
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

// TestRadixWithoutCaching: nothing is kept, nothing found.
func TestRadixWithoutCaching(t *testing.T) {
	r, err := NewRadix(Options{BlockSize: 1, Blocks: 10})
	if err != nil {
		t.Fatal(err)
	}
	table, _ := compute(t, r, own(1, 4), 4)
	r.Finish(table, 4)
	wantCounts(t, r, "at the end", 10, 0)
	if added := r.Warm(own(1, 4), 0, 4); added != 0 {
		t.Errorf("added %d blocks without a cache", added)
	}
}

// BenchmarkRadix is a request with a prompt of 100 cached nodes, whose own tokens are evicted later: its time depends on
// the nodes and not on their blocks.
func BenchmarkRadix(b *testing.B) {
	for _, blocks := range []int32{10, 1000} {
		b.Run(fmt.Sprintf("blocks=%d", blocks), func(b *testing.B) {
			r := newRadix(b, 1, int(blocks)*200)
			r.Events = false
			path := own(1, blocks)
			for i := range int32(100) {
				path = append(path, trace.Span{Key: trace.MakeKey(trace.NodeID(i+2), 0), From: (i + 1) * blocks, To: (i + 2) * blocks})
				table, _ := compute(b, r, path, (i+2)*blocks)
				r.Finish(table, (i+2)*blocks)
			}
			last := &path[len(path)-1]
			tokens := last.To
			table := &Table{Path: path}
			id := trace.NodeID(0)
			b.ReportAllocs()
			for b.Loop() {
				id = (id + 1) % 1000
				last.Key = trace.MakeKey(1000+id, 0)
				r.Match(table, tokens-1)
				r.Lock(table)
				r.Evict(int(blocks))
				r.Grow(table, tokens, 0)
				r.Insert(table, tokens)
				r.Finish(table, tokens)
			}
		})
	}
}
