package server

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

func TestPrefixes(t *testing.T) {
	tree := newPrefixes()
	path := func(blocks ...uint64) []trace.Span {
		p, _ := tree.add(blocks)
		return p
	}
	tests := []struct {
		blocks []uint64
		want   []trace.Span
	}{
		{[]uint64{1, 2, 3}, []trace.Span{{Key: 1, To: 3}}},
		{[]uint64{1, 2, 3, 4}, []trace.Span{{Key: 1, To: 4}}},                           // goes on: the same node
		{[]uint64{1, 2}, []trace.Span{{Key: 1, To: 2}}},                                 // ends inside
		{[]uint64{1, 2, 9, 8}, []trace.Span{{Key: 1, To: 2}, {Key: 2, From: 2, To: 4}}}, // leaves inside
		{[]uint64{1, 2, 9, 7}, []trace.Span{{Key: 1, To: 2}, {Key: 2, From: 2, To: 3}, {Key: 3, From: 3, To: 4}}},
		{[]uint64{5}, []trace.Span{{Key: 4, To: 1}}},
		{nil, nil},
	}
	for _, test := range tests {
		if got := path(test.blocks...); !slices.Equal(got, test.want) {
			t.Errorf("path of %v is %v, want %v", test.blocks, got, test.want)
		}
	}
}

// Two paths agree in just those blocks in which the prompts do, whatever was freed meanwhile, and nothing stays that
// nobody needs.
func TestPrefixesAgree(t *testing.T) {
	type used struct {
		blocks []uint64
		path   []trace.Span
		end    *prefix
	}
	rapid.Check(t, func(t *rapid.T) {
		tree := newPrefixes()
		var live []used
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(live) > 0 && rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				k := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				tree.free(live[k].end)
				live = slices.Delete(live, k, k+1)
				continue
			}
			u := used{blocks: rapid.SliceOfN(rapid.Uint64Range(1, 2), 0, 6).Draw(t, "blocks")}
			for i := range u.blocks { // as a chain of hashes, equal blocks have equal prefixes
				if i > 0 {
					u.blocks[i] += 10 * u.blocks[i-1]
				}
			}
			u.path, u.end = tree.add(u.blocks)
			for _, v := range live {
				n := 0
				for n < len(u.blocks) && n < len(v.blocks) && u.blocks[n] == v.blocks[n] {
					n++
				}
				if got := agree(u.path, v.path); got != n {
					t.Fatalf("paths %v of %v and %v of %v agree in %d blocks, want %d", u.path, u.blocks, v.path, v.blocks, got, n)
				}
			}
			live = append(live, u)
		}
		for _, u := range live {
			tree.free(u.end)
		}
		if len(tree.nodes)+len(tree.forks) > 0 || tree.root.children != 0 {
			t.Fatalf("%d nodes, %d forks and %d children of the root are left", len(tree.nodes), len(tree.forks), tree.root.children)
		}
	})
}

// agree is the number of leading blocks that two paths share.
func agree(a, b []trace.Span) int {
	block := func(path []trace.Span, at int32) trace.Key {
		for _, s := range path {
			if s.From <= at && at < s.To {
				return s.Key
			}
		}
		return 0
	}
	for n := int32(0); ; n++ {
		if x := block(a, n); x == 0 || x != block(b, n) {
			return int(n)
		}
	}
}

// What a cache holds stays, and is found again.
func TestPrefixesKeepWhatIsCached(t *testing.T) {
	tree := newPrefixes()
	path, end := tree.add([]uint64{1, 2, 3})
	tree.cached(kvcache.Event{Span: path[0]})
	tree.free(end)
	again, end := tree.add([]uint64{1, 2})
	if again[0].Key != path[0].Key {
		t.Errorf("what is cached as %v is now %v", path, again)
	}
	tree.free(end)
	tree.cached(kvcache.Event{Span: trace.Span{Key: path[0].Key, To: 2}, Removed: true})
	tree.cached(kvcache.Event{Span: trace.Span{Key: path[0].Key, From: 2, To: 3}, Removed: true})
	if len(tree.nodes) > 0 {
		t.Error("a node stays that no cache holds")
	}
}
