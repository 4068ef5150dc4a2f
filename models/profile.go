package models

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Profile is what an engine adds to the physics of a step: factors on the terms that GPU and kernels determine, and the
// time of the host; see StepCost for the formula. A profile fitted on one GPU is used on others as it is: what differs
// between GPUs stands in GPU and Ops.
type Profile struct {
	Name   string `yaml:"name"`
	Source string `yaml:"source"` // what it was fitted to, and how well, in a sentence or two

	// Factors on physical terms: 1 when the kernels' rates are right, and never outside 0.5 to 2, since then a term is
	// missing.
	Linear float64 `yaml:"linear"` // matrix products and experts, in whole
	// Compute is on the arithmetic of matrix products and experts alone, 0 is 1: kernel tables are measured in bursts,
	// while under sustained load the power limit lowers the clock (thonking.ai/p/strangely-matrix-multiplications: 13 %
	// on an A100 between inputs that flip no bits and random ones).
	Compute          float64 `yaml:"compute"`
	PrefillAttention float64 `yaml:"prefill_attention"`
	DecodeAttention  float64 `yaml:"decode_attention"`
	Communication    float64 `yaml:"communication"`

	// Time of the host that the GPU waits for, in µs.
	LayerUs        float64 `yaml:"layer_us"`         // per layer, beyond the floors of its kernels
	StepUs         float64 `yaml:"step_us"`          // per step
	RequestUs      float64 `yaml:"request_us"`       // per sequence in the step
	PrefillTokenUs float64 `yaml:"prefill_token_us"` // per prompt token in the step
	// SyncStepUs is per step, SyncRequestUs per sequence in it, where the host prepares a step only after the one before
	// it: vLLM before 0.14, whose asynchronous scheduling hides them.
	SyncStepUs    float64 `yaml:"sync_step_us"`
	SyncRequestUs float64 `yaml:"sync_request_us"`

	// Time outside the engine's steps, in µs.
	AdmissionUs   float64 `yaml:"admission_us"`    // a0: from arrival to the engine's queue
	PromptTokenUs float64 `yaml:"prompt_token_us"` // a_tok: the same, per prompt token
	OutputTokenUs float64 `yaml:"output_token_us"` // a_out: from the end of a step to the client, per token

	// Fitted lists the measurements behind the coefficients; none when they were not fitted.
	Fitted []Provenance `yaml:"fitted,omitempty"`
	// Errors is how far predictions with this profile were off.
	Errors []FitError `yaml:"errors,omitempty"`
	// Envelope is where the measurements lie; nil when there are none.
	Envelope *Envelope `yaml:"envelope,omitempty"`
}

// Provenance is where a set of measurements comes from.
type Provenance struct {
	Source  string `yaml:"source"` // repository and path
	Commit  string `yaml:"commit,omitempty"`
	Licence string `yaml:"licence"`
	Date    string `yaml:"date,omitempty"`    // of the fit, or of the measurements where they tell
	Rows    int    `yaml:"rows"`              // used for the fit
	Engine  string `yaml:"engine,omitempty"`  // name and version, such as "vllm 0.19"
	GPU     string `yaml:"gpu,omitempty"`     // name in the catalogue
	Comment string `yaml:"comment,omitempty"` // what was left out, and why
}

// FitError is the error of one measure over a set of rows, as shares: 0.05 is 5 %.
type FitError struct {
	Data    string  `yaml:"data"`    // which rows: a source, a model, a tensor-parallel size
	Measure string  `yaml:"measure"` // ttft, tpot, e2e or throughput
	Rows    int     `yaml:"rows"`
	Mean    float64 `yaml:"mean"`   // of the absolute relative errors (MAPE)
	Median  float64 `yaml:"median"` // of the absolute relative errors
	Bias    float64 `yaml:"bias"`   // mean of the signed relative errors, predicted less measured
	HeldOut bool    `yaml:"held_out,omitempty"`
}

// Envelope is the range of steps that the measurements behind a profile cover.
type Envelope struct {
	Models    []string `yaml:"models"`
	Tensor    Range    `yaml:"tensor"`     // tensor-parallel size
	Batch     Range    `yaml:"batch"`      // sequences in a step
	Context   Range    `yaml:"context"`    // tokens per sequence, mean of a step
	NewTokens Range    `yaml:"new_tokens"` // prompt tokens in a step that has any
}

