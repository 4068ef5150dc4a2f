package replay

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Row is what is kept of an outcome.
type Row struct {
	report.Request
	// Planned is trace.NoTime without a plan; Ready and Due as in plan.Send.
	Planned, Ready, Due, Connected time.Duration
	// Held tells that it waited for others to end, Cancelled that the client cancelled it as recorded.
	Held, Cancelled bool
}

// Result is what a replay measured.
type Result struct {
	Plan *plan.Plan
	// Rows are the requests that were sent, in order of their end.
	Rows []Row
	// Failed counts those that were not answered whole.
	Failed int
	// Window is what is measured; Gaps are those of requests that were sent in it.
	Window report.Window
	Gaps   *report.Gaps
	// End is when the last request had ended, CPU the processor time that the client used until then.
	End, CPU time.Duration
	// Stopped says why the plan was not sent to its end; "" if it was. Interrupted tells that the user stopped it, Timed that
	// it had been asked for no longer (Options.Duration).
	Stopped            string
	Interrupted, Timed bool
	// Dropped are the fields that a server refused.
	Dropped []string

	allGaps          *report.Gaps // also of requests outside of the window, while a steady one is looked for
	servers          int
	failures         []report.Failure
	prompts, outputs lengths
	events, tokens   int64
	streamed, whole  int64
	resent, retries  int64
	cancelled        int64
	tooManyHits      int64
	unsteady         bool // no program began after another had ended, so that the whole is measured
}

// lengths adds up how far reported token counts are from recorded ones.
type lengths struct{ requests, recorded, reported, off int64 }

func (l *lengths) add(recorded, reported int32) {
	if reported == trace.Unknown {
		return
	}
	l.requests++
	l.recorded += int64(recorded)
	l.reported += int64(reported)
	l.off += int64(max(recorded-reported, reported-recorded))
}

func (l *lengths) report() report.Lengths {
	lengths := report.Lengths{Requests: l.requests, Recorded: l.recorded, Reported: l.reported}
	if l.recorded > 0 {
		lengths.Off = report.Known(l.share())
	}
	return lengths
}

func (l *lengths) share() float64 {
	if l.recorded == 0 {
		return 0
	}
	return float64(l.off) / float64(l.recorded)
}

func newResult(p *plan.Plan, servers int, window report.Window) *Result {
	return &Result{Plan: p, Window: window, Gaps: new(report.Gaps), servers: servers}
}

// add keeps an outcome.
func (r *Result) add(o *Outcome) {
	a := o.Answer
	c := &r.Plan.Workload.Calls[o.Call]
	row := Row{Planned: o.Planned, Ready: o.Ready, Due: o.Due, Connected: a.Connected, Held: o.Held, Cancelled: a.Cancelled,
		Request: report.Request{Turn: o.Call, Program: c.Program, Copy: o.Copy, Session: c.Session, Worker: -1,
			Status: status(a), Retries: uint8(min(o.Retries, 255)), Arrival: a.Sent, Admitted: report.None,
			FirstToken: a.FirstToken, End: a.LastToken, Input: c.Input, Output: a.Output(), Hit: a.Cached, Computed: trace.Unknown}}
	if r.servers > 1 {
		row.Worker = int32(o.Server)
	}
	if row.End == report.None || row.Status != report.Completed {
		row.End = a.End
	}
	if a.Prompt != trace.Unknown {
		row.Input = a.Prompt
	}
	if row.Hit > row.Input {
		row.Hit = row.Input
		r.tooManyHits++
	}
	r.Rows = append(r.Rows, row)
	if a.Connections > 1 {
		r.resent++
	}
	r.retries += int64(o.Retries)
	if a.Err != nil {
		if a.Err.Kind != client.FailStopped {
			r.Failed++
		}
		r.fail(a)
		return
	}
	r.complete(a, c)
}

// complete counts an answer that is whole.
func (r *Result) complete(a *client.Answer, c *trace.Call) {
	if a.Cancelled { // before the server told what it counted
		r.cancelled++
	}
	r.prompts.add(c.Input, a.Prompt)
	r.outputs.add(max(c.Output, 1), a.Completion)
	if a.Whole {
		r.whole++
	} else if r.streamed++; a.Completion != trace.Unknown {
		r.events += int64(a.Events)
		r.tokens += int64(a.Completion)
	}
	measured := r.Window.Contains(a.Sent)
	for _, gap := range a.Gaps {
		if measured {
			r.Gaps.Add(gap, 1)
		}
		if r.allGaps != nil {
			r.allGaps.Add(gap, 1)
		}
	}
}

// status is how the report counts an answer.
func status(a *client.Answer) report.Status {
	switch {
	case a.Err == nil:
		return report.Completed
	case a.Err.Kind == client.FailStopped:
		return report.Unfinished
	case a.Err.Kind == client.FailContext, a.Err.Kind == client.FailStatus && a.Status < http.StatusInternalServerError:
		return report.Rejected
	}
	return report.Failed
}

// fail counts a failure by its kind, and by status.
func (r *Result) fail(a *client.Answer) {
	kind := string(a.Err.Kind)
	if a.Err.Kind == client.FailStatus {
		kind = fmt.Sprintf("%s %d", kind, a.Status)
	}
	for i := range r.failures {
		if r.failures[i].Kind == kind {
			r.failures[i].Count++
			return
		}
	}
	r.failures = append(r.failures, report.Failure{Kind: kind, Count: 1, Example: a.Err.Text})
}

// finish closes the result.
func (r *Result) finish(end, cpu time.Duration) {
	r.End, r.CPU = end, cpu
	if r.allGaps != nil && r.Window.From >= min(r.Window.To, end) {
		r.Window, r.Gaps, r.unsteady = report.Window{}, r.allGaps, true
	}
	if r.Window.To > end {
		r.Window.To = max(end, r.Window.From)
	}
	slices.SortStableFunc(r.failures, func(a, b report.Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind))
	})
}

// Unsent is the number of planned requests that were never sent.
func (r *Result) Unsent() int { return r.Plan.Calls - len(r.Rows) }

// programs sums rows up by program.
func (r *Result) programs() []report.Program {
	type key struct {
		program int32
		copy    uint32
	}
	index := map[key]int{}
	var list []report.Program
	var done []int
	for i := range r.Rows {
		row := &r.Rows[i]
		k := key{row.Program, row.Copy}
		at, ok := index[k]
		if !ok {
			at = len(list)
			index[k] = at
			list = append(list, report.Program{Index: row.Program, Copy: row.Copy, First: row.Arrival, Last: row.End,
				Tool: report.None, Human: report.None, Paused: report.None, Queued: report.None})
			done = append(done, 0)
		}
		p := &list[at]
		p.First, p.Last = min(p.First, row.Arrival), max(p.Last, row.End)
		p.Model += row.End - row.Arrival
		if row.Status == report.Completed {
			done[at]++
		}
	}
	for i := range list {
		list[i].Completed = done[i] == r.Plan.CallsOf(list[i].Index)
		list[i].Partial = r.Plan.Cut(list[i].Index)
	}
	slices.SortStableFunc(list, func(a, b report.Program) int {
		return cmp.Or(cmp.Compare(a.Copy, b.Copy), cmp.Compare(a.Index, b.Index))
	})
	return list
}
