package memory

import (
	"slices"
	"time"

	"github.com/agentsim/agentsim/sim/link"
)

// shared is the rank of what all ranks use.
const shared = -1

// wire is a link and whose it is.
type wire struct {
	rank int
	kind string
	id   link.ID
}

// Account is all that a memory has done by a time.
type Account struct {
	Stats
	// Links are those of all ranks, in a fixed order.
	Links []LinkUse
	// Tiers are the tiers that there are, by level.
	Tiers [Levels]TierUse
}

// LinkUse is what a link has done.
type LinkUse struct {
	// Rank is whose it is, negative for the links of the remote tier, which are everybody's; Kind names it.
	Rank int
	Kind string
	// Rate is in bytes per second.
	Rate float64
	// Bytes have moved, while anything moved for so long.
	Bytes int64
	Busy  time.Duration
}

// TierUse is how full a tier is, in blocks.
type TierUse struct {
	// Capacity is that of all ranks together; 0 where there is no such tier. Peak is the most that one rank had there, since
	// Restart or the start, of Most.
	Capacity, Peak, Most int
}

// Account returns what has been done so far.
func (m *Memory) Account() Account {
	a := Account{Stats: m.Stats}
	for _, w := range m.links {
		s := m.net.Link(w.id)
		a.Links = append(a.Links, LinkUse{Rank: w.rank, Kind: w.kind, Rate: s.Rate, Bytes: s.Bytes, Busy: s.Busy})
	}
	m.eachTier(func(_ *rank, t *tier) {
		u := &a.Tiers[t.level]
		u.Capacity += t.store.Capacity()
		u.Peak = max(u.Peak, t.peak, t.store.Peak())
		u.Most = t.store.Capacity()
	})
	return a
}

// Restart lets the peaks of tiers begin anew.
func (m *Memory) Restart() {
	m.eachTier(func(_ *rank, t *tier) {
		t.peak = 0
		t.store.RestartPeak()
	})
}

// eachTier calls f once for each tier, with a rank that has it. The remote one is that of the first rank.
func (m *Memory) eachTier(f func(r *rank, t *tier)) {
	for i, r := range m.ranks {
		for j := range r.tiers {
			if t := &r.tiers[j]; t.level != Remote || i == 0 {
				f(r, t)
			}
		}
	}
}

// Since returns what an account has more than an earlier one of the same memory. Peaks stay.
func (a Account) Since(before Account) Account {
	for c := range a.Moves {
		x, y := &a.Moves[c], &before.Moves[c]
		x.Count, x.Stopped, x.Bytes, x.Time = x.Count-y.Count, x.Stopped-y.Stopped, x.Bytes-y.Bytes, x.Time-y.Time
	}
	for l := range a.Read {
		a.Read[l] -= before.Read[l]
		a.Loads[l] -= before.Loads[l]
	}
	a.Failed -= before.Failed
	a.Cancelled -= before.Cancelled
	a.Links = slices.Clone(a.Links)
	for i := range before.Links {
		a.Links[i].Bytes -= before.Links[i].Bytes
		a.Links[i].Busy -= before.Links[i].Busy
	}
	return a
}
