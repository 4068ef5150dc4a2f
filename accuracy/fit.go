package accuracy

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"github.com/agentsim/agentsim/models"
)

// term is a coefficient of a profile that can be fitted.
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

// Hold sets the coefficient of a key in a profile.
func Hold(p *models.Profile, key string, value float64) error {
	for i := range terms {
		if terms[i].key == key {
			*terms[i].of(p) = value
			return nil
		}
	}
	return unknownTerm(key)
}

func unknownTerm(key string) error {
	return fmt.Errorf("fitting a profile: no coefficient %q; known are %s", key, strings.Join(Terms(), ", "))
}

// Terms are the keys of the coefficients that can be fitted.
func Terms() []string {
	keys := make([]string, len(terms))
	for i, t := range terms {
		keys[i] = t.key
	}
	return keys
}

// Fitter fits coefficients of a profile to measured cases. The fit is around the simulator: every trial profile is
// simulated on all cases.
type Fitter struct {
	Cases []*Case
	// Start is where the search begins, and what coefficients that are not Free keep.
	Start models.Profile
	// Free are the keys of the coefficients to fit.
	Free []string
	// Pull is the weight of a factor's squared distance from 1 against one measurement's absolute error.
	Pull float64
	// TTFT is the weight of an error in TTFT against one in TPOT.
	TTFT float64
}

// Fit is the result of a Fitter.
type Fit struct {
	Profile  models.Profile
	Outcomes []Outcome
	// Terms tells about each fitted coefficient, in the order of the keys.
	Terms []FittedTerm
	// Condition is the condition number of the fit's equations, each coefficient in units of its own effect.
	Condition float64

	effects *mat.Dense // of each free coefficient on the residuals
}

// FittedTerm is what the data say of a coefficient.
type FittedTerm struct {
	Key   string
	Value float64
	// TPOT and TTFT are the coefficient's mean share of the predicted times.
	TPOT, TTFT float64
	// Alone is the share of the coefficient's effect that no combination of the others reproduces.
	Alone float64
}

// UnidentifiedError names a coefficient that the data cannot tell from others.
type UnidentifiedError struct {
	Key    string
	Alone  float64
	Others []string
}

func (e *UnidentifiedError) Error() string {
	if len(e.Others) == 0 {
		return fmt.Sprintf("the data do not identify %s: it has no effect on them; hold it at a value", e.Key)
	}
	return fmt.Sprintf("the data do not identify %s: all but %.1f%% of its effect can be had by changing %s; hold one of them at a value, or add data in which they differ (other depths, tensor-parallel sizes or batches)",
		e.Key, 100*e.Alone, strings.Join(e.Others, " and "))
}

// maxSteps bounds the Gauss-Newton steps of a fit.
const maxSteps = 5

// leastAlone is the share of a coefficient's effect that must be its own.
const leastAlone = 0.02

// Run fits. It fails with an UnidentifiedError when the data do not tell a coefficient of the host from the others;
// factors on physical terms have their pull.
func (f *Fitter) Run(ctx context.Context) (*Fit, error) {
	s, err := f.newSearch()
	if err != nil {
		return nil, err
	}
	if err := s.descend(ctx, func(at []float64) (*mat.Dense, error) { return s.effects(ctx, at) }); err != nil {
		return nil, err
	}
	if err := s.polish(ctx); err != nil {
		return nil, err
	}
	return s.result(ctx)
}

// search is the state of a fit.
type search struct {
	*Fitter
	free    []*term
	values  []float64
	profile models.Profile
}

func (f *Fitter) newSearch() (*search, error) {
	s := &search{Fitter: f, profile: f.Start}
	for _, key := range f.Free {
		i := 0
		for i < len(terms) && terms[i].key != key {
			i++
		}
		if i == len(terms) {
			return nil, unknownTerm(key)
		}
		s.free = append(s.free, &terms[i])
		s.values = append(s.values, *terms[i].of(&s.profile))
	}
	return s, nil
}

// with is the profile with other values of the free coefficients.
func (s *search) with(values []float64) *models.Profile {
	p := s.profile
	for i, t := range s.free {
		*t.of(&p) = min(max(values[i], t.least), t.most)
	}
	return &p
}

