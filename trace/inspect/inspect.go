// Package inspect sums up what a trace holds: its sessions and turns, their tokens and what a cache could reuse of them,
// the waits between turns, how much runs at a time, and the KV that this needs.
package inspect

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Schema names the JSON form of a Summary.
const Schema = "agentsim.inspect.v1"

// Summary is what a trace holds. A figure that the trace does not tell is absent.
type Summary struct {
	Schema string `json:"schema"`
	Format string `json:"format"`
	// SharedClock tells that times of all calls can be compared. Where they cannot, there is nothing over time.
	SharedClock bool  `json:"shared_clock"`
	Programs    int64 `json:"programs"`
	Sessions    int64 `json:"sessions"`
	Subagents   int64 `json:"subagents"`
	Turns       int64 `json:"turns"`
	// SpanS is from the first start to the last end; without a shared clock, of the longest program.
	SpanS report.Figure `json:"span_s,omitzero"`
	// Untimed counts turns that do not tell their start, Endless those that do not tell their end. The first are taken to
	// start as soon as what they wait for allows, the others to end with their first token.
	Untimed int64 `json:"untimed"`
	Endless int64 `json:"endless"`
	// Filled counts turns with a start or an end that a rule filled.
	Filled int64 `json:"times_filled"`
	// Cancelled and Failed count turns that did not complete.
	Cancelled int64 `json:"cancelled"`
	Failed    int64 `json:"failed"`

	Models  []Count `json:"models"`
	Shape   Shape   `json:"shape"`
	Tokens  Tokens  `json:"tokens"`
	Reuse   Reuse   `json:"reuse"`
	Waits   Waits   `json:"waits"`
	Tools   []Tool  `json:"tools"`
	Roles   []Role  `json:"roles"`
	KV      KV      `json:"kv"`
	Largest []Large `json:"largest"`
	// OverTime is absent without a shared clock.
	OverTime *OverTime `json:"over_time,omitempty"`
}

// Count is how many turns have a name.
type Count struct {
	Name  string `json:"name"`
	Turns int64  `json:"turns"`
}

// Tokens are sums over all turns.
type Tokens struct {
	Input int64 `json:"input"`
	// Cached is what the recorded server took from its cache, of the CachedOf prompt tokens of turns that tell it.
	Cached   int64 `json:"cached"`
	CachedOf int64 `json:"cached_of"`
	Output   int64 `json:"output"`
	// Reasoning is part of Output, where told.
	Reasoning int64 `json:"reasoning"`
	// History is prompt tokens of sessions that began before the capture did, computed before it.
	History int64 `json:"history"`
}

// trail is a workload and when its calls ran.
type trail struct {
	w     *trace.Workload
	spans []span
	// untimed, endless and filled count as in Summary.
	untimed, endless, filled int64
	// byStart has the indices of the calls in order of start, those of one program together when there is no shared clock.
	byStart []int32
	parents []int32 // of sessions
}

// span is when a call ran, since the capture's time zero.
type span struct{ start, end time.Duration }

// Summarise sums up a linked capture. Pool is the KV tokens that one worker has room for; 0 is not known. Errors are those
// of compiling the capture, and of a context that ends.
func Summarise(ctx context.Context, c *trace.Capture, pool int64) (*Summary, error) {
	bare, err := c.Compile(trace.OutputsNone)
	if err != nil {
		return nil, err
	}
	t := newTrail(bare)
	s := &Summary{Schema: Schema, Format: c.Format, SharedClock: t.shared(), Untimed: t.untimed, Endless: t.endless, Filled: t.filled}
	s.Reuse.Prompts = t.infinite()
	bare, t.w = nil, nil // let go of the tree
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.w, err = c.Compile(trace.OutputsInferred); err != nil {
		return nil, err
	}
	s.Reuse.Outputs = t.infinite()
	s.Reuse.OutputTokens = OutputTokens(t.w.OutputTokens)
	s.count(t)
	s.Shape, s.Waits = t.shape(), t.waits()
	s.Tools, s.Roles = t.tools(), t.roles()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var needed steps
	if s.KV, needed = t.kv(pool); s.SharedClock {
		s.OverTime = t.overTime(needed, pool)
	}
	s.Largest = t.largest()
	return s, nil
}

