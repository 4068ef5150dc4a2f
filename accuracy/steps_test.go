package accuracy

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/accuracy/steplog"
	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
)

// measuredSteps are steps of a model on two GPUs whose times are those of a profile: of decodes alone, of a prompt alone
// and of both. keep says what their log tells.
func measuredSteps(t testing.TB, truth *models.Profile, n int, keep func(*steplog.Step)) *StepFitter {
	t.Helper()
	d := sim.Default()
	d.Model, d.Parallelism.Tensor = "llama-3.1-8b", 2
	plan, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	cost, err := plan.Hardware.StepCostOf(truth)
	if err != nil {
		t.Fatal(err)
	}
	f := &StepFitter{Plan: plan, Start: profile(0, 0, 0), Pull: 1e-6}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		s := steplog.Step{File: "made", Line: i + 1, PrefillPairs: steplog.Unknown, CacheUse: steplog.Unknown}
		if i%3 != 1 {
			s.Decodes = 1 << rng.IntN(8)
			s.DecodeContext = int64(s.Decodes * (3000 + rng.IntN(4000)))
		}
		if i%3 != 0 {
			s.Prefills = 1 + rng.IntN(3)
			s.PrefillTokens = s.Prefills * (1 + rng.IntN(2000))
			s.PrefillContext = int64(s.PrefillTokens + rng.IntN(50_000))
		}
		row := f.row(&s)
		s.Time = time.Duration(1e3 * row.timeUs(cost))
		if keep != nil {
			keep(&s)
		}
		f.Steps = append(f.Steps, s)
	}
	return f
}

// Steps that a profile made give that profile back, without rounding or the simulator in between.
func TestStepFitFindsWhatMadeTheSteps(t *testing.T) {
	truth := profile(30, 20, 0)
	truth.Linear, truth.DecodeAttention, truth.PrefillAttention, truth.Communication, truth.PrefillTokenUs = 1.1, 0.9, 1.2, 1.05, 2
	f := measuredSteps(t, &truth, 600, nil)
	f.Free = []string{"linear", "prefill_attention", "decode_attention", "communication", "layer_us", "request_us", "prefill_token_us"}
	fit, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range terms {
		if got, want := *c.of(&fit.Profile), *c.of(&truth); math.Abs(got-want) > 0.02*max(want, 1) {
			t.Errorf("%s is %.4g, want %.4g", c.key, got, want)
		}
	}
	if s := ScoreOf(fit.Errors); s.Rows != 600 || s.Mean > 0.002 {
		t.Errorf("errors are %+v, want a mean below 0.002", s)
	}
	shares := 0.0
	for _, term := range fit.Terms {
		shares += term.Shares[0]
	}
	if math.Abs(shares-1) > 0.01 { // what is fitted is all there is
		t.Errorf("the coefficients' shares add up to %.3f", shares)
	}
	times, err := f.Times(&fit.Profile)
	if err != nil {
		t.Fatal(err)
	}
	var decode, prompt float64
	for _, term := range times {
		decode += term.Decode
		prompt += term.Prompt
	}
	if math.Abs(decode-1) > 1e-9 || math.Abs(prompt-1) > 1e-9 {
		t.Errorf("the terms' shares add up to %g of decode steps and %g of those with prompts", decode, prompt)
	}
}

// A few steps of a tenth of a second, as when a server collects garbage, do not move the fit.
func TestStepFitBearsOutliers(t *testing.T) {
	truth := profile(30, 20, 0)
	f := measuredSteps(t, &truth, 600, nil)
	for i := 0; i < len(f.Steps); i += 37 {
		f.Steps[i].Time += 100 * time.Millisecond
	}
	f.Free = []string{"layer_us", "request_us"}
	fit, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(fit.Profile.LayerUs-30) > 0.6 || math.Abs(fit.Profile.RequestUs-20) > 0.4 {
		t.Errorf("layer_us is %.4g and request_us %.4g, want 30 and 20", fit.Profile.LayerUs, fit.Profile.RequestUs)
	}
}

