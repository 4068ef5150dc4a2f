// Package memory models where KV lies beside the caches of the engines, and how it gets there and back: host memory, local
// drives and a pool for all workers, the links to them, and the GPUs of other workers.
//
// Each rank has tiers of its own but for the remote one, in the order in which they are asked. What a request finds in one
// of them is brought to the GPU over its links, from a drive by way of host memory; what the engine has computed is written
// to the first tier in the background, and from there to those below. Blocks are told by what they hold, so that none is
// written twice to a tier, and none is brought twice to a GPU at the same time.
package memory

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/sim/link"
	"github.com/agentsim/agentsim/trace"
)

// Tier is the size and the speed of a tier. Without blocks there is none.
type Tier struct {
	// Blocks is the capacity for one rank, of the remote tier for all.
	Blocks int
	// Read and Write are in bytes per second: of the host from and to the rank's GPUs, of a drive, and of the remote tier
	// for all ranks together.
	Read, Write float64
	// Latency comes before each transfer.
	Latency time.Duration
}

// Writing is when blocks are written to the first tier.
type Writing uint8

// The modes of writing.
const (
	// OnDemand writes only what it is told to.
	OnDemand Writing = iota
	// Through writes what a request has computed when its prefill ends, and when it ends.
	Through
	// Back writes blocks that the GPU evicts. The step that takes their place waits for that.
	Back
)

// Options describe the memory of a deployment.
type Options struct {
	// BlockSize is in tokens, BlockBytes the size of a block on all GPUs of a rank.
	BlockSize          int32
	BlockBytes         int64
	Host, Disk, Remote Tier
	// Network is the rate in bytes per second at which a rank sends to others, and to the remote tier, and as fast
	// receives; Near the rate between ranks of one node, which Node numbers. Latency comes before each transfer.
	Network, Near float64
	Latency       time.Duration
	Node          func(rank int) int

	Writing Writing
	// MinUses is how many requests must have had a block before it is written to the first tier, SpillUses before it is
	// written to those below (Through).
	MinUses, SpillUses int32
	// Decoded writes what was generated, and not just prompts (Through).
	Decoded bool
	// Chunk is how many blocks are written and found together, counted from the start of a prompt.
	Chunk int32
	// MinFetch is the fewest tokens that are brought from a tier below host memory.
	MinFetch int32
	// FromPeers brings blocks from the rank on which a session ran last.
	FromPeers bool
	// Worth, when set, tells whether it pays to bring tokens [from, to) of a prompt in the given time.
	Worth func(from, to, prompt int32, took time.Duration) bool
}

// Memory is the memory of a deployment at work. It is not safe for concurrent use.
type Memory struct {
	Options
	Stats Stats
	// Landed, when set, is told when what was brought for a request is there: how many tokens from where, and how long that
	// took. None have failed.
	Landed func(q *engine.Request, read [Levels]int32, took time.Duration)
	// Changed, when set, is told which blocks a tier of a rank holds now, or does not any more.
	Changed func(rank int, l Level, s trace.Span, held bool)
	// Ended, when set, is told of each transfer that has ended or was stopped.
	Ended func(now time.Duration, t Transfer)
	// Handed, when set, is told of each prompt that has come from the rank which computed it: of how many blocks were moved,
	// and since when.
	Handed func(now time.Duration, q *engine.Request, began time.Duration, blocks int32)

	net           link.Network
	ranks         []*rank
	links         []wire
	moving        map[link.Transfer]*moving
	carried       int64          // bytes, over each link that they took
	last          map[uint64]int // by session: the rank on which it ran last
	offers        map[*engine.Request]*offer
	touched, told []int // for Touched
}

// rank is the tiers and links of one engine.
type rank struct {
	number          int
	engine          *engine.Engine
	tiers           []tier
	up, down        link.ID // to and from the GPUs
	in, out         link.ID // from and to other nodes
	nearIn, nearOut link.ID // from and to other ranks of the node
	loads           []*load
	plan            plan                  // of the request that Reach was asked for last
	uses            map[trace.Key][]int32 // see Used
	departures      []*Departure
	lacks           []trace.Span // for reuse
	gone            bool         // its worker is lost
}

// tier is a store, the links to it beside the rank's own, and what the rank writes to it.
type tier struct {
	level       Level
	store       *kvcache.Store
	read, write []link.ID
	latency     time.Duration
	peak        int // of stores before this one, in blocks
	saves       []*save
}

// moving is a transfer under way, and what its end brings about.
type moving struct {
	Transfer
	hops int // links
	then func(now time.Duration)
}

// New returns the memory of the given engines, for which it is a source of KV from then on.
func New(o Options, engines []*engine.Engine) (*Memory, error) {
	m := &Memory{Options: o, moving: map[link.Transfer]*moving{}, last: map[uint64]int{}, offers: map[*engine.Request]*offer{}}
	m.Chunk = max(1, m.Chunk)
	remote, err := m.newTier(Remote, shared, o.Remote)
	if err != nil {
		return nil, err
	}
	for i, e := range engines {
		r := &rank{number: i, engine: e, uses: map[trace.Key][]int32{}}
		m.ranks = append(m.ranks, r)
		if err := m.connect(r, remote); err != nil {
			return nil, err
		}
		e.Source = &engine.Source{
			Reach: func(now time.Duration, q *engine.Request, hits, limit int32) (int32, bool) {
				return m.reach(r, q, hits, limit)
			},
			Load:   func(now time.Duration, q *engine.Request, from, to int32) { m.load(now, r, q) },
			Cancel: func(now time.Duration, q *engine.Request) { m.cancel(now, r, q) },
		}
	}
	return m, nil
}

