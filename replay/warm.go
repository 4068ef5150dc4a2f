package replay

import (
	"github.com/agentsim/agentsim/trace"
)

// warmHit is as many tokens as the very first request may find: a chat template.
const warmHit = 64

// warm is the prompt tokens that the first request found in the cache and that no request of the replay can have put there:
// none that was sent before its answer began shares them. It is 0 where a template, of overhead tokens, explains them.
func (r *Result) warm(overhead int) int {
	if len(r.Rows) == 0 {
		return 0
	}
	first := &r.Rows[0]
	for i := range r.Rows {
		if r.Rows[i].Arrival < first.Arrival {
			first = &r.Rows[i]
		}
	}
	begun := first.FirstToken
	if begun < 0 {
		begun = first.End
	}
	own, shared := r.path(first), int32(0)
	for i := range r.Rows {
		if row := &r.Rows[i]; row != first && row.Arrival <= begun {
			shared = max(shared, common(own, r.path(row)))
		}
	}
	if n := int(first.Hit - shared); n > warmHit+overhead {
		return n
	}
	return 0
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
