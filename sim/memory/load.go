package memory

import (
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/link"
	"github.com/agentsim/agentsim/trace"
)

// load is blocks on their way to a GPU for a request.
type load struct {
	request *engine.Request
	path    []trace.Span
	since   time.Duration
	read    [Levels]int32 // tokens that come
	from    int32         // the first block
	tokens  int32         // that will be there then
	open    int           // parts that are not there yet
	moves   []link.Transfer
	release []func(now time.Duration) // what is read
	peers   []*rank                   // from which
	waiting []*engine.Request
	handed  bool // from the rank that computed it for the request
}

// plan is what a request can have brought.
type plan struct {
	tokens int32
	parts  []part
}

// part is a run of blocks [from, to) that one level has.
type part struct {
	level    Level
	tier     *tier
	peer     *rank
	from, to int32
}

// reach is the Reach of a rank's Source.
func (m *Memory) reach(r *rank, q *engine.Request, hits, limit int32) (tokens int32, coming bool) {
	p := &r.plan
	*p = plan{parts: p.parts[:0]}
	if r.gone {
		return 0, false
	}
	if l := r.coming(q.Path, hits, limit, m.BlockSize); l != nil {
		if !q.Guest() {
			l.waiting = append(l.waiting, q)
		}
		return 0, true
	}
	if o := m.offers[q]; o != nil {
		return m.read(p, o, hits), false
	}
	at := hits
	for at < limit {
		x := m.find(r, q, at, limit)
		if x.to <= at || (x.level == Disk || x.level == Remote) && (x.to-at)*m.BlockSize < m.MinFetch {
			break
		}
		p.parts = append(p.parts, x)
		at = x.to
	}
	if at%m.Chunk != 0 {
		at -= at % m.Chunk
		for n := len(p.parts); n > 0 && p.parts[n-1].from >= at; n-- {
			p.parts = p.parts[:n-1]
		}
		if n := len(p.parts); n > 0 {
			p.parts[n-1].to = min(p.parts[n-1].to, at)
		}
	}
	tokens = at * m.BlockSize
	gain := (at - hits) * m.BlockSize
	if gain <= 0 || m.Worth != nil && !m.Worth(hits*m.BlockSize, tokens, q.Input, m.took(r, p.parts)) {
		return 0, false
	}
	p.tokens = tokens
	return tokens, false
}

// coming is a load under way that brings any of blocks [from, to) of the path.
func (r *rank) coming(path []trace.Span, from, to, blockSize int32) *load {
	for _, l := range r.loads {
		at := max(from, l.from)
		if at >= min(to, l.tokens/blockSize) {
			continue
		}
		a, ok := keyAt(path, at)
		if b, _ := keyAt(l.path, at); ok && a == b {
			return l
		}
	}
	return nil
}

// keyAt is the node in which block number at of a path lies.
func keyAt(path []trace.Span, at int32) (trace.Key, bool) {
	for i := range path {
		if at < path[i].To {
			return path[i].Key, true
		}
	}
	return 0, false
}

// find returns the run of blocks from number at on that the first level has that has any.
func (m *Memory) find(r *rank, q *engine.Request, at, limit int32) part {
	for i := range r.tiers {
		t := &r.tiers[i]
		if to := t.store.Find(q.Path, at, limit); to > at {
			return part{level: t.level, tier: t, from: at, to: to}
		}
	}
	if last, ok := m.last[q.Session]; m.FromPeers && ok && last != r.number && !m.ranks[last].gone {
		peer := m.ranks[last]
		if to := peer.engine.Cached(q.Path, limit); to > at {
			return part{level: Peer, peer: peer, from: at, to: to}
		}
		if len(peer.tiers) > 0 && peer.tiers[0].level == Host {
			t := &peer.tiers[0]
			if to := t.store.Find(q.Path, at, limit); to > at {
				return part{level: Peer, tier: t, peer: peer, from: at, to: to}
			}
		}
	}
	return part{}
}

// took is how long the parts of a plan take to a rank, one after the other, over links that nothing else uses.
func (m *Memory) took(r *rank, parts []part) time.Duration {
	sum := time.Duration(0)
	for _, x := range parts {
		over := func(latency time.Duration, rate float64) {
			sum += latency + time.Duration(float64(x.to-x.from)*float64(m.BlockBytes)/rate*1e9)
		}
		switch {
		case x.level == Peer && x.tier == nil && m.Node(x.peer.number) == m.Node(r.number):
			over(m.Latency, m.Near)
		case x.level == Peer:
			over(m.Latency, m.Network)
		case x.tier.read == nil:
			over(x.tier.latency, m.Host.Read)
		default:
			slowest := math.Inf(1)
			for _, id := range x.tier.read {
				slowest = min(slowest, m.net.Link(id).Rate)
			}
			over(x.tier.latency, slowest)
			over(m.Host.Latency, m.Host.Read)
		}
	}
	return sum
}

