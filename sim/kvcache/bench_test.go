package kvcache

import (
	"testing"

	"github.com/agentsim/agentsim/trace"
)

// chain returns a path of many nodes of 20 blocks each, whose keys begin at first.
func chain(first trace.NodeID, nodes int32) []trace.Span {
	var path []trace.Span
	for i := range nodes {
		path = append(path, trace.Span{Key: trace.MakeKey(first+trace.NodeID(i), 0), From: 20 * i, To: 20 * (i + 1)})
	}
	return path
}

// BenchmarkAdmitRelease is a request with a path of 60 nodes, 1200 blocks: all cached, or each time evicted by another
// one meanwhile.
func BenchmarkAdmitRelease(b *testing.B) {
	const tokens = 60 * 20 * 16
	for _, bench := range []struct {
		name   string
		blocks int
	}{{"cached", 3000}, {"evicted", 1800}} {
		b.Run(bench.name, func(b *testing.B) {
			p := newPool(b, 16, bench.blocks)
			paths := [][]trace.Span{chain(1, 60), chain(100, 60)}
			var table Table
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				table.Path, table.Class = paths[i%2], Normal
				hits := min(p.Lookup(table.Path, 1200), (tokens-1)/16)
				if !p.Admit(&table, hits, tokens, p.blocksFor(tokens), 0) {
					b.Fatal("does not fit")
				}
				p.Release(&table)
				p.DrainEvents()
			}
		})
	}
}

// BenchmarkLookup finds a cached path of 60 nodes.
func BenchmarkLookup(b *testing.B) {
	p := newPool(b, 16, 3000)
	path := chain(1, 60)
	p.Release(admit(b, p, path, 60*20*16))
	b.ReportAllocs()
	for b.Loop() {
		if p.Lookup(path, 1200) != 1200 {
			b.Fatal("not cached")
		}
	}
}
