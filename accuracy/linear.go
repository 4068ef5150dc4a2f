package accuracy

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/mat"
)

// equations are a fit's problem in linear form: how much each coefficient changes each error.
type equations struct {
	free    []*term
	effects *mat.Dense // change of an error (a row) per unit of a coefficient (a column)
	scatter *mat.Dense // how uncertain the effects are; nil for not at all
	weights []float64  // of the errors
	pull    float64    // weight of a factor's squared distance from 1
}

// softest is the relative error below which all are the same.
const softest = 0.02

// solve returns the coefficients with the smallest weighted sum of absolute errors and of the pull, one step on the way:
// least squares with each row divided by the root of its error, by coordinate descent on the normal equations, each
// coordinate clipped to its bounds. errors are those at the coefficients from.
func (e *equations) solve(errors, from []float64) []float64 {
	n, k := e.effects.Dims()
	a, b := mat.NewSymDense(k, nil), make([]float64, k)
	for i := range n {
		w := e.weights[i] / max(math.Abs(errors[i]), softest)
		if w == 0 {
			continue
		}
		row := e.effects.RawRowView(i)
		for p, v := range row {
			b[p] -= w * v * errors[i]
			for q := p; q < k; q++ {
				a.SetSym(p, q, a.At(p, q)+w*v*row[q])
			}
		}
	}
	for p, t := range e.free {
		if t.factor {
			a.SetSym(p, p, a.At(p, p)+2*e.pull)
			b[p] += 2 * e.pull * (1 - from[p])
		}
	}
	values := append([]float64(nil), from...)
	for range 2000 {
		for p, t := range e.free {
			if a.At(p, p) == 0 {
				continue
			}
			slope := b[p]
			for q := range k {
				slope -= a.At(p, q) * (values[q] - from[q])
			}
			values[p] = min(max(values[p]+slope/a.At(p, p), t.least), t.most)
		}
	}
	return values
}

// Determined is how well data determine the coefficients that were fitted to them.
type Determined struct {
	// Measures are what Shares are of.
	Measures []string
	// Terms tells about each fitted coefficient, in the order of the keys.
	Terms []FittedTerm
	// Condition is the condition number of the fit's equations, each coefficient in units of its own effect.
	Condition float64
}

// FittedTerm is what the data say of a coefficient.
type FittedTerm struct {
	Key   string
	Value float64
	// Shares are the coefficient's mean share of the predicted times, by measure.
	Shares []float64
	// Alone is the share of the coefficient's effect that no combination of the others reproduces.
	Alone float64
}

// UnidentifiedError names a coefficient that the data cannot tell from others.
type UnidentifiedError struct {
	Key    string
	Alone  float64
	Others []string
	// Missing is what the data would have to tell; "" when it is not a matter of one figure.
	Missing string
	// Scattered tells that the coefficient has an effect of its own, but no more than what the data scatter.
	Scattered bool
}

func (e *UnidentifiedError) Error() string {
	if e.Missing != "" {
		return fmt.Sprintf("the data do not identify %s: they do not tell %s; hold it at a value", e.Key, e.Missing)
	}
	if e.Scattered {
		return fmt.Sprintf("the data do not identify %s: its effect is lost in how much single calls scatter; hold it at a value, or add calls", e.Key)
	}
	if len(e.Others) == 0 {
		return fmt.Sprintf("the data do not identify %s: it has no effect on them; hold it at a value", e.Key)
	}
	return fmt.Sprintf("the data do not identify %s: all but %.1f%% of its effect can be had by changing %s; hold one of them at a value, or add data in which they differ (other depths, tensor-parallel sizes or batches)",
		e.Key, 100*e.Alone, strings.Join(e.Others, " and "))
}

// leastAlone is the share of a coefficient's effect that must be its own.
const leastAlone = 0.02

// rowsOf names the errors of one measure, those from first to last.
type rowsOf struct {
	measure     string
	first, last int
}

