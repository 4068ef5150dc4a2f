// Package fit finds the rates of a GPU's kernels (models.Ops) from tables of measured kernel times, and tells how well
// the formulas of package models describe them.
//
// Every kernel is fitted by itself: the parameters that make the logarithm of predicted over measured time smallest, by
// a robust loss and Nelder and Mead's search. Errors are shares: 0.05 is a factor of e^0.05, about 5 %.
package fit

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/optimize"
)

// Kernel is the fit of one kernel.
type Kernel struct {
	Name    string
	Params  []Param
	Errors  []SliceError // of all rows first, then of parts of them
	HeldOut SliceError   // of each half of the groups, with the parameters fitted on the other half
	Groups  string       // what the halves are made of
}

// Param is one fitted number.
type Param struct {
	Key, Unit string
	Value     float64
}

// SliceError is how far predictions are off over some of the rows: of the absolute logarithmic errors the median and
// the 90 % quantile, and the median of the signed ones, above 0 where the prediction is too long.
type SliceError struct {
	Name              string
	Rows              int
	Median, P90, Bias float64
}

// row is one measurement: the time and what the kernel's formula needs.
type row struct {
	us    float64
	x     [6]float64 // as the kernel defines
	group int        // shapes of one group are held out together
	fit   bool       // false: only compared
}

// problem is a kernel before it is fitted.
type problem struct {
	name    string
	groups  string
	params  []Param // Value is where the search starts
	rows    []row
	predict func(p []float64, r *row) float64 // µs
	slices  []part
}

// part is a subset of the rows that is reported by itself.
type part struct {
	name string
	has  func(r *row) bool
}

// fit solves the problem on all rows and on each half of its groups.
func (p *problem) fit() (*Kernel, error) {
	all := func(r *row) bool { return r.fit }
	best, err := p.search(all)
	if err != nil {
		return nil, err
	}
	k := &Kernel{Name: p.name, Params: slices.Clone(p.params), Groups: p.groups}
	for i := range k.Params {
		if best[i] = round(best[i]); best[i] < k.Params[i].Value*1e-3 {
			best[i] = 0 // the search is in logarithms and cannot end there
		}
		k.Params[i].Value = best[i]
	}
	k.Errors = append(k.Errors, p.errors("all fitted rows", all, func(*row) []float64 { return best }))
	for _, s := range p.slices {
		k.Errors = append(k.Errors, p.errors(s.name, s.has, func(*row) []float64 { return best }))
	}
	var halves [2][]float64
	for half := range halves {
		if halves[half], err = p.search(func(r *row) bool { return r.fit && r.group%2 == half }); err != nil {
			return nil, fmt.Errorf("holding out every second group: %w", err)
		}
	}
	k.HeldOut = p.errors("held out", all, func(r *row) []float64 { return halves[1-r.group%2] })
	return k, nil
}

// value is the parameter of a key.
func (k *Kernel) value(key string) float64 {
	for _, p := range k.Params {
		if p.Key == key {
			return p.Value
		}
	}
	panic("fit: kernel " + k.Name + " has no parameter " + key)
}

// round keeps four significant digits: more would claim what the tables do not tell.
func round(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return short
}

// search finds the parameters for the rows that use takes.
func (p *problem) search(use func(*row) bool) ([]float64, error) {
	var rows []*row
	for i := range p.rows {
		if use(&p.rows[i]) {
			rows = append(rows, &p.rows[i])
		}
	}
	if len(rows) < 2*len(p.params) {
		return nil, fmt.Errorf("fitting %s: %d rows cannot tell %d parameters", p.name, len(rows), len(p.params))
	}
	values := make([]float64, len(p.params))
	decode := func(logs []float64) []float64 {
		for i, v := range logs {
			values[i] = math.Exp(v)
		}
		return values
	}
	// The loss is quadratic for small errors and linear beyond a tenth, so that outliers do not pull.
	const tenth = 0.1
	loss := func(logs []float64) float64 {
		at := decode(logs)
		var sum float64
		for _, r := range rows {
			e := math.Log(p.predict(at, r)/r.us) / tenth
			sum += math.Sqrt(1 + e*e)
		}
		if math.IsNaN(sum) {
			return math.Inf(1)
		}
		return sum / float64(len(rows))
	}
	start := make([]float64, len(p.params))
	for i, param := range p.params {
		start[i] = math.Log(param.Value)
	}
	// Started again from where it ended, the search leaves a simplex that has collapsed too early.
	for range 3 {
		result, err := optimize.Minimize(optimize.Problem{Func: loss}, start, &optimize.Settings{
			FuncEvaluations: 400, Converger: &optimize.FunctionConverge{Absolute: 1e-6, Iterations: 60},
		}, &optimize.NelderMead{SimplexSize: 0.2})
		if result == nil {
			return nil, fmt.Errorf("fitting %s: %w", p.name, err)
		}
		start = result.X
	}
	return slices.Clone(decode(start)), nil
}

// errors compares the rows of a part with predictions.
func (p *problem) errors(name string, has func(*row) bool, at func(*row) []float64) SliceError {
	var signed, absolute []float64
	for i := range p.rows {
		if r := &p.rows[i]; has(r) {
			e := math.Log(p.predict(at(r), r) / r.us)
			signed, absolute = append(signed, e), append(absolute, math.Abs(e))
		}
	}
	slices.Sort(signed)
	slices.Sort(absolute)
	return SliceError{name, len(signed), quantile(absolute, 0.5), quantile(absolute, 0.9), quantile(signed, 0.5)}
}

// grouping numbers shapes: equal ones get equal numbers, in order of appearance.
type grouping map[[4]float64]int

func (g grouping) of(shape ...float64) int {
	var key [4]float64
	copy(key[:], shape)
	n, ok := g[key]
	if !ok {
		n = len(g)
		g[key] = n
	}
	return n
}