// connect makes the links and the tiers of a rank. The remote tier is everybody's.
func (m *Memory) connect(r *rank, remote *tier) error {
	for _, l := range []struct {
		id   *link.ID
		name string
		rate float64
	}{{&r.up, "host to GPU", m.Host.Read}, {&r.down, "GPU to host", m.Host.Write},
		{&r.in, "network in", m.Network}, {&r.out, "network out", m.Network},
		{&r.nearIn, "node in", m.Near}, {&r.nearOut, "node out", m.Near}} {
		var err error
		if *l.id, err = m.newLink(r.number, l.name, l.rate); err != nil {
			return err
		}
	}
	host, err := m.newTier(Host, r.number, Tier{Blocks: m.Host.Blocks, Latency: m.Host.Latency})
	if err != nil {
		return err
	}
	disk, err := m.newTier(Disk, r.number, m.Disk)
	if err != nil {
		return err
	}
	for _, t := range []*tier{host, disk} {
		if t != nil {
			r.tiers = append(r.tiers, *t)
		}
	}
	if remote != nil {
		r.tiers = append(r.tiers, tier{level: Remote, store: remote.store, latency: remote.latency,
			read: append([]link.ID{r.in}, remote.read...), write: append([]link.ID{r.out}, remote.write...)})
	}
	return nil
}

// newTier makes a store, and where the tier has rates of its own the links to it; nil where there are no blocks.
func (m *Memory) newTier(level Level, rank int, t Tier) (*tier, error) {
	if t.Blocks == 0 {
		return nil, nil
	}
	store, err := kvcache.NewStore(t.Blocks)
	if err != nil {
		return nil, fmt.Errorf("the %s tier: %w", level, err)
	}
	out := &tier{level: level, store: store, latency: t.Latency}
	if t.Read > 0 {
		read, err := m.newLink(rank, level.String()+" reads", t.Read)
		if err != nil {
			return nil, err
		}
		write, err := m.newLink(rank, level.String()+" writes", t.Write)
		if err != nil {
			return nil, err
		}
		out.read, out.write = []link.ID{read}, []link.ID{write}
	}
	return out, nil
}

func (m *Memory) newLink(rank int, kind string, rate float64) (link.ID, error) {
	name := kind
	if rank != shared {
		name = fmt.Sprintf("worker %d %s", rank, kind)
	}
	id, err := m.net.Add(name, rate)
	m.links = append(m.links, wire{rank, kind, id})
	return id, err
}

// Next is when something happens next, link.Never if nothing does.
func (m *Memory) Next() time.Duration { return m.net.Next() }

// Advance lets happen what happens by now.
func (m *Memory) Advance(now time.Duration) {
	for _, t := range m.net.Advance(now) {
		x := m.moving[t]
		delete(m.moving, t)
		m.carried += x.Bytes * int64(x.hops)
		m.Stats.moved(x.Cause, x.Bytes, now-x.Began)
		m.ended(now, x)
		x.then(now)
	}
}

// Touched returns, since the last call, the ranks whose engines were told something, in order. Their steps may end sooner
// than they were to, and they may have more to do. The slice is reused.
func (m *Memory) Touched() []int {
	slices.Sort(m.touched)
	m.told, m.touched = m.touched, m.told[:0]
	return m.told
}

// move begins a transfer of so many blocks. Then is called at its end.
func (m *Memory) move(now time.Duration, what Transfer, blocks int32, latency time.Duration, then func(now time.Duration), over ...link.ID) link.Transfer {
	what.Began, what.Bytes = now, int64(blocks)*m.BlockBytes
	t := m.net.Start(now, what.Bytes, latency, over...)
	m.moving[t] = &moving{what, len(over), then}
	return t
}

// stop ends a transfer before it is done.
func (m *Memory) stop(now time.Duration, t link.Transfer) {
	if x := m.moving[t]; x != nil {
		delete(m.moving, t)
		x.Bytes, x.Stopped = m.net.Cancel(now, t), true
		m.carried += x.Bytes * int64(x.hops)
		m.Stats.stopped(x.Cause, x.Bytes, now-x.Began)
		m.ended(now, x)
	}
}

func (m *Memory) ended(now time.Duration, x *moving) {
	if m.Ended != nil {
		m.Ended(now, x.Transfer)
	}
}

// touch notes that a rank's engine has something to look at.
func (m *Memory) touch(r *rank) {
	if !slices.Contains(m.touched, r.number) {
		m.touched = append(m.touched, r.number)
	}
}

func (m *Memory) changed(r *rank, l Level, s trace.Span, held bool) {
	if m.Changed != nil && !r.gone {
		m.Changed(r.number, l, s, held)
	}
}

// Ran notes that a session's request runs on a rank.
func (m *Memory) Ran(session uint64, rank int) { m.last[session] = rank }

// Inherit lets a session that has not run yet find what another left where that ran.
func (m *Memory) Inherit(session, from uint64) {
	if rank, ok := m.last[from]; ok {
		m.last[session] = rank
	}
}

// Forget forgets a session that has ended.
func (m *Memory) Forget(session uint64) { delete(m.last, session) }
