package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Outputs selects which generated tokens later prompts are taken to share. No hash format records outputs, so this
// is inferred from what follows; the other modes are its bounds.
type Outputs uint8

// The modes of output identity.
const (
	// OutputsInferred takes a later prompt that extends a call's prompt by at least its output to contain that
	// output, less its reasoning tokens, and no further than what the recorded server found cached.
	OutputsInferred Outputs = iota
	// OutputsNone takes no generated token to be shared: a lower bound of reuse.
	OutputsNone
	// OutputsAll takes all tokens that a later prompt has in the place of the output to be that output: an upper
	// bound.
	OutputsAll
)

// ParseOutputs returns the mode of a name: "inferred", "none" or "all".
func ParseOutputs(name string) (Outputs, error) {
	switch name {
	case "inferred", "":
		return OutputsInferred, nil
	case "none":
		return OutputsNone, nil
	case "all":
		return OutputsAll, nil
	}
	return 0, fmt.Errorf("outputs %q: want inferred, none or all", name)
}

// maxLookahead bounds how many later turns of a session are tried as the one that continues a call.
const maxLookahead = 64

// maxTokens bounds a prompt or an output.
const maxTokens = 1 << 28

// Compile builds the workload of a linked capture. It is linear in calls, in new hashes, and in the forks that a
// path crosses. Errors name requests whose token counts make no sense.
func (c *Capture) Compile(outputs Outputs) (*Workload, error) {
	w := &Workload{Capture: c, Sessions: c.Sessions}
	if err := w.addCalls(); err != nil {
		return nil, err
	}
	if len(w.Calls) == 0 {
		return nil, errors.New("compiling the workload: the trace holds no LLM calls")
	}
	w.addEdges()
	b := builder{w: w, outputs: outputs, tree: newTree(c.BlockSize, len(w.Calls)),
		chains: make([]position, len(w.Calls)), placed: make([]bool, len(w.Calls)),
		prompts: make([]position, len(w.Calls)), ends: make([]position, len(w.Calls))}
	for i := range w.Calls {
		b.place(w.Calls[i].Turn)
	}
	b.findSpawned()
	for i := len(w.Calls) - 1; i >= 0; i-- {
		b.resolve(int32(i))
	}
	w.nodes, w.ForkTokens = b.tree.nodes(), b.tree.forks
	for i := range w.Calls {
		prompt, end := b.prompts[i], b.ends[i]
		w.Calls[i].Prompt, w.Calls[i].End = NodeID(b.tree.up(prompt, prompt.tokens).branch), NodeID(b.tree.up(end, end.tokens).branch)
	}
	w.markShared()
	w.markCuts()
	return w, nil
}

// addCalls groups sessions into programs, in order of appearance of their roots, and lists their calls.
func (w *Workload) addCalls() error {
	root, depth := w.families()
	members := make([][]int, len(w.Sessions))
	turns := 0
	for i, s := range w.Sessions {
		members[root[i]] = append(members[root[i]], i)
		turns += len(s.Turns)
	}
	w.Calls = make([]Call, 0, turns)
	for _, group := range members {
		// Parents come before their children, so that whatever continues a call has a greater index.
		slices.SortStableFunc(group, func(a, b int) int { return cmp.Compare(depth[a], depth[b]) })
		if err := w.addProgram(group); err != nil {
			return err
		}
	}
	return nil
}

// families returns, for each session, the session at the root of its program and how far below that it is.
func (w *Workload) families() (root, depth []int) {
	index := make(map[string]int, len(w.Sessions))
	for i, s := range w.Sessions {
		index[s.ID] = i
	}
	root, depth = make([]int, len(w.Sessions)), make([]int, len(w.Sessions))
	for i := range root {
		root[i] = -1
	}
	var path []int // from a session up to below one whose root is known
	for at := range w.Sessions {
		for path = path[:0]; root[at] < 0; {
			if p, ok := index[w.Sessions[at].Parent]; ok && p != at {
				path = append(path, at)
				at = p
			} else {
				root[at] = at
			}
		}
		for _, below := range slices.Backward(path) {
			root[below], depth[below] = root[at], depth[at]+1
			at = below
		}
	}
	return root, depth
}

