package router

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
	"pgregory.net/rapid"
)

// A prompt of 100 tokens in blocks of 10, over three workers:
//
//	worker 0: idle, empty cache
//	worker 1: holds the prompt's first 6 blocks; 50 tokens to prefill and 5 blocks of another program
//	worker 2: holds nothing, but a request with the same first 4 blocks is past its first token there
func TestKVCost(t *testing.T) {
	head, tail := trace.Span{Key: 1, From: 0, To: 4}, trace.Span{Key: 2, From: 4, To: 10}
	for _, test := range []struct {
		name string
		edit func(*Settings)
		want []float64
	}{
		// prefill (0+100)/10 = 10, (50+100)/10 = 15, 10; credit 0, 6, 0; decode 0+10, 5+10, 4+10-4.
		{"defaults", func(*Settings) {}, []float64{10 + 10, 15 - 6 + 15, 10 + 10}},
		// The blocks in common count twice: decode 10, 15, 14.
		{"no reuse", func(s *Settings) { s.AssumeKVReuse = false }, []float64{20, 24, 10 + 14}},
		// credit 2*6 = 12 of 15.
		{"credit 2", func(s *Settings) { s.OverlapScoreCredit = 2 }, []float64{20, 15 - 12 + 15, 20}},
		// credit 3*6 = 18 is more than 15: the adjusted prefill stops at 0.
		{"credit 3", func(s *Settings) { s.OverlapScoreCredit = 3 }, []float64{20, 0 + 15, 20}},
		{"credit 0", func(s *Settings) { s.OverlapScoreCredit = 0 }, []float64{20, 15 + 15, 20}},
		// Worker 1 has 50 tokens, 5 blocks, half a prompt, of prefill above the least: 6 / (1 + 2*0.5) = 3.
		{"decay 2", func(s *Settings) { s.OverlapScoreCreditDecay = 2 }, []float64{20, 15 - 3 + 15, 20}},
		{"scale 4", func(s *Settings) { s.PrefillLoadScale = 4 }, []float64{40 + 10, 36 + 15, 40 + 10}},
		{"weight 64", func(s *Settings) { s.DecodeActiveRequestWeight = 64 }, []float64{20, 24 + 64, 20 + 64}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := Defaults("kv")
			test.edit(&s)
			r := newRouter(t, s, 3, 10, 1)
			r.Stored(0, 1, head)
			r.Stored(0, 1, trace.Span{Key: 2, From: 4, To: 6})
			r.dispatch(unbound(Request{Input: 50, PromptBlocks: 5, Path: []trace.Span{{Key: 3, From: 0, To: 5}}}), 1, 0)
			sibling := unbound(Request{Input: 40, PromptBlocks: 4, Path: []trace.Span{head}})
			r.dispatch(sibling, 2, 0)
			r.FirstToken(sibling)

			q := unbound(Request{Input: 100, PromptBlocks: 10, Path: []trace.Span{head, tail}})
			worker, _ := r.choose(0, q)
			if !slices.Equal(r.score.cost, test.want) {
				t.Errorf("costs %v, want %v", r.score.cost, test.want)
			}
			if r.score.cost[worker] != slices.Min(test.want) {
				t.Errorf("picked worker %d at cost %v", worker, r.score.cost[worker])
			}
		})
	}
}

// Overlap credit decays with the prefill load above the least loaded worker's, so a load that all have takes none.
func TestKVCreditDecay(t *testing.T) {
	s := Defaults("kv")
	s.OverlapScoreCreditDecay = 1
	r := newRouter(t, s, 2, 10, 1)
	q := unbound(Request{Input: 40, PromptBlocks: 4, Path: []trace.Span{{Key: 1, From: 0, To: 4}}})
	for worker, tokens := range []int32{80, 120} {
		r.Stored(0, worker, q.Path[0])
		r.dispatch(unbound(Request{Input: tokens}), worker, 0)
	}
	r.choose(0, q)
	// Worker 0: prefill (80+40)/10 = 12, credit 4, decode 4. Worker 1: prefill 16; 4 blocks, one prompt, above the
	// least, so credit 4 / (1 + 1*1) = 2; decode 4.
	if want := []float64{12 - 4 + 4, 16 - 2 + 4}; !slices.Equal(r.score.cost, want) {
		t.Errorf("costs %v, want %v", r.score.cost, want)
	}
}

