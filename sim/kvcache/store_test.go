package kvcache

import (
	"slices"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

// fork is a path that leaves node 1 at block at, into node id, and ends at block to.
func fork(id trace.NodeID, at, to int32) []trace.Span {
	return append(own(1, at), trace.Span{Key: trace.MakeKey(id, 0), From: at, To: to})
}

// write brings what lacks of a path into the store, as far as it fits, and returns how many blocks that were.
func write(t testing.TB, s *Store, path []trace.Span) (taken int32) {
	t.Helper()
	lacking := s.Lacks(path, 0, path[len(path)-1].To, nil)
	for i := range lacking {
		n := s.Expect(lacking[i])
		lacking[i].To = lacking[i].From + n
		taken += n
	}
	for _, span := range slices.Backward(lacking) {
		s.Arrive(span)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return taken
}

// wantStore checks what a store says of itself.
func wantStore(t *testing.T, s *Store, when string, here, used, free int) {
	t.Helper()
	if s.Len() != here || s.Used() != used || s.Free() != free {
		t.Errorf("%s: %d here, %d used, %d free, want %d, %d and %d", when, s.Len(), s.Used(), s.Free(), here, used, free)
	}
}

// TestStoreStates follows blocks on their way, here, read and gone.
func TestStoreStates(t *testing.T) {
	s, err := NewStore(6)
	if err != nil {
		t.Fatal(err)
	}
	path := fork(2, 4, 7) // 4 blocks of node 1, 3 of node 2
	head, tail := path[0], path[1]
	if n := s.Expect(head); n != 4 {
		t.Fatalf("%d blocks taken, want 4", n)
	}
	wantStore(t, s, "on their way", 0, 4, 2)
	if s.Find(path, 0, 7) != 0 || !slices.Equal(s.Lacks(path, 0, 7, nil), path[1:]) {
		t.Errorf("blocks on their way are found up to %d, and %v lack", s.Find(path, 0, 7), s.Lacks(path, 0, 7, nil))
	}
	if n := s.Expect(head); n != 0 {
		t.Errorf("%d blocks are on their way twice", n)
	}
	if n := s.Expect(tail); n != 2 {
		t.Errorf("%d of 3 blocks taken, want the 2 that fit beside what is on its way", n)
	}
	s.Forget(tail) // the write failed
	s.Arrive(head)
	wantStore(t, s, "arrived", 4, 4, 6)

	if held := s.Hold(path, 1, 7); held != 4 {
		t.Errorf("held up to block %d, want 4", held)
	}
	wantStore(t, s, "read", 4, 4, 3)
	if dropped, left := s.Drop(head); dropped != 1 || left != 3 {
		t.Errorf("dropped %d and left %d, want block 0 dropped and 3 left", dropped, left)
	}
	if n := s.Expect(own(3, 9)[0]); n != 3 {
		t.Errorf("%d blocks taken, want the 3 that nobody reads", n)
	}
	s.Release(path, 1, 4)
	wantStore(t, s, "given back", 3, 6, 3)
	if at := s.Find(path, 1, 7); at != 4 {
		t.Errorf("found up to block %d, want 4", at)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// TestStoreEviction: the least recently used go first, of a path the last block; what was touched or read counts from then.
func TestStoreEviction(t *testing.T) {
	s, _ := NewStore(9)
	a, b, c := fork(2, 2, 4), fork(3, 2, 4), own(4, 3)
	for _, path := range [][]trace.Span{a, b, c} { // b finds 2 blocks of a
		write(t, s, path)
	}
	s.Touch(a, 0, 3) // not its last block
	s.Release(c, 0, s.Hold(c, 0, 1))
	write(t, s, own(5, 8))
	want := []trace.Span{
		{Key: a[1].Key, From: 3, To: 4},                                  // a3
		{Key: b[1].Key, From: 2, To: 4},                                  // b3 b2
		{Key: c[0].Key, From: 1, To: 3},                                  // c2 c1
		{Key: a[1].Key, From: 2, To: 3}, {Key: a[0].Key, From: 0, To: 2}, // as touched
	}
	// 4 + 2 + 3 blocks were here: 8 of them go, all but c0.
	if got := s.DrainEvicted(); !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
	if at := s.Find(c, 0, 3); at != 1 {
		t.Errorf("found up to block %d of what was read last, want 1", at)
	}
	if got := s.DrainEvicted(); len(got) > 0 {
		t.Errorf("evicted %v twice", got)
	}
}

// TestStoreSizes: a store without place, or with too much, is refused.
func TestStoreSizes(t *testing.T) {
	for _, blocks := range []int{-1, 0, 1<<30 + 1} {
		if _, err := NewStore(blocks); err == nil {
			t.Errorf("a store of %d blocks was made", blocks)
		}
	}
}

// BenchmarkStore is the path of a turn of 60 nodes, 1200 blocks: all are here and are read, or were evicted by another path
// and are written.
func BenchmarkStore(b *testing.B) {
	for _, bench := range []struct {
		name   string
		blocks int
	}{{"read", 3000}, {"written", 1800}} {
		b.Run(bench.name, func(b *testing.B) {
			s, err := NewStore(bench.blocks)
			if err != nil {
				b.Fatal(err)
			}
			paths := [][]trace.Span{chain(1, 60), chain(100, 60)}
			var lacking []trace.Span
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				path := paths[i%2]
				held := s.Hold(path, 0, 1200)
				lacking = s.Lacks(path, held, 1200, lacking[:0])
				for _, span := range lacking {
					s.Expect(span)
				}
				for _, span := range slices.Backward(lacking) {
					s.Arrive(span)
				}
				s.Release(path, 0, held)
				s.DrainEvicted()
			}
			if bench.name == "read" != (len(lacking) == 0) {
				b.Errorf("%d spans were written in the last turn", len(lacking))
			}
		})
	}
}
