package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
)

// calling is turnOf with a call of a tool.
func calling(at time.Duration, input int32) trace.Turn {
	t := turnOf(at, input)
	t.ToolCalls = []trace.ToolCall{{Name: "bash"}}
	return t
}

// TestKeeperByHand follows what rules make of the events of an agent A with 2 blocks of KV, whose tool runs from 10 ms to 100
// ms. Nothing goes to the host but by a rule: 2 blocks there or back take 1 + 2 ms, so there and back 6.
func TestKeeperByHand(t *testing.T) {
	demote, pin := KVRule{On: "tool-start", Do: "demote"}, KVRule{On: "tool-start", Do: "pin", TTL: "50ms"}
	prefetch := KVRule{On: "tool-due", Do: "prefetch", TTL: "auto"}
	a := func() *trace.Session { return session("a", 100, calling(0, 8), turnOf(100*ms, 12)) }
	child := session("c", 100, turnOf(20*ms, 16))
	child.Parent = "a"
	compacted := session("a", 100, calling(0, 16), calling(20*ms, 20), turnOf(100*ms, 16))
	compacted.Turns[1].Compaction = true
	copy(compacted.Turns[2].Hashes[2:], []uint64{900, 901})
	thinking := func() *trace.Session { // of what it has generated the next prompt found nothing in the recorded server's cache
		s := session("a", 100, calling(0, 8), turnOf(100*ms, 20))
		s.Turns[0].Output, s.Turns[0].End, s.Turns[0].Reasoning, s.Turns[1].Cached = 9, 50*ms, 4, 8
		return s
	}

	type outcomes map[string]Outcomes
	for _, test := range []struct {
		name     string
		sessions []*trace.Session
		rules    []KVRule
		change   func(*Deployment)
		want     []seen
		outcomes outcomes
	}{
		// A's blocks are in the host's memory, and off the GPU, at 13 ms. At 100 they are brought.
		{"demoted", []*trace.Session{a()}, []KVRule{demote}, nil,
			[]seen{{10 * ms, 0}, {113 * ms, 8}}, outcomes{"demote": {Accepted: 1, Blocks: 2, Took: 3 * ms}}},
		{"demoted but for a block that is not full", []*trace.Session{session("a", 100, calling(0, 10), turnOf(100*ms, 12))}, []KVRule{demote}, nil,
			[]seen{{10 * ms, 0}, {113 * ms, 8}}, outcomes{"demote": {Accepted: 1, Blocks: 2, Took: 3 * ms}}},
		// It is back at 12 ms, before they are written: they stay.
		{"back before it is demoted", []*trace.Session{session("a", 100, calling(0, 8), turnOf(12*ms, 12))}, []KVRule{demote}, nil,
			[]seen{{10 * ms, 0}, {22 * ms, 8}}, outcomes{"demote": {Late: 1}}},
		// What the next prompt of another session has in common with it is not its own alone.
		{"demoted but for what others have", []*trace.Session{a(), session("b", 100, turnOf(200*ms, 5))}, []KVRule{demote}, nil,
			[]seen{{10 * ms, 0}, {112 * ms, 8}, {210 * ms, 4}}, outcomes{"demote": {Accepted: 1, Blocks: 1, Took: 3 * ms}}},
		// From 94, the time for both ways before it is expected, to 97.
		{"prefetched in time", []*trace.Session{a()}, []KVRule{demote, prefetch}, nil,
			[]seen{{10 * ms, 0}, {110 * ms, 8}}, outcomes{"demote": {Accepted: 1, Blocks: 2, Took: 3 * ms}, "prefetch": {Accepted: 1, Blocks: 2}}},
		// B's step from 92 to 102 holds the prefetch up until A is there, and brings them itself: 102 + 3, 10.
		{"prefetched too late", []*trace.Session{a(), session("b", 200, turnOf(92*ms, 8))}, []KVRule{demote, prefetch}, nil,
			[]seen{{10 * ms, 0}, {102 * ms, 0}, {115 * ms, 8}},
			outcomes{"demote": {Accepted: 1, Blocks: 2, Took: 3 * ms}, "prefetch": {Late: 1}}},
		// Its next request goes to another worker.
		{"prefetched in vain", []*trace.Session{a()}, []KVRule{demote, prefetch}, func(d *Deployment) { d.Workers = 2 },
			[]seen{{10 * ms, 0}, {110 * ms, 0}},
			outcomes{"demote": {Accepted: 1, Blocks: 2, Took: 3 * ms}, "prefetch": {Accepted: 1, Blocks: 2, Wasted: 1, WastedBlocks: 2}}},
		// B has all 4 blocks from 90 to its last token, at 105. The prefetch, at B's step boundary at 95, is put off until after
		// A is there, which is brought its blocks at 108.
		{"no room to prefetch", []*trace.Session{a(), session("b", 200, trace.Turn{Input: 12, Output: 4, Start: 80 * ms, End: 105 * ms})},
			[]KVRule{demote, prefetch}, func(d *Deployment) { d.Engine.KVBlocks = "5" },
			[]seen{{10 * ms, 0}, {90 * ms, 0}, {118 * ms, 8}},
			outcomes{"demote": {Accepted: 1, Blocks: 2, Took: 3 * ms}, "prefetch": {Deferred: 1}}},
		// The pin ends at 60, but nobody wants the blocks.
		{"pinned for less than the tool takes", []*trace.Session{a()}, []KVRule{pin}, nil,
			[]seen{{10 * ms, 0}, {110 * ms, 8}}, outcomes{"pin": {Accepted: 1, Blocks: 2, Late: 1}}},
		// B needs all blocks at 20; it gets the pinned ones because nothing else runs.
		{"unpinned for want of room", []*trace.Session{a(), session("b", 200, turnOf(20*ms, 16))}, []KVRule{pin},
			func(d *Deployment) { d.Engine.KVBlocks = "5" },
			[]seen{{10 * ms, 0}, {30 * ms, 0}, {110 * ms, 0}}, outcomes{"pin": {Accepted: 1, Blocks: 2, Late: 1}}},
		// Of the child's 4 blocks A will have had 3 when it ends.
		{"a subagent leaves what is its own", []*trace.Session{a(), child}, []KVRule{{On: "subagent-end", Do: "drop"}}, nil,
			[]seen{{10 * ms, 0}, {30 * ms, 8}, {110 * ms, 8}}, outcomes{"drop": {Accepted: 1, Blocks: 1}}},
		// Of its 5 blocks the next prompt has the first 2.
		{"compacted", []*trace.Session{compacted}, []KVRule{{On: "compaction", Do: "drop"}}, nil,
			[]seen{{10 * ms, 0}, {30 * ms, 16}, {110 * ms, 8}}, outcomes{"drop": {Accepted: 1, Blocks: 3}}},
		// 8 tokens of prompt and 8 generated ones that are computed: 2 blocks of these go first.
		{"thought", []*trace.Session{thinking()}, []KVRule{{On: "thinking-end", Do: "evict-first"}}, nil,
			[]seen{{10 * ms, 0}, {110 * ms, 8}}, outcomes{"evict-first": {Accepted: 1, Blocks: 2}}},
		// The prompt and 5 tokens of answer are 3 whole blocks. The third, which is not there without what was reasoned, is computed
		// from 50 to 60.
		{"prefilled ahead", []*trace.Session{thinking()}, []KVRule{{On: "tool-start", Do: "speculate"}}, nil,
			[]seen{{10 * ms, 0}, {110 * ms, 12}}, outcomes{"speculate": {Accepted: 1, Blocks: 1}}},
		// Its worker is lost while its tool runs: nothing can be done there.
		{"on a lost worker", []*trace.Session{a()}, []KVRule{{On: "worker-lost", Do: "prefetch"}}, func(d *Deployment) {
			d.Workers, d.Faults = 2, []Fault{{At: 50 * ms, Worker: 0, Action: "remove"}}
		}, []seen{{10 * ms, 0}, {110 * ms, 0}}, outcomes{"prefetch": {Refused: 1}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := hostTier("41")
			d.KV.Offload, d.KV.Tools, d.KV.Rules = "demand", "recorded", test.rules
			if test.change != nil {
				test.change(&d)
			}
			r := playRun(t, compile(t, test.sessions...), d)
			var got []seen
			for _, q := range r.requests {
				got = append(got, seen{q.FirstToken, q.Hit})
			}
			if d := cmp.Diff(test.want, got, cmp.AllowUnexported(seen{})); d != "" {
				t.Error(d)
			}
			did := outcomes{}
			for a, o := range r.keeper.outcomes {
				if o != (Outcomes{}) {
					did[KVActions()[a]] = o
				}
			}
			if d := cmp.Diff(test.outcomes, did); d != "" {
				t.Error(d)
			}
			if n := len(r.keeper.stays) + len(r.tools.calls); n > 0 {
				t.Errorf("%d sessions are not forgotten", n)
			}
		})
	}
}

// A session's second turn goes to the other worker: it brings the 2 blocks of its first, which are dropped where they were.
func TestSessionsMove(t *testing.T) {
	w := compile(t, session("s", 1, trace.Turn{Input: 8, Output: 1, End: 10 * ms},
		trace.Turn{Input: 12, Output: 1, Start: 110 * ms, End: 120 * ms}))
	for policy, left := range map[string]int32{"kvcr": 0, "lru": 2} {
		d := fixed()
		d.Workers, d.KV.Policy, d.KV.Host.Capacity, d.KV.Offload = 2, policy, "x1", "demand"
		r := playRun(t, w, d)
		first, second := &r.requests[0], &r.requests[1]
		if first.Worker == second.Worker {
			t.Fatalf("both turns went to worker %d", first.Worker)
		}
		path := r.path(&w.Calls[0], 0, nil)
		if got, want := second.Brought, 8-4*left; got != want || r.engines[first.Worker].Cached(path, 2) != left {
			t.Errorf("%s: the second turn brought %d tokens, want %d; the first worker has %d blocks, want %d",
				policy, got, want, r.engines[first.Worker].Cached(path, 2), left)
		}
	}
}