// residuals are the logarithms of predicted over measured figures: TPOT of all outcomes, then TTFT.
func (s *search) residuals(ctx context.Context, values []float64) ([]float64, error) {
	outcomes, err := Run(ctx, s.Cases, s.with(values))
	if err != nil {
		return nil, err
	}
	r := make([]float64, 2*len(outcomes))
	for i := range outcomes {
		r[i] = logError(&outcomes[i], TPOT)
		r[len(outcomes)+i] = logError(&outcomes[i], TTFT)
	}
	return r, nil
}

// logError is 0 where a figure is not known.
func logError(o *Outcome, m Measure) float64 {
	if e := o.Error(m); e > -1 {
		return math.Log1p(e)
	}
	return 0
}

// weight is that of the i-th of n residuals.
func (s *search) weight(i, n int) float64 {
	if i < n/2 {
		return 1
	}
	return s.TTFT
}

// loss is the weighted sum of absolute residuals and of the pull.
func (s *search) loss(residuals, values []float64) float64 {
	sum := 0.0
	for i, r := range residuals {
		sum += s.weight(i, len(residuals)) * math.Abs(r)
	}
	for i, t := range s.free {
		if t.factor {
			sum += s.Pull * float64(len(residuals)/2) * (values[i] - 1) * (values[i] - 1)
		}
	}
	return sum
}

// effects is the derivative of each residual by each free coefficient, by simulating small changes.
func (s *search) effects(ctx context.Context, at []float64) (*mat.Dense, error) {
	j := mat.NewDense(len(at), len(s.free), nil)
	for k, t := range s.free {
		values := append([]float64(nil), s.values...)
		step := t.unit
		values[k] += step
		if values[k] > t.most {
			step = -step
			values[k] += 2 * step
		}
		moved, err := s.residuals(ctx, values)
		if err != nil {
			return nil, err
		}
		for i := range moved {
			j.Set(i, k, (moved[i]-at[i])/step)
		}
	}
	return j, nil
}

// descend takes Gauss-Newton steps for the sum of absolute errors: least squares with each row divided by the root of
// its error, within bounds.
func (s *search) descend(ctx context.Context, effects func(at []float64) (*mat.Dense, error)) error {
	at, err := s.residuals(ctx, s.values)
	if err != nil {
		return err
	}
	for range maxSteps {
		j, err := effects(at)
		if err != nil {
			return err
		}
		target := s.step(j, at)
		best := s.loss(at, s.values)
		improved := false
		for share := 1.0; share > 0.1 && !improved; share /= 2 {
			values := make([]float64, len(target))
			for i := range values {
				values[i] = s.values[i] + share*(target[i]-s.values[i])
			}
			r, err := s.residuals(ctx, values)
			if err != nil {
				return err
			}
			if l := s.loss(r, values); l < best*(1-1e-3) {
				s.values, at, improved = values, r, true
			}
		}
		if !improved {
			return nil
		}
	}
	return nil
}

// step solves the linearised problem by coordinate descent on its normal equations, each coordinate clipped to its
// bounds.
func (s *search) step(j *mat.Dense, at []float64) []float64 {
	const softest = 0.02 // errors below this are all the same
	n, k := j.Dims()
	a, b := mat.NewSymDense(k, nil), make([]float64, k)
	for i := range n {
		w := s.weight(i, n) / max(math.Abs(at[i]), softest)
		for p := range k {
			b[p] -= w * j.At(i, p) * at[i]
			for q := p; q < k; q++ {
				a.SetSym(p, q, a.At(p, q)+w*j.At(i, p)*j.At(i, q))
			}
		}
	}
	for p, t := range s.free {
		if t.factor {
			pull := 2 * s.Pull * float64(n/2)
			a.SetSym(p, p, a.At(p, p)+pull)
			b[p] += pull * (1 - s.values[p])
		}
	}
	values := append([]float64(nil), s.values...)
	for range 2000 {
		for p, t := range s.free {
			if a.At(p, p) == 0 {
				continue
			}
			slope := b[p]
			for q := range k {
				slope -= a.At(p, q) * (values[q] - s.values[q])
			}
			values[p] = min(max(values[p]+slope/a.At(p, p), t.least), t.most)
		}
	}
	return values
}

