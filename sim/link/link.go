// Package link models links of limited bandwidth and the transfers that share them, on the simulator's clock: PCIe to host
// memory, an NVMe drive, a network card.
//
// Shares are max-min fair, found by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): a transfer over several
// links goes as fast as the one that has least left for it, and what it cannot use there the others get. Shares change only
// when a transfer starts to move or ends, and only among the transfers that are connected with it by the links they share.
//
// All times and amounts are integers, so that a run gives the same bytes everywhere. A transfer ends at a whole nanosecond,
// rounded up: alone on a link of R bytes/s, its B bytes take ⌈B/R⌉.
package link

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"time"
)

// Rates of links, in bytes per second.
const (
	MinRate = 1e3
	MaxRate = 1e14
)

// Never is later than all that happens.
const Never time.Duration = math.MaxInt64

// ID numbers a link of a network, from 0 on.
type ID int32

// Transfer names a transfer. The zero value names none, and no two of a network are the same.
type Transfer struct {
	serial int64 // in the order of starts, from 1 on
	slot   int32
}

// Network is links and the transfers that share them. The zero value is an empty one. It is not safe for concurrent use.
// The times given to its methods must not go back.
type Network struct {
	now     time.Duration
	links   []link
	flows   []*flow // by slot
	idle    []*flow // for reuse
	agenda  agenda
	serial  int64
	ended   []Transfer // not told yet
	endedAt time.Duration
	told    []Transfer // by the last Advance

	changed []ID // links whose transfers have changed at this time
	part    part
	trial   *Network // in which Eta runs ahead
}

// link is one link.
type link struct {
	name   string
	bytesS float64
	rate   uint64  // in parts of a byte per second
	flows  []*flow // over it, moving or yet to begin
	moving int
	bytes  int64
	busy   time.Duration // up to since
	since  time.Duration // when the first of those that move now began

	seen bool   // in the part that is being gathered
	left uint64 // of the rate, while shares are given
	open int    // moving ones without a share
}

// Stats is what a link has done.
type Stats struct {
	Name string
	// Rate is in bytes per second.
	Rate float64
	// Bytes is those of transfers that have ended, and those that cancelled ones had moved.
	Bytes int64
	// Busy is the time for which anything moved.
	Busy time.Duration
}

// Add adds a link of MinRate to MaxRate bytes per second.
func (n *Network) Add(name string, bytesPerS float64) (ID, error) {
	if !(bytesPerS >= MinRate && bytesPerS <= MaxRate) {
		return 0, fmt.Errorf("link %s: a rate of %g bytes/s: want %g to %g", name, bytesPerS, MinRate, MaxRate)
	}
	n.links = append(n.links, link{name: name, bytesS: bytesPerS, rate: fixedRate(bytesPerS)})
	return ID(len(n.links) - 1), nil
}

// Start starts a transfer of the given bytes over links. It begins to move after the latency, of which the links know
// nothing. One of no bytes, or over no links, only takes the latency.
func (n *Network) Start(now time.Duration, bytes int64, latency time.Duration, over ...ID) Transfer {
	n.goTo(now)
	n.serial++
	f := n.newFlow()
	f.serial, f.bytes = n.serial, max(bytes, 0)
	if f.bytes > 0 {
		for _, id := range over {
			if !slices.Contains(f.over, id) {
				f.over = append(f.over, id)
				n.links[id].flows = append(n.links[id].flows, f)
			}
		}
	}
	f.at = later(n.now, max(latency, 0))
	heap.Push(&n.agenda, f)
	t := f.transfer()
	n.goTo(now) // it may begin, or end, at once
	return t
}

// Cancel ends a transfer before it is done and returns the bytes that had moved. One that has ended by now is left alone,
// and nothing returned: Advance tells of it.
func (n *Network) Cancel(now time.Duration, t Transfer) (moved int64) {
	n.goTo(now)
	f := n.flow(t)
	if f == nil {
		return 0
	}
	if f.moving {
		f.settle(n.now)
		moved = f.bytes - f.left.bytesUp()
	}
	heap.Remove(&n.agenda, f.index)
	n.end(f, moved)
	n.share()
	return moved
}

// Next is when the next transfer ends or begins to move, Never when none does. It is now or earlier when Advance has any to
// tell of.
func (n *Network) Next() time.Duration {
	if len(n.ended) > 0 {
		return n.endedAt
	}
	if len(n.agenda) > 0 {
		return n.agenda[0].at
	}
	return Never
}

// Advance returns the transfers that have ended by now and were not told of before: in order of their ends, and at one time
// of their starts. The slice is good until the next call.
func (n *Network) Advance(now time.Duration) []Transfer {
	n.goTo(now)
	n.ended, n.told = n.told[:0], n.ended
	return n.told
}

// Link returns what a link has done by the last time given.
func (n *Network) Link(id ID) Stats {
	l := &n.links[id]
	return Stats{Name: l.name, Rate: l.bytesS, Bytes: l.bytes, Busy: l.busyBy(n.now)}
}

// Busy is the time for which anything has moved over a link by now, before which nothing starts, ends or is cancelled any more.
func (n *Network) Busy(now time.Duration, id ID) time.Duration {
	return n.links[id].busyBy(max(now, n.now))
}

// busyBy is the time for which anything moved, by now.
func (l *link) busyBy(now time.Duration) time.Duration {
	if l.moving > 0 {
		return l.busy + now - l.since
	}
	return l.busy
}

// goTo lets happen what happens by now.
func (n *Network) goTo(now time.Duration) {
	for len(n.agenda) > 0 && n.agenda[0].at <= now && n.agenda[0].at < Never {
		n.step()
	}
	n.now = max(n.now, now)
}

// step goes on to the next time at which a transfer ends or begins to move, and lets all that do, in order of their starts.
func (n *Network) step() {
	n.now = n.agenda[0].at
	if len(n.ended) == 0 {
		n.endedAt = n.now
	}
	for len(n.agenda) > 0 && n.agenda[0].at == n.now {
		f := n.agenda[0]
		if !f.moving && len(f.over) > 0 {
			n.begin(f)
			continue
		}
		heap.Pop(&n.agenda)
		n.ended = append(n.ended, f.transfer())
		n.end(f, f.bytes)
	}
	n.share()
}

// begin lets a transfer move, once it gets a share.
func (n *Network) begin(f *flow) {
	f.moving, f.left, f.since = true, workOf(f.bytes), n.now
	f.at = Never
	heap.Fix(&n.agenda, f.index)
	for _, id := range f.over {
		l := &n.links[id]
		if l.moving == 0 {
			l.since = n.now
		}
		l.moving++
	}
	n.changed = append(n.changed, f.over...)
}

// end takes a transfer that has moved the given bytes off its links.
func (n *Network) end(f *flow, moved int64) {
	for _, id := range f.over {
		l := &n.links[id]
		l.bytes += moved
		if i := slices.Index(l.flows, f); i >= 0 {
			last := len(l.flows) - 1
			l.flows[i] = l.flows[last]
			l.flows = l.flows[:last]
		}
		if f.moving {
			l.busy = l.busyBy(n.now)
			l.since = n.now
			l.moving--
		}
	}
	if f.moving {
		n.changed = append(n.changed, f.over...)
	}
	n.idle = append(n.idle, f)
	f.serial, f.moving, f.rate, f.over = 0, false, 0, f.over[:0]
}