func TestEventDelay(t *testing.T) {
	s := Defaults("kv")
	s.EventDelay = 5 * time.Millisecond
	r := newRouter(t, s, 2, 16, 1)
	q := unbound(Request{Input: 64, PromptBlocks: 4, Path: []trace.Span{{Key: 1, From: 0, To: 4}}})
	r.Stored(10*time.Millisecond, 1, trace.Span{Key: 1, From: 0, To: 4})
	r.Removed(20*time.Millisecond, 1, trace.Span{Key: 1, From: 2, To: 4})
	for _, test := range []struct {
		now  time.Duration
		want int32
	}{
		{15*time.Millisecond - 1, 0},
		{15 * time.Millisecond, 4}, // visible at exactly 10 ms + 5 ms
		{25*time.Millisecond - 1, 4},
		{25 * time.Millisecond, 2},
	} {
		if got := r.overlapOn(test.now, q, 1); got != test.want {
			t.Errorf("at %v worker 1 is known to hold %d blocks, want %d", test.now, got, test.want)
		}
	}
	// cost 4 + 4 without the cache, 4 - 2 + 4 with it
	if worker, overlap := r.choose(time.Second, q); worker != 1 || overlap != 2 {
		t.Errorf("picked worker %d with %d blocks, want 1 with 2", worker, overlap)
	}
}

func TestFeedOrderAndRoom(t *testing.T) {
	x := newIndex(1)
	var f feed
	span := trace.Span{Key: 1, From: 0, To: 1}
	for i := range 10_000 {
		f.push(event{time.Duration(2 * i), span, true})
		f.push(event{time.Duration(2*i + 1), span, false})
		if i < 5 {
			continue // ten events stay under way
		}
		f.apply(x, 0, time.Duration(2*(i-5)))
		if x.nodes[1] == nil {
			t.Fatalf("event %d: stored last, yet not resident", i)
		}
		f.apply(x, 0, time.Duration(2*(i-5)+1))
		if x.nodes[1] != nil {
			t.Fatalf("event %d: removed last, yet resident", i)
		}
	}
	if cap(f.events) > 64 {
		t.Errorf("the queue of 10 events has grown to %d", cap(f.events))
	}
}

// Ties are uniform: the draw splits evenly among the equal least costs.
func TestChooseTie(t *testing.T) {
	cost := []float64{7, 3, 9, 3, 3}
	for _, test := range []struct {
		draw uint64
		want int
	}{
		{0, 1}, {math.MaxUint64 / 3, 1}, // below 1/3
		{math.MaxUint64/3 + 1, 3}, {1 << 63, 3},
		{math.MaxUint64/3*2 + 1, 4}, {math.MaxUint64, 4},
	} {
		if got := draft(cost, 0, test.draw); got != test.want {
			t.Errorf("draw %#x: index %d, want %d", test.draw, got, test.want)
		}
	}
}

func TestChooseTemperature(t *testing.T) {
	// Costs 0, 1 and 2 at temperature 0.5: weights exp(0) = 1, exp(-1) = 0.3679, exp(-2) = 0.1353, sum 1.5032.
	// The shares end at 0.6652, 0.9100 and 1.
	for _, test := range []struct {
		point float64
		want  int
	}{{0, 0}, {0.66, 0}, {0.67, 1}, {0.90, 1}, {0.92, 2}, {0.999999, 2}} {
		draw := uint64(test.point*(1<<53)) << 11
		if got := draft([]float64{0, 1, 2}, 0.5, draw); got != test.want {
			t.Errorf("point %v: index %d, want %d", test.point, got, test.want)
		}
		// Costs are scaled to their range, so neither an offset nor a factor matters.
		if got := draft([]float64{1000, 1300, 1600}, 0.5, draw); got != test.want {
			t.Errorf("point %v, scaled costs: index %d, want %d", test.point, got, test.want)
		}
	}
	if got := draft([]float64{2, 1, 3}, math.SmallestNonzeroFloat64, math.MaxUint64); got != 1 {
		t.Errorf("almost no temperature: index %d, want the least cost's 1", got)
	}
	if got := draft([]float64{4, 4}, 1, math.MaxUint64); got != 1 {
		t.Errorf("equal costs and the greatest draw: index %d, want 1", got)
	}
}

