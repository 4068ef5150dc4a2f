package accuracy

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/agentsim/agentsim/accuracy/steplog"
	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
)

// StepFitter fits coefficients of a profile to measured steps, without the simulator: a step's time is linear in them,
// so non-negative least squares of relative errors find them, with a pull of factors to 1.
//
// What a log does not tell of contexts becomes a time per decode, or per prompt token, that is fitted beside the
// coefficients and thrown away; a coefficient that cannot be told from it is refused.
type StepFitter struct {
	Steps []steplog.Step
	// Plan is the deployment that was measured.
	Plan *sim.Plan
	// Start has the values of coefficients that are not Free, Free the keys of those that are fitted.
	Start models.Profile
	Free  []string
	// Pull is the weight of a factor's squared distance from 1 against one step's absolute error.
	Pull float64
}

// StepFit is the result of a StepFitter.
type StepFit struct {
	Profile models.Profile
	Determined
	// Errors are predicted over measured times, less 1, of each step.
	Errors []float64
}

// MeasureSteps is the name of step times in tables and profiles.
const MeasureSteps = "step"

// The times that stand for what a log does not tell, in µs.
var (
	untoldDecode  = term{key: "the contexts of decodes that the log does not tell", most: 1e6}
	untoldPrefill = term{key: "the pasts of prompts that the log does not tell", most: 1e6}
)

// stepRow is a step in the terms of the cost model.
type stepRow struct {
	batch             models.Batch
	context, windowed int64
	us                float64
	// untold tells that contexts of decodes, or pasts of prompts, are not known and were taken as 0.
	untoldDecode, untoldPrefill bool
}

// row fills in what follows from the counts: chunks of a step are taken to be alike, and decodes too.
func (f *StepFitter) row(s *steplog.Step) stepRow {
	r := stepRow{us: float64(s.Time) / 1e3, context: s.DecodeContext, batch: models.Batch{Decodes: s.Decodes, Prefills: s.Prefills,
		PrefillTokens: s.PrefillTokens, PrefillContext: s.PrefillContext, PrefillPairs: s.PrefillPairs}}
	if s.Decodes > 0 && s.Prefills == 0 && s.CacheUse > 0 && r.context < 0 {
		r.context = int64(s.CacheUse * float64(f.Plan.Blocks) * float64(f.Plan.Engine.BlockSize))
	}
	if r.context < 0 {
		r.context, r.untoldDecode = 0, s.Decodes > 0
	}
	r.windowed = min(r.context, int64(s.Decodes)*int64(f.Plan.Cost.Window()))
	if r.batch.PrefillContext < 0 {
		r.batch.PrefillContext, r.untoldPrefill = int64(s.PrefillTokens), s.Prefills > 0
	}
	if r.batch.PrefillPairs < 0 && s.Prefills > 0 {
		n, past := float64(s.PrefillTokens), float64(r.batch.PrefillContext)-float64(s.PrefillTokens)
		r.batch.PrefillPairs = int64(min(n*(2*past+n)/float64(s.Prefills), 1e14))
	}
	r.batch.PrefillPairs = max(0, r.batch.PrefillPairs)
	return r
}

// timeUs is the step's time under a cost, in µs.
func (r *stepRow) timeUs(c *models.StepCost) float64 {
	fixed := float64(c.Base(r.batch)) + float64(c.PerContext())*float64(r.context) + float64(c.PerWindow())*float64(r.windowed)
	return fixed / models.FixedPerNs / 1e3
}

// stepProblem is a fit to some of the steps.
type stepProblem struct {
	equations
	fitted []*term // the coefficients of the profile; the equations have untold times behind them
	start  *models.Profile
	from   []float64 // values of all
	errors []float64 // at these
}

// Run fits. It fails with an UnidentifiedError when the steps do not tell a coefficient from the others.
func (f *StepFitter) Run() (*StepFit, error) {
	p, err := f.problem()
	if err != nil {
		return nil, err
	}
	values := p.solution()
	for i, v := range values {
		values[i] = fourDigits(v)
	}
	fit := &StepFit{Profile: *withValues(p.start, p.fitted, values), Errors: p.errorsAt(values)}
	fit.Determined, err = p.judge(values, []rowsOf{{MeasureSteps, 0, len(f.Steps)}})
	return fit, err
}

// HeldOutSteps is how a profile that was fitted without some steps predicts them.
type HeldOutSteps struct {
	Name    string
	Profile models.Profile
	// Errors are of the steps that were left out, Steps their indices.
	Errors []float64
	Steps  []int
}

