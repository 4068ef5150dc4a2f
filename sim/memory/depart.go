package memory

import (
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Departure is blocks that leave the GPUs of a rank as soon as nothing keeps them there. It tells of those that have left,
// last with more false.
type Departure struct {
	spans  []trace.Span
	forget bool // they leave the rank's own tiers too, and wait for no copy
	left   func(now time.Duration, blocks int, more bool)
}

// Demote writes what a rank's cache has of a session's path to its first tier, and takes those of the given spans that are there from
// the GPUs: at once what the tier has already, the rest when it is written. Without a tier it returns nil.
func (m *Memory) Demote(now time.Duration, rank int, session uint64, path, spans []trace.Span, left func(now time.Duration, blocks int, more bool)) *Departure {
	r := m.ranks[rank]
	if len(r.tiers) == 0 || len(spans) == 0 {
		return nil
	}
	m.save(now, r, session, path, spans[len(spans)-1].To, Demote)
	return m.leave(now, r, &Departure{spans: slices.Clone(spans), left: left})
}

// Drop forgets blocks of a rank, on its GPUs and in its own tiers, once they are not being written any more.
func (m *Memory) Drop(now time.Duration, rank int, spans []trace.Span, left func(now time.Duration, blocks int, more bool)) {
	m.leave(now, m.ranks[rank], &Departure{slices.Clone(spans), true, left})
}

// Stay ends a departure: what has not left the GPU stays there.
func (m *Memory) Stay(rank int, d *Departure) {
	r := m.ranks[rank]
	r.departures = slices.DeleteFunc(r.departures, func(x *Departure) bool { return x == d })
}

func (m *Memory) leave(now time.Duration, r *rank, d *Departure) *Departure {
	r.departures = append(r.departures, d)
	m.depart(now, r)
	return d
}

// depart takes from a rank's GPUs what is to leave them and is free to.
func (m *Memory) depart(now time.Duration, r *rank) {
	waiting := r.departures[:0]
	for _, d := range r.departures {
		blocks := 0
		var rest []trace.Span
		for _, s := range d.spans {
			var n int
			if d.forget {
				n, rest = m.forget(now, r, s, rest)
			} else {
				n, rest = r.demote(now, s, rest)
			}
			blocks += n
		}
		d.spans = rest
		if d.left(now, blocks, len(rest) > 0); len(rest) > 0 {
			waiting = append(waiting, d)
		}
	}
	clear(r.departures[len(waiting):])
	r.departures = waiting
}

// forget drops blocks from the GPUs and the rank's own tiers, and appends to rest what is being written.
func (m *Memory) forget(now time.Duration, r *rank, s trace.Span, rest []trace.Span) (dropped int, _ []trace.Span) {
	dropped, kept := r.engine.Drop(now, s)
	for i := range r.tiers {
		if t := &r.tiers[i]; t.level != Remote {
			_, n := t.store.Drop(s)
			kept += n
			m.changed(r, t.level, s, false)
		}
	}
	if kept > 0 && r.saving() {
		rest = append(rest, s)
	}
	return dropped, rest
}

// demote drops those blocks of a span from the GPUs that the first tier has, and appends to rest what is on its way there or
// being written. What the tier has no room for stays.
func (r *rank) demote(now time.Duration, s trace.Span, rest []trace.Span) (dropped int, _ []trace.Span) {
	store, path := r.tiers[0].store, []trace.Span{s}
	for at := s.From; at < s.To; {
		to := store.Find(path, at, s.To)
		if to > at {
			there := trace.Span{Key: s.Key, From: at, To: to}
			n, kept := r.engine.Drop(now, there)
			dropped += n
			if kept > 0 && r.saving() { // what lies behind them is being written, which holds them
				rest = append(rest, there)
			}
			at = to
			continue
		}
		to = s.To
		if lacks := store.Lacks(path, at, s.To, nil); len(lacks) > 0 {
			if lacks[0].From == at {
				at = lacks[0].To
				continue
			}
			to = lacks[0].From
		}
		rest = append(rest, trace.Span{Key: s.Key, From: at, To: to})
		at = to
	}
	return dropped, rest
}

// saving tells that blocks are being written, or wait for that.
func (r *rank) saving() bool {
	return slices.ContainsFunc(r.tiers, func(t tier) bool { return len(t.saves) > 0 })
}
