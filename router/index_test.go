package router

import (
	"slices"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

func TestIndexRuns(t *testing.T) {
	// One node of blocks 10..19 below a parent of blocks 0..9 that workers 0, 1 and 64 hold.
	path := []trace.Span{{Key: 1, From: 0, To: 10}, {Key: 2, From: 10, To: 20}}
	span := func(from, to int32) trace.Span { return trace.Span{Key: 2, From: from, To: to} }
	for _, test := range []struct {
		name    string
		change  func(x *index)
		limit   int32
		overlap [3]int32 // of workers 0, 1 and 64
		runs    []run
	}{
		{"nothing", func(x *index) {}, 20, [3]int32{10, 10, 10}, nil},
		{"whole node", func(x *index) { x.store(64, span(10, 20)) }, 20, [3]int32{10, 10, 20}, nil},
		{"limited by the prompt", func(x *index) { x.store(64, span(10, 20)) }, 15, [3]int32{10, 10, 15}, nil},
		{"limited within the parent", func(x *index) { x.store(64, span(10, 20)) }, 5, [3]int32{5, 5, 5}, nil},
		{"in two steps", func(x *index) {
			x.store(0, span(10, 14))
			x.store(0, span(14, 20))
			x.store(1, span(10, 14))
		}, 20, [3]int32{20, 14, 10}, []run{{1, 10, 14}}},
		{"another worker makes the node longer", func(x *index) {
			x.store(0, span(10, 14))
			x.store(1, span(10, 20))
		}, 20, [3]int32{14, 20, 10}, []run{{0, 10, 14}}},
		{"back to front", func(x *index) {
			x.store(1, span(15, 20))
			x.store(1, span(10, 15))
		}, 20, [3]int32{10, 20, 10}, nil},
		{"a hole", func(x *index) {
			x.store(1, span(10, 20))
			x.remove(1, span(12, 15))
		}, 20, [3]int32{10, 12, 10}, []run{{1, 10, 12}, {1, 15, 20}}},
		{"a hole that is filled", func(x *index) {
			x.store(1, span(10, 20))
			x.remove(1, span(12, 15))
			x.store(1, span(11, 16))
		}, 20, [3]int32{10, 20, 10}, nil},
		{"the head is gone", func(x *index) {
			x.store(1, span(10, 20))
			x.remove(1, span(10, 12))
		}, 20, [3]int32{10, 10, 10}, []run{{1, 12, 20}}},
		{"the tail is gone", func(x *index) {
			x.store(1, span(10, 20))
			x.remove(1, span(18, 20))
		}, 20, [3]int32{10, 18, 10}, []run{{1, 10, 18}}},
		{"several runs at once", func(x *index) {
			x.store(1, span(10, 20))
			x.remove(1, span(12, 13))
			x.remove(1, span(16, 17))
			x.remove(1, span(11, 18))
		}, 20, [3]int32{10, 11, 10}, []run{{1, 10, 11}, {1, 18, 20}}},
		{"stored twice, removed beside", func(x *index) {
			x.store(1, span(10, 20))
			x.store(1, span(12, 14))
			x.remove(1, span(20, 30))
			x.remove(1, span(12, 12))
		}, 20, [3]int32{10, 20, 10}, nil},
		{"the parent is gone", func(x *index) {
			x.store(1, span(10, 20))
			x.remove(1, path[0])
		}, 20, [3]int32{10, 0, 10}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newIndex(70)
			for _, worker := range []int{0, 1, 64} {
				x.store(worker, path[0])
			}
			test.change(x)
			out := make([]int32, 70)
			x.overlap(path, test.limit, out)
			if got := [3]int32{out[0], out[1], out[64]}; got != test.overlap {
				t.Errorf("overlap of workers 0, 1, 64 is %v, want %v", got, test.overlap)
			}
			if out[2] != 0 {
				t.Errorf("worker 2 holds nothing but overlaps %d", out[2])
			}
			if n := x.nodes[2]; n != nil && !slices.Equal(n.runs, test.runs) {
				t.Errorf("runs are %v, want %v", n.runs, test.runs)
			}
		})
	}
}

func TestIndexForgets(t *testing.T) {
	x := newIndex(2)
	s := trace.Span{Key: 1, From: 0, To: 8}
	x.store(0, s)
	x.store(1, s)
	x.remove(0, s)
	if x.nodes[1] == nil {
		t.Fatal("the entry went while worker 1 holds the node")
	}
	x.remove(1, trace.Span{Key: 1, From: 0, To: 4})
	x.remove(1, trace.Span{Key: 1, From: 4, To: 8})
	if len(x.nodes) != 0 {
		t.Fatal("the entry stays though nobody holds the node")
	}
	// The entry that is used again knows nothing of its first node.
	x.store(1, trace.Span{Key: 2, From: 0, To: 2})
	out := make([]int32, 2)
	x.overlap([]trace.Span{{Key: 2, From: 0, To: 8}}, 8, out)
	if !slices.Equal(out, []int32{0, 2}) {
		t.Errorf("overlaps %v, want [0 2]", out)
	}
}
