package accuracy

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"github.com/agentsim/agentsim/models"
)

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
	// Trial, if not nil, is called before each simulation of the cases, of which a fit takes dozens.
	Trial func()

	left func(*Outcome) bool // which measurements do not count; nil for none
}

// Fit is the result of a Fitter.
type Fit struct {
	Profile  models.Profile
	Outcomes []Outcome
	Determined
}

// maxSteps bounds the Gauss-Newton steps of a fit.
const maxSteps = 5

// Run fits. It fails with an UnidentifiedError when the data do not tell a coefficient of the host from the others;
// factors on physical terms have their pull.
func (f *Fitter) Run(ctx context.Context) (*Fit, error) {
	s, err := f.newSearch()
	if err != nil {
		return nil, err
	}
	if err := s.descend(ctx, maxSteps); err != nil {
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
	free   []*term
	values []float64
	// row is the row of each part, -1 for none. The residuals are a TPOT of each row, then a TTFT.
	row     []int
	weights []float64 // of the residuals
	pulled  float64   // weight of a factor's squared distance from 1
	// moves are how far each coefficient is moved to see its effect.
	moves []float64
	calls bool // rows are calls
}

func (f *Fitter) newSearch() (*search, error) {
	free, err := lookUpTerms(f.Free)
	if err != nil {
		return nil, err
	}
	s := &search{Fitter: f, free: free, values: valuesOf(free, &f.Start)}
	for _, t := range free {
		s.moves = append(s.moves, t.unit)
	}
	rows := 0
	for _, c := range f.Cases {
		s.calls = s.calls || c.calls != nil
		groups := map[string]int{}
		for i := range c.Parts {
			part := &c.Parts[i]
			if f.left != nil && f.left(&Outcome{Case: c, Part: part}) {
				s.row = append(s.row, -1)
				continue
			}
			at, ok := groups[part.Group]
			if !ok || part.Group == "" {
				at = rows
				groups[part.Group] = at
				rows++
			}
			s.row = append(s.row, at)
		}
	}
	s.weights = make([]float64, 2*rows)
	return s, nil
}

// with is the profile with other values of the free coefficients.
func (s *search) with(values []float64) *models.Profile { return withValues(&s.Start, s.free, values) }

// equations is the problem linearised, with the effects of the coefficients on the residuals.
func (s *search) equations(effects *mat.Dense) *equations {
	return &equations{free: s.free, effects: effects, weights: s.weights, pull: s.pulled}
}

// rowErrors are the logarithms of predicted over measured figures of the calls or parts of each row: how many are known,
// their mean, and the sum of their squared distances from it.
type rowErrors struct{ known, mean, squares []float64 }

func (s *search) rowErrors(ctx context.Context, values []float64) (rowErrors, error) {
	n := len(s.weights)
	r := rowErrors{make([]float64, n), make([]float64, n), make([]float64, n)}
	if s.Trial != nil {
		s.Trial()
	}
	outcomes, err := Run(ctx, s.Cases, s.with(values))
	if err != nil {
		return r, err
	}
	for i := range outcomes {
		if s.row[i] < 0 {
			continue
		}
		for m, at := range [...]int{TPOT: s.row[i], TTFT: n/2 + s.row[i]} {
			if e, ok := logError(&outcomes[i], Measure(m)); ok { // Welford's sums
				off := e - r.mean[at]
				r.known[at]++
				r.mean[at] += off / r.known[at]
				r.squares[at] += off * (e - r.mean[at])
			}
		}
	}
	return r, nil
}

// residuals are the mean errors of the rows.
func (s *search) residuals(ctx context.Context, values []float64) ([]float64, error) {
	r, err := s.rowErrors(ctx, values)
	return r.mean, err
}

// weigh sets the weights of the rows by how well their means are known: 1 for a part by itself, less where calls scatter
// and are few.
func (s *search) weigh(ctx context.Context) error {
	r, err := s.rowErrors(ctx, s.values)
	if err != nil {
		return err
	}
	half := len(s.weights) / 2
	s.pulled = 0
	for m, factor := range [...]float64{1, s.TTFT} {
		first, last := m*half, (m+1)*half
		squares, freedom := 0.0, 0.0
		for i := first; i < last; i++ {
			squares += r.squares[i]
			freedom += max(0, r.known[i]-1)
		}
		scatter := math.Sqrt(squares / max(1, freedom))
		for i := first; i < last; i++ {
			s.weights[i] = factor * softest / (softest + scatter/math.Sqrt(max(1, r.known[i])))
			if m == 0 {
				s.pulled += s.Pull * s.weights[i]
			}
		}
	}
	return nil
}

// logError is the logarithm of a predicted over a measured figure, where both are known.
func logError(o *Outcome, m Measure) (float64, bool) {
	e := o.Error(m)
	return math.Log1p(e), e > -1
}

// loss is the weighted sum of absolute residuals and of the pull.
func (s *search) loss(residuals, values []float64) float64 {
	sum := 0.0
	for i, r := range residuals {
		sum += s.weights[i] * math.Abs(r)
	}
	for i, t := range s.free {
		if t.factor {
			sum += s.pulled * (values[i] - 1) * (values[i] - 1)
		}
	}
	return sum
}

// widenMoves doubles the moves until they change the residuals by a twentieth: which step a call joins hides the effect of
// smaller ones.
func (s *search) widenMoves(ctx context.Context, at []float64) error {
	for k := range s.free {
		for range 8 {
			values := append([]float64(nil), s.values...)
			values[k] += s.moves[k]
			moved, err := s.residuals(ctx, values)
			if err != nil {
				return err
			}
			change, weights := 0.0, 0.0
			for i, w := range s.weights {
				change += w * math.Abs(moved[i]-at[i])
				weights += w
			}
			if change > 0.05*weights {
				break
			}
			s.moves[k] *= 2
		}
	}
	return nil
}

// effects is the derivative of each residual by each free coefficient, by simulating so many moves of it.
func (s *search) effects(ctx context.Context, at []float64, times float64) (*mat.Dense, error) {
	j := mat.NewDense(len(at), len(s.free), nil)
	for k, t := range s.free {
		values := append([]float64(nil), s.values...)
		step := s.moves[k] * times
		values[k] += step
		if s.values[k]+3*s.moves[k] > t.most { // no more than three moves are taken
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
func (s *search) descend(ctx context.Context, steps int) error {
	if err := s.weigh(ctx); err != nil {
		return err
	}
	at, err := s.residuals(ctx, s.values)
	if err != nil {
		return err
	}
	if s.calls {
		if err := s.widenMoves(ctx, at); err != nil {
			return err
		}
	}
	for range steps {
		j, err := s.effects(ctx, at, 1)
		if err != nil {
			return err
		}
		target := s.equations(j).solve(at, s.values)
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

// polish searches around the best values without derivatives (Nelder and Mead), since schedules change in jumps.
func (s *search) polish(ctx context.Context) error {
	if err := s.weigh(ctx); err != nil {
		return err
	}
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
	for i, v := range s.values {
		s.values[i] = fourDigits(v)
	}
	at, err := s.residuals(ctx, s.values)
	if err != nil {
		return nil, err
	}
	var by [3]*mat.Dense // one, two and three moves
	for i := range by {
		if by[i], err = s.effects(ctx, at, float64(i+1)); err != nil {
			return nil, err
		}
	}
	fit := &Fit{Profile: *s.with(s.values)}
	if fit.Outcomes, err = Run(ctx, s.Cases, &fit.Profile); err != nil {
		return nil, err
	}
	rows := len(at) / 2
	// Third differences are free of slope and curvature. Residuals that scatter by σ put √20·σ into them, and √2·σ over
	// three moves into the slope.
	e := s.equations(by[2])
	e.scatter = new(mat.Dense)
	e.scatter.Scale(-2, by[1])
	e.scatter.Add(e.scatter, by[0])
	e.scatter.Add(e.scatter, by[2])
	e.scatter.Scale(1/math.Sqrt(10), e.scatter)
	fit.Determined, err = e.judge(s.values, []rowsOf{{TPOT.String(), 0, rows}, {TTFT.String(), rows, 2 * rows}})
	return fit, err
}

// fourDigits rounds: more would claim what the data do not tell.
func fourDigits(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return short
}
