package router

import (
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
	"pgregory.net/rapid"
)

// A prompt counts for two seconds from when it was last sent. Blocks 0..9, then 0..3 of them again one second later.
func TestPredictionsExpire(t *testing.T) {
	s := Defaults("kv")
	s.UseKVEvents, s.TTL = false, 2*time.Second
	r := newRouter(t, s, 2, 10, 1)
	if r.WantsEvents() {
		t.Error("a router without KV events wants them")
	}
	long := unbound(Request{Input: 100, PromptBlocks: 10, Path: []trace.Span{{Key: 1, From: 0, To: 8}, {Key: 2, From: 8, To: 10}}})
	short := unbound(Request{Input: 45, PromptBlocks: 4, Path: long.Path})
	long.Pinned, short.Pinned = 1, 1
	r.Submit(0, long)
	r.Submit(time.Second, short)
	for _, test := range []struct {
		now  time.Duration
		want int32
	}{{time.Second, 10}, {2*time.Second - 1, 10}, {2 * time.Second, 4}, {3*time.Second - 1, 4}, {3 * time.Second, 0}} {
		if got := r.overlapOn(test.now, long, 1); got != test.want {
			t.Errorf("at %v: %d blocks, want %d", test.now, got, test.want)
		}
		if got := r.overlapOn(test.now, long, 0); got != 0 {
			t.Errorf("at %v: worker 0 holds %d blocks, want none", test.now, got)
		}
	}
	if p := r.guess; len(p.sent) != 0 || len(p.due) != 0 || len(p.index.nodes) != 0 {
		t.Errorf("%d nodes, %d visits and %d entries are left", len(p.sent), len(p.due), len(p.index.nodes))
	}
}

// Beside events the greater overlap of both counts.
func TestPredictedTTL(t *testing.T) {
	s := Defaults("kv")
	s.PredictedTTL, s.EventDelay = time.Second, 100*time.Millisecond
	r := newRouter(t, s, 1, 10, 1)
	q := unbound(Request{Input: 100, PromptBlocks: 10, Path: []trace.Span{{Key: 1, From: 0, To: 10}}})
	r.Stored(0, 0, trace.Span{Key: 1, From: 0, To: 6})
	head := unbound(Request{Input: 40, PromptBlocks: 4, Path: q.Path})
	r.Submit(0, head)
	for _, test := range []struct {
		now  time.Duration
		want int32
	}{{50 * time.Millisecond, 4}, {100 * time.Millisecond, 6}, {2 * time.Second, 6}} {
		if got := r.overlapOn(test.now, q, 0); got != test.want {
			t.Errorf("at %v: %d blocks, want %d", test.now, got, test.want)
		}
	}
	if !r.WantsEvents() {
		t.Error("wants no events")
	}
}

// The model of predictions: for each block and worker, until when it counts.
func TestPredictionsAgainstBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ttl = 5
		p := newPredictions(ttl, 3)
		type copyOf struct {
			block
			worker int
		}
		until := map[copyOf]time.Duration{}
		paths := randomTree(t)
		now := time.Duration(0)
		worker := rapid.IntRange(0, 2)
		t.Repeat(map[string]func(*rapid.T){
			"tick": func(t *rapid.T) { now += time.Duration(rapid.IntRange(1, 4).Draw(t, "ticks")) },
			"add": func(t *rapid.T) {
				q := &Request{Path: rapid.SampledFrom(paths).Draw(t, "path")}
				q.PromptBlocks = rapid.Int32Range(0, q.Path[len(q.Path)-1].To).Draw(t, "prompt")
				w := worker.Draw(t, "worker")
				p.add(now, int32(w), q.Path, q.PromptBlocks)
				for _, b := range promptBlocks(q) {
					until[copyOf{b, w}] = now + ttl
				}
			},
			"clear": func(t *rapid.T) {
				w := worker.Draw(t, "worker")
				p.clear(w)
				for c := range until {
					if c.worker == w {
						delete(until, c)
					}
				}
			},
			"": func(t *rapid.T) {
				p.expire(now)
				out := make([]int32, 3)
				for _, path := range paths {
					q := &Request{Path: path, PromptBlocks: path[len(path)-1].To}
					p.index.overlap(path, q.PromptBlocks, out)
					for w, got := range out {
						want := int32(0)
						for _, b := range promptBlocks(q) {
							if until[copyOf{b, w}] <= now {
								break
							}
							want++
						}
						if got != want {
							t.Fatalf("at %d worker %d holds %d blocks of %v, want %d", now, w, got, path, want)
						}
					}
				}
			},
		})
		now += ttl
		p.expire(now)
		if len(p.sent) != 0 || len(p.due) != 0 || len(p.index.nodes) != 0 {
			t.Fatal("something is left when all has expired")
		}
	})
}
