package engine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
)

// borrower is what a machine needs beside that it can have KV from outside: quick and oracle have it.
type borrower interface {
	machine
	useSource(s *Source)
	Landed(now time.Duration, r *Request, tokens int32)
	Prefetch(now time.Duration, r *Request, until time.Duration, began func(now time.Duration, tokens int32))
	hold(id int, path []trace.Span, limit int32)
	letGo(now time.Duration, id int)
}

// quick is an Engine as a borrower.
type quick struct {
	*Engine
	held map[int]reading
}

// reading is what a hold keeps.
type reading struct {
	pin    *kvcache.Pin
	blocks int
}

func (q *quick) useSource(s *Source) { q.Source = s }

func (q *quick) hold(id int, path []trace.Span, limit int32) {
	pin, blocks := q.Hold(q.kv.Now, path, limit)
	q.held[id] = reading{pin, blocks}
}

func (q *quick) letGo(now time.Duration, id int) {
	q.LetGo(now, q.held[id].pin, q.held[id].blocks)
	delete(q.held, id)
}

// lies is what a workload finds outside of the cache.
type lies struct {
	// spans lie there all the time. At least least tokens of them are brought at once.
	spans []trace.Span
	least int32
	// slow bounds the time that a load takes, and one of failing comes to nothing; 0 lets none.
	slow    time.Duration
	failing uint64
	seed    uint64

	prefetches []prefetch
	holds      []hold
}

// prefetch is a call of Engine.Prefetch.
type prefetch struct {
	at      time.Duration
	path    []trace.Span
	tokens  int32
	session uint64
	rank    int64
	until   time.Duration
}

// hold is a call of Engine.Hold, at the first step boundary from a time on, and one of LetGo.
type hold struct {
	at, until time.Duration
	path      []trace.Span
	limit     int32
}

// outside is the lies of a workload at work for one machine.
type outside struct {
	*lies
	size    int32
	machine borrower
	lying   map[slot]bool
	loads   []*bringing
	serial  uint64
	tries   map[*Request]uint64
	log     []happening // of prefetches
}

// bringing is a load under way.
type bringing struct {
	*Request
	from, to int32 // blocks
	ends     time.Duration
	tokens   int32 // with which it ends
	serial   uint64
	joined   []*Request
}

func newOutside(w *workload, m borrower) *outside {
	o := &outside{lies: w.outside, size: int32(w.kv.BlockSize), machine: m, lying: map[slot]bool{}, tries: map[*Request]uint64{}}
	for _, s := range o.spans {
		for at := s.From; at < s.To; at++ {
			o.lying[slot{s.Key, at}] = true
		}
	}
	m.useSource(&Source{Reach: o.reach, Load: o.load, Cancel: o.cancel})
	return o
}

func (o *outside) reach(now time.Duration, r *Request, hits, limit int32) (tokens int32, coming bool) {
	if hits >= limit {
		return 0, false
	}
	for _, l := range o.loads {
		if hits >= l.from && hits < l.to && slotAt(l.Path, hits) == slotAt(r.Path, hits) {
			l.joined = append(l.joined, r)
			return 0, true
		}
	}
	to := hits
	for to < limit && o.lying[slotAt(r.Path, to)] {
		to++
	}
	if (to-hits)*o.size < o.least {
		return 0, false
	}
	return to * o.size, false
}

func (o *outside) load(now time.Duration, r *Request, from, to int32) {
	o.serial++
	o.tries[r]++
	dice := hash.Combine(o.seed, hash.Combine(uint64(r.ID), o.tries[r]))
	l := &bringing{Request: r, from: from / o.size, to: to / o.size, ends: now + time.Duration(dice%uint64(o.slow)), tokens: to, serial: o.serial}
	if o.failing > 0 && dice>>32%o.failing == 0 {
		l.tokens -= o.size
	}
	o.loads = append(o.loads, l)
	slices.SortFunc(o.loads, func(a, b *bringing) int {
		return cmp.Or(cmp.Compare(a.ends, b.ends), cmp.Compare(a.serial, b.serial))
	})
}

func (o *outside) cancel(now time.Duration, r *Request) {
	for _, l := range o.loads {
		l.joined = slices.DeleteFunc(l.joined, func(j *Request) bool { return j == r })
	}
	if i := slices.IndexFunc(o.loads, func(l *bringing) bool { return l.Request == r }); i >= 0 {
		o.end(now, i)
	}
}

