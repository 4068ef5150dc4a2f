package engine

import "github.com/agentsim/agentsim/trace"

// History remembers which workers have ever computed which tree nodes, to tell why tokens are computed again. The
// engines of a run share it. It is exact to the node: a node counts once all its blocks have been computed.
type History struct {
	words  int                    // per node
	shared []uint64               // bits by node and worker, for copy 0
	copies map[trace.Key][]uint64 // the same for repeated runs of programs
}

// NewHistory returns the empty history of a run over a prefix tree of the given number of nodes.
func NewHistory(nodes, workers int) *History {
	words := (workers + 63) / 64
	return &History{words: words, shared: make([]uint64, nodes*words), copies: map[trace.Key][]uint64{}}
}

func (h *History) bits(key trace.Key) []uint64 {
	if key.Copy() > 0 {
		return h.copies[key]
	}
	at := int(key.Node()) * h.words
	return h.shared[at : at+h.words]
}

// computed notes that a worker has computed the first blocks blocks of a path.
func (h *History) computed(worker int, path []trace.Span, blocks int32) {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i].To > blocks {
			continue
		}
		key := path[i].Key
		b := h.bits(key)
		if b == nil {
			b = make([]uint64, h.words)
			h.copies[key] = b
		}
		if b[worker/64]&(1<<(worker%64)) != 0 {
			return // then it has computed all nodes above as well
		}
		b[worker/64] |= 1 << (worker % 64)
	}
}

// lost counts those of blocks [from, to) of a path that were computed before: by this worker, else by another.
func (h *History) lost(worker int, path []trace.Span, from, to int32) (here, elsewhere int32) {
	for i := range path {
		s := &path[i]
		if s.To <= from || s.From >= to {
			continue
		}
		n := min(s.To, to) - max(s.From, from)
		own, other := false, false
		for w, word := range h.bits(s.Key) {
			if w == worker/64 {
				own = word&(1<<(worker%64)) != 0
			}
			other = other || word != 0
		}
		switch {
		case own:
			here += n
		case other:
			elsewhere += n
		}
	}
	return here, elsewhere
}