// addProgram lists the calls of a program's sessions. Sessions without calls make no program.
func (w *Workload) addProgram(sessions []int) error {
	p := Program{First: int32(len(w.Calls)), Start: NoTime}
	for _, s := range sessions {
		for _, t := range w.Sessions[s].Turns {
			if t.Input <= 0 || t.Input > maxTokens || t.Output < 0 || t.Output > maxTokens {
				return fmt.Errorf("compiling request %q: %d prompt and %d output tokens, want 1 to %d and 0 to %d",
					t.ID, t.Input, t.Output, maxTokens, maxTokens)
			}
			t.call = int32(len(w.Calls))
			if t.Start != NoTime && (p.Start == NoTime || t.Start < p.Start) {
				p.Start = t.Start
			}
			w.Calls = append(w.Calls, Call{Turn: t, Program: int32(len(w.Programs)), Session: int32(s),
				Input: t.Input, Output: t.Output, Cut: t.Cut})
		}
	}
	p.Last = int32(len(w.Calls))
	if p.First == p.Last {
		return nil
	}
	if p.Start == NoTime {
		p.Start = 0
	}
	for i := p.First; i < p.Last; i++ {
		c := &w.Calls[i]
		c.Offset = c.Turn.Start
		if c.Offset != NoTime {
			c.Offset -= p.Start
		}
	}
	w.Programs = append(w.Programs, p)
	return nil
}

// addEdges turns each call's dependencies into edges out of the calls that it waits for. Dependencies on another
// program cannot be kept when programs are scheduled one by one; they order calls of one program only.
func (w *Workload) addEdges() {
	for i := range w.Calls {
		for _, d := range w.Calls[i].Turn.Deps {
			if w.Calls[d.Turn.call].Program == w.Calls[i].Program {
				w.Calls[i].Waits++
				w.Calls[d.Turn.call].lastEdge++ // a count, until the offsets are known
			}
		}
	}
	total := int32(0)
	for i := range w.Calls {
		c := &w.Calls[i]
		n := c.lastEdge
		c.firstEdge, c.lastEdge = total, total
		total += n
	}
	w.edges = make([]Edge, total)
	for i := range w.Calls {
		for _, d := range w.Calls[i].Turn.Deps {
			if from := &w.Calls[d.Turn.call]; from.Program == w.Calls[i].Program {
				w.edges[from.lastEdge] = Edge{To: int32(i), Delay: d.Delay, OnDispatch: d.OnDispatch}
				from.lastEdge++
			}
		}
	}
}

// builder finds the place of every prompt and output in the prefix tree.
type builder struct {
	w       *Workload
	outputs Outputs
	tree    *tree
	// chains are the ends of the full blocks of each call's prompt, or of prompt and output where the source
	// records output hashes.
	chains        []position
	placed        []bool
	prompts, ends []position
	spawned       []int32 // first call of the first session that a call spawned, or -1
	stack         []*Turn
}

// place adds the turn's chain of full blocks to the tree, after those that it is described by.
func (b *builder) place(t *Turn) {
	for b.stack = append(b.stack[:0], t); len(b.stack) > 0; {
		t := b.stack[len(b.stack)-1]
		if b.placed[t.call] {
			b.stack = b.stack[:len(b.stack)-1]
			continue
		}
		if t.Base != nil && !b.placed[t.Base.call] {
			b.stack = append(b.stack, t.Base)
			continue
		}
		b.placed[t.call] = true
		b.chains[t.call] = b.chain(t)
	}
}

// chain adds the full blocks of one turn whose base is in the tree.
func (b *builder) chain(t *Turn) position {
	p := b.tree.root(t.Session.Scope)
	size := b.tree.blockSize
	full := t.fullBlocks(size)
	if t.Base != nil && t.Shared > 0 {
		// The base's last hash may stand for a partial block; as a full block it is another one.
		shared := min(t.Shared, t.Base.fullBlocks(size), full)
		p = b.tree.up(b.chains[t.Base.call], shared*size)
		for i := shared; i < min(t.Shared, full); i++ {
			p = b.tree.extend(p, []uint64{t.Base.hashAt(i)})
		}
	}
	if own := full - t.Shared; own > 0 {
		p = b.tree.extend(p, t.Hashes[:own])
	}
	return b.tree.extend(p, t.OutputHashes[:t.knownBlocks(size)])
}

