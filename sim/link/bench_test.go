package link

import (
	"slices"
	"testing"
)

// BenchmarkOwnLinks is 64 workers, each with 4 transfers at a time over a link of its own; one operation is a transfer.
func BenchmarkOwnLinks(b *testing.B) {
	n := network(b, slices.Repeat([]float64{50}, 64)...)
	over := map[Transfer]ID{}
	size := int64(0)
	start := func(id ID) {
		size = (size*7919 + 104729) % 1_000_003
		over[n.Start(n.now, 1_000_000+size, 10_000, id)] = id
	}
	for id := range n.links {
		for range 4 {
			start(ID(id))
		}
	}
	b.ReportAllocs()
	for done := 0; b.Loop(); {
		for done == 0 {
			for _, t := range n.Advance(n.Next()) {
				id := over[t]
				delete(over, t)
				start(id)
				done++
			}
		}
		done--
	}
}

// BenchmarkOneLink is a link with 256 transfers at a time; one operation is a transfer, which changes the shares of all.
func BenchmarkOneLink(b *testing.B) {
	n := network(b, 50)
	for i := range 256 {
		n.Start(0, int64(1_000_000+1000*i), 0, 0)
	}
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		for range n.Advance(n.Next()) {
			n.Start(n.now, 1_000_000+i*7919%1_000_003, 0, 0)
		}
	}
}

// BenchmarkSharedStore is 16 workers with 4 transfers at a time each, over a link of their own and one that all share.
func BenchmarkSharedStore(b *testing.B) {
	n := network(b, append(slices.Repeat([]float64{50}, 16), 200)...)
	for i := range 64 {
		n.Start(0, int64(1_000_000+1000*i), 0, ID(i%16), 16)
	}
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		for range n.Advance(n.Next()) {
			n.Start(n.now, 1_000_000+i*7919%1_000_003, 0, ID(i%16), 16)
		}
	}
}

// BenchmarkEta is the time that the last of 64 transfers on a link has to wait.
func BenchmarkEta(b *testing.B) {
	n := network(b, 50)
	var last Transfer
	for i := range 64 {
		last = n.Start(0, int64(1_000_000+1000*i), 0, 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		n.Eta(0, last)
	}
}
