package memory

import (
	"math"
	"time"

	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace"
)

// Place is a level of a rank. The remote tier's rank is negative: it is everybody's.
type Place struct {
	Rank  int
	Level Level
}

// Transfer is KV that moves, or has moved, from one place to another.
type Transfer struct {
	Cause    Cause
	From, To Place
	// Session is whose KV it is, or Nobody. Request is the one for which it is brought; nil where it is written.
	Session uint64
	Request *engine.Request
	// Bytes is what is to move, and of one that was stopped what has moved since Began.
	Bytes   int64
	Began   time.Duration
	Stopped bool
}

// Nobody is the session of KV that is no session's, such as what was evicted. Keys of sessions do not reach so far.
const Nobody uint64 = math.MaxInt64

// at is a level of the rank.
func (r *rank) at(l Level) Place {
	if l == Remote {
		return Place{shared, l}
	}
	return Place{r.number, l}
}

// Here is how many blocks of a path lie in the tiers of a rank, by level, wherever they lie on the path.
func (m *Memory) Here(rank int, path []trace.Span) (blocks [Levels]int) {
	for i := range m.ranks[rank].tiers {
		t := &m.ranks[rank].tiers[i]
		blocks[t.level] = t.store.Here(path)
	}
	return blocks
}

// EachTier calls f with each tier's place and the blocks that it holds or that are on their way to it.
func (m *Memory) EachTier(f func(at Place, used int)) {
	m.eachTier(func(r *rank, t *tier) { f(r.at(t.level), t.store.Used()) })
}

// EachLink calls f with each link, whose place is that of a Place, and the time for which it was busy by now, before which
// nothing happens any more.
func (m *Memory) EachLink(now time.Duration, f func(rank int, kind string, busy time.Duration)) {
	for _, w := range m.links {
		f(w.rank, w.kind, m.net.Busy(now, w.id))
	}
}
