package engine

import (
	"errors"
	"time"

	"github.com/agentsim/agentsim/models"
)

// Speculation is speculative decoding as vLLM V1 schedules it (vllm/v1/core/sched/scheduler.py, version 0.19): in every
// step each decoding request computes the token that it has and Tokens drafts of those that may follow, as far as the
// step's budget lasts, those that were admitted first before others. As many drafts as are accepted one after the other, and one
// token more, are its output of the step and reach the client together. Blocks for drafts are taken when they are
// scheduled and stay with the request when the drafts are rejected; only tokens that stand enter the prefix cache.
//
// Requests advance by different numbers of tokens, so every step walks the batch and no step is leapt over.
type Speculation struct {
	// Tokens is the number of drafts (num_speculative_tokens).
	Tokens int
	// Acceptance is, for each draft, the share of steps in which it and all drafts before it are accepted: what vLLM logs
	// as per-position acceptance rate. It never rises.
	Acceptance []float64
	// Model tells that a model drafts, and not a look-up in the text: blocks are taken for its next drafts as well
	// (num_lookahead_tokens).
	Model bool
	// Hidden tells that this model needs the hidden states of the one that it drafts for (EAGLE, MTP): the last block of a
	// cached prefix is computed again for these (use_eagle in kv_cache_manager.py).
	Hidden bool
}

// Drafts counts speculative decoding as vLLM does (vllm/v1/spec_decode/metrics.py): accepted drafts beyond the end of a
// request count as well.
type Drafts struct {
	Steps            int64 // of requests, not of the engine
	Tokens, Accepted int64
}

// verified is the work of the decodes of a step beside their number, in tokens: the sums of their contexts, drafts
// included, and of what lies in their windows.
type verified struct{ context, windowed int64 }

func (s *Speculation) validate(style Style) error {
	switch {
	case s == nil:
		return nil
	case style != VLLM:
		return errors.New("engine: only vLLM's style has speculative decoding")
	case s.Tokens < 0 || len(s.Acceptance) != s.Tokens:
		return errors.New("engine: every draft token needs its acceptance")
	}
	return nil
}

// lookahead is the number of tokens beyond those of the step for which blocks are taken.
func (s *Speculation) lookahead() int32 {
	if s == nil || !s.Model {
		return 0
	}
	return int32(s.Tokens)
}

// slots is the most tokens beyond those that stand for which a request ever has blocks.
func (s *Speculation) slots() int {
	if s == nil {
		return 0
	}
	return s.Tokens + int(s.lookahead())
}

// usable is how many of the cached blocks at the head of a prompt are not computed again.
func (s *Speculation) usable(cached int32) int32 {
	if s == nil || !s.Hidden {
		return cached
	}
	return max(0, cached-1)
}

// accepted draws how many of the first drafts behind output token number position stand, out of the given number of
// them. The draw is output number position of SplitMix64 (Steele et al., OOPSLA 2014) from seed: the same wherever and
// whenever the request runs.
func (s *Speculation) accepted(seed uint64, position, drafts int32) int32 {
	z := seed + uint64(position)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	draw := float64(z>>11) / (1 << 53)
	n := int32(0)
	for n < drafts && draw < s.Acceptance[n] {
		n++
	}
	return n
}

// speculate puts the decodes with their drafts into the step, in running order while the budget lasts. One that lacks
// blocks preempts others; when it is its own victim, those behind it sit the step out.
func (v *vllm) speculate(now time.Duration) (batch models.Batch, preempted, stalled bool) {
	v.verified = verified{}
	budget := int32(v.MaxBatchedTokens)
	window := int64(v.cost.Window())
	for r := v.running.head; r != nil; r = r.next {
		if r.state != decoding {
			continue
		}
		r.chunk = 0
		n := min(1+int32(v.Speculation.Tokens), budget)
		if n == 0 {
			continue
		}
		tokens := int32(r.base + v.kv.Step)
		behind := r.next
		for !stalled && !v.pool.GrowAhead(&r.table, tokens+1, tokens+n+v.Speculation.lookahead()) {
			if v.makeRoom() {
				continue
			}
			victim := v.victim()
			if victim.state == decoding && victim.table.Order < r.table.Order && victim.chunk > 0 {
				budget += int32(v.takeOut(&batch, victim, 0))
			}
			if behind == victim {
				behind = victim.next
			}
			v.preempt(victim, now, 0)
			preempted, stalled = true, victim == r
		}
		if stalled {
			for ; behind != nil; behind = behind.next {
				behind.chunk = 0
			}
			break
		}
		r.chunk = n
		budget -= n
		batch.Decodes++
		batch.Drafts += int(n - 1)
		v.verified.context += int64(tokens + n)
		v.verified.windowed += min(int64(tokens+n), window)
	}
	if batch.Decodes > 0 || !stalled { // or else there is no step
		v.kv.Step++
	}
	return batch, preempted, stalled
}

// verify ends a step of the decodes: each gets its tokens.
func (e *Engine) verify(now time.Duration) {
	for r := e.running.head; r != nil; {
		next := r.next
		if r.state == decoding {
			e.verifyDrafts(r, now)
		}
		r = next
	}
}

// verifyDrafts gives a request the tokens of the step that ends now.
func (e *Engine) verifyDrafts(r *Request, now time.Duration) {
	if r.chunk == 0 { // it was not in the step
		r.base--
		return
	}
	generated := int32(r.base+e.kv.Step) - r.Input
	drafts := r.chunk - 1
	accepted := e.Speculation.accepted(r.Seed, generated, drafts)
	if drafts > 0 {
		e.Stats.Drafts.Steps++
		e.Stats.Drafts.Tokens += int64(drafts)
		e.Stats.Drafts.Accepted += int64(accepted)
	}
	n := min(1+accepted, r.Output-generated)
	r.base += int64(n - 1)
	e.progress.add(r, 0, int64(n))
	e.Stats.DecodeTokens += int64(n - 1) // one is counted for each decode
	if e.Gaps != nil {
		e.Gaps.Add(now-r.lastToken+time.Duration(n)*e.cost.TokenDelay(), 1)
		e.Gaps.Add(0, int64(n-1))
	}
	r.lastToken = now
	if generated+n == r.Output {
		e.end(r)
	}
}
