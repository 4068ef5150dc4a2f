package sim

import (
	"time"

	"github.com/agentsim/agentsim/models"
)

// prefillTime is how long an engine with nothing else to do computes tokens [from, to) of a prompt, in steps of at most
// engine.max_num_batched_tokens.
func (p *Plan) prefillTime(from, to int32) time.Duration {
	sum := models.Fixed(0)
	for past := int64(from); past < int64(to); {
		n := min(int64(to)-past, int64(p.Engine.MaxNumBatchedTokens))
		sum += p.Cost.Base(models.Batch{Prefills: 1, PrefillTokens: int(n), PrefillPairs: n * (2*past + n), PrefillContext: past + n})
		past += n
	}
	return sum.Duration()
}

// worthFetching tells whether a prompt is computed sooner when its tokens [from, to) are brought in the given time than
// when they are computed too, on an engine and over links that do nothing else.
func (p *Plan) worthFetching(from, to, prompt int32, took time.Duration) bool {
	return took+p.prefillTime(to, prompt) < p.prefillTime(from, prompt)
}
