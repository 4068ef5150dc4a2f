package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// maxDepth bounds how deep subagents may nest.
const maxDepth = 64

// Link is called once on a capture. It sorts each session's turns by start and fills what follows from the recorded times: which turn waits for
// which (Turn.Deps), how the waiting splits into tool, human and other time (Turn.Gap), and which sessions began
// before the capture did (Turn.Cut).
//
// An edge exists only where the predecessor ended at or before the successor's start, within the capture's
// resolution: overlapping calls of one session stay parallel, and a child that outlives the parent's next turn is
// a background child. Where a turn states its own dependencies, those are taken instead.
//
// Errors name the sessions or requests that contradict each other: a cycle of parents, an unknown id in a stated
// dependency, a cycle of dependencies.
func (c *Capture) Link() error {
	byID := make(map[string]*Session, len(c.Sessions))
	for _, s := range c.Sessions {
		if s.ID != "" { // else it would be the parent of every root
			byID[s.ID] = s
		}
	}
	depth, err := c.sessionDepths(byID)
	if err != nil {
		return err
	}
	l := linker{resolution: c.Resolution, state: make(map[*Session]*chainState, len(c.Sessions))}
	for _, s := range c.Sessions {
		l.sequence(s)
	}
	// Children are visited in order of appearance, so the edges of a parent are in a fixed order.
	for i, s := range c.Sessions {
		if depth[i] > 0 {
			l.spawn(s, byID[s.Parent])
			l.join(s, byID[s.Parent])
		}
	}
	if err := c.resolveWaits(); err != nil {
		return err
	}
	c.adopt(byID)
	for _, s := range c.Sessions {
		for i, t := range s.Turns {
			t.fillGap(s)
			if i == 0 {
				t.markCut(c.BlockSize)
			}
		}
	}
	return nil
}

// sessionDepths returns the nesting depth of each session: 0 for roots. A session whose parent is itself or is not
// in the capture is a root.
func (c *Capture) sessionDepths(byID map[string]*Session) ([]int, error) {
	depth := make([]int, len(c.Sessions))
	for i, s := range c.Sessions {
		for at := s; at.Parent != at.ID && byID[at.Parent] != nil; at = byID[at.Parent] {
			if depth[i]++; depth[i] > maxDepth {
				return nil, fmt.Errorf("linking session %q: its parents form a cycle or nest deeper than %d", s.ID, maxDepth)
			}
		}
	}
	return depth, nil
}

// linker infers the edges of a capture's sessions.
type linker struct {
	resolution time.Duration
	state      map[*Session]*chainState
}

// chainState is what the edges into and out of one session need to know of it.
type chainState struct {
	// open are the turns that no later turn of the session waits for.
	open []*Turn
	// end is the latest end, start the latest start of its turns.
	end, start time.Duration
}

// ended tells whether a turn that ends at end may precede one that starts at start.
func (l *linker) ended(end, start time.Duration) bool {
	return end != NoTime && start != NoTime && end <= start+l.resolution
}

