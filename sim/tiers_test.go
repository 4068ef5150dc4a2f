package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim/memory"
	"github.com/agentsim/agentsim/trace"
)

// A block of 4 tokens of Qwen3-14B is 4 · 2 · 40 layers · 8 heads · 128 · 2 bytes = 655,360 bytes: over a link of blockPerMs
// one takes 1 ms.
const (
	blockPerMs = "655.36MB/s"
	twoBlocks  = "1310720B"
)

// hostTier has a host link of a block per millisecond each way, with 1 ms of latency, on GPUs of so many blocks.
func hostTier(gpuBlocks string) Deployment {
	d := fixed()
	d.GPU, d.Parallelism.Tensor = "h100-sxm", 1
	d.Engine.KVBlocks = gpuBlocks
	d.KV.Host = KVTier{Capacity: "x10", Read: blockPerMs, Write: blockPerMs, Latency: ms}
	return d
}

// playRun simulates a workload under Check and returns the run.
func playRun(t *testing.T, w *trace.Workload, d Deployment) *run {
	t.Helper()
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRun(w, p, Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	r.openDoors()
	if err := r.loop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := r.checkRequests(); err != nil {
		t.Fatal(err)
	}
	return r
}

// turnOf is a turn of one output token, whose prefill takes 10 ms.
func turnOf(at time.Duration, input int32) trace.Turn {
	return trace.Turn{Input: input, Output: 1, Start: at, End: at + 10*ms}
}

// seen is what a request of a run got: when its first token came, and how many tokens it found or was brought.
type seen struct {
	first time.Duration
	hit   int32
}

// TestTiersByHand follows one agent, A, whose KV leaves the GPU and is wanted again at 50 ms: by what is between, B, or
// because it goes to another worker. What A writes last is still on its way when the run ends, and not counted.
func TestTiersByHand(t *testing.T) {
	const us = time.Microsecond
	a := session("a", 100, turnOf(0, 16), turnOf(50*ms, 20))
	b := session("b", 200, turnOf(20*ms, 24))
	for _, test := range []struct {
		name     string
		sessions []*trace.Session
		d        Deployment
		change   func(*Deployment)
		want     []seen // in order of arrival
		moved    map[memory.Cause]int64
	}{
		// A's 4 blocks are written from 10 ms to 10 + 1 + 4. B's 6 take all 6 blocks of the GPU; its write takes 1 + 6. At 50 A's
		// are brought in 1 + 4 ms, and the last 4 of 20 tokens take 10.
		{"a hit in the host's memory", []*trace.Session{a, b}, hostTier("7"), nil,
			[]seen{{10 * ms, 0}, {30 * ms, 0}, {65 * ms, 16}},
			map[memory.Cause]int64{memory.Offload: 4 + 6, memory.Fetch: 4}},
		{"no tier", []*trace.Session{a, b}, hostTier("7"), func(d *Deployment) { d.KV = KV{} },
			[]seen{{10 * ms, 0}, {30 * ms, 0}, {60 * ms, 0}}, nil},
		// A and C have 2 blocks each in the host's memory. Both ask at 50 and get half of the link: 1 + 4 ms.
		{"two share the link",
			[]*trace.Session{
				session("a", 100, turnOf(0, 8), turnOf(50*ms, 12)),
				session("c", 300, turnOf(0, 8), turnOf(50*ms, 12)), b},
			hostTier("7"), nil,
			[]seen{{10 * ms, 0}, {10 * ms, 0}, {30 * ms, 0}, {65 * ms, 8}, {65 * ms, 8}},
			map[memory.Cause]int64{memory.Offload: 2 + 2 + 6, memory.Fetch: 4}},
		// Of 7 blocks A keeps its first; 3 come in 1 + 3 ms. C has the same first 16 tokens. It comes while they move, waits for
		// them, and is brought nothing. Its prefill is in A's step.
		{"joins a load", []*trace.Session{a, b, session("c", 100, turnOf(52*ms, 17))}, hostTier("8"), nil,
			[]seen{{10 * ms, 0}, {30 * ms, 0}, {64 * ms, 16}, {64 * ms, 16}},
			map[memory.Cause]int64{memory.Offload: 4 + 6, memory.Fetch: 3}},
		// A's 2 blocks are in the host's memory at 10 + 1 + 2, and on the drive at 13 + 1 + 2; B's first 2 take their place in
		// the former. At 50 they come from the drive in 1 + 2 · 2 ms and from the host in 1 + 2: at 58.
		{"from the drive by way of the host", []*trace.Session{
			session("a", 100, turnOf(0, 8), turnOf(50*ms, 12)), session("b", 200, turnOf(20*ms, 16))},
			hostTier("5"), func(d *Deployment) {
				d.KV.Host.Capacity = twoBlocks
				d.KV.Disk = KVTier{Capacity: "x10", Read: "327.68MB/s", Write: blockPerMs, Latency: ms}
			}, []seen{{10 * ms, 0}, {30 * ms, 0}, {68 * ms, 8}},
			map[memory.Cause]int64{memory.Offload: 2 + 2, memory.Spill: 2 + 2, memory.Fetch: 2 + 2}},
		// Round robin: A on worker 0, B on 1, C on 0, and A again on 1. Its 2 blocks come from the pool in 5 + 2 ms and from the
		// host in 1 + 2.
		{"from a pool of all workers", []*trace.Session{
			session("a", 100, turnOf(0, 8), turnOf(50*ms, 12)), b, session("c", 300, turnOf(21*ms, 8))},
			hostTier("7"), func(d *Deployment) {
				d.Workers = 2
				d.KV.Remote = KVTier{Capacity: "x10", Read: blockPerMs, Write: blockPerMs, Latency: 5 * ms}
			}, []seen{{10 * ms, 0}, {30 * ms, 0}, {31 * ms, 0}, {70 * ms, 8}},
			map[memory.Cause]int64{memory.Offload: 2 + 6 + 2, memory.Spill: 2 + 6 + 2, memory.Fetch: 2 + 2}},
		// 2 blocks over NVLink at 450 GB/s: 2.912711… µs, after 10 µs.
		{"from another worker of the node", []*trace.Session{session("a", 100, turnOf(0, 8), turnOf(50*ms, 12))},
			hostTier("7"), func(d *Deployment) { d.Workers, d.KV = 2, KV{Policy: "kvcr"} },
			[]seen{{10 * ms, 0}, {60*ms + 10*us + 2913, 8}}, map[memory.Cause]int64{memory.Fetch: 2}},
		// Between workers of 8 GPUs, each on a node of its own, at 8 · 50 GB/s: 3.2768 µs.
		{"from another node", []*trace.Session{session("a", 100, turnOf(0, 8), turnOf(50*ms, 12))},
			hostTier("7"), func(d *Deployment) { d.Workers, d.Parallelism.Tensor, d.KV = 2, 8, KV{Policy: "kvcr"} },
			[]seen{{10 * ms, 0}, {60*ms + 10*us + 3277, 8}}, map[memory.Cause]int64{memory.Fetch: 2}},
		// B's step waits for the 4 blocks that it evicts: 1 + 4 ms. A's load, which evicts B's, does not, but its step does for
		// one more: 50 + 1 + 4, 1 + 1, 10.
		{"written when evicted", []*trace.Session{a, b}, hostTier("7"), func(d *Deployment) { d.KV.Offload = "back" },
			[]seen{{10 * ms, 0}, {35 * ms, 0}, {67 * ms, 16}}, nil},
		// Of first uses nothing is written. Of A's 5 blocks 4 are used for the second time.
		{"written at the second use", []*trace.Session{a, b, session("c", 300, turnOf(80*ms, 8))}, hostTier("7"),
			func(d *Deployment) { d.KV.MinUses = 2 },
			[]seen{{10 * ms, 0}, {30 * ms, 0}, {60 * ms, 0}, {90 * ms, 0}}, map[memory.Cause]int64{memory.Offload: 4}},
		// A chunk is 3 blocks: of A's 4, 3 are written and found. 1 + 3 ms.
		{"in chunks", []*trace.Session{a, b}, hostTier("7"), func(d *Deployment) { d.KV.Chunk = 12 },
			[]seen{{10 * ms, 0}, {30 * ms, 0}, {64 * ms, 12}}, map[memory.Cause]int64{memory.Offload: 3 + 6, memory.Fetch: 3}},
		// The least that is brought is about tiers below the host's memory.
		{"little to be brought from the host", []*trace.Session{a, b}, hostTier("7"), func(d *Deployment) { d.KV.MinFetch = 17 },
			[]seen{{10 * ms, 0}, {30 * ms, 0}, {65 * ms, 16}}, nil},
		// Steps take 10 ms with any prompt tokens, so that bringing some spares nothing.
		{"not faster to bring", []*trace.Session{a, b}, hostTier("7"), func(d *Deployment) { d.KV.Fetch = "faster" },
			[]seen{{10 * ms, 0}, {30 * ms, 0}, {60 * ms, 0}}, nil},
		{"faster to compute", []*trace.Session{a, b}, hostTier("7"), func(d *Deployment) {
			d.KV.Fetch, d.KV.Host.Read = "faster", "65.536MB/s"
		}, []seen{{10 * ms, 0}, {30 * ms, 0}, {60 * ms, 0}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.change != nil {
				test.change(&test.d)
			}
			r := playRun(t, compile(t, test.sessions...), test.d)
			var got []seen
			for _, q := range r.requests {
				got = append(got, seen{q.FirstToken, q.Hit})
			}
			if d := cmp.Diff(test.want, got, cmp.AllowUnexported(seen{})); d != "" {
				t.Error(d)
			}
			if r.memory == nil || test.moved == nil {
				return
			}
			moved := map[memory.Cause]int64{}
			for c := range memory.Causes {
				if m := r.memory.Stats.Moves[c]; m.Count > 0 {
					moved[c] = m.Bytes / 655_360
				}
			}
			if d := cmp.Diff(test.moved, moved); d != "" {
				t.Errorf("blocks moved, by cause: %s", d)
			}
		})
	}
}

// TestTiersAreDeterministic: a crowded run with all tiers and actions gives the same, and twice, however many threads there are.
func TestTiersAreDeterministic(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	w := agents(t, families)
	d := crowded("thunderagent", "vllm", "fcfs")
	d.KV.Host.Capacity, d.KV.Disk.Capacity, d.KV.Remote.Capacity, d.KV.Policy = "x0.5", "x1", "x2", "all+speculative-prefill"
	d.Faults = []Fault{{At: 5 * time.Second, Worker: 1, Action: "remove"}, {At: 9 * time.Second, Worker: 1, Action: "return"}}
	var want []byte
	for i, threads := range []int{1, 2, 2} {
		runtime.GOMAXPROCS(threads)
		r := playRun(t, w, d)
		got, err := json.Marshal([]any{r.requests, r.programs, r.memory.Stats, r.memory.Account(), r.keeper.outcomes})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = got
			o := r.keeper.outcomes
			if o[doDemote].Accepted == 0 || o[doPrefetch].Accepted == 0 || r.memory.Stats.Read[memory.Remote] == 0 {
				t.Errorf("nothing was demoted, prefetched or read from the remote tier: %+v, %+v", o, r.memory.Stats)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("with %d threads the run differs", threads)
		}
	}
}