func (o *outside) end(now time.Duration, i int) *bringing {
	l := o.loads[i]
	o.loads = slices.Delete(o.loads, i, i+1)
	for _, r := range l.joined {
		o.machine.Landed(now, r, 0)
	}
	return l
}

func (o *outside) next() time.Duration {
	if o == nil || len(o.loads) == 0 {
		return Never
	}
	return o.loads[0].ends
}

// advance lets the loads land that end now.
func (o *outside) advance(now time.Duration) {
	for o.next() == now {
		l := o.end(now, 0)
		o.machine.Landed(now, l.Request, l.tokens)
	}
}

func (o *outside) prefetch(now time.Duration, i int) {
	p := &o.prefetches[i]
	r := &Request{ID: int32(-1 - i), Session: p.session, Path: p.path, Input: p.tokens, Rank: p.rank}
	o.machine.Prefetch(now, r, p.until, func(now time.Duration, tokens int32) {
		o.log = append(o.log, happening{now, r.ID, "is brought", tokens, 0})
	})
}

// randomOutsideWorkload is a workload of vLLM or TensorRT-LLM of whose prompts some lie outside.
func randomOutsideWorkload(seed uint64) *workload {
	w := randomWorkload(seed)
	if seed%5 == 0 {
		w = randomDraftsWorkload(seed)
	}
	w.kv.PrefixCaching = true
	r := rand.New(rand.NewPCG(seed, 5))
	o := &lies{seed: r.Uint64(), slow: time.Duration(1 + r.Int64N(int64(60*time.Millisecond))), least: int32(r.IntN(3) * r.IntN(6)), failing: uint64(r.IntN(5))}
	w.outside = o
	paths := make([][]trace.Span, len(w.requests))
	for i := range w.requests {
		paths[i] = w.requests[i].path
		w.requests[i].session = uint64(1 + i%4)
		if r.IntN(2) == 0 {
			continue
		}
		for _, s := range paths[i] {
			from := s.From
			if r.IntN(4) == 0 {
				from += int32(r.IntN(int(s.To - s.From)))
			}
			o.spans = append(o.spans, trace.Span{Key: s.Key, From: from, To: s.To})
			if r.IntN(4) == 0 {
				break
			}
		}
	}
	slow := newTwin(w, costs[w.cost])
	if _, err := play(slow, w, nil, func(time.Duration) error { return nil }); err != nil {
		return w
	}
	some := func() time.Duration { return randomTime(r, slow.diary().ends) }
	for range r.IntN(4) {
		path := paths[r.IntN(len(paths))]
		most := path[len(path)-1].To * int32(w.kv.BlockSize)
		p := prefetch{at: some(), path: path, tokens: 1 + int32(r.IntN(int(most))), session: uint64(1 + r.IntN(4)), rank: int64(r.IntN(3))}
		p.until = p.at + time.Duration(r.Int64N(int64(200*time.Millisecond)))
		o.prefetches = append(o.prefetches, p)
	}
	for range r.IntN(3) {
		path := paths[r.IntN(len(paths))]
		h := hold{at: some(), path: path, limit: 1 + int32(r.IntN(int(path[len(path)-1].To)))}
		h.until = h.at + time.Duration(r.Int64N(int64(100*time.Millisecond)))
		o.holds = append(o.holds, h)
	}
	return w
}

func (o *lies) String() string {
	if o == nil {
		return ""
	}
	s := fmt.Sprintf("  outside lie %v, least %d, up to %v, one of %d fails, seed %#x\n", o.spans, o.least, o.slow, o.failing, o.seed)
	for _, p := range o.prefetches {
		s += fmt.Sprintf("  prefetch %+v\n", p)
	}
	for _, h := range o.holds {
		s += fmt.Sprintf("  hold %+v\n", h)
	}
	return s
}

// smaller are changes that each make the lies smaller.
func (o *lies) smaller() (all []func(*lies)) {
	for i := range slices.Backward(o.spans) {
		all = append(all, func(o *lies) { o.spans = slices.Delete(slices.Clone(o.spans), i, i+1) })
	}
	for i := range slices.Backward(o.prefetches) {
		all = append(all, func(o *lies) { o.prefetches = slices.Delete(slices.Clone(o.prefetches), i, i+1) })
	}
	for i := range slices.Backward(o.holds) {
		all = append(all, func(o *lies) { o.holds = slices.Delete(slices.Clone(o.holds), i, i+1) })
	}
	return append(all, func(o *lies) { o.failing = 0 }, func(o *lies) { o.least = 0 })
}