// sequence sorts the session's turns and adds the edges between them. A turn waits for the latest turn that had
// ended before it began, and for every other such turn that nothing else waits for yet.
func (l *linker) sequence(s *Session) {
	slices.SortStableFunc(s.Turns, func(a, b *Turn) int {
		if a.Start == NoTime || b.Start == NoTime {
			return 0
		}
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	slices.SortStableFunc(s.Tools, func(a, b ToolSpan) int { return cmp.Compare(a.Start, b.Start) })
	st := &chainState{end: NoTime, start: NoTime}
	var running []*Turn // turns that had not ended when the previous turn began
	var latest *Turn    // of those that had, the one with the greatest end
	for _, t := range s.Turns {
		t.Session = s
		if !t.Explicit {
			running, latest = l.retire(running, latest, t.Start)
			st.open = l.follow(t, st.open, latest)
		}
		running = append(running, t)
		st.open = append(st.open, t)
		st.end = max(st.end, t.End)
		st.start = max(st.start, t.Start)
	}
	l.state[s] = st
}

// retire moves the turns that ended before start out of running and returns the latest-ended turn so far.
func (l *linker) retire(running []*Turn, latest *Turn, start time.Duration) ([]*Turn, *Turn) {
	kept := running[:0]
	for _, r := range running {
		if !l.ended(r.End, start) {
			kept = append(kept, r)
		} else if latest == nil || r.End > latest.End {
			latest = r
		}
	}
	return kept, latest
}

// follow makes t wait for the latest-ended turn and for every ended turn in open, and returns what stays open.
func (l *linker) follow(t *Turn, open []*Turn, latest *Turn) []*Turn {
	kept := open[:0]
	for _, o := range open {
		if !l.ended(o.End, t.Start) {
			kept = append(kept, o)
		} else if o != latest {
			t.Deps = append(t.Deps, Dep{Turn: o, Kind: KindSequence})
		}
	}
	if latest != nil {
		t.Deps = append(t.Deps, Dep{Turn: latest, Kind: KindSequence})
	}
	return kept
}

// spawn hangs the child's turns that wait for nothing yet on the last parent turn that had ended before they began.
func (l *linker) spawn(child, parent *Session) {
	for _, t := range child.Turns {
		if t.Explicit || len(t.Deps) > 0 {
			continue
		}
		var from *Turn
		for _, p := range parent.Turns {
			if p.Start != NoTime && t.Start != NoTime && p.Start > t.Start {
				break
			}
			if l.ended(p.End, t.Start) && (from == nil || p.End >= from.End) {
				from = p
			}
		}
		if from != nil {
			t.Deps = append(t.Deps, Dep{Turn: from, Kind: KindSpawn})
		}
	}
}

// join makes the first parent turn that began after the child's end wait for the child's last turns. A child that
// no later parent turn follows runs in the background.
func (l *linker) join(child, parent *Session) {
	st := l.state[child]
	if len(child.Turns) == 0 || st.end == NoTime {
		return
	}
	for _, p := range parent.Turns {
		// Edges go forward in start time, or a coarse clock could make a parent and a child wait for each other.
		if p.Explicit || p.Start == NoTime || p.Start <= st.start || !l.ended(st.end, p.Start) {
			continue
		}
		for _, o := range st.open {
			p.Deps = append(p.Deps, Dep{Turn: o, Kind: KindJoin})
		}
		return
	}
}

// resolveWaits turns stated dependencies into edges and refuses unknown ids and cycles.
func (c *Capture) resolveWaits() error {
	var byID map[string]*Turn
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			if !t.Explicit {
				continue
			}
			if byID == nil {
				byID = c.turnsByID()
			}
			for _, w := range t.Waits {
				on := byID[w.ID]
				if on == nil {
					return fmt.Errorf("linking request %q: it waits for %q, which is not in the trace", t.ID, w.ID)
				}
				t.Deps = append(t.Deps, Dep{Turn: on, Delay: w.Delay, OnDispatch: w.OnDispatch, Kind: w.Kind})
			}
		}
	}
	if byID == nil {
		return nil // inferred edges go forward in time and cannot form a cycle
	}
	return c.refuseCycles()
}

// adopt makes sessions that stated dependencies tie together members of one program: a session without a parent
// becomes the child of one that it waits for. What its first turn waits for decides, before what later turns do.
func (c *Capture) adopt(byID map[string]*Session) {
	up := make(map[*Session]*Session) // towards the root; shortened on the way, so that long chains stay cheap
	for _, s := range c.Sessions {
		if p := byID[s.Parent]; p != s && p != nil {
			up[s] = p
		}
	}
	root := func(s *Session) *Session {
		top := s
		for up[top] != nil {
			top = up[top]
		}
		for s != top {
			up[s], s = top, up[s]
		}
		return top
	}
	for _, firstOnly := range []bool{true, false} {
		for _, s := range c.Sessions {
			for i, t := range s.Turns {
				if firstOnly && i > 0 {
					break
				}
				if !t.Explicit {
					continue
				}
				for _, d := range t.Deps {
					if own := root(s); own != root(d.Turn.Session) {
						own.Parent = d.Turn.Session.ID
						up[own] = d.Turn.Session
					}
				}
			}
		}
	}
}

