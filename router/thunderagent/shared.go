package thunderagent

import (
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// footprint counts the distinct prompt blocks of a worker's programs, to tell what sharing saves. A block costs what its
// dearest holder pays: as a reasoning token, or weighted as an acting one.
type footprint struct {
	nodes map[trace.Key][]holders // sorted by to
	held  [2]int64                // tokens of all shared prompts, reasoning and acting, the latter weighted program by program
	// Distinct blocks that a program of the dearer kind holds, and the others.
	dear, cheap int64
}

// holders are the programs that hold a node's blocks before to; by kind, reasoning and acting.
type holders struct {
	to       int32
	programs [2]int32
}

const (
	reasoningKind = iota
	actingKind
)

// add adds the prompt of a program, or with sign -1 takes it off.
func (f *footprint) add(s *Settings, e *entry, sign int64) {
	if f.nodes == nil {
		f.nodes = make(map[trace.Key][]holders)
	}
	kind, tokens := reasoningKind, e.blocks*s.BlockSize
	if e.acting {
		kind, tokens = actingKind, share(tokens, s.ActingTokenWeight)
	}
	f.held[kind] += sign * tokens
	for _, span := range e.path {
		if int64(span.From) >= e.blocks {
			break
		}
		to := int32(min(int64(span.To), e.blocks))
		before := f.nodes[span.Key]
		f.count(s, before, span.From, -1)
		after := change(before, to, kind, int32(sign))
		f.count(s, after, span.From, +1)
		if len(after) == 0 {
			delete(f.nodes, span.Key)
		} else {
			f.nodes[span.Key] = after
		}
	}
}

// count adds the distinct blocks of one node that begins at from.
func (f *footprint) count(s *Settings, node []holders, from int32, sign int64) {
	reach := [2]int32{from, from}
	for _, h := range node {
		for kind, n := range h.programs {
			if n > 0 {
				reach[kind] = h.to
			}
		}
	}
	dear := reach[reasoningKind]
	if s.ActingTokenWeight > 1 {
		dear = reach[actingKind]
	}
	f.dear += sign * int64(dear-from)
	f.cheap += sign * int64(max(reach[reasoningKind], reach[actingKind])-dear)
}

// change adds n programs of a kind that hold the node's blocks before to.
func change(node []holders, to int32, kind int, n int32) []holders {
	i, found := slices.BinarySearchFunc(node, to, func(h holders, to int32) int { return int(h.to - to) })
	if !found {
		node = slices.Insert(node, i, holders{to: to})
	}
	if node[i].programs[kind] += n; node[i].programs == [2]int32{} {
		node = slices.Delete(node, i, i+1)
	}
	return node
}

// saved returns the tokens that are charged more than once.
func (f *footprint) saved(s *Settings) int64 {
	dear, cheap := f.dear*s.BlockSize, f.cheap*s.BlockSize
	if s.ActingTokenWeight > 1 {
		dear = share(dear, s.ActingTokenWeight)
	} else {
		cheap = share(cheap, s.ActingTokenWeight)
	}
	return f.held[reasoningKind] + f.held[actingKind] - dear - cheap
}