// load carries out the plan made for a request: the Load of a rank's Source.
func (m *Memory) load(now time.Duration, r *rank, q *engine.Request) {
	p := &r.plan
	l := &load{request: q, path: q.Path, since: now, from: p.parts[0].from, tokens: p.tokens}
	r.loads = append(r.loads, l)
	cause := Fetch
	if q.Guest() {
		cause = Prefetch
	}
	for _, x := range p.parts {
		m.bring(now, r, l, x, cause)
	}
}

// bring starts the transfers of a part.
func (m *Memory) bring(now time.Duration, r *rank, l *load, x part, cause Cause) {
	l.open++
	blocks := x.to - x.from
	l.read[x.level] += blocks * m.BlockSize
	if x.tier != nil {
		x.tier.store.Hold(l.path, x.from, x.to)
		l.release = append(l.release, func(time.Duration) { x.tier.store.Release(l.path, x.from, x.to) })
	}
	what := Transfer{Cause: cause, From: r.at(x.level), To: r.at(GPU), Session: l.request.Session, Request: l.request}
	arrived := func(now time.Duration) {
		m.Stats.Read[x.level] += int64(blocks) * int64(m.BlockSize)
		m.Stats.Loads[x.level]++
		if l.open--; l.open == 0 {
			m.landed(now, r, l, l.tokens)
		}
	}
	switch {
	case m.offers[l.request] != nil:
		m.handOver(now, r, l, x, what, arrived)
	case x.level == Peer:
		m.fromPeer(now, r, l, x, what, arrived)
	case x.tier.read == nil:
		l.moves = append(l.moves, m.move(now, what, blocks, x.tier.latency, arrived, r.up))
	default: // by way of the host's memory, where it stays if there is room for it
		staged := func(now time.Duration) {
			m.stage(now, r, l.path, x)
			up := what
			up.From = r.at(Host)
			l.moves = append(l.moves, m.move(now, up, blocks, m.Host.Latency, arrived, r.up))
		}
		in := what
		in.To = r.at(Host)
		l.moves = append(l.moves, m.move(now, in, blocks, x.tier.latency, staged, x.tier.read...))
	}
}

// fromPeer starts the transfer of what another rank has, on its GPUs or in its host's memory.
func (m *Memory) fromPeer(now time.Duration, r *rank, l *load, x part, what Transfer, arrived func(now time.Duration)) {
	what.From = x.peer.at(GPU)
	l.peers = append(l.peers, x.peer)
	over := []link.ID{x.peer.out, r.in}
	if x.tier != nil {
		what.From = x.peer.at(Host)
	} else {
		over = m.between(x.peer, r)
		held, n := x.peer.engine.Hold(now, l.path, x.to)
		l.release = append(l.release, func(now time.Duration) { m.letGo(now, x.peer, held, n) })
	}
	l.moves = append(l.moves, m.move(now, what, x.to-x.from, m.Latency, arrived, over...))
}

// between are the links from the GPUs of one rank to those of another.
func (m *Memory) between(from, to *rank) []link.ID {
	if m.Node(from.number) == m.Node(to.number) {
		return []link.ID{from.nearOut, to.nearIn}
	}
	return []link.ID{from.out, to.in}
}

// stage keeps what passes through the host's memory on its way up.
func (m *Memory) stage(now time.Duration, r *rank, path []trace.Span, x part) {
	if t := &r.tiers[0]; t.level == Host {
		s := &save{tier: t}
		s.expect(path, x.from, x.to)
		m.arrive(r, s)
		m.spillEvicted(now, r, 0)
	}
}

// landed ends a load that brought what it was to.
func (m *Memory) landed(now time.Duration, r *rank, l *load, tokens int32) {
	m.end(now, r, l)
	m.tell(now, l, l.read)
	r.engine.Landed(now, l.request, tokens)
}

// fail ends a load that brings nothing, though its request waits for it.
func (m *Memory) fail(now time.Duration, r *rank, l *load) {
	m.Stats.Failed++
	m.end(now, r, l)
	m.tell(now, l, [Levels]int32{})
	r.engine.Landed(now, l.request, 0)
}

// tell tells whoever asks of the end of a load.
func (m *Memory) tell(now time.Duration, l *load, read [Levels]int32) {
	if m.Landed != nil && !l.handed { // of those Handed tells
		m.Landed(l.request, read, now-l.since)
	}
}

// end stops what of a load still moves, and lets those try again that waited for it.
func (m *Memory) end(now time.Duration, r *rank, l *load) {
	r.loads = slices.DeleteFunc(r.loads, func(x *load) bool { return x == l })
	for _, t := range l.moves {
		m.stop(now, t)
	}
	for _, release := range l.release {
		release(now)
	}
	for _, q := range l.waiting {
		r.engine.Landed(now, q, 0)
	}
	m.touch(r)
}

// cancel ends the load of a request that has gone, or its waiting for one: the Cancel of a rank's Source.
func (m *Memory) cancel(now time.Duration, r *rank, q *engine.Request) {
	for _, l := range r.loads {
		l.waiting = slices.DeleteFunc(l.waiting, func(w *engine.Request) bool { return w == q })
	}
	if i := slices.IndexFunc(r.loads, func(l *load) bool { return l.request == q }); i >= 0 {
		m.Stats.Cancelled++
		m.end(now, r, r.loads[i])
	}
}