func newTrail(w *trace.Workload) *trail {
	t := &trail{w: w, parents: w.Parents()}
	t.time()
	t.byStart = make([]int32, len(w.Calls))
	for i := range t.byStart {
		t.byStart[i] = int32(i)
	}
	slices.SortFunc(t.byStart, t.compareStarts)
	return t
}

// compareStarts orders calls by start, and by program before where programs have no clock in common.
func (t *trail) compareStarts(a, b int32) int {
	return cmp.Or(cmp.Compare(t.group(a), t.group(b)), cmp.Compare(t.spans[a].start, t.spans[b].start), cmp.Compare(a, b))
}

// shared tells that the times of all calls can be compared.
func (t *trail) shared() bool { return t.w.Capture.SharedClock || len(t.w.Programs) == 1 }

// group is the program of a call where programs have no clock in common; calls of one group can be ordered by time.
func (t *trail) group(call int32) int32 {
	if t.shared() {
		return 0
	}
	return t.w.Calls[call].Program
}

// time finds out when calls ran, in the order of their dependencies.
func (t *trail) time() {
	w := t.w
	t.spans = make([]span, len(w.Calls))
	waits := make([]int32, len(w.Calls))
	ready := make([]int32, 0, len(w.Calls))
	for i := range w.Calls {
		t.spans[i].start = w.Programs[w.Calls[i].Program].Start
		if waits[i] = w.Calls[i].Waits; waits[i] == 0 {
			ready = append(ready, int32(i))
		}
	}
	for len(ready) > 0 {
		i := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		c, at := &w.Calls[i], &t.spans[i]
		if c.Turn.Start == trace.NoTime {
			t.untimed++
		} else {
			at.start = c.Turn.Start
		}
		at.end = at.start
		switch {
		case c.Turn.End != trace.NoTime && c.Turn.Start != trace.NoTime:
			at.end = max(c.Turn.End, at.start)
		case c.Turn.TTFT != trace.NoTime:
			at.end = after(at.end, c.Turn.TTFT)
		}
		if c.Turn.End == trace.NoTime {
			t.endless++
		}
		if c.Turn.Inferred&(trace.FieldStart|trace.FieldEnd) != 0 {
			t.filled++
		}
		for _, e := range w.Successors(c) {
			from := at.end
			if e.OnDispatch {
				from = at.start
			}
			t.spans[e.To].start = max(t.spans[e.To].start, after(from, e.Delay))
			if waits[e.To]--; waits[e.To] == 0 {
				ready = append(ready, e.To)
			}
		}
	}
}

// never is later than anything, and far from the largest duration.
const never = time.Duration(math.MaxInt64 / 4)

// after adds a delay to a time; hostile ones add up to never.
func after(at, delay time.Duration) time.Duration { return max(at, at+min(delay, never-at)) }

// count fills the sums.
func (s *Summary) count(t *trail) {
	models := map[string]int64{}
	seen := make([]bool, len(t.w.Sessions))
	s.Programs, s.Turns = int64(len(t.w.Programs)), int64(len(t.w.Calls))
	var span time.Duration
	for i := range t.w.Calls {
		c := &t.w.Calls[i]
		models[c.Turn.Model]++
		if !seen[c.Session] {
			seen[c.Session] = true
			s.Sessions++
			if t.parents[c.Session] != c.Session {
				s.Subagents++
			}
		}
		s.Tokens.Input += int64(c.Input)
		s.Tokens.Output += int64(c.Output)
		s.Tokens.History += int64(c.Cut)
		s.Tokens.Reasoning += int64(max(c.Turn.Reasoning, 0))
		if c.Turn.Cached != trace.Unknown {
			s.Tokens.Cached += int64(c.Turn.Cached)
			s.Tokens.CachedOf += int64(c.Input)
		}
		switch c.Turn.Status {
		case "", "ok":
		case trace.Cancelled:
			s.Cancelled++
		default:
			s.Failed++
		}
		first := t.w.Programs[c.Program].Start
		if s.SharedClock {
			first = t.spans[t.byStart[0]].start
		}
		span = max(span, t.spans[i].end-first)
	}
	s.SpanS = report.Seconds(span)
	s.Reuse.Recorded = share(s.Tokens.Cached, s.Tokens.CachedOf)
	s.Models = []Count{}
	for name, turns := range models {
		s.Models = append(s.Models, Count{name, turns})
	}
	slices.SortFunc(s.Models, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Turns, a.Turns), cmp.Compare(a.Name, b.Name))
	})
}
