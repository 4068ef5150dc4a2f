package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/trace"
)

// budgets runs a workload and returns the capacity that the table of the first frontend counts with at each tick, as long as
// there are programs.
func budgets(t *testing.T, w *trace.Workload, d Deployment) (list []int64) {
	t.Helper()
	simulate(t, w, d, Options{Check: true, Ticks: func(_ int, _ time.Duration, before bool, table *thunderagent.Table) {
		if before {
			list = append(list, table.Accounts()[0].Capacity)
		}
	}})
	return list
}

// A worker of 1001 blocks of 4 tokens has a session of 403 blocks and one of 522. After its turn a session is pinned for 3.5 s.
func TestPinsOutsideTheTableTakeFromItsBudget(t *testing.T) {
	small := session("small", 1, trace.Turn{Input: 1604, Output: 9, End: 50 * ms}, trace.Turn{Start: 20 * time.Second, End: 21 * time.Second, Input: 1616, Output: 1})
	large := session("large", 10_000, trace.Turn{Start: 100 * ms, End: 200 * ms, Input: 2080, Output: 9}, trace.Turn{Start: 20 * time.Second, End: 21 * time.Second, Input: 2092, Output: 1})
	w := compile(t, small, large)
	d := fixed()
	d.Router.Policy = "thunderagent"
	d.Router.ThunderAgent.Parameters = map[string]any{"scheduler_interval_seconds": 1}
	d.KV.Rules = []KVRule{{On: "tool-start", Do: "pin", TTL: "3500ms"}}

	// Both are charged, with 100 tokens each: 3902 of 4004. The first tick pauses the small one, whose pin of 403 blocks
	// counts from the second tick to the third after it.
	if got, want := budgets(t, w, d)[:6], []int64{4004, 4004 - 4*403, 4004 - 4*403, 4004, 4004, 4004}; !slices.Equal(got, want) {
		t.Errorf("at ticks the table has %d tokens, want %d", got, want)
	}
	// The large one alone is charged to its worker, so nothing is taken from the budget.
	if got, want := budgets(t, compile(t, large), d)[:6], slices.Repeat([]int64{4004}, 6); !slices.Equal(got, want) {
		t.Errorf("with one session: at ticks the table has %d tokens, want %d", got, want)
	}
	// Without gates nothing is published, whatever is pinned.
	d.Router.ThunderAgent.Gates = "none"
	if got, want := budgets(t, w, d)[:6], make([]int64, 6); !slices.Equal(got, want) {
		t.Errorf("without gates: at ticks the table has %d tokens, want %d", got, want)
	}
}

// A frontend does not know the sessions of another, and their pins take from its budget.
func TestPinsOfAnotherFrontend(t *testing.T) {
	var sessions []*trace.Session
	for i, id := range []string{"a", "b", "c", "d", "e", "f"} {
		sessions = append(sessions, session(id, uint64(1000*i), trace.Turn{Input: 40, Output: 1, End: 10 * ms},
			trace.Turn{Start: 10 * time.Second, End: 11 * time.Second, Input: 44, Output: 1}))
	}
	d := fixed()
	d.Router.Policy, d.Router.Frontends = "thunderagent", 2
	d.Router.ThunderAgent.Parameters = map[string]any{"scheduler_interval_seconds": 1}
	d.KV.Rules = []KVRule{{On: "tool-start", Do: "pin", TTL: "1500ms"}}
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	known, capacity := [2]int64{}, [2]int64{}
	_, err = Run(context.Background(), compile(t, sessions...), p, Options{Ticks: func(desk int, at time.Duration, before bool, table *thunderagent.Table) {
		if before && at == time.Second {
			known[desk], capacity[desk] = table.Accounts()[0].Acting, table.Accounts()[0].Capacity
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := [2]int64{4004 - 40*known[1], 4004 - 40*known[0]}; capacity != want || known[0]+known[1] != 6 || known[0] == 0 || known[1] == 0 {
		t.Errorf("frontends with %d sessions have %d tokens, want %d", known, capacity, want)
	}
}

// What the host holds counts where the program scheduler counts it: in Dynamo's Python service.
func TestHostTierInTheBudget(t *testing.T) {
	w := compile(t, session("a", 1, trace.Turn{Input: 40, Output: 1, End: 10 * ms}, trace.Turn{Start: 6 * time.Second, End: 7 * time.Second, Input: 44, Output: 1}))
	for _, test := range []struct {
		preset, host string
		want         int64
	}{
		{"dynamo-native", "x2", 4004},
		{"dynamo-python", "", 4004},
		{"dynamo-python", "x2", 4004 + 2*4*1000},
		{"dynamo-python", "0", 4004},
	} {
		d := fixed()
		d.Router.Policy, d.Router.ThunderAgent.Preset = "thunderagent", test.preset
		d.KV.Host.Capacity = test.host
		if got := budgets(t, w, d)[0]; got != test.want {
			t.Errorf("preset %s with %q of host memory: the table has %d tokens, want %d", test.preset, test.host, got, test.want)
		}
	}
}
