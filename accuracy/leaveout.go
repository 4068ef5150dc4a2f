package accuracy

import (
	"context"
	"slices"

	"gonum.org/v1/gonum/mat"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/trace/report"
)

// HeldOut is how a profile that was fitted without some cases predicts them.
type HeldOut struct {
	Name     string
	Profile  models.Profile
	Outcomes []Outcome
}

// LeaveOut fits once for each value of key, without the cases that have it, and predicts those. It begins where the
// fit to all cases began, so that nothing of the cases left out is known. It first goes down by the effects that
// coefficients had in that fit, which saves simulations, and then by its own; the last polish of Run it leaves out.
func (f *Fitter) LeaveOut(ctx context.Context, fit *Fit, key func(*Case) string) ([]HeldOut, error) {
	var names []string
	for _, c := range f.Cases {
		names = append(names, key(c))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 2 {
		return nil, nil
	}
	var held []HeldOut
	for _, name := range names {
		rest := *f
		rest.Cases = nil
		var out []*Case
		var kept []int // rows of the effects: TPOT of all parts, then TTFT
		parts := 0
		for _, c := range f.Cases {
			if key(c) == name {
				out = append(out, c)
			} else {
				rest.Cases = append(rest.Cases, c)
				for i := range c.Parts {
					kept = append(kept, parts+i)
				}
			}
			parts += len(c.Parts)
		}
		effects := mat.NewDense(2*len(kept), len(f.Free), nil)
		for i, row := range kept {
			effects.SetRow(i, fit.effects.RawRowView(row))
			effects.SetRow(len(kept)+i, fit.effects.RawRowView(parts+row))
		}
		s, err := rest.newSearch()
		if err != nil {
			return nil, err
		}
		if err := s.descend(ctx, func([]float64) (*mat.Dense, error) { return effects, nil }); err != nil {
			return nil, err
		}
		if err := s.descend(ctx, func(at []float64) (*mat.Dense, error) { return s.effects(ctx, at) }); err != nil {
			return nil, err
		}
		h := HeldOut{Name: name, Profile: *s.with(s.values)}
		if h.Outcomes, err = Run(ctx, out, &h.Profile); err != nil {
			return nil, err
		}
		held = append(held, h)
	}
	return held, nil
}

// Envelope is the range of steps that the cases cover, as far as their requests tell: of models, tensor-parallel sizes,
// requests at a time, contexts, and prompt tokens in a step.
func Envelope(ctx context.Context, cases []*Case, profile *models.Profile) (*models.Envelope, error) {
	e := &models.Envelope{
		Tensor:    models.Range{Least: 1 << 30},
		Batch:     models.Range{Least: 1},
		Context:   models.Range{Least: 1 << 30},
		NewTokens: models.Range{Least: 1 << 30},
	}
	for _, c := range cases {
		res, err := c.simulate(ctx, profile)
		if err != nil {
			return nil, err
		}
		if name := res.Plan.Hardware.Model.Name; !slices.Contains(e.Models, name) {
			e.Models = append(e.Models, name)
		}
		widen(&e.Tensor, res.Plan.Hardware.Parallelism.Tensor)
		together := concurrent(res.Requests)
		widen(&e.Batch, together)
		for i := range res.Requests {
			q := &res.Requests[i]
			computed := int(q.Input - max(0, q.Hit))
			widen(&e.Context, int(q.Input))
			widen(&e.Context, int(q.Input+q.Output))
			widen(&e.NewTokens, min(computed, res.Plan.Engine.MaxNumBatchedTokens))
			widen(&e.NewTokens, min(computed*together, res.Plan.Engine.MaxNumBatchedTokens))
		}
	}
	slices.Sort(e.Models)
	return e, nil
}

// HostShare is the part of the time of steps that is the host's, by the cases: of each case's steps together, the mean
// and the 90 % quantile over the cases. A prompt counts as one sequence, however many steps it takes.
func HostShare(ctx context.Context, cases []*Case, profile *models.Profile) (average, p90 float64, err error) {
	shares := make([]float64, len(cases))
	for i, c := range cases {
		res, err := c.simulate(ctx, profile)
		if err != nil {
			return 0, 0, err
		}
		var host, busy time.Duration
		for _, e := range res.Engines {
			host += res.Plan.Cost.HostTime(e.Steps, e.DecodeTokens+int64(len(res.Requests)), e.PrefillTokens)
			busy += e.Busy
		}
		shares[i] = float64(host) / float64(max(1, busy))
	}
	slices.Sort(shares)
	return mean(shares), quantile(shares, 0.9), nil
}

func widen(r *models.Range, n int) { r.Least, r.Most = min(r.Least, n), max(r.Most, n) }

// concurrent is the most requests that ran at a time.
func concurrent(requests []report.Request) int {
	var begins, ends []int64
	for i := range requests {
		if q := &requests[i]; q.Admitted != report.None && q.End != report.None {
			begins, ends = append(begins, int64(q.Admitted)), append(ends, int64(q.End))
		}
	}
	slices.Sort(begins)
	slices.Sort(ends)
	most, ended := 0, 0
	for i, at := range begins {
		for ended < len(ends) && ends[ended] <= at {
			ended++
		}
		most = max(most, i+1-ended)
	}
	return most
}
