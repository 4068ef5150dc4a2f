package accuracy

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// recorded is a synthetic workload as a deployment with a made-up profile would have recorded it.
func recorded(t testing.TB, truth *models.Profile, programs int, set ...string) (*trace.Capture, sim.Deployment) {
	t.Helper()
	d := sim.Default()
	d.Model, d.Parallelism.Tensor = "llama-3.1-8b", 1
	d.Load.Mode = "recorded"
	d.Engine.AsyncScheduling = "false" // with it, when a call arrives in a step counts more than what is looked for
	c, err := synth.Generate("plain", synth.Options{Programs: programs, Seed: 1, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	served := Case{Deployment: d, capture: func() (*trace.Capture, error) { return c, nil }}
	res, err := served.simulate(context.Background(), truth)
	if err != nil {
		t.Fatal(err)
	}
	for i := range res.Requests {
		q := &res.Requests[i]
		turn := served.work.Calls[q.Turn].Turn
		turn.Start = q.Arrival.Truncate(time.Millisecond) // as request_received_ms
		turn.TTFT, turn.End = q.FirstToken-q.Arrival, turn.Start+q.End-q.Arrival
		turn.Inferred = 0
	}
	return c, d
}

// traceFitter is the fit of a trace as calibrate trace does it.
func traceFitter(t testing.TB, c *trace.Capture, d sim.Deployment, free string) *Fitter {
	t.Helper()
	k, err := Trace(c, d, 5)
	if err != nil {
		t.Fatal(err)
	}
	return &Fitter{Cases: []*Case{k}, Start: profile(0, 0, 0), Free: strings.Fields(free), Pull: 0.1, TTFT: 1}
}

// A trace that a profile made gives that profile back.
func TestTraceFindsWhatMadeIt(t *testing.T) {
	if testing.Short() {
		t.Skip("fitting 400 calls takes some seconds")
	}
	truth := profile(40, 30, 9000)
	truth.PrefillTokenUs = 8
	c, d := recorded(t, &truth, 400, "rate=8", "input=20:2000", "output=10:200")
	f := traceFitter(t, c, d, "layer_us request_us prefill_token_us admission_us")
	fit, err := f.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, term := range fit.Terms {
		i, _ := lookUpTerms([]string{term.Key})
		// The scatter of single calls leaves no more than 2 % of the times open; see that this says something of each.
		off, share := math.Abs(term.Value / *i[0].of(&truth) - 1), max(term.Shares[0], term.Shares[1])
		if off > 0.2 || off*share > 0.02 {
			t.Errorf("%s is %.4g, want %.4g: off by %.1f%%, of which its share is %.1f%%", term.Key, term.Value, *i[0].of(&truth), 100*off, 100*share)
		}
		if term.Alone < 0.1 || share < 0.01 {
			t.Errorf("%s: %.0f%% of its effect is its own, its share is %.1f%%", term.Key, 100*term.Alone, 100*share)
		}
	}
	held, err := f.LeaveOut(context.Background(), func(o *Outcome) string { return o.Part.Name })
	if err != nil {
		t.Fatal(err)
	}
	if len(held) != 5 || held[0].Name != "fold 1 of 5" || len(held[0].Outcomes) != 80 {
		t.Fatalf("%d stretches are held out, want 5 of 80 calls", len(held))
	}
	for _, h := range held {
		if s := Scores(h.Outcomes, TPOT); s.Rows != 80 || s.Mean > 0.03 {
			t.Errorf("%s: mean error of TPOT is %.3f over %d calls", h.Name, s.Mean, s.Rows)
		}
	}
}

// Prompts that are all alike, one at a time, do not tell a time per token from a time per prompt.
func TestTraceRefusesWhatItDoesNotTell(t *testing.T) {
	truth := profile(40, 30, 9000)
	truth.PrefillTokenUs, truth.PromptTokenUs = 10, 0.5
	c, d := recorded(t, &truth, 30, "rate=0.01", "input=1024", "output=24")
	tests := []struct{ free, key string }{
		{"layer_us prefill_token_us admission_us", "prefill_token_us"},
		{"layer_us admission_us prompt_token_us", "admission_us"},
		{"request_us layer_us", "request_us"},    // always one sequence
		{"layer_us sync_request_us", "layer_us"}, // with one sequence both are a time per step
	}
	if testing.Short() {
		tests = tests[:1]
	}
	for _, test := range tests {
		_, err := traceFitter(t, c, d, test.free).Run(context.Background())
		var unidentified *UnidentifiedError
		if !errors.As(err, &unidentified) || unidentified.Key != test.key {
			t.Errorf("fitting %s: error is %v, want one that names %s", test.free, err, test.key)
		}
	}
}

// Which traces are refused, and what they lack.
func TestTraceErrors(t *testing.T) {
	truth := profile(40, 30, 9000)
	for _, test := range []struct {
		name, want string
		spoil      func(i int, t *trace.Turn)
		calls      int
	}{
		{"too few calls", "20 of 20 calls are measured, want at least 30", func(int, *trace.Turn) {}, 20},
		{"no first tokens", "40 have no time of the first token (ttft_ms)", func(_ int, t *trace.Turn) { t.TTFT = trace.NoTime }, 40},
		{"no ends", "40 no end (total_time_ms)", func(_ int, t *trace.Turn) { t.End = trace.NoTime }, 40},
		{"failures", "40 failed", func(_ int, t *trace.Turn) { t.Status = "error" }, 40},
		{"one call without arrival", "1 of 40 calls have no recorded arrival", func(i int, t *trace.Turn) {
			if i == 3 {
				t.Start = trace.NoTime
			}
		}, 40},
		{"single tokens", "no call has a second token", func(_ int, t *trace.Turn) { t.Output, t.End = 1, t.Start+t.TTFT }, 40},
	} {
		c, d := recorded(t, &truth, test.calls, "rate=1", "input=100:2000", "output=10:20")
		for i, s := range c.Sessions {
			test.spoil(i, s.Turns[0])
		}
		if _, err := Trace(c, d, 5); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want one with %q", test.name, err, test.want)
		}
	}
	c, d := recorded(t, &truth, 40, "rate=1")
	c.SharedClock = false
	if _, err := Trace(c, d, 5); err == nil || !strings.Contains(err.Error(), "no clock that its sessions share") {
		t.Errorf("error is %v, want one about the clock", err)
	}
}

// inFlight is a sweep; its slow twin looks at every pair.
func TestInFlight(t *testing.T) {
	truth := profile(40, 30, 9000)
	c, _ := recorded(t, &truth, 200, "rate=20", "output=10:300")
	turns, err := measuredTurns(c)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for i, got := range inFlight(turns) {
		want := 0
		for j := range turns {
			if j <= i && turns[j].End > turns[i].Start {
				want++
			}
		}
		if got != want {
			t.Errorf("%d calls are under way at arrival %d, want %d", got, i, want)
		}
		most = max(most, got)
	}
	if most < 5 {
		t.Errorf("at most %d calls are under way: the test shows nothing", most)
	}
}

// Figures of single calls, by hand: 5 tokens, the first after 30 ms, the last after 70.
func TestFiguresOfACall(t *testing.T) {
	q := report.Request{Status: report.Completed, Arrival: time.Second, FirstToken: 1030 * time.Millisecond, End: 1070 * time.Millisecond, Output: 5}
	if f, ok := figuresOf(&q); !ok || f[TTFT] != 30 || f[E2E] != 70 || f[TPOT] != 10 {
		t.Errorf("figures are %v", f)
	}
	q.Status = report.Failed
	if f, ok := figuresOf(&q); ok || f != (Figures{}) {
		t.Errorf("figures of a failed call are %v", f)
	}
}
