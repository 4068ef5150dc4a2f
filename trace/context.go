package trace

import (
	"fmt"
	"slices"
)

// LimitContext returns a copy of the capture in which no call has more than limit tokens, prompt and output together,
// and the number of calls that it changed. How decides: "truncate" keeps the head of a prompt that is too long;
// "split" begins a new chain where the session's previous prompt ended, as an agent does that starts over with what
// is new, and keeps taking that much off later prompts of the session. Calls that stay too long are left as they are.
// The copy is not linked.
func (c *Capture) LimitContext(limit int, how string) (*Capture, int, error) {
	if limit < 2 {
		return nil, 0, fmt.Errorf("limiting contexts to %d tokens: want at least 2", limit)
	}
	if how != "truncate" && how != "split" {
		return nil, 0, fmt.Errorf("limiting contexts: unknown way %q, want truncate or split", how)
	}
	l := limiter{limit: int32(min(limit, maxTokens)), split: how == "split", size: int32(max(c.BlockSize, 1)),
		clones: map[*Turn]*Turn{}, changed: map[*Turn]bool{}}
	limited := *c
	limited.Sessions = make([]*Session, len(c.Sessions))
	for i, s := range c.Sessions {
		limited.Sessions[i] = l.session(s)
	}
	for _, s := range limited.Sessions {
		for _, t := range s.Turns {
			l.rebase(t)
		}
	}
	return &limited, len(l.changed), nil
}

// limiter copies turns and shortens those that are too long.
type limiter struct {
	limit, size int32
	split       bool
	clones      map[*Turn]*Turn
	changed     map[*Turn]bool // clones with a chain of their own
}

func (l *limiter) session(s *Session) *Session {
	copied := *s
	copied.Turns = make([]*Turn, len(s.Turns))
	copied.Tools = slices.Clone(s.Tools)
	cut, previous := int32(0), int32(0)
	for i, t := range s.Turns {
		n := *t
		n.Session, n.Deps, n.Cut = nil, nil, 0
		if !t.Explicit { // else the source gave the tool time
			n.Gap = Gap{}
		}
		copied.Turns[i] = &n
		l.clones[t] = &n
		if l.split {
			if cut = l.cutAt(t, cut, previous); cut > 0 {
				l.cutHead(&n, t, cut)
			}
			previous = t.Input
		} else if room := l.limit - t.Output; t.Input > room && room > 0 {
			l.keepHead(&n, t, room)
		}
	}
	return &copied
}

// cutAt returns where the chain of a turn begins, given where that of the previous turn did and the tokens that it had:
// there too while the turn fits, else at the previous prompt's end, else as early as the limit allows. A context that
// was made shorter than that begins anew.
func (l *limiter) cutAt(t *Turn, cut, previous int32) int32 {
	if cut >= t.Input {
		cut = 0
	}
	fits := func(cut int32) bool { return cut < t.Input && t.Input-cut+t.Output <= l.limit }
	if fits(cut) {
		return cut
	}
	if at := previous / l.size * l.size; at > cut && fits(at) {
		return at
	}
	if at := (t.Input + t.Output - l.limit + l.size - 1) / l.size * l.size; fits(at) {
		return at
	}
	return cut
}

// keepHead shortens a prompt to its first input tokens. A block that is cut is no longer the recorded one.
func (l *limiter) keepHead(n, t *Turn, input int32) {
	l.change(n, t, 0, input/l.size, input)
}

// cutHead takes the first cut tokens, whole blocks, off a prompt.
func (l *limiter) cutHead(n, t *Turn, cut int32) {
	l.change(n, t, cut/l.size, t.Shared+int32(len(t.Hashes)), t.Input-cut)
}

// change gives a clone the hashes [from, to) of the original's chain.
func (l *limiter) change(n, t *Turn, from, to, input int32) {
	to = min(to, t.Shared+int32(len(t.Hashes)))
	n.Base, n.Shared, n.Hashes = nil, 0, make([]uint64, 0, max(0, to-from))
	for i := from; i < to; i++ {
		n.Hashes = append(n.Hashes, t.hashAt(i))
	}
	n.Input, n.OutputHashes = input, nil
	if n.Cached != Unknown {
		n.Cached = max(n.Cached-from*l.size, 0)
	}
	if n.Cached > input {
		n.Cached = Unknown
	}
	l.changed[n] = true
}

// rebase points a clone at the clone of its base, or writes its chain out when that one has another chain now.
func (l *limiter) rebase(n *Turn) {
	if n.Base == nil {
		return
	}
	base := l.clones[n.Base]
	if base != nil && !l.changed[base] {
		n.Base = base
		return
	}
	own := n.Hashes
	hashes := make([]uint64, 0, int(n.Shared)+len(own))
	for i := int32(0); i < n.Shared; i++ {
		hashes = append(hashes, n.Base.hashAt(i))
	}
	n.Base, n.Shared, n.Hashes = nil, 0, append(hashes, own...)
}
