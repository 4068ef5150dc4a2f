package engine

import (
	"cmp"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// SGLang sorts at most so many waiting requests, and lets those wait that have at most inBatch cached tokens but share as
// many with one before them: when that one is computed, they find them (managers/schedule_policy.py).
const (
	maxSorted = 128
	inBatch   = 32
)

// queue sorts waiting requests by their cached prefixes, longest first (schedule_policy lpm). Its slices are reused.
type queue struct {
	requests []queued
	seen     map[trace.Key]int32 // up to which block of a node of the prefix tree an earlier request reaches
}

// queued is a waiting request, its cached blocks, and whether it is to wait for one like it.
type queued struct {
	*Request
	hits int32
	late bool
}

// sort sorts the waiting requests; equal ones keep their order. It does nothing when there are too many.
func (q *queue) sort(g *sglang) {
	if g.waiting.size > maxSorted {
		return
	}
	if q.seen == nil {
		q.seen = map[trace.Key]int32{}
	}
	clear(q.seen)
	q.requests = q.requests[:0]
	size := int32(g.kv.BlockSize)
	for r := g.waiting.head; r != nil; r = r.next {
		limit := (r.target - 1) / size
		hits := g.tree.Match(&r.table, limit)
		late := hits*size <= inBatch && q.shared(r.Path, limit)*size >= inBatch
		if hits*size <= inBatch && !late {
			q.see(r.Path, limit)
		}
		q.requests = append(q.requests, queued{r, hits, late})
	}
	slices.SortStableFunc(q.requests, func(a, b queued) int {
		switch {
		case a.late != b.late && a.late:
			return 1
		case a.late != b.late:
			return -1
		case a.late:
			return 0
		}
		return cmp.Compare(b.hits, a.hits)
	})
	g.waiting = list{}
	for _, r := range q.requests {
		g.waiting.pushBack(r.Request)
	}
}

// shared is the number of leading blocks of a path, at most limit, that an earlier request has.
func (q *queue) shared(path []trace.Span, limit int32) int32 {
	at := int32(0)
	for i := range path {
		s := &path[i]
		to := min(s.To, limit, q.seen[s.Key])
		if to <= at {
			break
		}
		if at = to; at < s.To {
			break
		}
	}
	return at
}

func (q *queue) see(path []trace.Span, limit int32) {
	for i := range path {
		if s := &path[i]; s.From < limit {
			q.seen[s.Key] = max(q.seen[s.Key], min(s.To, limit))
		}
	}
}