// slowRouter is the kv policy block by block: sets of blocks, lists of requests, and the formula as it is documented.
type slowRouter struct {
	s       Settings
	size    float64
	pending [][]event
	cached  []map[block]bool
	active  [][]*Request
}

// block is one KV block.
type block struct {
	key trace.Key
	at  int32
}

// promptBlocks lists the prompt's blocks.
func promptBlocks(q *Request) []block {
	var blocks []block
	for _, s := range q.Path {
		for at := s.From; at < min(s.To, q.PromptBlocks); at++ {
			blocks = append(blocks, block{s.Key, at})
		}
	}
	return blocks
}

func (r *slowRouter) costs(now time.Duration, q *Request) (cost []float64, overlap []int32) {
	prefills := make([]float64, len(r.active))
	for w := range r.active {
		for len(r.pending[w]) > 0 && r.pending[w][0].at+r.s.EventDelay <= now {
			e := r.pending[w][0]
			r.pending[w] = r.pending[w][1:]
			for at := e.span.From; at < e.span.To; at++ {
				if b := (block{key: e.span.Key, at: at}); e.stored {
					r.cached[w][b] = true
				} else {
					delete(r.cached[w], b)
				}
			}
		}
		for _, a := range r.active[w] {
			prefills[w] += float64(a.prefill)
		}
	}
	for w := range r.active {
		hit := 0.0
		if r.s.OverlapScoreCredit > 0 {
			for _, b := range promptBlocks(q) {
				if !r.cached[w][b] {
					break
				}
				hit++
			}
		}
		decode := 0.0
		distinct := map[block]bool{}
		for _, a := range append(slices.Clip(r.active[w]), q) {
			decode += float64(len(promptBlocks(a)))
			for _, b := range promptBlocks(a) {
				distinct[b] = true
			}
		}
		if r.s.AssumeKVReuse {
			decode = float64(len(distinct))
		}
		uncached := max(float64(q.Input)-hit*r.size, 0)
		raw := (prefills[w] + uncached + hit*r.size) / r.size
		requestBlocks := math.Ceil(float64(q.Input) / r.size)
		decay := 1 / (1 + r.s.OverlapScoreCreditDecay*((prefills[w]-slices.Min(prefills))/r.size)/requestBlocks)
		adjusted := max(raw-r.s.OverlapScoreCredit*decay*hit, 0)
		cost = append(cost, r.s.PrefillLoadScale*adjusted+decode+
			r.s.DecodeActiveRequestWeight*float64(len(r.active[w])))
		overlap = append(overlap, int32(hit))
	}
	return cost, overlap
}

// randomTree draws a prefix tree of up to 12 nodes and returns the path to each.
func randomTree(t *rapid.T) [][]trace.Span {
	var paths [][]trace.Span
	for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
		var parent []trace.Span
		if p := rapid.IntRange(-1, i-1).Draw(t, "parent"); p >= 0 {
			parent = paths[p]
		}
		from := int32(0)
		if len(parent) > 0 {
			from = parent[len(parent)-1].To
		}
		s := trace.Span{Key: trace.MakeKey(trace.NodeID(i+1), 0), From: from, To: from + rapid.Int32Range(1, 6).Draw(t, "blocks")}
		paths = append(paths, append(slices.Clip(parent), s))
	}
	return paths
}

func TestKVAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 4
		workers := rapid.SampledFrom([]int{1, 3, 70}).Draw(t, "workers")
		s := Defaults("kv")
		s.OverlapScoreCredit = rapid.SampledFrom([]float64{0, 1, 2}).Draw(t, "credit")
		s.OverlapScoreCreditDecay = rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "decay")
		s.DecodeActiveRequestWeight = rapid.SampledFrom([]float64{0, 3}).Draw(t, "weight")
		s.AssumeKVReuse = rapid.Bool().Draw(t, "reuse")
		s.EventDelay = rapid.SampledFrom([]time.Duration{0, 3}).Draw(t, "delay")
		fast, err := New(s, Pool{Workers: workers, BlockSize: size}, 1)
		if err != nil {
			t.Fatal(err)
		}
		slow := &slowRouter{
			s: s, size: size,
			pending: make([][]event, workers),
			cached:  make([]map[block]bool, workers),
			active:  make([][]*Request, workers),
		}
		for w := range workers {
			slow.cached[w] = map[block]bool{}
		}
		paths := randomTree(t)
		now := time.Duration(0)
		worker := rapid.IntRange(0, min(workers, 3)-1) // few, so that much happens on each
		activeOne := func(t *rapid.T) (w, i int) {
			w = worker.Draw(t, "worker")
			if len(slow.active[w]) == 0 {
				t.Skip("no active request")
			}
			return w, rapid.IntRange(0, len(slow.active[w])-1).Draw(t, "request")
		}
		kvEvent := func(t *rapid.T, stored bool) {
			w := worker.Draw(t, "worker")
			path := rapid.SampledFrom(paths).Draw(t, "path")
			e := event{now, rapid.SampledFrom(path).Draw(t, "node"), stored}
			if rapid.Bool().Draw(t, "part") {
				e.span.From = rapid.Int32Range(e.span.From, e.span.To-1).Draw(t, "from")
				e.span.To = rapid.Int32Range(e.span.From+1, e.span.To).Draw(t, "to")
			}
			slow.pending[w] = append(slow.pending[w], e)
			if stored {
				fast.Stored(now, w, e.span)
			} else {
				fast.Removed(now, w, e.span)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"tick":    func(t *rapid.T) { now += time.Duration(rapid.IntRange(0, 4).Draw(t, "ticks")) },
			"stored":  func(t *rapid.T) { kvEvent(t, true) },
			"removed": func(t *rapid.T) { kvEvent(t, false) },
			"first token": func(t *rapid.T) {
				w, i := activeOne(t)
				fast.FirstToken(slow.active[w][i])
			},
			"done": func(t *rapid.T) {
				w, i := activeOne(t)
				fast.Done(0, slow.active[w][i])
				slow.active[w] = slices.Delete(slow.active[w], i, i+1)
			},
			"request": func(t *rapid.T) {
				path := rapid.SampledFrom(paths).Draw(t, "path")
				q := unbound(Request{Path: path, PromptBlocks: path[len(path)-1].To})
				if rapid.Bool().Draw(t, "cut") {
					q.PromptBlocks = rapid.Int32Range(0, q.PromptBlocks).Draw(t, "prompt")
				}
				q.Input = q.PromptBlocks*size + rapid.Int32Range(1, size-1).Draw(t, "rest")

				cost, overlap := slow.costs(now, q)
				picked, got := fast.choose(now, q)
				for w := range workers {
					if math.Abs(fast.score.cost[w]-cost[w]) > 1e-9 {
						t.Fatalf("worker %d costs %v, want %v", w, fast.score.cost[w], cost[w])
					}
					if fast.overlapOn(now, q, w) != overlap[w] {
						t.Fatalf("worker %d overlaps %d, want %d", w, fast.overlapOn(now, q, w), overlap[w])
					}
				}
				if got != overlap[picked] || cost[picked] > slices.Min(cost)+1e-9 {
					t.Fatalf("picked worker %d with overlap %d of costs %v, overlaps %v", picked, got, cost, overlap)
				}
				if rapid.Bool().Draw(t, "elsewhere") { // as an affinity layer may
					picked = worker.Draw(t, "target")
				}
				fast.dispatch(q, picked, overlap[picked])
				slow.active[picked] = append(slow.active[picked], q)
			},
		})
		// When all has ended and all caches are empty, the router remembers nothing.
		for w := range workers {
			for _, q := range slow.active[w] {
				fast.Done(0, q)
			}
			if fast.loads[w] != (load{}) {
				t.Fatalf("worker %d is left with %+v", w, fast.loads[w])
			}
			for _, path := range paths {
				fast.Removed(now, w, path[len(path)-1])
			}
		}
		fast.choose(now+s.EventDelay, unbound(Request{}))
		if fast.cache != nil && len(fast.cache.nodes) > 0 || fast.held != nil && len(fast.held.nodes) > 0 {
			t.Fatal("entries are left in the index or the footprint")
		}
	})
}
