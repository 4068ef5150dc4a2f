package engine

import (
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// History remembers how far which workers have ever computed each tree node, to tell why tokens are computed again.
// The engines of a run share it. A nil History remembers nothing.
type History struct {
	first  [][]reach // by node, for copy 0
	copies map[trace.Key][]reach
}

// reach is the block up to which a worker has computed a node.
type reach struct{ worker, to int32 }

// NewHistory returns the empty history of a run over a prefix tree of the given number of nodes.
func NewHistory(nodes int) *History {
	return &History{first: make([][]reach, nodes), copies: map[trace.Key][]reach{}}
}

func (h *History) reaches(key trace.Key) []reach {
	if key.Copy() > 0 {
		return h.copies[key]
	}
	return h.first[key.Node()]
}

// computed notes that a worker has computed the first blocks blocks of a path.
func (h *History) computed(worker int, path []trace.Span, blocks int32) {
	if h == nil {
		return
	}
	for i := len(path) - 1; i >= 0; i-- {
		key, to := path[i].Key, min(path[i].To, blocks)
		if to <= path[i].From {
			continue
		}
		reaches := h.reaches(key)
		k := slices.IndexFunc(reaches, func(r reach) bool { return int(r.worker) == worker })
		switch {
		case k < 0:
			reaches = append(reaches, reach{int32(worker), to})
		case reaches[k].to >= to:
			return // then it has computed all nodes above as well
		default:
			reaches[k].to = to
			continue
		}
		if key.Copy() > 0 {
			h.copies[key] = reaches
		} else {
			h.first[key.Node()] = reaches
		}
	}
}

// lost counts those of blocks [from, to) of a path that were computed before: by this worker, else by another.
func (h *History) lost(worker int, path []trace.Span, from, to int32) (here, elsewhere int32) {
	if h == nil {
		return 0, 0
	}
	for i := range path {
		s := &path[i]
		low, high := max(s.From, from), min(s.To, to)
		if low >= high {
			continue
		}
		own, other := low, low
		for _, r := range h.reaches(s.Key) {
			if int(r.worker) == worker {
				own = max(low, min(r.to, high))
			} else {
				other = max(other, min(r.to, high))
			}
		}
		here += own - low
		elsewhere += max(0, other-own)
	}
	return here, elsewhere
}
