package engine

import "time"

// progress counts the output tokens of the requests in an engine, by group: the frontends' program schedulers ask for
// them, and nobody walks a batch for it.
type progress struct {
	decodes []int64 // requests that gain a token a step
	tokens  []int64 // generated so far by all requests in the engine
}

func newProgress(groups int) progress {
	return progress{make([]int64, groups), make([]int64, groups)}
}

// add counts tokens and decodes of a request. Requests of group 0 are not counted.
func (p *progress) add(r *Request, decodes, tokens int64) {
	if r.Group > 0 {
		p.decodes[r.Group-1] += decodes
		p.tokens[r.Group-1] += tokens
	}
}

// step lets every decode gain a token in each of the given steps.
func (p *progress) step(steps int64) {
	for g, n := range p.decodes {
		p.tokens[g] += n * steps
	}
}

// Generated is the number of output tokens at time now, the step in flight not counted, of all requests of a group, from
// 1 to Options.Groups.
func (e *Engine) Generated(now time.Duration, group int) int64 {
	return e.progress.tokens[group-1] + e.progress.decodes[group-1]*e.decodesDone(now)
}

// GeneratedBy is that of one request in the engine.
func (e *Engine) GeneratedBy(now time.Duration, r *Request) int32 {
	if r.state == decoding {
		return e.Tokens(now, r) - r.Input + 1
	}
	return r.generated
}

// discount takes a request out of its group.
func (e *Engine) discount(now time.Duration, r *Request) {
	tokens := int64(e.GeneratedBy(now, r))
	if r.state == decoding && e.Speculation == nil {
		e.progress.add(r, -1, e.decodesDone(now)-tokens)
	} else {
		e.progress.add(r, 0, -tokens)
	}
	r.Group = 0
}

// decodesDone is how many of the steps in flight have ended in which decodes generate.
func (e *Engine) decodesDone(now time.Duration) int64 {
	if e.decodes == 0 {
		return 0
	}
	return e.stepsDone(now)
}
