package accuracy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/models"
)

// term is a coefficient of a profile that can be fitted. Without of it stands for a time that the data do not explain.
type term struct {
	key string
	of  func(*models.Profile) *float64
	// factor tells a factor on a physical term, which is pulled to 1, from a time of the host.
	factor      bool
	least, most float64
	unit        float64 // a change that matters
}

// terms lists the coefficients in the order of models.Profile.
var terms = []term{
	{"linear", func(p *models.Profile) *float64 { return &p.Linear }, true, 0.5, 2, 0.05},
	{"compute", func(p *models.Profile) *float64 { return &p.Compute }, true, 0.5, 2, 0.05},
	{"prefill_attention", func(p *models.Profile) *float64 { return &p.PrefillAttention }, true, 0.5, 2, 0.05},
	{"decode_attention", func(p *models.Profile) *float64 { return &p.DecodeAttention }, true, 0.5, 2, 0.05},
	{"communication", func(p *models.Profile) *float64 { return &p.Communication }, true, 0.5, 2, 0.05},
	{"layer_us", func(p *models.Profile) *float64 { return &p.LayerUs }, false, 0, 1e4, 2},
	{"step_us", func(p *models.Profile) *float64 { return &p.StepUs }, false, 0, 1e6, 64},
	{"request_us", func(p *models.Profile) *float64 { return &p.RequestUs }, false, 0, 1e5, 5},
	{"sync_step_us", func(p *models.Profile) *float64 { return &p.SyncStepUs }, false, 0, 1e6, 64},
	{"sync_request_us", func(p *models.Profile) *float64 { return &p.SyncRequestUs }, false, 0, 1e5, 5},
	{"prefill_token_us", func(p *models.Profile) *float64 { return &p.PrefillTokenUs }, false, 0, 1e4, 2},
	{"admission_us", func(p *models.Profile) *float64 { return &p.AdmissionUs }, false, 0, 1e7, 1000},
	{"prompt_token_us", func(p *models.Profile) *float64 { return &p.PromptTokenUs }, false, 0, 1e4, 0.5},
	{"output_token_us", func(p *models.Profile) *float64 { return &p.OutputTokenUs }, false, 0, 1e5, 20},
}

// Terms are the keys of the coefficients that can be fitted.
func Terms() []string {
	keys := make([]string, len(terms))
	for i, t := range terms {
		keys[i] = t.key
	}
	return keys
}

// lookUpTerms finds coefficients by their keys, each once.
func lookUpTerms(keys []string) ([]*term, error) {
	var found []*term
	for _, key := range keys {
		i := slices.IndexFunc(terms, func(t term) bool { return t.key == key })
		if i < 0 {
			return nil, fmt.Errorf("fitting a profile: no coefficient %q; known are %s", key, strings.Join(Terms(), ", "))
		}
		if !slices.Contains(found, &terms[i]) {
			found = append(found, &terms[i])
		}
	}
	return found, nil
}

// Set gives a coefficient of a profile a value.
func Set(p *models.Profile, key string, value float64) error {
	found, err := lookUpTerms([]string{key})
	if err != nil {
		return err
	}
	if t := found[0]; !(value >= t.least && value <= t.most) {
		return fmt.Errorf("%s is %g, want %g to %g", key, value, t.least, t.most)
	}
	*found[0].of(p) = value
	return nil
}

// valuesOf are the values of coefficients in a profile.
func valuesOf(free []*term, p *models.Profile) []float64 {
	values := make([]float64, len(free))
	for i, t := range free {
		values[i] = *t.of(p)
	}
	return values
}

// withValues is a profile with other values of coefficients, within their bounds.
func withValues(p *models.Profile, free []*term, values []float64) *models.Profile {
	changed := *p
	for i, t := range free {
		*t.of(&changed) = min(max(values[i], t.least), t.most)
	}
	return &changed
}
