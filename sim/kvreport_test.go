package sim

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim/memory"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// block is the KV of 4 tokens of qwen3-14b in 16 bits: 40 layers, key and value, 8 heads of 128.
const block = 4 * 40 * 2 * 8 * 128 * 2

// threeTurns is a session of prompts of 40, 48 and 56 tokens, 10, 12 and 14 blocks, with tools of 10 s in between.
func threeTurns(t *testing.T) *trace.Workload {
	tool := []trace.ToolCall{{Name: "bash"}}
	return compile(t, session("a", 100,
		trace.Turn{Input: 40, Output: 1, Start: 0, End: time.Second, ToolCalls: tool},
		trace.Turn{Input: 48, Output: 1, Start: 11 * time.Second, End: 12 * time.Second, ToolCalls: tool},
		trace.Turn{Input: 56, Output: 1, Start: 22 * time.Second, End: 23 * time.Second}))
}

// What of a prompt is new goes to the host when it is computed: 10, 2 and 2 blocks, the last of which are on their way when
// the run ends. With a policy that moves them the 10 and 12 blocks of the first two turns leave the GPU while the tools run,
// and come back: when the next turn waits for them, or before.
func TestTieringByHand(t *testing.T) {
	host := func(read int) map[string]report.Tier {
		return map[string]report.Tier{"host": {CapacityTokens: report.Known((1 << 30) / block * 4),
			PeakUtilization: report.Known(14. / ((1 << 30) / block)), ReadTokens: report.Known(read)}}
	}
	moved := func(n, blocks int64) report.Transfers { return report.Transfers{Count: n, Bytes: blocks * block} }
	// 10 blocks take 10 us and 121.363 us to the host, 2 more 10 us and 24.273 us; a prefetch begins at once.
	left := report.Action{Accepted: 2, Bytes: 22 * block, Seconds: report.Seconds(165_636)}
	came := report.Action{Accepted: 2, Bytes: 22 * block, Seconds: report.Known(0)}
	for _, test := range []struct {
		policy string
		want   report.Tiering
	}{
		{"lru", report.Tiering{FetchedTokens: report.Known(0), PrefetchedTokens: report.Known(0), Tiers: host(0),
			Transfers: map[string]report.Transfers{"offload": moved(2, 12)}}},
		{"offload-on-tool", report.Tiering{FetchedTokens: report.Known(88), PrefetchedTokens: report.Known(0), Tiers: host(88),
			Transfers: map[string]report.Transfers{"offload": moved(2, 12), "fetch": moved(2, 22)},
			Actions:   map[string]report.Action{"demote": left}}},
		{"prefetch-before-return", report.Tiering{FetchedTokens: report.Known(0), PrefetchedTokens: report.Known(88), Tiers: host(88),
			Transfers: map[string]report.Transfers{"offload": moved(2, 12), "prefetch": moved(2, 22)},
			Actions:   map[string]report.Action{"demote": left, "prefetch": came}}},
	} {
		d := fixed()
		d.KV.Host.Capacity, d.KV.Policy, d.KV.Tools = "1GiB", test.policy, "recorded"
		run := mustRun(t, threeTurns(t), d).Report(nil, nil)
		got := run.KV.Tiering
		up, down := int64(0), int64(0)
		for cause, m := range got.Transfers {
			if rate := m.GBPerS.Value; !(rate > 10 && rate < 64) {
				t.Errorf("%s: %s at %v GB/s over a link of 54", test.policy, cause, rate)
			}
			if cause == "offload" {
				down += m.Bytes
			} else {
				up += m.Bytes
			}
			m.Seconds, m.GBPerS = report.Figure{}, report.Figure{}
			got.Transfers[cause] = m
		}
		for _, l := range got.Links {
			if want := map[string]int64{"host to GPU": up, "GPU to host": down}[l.Name]; l.Bytes != want || !(l.BusyShare.Value > 0) {
				t.Errorf("%s: %+v moved, want %d bytes", test.policy, l, want)
			}
		}
		if diff := cmp.Diff(run.Workers[0].Links, got.Links, cmp.FilterPath(func(p cmp.Path) bool {
			return p.String() == "Count" || p.String() == "BusiestShare"
		}, cmp.Ignore())); diff != "" {
			t.Errorf("%s: the links of the only worker and of all differ: %s", test.policy, diff)
		}
		got.Links = nil
		if len(got.Actions) == 0 {
			got.Actions = nil
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", test.policy, diff)
		}
	}
}

// Without tiers and policies a report says nothing of them.
func TestNoTieringWithoutTiers(t *testing.T) {
	text, err := json.Marshal(mustRun(t, threeTurns(t), fixed()).Report(nil, nil).KV.Tiering)
	if err != nil || string(text) != "{}" {
		t.Errorf("%s, %v", text, err)
	}
}

// What is counted before a window and in it is what a window from the start on counts: both runs are the same.
func TestTieringOfAWindow(t *testing.T) {
	w := agents(t, synth.Options{Programs: 16, Seed: 3})
	d := fleetOf(2, "kv", 16)
	d.Engine.KVBlocks, d.KV.Host.Capacity, d.KV.Policy = "3000", "4GiB", "all"
	d.Load.Duration = 90 * time.Second
	all := simulate(t, w, d, Options{}).KVUse
	d.Load.Warmup, d.Load.Duration = 30*time.Second, 60*time.Second
	part := simulate(t, w, d, Options{}).KVUse
	before := all.Since(part.Account)
	for c := range memory.Causes {
		m, b := part.Moves[c], before.Moves[c]
		if b.Bytes < 0 || b.Count < 0 || m.Bytes < 0 || m.Count < 0 {
			t.Errorf("%v: %+v in the window, %+v before it", c, m, b)
		}
		if c == memory.Fetch && (m.Count == 0 || b.Count == 0) {
			t.Errorf("%d fetches in the window, %d before it: the test needs both", m.Count, b.Count)
		}
	}
	for i, l := range part.Links {
		if b := before.Links[i]; b.Bytes < 0 || b.Busy < 0 || l.Busy > 60*time.Second {
			t.Errorf("%s of %d: %+v in the window, %+v before it", l.Kind, l.Rank, l, b)
		}
	}
	for i, o := range part.Actions {
		if x := all.Actions[i]; o.Accepted > x.Accepted || o.Blocks > x.Blocks {
			t.Errorf("%s: %+v in the window, %+v in all", KVActions()[i], o, x)
		}
	}
}