// LeaveOut fits once for each value of key, without the steps that have it, and predicts those. Where they lack contexts,
// the time that stands for them is that of the others.
func (f *StepFitter) LeaveOut(key func(*steplog.Step) string) ([]HeldOutSteps, error) {
	var names []string
	for i := range f.Steps {
		names = append(names, key(&f.Steps[i]))
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) < 2 {
		return nil, nil
	}
	whole, err := f.problem()
	if err != nil {
		return nil, err
	}
	var held []HeldOutSteps
	for _, name := range names {
		h := HeldOutSteps{Name: name}
		rest := *whole
		rest.weights = slices.Clone(whole.weights)
		for i := range f.Steps {
			if key(&f.Steps[i]) == name {
				h.Steps = append(h.Steps, i)
				rest.weights[i] = 0
			}
		}
		values := rest.solution()
		all := whole.errorsAt(values)
		for _, i := range h.Steps {
			h.Errors = append(h.Errors, all[i])
		}
		h.Profile = *withValues(whole.start, whole.fitted, values)
		held = append(held, h)
	}
	return held, nil
}

func (f *StepFitter) rows() []stepRow {
	rows := make([]stepRow, len(f.Steps))
	for i := range rows {
		rows[i] = f.row(&f.Steps[i])
	}
	return rows
}

// problem sets up the equations: the errors at the start, and what a unit of each coefficient changes of them. Steps that
// are alike, in the powers of two of sequences and tokens, share their weight: n of them weigh as much as √n.
func (f *StepFitter) problem() (*stepProblem, error) {
	free, err := lookUpTerms(f.Free)
	if err != nil {
		return nil, err
	}
	rows := f.rows()
	if err := f.checkContexts(rows); err != nil {
		return nil, err
	}
	p := &stepProblem{fitted: free, start: &f.Start, from: valuesOf(free, &f.Start), errors: make([]float64, len(rows))}
	p.free = slices.Clone(free)
	for _, u := range []struct {
		term *term
		of   func(*stepRow) bool
	}{
		{&untoldDecode, func(r *stepRow) bool { return r.untoldDecode }},
		{&untoldPrefill, func(r *stepRow) bool { return r.untoldPrefill }},
	} {
		if slices.ContainsFunc(rows, func(r stepRow) bool { return u.of(&r) }) {
			p.free = append(p.free, u.term)
			p.from = append(p.from, 0)
		}
	}
	p.effects = mat.NewDense(len(rows), len(p.free), nil)
	start, err := f.cost(p.start)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		p.errors[i] = rows[i].timeUs(start)/rows[i].us - 1
	}
	for k, t := range p.free {
		change := t.unit
		if t.of != nil {
			if p.from[k]+change > t.most {
				change = -change
			}
			moved := slices.Clone(p.from[:len(free)])
			moved[k] += change
			cost, err := f.cost(withValues(p.start, free, moved))
			if err != nil {
				return nil, err
			}
			for i := range rows {
				p.effects.Set(i, k, ((rows[i].timeUs(cost)/rows[i].us-1)-p.errors[i])/change)
			}
			continue
		}
		for i := range rows {
			r := &rows[i]
			switch {
			case t == &untoldDecode && r.untoldDecode:
				p.effects.Set(i, k, float64(r.batch.Decodes)/r.us)
			case t == &untoldPrefill && r.untoldPrefill:
				p.effects.Set(i, k, float64(r.batch.PrefillTokens)/r.us)
			}
		}
	}
	p.weigh(rows, f.Pull)
	return p, nil
}

// cost is the step cost of the deployment under a profile.
func (f *StepFitter) cost(profile *models.Profile) (*models.StepCost, error) {
	c, err := f.Plan.Hardware.StepCostOf(profile)
	if err != nil {
		return nil, fmt.Errorf("fitting steps: %w", err)
	}
	return c, nil
}

