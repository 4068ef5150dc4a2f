package perfetto

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// plan is a capture laid out in time: when each call began and ended, which sessions belong inside which, and which calls
// are in scope.
type plan struct {
	capture *trace.Capture
	// sessions are in the order in which they are drawn: program by program, parents before their children, each level by
	// the start of its first call.
	sessions []session
	calls    []call
	index    map[*trace.Turn]int32 // into calls
	programs []program
}

// program is sessions[first:last], the root first.
type program struct {
	first, last int32
	start, end  time.Duration
	critical    criticalPath
}

// session has calls[first:last] of its plan, by start.
type session struct {
	*trace.Session
	parent      int32 // among the sessions; -1 for none
	first, last int32
	start, end  time.Duration // of itself and all below it
	inside      bool          // of what is drawn, if Scope.Session says what
	shown       bool          // it, or one below it, has a call in scope
}

// call is a turn at its place in time, since the capture began.
type call struct {
	*trace.Turn
	start, end time.Duration
	firstToken time.Duration // NoTime when not told
	session    int32
	// endless tells that the trace does not say when it ended, placed that it does not say when it began.
	endless, placed bool
	critical        bool
	shown           bool
}

// took is how long the call lasted.
func (c *call) took() time.Duration { return c.end - c.start }

func newPlan(c *trace.Capture) *plan {
	turns := 0
	for _, s := range c.Sessions {
		turns += len(s.Turns)
	}
	p := &plan{capture: c, sessions: make([]session, 0, len(c.Sessions)), calls: make([]call, 0, turns),
		index: make(map[*trace.Turn]int32, turns)}
	p.order()
	p.place()
	p.arrange()
	for i := range p.programs {
		p.findCritical(&p.programs[i])
	}
	return p
}

// order lists sessions with parents before children, and numbers the calls.
func (p *plan) order() {
	byID := make(map[string]*trace.Session, len(p.capture.Sessions))
	for _, s := range p.capture.Sessions {
		byID[s.ID] = s
	}
	children := map[*trace.Session][]*trace.Session{}
	var roots []*trace.Session
	for _, s := range p.capture.Sessions {
		if up := byID[s.Parent]; s.Parent != "" && up != nil && up != s {
			children[up] = append(children[up], s)
		} else {
			roots = append(roots, s)
		}
	}
	byStart := func(a, b *trace.Session) int { return cmp.Compare(firstStart(a), firstStart(b)) }
	slices.SortStableFunc(roots, byStart)
	var visit func(s *trace.Session, parent int32)
	visit = func(s *trace.Session, parent int32) {
		at := int32(len(p.sessions))
		p.sessions = append(p.sessions, session{Session: s, parent: parent, first: int32(len(p.calls))})
		for _, t := range s.Turns {
			p.index[t] = int32(len(p.calls))
			p.calls = append(p.calls, call{Turn: t, session: at})
		}
		p.sessions[at].last = int32(len(p.calls))
		below := children[s]
		delete(children, s) // whatever the parents say, each is drawn once
		slices.SortStableFunc(below, byStart)
		for _, child := range below {
			visit(child, at)
		}
	}
	for _, root := range roots {
		first := int32(len(p.sessions))
		visit(root, -1)
		p.programs = append(p.programs, program{first: first, last: int32(len(p.sessions))})
	}
}

// firstStart is when the session's first call began as far as that is told; sessions without such a time come last.
func firstStart(s *trace.Session) time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, t := range s.Turns {
		if t.Start != trace.NoTime {
			first = min(first, t.Start)
		}
	}
	return first
}

// place gives every call its start and end. Calls of which only dependencies say when they began start as soon as these
// allow; one without any starts with the trace.
func (p *plan) place() {
	var waiting []int32
	for i := range p.calls {
		if c := &p.calls[i]; c.Start != trace.NoTime {
			c.setTimes(c.Start)
		} else {
			c.start = trace.NoTime
			waiting = append(waiting, int32(i))
		}
	}
	open := map[int32]bool{} // on the way down from a call to what it waits for
	for len(waiting) > 0 {
		n := waiting[len(waiting)-1]
		c := &p.calls[n]
		if c.start != trace.NoTime {
			waiting = waiting[:len(waiting)-1]
			continue
		}
		start, ready := time.Duration(0), true
		for _, d := range c.Deps {
			from := &p.calls[p.index[d.Turn]]
			if from.start == trace.NoTime && !open[n] {
				waiting = append(waiting, p.index[d.Turn])
				ready = false
			}
			since := from.end
			if d.OnDispatch {
				since = from.start
			}
			start = max(start, since+d.Delay)
		}
		if open[n] = true; !ready {
			continue
		}
		c.placed = true
		c.setTimes(start)
		waiting = waiting[:len(waiting)-1]
	}
	for i := range p.sessions {
		slices.SortStableFunc(p.calls[p.sessions[i].first:p.sessions[i].last], func(a, b call) int {
			return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
		})
	}
	for i := range p.calls {
		p.index[p.calls[i].Turn] = int32(i)
	}
}

// setTimes places a call at its start.
func (c *call) setTimes(start time.Duration) {
	if r := run(c.Turn); r != nil && r.Arrival >= 0 && start%time.Millisecond == 0 {
		start += r.Arrival % time.Millisecond // the row's wall time is in whole ones
	}
	c.start, c.end, c.firstToken = start, start, trace.NoTime
	if c.TTFT != trace.NoTime {
		c.firstToken = start + c.TTFT
		c.end = c.firstToken
	}
	if c.endless = c.End == trace.NoTime || c.Start == trace.NoTime; !c.endless {
		c.end = start + max(c.End-c.Start, 0)
		c.firstToken = min(c.firstToken, c.end) // sums of rounded times may exceed it
	}
}

// run is what agentsim wrote of a call, nil for those of others.
func run(t *trace.Turn) *trace.RunDetail {
	if t.Detail == nil {
		return nil
	}
	return t.Detail.Run
}

// arrange sets the extent of sessions and programs.
func (p *plan) arrange() {
	for i := range p.sessions {
		s := &p.sessions[i]
		s.start, s.end = p.calls[s.first].start, p.calls[s.first].end
		for _, c := range p.calls[s.first:s.last] {
			s.start, s.end = min(s.start, c.start), max(s.end, c.end)
		}
		for _, t := range s.Tools {
			s.start, s.end = min(s.start, t.Start), max(s.end, t.Start, t.End)
		}
	}
	for i := len(p.sessions) - 1; i >= 0; i-- { // children stand behind their parents
		if s := &p.sessions[i]; s.parent >= 0 {
			up := &p.sessions[s.parent]
			up.start, up.end = min(up.start, s.start), max(up.end, s.end)
		}
	}
	for i := range p.programs {
		g := &p.programs[i]
		g.start, g.end = p.sessions[g.first].start, p.sessions[g.first].end
	}
}

// latest is the last time of the capture.
func (p *plan) latest() time.Duration {
	var latest time.Duration
	for i := range p.programs {
		latest = max(latest, p.programs[i].end)
	}
	return latest
}

// earliest is the first time of the capture. Tools may have begun before its first call, at time 0.
func (p *plan) earliest() time.Duration {
	var earliest time.Duration
	for i := range p.programs {
		earliest = min(earliest, p.programs[i].start)
	}
	return earliest
}
