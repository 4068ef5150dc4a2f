package perfetto

import (
	"context"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// predict runs coding agents on two crowded workers, and writes trace and events.
func predict(t testing.TB, profile, policy, blocks string, change ...func(*sim.Deployment)) (*report.Run, Source) {
	t.Helper()
	d := sim.Default()
	d.Model, d.GPU, d.Workers, d.Seed = "qwen3-14b", "h100-sxm", 2, 7
	d.Router.Policy = policy
	d.Engine.KVBlocks = blocks
	d.Engine.MaxNumBatchedTokens, d.Engine.MaxNumSeqs = 512, 64
	d.Cost = sim.Cost{Profile: "fixed", Prefill: 200 * time.Millisecond, Decode: 10 * time.Millisecond}
	d.Load.Mode, d.Load.Concurrency = "concurrency", 24
	d.Client.Timeout = 0
	for _, c := range change {
		c(&d)
	}
	capture, err := synth.Generate(profile, synth.Options{Programs: 40, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	capture, _, err = capture.LimitContext(30_000, "truncate")
	if err != nil {
		t.Fatal(err)
	}
	if err := capture.Link(); err != nil {
		t.Fatal(err)
	}
	workload, err := capture.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(t.TempDir(), "run")
	sidecar, err := events.Create(prefix+events.Suffix, plan.EventsHeader(capture.Epoch))
	if err != nil {
		t.Fatal(err)
	}
	result, err := sim.Run(context.Background(), workload, plan, sim.Options{Events: sidecar.Write})
	if err != nil {
		t.Fatal(err)
	}
	if err := sidecar.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := trace.NewWriter(prefix+".trace", trace.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for rec := range result.Records() {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	source := Source{Label: "run", Capture: open(t, prefix+".trace")}
	if source.Events, err = events.Open(prefix + events.Suffix); err != nil {
		t.Fatal(err)
	}
	return result.Report(nil, nil), source
}

// The slices of a predicted run add up to the figures of its report.
func TestSumsEqualReport(t *testing.T) {
	if testing.Short() {
		t.Skip("20 s each with the race detector, which has nothing to find: one goroutine draws")
	}
	for _, test := range []struct{ profile, router, blocks string }{
		{"mini-swe-agent", "thunderagent", "6000"},
		{"openhands", "thunderagent", "6000"},
		{"mini-swe-agent", "kv", "2600"},
	} {
		t.Run(test.profile+" "+test.router, func(t *testing.T) {
			run, source := predict(t, test.profile, test.router, test.blocks)
			if run.Requests.Completed != run.Requests.Total {
				t.Fatalf("not the run that is wanted: %+v", run.Requests)
			}
			scheduler := run.Scheduler
			if scheduler == nil {
				scheduler = &report.Scheduler{}
			}
			if wanted := min(scheduler.Pauses, scheduler.Migrations) + int64(run.Preemptions.Value); wanted == 0 {
				t.Fatalf("neither pauses and migrations nor preemptions: %+v", scheduler)
			}
			in := draw(t, Options{}, source)
			total := func(d report.Distribution) float64 { return d.Mean.Value * float64(d.Count) }
			counted := map[string]int64{}
			var steps, decisions = map[string]int64{}, map[string]int64{}
			for _, s := range in.slices {
				for _, c := range s.categories {
					counted[c]++
				}
				if s.is(catStep) {
					for _, key := range []string{"prefill_tokens", "decode_tokens", "steps"} {
						steps[key] += s.args[key].(int64)
					}
				}
				if s.is(catDecision) {
					decisions[s.name]++
				}
			}
			for _, f := range []struct {
				what      string
				got, want float64
			}{
				{"turns", float64(counted[catTurn]), float64(run.Requests.Total)},
				{"programs", float64(counted[catProgram]), float64(run.Programs.Total)},
				{"time in turns", in.sum(catTurn).Seconds(), total(run.Programs.ModelS)},
				{"tool time", in.sum(catToolTime).Seconds(), total(run.Programs.ToolS)},
				{"human time", in.sum(catHumanTime).Seconds(), total(run.Programs.HumanS)},
				{"time held", in.sum(catHeld).Seconds(), total(run.Programs.PausedS)},
				{"time paused", in.sum(catPaused).Seconds(), scheduler.PausedS.Value},
				{"pauses", float64(decisions["pause"]), float64(scheduler.Pauses)},
				{"marks", float64(decisions["mark"]), float64(scheduler.Marks)},
				{"resumes", float64(decisions["resume"] + decisions["forced-resume"]), float64(scheduler.Resumes)},
				{"migrations", float64(decisions["migrate"]), float64(scheduler.Migrations)},
				{"preemptions", float64(counted[catPreemption]), run.Preemptions.Value},
				{"prefill tokens", float64(steps["prefill_tokens"]), sumWorkers(run, func(w report.Worker) report.Figure { return w.PrefillTokens })},
				{"decode tokens", float64(steps["decode_tokens"]), sumWorkers(run, func(w report.Worker) report.Figure { return w.DecodeTokens })},
				{"busy time", in.sum(catStep).Seconds(), sumWorkers(run, func(w report.Worker) report.Figure { return w.BusyS })},
			} {
				if math.Abs(f.got-f.want) > 1e-6*max(1, math.Abs(f.want)) {
					t.Errorf("%s: %v in the file, %v in the report", f.what, f.got, f.want)
				}
			}
			checkMicroseconds(t, in, source.Capture)
		})
	}
}

func sumWorkers(run *report.Run, of func(report.Worker) report.Figure) float64 {
	var sum float64
	for _, w := range run.Workers {
		sum += of(w).Value
	}
	return sum
}

// checkMicroseconds compares the slices of calls with the times in their rows.
func checkMicroseconds(t *testing.T, in *imported, c *trace.Capture) {
	t.Helper()
	rows := map[string]*trace.Turn{}
	for _, s := range c.Sessions {
		for _, turn := range s.Turns {
			rows[turn.ID] = turn
		}
	}
	near := func(what string, s *slice, got, want time.Duration) {
		if (got - want).Abs() > time.Microsecond {
			t.Fatalf("%s of %v: %v, the row says %v", what, s.args["request_id"], got, want)
		}
	}
	for _, s := range in.slices {
		id, _ := s.args["request_id"].(string)
		row := rows[id]
		switch {
		case s.is(catTurn):
			near("total", s, s.took(), row.End-row.Start)
			near("start", s, s.at, row.Detail.Run.Arrival)
		case s.is(catFirstToken):
			near("TTFT", s, s.at-s.parent.at, row.TTFT)
		case s.is(catStage) && s.name == stageWait:
			near(s.name, s, s.took(), row.Detail.PrefillWait)
		case s.is(catStage) && s.name == stagePrefill:
			near(s.name, s, s.took(), row.Detail.Prefill)
		case s.is(catStage) && s.name == stageDecode:
			near(s.name, s, s.took(), row.End-row.Start-row.TTFT)
		}
	}
}