// checkContexts refuses a factor on attention when no step tells the contexts that it reads, and the times that grow with
// the same sequences or tokens as the times that stand for untold contexts.
func (f *StepFitter) checkContexts(rows []stepRow) error {
	for _, c := range []struct {
		missing      string
		told, untold func(stepRow) bool
		factor       string
		times        []string
	}{
		{"the contexts of decodes", func(r stepRow) bool { return r.batch.Decodes > 0 && !r.untoldDecode },
			func(r stepRow) bool { return r.untoldDecode }, "decode_attention", []string{"request_us", "sync_request_us"}},
		{"prompts with what lies before them", func(r stepRow) bool { return r.batch.Prefills > 0 && !r.untoldPrefill },
			func(r stepRow) bool { return r.untoldPrefill }, "prefill_attention", []string{"prefill_token_us"}},
	} {
		if slices.ContainsFunc(rows, c.told) {
			continue
		}
		for _, key := range f.Free {
			if key == c.factor || slices.Contains(c.times, key) && slices.ContainsFunc(rows, c.untold) {
				return &UnidentifiedError{Key: key, Missing: c.missing}
			}
		}
	}
	return nil
}

func (p *stepProblem) weigh(rows []stepRow, pull float64) {
	alike := map[[2]int]float64{}
	group := func(r *stepRow) [2]int {
		return [2]int{bits.Len(uint(r.batch.Decodes + r.batch.Prefills)), bits.Len(uint(r.batch.PrefillTokens))}
	}
	for i := range rows {
		alike[group(&rows[i])]++
	}
	for i := range rows {
		weight := 1 / math.Sqrt(alike[group(&rows[i])])
		p.weights = append(p.weights, weight)
		p.pull += pull * weight
	}
}

// errorsAt are the errors at other values of the coefficients.
func (p *stepProblem) errorsAt(values []float64) []float64 {
	change := make([]float64, len(values))
	for k, v := range values {
		change[k] = v - p.from[k]
	}
	errors := slices.Clone(p.errors)
	for i := range errors {
		for k, effect := range p.effects.RawRowView(i) {
			errors[i] += effect * change[k]
		}
	}
	return errors
}

// solution repeats least squares, with rows weighed by their errors, until the coefficients stay.
func (p *stepProblem) solution() []float64 {
	values := p.from
	for range 50 {
		next := p.solve(p.errorsAt(values), values)
		moved := 0.0
		for k, v := range next {
			moved = max(moved, math.Abs(v-values[k])/max(math.Abs(v), 1e-6))
		}
		if values = next; moved < 1e-6 {
			break
		}
	}
	return values
}

// TermTime is the share of a term in the time of steps.
type TermTime struct {
	Name string
	// Decode is the share in steps of decodes alone, Prompt in those with prompt tokens.
	Decode, Prompt float64
}

// Times splits the steps' time under a profile by the terms of the cost model.
func (f *StepFitter) Times(profile *models.Profile) ([]TermTime, error) {
	cost, err := f.cost(profile)
	if err != nil {
		return nil, err
	}
	var times []TermTime
	var decode, prompt time.Duration
	for i := range f.Steps {
		r := f.row(&f.Steps[i])
		for _, t := range cost.Terms(r.batch, r.context, r.windowed) {
			at := slices.IndexFunc(times, func(have TermTime) bool { return have.Name == t.Name })
			if at < 0 {
				at = len(times)
				times = append(times, TermTime{Name: t.Name})
			}
			if r.batch.PrefillTokens > 0 {
				times[at].Prompt += float64(t.Duration)
				prompt += t.Duration
			} else {
				times[at].Decode += float64(t.Duration)
				decode += t.Duration
			}
		}
	}
	for i := range times {
		times[i].Decode /= max(1, float64(decode))
		times[i].Prompt /= max(1, float64(prompt))
	}
	return times, nil
}

// Envelope is the range of steps that were measured.
func (f *StepFitter) Envelope() *models.Envelope {
	tensor := f.Plan.Hardware.Parallelism.Tensor
	e := &models.Envelope{Models: []string{f.Plan.Hardware.Model.Name}, Tensor: models.Range{Least: tensor, Most: tensor},
		Batch: models.Range{Least: 1 << 30}, Context: models.Range{Least: 1 << 30}, NewTokens: models.Range{Least: 1 << 30}}
	for i := range f.Steps {
		r := f.row(&f.Steps[i])
		sequences := r.batch.Decodes + r.batch.Prefills
		widen(&e.Batch, sequences)
		if !r.untoldDecode && !r.untoldPrefill {
			widen(&e.Context, int((r.context+r.batch.PrefillContext)/int64(sequences)))
		}
		if r.batch.PrefillTokens > 0 {
			widen(&e.NewTokens, r.batch.PrefillTokens)
		}
	}
	for _, r := range []*models.Range{&e.Context, &e.NewTokens} {
		r.Least = min(r.Least, r.Most) // none was seen
	}
	return e
}
