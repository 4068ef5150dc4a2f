package report

import (
	"errors"
	"fmt"
	"time"
)

// CheckRequests tells whether rows make sense before they are summed up: no more hits than prompt, times in order. It
// names the first row that does not.
func CheckRequests(requests []Request) error {
	for i := range requests {
		if err := checkRequest(&requests[i]); err != nil {
			return fmt.Errorf("request %d (turn %d): %w", i, requests[i].Turn, err)
		}
	}
	return nil
}

func checkRequest(r *Request) error {
	switch {
	case r.Status > Failed:
		return fmt.Errorf("status %d does not exist", r.Status)
	case r.Input < 0 || r.Output < 0:
		return fmt.Errorf("negative token counts: input %d, output %d", r.Input, r.Output)
	case r.Hit > r.Input:
		return fmt.Errorf("%d hit tokens in a prompt of %d", r.Hit, r.Input)
	case r.Hit >= 0 && r.Warm > r.Hit:
		return fmt.Errorf("%d warm tokens in %d hit tokens", r.Warm, r.Hit)
	case r.ReadmitHit > r.Readmit:
		return fmt.Errorf("%d hit tokens in %d re-admitted tokens", r.ReadmitHit, r.Readmit)
	case r.Computed >= 0 && r.RecomputedEviction+r.RecomputedPreemption+r.RecomputedMigration > r.Computed:
		return fmt.Errorf("more tokens recomputed (%d, %d, %d by cause) than computed (%d)",
			r.RecomputedEviction, r.RecomputedPreemption, r.RecomputedMigration, r.Computed)
	}
	type event struct {
		name string
		at   time.Duration
	}
	before := event{"arrival", r.Arrival}
	for _, next := range []event{{"admission", r.Admitted}, {"first token", r.FirstToken}, {"end", r.End}} {
		if next.at < 0 {
			continue
		}
		if next.at < before.at {
			return fmt.Errorf("%s at %v, before its %s at %v", next.name, next.at, before.name, before.at)
		}
		before = next
	}
	return nil
}

type namedShare struct {
	name string
	Figure
}

// Check tells whether a run's figures agree with each other: every request ended once, no more hits than prompts,
// no more values than completed requests, shares between 0 and 1. It returns all that is wrong.
func (r *Run) Check() error {
	var errs []error
	complain := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("run %q: "+format, append([]any{r.Name}, args...)...))
	}
	measures := []*Measures{&r.Measures}
	if r.Whole != nil {
		measures = append(measures, r.Whole)
	}
	for _, m := range measures {
		q := m.Requests
		if sum := q.Completed + q.Rejected + q.Failed + q.Unfinished; q.Total != sum {
			complain("%d requests, but %d ends: %d completed, %d rejected, %d failed, %d unfinished",
				q.Total, sum, q.Completed, q.Rejected, q.Failed, q.Unfinished)
		}
		if n := explained(q.Rejections); n > q.Rejected {
			complain("%d rejections explained, but %d rejected", n, q.Rejected)
		}
		if n := explained(q.Failures); n > q.Failed {
			complain("%d failures explained, but %d failed", n, q.Failed)
		}
		if m.Programs.Completed > m.Programs.Total {
			complain("%d of %d programs completed", m.Programs.Completed, m.Programs.Total)
		}
		l := &m.LatencyMs
		for _, d := range []Distribution{l.TTFT, l.TPOT, l.E2E, l.Queue, l.Held, l.RouterQueue} {
			if d.Count > q.Completed {
				complain("%d latencies of %d completed requests", d.Count, q.Completed)
			}
		}
	}
	kv := &r.KV
	if kv.HitTokens.Value > kv.PromptTokens.Value {
		complain("%.0f hit tokens in %.0f prompt tokens", kv.HitTokens.Value, kv.PromptTokens.Value)
	}
	again := kv.Recomputed
	if sum := again.Eviction.Value + again.Preemption.Value + again.Migration.Value; sum > kv.ComputedTokens.Value {
		complain("%.0f tokens recomputed, but %.0f computed", sum, kv.ComputedTokens.Value)
	}
	shares := []namedShare{
		{"kv.hit_rate", kv.HitRate},
		{"kv.readmission_hit_rate", kv.ReadmissionHitRate},
		{"kv.reprefill_time_share", kv.ReprefillTimeShare},
		{"kv.peak_utilization", kv.PeakUtilization},
		{"kv.mean_utilization", kv.MeanUtilization},
		{"programs.fairness", r.Programs.Fairness},
	}
	if s := kv.SpaceTime; s != nil {
		shares = append(shares, namedShare{"kv.space_time.decode", s.Decode.Share}, namedShare{"kv.space_time.prefill", s.Prefill.Share},
			namedShare{"kv.space_time.recompute", s.Recompute.Share}, namedShare{"kv.space_time.caching", s.Caching.Share},
			namedShare{"kv.space_time.unused", s.Unused.Share})
	}
	if h := kv.HeldGiBS; h != nil {
		for _, holder := range kv.Holders {
			if most := h.Total() * (1 + 1e-9); holder.HeldGiBS.Total() > most {
				complain("program %s held %v GiB·s of KV, more than all programs", holder.Program, holder.HeldGiBS.Total())
			}
		}
		for _, f := range h.figures() {
			if f.Value < 0 {
				complain("%v GiB·s of KV held", f.Value)
			}
		}
	}
	if r.Cost != nil {
		shares = append(shares, namedShare{"cost.outside_share", r.Cost.OutsideShare})
		for _, o := range r.Cost.Outside {
			shares = append(shares, namedShare{"cost.outside (" + o.Cause + ")", o.Share})
		}
	}
	for _, share := range shares {
		if share.Known && (share.Value < 0 || share.Value > 1+1e-9) {
			complain("%s is %v, not between 0 and 1", share.name, share.Value)
		}
	}
	return errors.Join(errs...)
}

// explained counts the requests whose loss has a reason.
func explained(losses []Loss) (n int64) {
	for _, l := range losses {
		n += l.Count
	}
	return n
}
