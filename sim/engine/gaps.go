package engine

import (
	"time"

	"github.com/agentsim/agentsim/models"
)

// countGaps adds the gaps between the tokens of the steps in flight, which end now. Step times within a leap differ
// little, so a leap is cut where they differ by a thousandth.
func (e *Engine) countGaps(now time.Duration) {
	if e.decodes == 0 || e.Speculation != nil {
		return
	}
	from := int64(0)
	if e.sat || e.decoded < e.start && e.Style == SGLang {
		e.countWaits()
		from = 1
	}
	e.decoded, e.joined = now, e.joined[:0]
	if e.Gaps == nil {
		return
	}
	delay := e.cost.TokenDelay()
	for from < e.steps {
		n := e.steps - from
		at := e.first + e.slope*models.Fixed(from)
		if e.slope > 0 {
			n = min(n, 1+int64(at/1000/e.slope))
		}
		mean := (e.span(from+n) - e.span(from)) / models.Fixed(n)
		e.Gaps.Add(time.Duration(mean/models.FixedPerNs)+delay, n*e.decodes)
		from += n
	}
}

// countWaits adds the gaps before the first tokens that decodes generate after steps in which all or some had no part.
func (e *Engine) countWaits() {
	if e.Gaps == nil {
		return
	}
	end, old := e.stepEnd(1)+e.cost.TokenDelay(), e.decodes
	for _, r := range e.joined {
		if r.state == decoding {
			e.Gaps.Add(end-r.lastToken, 1)
			old--
		}
	}
	if old > 0 {
		e.Gaps.Add(end-e.decoded, old)
	}
}
