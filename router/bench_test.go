package router

import (
	"fmt"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// longPath is a path of n nodes, each of 4 blocks, with keys from first on.
func longPath(first, n int) []trace.Span {
	path := make([]trace.Span, n)
	for i := range path {
		path[i] = trace.Span{Key: trace.MakeKey(trace.NodeID(first+i), 0), From: int32(4 * i), To: int32(4*i + 4)}
	}
	return path
}

func request(path []trace.Span) *Request {
	blocks := path[len(path)-1].To
	return unbound(Request{Input: 16*blocks + 5, PromptBlocks: blocks, Path: path})
}

// BenchmarkPickKV picks for a path that half of the workers hold whole and the others to different depths, while
// each worker serves eight requests, one of them with the same prompt.
func BenchmarkPickKV(b *testing.B) {
	for _, size := range []struct{ workers, nodes int }{{8, 50}, {64, 200}, {512, 200}} {
		b.Run(fmt.Sprintf("%dx%d", size.workers, size.nodes), func(b *testing.B) {
			r := newRouter(b, Defaults("kv"), size.workers, 16, 1)
			path := longPath(1, size.nodes)
			for worker := range size.workers {
				depth := size.nodes
				if worker%2 == 1 {
					depth = worker * 37 % size.nodes
				}
				for _, s := range path[:depth] {
					r.Stored(0, worker, s)
				}
				r.dispatch(request(path), worker, 0)
				for i := range 7 {
					other := longPath(1_000_000+(worker*8+i)*size.nodes, size.nodes)
					for _, s := range other {
						r.Stored(0, worker, s)
					}
					r.dispatch(request(other), worker, 0)
				}
			}
			q := request(path)
			r.choose(time.Second, q)
			b.ReportAllocs()
			for b.Loop() {
				r.choose(time.Second, q)
			}
		})
	}
}

// BenchmarkDispatched books and frees a request whose prompt has 200 nodes.
func BenchmarkDispatched(b *testing.B) {
	r := newRouter(b, Defaults("kv"), 64, 16, 1)
	other := request(longPath(1, 100)) // the first half of the path is held by another request
	r.dispatch(other, 3, 0)
	q := request(longPath(1, 200))
	b.ReportAllocs()
	for b.Loop() {
		r.dispatch(q, 3, 0)
		r.FirstToken(q)
		r.Done(0, q)
	}
}

// BenchmarkSubmitDrain lets a request wait behind many others, and places the first of them.
func BenchmarkSubmitDrain(b *testing.B) {
	for _, depth := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			s := Defaults("kv")
			s.Preset, s.ThresholdTokens = "load-aware", 1
			r := newRouter(b, s, 64, 16, 1)
			running := unbound(Request{Input: 10})
			r.Submit(0, running)
			for range 63 { // all workers become busy
				r.Submit(0, unbound(Request{Input: 10}))
			}
			requests := make([]Request, depth)
			for i := range requests {
				requests[i] = *unbound(Request{Input: 10, PriorityJump: float64(i * 7919 % 1000)})
				r.Submit(time.Duration(i), &requests[i])
			}
			now := time.Second
			b.ReportAllocs()
			for b.Loop() {
				now++
				r.Done(now, running)
				next := r.Drain(now)[0].Request
				r.Submit(now, running)
				running = next
			}
			if r.Waiting() != depth {
				b.Fatalf("%d wait, want %d", r.Waiting(), depth)
			}
		})
	}
}

// BenchmarkEvents stores 200 nodes, makes them visible, and removes them again: 400 events an operation.
func BenchmarkEvents(b *testing.B) {
	s := Defaults("kv")
	s.EventDelay = time.Millisecond
	r := newRouter(b, s, 64, 16, 1)
	path, q := longPath(1, 200), unbound(Request{})
	now, n := time.Duration(0), 0
	b.ReportAllocs()
	for b.Loop() {
		now += time.Millisecond
		worker := n % 64
		n++
		for _, s := range path {
			r.Stored(now, worker, s)
		}
		r.choose(now+time.Millisecond, q)
		for _, s := range path {
			r.Removed(now+time.Millisecond, worker, s)
		}
		r.choose(now+2*time.Millisecond, q)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(400*n), "ns/event")
}

func BenchmarkPick(b *testing.B) {
	for _, policy := range Policies()[:5] {
		b.Run(policy, func(b *testing.B) {
			r := newRouter(b, Settings{Policy: policy}, 64, 16, 1)
			q := unbound(Request{})
			b.ReportAllocs()
			for b.Loop() {
				r.choose(0, q)
			}
		})
	}
}
