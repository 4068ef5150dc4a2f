package perfetto

import (
	"context"
	"math"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace/events"
	"github.com/agentsim/agentsim/trace/report"
)

// withTiers gives workers host memory, and lets KV leave the GPUs while tools run. Of few programs there is enough to tell.
func withTiers(d *sim.Deployment) {
	d.KV.Host.Capacity, d.KV.Policy = "4GiB", "all"
	d.Load.Programs, d.Load.Concurrency = 8, 8
}

// Transfers and actions in the file add up to the figures of the report; each fetch has an arrow to the prefill that waited for it,
// but those after a preemption, of which there are few; and each session has at each time as many blocks at each level as the
// events say.
func TestTiersEqualReport(t *testing.T) {
	run, source := predict(t, "mini-swe-agent", "kv", "2000", withTiers)
	in := draw(t, Options{}, source)
	transfers, took := map[string]report.Transfers{}, map[string]time.Duration{}
	actions, prefills := map[string]int64{}, map[any]time.Duration{}
	for _, s := range in.slices {
		switch {
		case s.is(catTransfer):
			m := transfers[s.name]
			m.Count++
			m.Bytes += s.args["bytes"].(int64)
			transfers[s.name] = m
			took[s.name] += s.took()
		case s.is(catAction):
			actions[s.name]++
		case s.name == stagePrefill:
			prefills[s.args["request_id"]] = s.at
		}
	}
	for cause, want := range run.KV.Transfers {
		if got := transfers[cause]; want.Stopped > 0 || got.Count != want.Count || got.Bytes != want.Bytes || math.Abs(took[cause].Seconds()-want.Seconds.Value) > 1e-6 {
			t.Errorf("%s: %+v in %v in the file, %+v in the report", cause, got, took[cause], want)
		}
	}
	if len(transfers) != len(run.KV.Transfers) || transfers["fetch"].Count == 0 {
		t.Errorf("not the run that is wanted: %+v", run.KV.Transfers)
	}
	for what, a := range run.KV.Actions {
		for outcome, want := range map[string]int64{"": a.Accepted, " clipped": a.Clipped, " deferred": a.Deferred, " refused": a.Refused, " late": a.Late,
			" wasted": a.Wasted} {
			if got := actions[what+outcome]; got != want && what != "fetch" { // which is no action on a session
				t.Errorf("%s%s: %d in the file, %d in the report", what, outcome, got, want)
			}
		}
	}
	fetches, again := int64(0), int64(0)
	for _, s := range in.slices {
		if at := prefills[s.args["request_id"]]; s.name == "fetch" && at < s.at {
			again++
		}
	}
	for _, f := range in.flows {
		if f.from.is(catTransfer) {
			fetches++
			if f.from.name != "fetch" || f.to.name != stagePrefill || f.to.at < f.from.until || f.to.args["request_id"] != f.from.args["request_id"] {
				t.Errorf("an arrow from %s at %v to %s at %v", f.from.name, f.from.at, f.to.name, f.to.at)
			}
		}
	}
	if want := run.KV.Transfers["fetch"].Count - again; fetches != want || again*10 > want {
		t.Errorf("%d arrows from %d fetches, %d more after preemptions", fetches, want, again)
	}
	checkResidency(t, in, source.Events)
}

// checkResidency compares the counters of sessions with the events.
func checkResidency(t *testing.T, in *imported, file *events.File) {
	t.Helper()
	type key struct{ session, counter string }
	want, got := map[key][]value{}, map[key][]value{}
	_, err := file.Read(context.Background(), func(e *events.Event) error {
		if r := e.Residency; r != nil {
			for counter, blocks := range map[string]int{"KV on GPU": r.GPU, "KV in host memory": r.Host, "KV on disk": r.Disk, "KV in remote tier": r.Remote} {
				k := key{r.Session, counter}
				if n := len(want[k]); n == 0 && blocks > 0 || n > 0 && want[k][n-1].v != float64(blocks) {
					want[k] = append(want[k], value{e.At, float64(blocks)})
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, track := range in.tracks {
		if group := in.tracks[track.parent]; track.counter && group.name == "KV by tier" {
			got[key{in.tracks[group.parent].name, track.name}] = track.values
		}
	}
	if len(want) == 0 {
		t.Error("the events tell of no session's KV")
	}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(value{})); diff != "" {
		t.Errorf("counters of sessions (-events +file):\n%s", diff)
	}
}