// Range is the whole numbers from Least to Most.
type Range struct {
	Least int `yaml:"least"`
	Most  int `yaml:"most"`
}

// Contains tells whether n lies in the range.
func (r Range) Contains(n int64) bool { return int64(r.Least) <= n && n <= int64(r.Most) }

// Covers tells whether measurements on this model at this tensor-parallel size are within the envelope.
func (e *Envelope) Covers(model string, tensor int) bool {
	return e != nil && slices.Contains(e.Models, model) && e.Tensor.Contains(int64(tensor))
}

// Contains tells whether a step is like those measured; context is the sum of its decodes' contexts in tokens.
func (e *Envelope) Contains(b Batch, context int64) bool {
	sequences := int64(b.Decodes) + int64(b.Prefills)
	if e == nil || !e.Batch.Contains(sequences) || b.PrefillTokens > 0 && !e.NewTokens.Contains(int64(b.PrefillTokens)) {
		return false
	}
	return sequences == 0 || e.Context.Contains((context+b.PrefillContext)/sequences)
}

// DefaultProfile names the catalogue's profile for the deployment, by its engine; vLLM has one for models with experts
// and one for the others, since each class is told better without the other.
func (d *Deployment) DefaultProfile() string {
	switch {
	case d.Engine == EngineSGLang:
		return "h100-sglang"
	case d.Model.MoELayers() > 0:
		return "h100-vllm-moe"
	}
	return "h100-vllm"
}

// Bounds of a factor on a physical term.
const leastFactor, mostFactor = 0.5, 2

// Validate reports the first coefficient that is out of range, by its key.
func (p *Profile) Validate() error {
	const maxUs, maxUnitUs = 1e9, 1e6
	for _, f := range []struct {
		key         string
		value       float64
		least, most float64
	}{
		{"linear", p.Linear, leastFactor, mostFactor},
		{"compute", cmp.Or(p.Compute, 1), leastFactor, mostFactor},
		{"prefill_attention", p.PrefillAttention, leastFactor, mostFactor},
		{"decode_attention", p.DecodeAttention, leastFactor, mostFactor},
		{"communication", p.Communication, leastFactor, mostFactor},
		{"layer_us", p.LayerUs, 0, maxUs / maxLayers},
		{"step_us", p.StepUs, 0, maxUs},
		{"request_us", p.RequestUs, 0, maxUnitUs},
		{"prefill_token_us", p.PrefillTokenUs, 0, maxUnitUs},
		{"sync_step_us", p.SyncStepUs, 0, maxUs},
		{"sync_request_us", p.SyncRequestUs, 0, maxUnitUs},
		{"admission_us", p.AdmissionUs, 0, maxUs},
		{"prompt_token_us", p.PromptTokenUs, 0, maxUnitUs},
		{"output_token_us", p.OutputTokenUs, 0, maxUs},
	} {
		if !(f.value >= f.least && f.value <= f.most) { // also catches NaN
			return fmt.Errorf("cost profile %s: %s is %g, want %g to %g", p.Name, f.key, f.value, f.least, f.most)
		}
	}
	return p.Envelope.validate(p.Name)
}

func (e *Envelope) validate(profile string) error {
	if e == nil {
		return nil
	}
	for _, r := range []struct {
		key string
		Range
	}{
		{"tensor", e.Tensor}, {"batch", e.Batch}, {"context", e.Context}, {"new_tokens", e.NewTokens},
	} {
		if r.Least < 0 || r.Most < r.Least {
			return fmt.Errorf("cost profile %s: envelope.%s is %d to %d, want a range from 0 up", profile, r.key, r.Least, r.Most)
		}
	}
	return nil
}

// RequestDelay is the time from a request's arrival to its being queued in the engine: HTTP, templating, tokenising.
func (c *StepCost) RequestDelay(promptTokens int) time.Duration {
	return c.admission + c.admissionToken.times(int64(promptTokens)).Duration()
}

// TokenDelay is the time from the end of a step to the client for each output token. It does not hold up the engine.
func (c *StepCost) TokenDelay() time.Duration { return c.outputToken }
