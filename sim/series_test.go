package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// Two turns with a tool between them, 150 ms to 1150 ms, sampled every 100 ms; blocks of 4 tokens. The last of the first
// turn's tokens is never computed, and its 3 blocks stay cached.
func TestSeriesByHand(t *testing.T) {
	d := fixed()
	d.Cost.Prefill, d.Cost.Decode = 150*ms, 50*ms
	w := compile(t, session("a", 1, trace.Turn{Input: 12, Output: 1, End: 150 * ms}, trace.Turn{Input: 20, Output: 2, Start: 1150 * ms, End: 1400 * ms}))
	got := simulate(t, w, d, Options{Samples: 100}).Series
	if got.Step != 100*ms || len(got.Samples) != 14 || got.Capacity != 4000 {
		t.Fatalf("%d samples every %v of %d tokens, want 14 every 100 ms of 4000", len(got.Samples), got.Step, got.Capacity)
	}
	for i, want := range map[int]report.Sample{
		1:  {Running: 12, Wanted: 12, Programs: 1, RequestsRunning: 1},
		5:  {Cached: 12, Wanted: 13, Programs: 1},
		12: {Running: 20, Wanted: 20, Programs: 1, RequestsRunning: 1},
	} {
		if diff := cmp.Diff(want, got.Samples[i]); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", time.Duration(i)*got.Step, diff)
		}
	}
}

// Whatever the length of the run, there are between half the limit and the limit of samples, they span it, no state is
// beyond the capacity, and sampling changes nothing.
func TestSeriesOfLongRuns(t *testing.T) {
	w := agents(t, synth.Options{Programs: 30, Seed: 3})
	for _, policy := range []string{"kv", "thunderagent"} {
		d := fleetOf(2, policy, 16)
		d.Engine.KVBlocks = "6000"
		const limit = 64
		res, plain := simulate(t, w, d, Options{Samples: limit}), simulate(t, w, d, Options{})
		if diff := cmp.Diff(plain.Requests, res.Requests); diff != "" || plain.Series != nil {
			t.Errorf("%s: sampling changes the run:\n%s", policy, diff)
		}
		s := res.Series
		if n := len(s.Samples); n < limit/2 || n >= limit || time.Duration(n-1)*s.Step > res.End || time.Duration(n)*s.Step <= res.End {
			t.Errorf("%s: %d samples every %v of a run of %v", policy, n, s.Step, res.End)
		}
		paused := false
		for i, x := range s.Samples {
			if x.Running < 0 || x.Cached < 0 || x.Running+x.Pinned+x.Cached > s.Capacity || x.Programs > 16 || x.Held > x.Programs || x.Wanted < 0 {
				t.Errorf("%s: sample %d is %+v of %d tokens", policy, i, x, s.Capacity)
			}
			paused = paused || x.Held > 0
		}
		if paused != (policy == "thunderagent") {
			t.Errorf("%s: programs were held at some sample: %v", policy, paused)
		}
	}
}