// judge tells how well the data determine the coefficients at their values. It fails with an UnidentifiedError when they
// do not tell one of the host's from the others; factors have their pull.
func (e *equations) judge(values []float64, measures []rowsOf) (Determined, error) {
	var d Determined
	for _, m := range measures {
		d.Measures = append(d.Measures, m.measure)
	}
	for p, t := range e.free {
		column := mat.Col(nil, p, e.effects)
		alone, scatter := e.alone(p)
		ft := FittedTerm{Key: t.key, Value: values[p], Alone: math.Sqrt(max(0, alone*alone-scatter*scatter))}
		for _, m := range measures {
			share, weights := 0.0, 0.0
			for i := m.first; i < m.last; i++ {
				share += e.weights[i] * column[i] * values[p]
				weights += e.weights[i]
			}
			ft.Shares = append(ft.Shares, share/max(weights, math.SmallestNonzeroFloat64))
		}
		d.Terms = append(d.Terms, ft)
		if !t.factor && t.of != nil && ft.Alone < leastAlone {
			err := e.unidentified(p, ft.Alone)
			err.Scattered = alone >= leastAlone
			return d, err
		}
	}
	d.Condition = e.condition()
	return d, nil
}

// condition is the condition number of the effects, each column scaled to length 1: the root of that of their products.
// Columns of no effect are left out.
func (e *equations) condition() float64 {
	var columns []mat.Vector
	for p := range e.free {
		v := e.column(e.effects, p)
		if norm := mat.Norm(v, 2); norm > 0 {
			v.ScaleVec(1/norm, v)
			columns = append(columns, v)
		}
	}
	products := mat.NewSymDense(max(1, len(columns)), nil)
	for p, v := range columns {
		for q := range p + 1 {
			products.SetSym(p, q, mat.Dot(v, columns[q]))
		}
	}
	var eigen mat.EigenSym
	if len(columns) == 0 || !eigen.Factorize(products, false) {
		return math.Inf(1)
	}
	values := eigen.Values(nil) // in ascending order
	return math.Sqrt(values[len(values)-1] / max(values[0], 0))
}

// alone is the share of a column that the others do not span (Gram-Schmidt; columns that add nothing are skipped), and the
// share that is scatter.
func (e *equations) alone(p int) (share, scatter float64) {
	var basis []*mat.VecDense
	rest := func(q int) (*mat.VecDense, float64) {
		v := e.column(e.effects, q)
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
	for q := range e.free {
		if q == p {
			continue
		}
		if v, norm := rest(q); norm > 1e-6 {
			v.ScaleVec(1/norm, v)
			basis = append(basis, v)
		}
	}
	_, share = rest(p)
	if e.scatter != nil && share > 0 {
		scatter = mat.Norm(e.column(e.scatter, p), 2) / mat.Norm(e.column(e.effects, p), 2)
	}
	return share, scatter
}

// column is what a coefficient does to the errors, each as much as it weighs.
func (e *equations) column(of *mat.Dense, p int) *mat.VecDense {
	v := mat.VecDenseCopyOf(of.ColView(p))
	for i, w := range e.weights {
		v.SetVec(i, w*v.AtVec(i))
	}
	return v
}

// unidentified names the other coefficients that stand in for one: those whose columns are nearest to its own.
func (e *equations) unidentified(p int, share float64) *UnidentifiedError {
	err := &UnidentifiedError{Key: e.free[p].key, Alone: share}
	column := e.column(e.effects, p)
	norm := mat.Norm(column, 2)
	for q := range e.free {
		other := e.column(e.effects, q)
		if size := mat.Norm(other, 2); q != p && norm > 0 && size > 0 && mat.Dot(column, other)/norm/size > 0.9 {
			err.Others = append(err.Others, e.free[q].key)
		}
	}
	if norm > 0 && len(err.Others) == 0 {
		err.Others = []string{"the others"}
	}
	return err
}
