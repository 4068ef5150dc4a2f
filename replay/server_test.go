package replay_test

import (
	"context"
	"math"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/sim/server"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

// deployment has steps of 20 ms, whatever they compute: what happens in which step can be told by time.
func deployment(concurrency int) sim.Deployment {
	d := sim.Default()
	d.Model, d.Parallelism.Tensor, d.Workers = "qwen3-14b", 1, 1
	d.Load.Mode, d.Load.Concurrency = "concurrency", concurrency
	d.Cost = sim.Cost{Profile: "fixed", Prefill: 20 * time.Millisecond, Decode: 20 * time.Millisecond}
	return d
}

// short is synthetic work cut down to short outputs and gaps, so that it takes seconds.
func short(t testing.TB, outputs trace.Outputs) *trace.Workload {
	t.Helper()
	c, err := synth.Generate("mini-swe-agent", synth.Options{Programs: 6, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Sessions {
		s.Turns = s.Turns[:min(len(s.Turns), 6)]
		for _, u := range s.Turns {
			u.Output = 1 + u.Output%8
		}
	}
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := c.Compile(outputs)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A replay against the simulated server measures what the simulation predicts. It tests the plumbing on both sides, not
// the model of a server. Generated tokens are reused as the trace has it where the server is made to generate those of the
// later prompts, and not at all where it generates others.
func TestReplayMeasuresWhatIsPredicted(t *testing.T) {
	t.Run("outputs forced", func(t *testing.T) { measuresWhatIsPredicted(t, trace.OutputsInferred, true) })
	t.Run("outputs not reused", func(t *testing.T) { measuresWhatIsPredicted(t, trace.OutputsNone, false) })
}

func measuresWhatIsPredicted(t *testing.T, outputs trace.Outputs, force bool) {
	const concurrency = 3
	d := deployment(concurrency)
	d.Load.MaxGap = "50ms"
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	w := short(t, outputs)
	simulated, err := sim.Run(t.Context(), w, p, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := simulated.Report(nil, nil)

	s, err := server.New(p, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.Run(ctx)
	h := httptest.NewServer(s)
	defer h.Close()
	f := &fake{Server: h}
	result, _ := run(t, w, f, func(s *setup) {
		s.options.Model, s.options.ForceOutputs = "qwen3-14b", force
		s.plan = plan.Options{Timing: plan.Concurrency, Concurrency: concurrency, MaxGap: 50 * time.Millisecond}
	})
	got := result.Report(replay.About{})
	if got.Requests.Completed != want.Requests.Completed {
		t.Fatalf("%d requests completed, predicted are %d", got.Requests.Completed, want.Requests.Completed)
	}
	if got.Replay.Prompts.Off.Value != 0 || got.Replay.Outputs.Off.Value != 0 {
		t.Errorf("lengths are off: %+v, %+v", got.Replay.Prompts, got.Replay.Outputs)
	}
	if diff := math.Abs(got.KV.HitRate.Value - want.KV.HitRate.Value); diff > 0.0005 {
		t.Errorf("hit rate %.4f, predicted %.4f", got.KV.HitRate.Value, want.KV.HitRate.Value)
	}
	t.Logf("hit rate %.4f, predicted %.4f", got.KV.HitRate.Value, want.KV.HitRate.Value)
	for name, pair := range map[string][2]float64{
		"TTFT": {got.LatencyMs.TTFT.P50.Value, want.LatencyMs.TTFT.P50.Value},
		"E2E":  {got.LatencyMs.E2E.P50.Value, want.LatencyMs.E2E.P50.Value},
	} {
		t.Logf("median %s %.2f ms, predicted %.2f", name, pair[0], pair[1])
		if math.Abs(pair[0]-pair[1]) > 20+0.15*pair[1] { // a step, and what else the machine does
			t.Errorf("median %s is %.2f ms, predicted %.2f", name, pair[0], pair[1])
		}
	}
}

// The same tree of sessions against a real server, where the variable names one.
func TestRealServer(t *testing.T) {
	url := os.Getenv("AGENTSIM_REPLAY_URL")
	if url == "" {
		t.Skip("AGENTSIM_REPLAY_URL names no server")
	}
	result, _ := run(t, family(t), newFake(t), func(s *setup) {
		s.client.URLs = []string{url}
		s.options.Model = os.Getenv("AGENTSIM_REPLAY_MODEL")
	})
	r := result.Report(replay.About{})
	if r.Requests.Completed != 4 || r.Replay.Prompts.Off.Value != 0 || r.Replay.Outputs.Off.Value != 0 {
		t.Errorf("%+v, prompts %+v, outputs %+v, %q", r.Requests, r.Replay.Prompts, r.Replay.Outputs, r.Warnings)
	}
}
