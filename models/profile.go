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

// DefaultProfile is the name of the profile that was fitted to the deployment's engine on the H100: to models with experts,
// where the model has some and the catalogue has such a profile, else to all or to dense ones.
func (d *Deployment) DefaultProfile() string {
	name := "h100-" + d.WithDefaults().Engine
	if d.Model.MoELayers() > 0 && slices.Contains(Profiles(), name+"-moe") {
		return name + "-moe"
	}
	return name
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
	Measure string  `yaml:"measure"` // ttft, tpot, e2e, throughput or step
	Rows    int     `yaml:"rows"`
	Mean    float64 `yaml:"mean"`   // of the absolute relative errors (MAPE)
	Median  float64 `yaml:"median"` // of the absolute relative errors
	Bias    float64 `yaml:"bias"`   // mean of the signed relative errors, predicted less measured
	HeldOut bool    `yaml:"held_out,omitempty"`
}

// Bounds of a factor on a physical term.
const leastFactor, mostFactor = 0.5, 2

// Coefficient is a number of a Profile, for people to read.
type Coefficient struct {
	Key     string // of the file
	Value   float64
	Unit    string // "" for a factor
	Meaning string

	least, most float64
}

// Coefficients lists the profile's numbers in the order of the formula of StepCost.
func (p *Profile) Coefficients() []Coefficient {
	const maxUs, maxUnitUs = 1e9, 1e6
	return []Coefficient{
		{"linear", p.Linear, "", "on matrix products, experts and small kernels", leastFactor, mostFactor},
		{"compute", cmp.Or(p.Compute, 1), "", "on the arithmetic of matrix products and experts alone", leastFactor, mostFactor},
		{"prefill_attention", p.PrefillAttention, "", "on attention of prompt tokens", leastFactor, mostFactor},
		{"decode_attention", p.DecodeAttention, "", "on attention of generated tokens", leastFactor, mostFactor},
		{"communication", p.Communication, "", "on traffic between GPUs", leastFactor, mostFactor},
		{"layer_us", p.LayerUs, "µs", "host, per layer in every step", 0, maxUs / maxLayers},
		{"step_us", p.StepUs, "µs", "host, per step", 0, maxUs},
		{"request_us", p.RequestUs, "µs", "host, per sequence in the step", 0, maxUnitUs},
		{"prefill_token_us", p.PrefillTokenUs, "µs", "host, per prompt token in the step", 0, maxUnitUs},
		{"sync_step_us", p.SyncStepUs, "µs", "host, per step more without asynchronous scheduling", 0, maxUs},
		{"sync_request_us", p.SyncRequestUs, "µs", "host, per sequence more without asynchronous scheduling", 0, maxUnitUs},
		{"admission_us", p.AdmissionUs, "µs", "from arrival to the engine's queue", 0, maxUs},
		{"prompt_token_us", p.PromptTokenUs, "µs", "the same, per prompt token", 0, maxUnitUs},
		{"output_token_us", p.OutputTokenUs, "µs", "from the end of a step to the client", 0, maxUs},
	}
}

// Validate reports the first coefficient that is out of range, by its key.
func (p *Profile) Validate() error {
	for _, c := range p.Coefficients() {
		if !(c.Value >= c.least && c.Value <= c.most) { // also catches NaN
			return fmt.Errorf("cost profile %s: %s is %g, want %g to %g", p.Name, c.Key, c.Value, c.least, c.most)
		}
	}
	return p.Envelope.validate(p.Name)
}

// RequestDelay is the time from a request's arrival to its being queued in the engine: HTTP, templating, tokenising.
func (c *StepCost) RequestDelay(promptTokens int) time.Duration {
	return c.admission + c.admissionToken.times(int64(promptTokens)).Duration()
}

// TokenDelay is the time from the end of a step to the client for each output token. It does not hold up the engine.
func (c *StepCost) TokenDelay() time.Duration { return c.outputToken }
