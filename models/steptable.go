package models

// StepTable is step times that were measured kernel by kernel, in place of the formulas of StepCost. Times are for all
// layers; contexts and pairs are those of a Batch.
type StepTable struct {
	Tokens    func(n float64) float64 // µs of the kernels that see n tokens
	Sequences func(n float64) float64 // µs of those that see n sequences: output head, sampler

	AttentionUs    float64 // in every step
	DecodeUs       float64 // per decode
	ContextNs      float64 // per token of a decode's context
	PrefillPairNs  float64 // per doubled query-key pair of the prompt chunks
	PrefillTokenNs float64 // per key that the chunks see
}

// StepCost is the cost of steps by the table, with the host terms of a profile.
func (t *StepTable) StepCost(host *Profile) (*StepCost, error) {
	if err := host.Validate(); err != nil {
		return nil, err
	}
	return &StepCost{
		products:       newCurve(t.Tokens),
		head:           newCurve(t.Sequences),
		floor:          newFixed(1e3*t.AttentionUs + 1e3*host.StepUs),
		sequence:       newRate(1e3 * t.DecodeUs),
		perContext:     newFixed(t.ContextNs),
		pair:           newRate(t.PrefillPairNs),
		paddedKey:      newRate(t.PrefillTokenNs),
		hostRequest:    newRate(1e3 * host.RequestUs),
		admission:      newFixed(1e3 * host.AdmissionUs).Duration(),
		admissionToken: newRate(1e3 * host.PromptTokenUs),
		outputToken:    newFixed(1e3 * host.OutputTokenUs).Duration(),
	}, nil
}
