package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// sglangOptions are those of an idle server of release 0.5, with little else changed.
func sglangOptions(seqs, chunk int) Options {
	return Options{Style: SGLang, MaxSeqs: seqs, MaxBatchedTokens: chunk, SGLang: SGLangOptions{MaxPrefillTokens: 16384, Conservativeness: 1}}
}

// follow runs a workload, with steps that take 10 ms when they compute prompt tokens and 5 ms more when they generate any,
// and compares its log.
func follow(t *testing.T, w *workload, want []string) {
	t.Helper()
	got, _ := playEngine(t, w, models.FixedSteps(10*ms, 5*ms))
	if lines := got.lines(); !slices.Equal(lines, want) {
		t.Errorf("got\n%q\nwant\n%q", lines, want)
	}
}

// TestSGLangByHand follows small workloads through every step. A step of prompts takes 10 ms, one of decodes 5 ms. Pages
// are of one token.
func TestSGLangByHand(t *testing.T) {
	roomy := kvcache.Options{BlockSize: 1, Blocks: 10_000, PrefixCaching: true}
	pages := func(n int) kvcache.Options { return kvcache.Options{BlockSize: 1, Blocks: n, PrefixCaching: true} }
	longest := sglangOptions(2, 8192)
	longest.SGLang.LongestPrefix = true
	bold := sglangOptions(8, 8192)
	bold.SGLang.Conservativeness = 0.1
	for _, test := range []struct {
		name     string
		options  Options
		kv       kvcache.Options
		requests []arrival
		want     []string
	}{
		{"prompts go first and alone", sglangOptions(8, 8192), roomy, []arrival{
			{at: 0, path: node(1, 102), input: 100, output: 3, cancel: Never},
			{at: 4 * ms, path: node(2, 51), input: 50, output: 2, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"10ms r1 admitted", // r0 has to wait
			"20ms r1 first token",
			"25ms r1 finished",
			"30ms r0 finished", // tokens at 10, 25 and 30
		}},
		{"one prompt at a time in chunks", sglangOptions(8, 100), roomy, []arrival{
			{path: node(1, 251), input: 250, output: 2, cancel: Never},
			{path: node(2, 200), input: 200, output: 1, cancel: Never},
		}, []string{
			"0s r0 admitted",      // 100 of 250; the next step takes 100 more
			"20ms r1 admitted",    // r0's last 50 leave 50
			"30ms r0 first token", // then r1's next 100, then its last 50, and r0 waits
			"50ms r1 first token",
			"50ms r1 finished",
			"55ms r0 finished",
		}},
		{"prompts are cached when computed, outputs when finished", sglangOptions(8, 8192), roomy, []arrival{
			{at: 0, path: node(1, 24), input: 20, output: 5, cancel: Never},
			{at: 5 * ms, path: node(1, 24), input: 20, output: 1, cancel: Never},
			{at: 22 * ms, path: node(1, 24), input: 23, output: 1, cancel: Never},
			{at: 60 * ms, path: below(node(1, 24), 2, 6), input: 30, output: 1, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"10ms r1 admitted, 19 cached", // the last token of a prompt is always computed
			"20ms r1 first token",
			"20ms r1 finished",
			"25ms r2 admitted, 20 cached", // r0 has generated 2 tokens, which only it has
			"35ms r2 first token",
			"35ms r2 finished",
			"50ms r0 finished",            // tokens at 10, 25, 40, 45, 50
			"60ms r3 admitted, 24 cached", // 20 of the prompt and 4 generated ones: the fifth was never computed
			"70ms r3 first token",
			"70ms r3 finished",
		}},
		{"a full batch is tried again a step after one has left", sglangOptions(2, 8192), roomy, []arrival{
			{path: node(1, 11), input: 10, output: 2, cancel: Never},
			{path: node(2, 13), input: 10, output: 4, cancel: Never},
			{path: node(3, 10), input: 10, output: 1, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"0s r1 admitted",
			"10ms r0 first token",
			"10ms r1 first token",
			"15ms r0 finished", // the next step only drops it from the batch
			"20ms r2 admitted",
			"30ms r2 first token",
			"30ms r2 finished",
			"35ms r1 finished", // tokens at 10, 15, 20, 35
		}},
		// Of 40 tokens r0 has 10, and 9 to come: 0.7·9 = 6.3 are reserved, which leaves 23.7.
		{"output to come is reserved in part: it fits", sglangOptions(8, 8192), pages(40), []arrival{
			{at: 0, path: node(1, 19), input: 10, output: 10, cancel: Never},
			{at: 5 * ms, path: node(2, 21), input: 10, output: 12, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"10ms r1 admitted", // 10 + 12 + 1 < 23.7
			"20ms r1 first token",
			"65ms r0 finished",
			"75ms r1 finished",
		}},
		{"output to come is reserved in part: it does not fit", sglangOptions(8, 8192), pages(40), []arrival{
			{at: 0, path: node(1, 19), input: 10, output: 10, cancel: Never},
			{at: 5 * ms, path: node(2, 22), input: 10, output: 13, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"55ms r0 finished",
			"55ms r1 admitted", // 10 + 13 + 1 > 23.7
			"65ms r1 first token",
			"125ms r1 finished",
		}},
		{"the longest output allowed is what is reserved for", sglangOptions(8, 8192), pages(40), []arrival{
			{at: 0, path: node(1, 19), input: 10, output: 10, maxOutput: 25, cancel: Never}, // 0.7·24 = 16.8
			{at: 5 * ms, path: node(2, 11), input: 10, output: 2, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"10ms r1 admitted", // 10 + 2 + 1 < 40 - 10 - 16.8 = 13.2
			"20ms r1 first token",
			"25ms r1 finished",
			"65ms r0 finished",
		}},
		// The ratio falls by 0.7·0.86/600 = 0.00100333 a step: after 9 steps it is 0.69097. r0 has 19 of 60 tokens then and
		// 10 to come, so 60 - 19 - 6.9097 = 34.0903 are left.
		{"the ratio decays", sglangOptions(8, 8192), pages(60), []arrival{
			{at: 0, path: node(1, 29), input: 10, output: 20, cancel: Never},
			{at: 55 * ms, path: node(2, 33), input: 13, output: 20, cancel: Never}, // 13 + 20 + 1 = 34; 34 at 0.7 would not fit
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"55ms r1 admitted",
			"65ms r1 first token",
			"115ms r0 finished",
			"160ms r1 finished",
		}},
		// The ratio is 0.07. r0 and r1 have 6 + 4 of 24 tokens and 7 steps later all; the eighth needs two more.
		{"the one with the least output and the longest prompt is retracted", bold, pages(24), []arrival{
			{at: 0, path: node(1, 17), input: 6, output: 12, cancel: Never},
			{at: 5 * ms, path: node(2, 15), input: 4, output: 12, cancel: Never}, // 4 + 12 + 1 < 24 - 6 - 0.07·11
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"10ms r1 admitted",
			"20ms r1 first token",
			"55ms r0 preempted",          // both have 8 tokens of output
			"75ms r1 finished",           // tokens 9 to 12; 8 + 4 + 1 do not fit 24 - 12 - 6
			"75ms r0 admitted, 6 cached", // its prompt; the output is computed again, 8 tokens of it
			"85ms r0 first token",
			"100ms r0 finished",
		}},
		{"the longest cached prefix goes first", longest, roomy, []arrival{
			{at: 0, path: node(1, 20), input: 20, output: 1, cancel: Never},
			{at: 12 * ms, path: node(2, 20), input: 20, output: 1, cancel: Never},
			{at: 12 * ms, path: below(node(1, 20), 3, 5), input: 25, output: 1, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"10ms r0 first token",
			"10ms r0 finished",
			"12ms r2 admitted, 20 cached",
			"12ms r1 admitted",
			"22ms r2 first token",
			"22ms r2 finished",
			"22ms r1 first token",
			"22ms r1 finished",
		}},
		{"of those that share a prefix one goes first", longest, roomy, []arrival{
			{path: below(node(1, 32), 2, 5), input: 37, output: 1, cancel: Never},
			{path: below(node(1, 32), 3, 5), input: 37, output: 1, cancel: Never},
			{path: node(4, 5), input: 5, output: 1, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"0s r2 admitted",
			"10ms r0 first token",
			"10ms r0 finished",
			"10ms r2 first token",
			"10ms r2 finished",
			"10ms r1 admitted, 32 cached",
			"20ms r1 first token",
			"20ms r1 finished",
		}},
		{"of those that share 31 tokens both do", longest, roomy, []arrival{
			{path: below(node(1, 31), 2, 5), input: 36, output: 1, cancel: Never},
			{path: below(node(1, 31), 3, 5), input: 36, output: 1, cancel: Never},
			{path: node(4, 5), input: 5, output: 1, cancel: Never},
		}, []string{
			"0s r0 admitted",
			"0s r1 admitted",
			"10ms r0 first token",
			"10ms r0 finished",
			"10ms r1 first token",
			"10ms r1 finished",
			"10ms r2 admitted",
			"20ms r2 first token",
			"20ms r2 finished",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			follow(t, &workload{Options: test.options, kv: test.kv, requests: test.requests}, test.want)
		})
	}
}

// TestManyWaiting: more than 128 waiting requests are not sorted. The last to come would be the first otherwise.
func TestManyWaiting(t *testing.T) {
	for _, test := range []struct {
		waiting int
		first   string
	}{{128, "20ms r128 admitted, 9 cached"}, {129, "20ms r1 admitted"}} {
		o := sglangOptions(1, 8192)
		o.SGLang.LongestPrefix = true
		w := &workload{Options: o, kv: kvcache.Options{BlockSize: 1, Blocks: 100_000, PrefixCaching: true}}
		w.requests = append(w.requests, arrival{path: node(1, 10), input: 10, output: 1, cancel: Never})
		for i := range test.waiting {
			a := arrival{at: 20 * ms, path: node(2, 10), input: 10, output: 1, cancel: Never}
			if i == test.waiting-1 {
				a.path = node(1, 10)
			}
			w.requests = append(w.requests, a)
		}
		got, _ := playEngine(t, w, models.FixedSteps(10*ms, 5*ms))
		if lines := got.lines(); lines[3] != test.first {
			t.Errorf("with %d waiting: %q, want %q", test.waiting, lines[3], test.first)
		}
	}
}

// TestNewTokenRatio: from 0.7 times the conservativeness, but 1 at most, to 0.14 of that in 600 steps.
func TestNewTokenRatio(t *testing.T) {
	for _, test := range []struct {
		conservativeness float64
		steps            int64
		want             float64
	}{
		{1, 0, 0.7}, {1, 300, (0.7 + 0.098) / 2}, {1, 600, 0.098}, {1, 10_000, 0.098},
		{2, 0, 1}, {2, 600, 0.14}, {0.3, 0, 0.21},
	} {
		o := sglangOptions(1, 100)
		o.SGLang.Conservativeness = test.conservativeness
		e, err := New(o, models.FixedSteps(ms, ms), kvcache.Options{BlockSize: 1, Blocks: 100}, nil)
		if err != nil {
			t.Fatal(err)
		}
		e.kv.Step = test.steps
		if got := e.style.(*sglang).newTokenRatio(); got < test.want-1e-12 || got > test.want+1e-12 {
			t.Errorf("conservativeness %v after %d steps: %v, want %v", test.conservativeness, test.steps, got, test.want)
		}
	}
}

// TestRatioAfterRetraction: r0 and r1 have 10 + 5 of 115 tokens, and all after 50 steps. r0 has the longer prompt. r1 has 51
// of 90 tokens of output, so the ratio becomes (51 + 20) / (90 + 1).
func TestRatioAfterRetraction(t *testing.T) {
	o := sglangOptions(8, 8192)
	o.SGLang.Conservativeness = 0.1
	e, err := New(o, models.FixedSteps(10*ms, 5*ms), kvcache.Options{BlockSize: 1, Blocks: 115, PrefixCaching: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.Enqueue(0, &Request{ID: 0, Path: node(1, 109), Input: 10, Output: 100})
	for e.Stats.Preemptions == 0 {
		now := time.Duration(0)
		if e.busy {
			now = e.Next()
			e.EndStep()
		}
		if now == 10*ms {
			e.Enqueue(now, &Request{ID: 1, Path: node(2, 94), Input: 5, Output: 90})
		}
		if _, err := e.Schedule(now); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := e.style.(*sglang).newTokenRatio(), 71.0/91; got != want || e.Waiting() != 1 {
		t.Errorf("the ratio is %v with %d waiting, want %v with one", got, e.Waiting(), want)
	}
}

// TestSGLangRecomputed: what left the tree is computed again for that reason, and the last token of a prompt for none.
func TestSGLangRecomputed(t *testing.T) {
	w := &workload{Options: sglangOptions(1, 8192), kv: kvcache.Options{BlockSize: 1, Blocks: 30, PrefixCaching: true}, requests: []arrival{
		{at: 0, path: node(1, 20), input: 20, output: 1, cancel: Never},
		{at: 20 * ms, path: node(1, 20), input: 20, output: 1, cancel: Never}, // splits the last token off: 19 + 1
		{at: 40 * ms, path: node(2, 11), input: 11, output: 1, cancel: Never}, // 10 are free; evicts leaves of 1 and of 19
		{at: 60 * ms, path: node(1, 20), input: 20, output: 1, cancel: Never},
	}}
	got, e := playEngine(t, w, models.FixedSteps(10*ms, 5*ms))
	for i, want := range []Recomputed{{}, {}, {}, {Eviction: 20}} {
		if r := got.requests[i]; r.Recomputed != want {
			t.Errorf("request %d: %+v, want %+v", i, r.Recomputed, want)
		}
	}
	if e.Evicted() != 20+11 { // the last one needs 20, and 19 are free
		t.Errorf("%d blocks evicted, want 31", e.Evicted())
	}
}

// TestSGLangLimits: what New refuses, and which requests fit.
func TestSGLangLimits(t *testing.T) {
	kv := kvcache.Options{BlockSize: 4, Blocks: 5}
	for _, change := range []func(o *Options){
		func(o *Options) { o.MaxSeqs = 0 },
		func(o *Options) { o.MaxBatchedTokens = 3 },
		func(o *Options) { o.SGLang.MaxPrefillTokens = 0 },
		func(o *Options) { o.SGLang.Conservativeness = 0 },
	} {
		o := sglangOptions(8, 4)
		change(&o)
		if _, err := New(o, models.FixedSteps(ms, ms), kv, nil); err == nil {
			t.Errorf("New accepts %+v", o)
		}
	}
	e, err := New(sglangOptions(8, 4), models.FixedSteps(ms, ms), kv, nil)
	if err != nil {
		t.Fatal(err)
	}
	// An admission asks for a page beyond input and output, and for more than that to be free: 10 + 5 + 4 < 20.
	if !e.Fits(10, 5) || e.Fits(10, 6) {
		t.Error("15 tokens must fit 20 with pages of 4, and 16 must not")
	}
}
