package sim

import (
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Recorded builds the report of what the capture itself measured, as a baseline: times of first and last tokens, and
// cached tokens, where it tells them.
func Recorded(w *trace.Workload) *report.Run {
	in := report.Input{Name: "recorded", Workload: describe(w)}
	for i := range w.Programs {
		p := &w.Programs[i]
		rec := report.Program{Index: int32(i), First: report.None, Last: report.None, Completed: true,
			Model: report.None, Tool: report.None, Human: report.None, Paused: report.None, Queued: report.None}
		for j := p.First; j < p.Last; j++ {
			q := recordedRequest(w, j)
			rec.Completed = rec.Completed && q.Status == report.Completed
			if q.Arrival != report.None && (rec.First == report.None || q.Arrival < rec.First) {
				rec.First = q.Arrival
			}
			rec.Last = max(rec.Last, q.End)
			in.Requests = append(in.Requests, q)
		}
		in.Programs = append(in.Programs, rec)
	}
	return report.Build(in)
}

func recordedRequest(w *trace.Workload, i int32) report.Request {
	c := &w.Calls[i]
	t := c.Turn
	q := report.Request{Turn: i, Program: c.Program, Session: c.Session, Worker: -1, Status: report.Completed,
		Arrival: report.None, Admitted: report.None, FirstToken: report.None, End: report.None,
		Held: report.None, RouterQueued: report.None, Input: c.Input, Output: c.Output, Hit: t.Cached, Computed: -1}
	if t.Start != trace.NoTime {
		q.Arrival = t.Start
		if t.TTFT != trace.NoTime {
			q.FirstToken = t.Start + t.TTFT
		}
		if t.End != trace.NoTime {
			q.End = t.End
		}
	}
	if t.Status != "" && t.Status != "ok" {
		q.Status = report.Failed
	}
	return q
}
