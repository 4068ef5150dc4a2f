package inspect

import (
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Reuse is what caches without bounds would hit: each token of a prompt but the last is a hit if an earlier prompt of the
// trace, or the history from before it, had it in the same place behind the same tokens.
type Reuse struct {
	// Recorded is the hit rate of the recorded server, of the turns that tell it.
	Recorded report.Figure `json:"recorded,omitzero"`
	// Prompts is the hit rate of a cache of prompts, Outputs that of one that also keeps generated tokens, as far as later
	// prompts are taken to contain them.
	Prompts report.Figure `json:"prompts"`
	Outputs report.Figure `json:"outputs"`
	// OutputTokens counts generated tokens by what is known of the later prompts that contain them.
	OutputTokens OutputTokens `json:"output_tokens"`
}

// OutputTokens is trace.OutputTokens.
type OutputTokens struct {
	Known    int64 `json:"known"`
	Inferred int64 `json:"inferred"`
	Unknown  int64 `json:"unknown"`
}

// coverage knows, for each node of a prefix tree, up to which token calls of a group went through it. What it knows of other
// groups it forgets.
type coverage []reach

type reach struct{ group, tokens int32 }

// newCoverage knows nothing. Groups count from 0.
func newCoverage(w *trace.Workload) coverage {
	c := make(coverage, w.Nodes())
	for i := range c {
		c[i].group = -1
	}
	return c
}

// cover adds the first tokens tokens on the way to a node, and returns how many of them are new. As whatever lies above a
// covered token is covered, it takes constant time for each node that is not.
func (c coverage) cover(w *trace.Workload, group int32, n trace.NodeID, tokens int32) (fresh int64) {
	for n > 0 {
		parent, start := w.Above(n)
		r := &c[n]
		if r.group != group {
			*r = reach{group, -1}
		}
		if r.tokens >= tokens {
			break
		}
		fresh += int64(max(tokens-max(r.tokens, start), 0))
		r.tokens = tokens
		n, tokens = parent, start
	}
	return fresh
}

// call covers the tokens of a call, those of its prompt and those that it generates. Its prompt ends on the way to its end.
func (c coverage) call(w *trace.Workload, group, i int32) (fresh int64) {
	call := &w.Calls[i]
	return c.cover(w, group, call.End, call.Computed())
}

// infinite is the hit rate of a cache without bounds that each call fills when it starts.
func (t *trail) infinite() report.Figure {
	covered := newCoverage(t.w)
	var hits, prompts int64
	for _, i := range t.byStart {
		c := &t.w.Calls[i]
		fresh := covered.cover(t.w, 0, c.Prompt, c.Input)
		covered.call(t.w, 0, i)
		hits += min(max(int64(c.Input)-fresh, int64(c.Cut)), int64(c.Input)-1)
		prompts += int64(c.Input)
	}
	return share(hits, prompts)
}

// share is part/whole; not known of nothing.
func share(part, whole int64) report.Figure { return report.Known(float64(part) / float64(whole)) }