// fullBlocks is the number of the turn's hashes that stand for full blocks.
func (t *Turn) fullBlocks(size int32) int32 {
	return min(t.Shared+int32(len(t.Hashes)), t.Input/size)
}

// knownBlocks is the number of the turn's output hashes that stand for full blocks.
func (t *Turn) knownBlocks(size int32) int32 {
	n := (t.Input+t.Output)/size - t.Input/size
	if int(n) > len(t.OutputHashes) || t.fullBlocks(size) < t.Input/size {
		return 0
	}
	return n
}

// hashAt returns entry i of the turn's chain of prompt hashes.
func (t *Turn) hashAt(i int32) uint64 {
	for i < t.Shared {
		t = t.Base
	}
	return t.Hashes[i-t.Shared]
}

// Chain returns the turn's whole chain of prompt block hashes.
func (t *Turn) Chain() []uint64 {
	chain := make([]uint64, int(t.Shared)+len(t.Hashes))
	copy(chain[t.Shared:], t.Hashes)
	for n := t.Shared; n > 0; {
		t = t.Base
		if own := min(n, t.Shared+int32(len(t.Hashes))); own > t.Shared {
			copy(chain[t.Shared:own], t.Hashes)
		}
		n = min(n, t.Shared)
	}
	return chain
}

// findSpawned notes for each call the first call of the first session that it spawned.
func (b *builder) findSpawned() {
	b.spawned = make([]int32, len(b.w.Calls))
	for i := range b.spawned {
		b.spawned[i] = -1
	}
	for i := range b.w.Calls {
		for _, d := range b.w.Calls[i].Turn.Deps {
			if d.Kind == KindSpawn && b.spawned[d.Turn.call] < 0 {
				b.spawned[d.Turn.call] = int32(i)
			}
		}
	}
}

// resolve finds where the prompt and the output of call i end. Calls that continue it are resolved already.
func (b *builder) resolve(i int32) {
	c := &b.w.Calls[i]
	size := b.tree.blockSize
	fullEnd := c.Turn.fullBlocks(size) * size
	computed := c.Computed()
	identified := c.Input
	known := c.Turn.knownBlocks(size) > 0
	if known {
		identified = max(c.Input, min(computed, b.chains[i].tokens))
		b.prompts[i] = b.tree.up(b.chains[i], c.Input)
		b.ends[i] = b.tree.up(b.chains[i], identified)
	} else if next := b.continuation(i); next >= 0 {
		identified = b.sharedOutput(c, &b.w.Calls[next])
		b.prompts[i] = b.tree.up(b.prompts[next], c.Input)
		b.ends[i] = b.tree.up(b.prompts[next], identified)
	} else {
		b.prompts[i] = b.tree.up(b.chains[i], fullEnd)
		if length := c.Input - fullEnd; length > 0 {
			b.prompts[i] = b.promptTail(c.Turn, b.prompts[i], length)
		}
		b.ends[i] = b.prompts[i]
	}
	if rest := computed - identified; rest > 0 {
		b.ends[i] = position{b.tree.leaf(b.ends[i], rest), computed}
	}
	c.Identified = identified
	o := &b.w.OutputTokens
	if known {
		o.Known += int64(identified - c.Input)
	} else {
		o.Inferred += int64(identified - c.Input)
	}
	o.Unknown += int64(computed - identified)
}

// promptTail adds the part of a prompt behind its full blocks.
func (b *builder) promptTail(t *Turn, at position, length int32) position {
	size := b.tree.blockSize
	if n := t.Shared + int32(len(t.Hashes)); n > 0 && n > t.Input/size {
		return b.tree.tail(at, t.hashAt(n-1), length)
	}
	return position{b.tree.leaf(at, length), t.Input}
}

