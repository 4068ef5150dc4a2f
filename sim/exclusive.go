package sim

import "github.com/agentsim/agentsim/trace"

// exclusive tells which tokens of the prefix tree are those of one session alone, by node.
type exclusive []claim

// claim is how far calls run through a node: those of the session that gets farthest up to token to, those of others up to
// token others.
type claim struct {
	session    int32
	to, others int32
}

// newExclusive looks at the path of every call once, as far as nodes are new to its session.
func newExclusive(w *trace.Workload) exclusive {
	o := make(exclusive, w.Nodes())
	for i := range o {
		o[i].session = -1
	}
	for i := range w.Calls {
		c := &w.Calls[i]
		tokens := c.Computed()
		for n := c.End; n > 0; {
			x := &o[n]
			switch {
			case x.session == c.Session:
				if tokens <= x.to {
					n = 0 // it has been here, and above
					continue
				}
				x.to = tokens
			case tokens > x.to:
				x.session, x.to, x.others = c.Session, tokens, x.to
			default:
				x.others = max(x.others, tokens)
			}
			n, tokens = w.Above(n)
		}
	}
	return o
}

// of appends to buf the blocks of a path that are the session's alone.
func (e exclusive) of(session int32, path []trace.Span, blockSize int32, buf []trace.Span) []trace.Span {
	for _, s := range path {
		x := &e[s.Key.Node()]
		if x.session != session {
			continue
		}
		if s.From = max(s.From, x.others/blockSize); s.From < s.To {
			buf = append(buf, s)
		}
	}
	return buf
}
