package accuracy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// leastCalls is the number of measured calls below which a trace is not fitted.
const leastCalls = 30

// Trace makes a case of what a capture has recorded of its deployment: its calls arrive as they did, and each is a part
// with its own TTFT, TPOT and E2E. The parts are named by folds, stretches of equal numbers of calls in order of arrival.
//
// A group of n calls that are alike, in the powers of two of prompt and output, weighs as much as √n calls: many of the
// same kind tell little that is new, and would drown the few that tell terms apart.
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
	alike := map[[2]int]float64{}
	group := func(t *trace.Turn) [2]int { return [2]int{bits.Len32(uint32(t.Input)), bits.Len32(uint32(t.Output))} }
	for _, t := range turns {
		alike[group(t)]++
	}
	for i, t := range turns {
		kase.calls[t] = i
		measured, _ := figuresOf(&report.Request{Status: report.Completed, Arrival: t.Start, FirstToken: t.Start + t.TTFT, End: t.End, Output: t.Output})
		kase.Parts = append(kase.Parts, Part{Name: fmt.Sprintf("fold %d of %d", 1+i*folds/len(turns), folds), From: t.Start, To: t.Start + 1,
			Measured: measured, Weight: 1 / math.Sqrt(alike[group(t)])})
	}
	return kase, nil
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
		return nil, fmt.Errorf("%d of %d calls are measured, want at least %d: %d have no time of the first token (ttft_ms), %d no end (total_time_ms), %d failed",
			len(turns), calls, leastCalls, noFirst, noEnd, failed)
	}
	if !slices.ContainsFunc(turns, func(t *trace.Turn) bool { return t.Output > 1 && t.End > t.Start+t.TTFT }) {
		return nil, errors.New("no call has a second token after its first: nothing tells the time of a decode step")
	}
	slices.SortStableFunc(turns, func(a, b *trace.Turn) int { return cmp.Compare(a.Start, b.Start) })
	return turns, nil
}
