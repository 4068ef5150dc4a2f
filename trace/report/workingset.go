package report

import (
	"cmp"
	"slices"
	"time"
)

// workingSet is the mean number of tokens in the contexts of a live program: see KV.WorkingSetTokens. A context lasts from
// the arrival of its request to that of the session's next one; a program lives while it has any.
func workingSet(requests []Request, window Window) Figure {
	var sorted []*Request
	for i := range requests {
		if r := &requests[i]; r.Arrival >= 0 && r.Status != Rejected {
			sorted = append(sorted, r)
		}
	}
	slices.SortFunc(sorted, func(a, b *Request) int {
		return cmp.Or(cmp.Compare(a.Program, b.Program), cmp.Compare(a.Copy, b.Copy), cmp.Compare(a.Session, b.Session),
			cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.Turn, b.Turn))
	})
	tokenSeconds, life := 0.0, time.Duration(0)
	var from, to time.Duration // of the program so far
	for i, r := range sorted {
		until := max(r.Arrival, r.End)
		sameProgram := i > 0 && sorted[i-1].Program == r.Program && sorted[i-1].Copy == r.Copy
		if sameProgram {
			from, to = min(from, r.Arrival), max(to, until)
		} else {
			life += window.overlap(from, to)
			from, to = r.Arrival, until
		}
		if i+1 < len(sorted) {
			if next := sorted[i+1]; next.Program == r.Program && next.Copy == r.Copy && next.Session == r.Session {
				until = max(until, next.Arrival)
			}
		}
		tokenSeconds += window.overlap(r.Arrival, until).Seconds() * (float64(r.Input) + float64(r.Output))
	}
	life += window.overlap(from, to)
	return ratio(tokenSeconds, life.Seconds())
}
