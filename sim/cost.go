package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace/report"
)

// cost reports what the step times rest on, in the measured window; nil where they were given by hand.
func (r *Result) cost() *report.Cost {
	profile := r.Plan.Cost.Profile()
	if profile == nil {
		return nil
	}
	h := r.Plan.Hardware.WithDefaults()
	held := func(measure string) (f report.Figure) {
		if e := profile.HeldOut(measure, h.Model); e > 0 {
			f = report.Known(e)
		}
		return f
	}
	c := &report.Cost{Profile: profile.Name, Priced: priced(&h), Errors: report.CostErrors{
		TTFT: held("ttft"), TPOT: held("tpot"), E2E: held("e2e"), Throughput: held("throughput")}}
	busy, outside := r.outside()
	if busy == 0 {
		return c
	}
	share := func(d time.Duration) report.Figure { return report.Known(d.Seconds() / busy.Seconds()) }
	c.OutsideShare = share(outside.Any)
	for _, u := range profile.Unmeasured(&h) {
		c.OutsideShare = share(busy)
		c.Outside = append(c.Outside, report.Outside{Cause: u.Cause, What: u.What, Share: c.OutsideShare})
	}
	if e := profile.Envelope; e != nil {
		add := func(cause string, s engine.Sides, within models.Range, format string) {
			if s.Above > 0 {
				c.Outside = append(c.Outside, report.Outside{Cause: cause, What: fmt.Sprintf(format, "above", within.Most), Share: share(s.Above)})
			}
			if s.Below > 0 {
				c.Outside = append(c.Outside, report.Outside{Cause: cause, What: fmt.Sprintf(format, "below", within.Least), Share: share(s.Below)})
			}
		}
		add("context", outside.Context, e.Context, "contexts %s %d tokens")
		add("batch", outside.Batch, e.Batch, "batches %s %d requests")
		add("new_tokens", outside.NewTokens, e.NewTokens, "prefills %s %d tokens")
	}
	slices.SortStableFunc(c.Outside, func(a, b report.Outside) int { return cmp.Compare(b.Share.Value, a.Share.Value) })
	return c
}

// priced names what a profile's error hangs on: model and number formats, GPU, parallelism and engine.
func priced(h *models.Deployment) string {
	p := h.Parallelism
	text := fmt.Sprintf("%s in %s, KV in %s, on %s, tensor %d", h.Model.Name, h.Weights, h.KV, h.GPU.Name, p.Tensor)
	for _, part := range []struct {
		name string
		n    int
	}{{"pipeline", p.Pipeline}, {"data", p.Data}, {"expert", p.Expert}} {
		if part.n > 1 {
			text += fmt.Sprintf(", %s %d", part.name, part.n)
		}
	}
	if text += ", " + h.Engine; h.EngineVersion != "" {
		text += " " + h.EngineVersion
	}
	return text
}

// outside sums up the busy time of all engines, and the part of it outside of the profile's envelope.
func (r *Result) outside() (busy time.Duration, sum engine.Outside) {
	for i := range r.Engines {
		s := &r.Engines[i]
		busy += s.Busy
		sum.Add(s.Outside)
	}
	return busy, sum
}