func (c *Capture) turnsByID() map[string]*Turn {
	byID := make(map[string]*Turn)
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			byID[t.ID] = t
		}
	}
	return byID
}

// refuseCycles removes turns whose dependencies are all removed (Kahn's algorithm) and names one that is left.
func (c *Capture) refuseCycles() error {
	waiting := make(map[*Turn]int)
	next := make(map[*Turn][]*Turn)
	var ready []*Turn
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			if waiting[t] = len(t.Deps); len(t.Deps) == 0 {
				ready = append(ready, t)
			}
			for _, d := range t.Deps {
				next[d.Turn] = append(next[d.Turn], t)
			}
		}
	}
	for len(ready) > 0 {
		t := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		delete(waiting, t)
		for _, n := range next[t] {
			if waiting[n]--; waiting[n] == 0 {
				ready = append(ready, n)
			}
		}
	}
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			if _, left := waiting[t]; left {
				return fmt.Errorf("linking request %q: its dependencies form a cycle (through %q)", t.ID, t.Deps[0].Turn.ID)
			}
		}
	}
	return nil
}

// fillGap measures the time between the end of the turn's last dependency and its start, and splits it. Tool time
// is the union of the session's tool spans in the gap; without spans, what the prompt ends with decides.
func (t *Turn) fillGap(s *Session) {
	if len(t.Deps) == 0 {
		return
	}
	if t.Explicit {
		t.splitStatedGap()
		return
	}
	end, spawned := NoTime, false
	for _, d := range t.Deps {
		end = max(end, d.Turn.End)
		spawned = spawned || d.Kind == KindSpawn
	}
	gap := max(t.Start-end, 0)
	for i := range t.Deps {
		t.Deps[i].Delay = gap
	}
	t.Gap.Tool = min(toolTime(s.Tools, end, t.Start), gap)
	rest := gap - t.Gap.Tool
	switch {
	case t.Trigger == "user_message" && !spawned: // else another agent wrote the message
		t.Gap.Human = rest
	case t.Trigger == "tool_result" && t.Gap.Tool == 0:
		t.Gap.Tool = rest
	default:
		t.Gap.Other = rest
	}
}

// splitStatedGap counts a stated delay as tool and human time up to those that the source gave, else as other time.
func (t *Turn) splitStatedGap() {
	var delay time.Duration
	for _, d := range t.Deps {
		if !d.OnDispatch {
			delay = max(delay, d.Delay)
		}
	}
	t.Gap.Tool = min(t.Gap.Tool, delay)
	t.Gap.Human = min(t.Gap.Human, delay-t.Gap.Tool)
	t.Gap.Other = delay - t.Gap.Tool - t.Gap.Human
}

// toolTime returns the length of the union of the spans inside [from, to). Spans are in order of start.
func toolTime(spans []ToolSpan, from, to time.Duration) time.Duration {
	var total time.Duration
	at := from
	for _, sp := range spans {
		if sp.Start >= to {
			break
		}
		start, end := max(sp.Start, at), min(sp.End, to)
		if end > start {
			total += end - start
			at = end
		}
	}
	return total
}

// markCut marks a session's first turn when it answers a tool call: the call itself came before the capture. Its
// history is what the recorded server found in its cache, or the whole prompt but its last block.
func (t *Turn) markCut(blockSize int) {
	if t.Trigger != "tool_result" || len(t.Deps) > 0 {
		return
	}
	t.Cut = min(t.Cached, t.Input)
	if t.Cached == Unknown {
		t.Cut = max(0, t.Input-int32(max(blockSize, 1)))
	}
	t.Inferred |= FieldCut
}
