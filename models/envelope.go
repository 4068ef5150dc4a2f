package models

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

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

// Covers tells whether the model, or one of the same architecture under another name, was measured.
func (e *Envelope) Covers(m *Model) bool {
	return e != nil && slices.ContainsFunc(e.Models, func(name string) bool {
		if name == m.Name {
			return true
		}
		list, _ := modelCatalogue()
		known, ok := find(list, modelNames, name)
		return ok && sameArchitecture(known, m)
	})
}

// sameArchitecture tells whether two models take the same time for a step.
func sameArchitecture(a, b *Model) bool {
	x, y := *a, *b
	for _, m := range []*Model{&x, &y} {
		m.Name, m.Aliases, m.Source, m.MaxContext = "", nil, "", 0
	}
	return reflect.DeepEqual(x, y)
}

// Contains tells whether a step is like those measured; context is the sum of its decodes' contexts in tokens.
func (e *Envelope) Contains(b Batch, context int64) bool {
	sequences := int64(b.Decodes) + int64(b.Prefills)
	if e == nil || !e.Batch.Contains(sequences) || b.PrefillTokens > 0 && !e.NewTokens.Contains(int64(b.PrefillTokens)) {
		return false
	}
	return sequences == 0 || e.Context.Contains((context+b.PrefillContext)/sequences)
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
		if r.Least < 0 || r.Most < r.Least || r.Most > math.MaxInt32 {
			return fmt.Errorf("cost profile %s: envelope.%s is %d to %d, want a range within 0 to %d", profile, r.key, r.Least, r.Most, math.MaxInt32)
		}
	}
	return nil
}

// Unmeasured is a way in which all steps of a deployment differ from those that a profile was fitted to.
type Unmeasured struct {
	// Cause is profile, model, gpu, engine or tensor; What names it: "model qwen3-14b".
	Cause, What string
}

// Unmeasured lists in what the deployment as a whole differs from all measurements behind the profile; none when only the
// single steps tell (see Envelope.Contains). GPU and engine are compared where the provenance names any.
func (p *Profile) Unmeasured(d *Deployment) []Unmeasured {
	if p.Envelope == nil {
		return []Unmeasured{{"profile", "no envelope"}}
	}
	full := d.WithDefaults()
	var gpus, engines []string
	for _, f := range p.Fitted {
		if f.GPU != "" {
			gpus = append(gpus, strings.ToLower(f.GPU))
		}
		if name, _, _ := strings.Cut(f.Engine, " "); name != "" { // the version may follow
			engines = append(engines, strings.ToLower(name))
		}
	}
	named := func(list []string, names ...string) bool {
		return len(list) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(list, n) })
	}
	var list []Unmeasured
	if !p.Envelope.Covers(full.Model) {
		list = append(list, Unmeasured{"model", "model " + full.Model.Name})
	}
	if !named(gpus, gpuNames(full.GPU)...) {
		list = append(list, Unmeasured{"gpu", "GPU " + full.GPU.Name})
	}
	if !named(engines, full.Engine) {
		list = append(list, Unmeasured{"engine", "engine " + full.Engine})
	}
	if tensor := full.Parallelism.Tensor; !p.Envelope.Tensor.Contains(int64(tensor)) {
		list = append(list, Unmeasured{"tensor", fmt.Sprintf("tensor parallelism %d", tensor)})
	}
	return list
}

// HeldOut is the mean error of a measure, as a share, over the rows of models that the profile was fitted without: of
// this model where it was one of them, else of those of its kind, dense or with experts, else of all. It is 0 when
// nothing was held out.
func (p *Profile) HeldOut(measure string, m *Model) float64 {
	var own, kind, all errorSum
	list, _ := modelCatalogue()
	for _, e := range p.Errors {
		name, ok := strings.CutPrefix(e.Data, "model ")
		if !ok || !e.HeldOut || e.Measure != measure {
			continue
		}
		all.add(e)
		if held, ok := find(list, modelNames, name); ok {
			if (held.MoELayers() > 0) == (m.MoELayers() > 0) {
				kind.add(e)
			}
			if sameArchitecture(held, m) {
				own.add(e)
			}
		}
	}
	for _, sum := range []errorSum{own, kind, all} {
		if sum.rows > 0 {
			return sum.errors / float64(sum.rows)
		}
	}
	return 0
}

type errorSum struct {
	rows   int
	errors float64
}

func (s *errorSum) add(e FitError) {
	s.rows += e.Rows
	s.errors += e.Mean * float64(e.Rows)
}
