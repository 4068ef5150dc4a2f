package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/sim/link"
	"github.com/agentsim/agentsim/trace"
)

// Computed notes that a rank has computed the first tokens of a session's path, prompt of them the prompt's. It may write
// them to the tiers.
func (m *Memory) Computed(now time.Duration, rank int, session uint64, path []trace.Span, tokens, prompt int32) {
	r := m.ranks[rank]
	if m.Writing != Through || len(r.tiers) == 0 || r.gone {
		return
	}
	if !m.Decoded {
		tokens = min(tokens, prompt)
	}
	blocks := tokens / m.BlockSize
	m.save(now, r, session, path, r.used(path, blocks, m.MinUses), Offload)
	if m.SpillUses > 1 {
		m.spill(now, r, session, 0, r.here(path, r.used(path, blocks, m.SpillUses)))
	}
}

// maxUses bounds the nodes of a rank whose uses are counted.
const maxUses = 1 << 20

// Used notes that a request has had the first tokens of a path on a rank; Computed follows. Of each node the rank keeps how
// far the requests came that got farthest, the farthest first, as many as matter.
func (m *Memory) Used(rank int, path []trace.Span, tokens int32) {
	most := int(max(m.MinUses, m.SpillUses))
	if most <= 1 {
		return
	}
	r, blocks := m.ranks[rank], tokens/m.BlockSize
	if len(r.uses) > maxUses {
		clear(r.uses)
	}
	for _, s := range path {
		to := min(s.To, blocks)
		if to <= s.From {
			break
		}
		reached := r.uses[s.Key]
		i, _ := slices.BinarySearchFunc(reached, to, func(have, to int32) int { return cmp.Compare(to, have) })
		reached = slices.Insert(reached, i, to)
		r.uses[s.Key] = reached[:min(len(reached), most)]
	}
}

// used is how many of the first blocks of a path so many requests have had.
func (r *rank) used(path []trace.Span, blocks, requests int32) int32 {
	if requests <= 1 {
		return blocks
	}
	enough := int32(0)
	for _, s := range path {
		reached := r.uses[s.Key]
		if s.From != enough || s.From >= blocks || len(reached) < int(requests) {
			break
		}
		enough = min(s.To, blocks, reached[requests-1])
	}
	return enough
}

// here is the spans of the first blocks of a path, as far as the first tier has them.
func (r *rank) here(path []trace.Span, blocks int32) []trace.Span {
	var spans []trace.Span
	to := r.tiers[0].store.Find(path, 0, blocks)
	for _, s := range path {
		if s.From < to {
			s.To = min(s.To, to)
			spans = append(spans, s)
		}
	}
	return spans
}

// Evicted notes that a rank's GPUs have lost blocks. It returns for how long the step that took their place waits until
// they are written, if no other transfer begins meanwhile.
func (m *Memory) Evicted(now time.Duration, rank int, spans []trace.Span) time.Duration {
	r := m.ranks[rank]
	if m.Writing != Back || len(r.tiers) == 0 || r.gone {
		return 0
	}
	s := &save{session: Nobody, tier: &r.tiers[0], cause: Offload}
	for _, span := range spans {
		s.expect([]trace.Span{span}, span.From, span.To)
	}
	if s.blocks == 0 {
		return 0
	}
	s.tier.saves = append(s.tier.saves, s)
	m.spillEvicted(now, r, 0)
	m.begin(now, r, s)
	return m.net.Eta(now, s.moving) - now
}

// save is blocks on their way to a tier of a rank. One moves at a time, and the others wait, but for those for which a step
// waits.
type save struct {
	session uint64 // whose they are, or Nobody
	tier    *tier
	level   int // of the tier, among those of the rank
	cause   Cause
	spans   []trace.Span
	joins   []int // where in spans those begin that have joined it while it waited
	blocks  int32
	begun   bool
	moving  link.Transfer
	held    *kvcache.Pin // on the GPU, with so many blocks
	holds   int
}

// expect makes room for those blocks of a path that the tier has not, and that are not on their way to it.
func (s *save) expect(path []trace.Span, from, to int32) {
	s.reserve(s.tier.store.Lacks(path, from, to, nil))
}

// reserve makes room for blocks that the tier lacks, as far as there is any.
func (s *save) reserve(lacks []trace.Span) {
	for _, lack := range lacks {
		if n := s.tier.store.Expect(lack); n > 0 {
			lack.To = lack.From + n
			s.spans = append(s.spans, lack)
			s.blocks += n
		}
	}
}

// arrive lets the tier have the blocks. What comes last on a path is the first to be evicted.
func (m *Memory) arrive(r *rank, s *save) {
	from := 0
	for _, to := range append(s.joins, len(s.spans)) {
		for _, span := range slices.Backward(s.spans[from:to]) {
			s.tier.store.Arrive(span)
			m.changed(r, s.tier.level, span, true)
		}
		from = to
	}
}

