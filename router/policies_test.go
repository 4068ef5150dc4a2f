package router

import (
	"fmt"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// table is a router whose workers have so many active requests and hold so many blocks at the head of a prompt of
// ten blocks of ten tokens.
func table(t testing.TB, s Settings, requests []int, held []int32) (*Router, *Request) {
	r := newRouter(t, s, len(requests), 10, 1)
	for worker, n := range requests {
		dispatch(r, worker, n)
		if held != nil {
			r.Stored(0, worker, trace.Span{Key: 1, From: 0, To: held[worker]})
		}
	}
	return r, prompt()
}

func prompt() *Request {
	return unbound(Request{Input: 100, PromptBlocks: 10, Path: []trace.Span{{Key: 1, From: 0, To: 10}}})
}

func TestTwoTier(t *testing.T) {
	for _, test := range []struct {
		name     string
		requests []int
		held     []int32
		want     int
	}{
		{"the cache tier outranks load", []int{0, 4}, []int32{0, 6}, 1},
		{"half of the prompt is not more than half", []int{0, 4}, []int32{0, 5}, 0},
		{"of the deepest the least loaded", []int{0, 5, 4, 4}, []int32{0, 9, 9, 8}, 2},
		{"of equal ones the lowest", []int{0, 4, 4}, []int32{0, 9, 9}, 1},
		{"a spread of 33 is too much", []int{0, 33}, []int32{0, 10}, 0},
		{"a spread of 32 is not", []int{0, 32}, []int32{0, 10}, 1},
		{"704 is not more than 1.1 of 640", []int{640, 704}, []int32{0, 10}, 1},
		{"705 is", []int{640, 705}, []int32{0, 10}, 0},
	} {
		r, q := table(t, Defaults("two-tier"), test.requests, test.held)
		if worker, overlap := r.choose(0, q); worker != test.want || overlap != test.held[test.want] {
			t.Errorf("%s: worker %d with %d blocks, want %d", test.name, worker, overlap, test.want)
		}
	}
}

func TestLMetric(t *testing.T) {
	for _, test := range []struct {
		name     string
		requests []int
		held     []int32
		want     int
	}{
		// 100 tokens * 1 against 20 tokens * 4.
		{"hits against batch size", []int{0, 3}, []int32{0, 8}, 1},
		{"100 * 1 ties with 20 * 5: the lowest", []int{0, 4}, []int32{0, 8}, 0},
		{"all cached counts as one token", []int{3, 1}, []int32{10, 10}, 1},
		{"idle counts as one request", []int{0, 0}, []int32{3, 4}, 1},
	} {
		r, q := table(t, Defaults("lmetric"), test.requests, test.held)
		if worker, overlap := r.choose(0, q); worker != test.want || overlap != test.held[test.want] {
			t.Errorf("%s: worker %d with %d blocks, want %d", test.name, worker, overlap, test.want)
		}
	}
}

// One of four workers holds the prompt. At every choice all arrivals so far are of its class, which is more than its
// share of a quarter: from the second time on the holder is left out.
func TestLMetricHotSpot(t *testing.T) {
	r, q := table(t, Defaults("lmetric"), []int{2, 1, 1, 1}, []int32{10, 0, 0, 0})
	for i, want := range []int{0, 1, 1} {
		if worker, _ := r.choose(0, q); worker != want {
			t.Errorf("choice %d: worker %d, want %d", i, worker, want)
		}
	}
	// Three choices of other classes bring the share down to 4 of 7 and end nothing; 16 more, to 5 of 24 with the next,
	// whose 5 * 3 <= 19 * 1, end the alarm.
	other := func(n int) {
		for i := range n {
			key := trace.MakeKey(trace.NodeID(100+i), 0)
			r.choose(0, unbound(Request{Input: 100, PromptBlocks: 10, Path: []trace.Span{{Key: key, From: 0, To: 10}}}))
		}
	}
	other(3)
	if worker, _ := r.choose(0, q); worker != 1 {
		t.Errorf("at 4 of 7: worker %d, want 1", worker)
	}
	other(16)
	if worker, _ := r.choose(0, q); worker != 0 {
		t.Errorf("at 5 of 24: worker %d, want the holder 0", worker)
	}
	// Prompts of fewer than four blocks are no class.
	short := unbound(Request{Input: 39, PromptBlocks: 3, Path: q.Path})
	for range 5 {
		if worker, _ := r.choose(0, short); worker != 0 {
			t.Errorf("short prompt: worker %d, want 0", worker)
		}
	}
}

// With two holders among four workers a class that is all there is alarms at its fourth choice of a holder in a row.
func TestHotSpotStreak(t *testing.T) {
	h := hotspots{classes: map[trace.Key]*hotspot{}}
	for i, step := range []struct{ chosen, want bool }{
		{true, false}, {true, false}, {true, false}, {false, false}, // one that is no holder ends the streak
		{true, false}, {true, false}, {true, false}, {true, true}, {true, true}, {false, false}, {true, false},
	} {
		if got := h.alarm(1, 2, 2, step.chosen); got != step.want {
			t.Errorf("choice %d: alarm is %v, want %v", i, got, step.want)
		}
	}
}

// The window forgets: after a thousand other choices a class begins anew.
func TestHotSpotWindow(t *testing.T) {
	h := hotspots{classes: map[trace.Key]*hotspot{}}
	h.alarm(1, 1, 3, true)
	for i := range hotWindow {
		h.alarm(trace.Key(2+i%2), 1, 3, false)
	}
	if h.classes[1] != nil || len(h.classes) != 2 || len(h.recent) != hotWindow {
		t.Errorf("%d classes in a window of %d, want 2 of %d", len(h.classes), len(h.recent), hotWindow)
	}
	if sum := h.classes[2].arrivals + h.classes[3].arrivals; sum != hotWindow {
		t.Errorf("%d arrivals in the window", sum)
	}
}

func TestLoadGuard(t *testing.T) {
	for _, test := range []struct {
		name     string
		requests []int
		bound    int32
		want     int
	}{
		{"unbound: the least loaded", []int{2, 0, 1}, -1, 1},
		{"unbound: the lowest of equals", []int{2, 1, 1}, -1, 1},
		{"stays up to 32 requests", []int{32, 0}, 0, 0},
		{"leaves with 33", []int{33, 0, 1}, 0, 1},
		{"not for one fewer", []int{40, 39}, 0, 0},
		{"for two fewer", []int{40, 38}, 0, 1},
		{"not for more", []int{33, 40}, 0, 0},
	} {
		d := newDesk(t, len(test.requests), func(s *Settings) { s.Policy = "soft-affinity-load-guard" })
		if test.bound >= 0 {
			d.submit(10, func(q *Request) { q.Session, q.Pinned = 1, test.bound })
			d.done(0)
		}
		for worker, n := range test.requests {
			dispatch(d.Router, worker, n)
		}
		d.want(test.name, d.submit(10, func(q *Request) { q.Session = 1 }), fmt.Sprintf("%d>%d", len(d.requests)-1, test.want))
	}
}

// First turns go where the fewest sessions live, whatever runs there; later turns follow.
func TestProgramCount(t *testing.T) {
	d := newDesk(t, 3, func(s *Settings) { s.Policy = "program-count" })
	dispatch(d.Router, 0, 9)
	session := func(id uint64) func(*Request) { return func(q *Request) { q.Session = id } }
	for i, want := range []string{"0>0", "1>1", "2>2", "3>0"} {
		d.want("first turn", d.submit(10, session(uint64(i))), want)
	}
	d.want("second turn", d.submit(10, session(2)), "4>2")
	d.Remove(0) // sessions 0 and 3 lived there
	d.Add(0)
	d.want("after a loss all begin anew", d.submit(10, session(3)), "5>0")
	d.now = 5 * time.Hour
	d.submit(10, session(8))
	if got := d.homes.count; got[0]+got[1]+got[2] != 1 {
		t.Errorf("after 5 idle hours workers count %v sessions, want the new one alone", got)
	}
}

// Blocks of 10 tokens; the request has 100 tokens. In tokens, without its own prompt:
//
//	worker 0: 55 to prefill and 5 blocks of another prompt
//	worker 1: nothing to prefill and 12 blocks, 10 of them those of this prompt
func TestThunderAgentScorer(t *testing.T) {
	r := newRouter(t, Defaults("thunderagent"), 3, 10, 1)
	r.dispatch(unbound(Request{Input: 55, PromptBlocks: 5, Path: []trace.Span{{Key: 2, From: 0, To: 5}}}), 0, 0)
	same := unbound(Request{Input: 129, PromptBlocks: 12, Path: []trace.Span{{Key: 1, From: 0, To: 10}, {Key: 3, From: 10, To: 12}}})
	r.dispatch(same, 1, 0)
	r.FirstToken(same)
	third := dispatch(r, 2, 1)[0]
	r.Done(0, third)
	r.dispatch(unbound(Request{Input: 25}), 2, 0)
	// Costs: 55 + (5+10)*10 = 205; 0 + 12*10 = 120; 25 + 10*10 = 125.
	if worker, _ := r.choose(0, prompt()); worker != 1 {
		t.Errorf("worker %d, want 1 at 120 against 205 and 125", worker)
	}
	r.dispatch(unbound(Request{Input: 5}), 1, 0)
	if worker, _ := r.choose(0, prompt()); worker != 1 {
		t.Errorf("worker %d, want 1, the lower of two at 125", worker)
	}
	r.dispatch(unbound(Request{Input: 1}), 1, 0)
	if worker, _ := r.choose(0, prompt()); worker != 2 {
		t.Errorf("worker %d, want 2 at 125 against 126", worker)
	}
	target := prompt()
	target.Preferred = 0
	if worker, _ := r.choose(0, target); worker != 0 {
		t.Errorf("worker %d, want the target 0", worker)
	}
}

func TestPresets(t *testing.T) {
	with := func(preset string, edit func(*Settings)) Settings {
		s := Defaults("kv")
		s.PrefillLoadScale, s.PredictedTTL = 2.5, time.Second
		edit(&s)
		s.Preset = preset
		return s
	}
	none := func(*Settings) {}
	for _, test := range []struct {
		preset string
		edit   func(*Settings) // what the preset replaces
	}{
		{"kv", none},
		{"", none},
		{"load-aware", func(s *Settings) { s.OverlapScoreCredit, s.UseKVEvents, s.PredictedTTL = 0, false, 0 }},
		{"agentic", func(s *Settings) { s.OverlapScoreCredit, s.PrefillLoadScale, s.DecodeActiveRequestWeight = 2, 4, 64 }},
	} {
		got, want := with(test.preset, none).Effective(), with(test.preset, test.edit)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, want %+v", test.preset, got, want)
		}
		if fmt.Sprint(got.Effective()) != fmt.Sprint(got) {
			t.Errorf("%s applied twice gives %+v", test.preset, got.Effective())
		}
	}
	loadAware := newRouter(t, with("load-aware", none), 2, 16, 1)
	if loadAware.WantsEvents() || loadAware.guess != nil {
		t.Error("load-aware keeps an index")
	}
}

