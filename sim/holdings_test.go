package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// held adds up what sessions held, in block-ms by the session's name and the state.
func held(t *testing.T, w *trace.Workload, list []Held) map[string]float64 {
	t.Helper()
	names := [kvcache.States]string{"running", "pinned", "tool", "human", "other", "paused", "ended subagent", "ended"}
	got := map[string]float64{}
	for _, h := range list {
		for state, blocks := range h.Blocks {
			if blocks != (kvcache.BlockTime{}) {
				got[w.Sessions[h.Session].ID+" "+names[state]] += blocks.Seconds() * 1000
			}
			if whole := (kvcache.BlockTime{}).Plus(int64(blocks.Seconds()*1e9+0.5), 1); whole != blocks {
				t.Errorf("%v block-ns are not the %g block-s that they are told as", blocks, blocks.Seconds())
			}
		}
	}
	return got
}

// An agent p of three turns calls tools after the first two, which take 100 ms each, and after the second spawns a subagent
// c. Blocks are of 4 tokens, steps take 10 ms with prompt tokens and 5 ms without:
//
//	  0 ms  p's first turn: 2 blocks. 10 ms: its first token; the next takes a third block, which the last token fills
//	 30 ms  p calls a tool: 3 blocks wait for it
//	130 ms  p's second turn finds them and takes a fourth, for 10 ms
//	140 ms  p calls its subagent: 4 blocks wait
//	150 ms  c finds p's first block and takes one of its own, for 10 ms. p's block counts for p, as running
//	160 ms  c ends: its block is nobody's any more
//	260 ms  p's third turn finds its 4 blocks and takes 2, for 10 ms, then it ends with all 6
//	400 ms  another session takes a block, until 410 ms, when the run ends
func TestHeldByHand(t *testing.T) {
	w := compile(t, agent()...)
	res := simulate(t, w, fixed(), Options{Check: true, Accounts: true})
	want := map[string]float64{
		"p running": 2*10 + 3*20 + 4*10 + 1*10 + 6*10,
		"p tool":    3*100 + 4*120 - 1*10,
		"p ended":   6 * 140,
		"c running": 1 * 10, "c ended subagent": 1 * 250,
		"q running": 1 * 10,
	}
	if diff := cmp.Diff(want, held(t, w, res.Held)); diff != "" || res.End != 410*ms {
		t.Errorf("block-ms until %v (-want +got):\n%s", res.End, diff)
	}

	// No block is kept that holds nothing, so what is held is what is resident.
	kv := res.Report(nil, nil).KV
	if got, want := kv.HeldGiBS.Total(), kv.ResidentGiBS.Value; math.Abs(got-want) > 1e-9*want {
		t.Errorf("%v GiB·s held, %v resident", got, want)
	}
	if len(kv.Holders) != 2 || kv.Holders[0].Program != "p" || kv.Holders[0].HeldGiBS.EndedSubagent != kv.HeldGiBS.EndedSubagent ||
		kv.Holders[1].Program != "q" || kv.Holders[1].HeldGiBS.Total() != kv.Holders[1].HeldGiBS.Running.Value {
		t.Errorf("%+v held, by %+v", kv.HeldGiBS, kv.Holders)
	}
}

// agent is a program of two sessions, p and c, and a session q.
func agent() []*trace.Session {
	call := []trace.ToolCall{{Name: "bash"}}
	p := session("p", 100,
		trace.Turn{Input: 8, Output: 5, End: 30 * ms, ToolCalls: call},
		trace.Turn{Input: 16, Output: 1, Start: 130 * ms, End: 140 * ms, ToolCalls: call, Trigger: "tool_result"},
		trace.Turn{Input: 24, Output: 1, Start: 260 * ms, End: 270 * ms, Trigger: "tool_result"})
	c := session("c", 500, trace.Turn{Input: 8, Output: 1, Start: 150 * ms, End: 160 * ms})
	c.Parent, c.Turns[0].Hashes[0] = "p", 100
	q := session("q", 900, trace.Turn{Input: 4, Output: 1, Start: 400 * ms, End: 410 * ms})
	return []*trace.Session{p, c, q}
}

// What a session with 2 idle blocks does from 10 ms on, until its second turn comes at 110 ms: that counts as what takes most
// of the time.
func TestHeldWhileWaiting(t *testing.T) {
	for _, test := range []struct {
		name    string
		calls   string
		trigger string
		tool    time.Duration // of the gap of 100 ms
		want    string
	}{
		{"a person writes", "", "user_message", 0, "human"},
		{"a tool returns", "", "tool_result", 0, "tool"},
		{"of a call that nobody saw return", "bash", "", 0, "tool"},
		{"a person after a short tool", "bash", "user_message", 20 * ms, "human"},
		{"a person after a long tool", "bash", "user_message", 80 * ms, "tool"},
	} {
		first := trace.Turn{Input: 8, Output: 1, End: 10 * ms}
		if test.calls != "" {
			first.ToolCalls = []trace.ToolCall{{Name: test.calls}}
		}
		s := session("s", 1, first, trace.Turn{Input: 12, Output: 1, Start: 110 * ms, End: 120 * ms, Trigger: test.trigger})
		if test.tool > 0 {
			s.Tools = []trace.ToolSpan{{Start: 10 * ms, End: 10*ms + test.tool}}
		}
		w := compile(t, s)
		got := held(t, w, simulate(t, w, fixed(), Options{Check: true, Accounts: true}).Held)
		if want := map[string]float64{"s running": 2*10 + 3*10, "s " + test.want: 2 * 100}; !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", test.name, got, want)
		}
	}
}

// Every state occurs where something brings it about, and only there.
func TestHeldStatesOccur(t *testing.T) {
	w := agents(t, families)
	for _, test := range []struct {
		policy, kind, scheduling string
		paused, pinned           bool
	}{
		{"thunderagent", "vllm", "fcfs", true, false},
		{"sticky", "vllm", "continuum", false, true},
		{"thunderagent", "sglang", "lpm", true, false},
		{"kv", "trtllm", "fcfs", false, false},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			res := simulate(t, w, crowded(test.policy, test.kind, test.scheduling), Options{Accounts: true})
			var sum kvcache.Holding
			for _, h := range res.Held {
				for state := range sum {
					sum[state] = sum[state].Add(h.Blocks[state])
				}
			}
			for state, want := range map[kvcache.State]bool{kvcache.Running: true, kvcache.Tool: true, kvcache.Other: true,
				kvcache.EndedSubagent: true, kvcache.Ended: true, kvcache.Paused: test.paused, kvcache.Pinned: test.pinned} {
				if got := sum[state] != (kvcache.BlockTime{}); got != want {
					t.Errorf("state %d has %g block-s, want any: %v", state, sum[state].Seconds(), want)
				}
			}
		})
	}
}