// continuation returns the call whose prompt continues call i: the earliest later one of its session whose full
// blocks extend its prompt and whose prompt has room for its output, else the first call of a session that it
// spawned, or -1. A prompt shorter than a block gives no evidence.
func (b *builder) continuation(i int32) int32 {
	c := &b.w.Calls[i]
	full := c.Turn.fullBlocks(b.tree.blockSize) * b.tree.blockSize
	if full == 0 || c.Input-full >= b.tree.blockSize {
		return -1
	}
	at := b.tree.up(b.chains[i], full)
	continues := func(j int32) bool {
		need := c.Input + c.Output
		if b.outputs == OutputsAll {
			need = c.Input + 1
		}
		next := &b.w.Calls[j]
		return next.Input >= need && b.mayContain(next.Turn, c.Turn) && b.tree.precedes(at, b.prompts[j])
	}
	for j := i + 1; j < int32(len(b.w.Calls)) && j <= i+maxLookahead && b.w.Calls[j].Session == c.Session; j++ {
		if continues(j) {
			return j
		}
	}
	if j := b.spawned[i]; j > i && continues(j) {
		return j
	}
	return -1
}

// mayContain tells whether next began late enough to hold the output of t. An end that was filled by rule proves
// nothing.
func (b *builder) mayContain(next, t *Turn) bool {
	return t.End == NoTime || next.Start == NoTime || t.Inferred&FieldEnd != 0 ||
		next.Start >= t.End-b.w.Capture.Resolution
}

// sharedOutput returns the token up to which next's prompt is taken to hold the prompt and the output of c.
func (b *builder) sharedOutput(c, next *Call) int32 {
	computed := c.Computed()
	switch b.outputs {
	case OutputsNone:
		return c.Input
	case OutputsAll:
		return min(computed, next.Input)
	}
	shared := computed - max(c.Turn.Reasoning, 0)
	if next.Turn.Cached != Unknown {
		shared = min(shared, next.Turn.Cached)
	}
	return max(c.Input, shared)
}

// markShared finds up to which token calls of two or more programs run through each node. Calls are ordered by
// program, so it is enough to know how far the present program and any earlier one got.
func (w *Workload) markShared() {
	type reach struct{ program, now, before int32 }
	reaches := make([]reach, len(w.nodes))
	for i := range reaches {
		reaches[i].program = -1
	}
	visit := func(c *Call, n NodeID, tokens int32) {
		for ; n > 0; n = w.nodes[n].parent {
			r := &reaches[n]
			if r.program == c.Program && r.now >= tokens {
				return // the way up from here was visited
			}
			if r.program != c.Program {
				r.program, r.before, r.now = c.Program, max(r.before, r.now), 0
			}
			r.now = max(r.now, tokens)
			w.nodes[n].sharedTo = max(w.nodes[n].sharedTo, min(r.now, r.before))
			tokens = w.nodes[n].start
		}
	}
	for i := range w.Calls {
		c := &w.Calls[i]
		visit(c, c.End, c.Computed()) // the prompt ends on the way
	}
}

// markCuts finds sessions whose first call hit more in the recorded server's cache than any earlier call of the
// capture could have left there: that history was computed before the capture began.
func (w *Workload) markCuts() {
	order := make([]int32, 0, len(w.Calls))
	known := false
	for i := range w.Calls {
		if w.Calls[i].Turn.Start != NoTime {
			order = append(order, int32(i))
			known = known || w.Calls[i].Turn.Cached > 0
		}
	}
	if !known {
		return
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(w.Calls[a].Turn.Start, w.Calls[b].Turn.Start) })
	seen := make([]int32, len(w.nodes)) // tokens up to which earlier calls got, by node
	for _, i := range order {
		c := &w.Calls[i]
		if t := c.Turn; c.Cut == 0 && t.Cached > 0 && t == t.Session.Turns[0] {
			explained := int32(0)
			for n, tokens := c.Prompt, c.Input; n > 0 && explained == 0; n = w.nodes[n].parent {
				if seen[n] > w.nodes[n].start {
					explained = min(seen[n], tokens)
				}
				tokens = w.nodes[n].start
			}
			if int(t.Cached) > int(explained)+w.Capture.BlockSize {
				c.Cut = min(t.Cached, c.Input)
			}
		}
		for n, tokens := c.End, c.Computed(); n > 0 && seen[n] < tokens; n = w.nodes[n].parent {
			seen[n], tokens = tokens, w.nodes[n].start
		}
	}
}
