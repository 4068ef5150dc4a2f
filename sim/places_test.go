package sim

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim/memory"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
)

// inPlaces leaves the events that tell where KV lies and moves.
func inPlaces(all []events.Event) []events.Event {
	var list []events.Event
	for _, e := range all {
		if e.Tier != nil || e.Residency != nil || e.Transfer != nil || e.Link != nil || e.Action != nil {
			list = append(list, e)
		}
	}
	return list
}

// Three turns of 10, 12 and 14 blocks over a link of 54 GB/s each way, 10 µs before each transfer. 10 blocks take 121,363 ns, 2
// take 24,273 ns and 12 take 145,636 ns. Samples are 100 ms apart at least.
//
//	     0 ms     the first turn computes its 10 blocks in 10 ms
//	    10 ms     they go to the host, and when they are there leave the GPU: the tool takes 10 s
//	10,009.737 ms the way out and back before the tool returns, they come back
//	10,010 ms     the second turn finds them, and computes 2
//	10,020 ms     these go to the host, and when they are there all 12 leave
//	20,019.689 ms all come back; the third turn computes 2, and when it ends nothing is the session's any more
func TestPlacesByHand(t *testing.T) {
	d := fixed()
	d.KV.Host.Capacity, d.KV.Policy, d.KV.Tools = "1GiB", "prefetch-before-return", "recorded"
	all, _ := eventsOf(t, threeTurns(t), d)

	const latency = 10 * time.Microsecond
	ten, two, twelve := time.Duration(121_363), time.Duration(24_273), time.Duration(145_636)
	gpu, host := events.Place{Level: events.GPU}, events.Place{Level: events.Host}
	out := func(blocks int64, took time.Duration) *events.Transfer {
		return &events.Transfer{Cause: "offload", From: gpu, To: host, Session: "a", Bytes: blocks * block, Took: latency + took, Outcome: events.Done}
	}
	back := func(blocks int64, took time.Duration) *events.Transfer {
		return &events.Transfer{Cause: "prefetch", From: host, To: gpu, Session: "a", Bytes: blocks * block, Took: latency + took, Outcome: events.Done}
	}
	done := func(what string, blocks int32, took time.Duration) *events.Action {
		return &events.Action{What: what, Outcome: "accepted", Session: "a", Blocks: blocks, Took: took}
	}
	due := 10*time.Second + 10*ms - 2*latency - 2*ten // of the first prefetch
	again := 20*time.Second + 20*ms - 2*latency - 2*twelve
	again++ // the way there and back is rounded once, and each transfer up
	end := 20*time.Second + 30*ms
	want := []events.Event{
		{At: 0, Residency: &events.Residency{Session: "a", GPU: 10}},
		{At: 10*ms + latency + ten, Transfer: out(10, ten)},
		{At: 10*ms + latency + ten, Action: done("demote", 10, latency+ten)},
		{At: 100 * ms, Tier: &events.Tier{Level: events.Host, Used: 10}},
		{At: 100 * ms, Residency: &events.Residency{Session: "a", Host: 10}},
		{At: 100 * ms, Link: &events.Link{Name: "GPU to host", Took: 100 * ms, Busy: ten}},
		{At: due, Action: done("prefetch", 10, 0)},
		{At: due + latency + ten, Transfer: back(10, ten)},
		{At: 10*time.Second + 20*ms + latency + two, Transfer: out(2, two)},
		{At: 10*time.Second + 20*ms + latency + two, Action: done("demote", 12, latency+two)},
		{At: due + 100*ms, Tier: &events.Tier{Level: events.Host, Used: 12}},
		{At: due + 100*ms, Residency: &events.Residency{Session: "a", Host: 12}},
		{At: due + 100*ms, Link: &events.Link{Name: "host to GPU", Took: 100 * ms, Busy: ten}},
		{At: due + 100*ms, Link: &events.Link{Name: "GPU to host", Took: 100 * ms, Busy: two}},
		{At: again, Action: done("prefetch", 12, 0)},
		{At: again + latency + twelve, Transfer: back(12, twelve)},
		{At: end, Tier: &events.Tier{Level: events.Host, Used: 14}}, // the last 2 are on their way
		{At: end, Residency: &events.Residency{Session: "a"}},
		{At: end, Link: &events.Link{Name: "host to GPU", Took: end - again, Busy: twelve}},
	}
	if diff := cmp.Diff(want, inPlaces(all)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A prompt that another worker has computed comes from its GPUs, for the request that decodes.
func TestHandOversAreTold(t *testing.T) {
	w := compile(t, session("a", 100, trace.Turn{Input: 10, Output: 3, Start: 0, End: 30 * ms}))
	all, res := eventsOf(t, w, split())
	var got []events.Event
	for _, e := range inPlaces(all) {
		if e.Transfer != nil {
			got = append(got, e)
		}
	}
	from, to := events.Place{Worker: 1, Level: events.GPU}, events.Place{Worker: 0, Level: events.GPU}
	want := []events.Event{{At: 10*ms + moved(3), Transfer: &events.Transfer{Cause: "handoff", From: from, To: to, Session: "a", Request: "a-0",
		Bytes: res.KVUse.Moves[memory.Handoff].Bytes, Took: moved(3), Outcome: events.Done}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is told adds up to what the run counts: transfers, busy links and actions; each session is sampled once a step at most, and
// only when something has changed; and at the end no session has anything.
func TestPlacesAddUp(t *testing.T) {
	var causes []string
	for c := range memory.Causes {
		causes = append(causes, c.String())
	}
	w := agents(t, families)
	for _, policy := range []string{"lru", "all"} {
		d := crowded("thunderagent", "vllm", "fcfs")
		d.KV.Host.Capacity, d.KV.Disk.Capacity, d.KV.Remote.Capacity, d.KV.Policy = "2GiB", "4GiB", "16GiB", policy
		all, res := eventsOf(t, w, d)
		var moves [memory.Causes]memory.Moves
		busy := map[[2]any]time.Duration{}
		actions := make([]Outcomes, kvActions)
		sampled := map[string]time.Duration{}
		last := map[string]events.Residency{}
		levels := map[string]bool{}
		for _, e := range all {
			switch {
			case e.Transfer != nil:
				x := e.Transfer
				m := &moves[slices.Index(causes, x.Cause)]
				if m.Bytes, m.Time = m.Bytes+x.Bytes, m.Time+x.Took; x.Outcome == events.Done {
					m.Count++
				} else {
					m.Stopped++
				}
				if (x.Cause == "fetch") != (x.Request != "") || x.Cause != "spill" && x.Session == "" {
					t.Fatalf("%s: whose is %+v?", policy, *x)
				}
			case e.Link != nil:
				busy[[2]any{int(e.Link.Worker), e.Link.Name}] += e.Link.Busy
			case e.Action != nil:
				o := &actions[slices.Index(kvActionNames[:], e.Action.What)]
				o.add(outcome(slices.Index(outcomeNames[:], e.Action.Outcome)), e.Action.Blocks, e.Action.Took)
			case e.Residency != nil:
				x := *e.Residency
				if before, ok := sampled[x.Session]; ok && e.At-before < journalStep && x.GPU+x.Host+x.Disk+x.Remote > 0 {
					t.Fatalf("%s: %s is sampled at %v and at %v", policy, x.Session, before, e.At)
				}
				if x == last[x.Session] {
					t.Fatalf("%s: %+v is told twice, at %v the last time", policy, x, e.At)
				}
				sampled[x.Session], last[x.Session] = e.At, x
				for level, n := range map[string]int{events.GPU: x.GPU, events.Host: x.Host, events.Disk: x.Disk, events.Remote: x.Remote} {
					levels[level] = levels[level] || n > 0
				}
			}
		}
		if diff := cmp.Diff(res.KVUse.Moves, moves); diff != "" {
			t.Errorf("%s: transfers (-counted +told):\n%s", policy, diff)
		}
		for _, l := range res.KVUse.Links {
			if got := busy[[2]any{l.Rank, l.Kind}]; got != l.Busy {
				t.Errorf("%s: %s of %d was busy for %v, by events for %v", policy, l.Kind, l.Rank, l.Busy, got)
			}
		}
		if policy == "all" && !reflect.DeepEqual(res.KVUse.Actions[:doFetch], actions[:doFetch]) {
			t.Errorf("actions are counted as %+v, and told as %+v", res.KVUse.Actions, actions)
		}
		for id, x := range last {
			if x.GPU+x.Host+x.Disk+x.Remote > 0 {
				t.Errorf("%s: %s has ended and has %+v", policy, id, x)
			}
		}
		if len(levels) != 4 || !levels[events.GPU] || !levels[events.Host] || !levels[events.Disk] || !levels[events.Remote] {
			t.Errorf("%s: KV never lies everywhere: %v", policy, levels)
		}
	}
}
