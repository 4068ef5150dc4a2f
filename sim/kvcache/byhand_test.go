package kvcache

import (
	"slices"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

// newPool returns a pool of blocks of the given size.
func newPool(t testing.TB, size, blocks int) *Pool {
	t.Helper()
	p, err := New(Options{BlockSize: size, Blocks: blocks, PrefixCaching: true, Events: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// own returns a path of one tree node.
func own(id trace.NodeID, blocks int32) []trace.Span {
	return []trace.Span{{Key: trace.MakeKey(id, 0), From: 0, To: blocks}}
}

// admit adds a request that computes the given number of tokens at once.
func admit(t testing.TB, p *Pool, path []trace.Span, tokens int32) *Table {
	t.Helper()
	table := &Table{Path: path, Class: Normal}
	size := int32(p.BlockSize)
	hits := min(p.Lookup(path, tokens/size), (tokens-1)/size)
	if !p.Admit(table, hits, tokens, p.blocksFor(tokens), 0) {
		t.Fatalf("%d tokens on %v do not fit %d free blocks", tokens, path, p.Free())
	}
	return table
}

// wantHits checks how many leading blocks of a path are cached.
func wantHits(t *testing.T, p *Pool, when string, path []trace.Span, want int32) {
	t.Helper()
	if got := p.Lookup(path, path[len(path)-1].To); got != want {
		t.Errorf("%s: %d blocks of node %d are cached, want %d", when, got, path[0].Key.Node(), want)
	}
}

// TestEvictionOrder: the least recently released request loses blocks first, the last one first; what has been hit
// since counts from its new release.
func TestEvictionOrder(t *testing.T) {
	p := newPool(t, 1, 6)
	a, b := own(1, 3), own(2, 2)
	p.Release(admit(t, p, a, 3))
	p.Release(admit(t, p, b, 2))
	// 1 block holds nothing, then come a2 a1 a0 b1 b0.
	for _, step := range []struct {
		taken          int
		hitsA, hitsB   int32
		fresh, evicted int
	}{
		{1, 3, 2, 0, 0},
		{1, 2, 2, 0, 1}, // a2
		{2, 0, 2, 0, 3}, // a1 a0
		{1, 0, 1, 0, 4}, // b1
	} {
		p.Take(step.taken) // and never given back: free blocks only fall
		wantHits(t, p, "after taking", a, step.hitsA)
		wantHits(t, p, "after taking", b, step.hitsB)
		if p.Fresh() != step.fresh || p.Evicted != int64(step.evicted) {
			t.Errorf("%d blocks hold nothing and %d were evicted, want %d and %d", p.Fresh(), p.Evicted, step.fresh, step.evicted)
		}
	}

	p = newPool(t, 1, 6)
	p.Release(admit(t, p, a, 3))
	p.Release(admit(t, p, b, 2))
	p.Release(admit(t, p, own(1, 2), 3)) // hits a0 a1, and its third block is its own: it takes the one that held nothing
	// The queue is a2 b1 b0, then the new request's private block, a1 a0.
	p.Take(2)
	wantHits(t, p, "after a was hit", a, 2)
	wantHits(t, p, "after a was hit", b, 1)
	p.Take(2)
	wantHits(t, p, "after a was hit", a, 2)
	wantHits(t, p, "after a was hit", b, 0)
}

// TestSpareCopy: a request whose whole prompt is cached computes its last block again, into a block of its own that
// takes over when the first copy goes.
func TestSpareCopy(t *testing.T) {
	p := newPool(t, 4, 4)
	path := own(1, 2)
	first := admit(t, p, path, 8)
	second := admit(t, p, path, 8) // hits (8-1)/4 = 1 block
	if p.Held(second) != 2 || p.Used() != 3 {
		t.Fatalf("it holds %d blocks and %d are in use, want 2 and 3", p.Held(second), p.Used())
	}
	p.Release(first)
	if p.Used() != 2 {
		t.Fatalf("%d blocks are in use, want 2", p.Used())
	}
	p.DrainEvents()
	p.Take(2) // the one that held nothing, then the first copy of the second block
	wantHits(t, p, "without the first copy", path, 2)
	if events := p.DrainEvents(); len(events) > 0 {
		t.Errorf("a block with another copy left the cache: %v", events)
	}
	p.Release(second)
	p.Take(1)
	wantHits(t, p, "without any copy", path, 1)
	want := []Event{{trace.Span{Key: path[0].Key, From: 1, To: 2}, true}}
	if events := p.DrainEvents(); !slices.Equal(events, want) {
		t.Errorf("events are %v, want %v", events, want)
	}
}

// TestOlderCopyOfDecode: a block that a decode has filled is older than one that a prefill fills later, though nobody
// has looked since.
func TestOlderCopyOfDecode(t *testing.T) {
	p := newPool(t, 4, 5)
	path := own(1, 2)
	decode := admit(t, p, path, 3)
	p.StartDecode(decode, 3)
	prefill := admit(t, p, path, 1)
	p.Step++           // the decode fills block 0
	p.Grow(prefill, 4) // and now the prefill fills its own
	p.Release(prefill) // that one is free
	hit := &Table{Path: path, Class: Normal}
	p.Admit(hit, 1, 5, p.blocksFor(5), 0) // block 0 of the decode, and a new one
	if p.Free() != 3 {
		t.Errorf("%d of 5 blocks are free, want 3: the two requests share one", p.Free())
	}
}

// TestPendingCopy: a block does not leave the cache when its first copy is evicted after a decode has filled another,
// though nobody has looked since.
func TestPendingCopy(t *testing.T) {
	p := newPool(t, 4, 4)
	path := own(1, 2)
	p.Release(admit(t, p, path, 8))
	decode := admit(t, p, path, 7) // hits block 0
	p.StartDecode(decode, 7)
	p.Step++ // it fills its own block 1
	p.DrainEvents()
	p.Take(2) // the one that held nothing, and the first copy of block 1
	if events := p.DrainEvents(); p.Evicted != 1 || len(events) > 0 {
		t.Errorf("%d blocks were evicted with events %v, want 1 without any", p.Evicted, events)
	}
	wantHits(t, p, "with the decode's copy", path, 2)
}

// TestWithoutCaching: freed blocks hold nothing, and nothing can be made resident.
func TestWithoutCaching(t *testing.T) {
	p, err := New(Options{BlockSize: 4, Blocks: 3})
	if err != nil {
		t.Fatal(err)
	}
	path := own(1, 2)
	p.Release(admit(t, p, path, 8))
	if p.Fresh() != 3 || p.Lookup(path, 2) != 0 || p.Warm(path, 0, 2) != 0 {
		t.Errorf("%d blocks hold nothing, %d hits, %d made resident", p.Fresh(), p.Lookup(path, 2), p.Warm(path, 0, 2))
	}
}

// TestDropBesideSpare: of a request's free blocks only the one stays that a running request has a copy of.
func TestDropBesideSpare(t *testing.T) {
	p := newPool(t, 1, 5)
	path := own(1, 3)
	p.Release(admit(t, p, path, 3))
	running := admit(t, p, own(1, 2), 2) // hits block 0, has a copy of block 1
	dropped, left := p.Drop(path[0])
	// Block 0 is referred to, block 1 stays in both copies, block 2 goes.
	if dropped != 1 || left != 3 {
		t.Errorf("dropped %d and left %d, want 1 and 3", dropped, left)
	}
	p.Release(running)
	wantHits(t, p, "after the drop", path, 2)
}

// TestClassOrder: blocks that change their class join its queue as a freed request would, the last first, however
// they came to be free; lower classes go first.
func TestClassOrder(t *testing.T) {
	p := newPool(t, 1, 5)
	path, other := own(1, 3), own(2, 1)
	whole := admit(t, p, path, 3)
	part := admit(t, p, own(1, 2), 3) // refers to blocks 0 and 1, and has a private one
	p.Release(whole)
	p.Release(part)
	p.Release(admit(t, p, other, 1))
	// The queue is 2, the private block, 1 0, and the other request's.
	p.SetClass(path[0], Low) // 2 1 0 go first
	for _, want := range []int32{2, 1, 0} {
		p.Take(1)
		wantHits(t, p, "in the lowest class", path, want)
	}
	p.Take(1)
	wantHits(t, p, "after the private block", other, 1)
	p.Take(1)
	wantHits(t, p, "at the end", other, 0)
}

// TestWarmAddsWhatFits: history that began before the capture, into a pool that is half in use.
func TestWarmAddsWhatFits(t *testing.T) {
	p := newPool(t, 4, 4)
	running := admit(t, p, own(1, 2), 8)
	path := own(2, 5)
	if got := p.Warm(path, 0, 5); got != 2 {
		t.Errorf("made %d blocks resident, want the 2 that are free", got)
	}
	if got := p.Warm(path, 0, 5); got != 0 {
		t.Errorf("made %d more resident", got)
	}
	wantHits(t, p, "warm", path, 2)
	p.Release(running)
}

// TestAdmitWhereANodeGoesOn: a path leaves a node after its first block, behind which three more are cached. They are free
// for the taking: a request may have all 6 blocks of the pool.
func TestAdmitWhereANodeGoesOn(t *testing.T) {
	p := newPool(t, 1, 6)
	p.Release(admit(t, p, own(1, 4), 4))
	fork := []trace.Span{{Key: trace.MakeKey(1, 0), From: 0, To: 1}, {Key: trace.MakeKey(2, 0), From: 1, To: 6}}
	p.Release(admit(t, p, fork, 3)) // takes the 2 blocks that held nothing
	admit(t, p, fork, 6)            // 3 hits
	if err := p.Check(); err != nil {
		t.Error(err)
	}
}
