package inspect

import (
	"cmp"
	"slices"

	"github.com/agentsim/agentsim/trace/report"
)

// KV is what the trace needs of KV caches, in tokens. Its working set at a time is the tokens that calls use then or have
// used and use again later: with less room some of that reuse is lost. Tokens that several calls share count once.
type KV struct {
	// Distinct is all tokens that the trace computes if none is computed twice: what a cache without bounds ends up with.
	Distinct int64 `json:"distinct_tokens"`
	// ProgramPeak and ProgramMean are the working sets of programs, each alone.
	ProgramPeak Spread `json:"program_peak_tokens"`
	ProgramMean Spread `json:"program_mean_tokens"`
	// Pool is the tokens that one worker has room for, PoolPrograms how many programs of mean working set fit in.
	Pool         report.Figure `json:"pool_tokens,omitzero"`
	PoolPrograms report.Figure `json:"pool_programs,omitzero"`
}

// kv measures what the calls need of KV caches, and returns the working set of all of them over time.
func (t *trail) kv(pool int64) (KV, steps) {
	var k KV
	begun, ended := newCoverage(t.w), newCoverage(t.w)
	var peaks, means []float64
	var calls []int32
	for i, p := range t.w.Programs {
		calls = calls[:0]
		for c := p.First; c < p.Last; c++ {
			calls = append(calls, c)
		}
		slices.SortFunc(calls, t.compareStarts)
		alone, _ := t.workingSet(calls, begun, ended, int32(i))
		level := alone.level()
		peaks = append(peaks, level.Peak.Value)
		if level.Mean.Known {
			means = append(means, level.Mean.Value)
		}
	}
	k.ProgramPeak, k.ProgramMean = newSpread(peaks), newSpread(means)
	if pool > 0 {
		k.Pool = report.Known(pool)
		k.PoolPrograms = report.Known(float64(pool) / k.ProgramMean.Mean.Value)
	}
	together, distinct := t.workingSet(t.byStart, begun, ended, int32(len(t.w.Programs)))
	k.Distinct = distinct
	return k, together
}

// workingSet returns the working set of calls, which are in order of start, over time, and the number of their distinct
// tokens. A token joins it when the first call that has it starts, and leaves it when the last one ends. Seen in order of
// their starts, calls bring the tokens that none before them had; seen backwards in order of their ends, they take along
// those that none behind them has. Each pass takes time linear in calls and nodes.
func (t *trail) workingSet(calls []int32, begun, ended coverage, group int32) (set steps, distinct int64) {
	set = make(steps, 0, 2*len(calls))
	for _, i := range calls {
		n := begun.call(t.w, group, i)
		distinct += n
		set = append(set, step{t.spans[i].start, n})
	}
	ends := slices.Clone(calls)
	slices.SortFunc(ends, func(a, b int32) int { return cmp.Or(cmp.Compare(t.spans[b].end, t.spans[a].end), cmp.Compare(b, a)) })
	for _, i := range ends {
		set = append(set, step{t.spans[i].end, -ended.call(t.w, group, i)})
	}
	set.sort()
	return set, distinct
}
