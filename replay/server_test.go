package replay_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/sim/server"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
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

// short is synthetic work cut down to six turns a program and outputs of so many tokens at most, so that it takes seconds.
func short(t testing.TB, outputs trace.Outputs, programs int, output int32) *trace.Workload {
	t.Helper()
	c, err := synth.Generate("mini-swe-agent", synth.Options{Programs: programs, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Sessions {
		s.Turns = s.Turns[:min(len(s.Turns), 6)]
		for _, u := range s.Turns {
			u.Output = 1 + u.Output%output
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
	w := short(t, outputs, 6, 8)
	got, _ := served(t, w, p, force)
	want := predicted(t, w, p)
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

// predicted is the report of a simulation.
func predicted(t *testing.T, w *trace.Workload, p *sim.Plan) *report.Run {
	t.Helper()
	result, err := sim.Run(t.Context(), w, p, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return result.Report(nil, nil)
}

// served is the report of a replay, under the same load, against the same deployment on the wall clock, with the pauses of
// its program scheduler.
func served(t *testing.T, w *trace.Workload, p *sim.Plan, force bool) (*report.Run, float64) {
	t.Helper()
	s, err := server.New(p, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.Run(ctx)
	h := httptest.NewServer(s)
	defer h.Close()
	gap, err := time.ParseDuration(p.Load.MaxGap)
	if err != nil {
		t.Fatal(err)
	}
	result, _ := run(t, w, &fake{Server: h}, func(s *setup) {
		s.options.Model, s.options.ForceOutputs, s.limit = p.Hardware.Model.Name, force, 2*time.Minute
		s.plan = plan.Options{Timing: plan.Concurrency, Concurrency: p.Load.Concurrency, MaxGap: gap, Ramp: p.Load.Ramp}
	})
	return result.Report(replay.About{}), pauses(t, h.URL)
}

// A chat whose answers are sent back finds the recorded reuse in the simulated server's cache, answers included, and its
// prompts have the recorded length: the template is calibrated, and what it adds is left out of the words.
func TestChatsReuseWhatIsRecorded(t *testing.T) {
	p, err := deployment(1).Resolve()
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(p, server.Options{TimeScale: 100})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.Run(ctx)
	h := httptest.NewServer(s)
	defer h.Close()
	name := p.Hardware.Model.Name
	c, err := client.New(client.Options{URLs: []string{h.URL}, Endpoint: client.Chat})
	if err != nil {
		t.Fatal(err)
	}
	cal, err := replay.Calibrate(ctx, c, 0, name)
	if err != nil || cal.Scale != (prompts.Scale{Overhead: 3, PerMessage: 4, PerWord: 1}) {
		t.Fatalf("calibrated to %+v (%v): the server's template adds 3 tokens, and 4 for each message", cal.Scale, err)
	}
	w := short(t, trace.OutputsInferred, 4, 40)
	hits := map[bool]float64{}
	for _, live := range []bool{false, true} {
		result, _ := run(t, w, &fake{Server: h}, func(s *setup) {
			s.text, s.scale, s.salt = true, cal.Scale, uint64(len(hits))
			s.options.Model, s.options.LiveOutputs, s.client.Text, s.client.Endpoint = name, live, live, client.Chat
			s.plan.Timing = plan.ASAP
		})
		r := result.Report(replay.About{})
		if r.Replay.Prompts.Off.Value != 0 || result.Failed > 0 {
			t.Errorf("prompts are off by %v, %d failed", r.Replay.Prompts.Off, result.Failed)
		}
		want := r.Replay.EndlessPromptHitRate.Value
		if live {
			want = r.Replay.EndlessHitRate.Value
		}
		hits[live] = r.KV.HitRate.Value
		if math.Abs(hits[live]-want) > 0.015 { // blocks of the server are smaller than those of the trace
			t.Errorf("live %v: hit rate %.4f, an endless cache has %.4f", live, hits[live], want)
		}
	}
	if hits[true] <= hits[false] {
		t.Errorf("hit rate %.4f with the answers sent back, %.4f without", hits[true], hits[false])
	}
}

// pauses asks a simulated server how often its program scheduler paused a program.
func pauses(t *testing.T, url string) float64 {
	t.Helper()
	answer, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); strings.HasPrefix(name, "agentsim:scheduler_pauses") {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return n
		}
	}
	return 0
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
