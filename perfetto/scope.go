package perfetto

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Scope is what of a trace to draw. The zero Scope is all of it.
type Scope struct {
	// Session is the ID of a session to draw with its subagents, and the workers that served it in its time; "" for all.
	Session string
	// Worker is the number or the ID of a worker to draw alone, with the calls that it served; "" for all.
	Worker string
	// From and To bound what is drawn, in time since the trace began. What is only partly between is drawn whole. To 0 is
	// no bound.
	From, To time.Duration
}

// ErrScope is in the chain of errors of a Scope that names what is not there.
var ErrScope = errors.New("nothing to draw")

// place names a worker: its index in a run of agentsim, or its ID and data-parallel rank.
type place struct {
	index int32 // -1 for workers with IDs
	id    uint64
	rank  uint32
}

func (w place) String() string {
	switch {
	case w.index >= 0:
		return strconv.Itoa(int(w.index))
	case w.rank > 0:
		return fmt.Sprintf("%d rank %d", w.id, w.rank)
	}
	return strconv.FormatUint(w.id, 10)
}

// servedBy returns the worker that decoded a call, or if that is not told the one that did its prefill.
func servedBy(t *trace.Turn) (w place, ok bool) {
	if r := run(t); r != nil && r.Worker >= 0 {
		return place{index: r.Worker}, true
	}
	if t.Detail == nil || t.Detail.Workers == nil {
		return place{}, false
	}
	id, rank := t.Detail.Workers.DecodeWorkerID, t.Detail.Workers.DecodeDPRank
	if id == nil {
		id, rank = t.Detail.Workers.PrefillWorkerID, t.Detail.Workers.PrefillDPRank
	}
	if id == nil {
		return place{}, false
	}
	w = place{index: -1, id: *id}
	if rank != nil {
		w.rank = *rank
	}
	return w, true
}

// view is a scope applied to one plan.
type view struct {
	Scope
	// workers are those of the calls, in order of index or of first call; drawn are those of them in scope.
	workers []place
	drawn   map[place]bool
}

// scope marks the calls and sessions of a plan that are in scope. A session or worker that is not there is an error.
func (p *plan) scope(s Scope, others int) (*view, error) {
	v := &view{Scope: s, drawn: map[place]bool{}}
	var found *session
	for i := range p.sessions {
		q := &p.sessions[i]
		q.inside = s.Session == "" || q.ID == s.Session || q.parent >= 0 && p.sessions[q.parent].inside
		if q.ID == s.Session {
			found = q
		}
	}
	if s.Session != "" && found == nil {
		return nil, fmt.Errorf("%w: no session %q in the trace; the first is %q", ErrScope, s.Session, p.sessions[0].ID)
	}
	if found != nil {
		v.From = max(v.From, found.start)
		if v.To == 0 || v.To > found.end {
			v.To = found.end + 1
		}
	}
	v.listWorkers(p, others)
	only, err := v.find(s.Worker)
	if err != nil {
		return nil, err
	}
	if s.Worker != "" {
		v.drawn[only] = true
	}
	for i := range p.calls {
		c := &p.calls[i]
		w, known := servedBy(c.Turn)
		c.shown = p.sessions[c.session].inside && v.sees(c.start, c.end) && (s.Worker == "" || known && w == only)
		if known && c.shown {
			v.drawn[w] = true
		}
		for at := c.session; c.shown && at >= 0 && !p.sessions[at].shown; at = p.sessions[at].parent {
			p.sessions[at].shown = true
		}
	}
	return v, nil
}

// sees tells whether something that lasts from start to end is in scope by its time.
func (v *view) sees(start, end time.Duration) bool {
	return end >= v.From && (v.To == 0 || start < v.To)
}

// draws tells whether a worker is in scope: all are, or those that served a call in scope.
func (v *view) draws(w place) bool { return v.Scope == Scope{} || v.drawn[w] }

// listWorkers lists the workers of the calls, and at least the first n of a run.
func (v *view) listWorkers(p *plan, n int) {
	seen := map[place]bool{}
	add := func(w place) {
		if !seen[w] {
			seen[w] = true
			v.workers = append(v.workers, w)
		}
	}
	for i := range n {
		add(place{index: int32(i)})
	}
	for i := range p.calls {
		if w, ok := servedBy(p.calls[i].Turn); ok {
			add(w)
		}
	}
	slices.SortStableFunc(v.workers, func(a, b place) int { return int(a.index) - int(b.index) })
}

// find returns the worker of a name: its number, or its ID.
func (v *view) find(name string) (place, error) {
	if name == "" {
		return place{}, nil
	}
	for _, w := range v.workers {
		if w.String() == name {
			return w, nil
		}
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(v.workers) {
		return v.workers[n], nil
	}
	if len(v.workers) == 0 {
		return place{}, fmt.Errorf("%w: worker %q: the trace does not tell which workers served its calls", ErrScope, name)
	}
	if len(v.workers) == 1 {
		return place{}, fmt.Errorf("%w: no worker %q; there is only %v", ErrScope, name, v.workers[0])
	}
	return place{}, fmt.Errorf("%w: no worker %q; there are %d, from %v to %v", ErrScope, name, len(v.workers), v.workers[0], v.workers[len(v.workers)-1])
}
