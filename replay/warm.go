package replay

import (
	"cmp"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// warmHit is as many tokens as any request may find: a chat template.
const warmHit = 64

// warmPrograms are how many programs are looked at: the prompt of the very first request may be too short to find anything.
const warmPrograms = 8

// warm is the prompt tokens that the first request of a program found in the cache and that no request of the replay can have
// put there: none that was sent before its answer began shares them. It is 0 where a template, of overhead tokens, explains
// them.
func (r *Result) warm(overhead int) int {
	rows := make([]*Row, len(r.Rows))
	for i := range rows {
		rows[i] = &r.Rows[i]
	}
	slices.SortStableFunc(rows, func(a, b *Row) int { return cmp.Compare(a.Arrival, b.Arrival) })
	most, seen := 0, map[int32]bool{}
	for _, row := range rows {
		if len(seen) == warmPrograms {
			break
		}
		if !seen[row.Program] {
			seen[row.Program] = true
			most = max(most, r.unexplained(row, rows))
		}
	}
	if most > warmHit+overhead {
		return most
	}
	return 0
}

// unexplained is the tokens that a request found in the cache beyond those that it shares with another of rows, which are in
// order of arrival, that was sent before its answer began.
func (r *Result) unexplained(row *Row, rows []*Row) int {
	begun := row.FirstToken
	if begun < 0 {
		begun = row.End
	}
	own, shared := r.path(row), int32(0)
	for _, other := range rows {
		if other.Arrival > begun {
			break
		}
		if other != row {
			shared = max(shared, common(own, r.path(other)))
		}
	}
	return int(row.Hit - shared)
}

// path is where the prompt of a request lies in the prefix tree, in tokens.
func (r *Result) path(row *Row) []trace.Span {
	w := r.Plan.Workload
	c := &w.Calls[row.Turn]
	return w.Path(c.Prompt, c.Input, 1, row.Copy, nil)
}

// common is how many tokens two paths share.
func common(a, b []trace.Span) int32 {
	n := int32(0)
	for i := range min(len(a), len(b)) {
		if a[i].Key != b[i].Key {
			break
		}
		if n = min(a[i].To, b[i].To); a[i].To != b[i].To {
			break
		}
	}
	return n
}
