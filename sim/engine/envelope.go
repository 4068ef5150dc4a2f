package engine

import (
	"time"

	"github.com/agentsim/agentsim/models"
)

// Outside is GPU time of steps outside of the envelope of the cost's profile: in all, and by what lies outside. A step
// may do so in several ways. Without an envelope nothing is counted.
type Outside struct {
	Any                       time.Duration
	Batch, Context, NewTokens Sides
}

// Sides is the time below and above a range.
type Sides struct{ Below, Above time.Duration }

// Add adds the times of another engine.
func (o *Outside) Add(other Outside) {
	o.Any += other.Any
	o.Batch.plus(other.Batch)
	o.Context.plus(other.Context)
	o.NewTokens.plus(other.NewTokens)
}

func (s *Sides) plus(other Sides) {
	s.Below += other.Below
	s.Above += other.Above
}

// shape is what an envelope bounds of the steps in flight.
type shape struct {
	sequences, newTokens int64
	context              int64 // mean of the first step; it grows by a token a step
}

// shapeOf is the shape of the next steps, of which the first computes batch.
func (e *Engine) shapeOf(batch models.Batch) shape {
	s := shape{sequences: int64(batch.Decodes) + int64(batch.Prefills), newTokens: int64(batch.PrefillTokens)}
	context := batch.PrefillContext
	if e.Speculation != nil {
		context += e.verified.context
	} else if e.decodes > 0 { // those of SGLang may stand by
		context += e.baseSum + e.decodes*e.kv.Step
	}
	s.context = context / s.sequences
	return s
}

// countOutside accounts for the steps in flight. With several of them all sequences are decodes, so that the mean context
// lies within its range from one step to another, and the others are the two ends of the leap. Times are differences of
// step ends, which do not depend on how leaps are cut.
func (e *Engine) countOutside() {
	profile := e.cost.Profile()
	if profile == nil || profile.Envelope == nil || e.shape.sequences == 0 { // a rank that runs along
		return
	}
	within, s, o := profile.Envelope, e.shape, &e.Stats.Outside
	inside := min(max(0, int64(within.Context.Least)-s.context), e.steps)
	beyond := min(max(0, int64(within.Context.Most)+1-s.context), e.steps)
	all := e.stepEnd(e.steps) - e.start
	below, above := e.stepEnd(inside)-e.start, e.stepEnd(e.steps)-e.stepEnd(beyond)
	o.Context.plus(Sides{below, above})
	outside := o.Batch.add(within.Batch, s.sequences, all)
	if s.newTokens > 0 {
		outside = o.NewTokens.add(within.NewTokens, s.newTokens, all) || outside
	}
	if outside {
		o.Any += all
	} else {
		o.Any += below + above
	}
}

// add counts time in which n was outside of its range, and tells whether it was.
func (s *Sides) add(within models.Range, n int64, d time.Duration) bool {
	switch {
	case n < int64(within.Least):
		s.Below += d
	case n > int64(within.Most):
		s.Above += d
	default:
		return false
	}
	return true
}
