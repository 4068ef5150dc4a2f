package inspect

import (
	"time"

	"github.com/agentsim/agentsim/trace/report"
)

// Waits are the times between the end of what a turn waits for and its start, in seconds, those of some length.
type Waits struct {
	// ToolS went to tools, HumanS to people, OtherS to what is not told: the harness, or either of them.
	ToolS  Wait `json:"tool_s"`
	HumanS Wait `json:"human_s"`
	OtherS Wait `json:"other_s"`
}

// Wait is the spread of waits of a kind, and their sum.
type Wait struct {
	Spread
	Total report.Figure `json:"total"`
}

func (t *trail) waits() Waits {
	var tool, human, other waitList
	for i := range t.w.Calls {
		g := t.w.Calls[i].Turn.Gap
		tool.add(g.Tool)
		human.add(g.Human)
		other.add(g.Other)
	}
	return Waits{tool.wait(), human.wait(), other.wait()}
}

type waitList struct {
	seconds []float64
	total   time.Duration
}

func (l *waitList) add(d time.Duration) {
	if d > 0 {
		l.seconds = append(l.seconds, d.Seconds())
		l.total += d
	}
}

func (l *waitList) wait() Wait { return Wait{newSpread(l.seconds), report.Seconds(l.total)} }