func TestPolicyNames(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"", "round-robin"}, {"sticky", "sticky"}, {"sticky-min-load", "sticky"}, {"dynamo-sticky-min-load", "sticky"},
		{"dynamo-two-tier-cost-fn", "two-tier"}, {"dynamo-default-cost-fn", "kv"}, {"lmetric", "lmetric"},
		{"dynamo-", ""}, {"dynamo", ""},
	} {
		if p, _ := lookPolicy(test.name); p.name != test.want {
			t.Errorf("policy %q is %q, want %q", test.name, p.name, test.want)
		}
	}
}

func TestTracking(t *testing.T) {
	s := Defaults("kv")
	s.TrackPrefillTokens, s.TrackActiveBlocks = false, false
	r, q := table(t, s, []int{1, 0}, []int32{0, 5})
	r.dispatch(prompt(), 0, 0)
	if r.loads[0] != (load{requests: 2}) {
		t.Errorf("worker 0 has %+v, want two requests and nothing else", r.loads[0])
	}
	r.choose(0, q)
	if r.score.cost[0] != 0 || r.score.cost[1] != 0 {
		t.Errorf("costs %v, want none", r.score.cost)
	}
}

// Output blocks count in full without a hint, and less and less with one.
func TestTrackOutputBlocks(t *testing.T) {
	s := Defaults("kv")
	s.TrackOutputBlocks = true
	r := newRouter(t, s, 2, 10, 1)
	tokens := map[int32]int32{}
	r.Tokens = func(q *Request) int32 { return tokens[q.ID] }
	var requests []*Request
	for i, hint := range []int32{0, 100, 100} {
		q := unbound(Request{ID: int32(i), Input: 15, PromptBlocks: 1, ExpectedOutput: hint})
		r.dispatch(q, 0, 0)
		requests = append(requests, q)
	}
	for _, test := range []struct {
		tokens [3]int32
		want   float64
	}{
		{[3]int32{0, 15, 15}, 0},         // in prefill, and just after
		{[3]int32{19, 20, 15}, 0 + 0.95}, // 5 of 100 are generated: one block, at 0.95
		{[3]int32{55, 55, 15}, 4 + 2.4},  // 40 of 100: four blocks each, at 1 and 0.6
		{[3]int32{55, 115, 215}, 4 + 0},  // the hints are used up, or more
	} {
		for i, n := range test.tokens {
			tokens[int32(i)] = n
		}
		if got := r.outputBlocks(0); got < test.want-1e-9 || got > test.want+1e-9 {
			t.Errorf("tokens %v: %v output blocks, want %v", test.tokens, got, test.want)
		}
	}
	r.choose(0, unbound(Request{}))
	// 45 tokens to prefill are 4.5 blocks; 3 prompt blocks, 4 output blocks.
	if got := r.score.cost[0]; got != 4.5+3+4 {
		t.Errorf("worker 0 costs %v, want 11.5", got)
	}
	for _, i := range []int{1, 0, 2} {
		r.Done(0, requests[i])
	}
	if got := r.outputBlocks(0); got != 0 || len(r.active[0]) != 0 {
		t.Errorf("%v output blocks of %d requests are left", got, len(r.active[0]))
	}
}