// polish searches around the best values without derivatives (Nelder and Mead), since schedules change in jumps.
func (s *search) polish(ctx context.Context) error {
	var failed error
	scaled := func(x []float64) []float64 {
		values := make([]float64, len(x))
		for i, t := range s.free {
			values[i] = min(max(s.values[i]+x[i]*t.unit, t.least), t.most)
		}
		return values
	}
	problem := optimize.Problem{Func: func(x []float64) float64 {
		values := scaled(x)
		r, err := s.residuals(ctx, values)
		if err != nil {
			failed = err
			return math.Inf(1)
		}
		return s.loss(r, values)
	}}
	res, err := optimize.Minimize(problem, make([]float64, len(s.free)),
		&optimize.Settings{FuncEvaluations: 10 * len(s.free)}, &optimize.NelderMead{SimplexSize: 1})
	if failed != nil {
		return failed
	}
	if err != nil && res == nil {
		return fmt.Errorf("fitting a profile: %w", err)
	}
	s.values = scaled(res.X)
	return nil
}

// result predicts with the values found and judges how well the data determine them.
func (s *search) result(ctx context.Context) (*Fit, error) {
	for i, v := range s.values { // four digits: more would claim what the data do not tell
		s.values[i], _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	}
	at, err := s.residuals(ctx, s.values)
	if err != nil {
		return nil, err
	}
	j, err := s.effects(ctx, at)
	if err != nil {
		return nil, err
	}
	fit := &Fit{Profile: *s.with(s.values), effects: j}
	if fit.Outcomes, err = Run(ctx, s.Cases, &fit.Profile); err != nil {
		return nil, err
	}
	n, k := j.Dims()
	scaled := mat.NewDense(n, k, nil)
	for p, t := range s.free {
		column := mat.Col(nil, p, j)
		ft := FittedTerm{Key: t.key, Value: s.values[p], Alone: alone(j, p)}
		for i, v := range column {
			if i < n/2 {
				ft.TPOT += v * s.values[p] / float64(n/2)
			} else {
				ft.TTFT += v * s.values[p] / float64(n/2)
			}
		}
		fit.Terms = append(fit.Terms, ft)
		if norm := mat.Norm(mat.NewVecDense(n, column), 2); norm > 0 {
			for i, v := range column {
				scaled.Set(i, p, v/norm)
			}
		}
		if !t.factor && ft.Alone < leastAlone {
			return nil, s.unidentified(j, p, ft.Alone)
		}
	}
	fit.Condition = mat.Cond(scaled, 2)
	return fit, nil
}

// alone is the share of a column that the others do not span (Gram-Schmidt; columns that add nothing are skipped).
func alone(j *mat.Dense, p int) float64 {
	n, k := j.Dims()
	var basis []*mat.VecDense
	rest := func(q int) (*mat.VecDense, float64) {
		v := mat.NewVecDense(n, mat.Col(nil, q, j))
		norm := mat.Norm(v, 2)
		if norm == 0 {
			return v, 0
		}
		v.ScaleVec(1/norm, v)
		for range 2 { // the second time takes away what rounding left
			for _, b := range basis {
				v.AddScaledVec(v, -mat.Dot(v, b), b)
			}
		}
		return v, mat.Norm(v, 2)
	}
	for q := range k {
		if q == p {
			continue
		}
		if v, norm := rest(q); norm > 1e-6 {
			v.ScaleVec(1/norm, v)
			basis = append(basis, v)
		}
	}
	_, share := rest(p)
	return share
}

// unidentified names the other coefficients that stand in for one: those whose columns are nearest to its own.
func (s *search) unidentified(j *mat.Dense, p int, share float64) error {
	e := &UnidentifiedError{Key: s.free[p].key, Alone: share}
	n, k := j.Dims()
	column := mat.NewVecDense(n, mat.Col(nil, p, j))
	norm := mat.Norm(column, 2)
	for q := range k {
		other := mat.NewVecDense(n, mat.Col(nil, q, j))
		if size := mat.Norm(other, 2); q != p && norm > 0 && size > 0 && mat.Dot(column, other)/norm/size > 0.9 {
			e.Others = append(e.Others, s.free[q].key)
		}
	}
	if norm > 0 && len(e.Others) == 0 {
		e.Others = []string{"the others"}
	}
	return e
}
