package replay_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// TestClosingLoop predicts work and replays it against the same deployment on the wall clock, with real step costs, five
// times, and compares the medians: the two sides must tell the same. It tests the plumbing of both and says nothing of how
// right the model of a server is. It wants a machine with nothing else to do, and CLOSING_LOOP=1.
func TestClosingLoop(t *testing.T) {
	if os.Getenv("CLOSING_LOOP") == "" {
		t.Skip("minutes on a quiet machine: set CLOSING_LOOP=1")
	}
	for _, c := range []struct {
		policy              string
		concurrency, blocks int // KV blocks of each worker, 0 for what it has
	}{
		{"kv", 4, 0}, {"kv", 64, 0}, // without pauses a small cache would thrash as chance has it
		{"thunderagent", 4, 440}, {"thunderagent", 64, 5760}, // less than programs hold, so that some are paused
	} {
		t.Run(fmt.Sprintf("%s at %d", c.policy, c.concurrency), func(t *testing.T) { closesTheLoop(t, c.policy, c.concurrency, c.blocks) })
	}
}

func closesTheLoop(t *testing.T, policy string, concurrency, blocks int) {
	const runs = 5
	d := sim.Default()
	d.Model, d.Workers, d.Router.Settings.Policy = "qwen3-14b", 2, policy
	d.Load.Mode, d.Load.Concurrency, d.Load.MaxGap = "concurrency", concurrency, "500ms"
	if blocks > 0 {
		d.Engine.KVBlocks = fmt.Sprint(blocks)
	}
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	w := short(t, trace.OutputsInferred, 2*concurrency, 40)
	want := predicted(t, w, p)
	predicted := compared(want, pausesOf(want))
	var all []map[string]float64
	for range runs {
		got, pauses := served(t, w, p, true)
		if got.Requests.Completed != want.Requests.Completed {
			t.Fatalf("%d requests completed, predicted are %d", got.Requests.Completed, want.Requests.Completed)
		}
		all = append(all, compared(got, pauses))
	}
	for _, c := range []struct {
		name            string
		share, absolute float64 // either may be off by so much
	}{{"mean TTFT, ms", 0.03, 3}, {"mean E2E, ms", 0.03, 3}, {"hit rate, %", 0, 0.5}, {"mean program makespan, s", 0.02, 0}, {"pauses", 0.1, 3}} {
		var values []float64
		for _, figures := range all {
			values = append(values, figures[c.name])
		}
		slices.Sort(values)
		got, want := values[runs/2], predicted[c.name]
		t.Logf("%-25s predicted %9.3f, replayed %9.3f (%.3f to %.3f), %+.2f%%", c.name, want, got, values[0], values[runs-1], 100*(got/want-1))
		if diff := math.Abs(got - want); diff > max(c.share*want, c.absolute) {
			t.Errorf("%s is %.3f, predicted %.3f: want %g%% or %g", c.name, got, want, 100*c.share, c.absolute)
		}
	}
}

// compared are the figures that are held against each other.
func compared(r *report.Run, pauses float64) map[string]float64 {
	return map[string]float64{"mean TTFT, ms": r.LatencyMs.TTFT.Mean.Value, "mean E2E, ms": r.LatencyMs.E2E.Mean.Value,
		"hit rate, %": 100 * r.KV.HitRate.Value, "mean program makespan, s": r.Programs.MakespanS.Mean.Value, "pauses": pauses}
}

func pausesOf(r *report.Run) float64 {
	if r.Scheduler == nil {
		return 0
	}
	return float64(r.Scheduler.Pauses)
}
