package models

import (
	"fmt"
	"time"
)

// Profile is the coefficients that turn the work of a step into time; see StepCost for the formula. A profile fitted on
// one GPU is used on others as it is: what differs between GPUs stands in GPU.
type Profile struct {
	Name   string `yaml:"name"`
	Source string `yaml:"source"` // what it was fitted to, and how well

	// Factors on physical time; 1 when the GPU's rates are right.
	Linear           float64 `yaml:"linear"`
	DecodeAttention  float64 `yaml:"decode_attention"`
	PrefillAttention float64 `yaml:"prefill_attention"`
	AllReduce        float64 `yaml:"all_reduce"`

	// Time of host and small kernels, in µs.
	LayerUs        float64 `yaml:"layer_us"`         // per layer
	StepUs         float64 `yaml:"step_us"`          // per step
	RequestUs      float64 `yaml:"request_us"`       // per sequence in the step
	PrefillTokenUs float64 `yaml:"prefill_token_us"` // per prompt token in the step

	// Time outside the engine's steps, in µs.
	AdmissionUs   float64 `yaml:"admission_us"`    // from arrival to the engine's queue
	PromptTokenUs float64 `yaml:"prompt_token_us"` // the same, per prompt token
	OutputTokenUs float64 `yaml:"output_token_us"` // from the end of a step to the client, per token
}

// Validate reports the first coefficient that is out of range, by its key.
func (p *Profile) Validate() error {
	const maxFactor, maxUs, maxUnitUs = 1e3, 1e9, 1e6
	for _, f := range []struct {
		key         string
		value, most float64
	}{
		{"linear", p.Linear, maxFactor},
		{"decode_attention", p.DecodeAttention, maxFactor},
		{"prefill_attention", p.PrefillAttention, maxFactor},
		{"all_reduce", p.AllReduce, maxFactor},
		{"layer_us", p.LayerUs, maxUs / maxLayers},
		{"step_us", p.StepUs, maxUs},
		{"request_us", p.RequestUs, maxUnitUs},
		{"prefill_token_us", p.PrefillTokenUs, maxUnitUs},
		{"admission_us", p.AdmissionUs, maxUs},
		{"prompt_token_us", p.PromptTokenUs, maxUnitUs},
		{"output_token_us", p.OutputTokenUs, maxUs},
	} {
		if !(f.value >= 0 && f.value <= f.most) { // also catches NaN
			return fmt.Errorf("cost profile %s: %s is %g, want 0 to %g", p.Name, f.key, f.value, f.most)
		}
	}
	return nil
}

// RequestDelay is the time from a request's arrival to its being queued in the engine: HTTP, templating, tokenising.
func (c *StepCost) RequestDelay(promptTokens int) time.Duration {
	return c.admission + c.promptToken.times(int64(promptTokens)).Duration()
}

// TokenDelay is the time from the end of a step to the client for each output token. It does not hold up the engine.
func (c *StepCost) TokenDelay() time.Duration { return c.outputToken }
