package plan

import (
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Summary is what a plan will ask of a server, as far as the recording tells. It is of one repetition.
type Summary struct {
	Calls, Sessions, Programs int
	InputTokens, OutputTokens int64
	// Duration is the planned time from the first send to the last; trace.NoTime where the recording does not tell.
	Duration time.Duration
	// Peak is the most calls in flight at a time, if the server is as fast as the recorded one; 0 where not known.
	Peak int
	// LongestContext is the most tokens of a call, prompt and output together.
	LongestContext int32
	// Silence is the longest stretch in which no call runs, and SilenceAt when it begins.
	Silence, SilenceAt time.Duration
	// Hits are the prompt tokens that an endless cache would hold, in blocks of BlockSize tokens and in order of
	// planned time; PromptHits the part that does not rest on generated tokens.
	Hits, PromptHits int64
	BlockSize        int
}

// Summary sums up the plan.
func (p *Plan) Summary() Summary {
	w := p.Workload
	s := Summary{Calls: p.Calls / p.Options.Loop, Sessions: p.Sessions / p.Options.Loop, Programs: p.Programs / p.Options.Loop,
		Duration: trace.NoTime, BlockSize: w.Capture.BlockSize}
	if s.BlockSize == 0 {
		s.BlockSize = 16
	}
	order := p.byTime()
	for _, i := range order {
		c := &w.Calls[i]
		s.InputTokens += int64(c.Input)
		s.OutputTokens += int64(c.Output)
		s.LongestContext = max(s.LongestContext, c.Input+c.Output)
	}
	p.summarizeTimes(&s, order)
	s.Hits = p.endlessHits(order, s.BlockSize, true)
	s.PromptHits = p.endlessHits(order, s.BlockSize, false)
	return s
}

// byTime lists the calls that are sent in order of planned time; those without one in order of the workload, first.
func (p *Plan) byTime() []int32 {
	var order []int32
	for i, kept := range p.kept {
		if kept {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return int(max(-1, min(1, p.planned[a]/2-p.planned[b]/2))) })
	return order
}

func (p *Plan) summarizeTimes(s *Summary, order []int32) {
	type change struct {
		at   time.Duration
		step int
	}
	var changes []change
	busy := time.Duration(0)
	for _, i := range order {
		at := p.planned[i]
		if at == trace.NoTime {
			return
		}
		if silence := at - busy; silence > s.Silence {
			s.Silence, s.SilenceAt = silence, busy
		}
		s.Duration = at - p.planned[order[0]]
		took := time.Duration(0)
		if t := p.Workload.Calls[i].Turn; t.End != trace.NoTime {
			took = max(0, t.End-t.Start)
		}
		busy = max(busy, at+took)
		changes = append(changes, change{at, 1}, change{at + took, -1})
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		if a.at == b.at {
			return a.step - b.step
		}
		return int(max(-1, min(1, a.at-b.at)))
	})
	live := 0
	for _, c := range changes {
		live += c.step
		s.Peak = max(s.Peak, live)
	}
}

// endlessHits is the prompt tokens that calls find in a cache that forgets nothing. A call's prompt, and with outputs
// what it generates, is there for all that come after it.
func (p *Plan) endlessHits(order []int32, blockSize int, outputs bool) int64 {
	w := p.Workload
	seen := map[trace.Key]int32{} // blocks of a node
	var spans []trace.Span
	hits := int64(0)
	for _, i := range order {
		c := &w.Calls[i]
		spans = w.Path(c.Prompt, c.Input, blockSize, 0, spans[:0])
		for _, s := range spans {
			have := min(max(seen[s.Key], s.From), s.To)
			hits += int64(have-s.From) * int64(blockSize)
			if have < s.To {
				break
			}
		}
		if outputs {
			spans = w.Path(c.End, c.Computed(), blockSize, 0, spans[:0])
		}
		for _, s := range spans {
			seen[s.Key] = max(seen[s.Key], s.To)
		}
	}
	return hits
}

// LongerThan counts the calls of one repetition with more than limit tokens, prompt and output together.
func (p *Plan) LongerThan(limit int) int {
	n := 0
	for i, kept := range p.kept {
		if c := &p.Workload.Calls[i]; kept && int(c.Input)+int(c.Output) > limit {
			n++
		}
	}
	return n
}

// Unserved returns a recorded model that is not among the names, or "".
func (p *Plan) Unserved(names []string) string {
	for i, kept := range p.kept {
		if model := p.Workload.Calls[i].Turn.Model; kept && !slices.Contains(names, model) {
			return model
		}
	}
	return ""
}
