package sim

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
	"github.com/agentsim/agentsim/trace/synth"
)

// crowded is agents with subagents on two workers with room for a few of them.
func crowded(policy, kind, scheduling string) Deployment {
	d := fleetOf(2, policy, 16)
	d.Engine.Kind, d.Engine.Scheduling, d.Engine.KVBlocks = kind, scheduling, "3000"
	if kind != "vllm" {
		d.Engine.Version = ""
	}
	if kind == "sglang" {
		d.Engine.BlockSize, d.Engine.KVBlocks = 0, "48000"
	}
	return d
}

var families = synth.Options{Programs: 24, Seed: 3, Set: []string{"turns=8", "subagents=0.3"}}

// At every sample the parts add up to the blocks that the pool has in use and those that it keeps, and all parts occur:
// those of pauses under a program scheduler, and pins where Continuum keeps them.
func TestKVPartsAddUp(t *testing.T) {
	w := agents(t, families)
	for _, test := range []struct{ policy, kind, scheduling string }{
		{"thunderagent", "vllm", "fcfs"}, {"sticky", "vllm", "continuum"}, {"thunderagent", "sglang", "lpm"}, {"kv", "trtllm", "fcfs"},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			p, err := crowded(test.policy, test.kind, test.scheduling).Resolve()
			if err != nil {
				t.Fatal(err)
			}
			var r *run
			var sum events.KV // over all samples
			samples, pins := 0, 0
			r, err = newRun(w, p, Options{Events: func(e *events.Event) {
				k := e.KV
				if k == nil {
					return
				}
				used, pinned, cached := r.engines[k.Worker].Blocks(e.At)
				if k.Used != used || k.Root.Active+k.Subagent.Active < used-pinned || k.Root.Total()+k.Subagent.Total()+k.Cached != used+cached || k.Cached < 0 {
					t.Fatalf("at %v: %d blocks in use, %d of them pinned, and %d kept; told as %+v", e.At, used, pinned, cached, *k)
				}
				samples++
				pins += pinned
				for _, part := range [][2]*events.Holding{{&sum.Root, &k.Root}, {&sum.Subagent, &k.Subagent}} {
					part[0].Active += part[1].Active
					part[0].Acting += part[1].Acting
					part[0].Paused += part[1].Paused
				}
				sum.Cached += k.Cached
			}})
			if err != nil {
				t.Fatal(err)
			}
			r.openDoors()
			if err := r.loop(context.Background()); err != nil {
				t.Fatal(err)
			}
			res := r.finish()
			if min(sum.Root.Active, sum.Subagent.Active, sum.Root.Acting, sum.Subagent.Acting, sum.Cached) == 0 {
				t.Errorf("a part never occurs: %+v", sum)
			}
			if (sum.Root.Paused > 0) != (test.policy == "thunderagent") || (pins > 0) != (test.scheduling == "continuum") {
				t.Errorf("paused %d, pinned %d under %v", sum.Root.Paused, pins, test)
			}
			if most := 2 * (int(res.End/journalStep) + 2); samples > most {
				t.Errorf("%d samples in %v, want %d at most", samples, res.End, most)
			}
		})
	}
}

// Events change nothing, and are the same each time.
func TestEventsChangeNothing(t *testing.T) {
	w := agents(t, families)
	for _, kind := range []string{"vllm", "sglang", "vllm with tiers"} {
		engine, tiers, _ := strings.Cut(kind, " ")
		d := crowded("thunderagent", engine, "fcfs")
		if tiers != "" {
			d.KV.Host.Capacity, d.KV.Policy = "2GiB", "all"
		}
		plain := simulate(t, w, d, Options{})
		first, res := eventsOf(t, w, d)
		second, _ := eventsOf(t, w, d)
		if !reflect.DeepEqual(first, second) {
			t.Errorf("%s: the events of the same run differ", kind)
		}
		if diff := cmp.Diff(plain.Report(nil, nil), res.Report(nil, nil)); diff != "" {
			t.Errorf("%s: the report differs (-without events, +with):\n%s", kind, diff)
		}
	}
}

// Every decision is told once, with its reason, and named as the records of the run name sessions and requests.
func TestDecisionEvents(t *testing.T) {
	w := agents(t, families)
	d := crowded("thunderagent", "vllm", "fcfs")
	d.Engine.KVBlocks = "1500" // so few that running turns are marked
	d.Load.Programs = 40       // the last of them are repetitions
	var want []thunderagent.Event
	var got []events.Event
	res := simulate(t, w, d, Options{
		Decisions: func(e thunderagent.Event) { want = append(want, e) },
		Events: func(e *events.Event) {
			if e.Decision != nil {
				got = append(got, *e)
			}
		}})
	if len(got) != len(want) {
		t.Fatalf("%d events of %d decisions", len(got), len(want))
	}
	sessions, requests := map[string]bool{}, map[string]string{}
	for rec := range res.Records() {
		sessions[rec.AgentContext.SessionID] = true
		requests[rec.Request.RequestID] = rec.AgentContext.SessionID
	}
	kinds := map[string]int{}
	for i, e := range got {
		g, x := e.Decision, want[i]
		if e.At != x.At || g.What != string(x.Kind) || g.Why != string(x.Reason) || g.Worker != x.Worker || g.Size != x.Size ||
			g.Used != x.Used || g.Capacity != x.Capacity || g.Room != x.Room {
			t.Fatalf("decision %+v is told as %+v", x, *g)
		}
		if !sessions[g.Session] || g.Request != "" && requests[g.Request] != g.Session || (g.Request == "") != (x.Request == nil) {
			t.Fatalf("at %v: no session %q, or request %q is none of it", e.At, g.Session, g.Request)
		}
		kinds[g.What]++
	}
	for _, kind := range []string{"admit", "defer", "pause", "mark", "resume", "migrate"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s among %v", kind, kinds)
		}
	}
}

// A worker that goes and comes back is told of, rank by rank; what was cached there is gone.
func TestFaultEvents(t *testing.T) {
	d := fixed()
	d.Workers = 2
	d.Faults = []Fault{{At: 300 * ms, Worker: 0, Action: "remove"}, {At: 500 * ms, Worker: 0, Action: "return"}}
	w := compile(t, session("a", 1, trace.Turn{Input: 12, Output: 1, End: 10 * ms}, trace.Turn{Input: 20, Output: 2, Start: 1000 * ms, End: 1020 * ms}))
	got, _ := eventsOf(t, w, d)
	var faults []events.Event
	var last events.KV
	for _, e := range got {
		switch {
		case e.Fault != nil:
			faults = append(faults, e)
		case e.KV != nil && e.KV.Worker == 0 && e.At <= 600*ms:
			last = *e.KV
		}
	}
	want := []events.Event{{At: 300 * ms, Fault: &events.Fault{Action: "remove"}}, {At: 500 * ms, Fault: &events.Fault{Action: "return"}}}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if last != (events.KV{}) {
		t.Errorf("the worker came back with %+v", last)
	}
}
