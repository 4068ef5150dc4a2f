package report

import (
	"strings"
	"testing"
)

// kept is a run on the axes of kv that took the given shares of 1000 prompt tokens from its GPUs, and from the host: while
// requests waited, and before.
func kept(host, policy string, programsPerHour, ttft99, cached, fetched, prefetched float64) *Run {
	r := deployment{
		name: "host=" + host + " " + policy, axes: []Axis{{hostKey, host}, {policyKey, policy}}, programsPerHour: programsPerHour,
		meanProgram: 300, ttft99: ttft99, hit: cached + fetched + prefetched,
	}.run()
	kv := &r.KV
	kv.PromptTokens, kv.HitTokens = Known(1000), Known(1000*(cached+fetched+prefetched))
	if host != "0" {
		kv.FetchedTokens, kv.PrefetchedTokens = Known(1000*fetched), Known(1000*prefetched)
		kv.Tiers = map[string]Tier{"host": {ReadTokens: Known(1000 * (fetched + prefetched))}}
		kv.Transfers = map[string]Transfers{"fetch": {Count: 3, Bytes: 3e9}, "offload": {Count: 5, Bytes: 2e9}}
		kv.Links = []Link{{Name: "GPU to host", BusiestShare: Known(0.01)}, {Name: "host to GPU", BusiestShare: Known(0.25)}}
	}
	if policy == "prefetch-before-return" {
		kv.Actions = map[string]Action{"prefetch": {Accepted: 38, Clipped: 2, Late: 3, Wasted: 4}}
	}
	return r
}

func TestJudgeSaysWhatKeepingKVWasWorth(t *testing.T) {
	held := func(r *Run, idle float64) *Run {
		r.KV.HeldGiBS = &Holding{Running: Known(500), Tool: Known(idle)}
		return r
	}
	refused := kept("0", "offload-on-tool", 200, 4, 0.5, 0, 0)
	refused.KV.Actions = map[string]Action{"demote": {Refused: 7}}
	none, lru := kept("0", "lru", 200, 4, 0.5, 0, 0), kept("9GiB", "lru", 250, 2, 0.4, 0.3, 0)
	prefetch := kept("9GiB", "prefetch-before-return", 251, 1, 0.1, 0.4, 0.3)
	for _, test := range []struct {
		name string
		runs []*Run
		want string // the sentence; "" for none
	}{
		{"a policy, where the tier is the same", []*Run{none, lru, prefetch},
			"KV: host=9GiB prefetch-before-return against host=9GiB lru: p99 TTFT 1 s against 2 s; 70% of prompt tokens come from host memory against 30%, 4 of 40 prefetches were wasted and 3 late, the busiest link, host to GPU, moves KV 25% of the time."},
		{"a tier, where no policy differs", []*Run{none, lru},
			"KV: host=9GiB lru against host=0 lru: 30% of prompt tokens come from host memory instead of being computed, the busiest link, host to GPU, moves KV 25% of the time."},
		{"a policy that changes nothing but what is held", []*Run{held(kept("9GiB", "lru", 250, 2, 0.4, 0.3, 0), 300), held(kept("9GiB", "evict-subagents", 250, 2, 0.4, 0.3, 0), 200)},
			"KV: host=9GiB evict-subagents against host=9GiB lru: the same programs per hour and p99 TTFT; 30% of prompt tokens come from host memory, KV held idle is 200 GiB·s against 300, the busiest link, host to GPU, moves KV 25% of the time."},
		{"a tier, where another row wins", []*Run{kept("0", "all", 300, 4, 0.5, 0, 0), none, lru},
			"KV: host=9GiB lru against host=0 lru: programs per hour 250 against 200, p99 TTFT 2 s against 4 s; 30% of prompt tokens come from host memory instead of being computed, the busiest link, host to GPU, moves KV 25% of the time."},
		{"nowhere to go", []*Run{refused},
			"KV: all 7 demotes were refused, for there is no host memory for KV (kv.host.capacity)."},
		{"one run", []*Run{lru},
			"KV: 30% of prompt tokens come from host memory instead of being computed, the busiest link, host to GPU, moves KV 25% of the time."},
		{"no tier", []*Run{none, kept("0", "lru", 210, 4, 0.5, 0, 0)}, ""},
		{"nothing to compare with", []*Run{none, prefetch}, ""},
	} {
		text := Judge(test.runs, Evidence{}).Text
		_, got, _ := strings.Cut(text, "KV: ")
		if got != "" {
			got = "KV: " + got
		}
		if got != test.want {
			t.Errorf("%s:\n got %s\nwant %s\nin %s", test.name, got, test.want, text)
		}
	}
}

// The names of policies and their axes are whole at 100 columns, whatever else they displace.
func TestTableNamesPolicies(t *testing.T) {
	runs := []*Run{kept("0", "lru", 200, 4, 0.5, 0, 0), kept("200GiB", "lru", 250, 2, 0.4, 0.3, 0), kept("200GiB", "prefetch-before-return", 251, 1, 0.1, 0.4, 0.3),
		kept("1TiB", "speculative-prefill", 251, 1, 0.1, 0.4, 0.3)}
	for i, r := range runs {
		r.KV.ReprefillTimeShare, r.Throughput.OutputTokensPerS, r.LatencyMs.TPOT.P50, r.LatencyMs.TTFT.P50 = Known(0.1*float64(i)), Known(800), Known(20+i), Known(70+i)
		r.Preemptions, r.Throughput.GoodputRequestsPerS = Known(i), Known(0.9)
	}
	var b strings.Builder
	if err := WriteTable(&b, runs, TableOptions{Width: 100}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"prefetch-before-return", "speculative-prefill", "200GiB", "70%"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is not in\n%s", want, b.String())
		}
	}
}