// What a log does not tell of contexts is neither guessed nor left in other coefficients.
func TestStepFitRefusesWhatTheLogDoesNotTell(t *testing.T) {
	truth := profile(30, 20, 0)
	truth.PrefillTokenUs = 2
	noDecodes := func(s *steplog.Step) { s.DecodeContext = steplog.Unknown }
	noPasts := func(s *steplog.Step) { s.PrefillContext = steplog.Unknown }
	neither := func(s *steplog.Step) { noDecodes(s); noPasts(s) }
	for _, test := range []struct {
		name      string
		keep      func(*steplog.Step)
		free      string
		key, want string
	}{
		{"decode attention without contexts", noDecodes, "decode_attention layer_us", "decode_attention", "they do not tell the contexts of decodes"},
		{"prefill attention without pasts", noPasts, "prefill_attention layer_us", "prefill_attention", "what lies before them"},
		{"a time per sequence without contexts", neither, "layer_us request_us", "request_us", "they do not tell the contexts of decodes"},
		{"a time per prompt token without pasts", noPasts, "layer_us prefill_token_us", "prefill_token_us", "what lies before them"},
		{"one depth", nil, "layer_us step_us", "layer_us", "by changing step_us"},
		{"what is outside of steps", nil, "layer_us admission_us", "admission_us", "it has no effect on them"},
		{"what asynchronous scheduling hides", nil, "layer_us sync_request_us", "sync_request_us", "it has no effect on them"},
	} {
		f := measuredSteps(t, &truth, 300, test.keep)
		f.Free = strings.Fields(test.free)
		_, err := f.Run()
		var unidentified *UnidentifiedError
		if !errors.As(err, &unidentified) || unidentified.Key != test.key || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want one of %s with %q", test.name, err, test.key, test.want)
		}
	}
	// What can still be told is told without a bias by the rest.
	f := measuredSteps(t, &truth, 300, neither)
	f.Free = []string{"layer_us"}
	fit, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(fit.Profile.LayerUs-30) > 3 {
		t.Errorf("layer_us is %.4g without contexts, want about 30", fit.Profile.LayerUs)
	}
}

// The use of the KV cache gives the contexts of steps of decodes alone.
func TestStepFitReadsContextsFromTheCache(t *testing.T) {
	truth := profile(30, 20, 0)
	f := measuredSteps(t, &truth, 300, nil)
	tokens := float64(f.Plan.Blocks) * float64(f.Plan.Engine.BlockSize)
	for i := range f.Steps {
		if s := &f.Steps[i]; s.Prefills == 0 {
			s.CacheUse, s.DecodeContext = float64(s.DecodeContext)/tokens, steplog.Unknown
		}
	}
	f.Free = []string{"layer_us", "request_us"}
	fit, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(fit.Profile.LayerUs-30) > 0.3 || math.Abs(fit.Profile.RequestUs-20) > 0.2 {
		t.Errorf("layer_us is %.4g and request_us %.4g, want 30 and 20", fit.Profile.LayerUs, fit.Profile.RequestUs)
	}
}

// A stretch that is left out does not count: where it follows another law, the others do not predict it.
func TestStepFitLeaveOut(t *testing.T) {
	truth := profile(30, 20, 0)
	f := measuredSteps(t, &truth, 300, nil)
	for i := range f.Steps {
		if s := &f.Steps[i]; i >= 200 {
			s.File = "other"
			s.Time *= 2
		}
	}
	f.Free = []string{"layer_us", "request_us"}
	held, err := f.LeaveOut(func(s *steplog.Step) string { return s.File })
	if err != nil {
		t.Fatal(err)
	}
	if len(held) != 2 || held[0].Name != "made" || len(held[0].Errors) != 200 || len(held[1].Errors) != 100 || held[1].Steps[0] != 200 {
		t.Fatalf("held out are %d parts", len(held))
	}
	if math.Abs(held[1].Profile.LayerUs-30) > 0.3 {
		t.Errorf("without the stretch layer_us is %.4g, want 30", held[1].Profile.LayerUs)
	}
	if s := ScoreOf(held[1].Errors); math.Abs(s.Bias+0.5) > 0.01 {
		t.Errorf("the stretch of twice the time is predicted with a bias of %.3f, want -0.5", s.Bias)
	}
}

// With the weights and bounds out of play the fit is ordinary least squares: compare with the normal equations solved by
// hand for two coefficients.
func TestSolveIsLeastSquares(t *testing.T) {
	truth := profile(30, 20, 0)
	f := measuredSteps(t, &truth, 200, nil)
	f.Free = []string{"layer_us", "request_us"}
	p, err := f.problem()
	if err != nil {
		t.Fatal(err)
	}
	flat := make([]float64, len(f.Steps)) // errors that all weigh the same
	for i := range flat {
		flat[i] = 0.01 * math.Sin(float64(i))
	}
	var aa, ab, bb, a, b float64
	for i, e := range flat {
		w, x, y := p.weights[i], p.effects.At(i, 0), p.effects.At(i, 1)
		aa, ab, bb = aa+w*x*x, ab+w*x*y, bb+w*y*y
		a, b = a-w*x*e, b-w*y*e
	}
	det := aa*bb - ab*ab
	want := []float64{100 + (a*bb-b*ab)/det, 100 + (b*aa-a*ab)/det}
	for k, v := range p.solve(flat, []float64{100, 100}) {
		if math.Abs(v-want[k]) > 1e-6 {
			t.Errorf("coefficient %d is %.9g, want %.9g", k, v, want[k])
		}
	}
}
