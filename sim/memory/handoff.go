package memory

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// offer is a prompt that a rank has computed for a request of another, which is to read it. Until that is done the rank keeps
// its blocks (vLLM's NIXL connector: request_finished delays the freeing of blocks). Of a block that the prompt does not fill
// no account is kept.
type offer struct {
	from   *rank
	tokens int32 // all but the prompt's last, which the reader computes again for its first token
	held   *kvcache.Pin
	holds  int
}

// Offer keeps what a rank has computed of a request's prompt until the engine to which the request goes has read it: what its
// own cache has not, whatever tiers have. If the rank is lost before, the request finds what it finds elsewhere.
func (m *Memory) Offer(now time.Duration, rank int, q *engine.Request) {
	r := m.ranks[rank]
	if r.gone || q.Input < 2 {
		return
	}
	o := &offer{from: r, tokens: q.Input - 1}
	o.held, o.holds = r.engine.Hold(now, q.Path, q.Input/m.BlockSize)
	m.offers[q] = o
}

// Withdraw ends the offer to a request that has gone, or that had nothing to read.
func (m *Memory) Withdraw(now time.Duration, q *engine.Request) {
	if o := m.offers[q]; o != nil {
		delete(m.offers, q)
		m.letGo(now, o.from, o.held, o.holds)
	}
}

// loseOffers ends the offers of a rank that is gone.
func (m *Memory) loseOffers(now time.Duration, r *rank) {
	byID := func(a, b *engine.Request) int { return cmp.Compare(a.ID, b.ID) }
	for _, q := range slices.SortedFunc(maps.Keys(m.offers), byID) {
		if m.offers[q].from == r {
			m.Withdraw(now, q)
		}
	}
}

// read plans what a request reads of what it was offered.
func (m *Memory) read(p *plan, o *offer, hits int32) (tokens int32) {
	blocks := (o.tokens + m.BlockSize - 1) / m.BlockSize
	if o.tokens <= hits*m.BlockSize {
		return 0
	}
	p.tokens = o.tokens
	p.parts = append(p.parts, part{level: Peer, peer: o.from, from: hits, to: blocks})
	return o.tokens
}

// handOver starts the transfer of a part of what was offered to a request. At its end the reader is told, and the blocks are
// free again.
func (m *Memory) handOver(now time.Duration, r *rank, l *load, x part, what Transfer, arrived func(now time.Duration)) {
	o := m.offers[l.request]
	delete(m.offers, l.request)
	l.peers, l.handed = append(l.peers, x.peer), true
	l.release = append(l.release, func(now time.Duration) { m.letGo(now, o.from, o.held, o.holds) })
	what.Cause, what.From = Handoff, x.peer.at(GPU)
	l.moves = append(l.moves, m.move(now, what, x.to-x.from, m.Latency, func(end time.Duration) {
		if m.Handed != nil {
			m.Handed(end, l.request, now, x.to-x.from)
		}
		arrived(end)
	}, m.between(x.peer, r)...))
}
