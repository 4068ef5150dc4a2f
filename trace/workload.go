package trace

import (
	"slices"
	"time"
)

// Workload is the compiled form of a capture: calls with their dependencies and their paths in one prefix tree. It
// is immutable, so any number of runs share it.
type Workload struct {
	Capture  *Capture
	Programs []Program
	Sessions []*Session
	// Calls are ordered by program, and within a program so that a session's calls stand in order of start.
	Calls []Call

	edges []Edge
	nodes []node
	// OutputTokens counts generated tokens whose KV has a known, an inferred or no identity.
	OutputTokens OutputTokens
	// ForkTokens bounds from above the prompt tokens that may be shared beyond what the hashes show: inside the
	// block after each fork nothing is taken as shared.
	ForkTokens int64
}

// OutputTokens counts generated tokens by what is known of the identity of their KV.
type OutputTokens struct{ Known, Inferred, Unknown int64 }

// Program is a root session with all sessions that descend from it.
type Program struct {
	// First and Last delimit its calls: Workload.Calls[First:Last].
	First, Last int32
	// Start is the recorded start of its earliest call, since the capture's time zero.
	Start time.Duration
}

// Call is one LLM call of a workload.
type Call struct {
	Turn             *Turn
	Program, Session int32
	// Input and Output are token counts.
	Input, Output int32
	// Prompt and End are the tree nodes in which the prompt's Input tokens and the Computed tokens end.
	Prompt, End NodeID
	// Identified is the token up to which the path has an identity that other calls can share.
	Identified int32
	// Cut is the number of leading prompt tokens that were computed before the capture began.
	Cut int32
	// Waits is the number of edges into the call.
	Waits int32
	// Offset is the recorded start since the program's start; NoTime when only dependencies say when.
	Offset time.Duration

	firstEdge, lastEdge int32
}

// Edge leads from a call to one that waits for it.
type Edge struct {
	// To indexes Workload.Calls.
	To int32
	// Delay is the recorded time from the end (or dispatch) of the one call to the start of the other.
	Delay      time.Duration
	OnDispatch bool
}

// Computed is the number of tokens whose KV the call computes or reuses: all but the last output token, which no
// step processes.
func (c *Call) Computed() int32 { return c.Input + max(c.Output-1, 0) }

// node is a run of tokens of the prefix tree from token start on. Its children begin at its end or inside it, and a
// prompt may end inside it, so what lies in it of a path follows from where the path ends.
type node struct {
	parent NodeID
	start  int32
	// sharedTo is the token up to which calls of two or more programs run through the node; start if none.
	sharedTo int32
}

// Successors are the edges out of the call.
func (w *Workload) Successors(c *Call) []Edge { return w.edges[c.firstEdge:c.lastEdge] }

// Nodes is the number of nodes of the prefix tree, the root included. Node ids are below it.
func (w *Workload) Nodes() int { return len(w.nodes) }

// Above returns the node above a node, and the token at which the node begins; the root is above itself.
func (w *Workload) Above(n NodeID) (parent NodeID, start int32) {
	return w.nodes[n].parent, w.nodes[n].start
}

// Parents returns the index of each session's parent, or its own where that is not in the workload.
func (w *Workload) Parents() []int32 {
	index := make(map[string]int32, len(w.Sessions))
	for i, s := range w.Sessions {
		index[s.ID] = int32(i)
	}
	list := make([]int32, len(w.Sessions))
	for i, s := range w.Sessions {
		list[i] = int32(i)
		if p, ok := index[s.Parent]; ok && s.Parent != "" {
			list[i] = p
		}
	}
	return list
}

// Within tells whether node n lies in the subtree of node under.
func (w *Workload) Within(n, under NodeID) bool {
	for n > 0 && n != under {
		n = w.nodes[n].parent
	}
	return n == under
}

// Path appends to buf the spans of KV blocks of the first tokens tokens on the way to node end, from the root down.
// Blocks of blockSize tokens belong to the node in which they become full; nodes without a full block are left out.
// Copy numbers the run of the program; tokens that two or more programs share keep copy 0.
func (w *Workload) Path(end NodeID, tokens int32, blockSize int, copy uint32, buf []Span) []Span {
	size := int32(blockSize)
	first := len(buf)
	for n := end; n > 0; n = w.nodes[n].parent {
		nd := &w.nodes[n]
		from, to := nd.start/size, tokens/size
		if tokens = nd.start; from == to {
			continue
		}
		shared := min(to, nd.sharedTo/size)
		if copy == 0 {
			shared = to
		}
		if shared < to {
			buf = append(buf, Span{Key: MakeKey(n, copy), From: shared, To: to})
		}
		if from < shared {
			buf = append(buf, Span{Key: MakeKey(n, 0), From: from, To: shared})
		}
	}
	slices.Reverse(buf[first:])
	return buf
}

// OutputBlocks counts the KV blocks of blockSize tokens that hold generated tokens, by what is known of their
// identity.
func (w *Workload) OutputBlocks(blockSize int) OutputTokens {
	size := int32(blockSize)
	var blocks OutputTokens
	for i := range w.Calls {
		c := &w.Calls[i]
		end := c.Computed()
		identified := int64(max(c.Identified, c.Input)/size - c.Input/size)
		if c.Turn.knownBlocks(int32(max(w.Capture.BlockSize, 1))) > 0 {
			blocks.Known += identified
		} else {
			blocks.Inferred += identified
		}
		blocks.Unknown += int64(end/size-c.Input/size) - identified
	}
	return blocks
}
