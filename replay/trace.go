package replay

import (
	"cmp"
	"iter"
	"slices"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// InOrder returns the rows in the order in which they were sent, and their requests.
func (r *Result) InOrder() ([]Row, []report.Request) {
	rows := slices.Clone(r.Rows)
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.Copy, b.Copy), cmp.Compare(a.Turn, b.Turn))
	})
	requests := make([]report.Request, len(rows))
	for i := range rows {
		requests[i] = rows[i].Request
	}
	return rows, requests
}

// Dated adds to the records of a replay's requests what a replay knows more of, and moves them to the time at which it
// was: start is its beginning as a Unix time in ms. Records stand in the order of rows.
func (r *Result) Dated(rows []Row, records iter.Seq[*trace.Record], start int64) iter.Seq[*trace.Record] {
	shift := start - r.Plan.Workload.Capture.Epoch
	return func(yield func(*trace.Record) bool) {
		i := 0
		for rec := range records {
			row := &rows[i]
			i++
			for _, at := range []*int64{rec.EventTimeMs, rec.Request.ReceivedMs} {
				*at += shift
			}
			x := rec.Request.Agentsim
			x.PlannedNs, x.ReadyNs, x.DueNs = nanoseconds(row.Planned), nanoseconds(row.Ready), nanoseconds(row.Due)
			if row.Cancelled {
				rec.Request.FinishReason = &trace.FinishReason{Backend: trace.Cancelled}
			}
			if !yield(rec) {
				return
			}
		}
	}
}
