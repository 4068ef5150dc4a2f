package accuracy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// leastCalls is the number of measured calls below which a trace is not fitted.
const leastCalls = 30

// Trace makes a case of what a capture has recorded of its deployment: its calls arrive as they did, and each is a part
// with its own TTFT, TPOT and E2E. The parts are named by folds, stretches of equal numbers of calls in order of arrival.
//
// Calls that are alike, in prompt, in the part of it that was not cached, and in the calls under way at their arrival, are
// a row of the fit: a single call's TTFT hangs on how far the step is in which it arrives, and many of the same kind would
// drown the few that tell terms apart.
func Trace(c *trace.Capture, d sim.Deployment, folds int) (*Case, error) {
	if !c.SharedClock {
		return nil, fmt.Errorf("calibrating with a trace: format %s has no clock that its sessions share, so its arrivals cannot be repeated", c.Format)
	}
	d.Load = sim.Default().Load
	d.Load.Mode = "recorded"
	d.Client = sim.Client{MaxTokens: d.Client.MaxTokens}
	turns, err := measuredTurns(c)
	if err != nil {
		return nil, fmt.Errorf("calibrating with a trace: %w", err)
	}
	kase := &Case{Source: "trace", Name: c.Format, Deployment: d, calls: make(map[*trace.Turn]int, len(turns)),
		capture: func() (*trace.Capture, error) { return c, nil }}
	together := inFlight(turns)
	for i, t := range turns {
		kase.calls[t] = i
		measured, _ := figuresOf(&report.Request{Status: report.Completed, Arrival: t.Start, FirstToken: t.Start + t.TTFT, End: t.End, Output: t.Output})
		kase.Parts = append(kase.Parts, Part{Name: fmt.Sprintf("fold %d of %d", 1+i*folds/len(turns), folds), From: t.Start, To: t.Start + 1,
			Measured: measured, Group: fmt.Sprint(power(t.Input-max(0, t.Cached)), power(t.Input)/2, power(together[i]))})
	}
	kase.step = medianStep(turns)
	return kase, nil
}

// power is the power of two of a count: those of one power are alike.
func power[T int | int32](n T) int { return bits.Len(uint(n)) }

// predictCalls simulates a case whose parts are calls, with all its replicas, and takes the mean logarithms.
func (c *Case) predictCalls(ctx context.Context, profile *models.Profile) ([]Figures, error) {
	plan, err := c.Plan()
	if err != nil {
		return nil, err
	}
	work, err := c.load()
	if err != nil {
		return nil, err
	}
	results, errs := make([]*sim.Result, len(c.replicas)), make([]error, len(c.replicas))
	var wg sync.WaitGroup
	for i, w := range c.replicas {
		wg.Go(func() { results[i], errs[i] = c.simulateWork(ctx, w, plan, profile) })
	}
	wg.Wait()
	logs, known := make([]Figures, len(c.Parts)), make([]Figures, len(c.Parts))
	for i, res := range results {
		if errs[i] != nil {
			return nil, errs[i]
		}
		for j := range res.Requests {
			q := &res.Requests[j]
			part, ok := c.calls[work.Calls[q.Turn].Turn]
			if !ok {
				continue
			}
			one, _ := figuresOf(q)
			for m, v := range one {
				if v > 0 {
					logs[part][m] += math.Log(v)
					known[part][m]++
				}
			}
		}
	}
	for i := range logs {
		for m, n := range known[i] {
			if n > 0 {
				logs[i][m] = math.Exp(logs[i][m] / n)
			}
		}
	}
	return logs, nil
}

// replicate makes the workloads whose mean is taken: the recorded one and, of small traces, some with each arrival put off
// at random by up to the median time of a measured step. What a single call sees hangs on the step in which it arrives,
// and a fit would follow that.
func (c *Case) replicate() {
	const enough, most = 1 << 15, 8
	c.replicas = []*trace.Workload{c.work}
	for seed := range max(1, min(most, enough/len(c.work.Calls))) - 1 {
		rng := rand.New(rand.NewPCG(c.plan.Seed, uint64(seed)))
		w := *c.work
		w.Calls = slices.Clone(w.Calls)
		for i := range w.Calls {
			if at := &w.Calls[i].Offset; *at != trace.NoTime {
				*at += time.Duration(rng.Int64N(int64(c.step)))
			}
		}
		c.replicas = append(c.replicas, &w)
	}
}

// inFlight counts for each call those under way when it arrived, itself included.
func inFlight(turns []*trace.Turn) []int {
	ends := make([]time.Duration, len(turns))
	for i, t := range turns {
		ends[i] = t.End
	}
	slices.Sort(ends)
	together := make([]int, len(turns))
	ended := 0
	for i, t := range turns {
		for ended < len(ends) && ends[ended] <= t.Start {
			ended++
		}
		together[i] = i + 1 - ended
	}
	return together
}

// measuredTurns are the calls with known times that ended well, in order of arrival.
func measuredTurns(c *trace.Capture) ([]*trace.Turn, error) {
	var turns []*trace.Turn
	calls, undated, noFirst, noEnd, failed := 0, 0, 0, 0, 0
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			calls++
			switch {
			case t.Status != "" && t.Status != "ok":
				failed++
			case t.Start == trace.NoTime || t.Inferred&trace.FieldStart != 0:
				undated++
			case t.TTFT == trace.NoTime || t.TTFT <= 0:
				noFirst++
			case t.End == trace.NoTime || t.Inferred&trace.FieldEnd != 0 || t.End < t.Start+t.TTFT:
				noEnd++
			case t.Output > 0:
				turns = append(turns, t)
			}
		}
	}
	if undated > 0 {
		return nil, fmt.Errorf("%d of %d calls have no recorded arrival, and all that ran shape the batches", undated, calls)
	}
	if len(turns) < leastCalls {
		why := ""
		if len(turns) < calls {
			why = fmt.Sprintf(": %d have no time of the first token (ttft_ms), %d no end (total_time_ms), %d failed", noFirst, noEnd, failed)
		}
		return nil, fmt.Errorf("%d of %d calls are measured, want at least %d%s", len(turns), calls, leastCalls, why)
	}
	if !slices.ContainsFunc(turns, func(t *trace.Turn) bool { return t.Output > 1 && t.End > t.Start+t.TTFT }) {
		return nil, errors.New("no call has a second token after its first: nothing tells the time of a decode step")
	}
	slices.SortStableFunc(turns, func(a, b *trace.Turn) int { return cmp.Compare(a.Start, b.Start) })
	return turns, nil
}

// medianStep is the median of the calls' mean times per output token after the first.
func medianStep(turns []*trace.Turn) time.Duration {
	var steps []time.Duration
	for _, t := range turns {
		if decode := t.End - t.Start - t.TTFT; t.Output > 1 && decode > 0 {
			steps = append(steps, max(1, decode/time.Duration(t.Output-1)))
		}
	}
	slices.Sort(steps)
	return steps[len(steps)/2]
}
