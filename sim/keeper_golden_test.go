package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim/memory"
)

// The agent of TestHeldByHand under policy all, with a host tier to and from which a block takes 1 ms, after a latency of
// 1 ms for each transfer. Tools are expected to take what they do. p's first block is c's too, so it never leaves the GPU
// while p lives; "its own" are the others.
//
//	  0 ms  p's first turn: 2 blocks. 10 ms: these two are written to the host, until 13 ms
//	 30 ms  p calls a tool for 100 ms, longer than the 2+2·2 ms that its own two blocks take out and back. The host lacks the
//	        third, which is written until 32 ms; until then all 3 are kept, then p's own two leave
//	124 ms  the tool is due in those 6 ms: they come back until 127 ms, and stay pinned
//	130 ms  p's second turn finds its 3 blocks and takes a fourth, for 10 ms. Then all 4 are kept while that is written,
//	        until 142 ms, when p's own three leave
//	150 ms  c finds p's first block and takes one of its own, for 10 ms. Both are kept until 162 ms, as the latter is written
//	        to the host; then it is forgotten, here and there: c has ended
//	232 ms  p's tool is due in the 2+2·3 ms of its own three blocks, 100 ms after it was called: nobody can tell that it first
//	        waits for c. They come until 236 ms and stay pinned
//	260 ms  p's third turn finds its 4 blocks and takes 2, for 10 ms; they are written until 273 ms, while all 6 are kept. Then
//	        p's own are forgotten. Its first stays: it is c's too
//	400 ms  another session takes a block, until 410 ms, when the run ends
func TestHeldUnderAllByHand(t *testing.T) {
	w := compile(t, agent()...)
	d := fixed()
	d.KV.Policy, d.KV.Tools = "all", "recorded"
	d.KV.Host = KVTier{Capacity: "x1", Latency: ms}
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	rate := float64(p.memory.BlockBytes) * 1000
	p.memory.Host.Read, p.memory.Host.Write = rate, rate
	res, err := Run(t.Context(), w, p, Options{Check: true, Accounts: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"p running": 2*10 + 3*20 + 3*3 + 4*10 + 1*10 + 4*4 + 6*10,
		"p pinned":  3*2 + 3*3 + 4*2 + 1*2 + 4*(260-236) + 6*3,
		"p tool":    1*(124-32) + 1*(232-142) - 1*10 - 1*2,
		"p ended":   1 * (410 - 273),
		"c running": 1 * 10, "c pinned": 1 * 2,
		"q running": 1 * 10,
	}
	if diff := cmp.Diff(want, held(t, w, res.Held)); diff != "" || res.End != 410*ms {
		t.Errorf("block-ms until %v (-want +got):\n%s", res.End, diff)
	}
	moves := map[string]int64{"offload": 2 + 1 + 1 + 2, "demote": 1, "prefetch": 2 + 3}
	got := map[string]int64{}
	for c := range memory.Causes {
		if m := res.KVUse.Moves[c]; m.Bytes > 0 {
			got[c.String()] = m.Bytes / p.memory.BlockBytes
		}
	}
	if diff := cmp.Diff(moves, got); diff != "" {
		t.Errorf("blocks moved (-want +got):\n%s", diff)
	}
}
