package sim

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// TestObservingChangesNothing: a run that is watched has the result of one that is not, and every completed call is seen
// to arrive, to be routed, to start and to end, in this order and at the times of its record.
func TestObservingChangesNothing(t *testing.T) {
	w := agents(t, synth.Options{Programs: 30, Seed: 5})
	for _, policy := range []string{"round-robin", "kv", "sticky", "two-tier", "lmetric", "soft-affinity-load-guard", "thunderagent"} {
		d := fleetOf(2, policy, 16)
		d.Engine.KVBlocks = "4000"
		plan, err := d.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		plain, err := Run(context.Background(), w, plan, Options{})
		if err != nil {
			t.Fatal(err)
		}
		at := make([]map[What]time.Duration, len(w.Calls))
		decisions, ticks := 0, 0
		watched, err := Run(context.Background(), w, plan, Options{
			Observe: func(e Event) {
				if at[e.Call] == nil {
					at[e.Call] = map[What]time.Duration{}
				}
				if _, ok := at[e.Call][e.What]; !ok {
					at[e.Call][e.What] = e.At
				}
			},
			Decisions: func(thunderagent.Event) { decisions++ },
			Ticks: func(_ int, at time.Duration, _ bool, table *thunderagent.Table) {
				ticks++
				used := int64(0)
				for _, a := range table.Accounts() {
					used += a.Used
				}
				if want := table.Stats(at).Used; used != want {
					t.Errorf("%s at %v: the accounts sum to %d, want %d", policy, at, used, want)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(plain.Requests, watched.Requests) || plain.End != watched.End {
			t.Errorf("%s: a run that is watched differs", policy)
		}
		if (decisions > 0) != (policy == "thunderagent") || (ticks > 0) != (policy == "thunderagent") {
			t.Errorf("%s: %d decisions and %d ticks", policy, decisions, ticks)
		}
		for i := range watched.Requests {
			q := &watched.Requests[i]
			seen := at[q.Turn]
			if q.Status != report.Completed {
				continue
			}
			if seen[Arrived] > seen[Routed] || seen[Routed] > seen[Enqueued] || seen[Enqueued] > seen[Admitted] || seen[Admitted] > seen[Completed] ||
				seen[Admitted] != q.Admitted || seen[Completed] > q.End || len(seen) < 6 {
				t.Fatalf("%s: call %d is seen as %v, recorded as %+v", policy, q.Turn, seen, q)
			}
		}
	}
}
