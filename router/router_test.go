package router

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

func newRouter(t testing.TB, s Settings, workers, blockSize int, seed uint64) *Router {
	t.Helper()
	r, err := New(s, Pool{Workers: workers, BlockSize: blockSize}, seed)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// unbound returns a request that any worker may serve.
func unbound(q Request) *Request {
	q.Pinned, q.Preferred, q.exact = -1, -1, -1
	return &q
}

// dispatch books n requests on worker.
func dispatch(r *Router, worker, n int) []*Request {
	qs := make([]*Request, n)
	for i := range qs {
		qs[i] = unbound(Request{})
		r.dispatch(qs[i], worker, 0)
	}
	return qs
}

// picks returns the workers of n sessions' first picks, without dispatches in between.
func picks(r *Router, n int) []int {
	workers := make([]int, n)
	for i := range workers {
		workers[i], _ = r.choose(0, unbound(Request{Session: uint64(i)}))
	}
	return workers
}

func TestRoundRobinSharesOneCursor(t *testing.T) {
	r := newRouter(t, Settings{}, 3, 16, 1) // the zero Settings are round-robin
	dispatch(r, 1, 9)                       // load does not matter
	if got, want := picks(r, 7), []int{0, 1, 2, 0, 1, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRandomIsUniform(t *testing.T) {
	r := newRouter(t, Settings{Policy: "random"}, 4, 16, 1)
	dispatch(r, 1, 9)
	count := make([]int, 4)
	for _, worker := range picks(r, 4000) {
		count[worker]++
	}
	// Binomial(4000, 1/4): mean 1000, standard deviation sqrt(4000*1/4*3/4) = 27.4; five of them are 137.
	for worker, n := range count {
		if n < 863 || n > 1137 {
			t.Errorf("worker %d: %d of 4000 picks, want 1000 ± 137", worker, n)
		}
	}
}

func TestPowerOfTwo(t *testing.T) {
	// Loads 2, 1 and 0 on workers 0, 1 and 2. Of the three pairs worker 2 wins two and worker 1 one; worker 0 none.
	r := newRouter(t, Settings{Policy: "power-of-two"}, 3, 16, 1)
	dispatch(r, 0, 2)
	dispatch(r, 1, 1)
	count := make([]int, 3)
	for _, worker := range picks(r, 3000) {
		count[worker]++
	}
	// Binomial(3000, 1/3): standard deviation sqrt(3000*1/3*2/3) = 25.8; five of them are 129.
	if count[0] != 0 || count[1] < 871 || count[1] > 1129 {
		t.Errorf("picks by worker: %v, want about [0 1000 2000]", count)
	}

	// The draw 3/4+1/16 of 2^64 over 4 workers: 4 * 0.8125 = 3.25 is worker 3 first. The rest, 0.25 of 2^64, over the 3
	// others: 3 * 0.25 = 0.75 is worker 0 second.
	const draw = 13 << 60
	r = newRouter(t, Settings{Policy: "power-of-two"}, 4, 16, 1)
	if worker, _ := r.pickPowerOfTwo(0, nil, draw); worker != 3 {
		t.Errorf("equal loads: worker %d, want 3, the first drawn", worker)
	}
	dispatch(r, 3, 1)
	if worker, _ := r.pickPowerOfTwo(0, nil, draw); worker != 0 {
		t.Errorf("worker 3 busy: worker %d, want 0, the second drawn", worker)
	}

	r = newRouter(t, Settings{Policy: "power-of-two"}, 1, 16, 1)
	if got := picks(r, 3); !slices.Equal(got, []int{0, 0, 0}) {
		t.Errorf("one worker: %v", got)
	}
}

func TestLeastLoaded(t *testing.T) {
	r := newRouter(t, Settings{Policy: "least-loaded"}, 4, 16, 1)
	dispatch(r, 0, 2)
	busy := dispatch(r, 1, 1)
	dispatch(r, 2, 1)
	dispatch(r, 3, 3)
	count := make([]int, 4)
	for _, worker := range picks(r, 1000) {
		count[worker]++
	}
	// Binomial(1000, 1/2): standard deviation 15.8; five of them are 79.
	if count[0]+count[3] != 0 || count[1] < 421 || count[1] > 579 {
		t.Errorf("picks by worker: %v, want about [0 500 500 0]", count)
	}
	r.Done(0, busy[0]) // worker 1 is alone at 0
	if got := picks(r, 3); !slices.Equal(got, []int{1, 1, 1}) {
		t.Errorf("worker 1 idle: picked %v", got)
	}
}

func TestSticky(t *testing.T) {
	r := newRouter(t, Settings{Policy: "sticky"}, 2, 16, 1)
	pick := func(now time.Duration, session uint64) int {
		worker, _ := r.choose(now, unbound(Request{Session: session}))
		return worker
	}
	on0 := dispatch(r, 0, 1)
	if got := pick(0, 7); got != 1 {
		t.Fatalf("first turn on worker %d, want the less loaded 1", got)
	}
	dispatch(r, 1, 9)
	if got := pick(time.Second, 7); got != 1 {
		t.Errorf("second turn on worker %d, want the session's 1 whatever its load", got)
	}
	if got := pick(time.Second, 8); got != 0 {
		t.Errorf("another session on worker %d, want the less loaded 0", got)
	}
	r.Done(0, on0[0])

	last := time.Second
	if got := pick(last+4*time.Hour, 7); got != 1 {
		t.Errorf("after 4 h: worker %d, want 1: the binding expires after more than 4 h", got)
	}
	last += 4 * time.Hour
	if got := pick(last+4*time.Hour+1, 7); got != 0 {
		t.Errorf("after more than 4 h: worker %d, want 0", got)
	}
	if _, kept := r.homes.by[8]; kept || len(r.homes.by) != 1 {
		t.Errorf("%d sessions bound, want session 7 alone", len(r.homes.by))
	}
}

func TestLoadBookkeeping(t *testing.T) {
	r := newRouter(t, Defaults("kv"), 2, 16, 1)
	want := func(step string, worker int, want load) {
		t.Helper()
		if got := r.loads[worker]; got != want {
			t.Errorf("%s: worker %d has %+v, want %+v", step, worker, got, want)
		}
	}
	// 100 tokens are 6 full blocks of 16 and 4 tokens. Two cached blocks leave 100 - 2*16 = 68 tokens to compute.
	q := unbound(Request{Input: 100, PromptBlocks: 6, Path: []trace.Span{{Key: 1, From: 0, To: 6}}})
	r.dispatch(q, 0, 2)
	want("dispatched", 0, load{requests: 1, prefill: 68, blocks: 6})
	r.dispatch(q, 1, 0)
	want("moved", 0, load{})
	want("moved", 1, load{requests: 1, prefill: 100, blocks: 6})
	r.FirstToken(q)
	r.FirstToken(q)
	want("first token, twice", 1, load{requests: 1, blocks: 6})
	r.Done(0, q)
	r.Done(0, q)
	want("done, twice", 1, load{})

	r.dispatch(q, 0, 6)
	want("again", 0, load{requests: 1, prefill: 4, blocks: 6})
	r.Done(0, q)
	want("done before the first token", 0, load{})
	r.FirstToken(q)
	want("first token after done", 0, load{})
}

// Two routers with one seed see the same random number at their n-th pick, though one has load and ties to break.
func TestOneDrawPerPick(t *testing.T) {
	a := newRouter(t, Settings{Policy: "random"}, 8, 16, 5)
	b := newRouter(t, Defaults("kv"), 8, 16, 5)
	for i := range 10 {
		worker, overlap := b.choose(0, unbound(Request{}))
		b.dispatch(unbound(Request{}), worker, overlap)
		b.overlapOn(0, unbound(Request{}), i%8)
		a.choose(0, unbound(Request{}))
	}
	if a.random.Uint64() != b.random.Uint64() {
		t.Error("the streams have drifted apart")
	}
}

func TestSeed(t *testing.T) {
	seeded := []string{"random", "power-of-two", "least-loaded", "sticky", "kv"}
	for _, policy := range Policies() {
		first := picks(newRouter(t, Defaults(policy), 8, 16, 1), 64)
		if again := picks(newRouter(t, Defaults(policy), 8, 16, 1), 64); !slices.Equal(first, again) {
			t.Errorf("%s: one seed gave %v and %v", policy, first, again)
		}
		other := picks(newRouter(t, Defaults(policy), 8, 16, 2), 64)
		if slices.Contains(seeded, policy) == slices.Equal(first, other) {
			t.Errorf("%s: seeds 1 and 2 gave %v and %v", policy, first, other)
		}
	}
}

func TestSettingsErrors(t *testing.T) {
	edit := func(f func(*Settings)) Settings {
		s := Defaults("kv")
		f(&s)
		return s
	}
	for _, test := range []struct {
		settings           Settings
		workers, blockSize int
		want               string
	}{
		{Settings{Policy: "kvv"}, 2, 16, `router.policy: unknown policy "kvv", want one of round-robin, random, `},
		{Settings{}, 0, 16, "workers: 0 is not within 1..16384"},
		{Settings{}, 1 << 20, 16, "workers: 1048576 is not within"},
		{Settings{}, 2, 0, "engine.block_size: 0 tokens is not within 1.."},
		{edit(func(s *Settings) { s.OverlapScoreCredit = -1 }), 2, 16, "router.overlap_score_credit: -1 is not within 0..1e+06"},
		{edit(func(s *Settings) { s.OverlapScoreCreditDecay = math.Inf(1) }), 2, 16, "router.overlap_score_credit_decay: +Inf"},
		{edit(func(s *Settings) { s.PrefillLoadScale = math.NaN() }), 2, 16, "router.prefill_load_scale: NaN"},
		{edit(func(s *Settings) { s.DecodeActiveRequestWeight = 1e7 }), 2, 16, "router.decode_active_request_weight: 1e+07"},
		{edit(func(s *Settings) { s.Temperature = -0.5 }), 2, 16, "router.temperature: -0.5"},
		{edit(func(s *Settings) { s.EventDelay = -1 }), 2, 16, "router.event_delay: -1ns is not within 0s..1h0m0s"},
		{edit(func(s *Settings) { s.EventDelay = 2 * time.Hour }), 2, 16, "router.event_delay: 2h0m0s"},
		{edit(func(s *Settings) { s.Preset = "fast" }), 2, 16, `router.preset: "fast" is unknown, want kv, load-aware or agentic`},
		{edit(func(s *Settings) { s.UseKVEvents, s.TTL = false, 0 }), 2, 16, "router.ttl: 0s is not within 1ms..8760h0m0s"},
		{edit(func(s *Settings) { s.TTL = -1 }), 2, 16, "router.ttl: -1ns is not within 0s..8760h0m0s"},
		{edit(func(s *Settings) { s.PredictedTTL = -1 }), 2, 16, "router.predicted_ttl: -1ns"},
		{edit(func(s *Settings) { s.PredictedTTL, s.UseKVEvents = 1, false }), 2, 16, "router.predicted_ttl: goes with router.use_kv_events"},
		{edit(func(s *Settings) { s.DecodeBlocks = 85 }), 2, 16, "router.active_decode_blocks_threshold: 85 is not within 0..1"},
		{edit(func(s *Settings) { s.PrefillTokens = -1 }), 2, 16, "router.active_prefill_tokens_threshold: -1"},
		{edit(func(s *Settings) { s.PrefillFraction = math.NaN() }), 2, 16, "router.active_prefill_tokens_threshold_frac: NaN"},
		{edit(func(s *Settings) { s.SessionAffinity.Mode = "on" }), 2, 16, `router.session_affinity.mode: "on" is unknown, want off, soft or hard`},
		{edit(func(s *Settings) { s.SessionAffinity = SessionAffinity{Mode: "soft"} }), 2, 16, "router.session_affinity.ttl: 0s is not within 1s..8760h0m0s"},
	} {
		_, err := New(test.settings, Pool{Workers: test.workers, BlockSize: test.blockSize}, 1)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("got error %v, want %s...", err, test.want)
		}
	}
	for _, policy := range append(Policies(), "") {
		if _, err := New(Settings{Policy: policy}, Pool{Workers: 2, BlockSize: 16}, 1); err != nil {
			t.Errorf("policy %q: %v", policy, err)
		}
	}
}

func TestWantsEvents(t *testing.T) {
	cacheAware := []string{"kv", "two-tier", "lmetric", "thunderagent"}
	for _, policy := range Policies() {
		r := newRouter(t, Defaults(policy), 2, 16, 1)
		if got, want := r.WantsEvents(), slices.Contains(cacheAware, policy); got != want {
			t.Errorf("%s: WantsEvents is %v, want %v", policy, got, want)
		}
		r.Stored(0, 0, trace.Span{Key: 1, From: 0, To: 4}) // must not fail when it is not wanted
		r.Removed(0, 0, trace.Span{Key: 1, From: 0, To: 4})
	}
	loadAware := Defaults("kv")
	loadAware.OverlapScoreCredit = 0
	if newRouter(t, loadAware, 2, 16, 1).WantsEvents() {
		t.Error("kv without overlap credit wants events")
	}
}

func ExampleRouter() {
	r, err := New(Defaults("kv"), Pool{Workers: 2, BlockSize: 16}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	turn := &Request{Session: 1, Input: 70, PromptBlocks: 4, Path: []trace.Span{{Key: 1, From: 0, To: 4}}, Pinned: -1, Preferred: -1}
	r.Stored(time.Second, 1, trace.Span{Key: 1, From: 0, To: 3})
	for _, d := range r.Submit(2*time.Second, turn) {
		fmt.Println("worker", d.Worker, "holds", d.Overlap, "of the prompt's 4 blocks")
	}
	r.FirstToken(turn)
	r.Done(3*time.Second, turn)
	// Output: worker 1 holds 3 of the prompt's 4 blocks
}
