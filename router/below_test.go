package router

import (
	"slices"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

// A prompt of 10 blocks, over three idle workers; prefill and decode are 10 each:
//
//	worker 0: 4 blocks on its GPUs, the first 8 in its host: credit 4 + 4 * 0.75
//	worker 1: the first 6 in its host, all on a drive: 6 * 0.75 + 4 * 0.25
//	worker 2: blocks 5 to 10 in its host, which lack the first: none
//
// What a tier loses, and what a worker that goes had, counts no more.
func TestTiersBelowCount(t *testing.T) {
	r := newRouter(t, Defaults("kv"), 3, 10, 1)
	part := func(from, to int32) trace.Span { return trace.Span{Key: 1, From: from, To: to} }
	costs := func(want ...float64) {
		t.Helper()
		r.choose(0, unbound(Request{Input: 100, PromptBlocks: 10, Path: []trace.Span{part(0, 10)}}))
		if !slices.Equal(r.score.cost, want) {
			t.Errorf("costs %v, want %v", r.score.cost, want)
		}
	}
	costs(20, 20, 20)
	r.Stored(0, 0, part(0, 4))
	r.StoredBelow(0, Host, part(0, 8))
	r.StoredBelow(1, Host, part(0, 6))
	r.StoredBelow(1, Disk, part(0, 10))
	r.StoredBelow(2, Host, part(5, 10))
	costs(20-4-3, 20-4.5-1, 20)
	r.RemovedBelow(0, Host, part(6, 8))
	costs(20-4-1.5, 20-4.5-1, 20)
	r.Remove(1)
	r.Add(1)
	costs(20-4-1.5, 20, 20)
}
