package merge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// served is the calls of the server, with the ways to find them.
type served struct {
	source Source
	calls  []*trace.Turn // in order of start
	// conversation numbers those of the calls; names has the session's id of each, "" where none was told.
	conversation []int32
	names        []string
	ids, tools   map[string]int32 // -1 for what several calls have
	// byInput finds calls by their input tokens, untold those of which these are not told; everything has all.
	byInput            map[int32]*timeline
	untold, everything timeline
}

// timeline is calls in order of their ends, and in order of their starts.
type timeline struct{ byEnd, byStart []int32 }

// serve makes the calls of the server ready to be found.
func serve(server Source) (*served, error) {
	c := server.Capture
	s := &served{source: server, byInput: map[int32]*timeline{}}
	for _, session := range c.Sessions {
		if session.Scope != c.Sessions[0].Scope || !c.SharedClock {
			return nil, fmt.Errorf("%s is in %s format, in which each session has hashes or a clock of its own: that is no server's trace", server.Name, c.Format)
		}
		for _, t := range session.Turns {
			t.Session = session
			s.calls = append(s.calls, t)
		}
	}
	if len(s.calls) == 0 {
		return nil, fmt.Errorf("%s has no calls: name the server's or the proxy's trace first", server.Name)
	}
	slices.SortFunc(s.calls, byStart)
	for i, t := range s.calls {
		s.everything.add(i, t)
		if filled(t)&trace.FieldInput != 0 {
			s.untold.add(i, t)
			continue
		}
		line := s.byInput[t.Input]
		if line == nil {
			line = &timeline{}
			s.byInput[t.Input] = line
		}
		line.add(i, t)
	}
	s.everything.sort(s.calls)
	s.untold.sort(s.calls)
	for _, line := range s.byInput {
		line.sort(s.calls)
	}
	s.ids, s.tools = idsOf(s.calls), toolsOf(s.calls)
	s.converse()
	return s, nil
}

// byStart orders calls by start, and those that start together by what tells them apart.
func byStart(a, b *trace.Turn) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End), strings.Compare(a.Session.ID, b.Session.ID), strings.Compare(a.ID, b.ID))
}

func (l *timeline) add(i int, t *trace.Turn) {
	if t.Start != trace.NoTime {
		l.byStart = append(l.byStart, int32(i))
	}
	if t.End != trace.NoTime {
		l.byEnd = append(l.byEnd, int32(i))
	}
}

func (l *timeline) sort(calls []*trace.Turn) {
	slices.SortStableFunc(l.byStart, func(a, b int32) int { return cmp.Compare(calls[a].Start, calls[b].Start) })
	slices.SortStableFunc(l.byEnd, func(a, b int32) int { return cmp.Compare(calls[a].End, calls[b].End) })
}

// maxNear bounds the calls that are looked at on either side of a time.
const maxNear = 16

// near returns the calls that end (or start) within slack of a time, at most maxNear before it and as many after.
func (l *timeline) near(calls []*trace.Turn, ends bool, at, slack time.Duration) []int32 {
	list := l.byStart
	if ends {
		list = l.byEnd
	}
	find := func(at time.Duration) int {
		i, _ := slices.BinarySearchFunc(list, at, func(i int32, at time.Duration) int { return cmp.Compare(timeOf(calls[i], ends), at) })
		return i
	}
	middle := find(at)
	from, to := max(find(at-slack), middle-maxNear), min(find(at+slack+1), middle+maxNear)
	return list[from:max(from, to)]
}

// timeOf is when a call ends, or starts.
func timeOf(t *trace.Turn, end bool) time.Duration {
	if end {
		return t.End
	}
	return t.Start
}

// idsOf finds calls by their ids and aliases.
func idsOf(calls []*trace.Turn) map[string]int32 {
	ids := make(map[string]int32, len(calls))
	for i, t := range calls {
		note(ids, t.ID, int32(i))
		for _, id := range t.Aliases {
			note(ids, id, int32(i))
		}
	}
	return ids
}

// toolsOf finds calls by the ids of the tool calls that they asked for.
func toolsOf(calls []*trace.Turn) map[string]int32 {
	ids := map[string]int32{}
	for i, t := range calls {
		for _, tool := range t.ToolCalls {
			note(ids, tool.ID, int32(i))
		}
	}
	return ids
}

func note(ids map[string]int32, id string, i int32) {
	if id == "" {
		return
	}
	if known, ok := ids[id]; ok && known != i {
		i = -1
	}
	ids[id] = i
}

// find returns the call with an id that no other has, or -1.
func find(ids map[string]int32, id string) int32 {
	if i, ok := ids[id]; ok {
		return i
	}
	return -1
}

// converse numbers the conversations: the sessions that the server tells, and of calls without one those whose prompts go on
// from one another.
func (s *served) converse() {
	s.conversation = make([]int32, len(s.calls))
	begin := func(name string) int32 {
		s.names = append(s.names, name)
		return int32(len(s.names) - 1)
	}
	sessions := map[*trace.Session]int32{}
	// ends are the last full blocks of prompts; further tells that a longer prompt goes on from there.
	type end struct {
		conversation int32
		further      bool
	}
	ends := map[uint64]*end{}
	for i, t := range s.calls {
		if alone := len(t.Session.Turns) == 1 && t.Session.ID == t.ID; !alone {
			n, ok := sessions[t.Session]
			if !ok {
				n = begin(t.Session.ID)
				sessions[t.Session] = n
			}
			s.conversation[i] = n
			continue
		}
		chain := t.Chain()
		if size := s.source.Capture.BlockSize; size > 0 {
			chain = chain[:min(len(chain), int(t.Input)/size)]
		}
		n := int32(-1)
		for at := len(chain) - 1; at >= 0; at-- {
			e := ends[chain[at]]
			if e == nil {
				continue
			}
			if longer := at < len(chain)-1; !longer || !e.further { // else a fork
				n, e.further = e.conversation, e.further || longer
			}
			break
		}
		if n < 0 {
			n = begin("")
		}
		s.conversation[i] = n
		if len(chain) > 0 && ends[chain[len(chain)-1]] == nil {
			ends[chain[len(chain)-1]] = &end{conversation: n}
		}
	}
}