// save writes what a rank's cache has of the first blocks of a path, and its first tier has not. They stay on the GPU until
// they are written.
func (m *Memory) save(now time.Duration, r *rank, session uint64, path []trace.Span, blocks int32, c Cause) {
	if r.gone {
		return
	}
	blocks -= blocks % m.Chunk
	s := &save{session: session, tier: &r.tiers[0], cause: c}
	if r.lacks = s.tier.store.Lacks(path, 0, blocks, r.lacks[:0]); len(r.lacks) == 0 {
		s.tier.store.Touch(path, 0, blocks)
		return
	}
	s.held, s.holds = r.engine.Hold(now, path, blocks)
	s.reserve(upTo(r.lacks, int32(s.holds)))
	if s.blocks == 0 {
		r.engine.LetGo(now, s.held, s.holds)
		return
	}
	m.queue(now, r, s)
}

// upTo is those of the blocks of spans, which are in order of a path, that come before a block. It changes the spans.
func upTo(spans []trace.Span, block int32) []trace.Span {
	for i := range spans {
		if spans[i].From >= block {
			return spans[:i]
		}
		spans[i].To = min(spans[i].To, block)
	}
	return spans
}

// queue begins a save when those to its tier before it have ended.
func (m *Memory) queue(now time.Duration, r *rank, s *save) {
	s.tier.saves = append(s.tier.saves, s)
	m.spillEvicted(now, r, s.level)
	if s.tier.saves[0] == s {
		m.begin(now, r, s)
	}
}

// begin moves the blocks of a save, and when they have come to the first tier those below.
func (m *Memory) begin(now time.Duration, r *rank, s *save) {
	over := s.tier.write
	what := Transfer{Cause: s.cause, From: r.at(GPU), To: r.at(s.tier.level), Session: s.session}
	if s.level == 0 {
		over = append([]link.ID{r.down}, over...)
	} else {
		what.From = r.at(r.tiers[s.level-1].level)
	}
	s.begun = true
	s.moving = m.move(now, what, s.blocks, s.tier.latency, func(now time.Duration) {
		i := slices.Index(s.tier.saves, s)
		s.tier.saves = slices.Delete(s.tier.saves, i, i+1)
		m.free(now, r, s)
		m.arrive(r, s)
		if s.level == 0 {
			m.depart(now, r)
		}
		if m.Writing == Through && (s.level > 0 || m.SpillUses <= 1) {
			m.spill(now, r, s.session, s.level, s.spans)
		}
		if waiting := s.tier.saves; len(waiting) > 0 && !waiting[0].begun {
			m.begin(now, r, waiting[0])
		}
	}, over...)
}

// free lets the GPU have the blocks of a save again.
func (m *Memory) free(now time.Duration, r *rank, s *save) {
	if s.held != nil {
		m.letGo(now, r, s.held, s.holds)
	}
}

// letGo lets the GPUs of a rank have blocks again that were read.
func (m *Memory) letGo(now time.Duration, r *rank, held *kvcache.Pin, blocks int) {
	r.engine.LetGo(now, held, blocks)
	m.touch(r)
}

// spill writes what a tier has got to the one below it, together with what waits for that.
func (m *Memory) spill(now time.Duration, r *rank, session uint64, from int, spans []trace.Span) {
	if from+1 >= len(r.tiers) {
		return
	}
	t := &r.tiers[from+1]
	s := &save{session: session, tier: t, level: from + 1, cause: Spill}
	if n := len(t.saves) - 1; n >= 0 && !t.saves[n].begun {
		if s = t.saves[n]; s.session != session {
			s.session = Nobody
		}
		s.joins = append(s.joins, len(s.spans))
	}
	before := s.blocks
	for _, span := range spans {
		s.expect([]trace.Span{span}, span.From, span.To)
	}
	switch {
	case before > 0:
		m.spillEvicted(now, r, s.level)
	case s.blocks > 0:
		m.queue(now, r, s)
	}
}

// spillEvicted writes what a tier has lost to the one below it, where that is not done before. It passes through a buffer.
func (m *Memory) spillEvicted(now time.Duration, r *rank, from int) {
	evicted := r.tiers[from].store.DrainEvicted()
	for _, span := range evicted {
		m.changed(r, r.tiers[from].level, span, false)
	}
	if m.Writing != Through && len(evicted) > 0 {
		m.spill(now, r, Nobody, from, slices.Clone(evicted))
	}
}

// Lose empties a rank that is gone: its tiers, and what is on its way to and from them. Loads of others from it fail, so that
// what they were for is computed. Its own requests are cancelled by whoever has sent them.
func (m *Memory) Lose(now time.Duration, rank int) {
	r := m.ranks[rank]
	r.gone = true
	for i := range r.tiers {
		t := &r.tiers[i]
		saves := t.saves
		t.saves = nil
		for _, s := range saves {
			m.stop(now, s.moving)
			m.free(now, r, s)
			for _, span := range s.spans {
				t.store.Forget(span)
			}
		}
	}
	r.departures = nil
	clear(r.uses)
	m.loseOffers(now, r)
	for _, other := range m.ranks {
		for _, l := range slices.Clone(other.loads) {
			if other == r || slices.Contains(l.peers, r) {
				m.fail(now, other, l)
			}
		}
	}
	for i := range r.tiers {
		if t := &r.tiers[i]; t.level != Remote {
			t.peak = max(t.peak, t.store.Peak())
			t.store, _ = kvcache.NewStore(t.store.Capacity()) // which was valid before
		}
	}
}

// Regain brings a rank back, with nothing in its tiers.
func (m *Memory) Regain(rank int) { m.ranks[rank].gone = false }
