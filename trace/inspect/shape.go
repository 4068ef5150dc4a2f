package inspect

import (
	"slices"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Shape is how programs, sessions and turns are made. Prompts and answers are in tokens.
type Shape struct {
	SessionTurns     Spread `json:"session_turns"`
	ProgramSubagents Spread `json:"program_subagents"`
	// Depth has the sessions by how many others they are below: the roots first.
	Depth []int64 `json:"depth"`

	FirstPrompt Spread `json:"first_prompt"`
	PeakPrompt  Spread `json:"peak_prompt"`
	Prompt      Spread `json:"prompt"`
	// Growth is how much longer a prompt is than that of the turn before, where it is not shorter.
	Growth Spread `json:"growth"`
	Output Spread `json:"output"`
	CallS  Spread `json:"call_s"`
	// PromptAt is the median prompt at some turns of those sessions that get there.
	PromptAt []PromptAt `json:"prompt_at"`

	// Compactions counts turns that are marked to write a summary of the context, Shrunk those whose prompt is less than half
	// of that of the turn before.
	Compactions int64 `json:"compactions"`
	Shrunk      int64 `json:"shrunk"`
}

// PromptAt is the median prompt of a number of sessions at a turn, which count from 1.
type PromptAt struct {
	Turn     int           `json:"turn"`
	Sessions int64         `json:"sessions"`
	P50      report.Figure `json:"p50"`
}

// marks are the turns at which the growth of prompts is shown.
var marks = []int{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}

// session returns where the calls of a session end that begin at a call; they stand side by side.
func (t *trail) session(first int32) (last int32) {
	for last = first; last < int32(len(t.w.Calls)) && t.w.Calls[last].Session == t.w.Calls[first].Session; last++ {
	}
	return last
}

func (t *trail) shape() Shape {
	var s Shape
	var turns, subagents, first, peak, prompt, growth, output, took []float64
	at := make([][]float64, len(marks))
	depths := t.depths()
	for _, p := range t.w.Programs {
		sessions := 0
		for i := p.First; i < p.Last; sessions++ {
			last := t.session(i)
			calls := t.w.Calls[i:last]
			turns, first = append(turns, float64(len(calls))), append(first, float64(calls[0].Input))
			for d := depths[calls[0].Session]; len(s.Depth) <= d; {
				s.Depth = append(s.Depth, 0)
			}
			s.Depth[depths[calls[0].Session]]++
			most := int32(0)
			for k := range calls {
				c := &calls[k]
				most = max(most, c.Input)
				prompt, output = append(prompt, float64(c.Input)), append(output, float64(c.Output))
				if c.Turn.End != trace.NoTime {
					took = append(took, (t.spans[i].end - t.spans[i].start).Seconds())
				}
				if m, ok := slices.BinarySearch(marks, k+1); ok {
					at[m] = append(at[m], float64(c.Input))
				}
				if c.Turn.Compaction {
					s.Compactions++
				}
				if k > 0 {
					grown := c.Input - calls[k-1].Input
					if grown >= 0 {
						growth = append(growth, float64(grown))
					}
					if c.Input < calls[k-1].Input/2 {
						s.Shrunk++
					}
				}
				i++
			}
			peak = append(peak, float64(most))
		}
		subagents = append(subagents, float64(sessions-1))
	}
	s.SessionTurns, s.ProgramSubagents = newSpread(turns), newSpread(subagents)
	s.FirstPrompt, s.PeakPrompt, s.Prompt, s.Growth = newSpread(first), newSpread(peak), newSpread(prompt), newSpread(growth)
	s.Output, s.CallS = newSpread(output), newSpread(took)
	s.PromptAt = []PromptAt{}
	for m, list := range at {
		if len(list) > 0 {
			d := report.NewDistribution(list)
			s.PromptAt = append(s.PromptAt, PromptAt{marks[m], d.Count, d.P50})
		}
	}
	return s
}

// depths is how many sessions each session is below.
func (t *trail) depths() []int {
	depths := make([]int, len(t.parents))
	for i := range depths {
		depths[i] = -1
	}
	var path []int32 // from a session up to below one whose depth is known
	for i := range depths {
		at := int32(i)
		for path = path[:0]; depths[at] < 0 && t.parents[at] != at; at = t.parents[at] {
			path = append(path, at)
		}
		depths[at] = max(depths[at], 0)
		for _, below := range slices.Backward(path) {
			depths[below] = depths[t.parents[below]] + 1
		}
	}
	return depths
}
