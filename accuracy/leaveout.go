package accuracy

import (
	"context"
	"slices"
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

// LeaveOut fits once for each value of key, without the measurements that have it, and predicts those. Of an outcome,
// key sees case and part. It searches less far than Run: down from the start, without the last polish.
func (f *Fitter) LeaveOut(ctx context.Context, key func(*Outcome) string) ([]HeldOut, error) {
	all := GroupBy(unpredicted(f.Cases), key)
	if len(all) < 2 {
		return nil, nil
	}
	var held []HeldOut
	for _, out := range all {
		rest := *f
		rest.left = func(o *Outcome) bool { return key(o) == out.Name }
		rest.Cases = casesWith(f.Cases, func(o *Outcome) bool { return !rest.left(o) })
		s, err := rest.newSearch()
		if err != nil {
			return nil, err
		}
		if err := s.descend(ctx, maxSteps); err != nil {
			return nil, err
		}
		h := HeldOut{Name: out.Name, Profile: *s.with(s.values)}
		outcomes, err := Run(ctx, casesWith(f.Cases, rest.left), &h.Profile)
		if err != nil {
			return nil, err
		}
		for i := range outcomes {
			if rest.left(&outcomes[i]) {
				h.Outcomes = append(h.Outcomes, outcomes[i])
			}
		}
		held = append(held, h)
	}
	return held, nil
}

// unpredicted lists the parts of cases as outcomes without a prediction.
func unpredicted(cases []*Case) []Outcome {
	var list []Outcome
	for _, c := range cases {
		for i := range c.Parts {
			list = append(list, Outcome{Case: c, Part: &c.Parts[i]})
		}
	}
	return list
}

// casesWith keeps the cases that have a part of the kind.
func casesWith(cases []*Case, kind func(*Outcome) bool) []*Case {
	var kept []*Case
	for _, c := range cases {
		if slices.ContainsFunc(c.Parts, func(p Part) bool { return kind(&Outcome{Case: c, Part: &p}) }) {
			kept = append(kept, c)
		}
	}
	return kept
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
	return report.Mean(shares), report.Quantile(shares, 0.9), nil
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
