package router

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever happens in whatever order: what is placed is placed once and on a worker that is there, what waits can go
// when all workers are back and idle, and in the end nothing is booked.
func TestSubmitAndDrainLifecycle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Defaults(rapid.SampledFrom(Policies()).Draw(t, "policy"))
		s.ThresholdTokens = rapid.Int64Range(0, 60).Draw(t, "threshold")
		s.Queue.Policy = rapid.SampledFrom(queuePolicies).Draw(t, "queue policy")
		s.SessionAffinity.Mode = rapid.SampledFrom([]string{"off", "soft", "hard"}).Draw(t, "affinity")
		s.SessionAffinity.TTL = time.Second
		s.UseKVEvents = rapid.Bool().Draw(t, "events")
		s.TrackOutputBlocks = rapid.Bool().Draw(t, "output")
		s.PrefillTokens = rapid.Int64Range(0, 200).Draw(t, "limit")
		r, err := New(s, Pool{Workers: 3, BlockSize: 4, KVBlocks: 100}, 1)
		if err != nil {
			t.Fatal(err)
		}
		r.Tokens = func(q *Request) int32 { return q.Input + 9 }
		paths := randomTree(t)
		now := time.Duration(0)
		there := []bool{true, true, true}
		waits, runs := map[*Request]bool{}, []*Request{}
		act := func(decisions []Decision) {
			for _, d := range decisions {
				if !waits[d.Request] {
					t.Fatalf("decided again on request %d", d.Request.ID)
				}
				delete(waits, d.Request)
				if d.Rejected != Placed {
					continue
				}
				if !there[d.Worker] || d.Request.Pinned >= 0 && int(d.Request.Pinned) != d.Worker {
					t.Fatalf("request pinned to %d went to worker %d of %v", d.Request.Pinned, d.Worker, there)
				}
				runs = append(runs, d.Request)
			}
			if len(waits) != r.Waiting() {
				t.Fatalf("%d wait, want %d", r.Waiting(), len(waits))
			}
		}
		running := func(t *rapid.T) int {
			if len(runs) == 0 {
				t.Skip("nothing runs")
			}
			return rapid.IntRange(0, len(runs)-1).Draw(t, "request")
		}
		id := int32(0)
		t.Repeat(map[string]func(*rapid.T){
			"tick": func(t *rapid.T) { now += time.Duration(rapid.IntRange(1, 1500).Draw(t, "ms")) * time.Millisecond },
			"submit": func(t *rapid.T) {
				path := rapid.SampledFrom(paths).Draw(t, "path")
				q := unbound(Request{ID: id, Path: path, PromptBlocks: path[len(path)-1].To, ExpectedOutput: id % 2 * 12,
					Session: rapid.Uint64Range(0, 3).Draw(t, "session"), StrictPriority: rapid.Uint32Range(0, 1).Draw(t, "strict")})
				q.Input = 4*q.PromptBlocks + 3
				q.Pinned = rapid.SampledFrom([]int32{-1, -1, -1, 0, 1, 2, 3}).Draw(t, "pinned")
				q.Preferred = rapid.SampledFrom([]int32{-1, -1, 0, 2, 9}).Draw(t, "preferred")
				id++
				waits[q] = true
				act(r.Submit(now, q))
			},
			"first token": func(t *rapid.T) {
				r.FirstToken(runs[running(t)])
				act(r.Drain(now))
			},
			"done": func(t *rapid.T) {
				i := running(t)
				r.Done(now, runs[i])
				runs = slices.Delete(runs, i, i+1)
				act(r.Drain(now))
			},
			"worker": func(t *rapid.T) {
				w := rapid.IntRange(0, 2).Draw(t, "worker")
				if there[w] = !there[w]; there[w] {
					r.Add(w)
				} else {
					r.Remove(w)
				}
				act(r.Drain(now))
			},
		})
		for w := range there {
			there[w] = true
			r.Add(w)
		}
		act(r.Drain(now))
		for len(runs) > 0 {
			r.Done(now, runs[0])
			runs = runs[1:]
			act(r.Drain(now))
		}
		if len(waits) > 0 {
			t.Fatalf("%d requests wait for idle workers", len(waits))
		}
		for w, l := range r.loads {
			if l != (load{}) {
				t.Fatalf("worker %d is left with %+v", w, l)
			}
		}
	})
}
