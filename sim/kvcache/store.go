package kvcache

import (
	"fmt"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// Store is the KV blocks of a tier below the GPU: host memory, a drive, a pool that workers share. A block is there once. It
// comes in three states:
//
//   - on its way (Expect): it has its place and cannot be found yet. Arrive or Forget ends that.
//   - held (Hold): somebody reads it, so it is not evicted.
//   - free: in one queue by last use, from whose head it is evicted. Of a request's blocks the last is evicted first, as in a
//     Pool: without those before it, it could not be found.
//
// A Store costs nodes and not blocks, as a Pool does. It is not safe for concurrent use.
type Store struct {
	shelf    shelf // all blocks in one queue
	capacity int
	fresh    int // places that hold nothing
	kept     int // free blocks
	coming   int // blocks on their way
	peak     int // most blocks used
	evicted  []trace.Span
}

// NewStore returns an empty store. It fails when the number of blocks is out of range.
func NewStore(blocks int) (*Store, error) {
	if blocks < 1 || blocks > 1<<30 {
		return nil, fmt.Errorf("KV store of %d blocks: want 1 to %d", blocks, 1<<30)
	}
	return &Store{shelf: newShelf(), capacity: blocks, fresh: blocks}, nil
}

// Capacity is the number of blocks that the store has place for.
func (s *Store) Capacity() int { return s.capacity }

// Used is the number of blocks that are here or on their way.
func (s *Store) Used() int { return s.capacity - s.fresh }

// Peak is the most blocks that were here or on their way at a time, since RestartPeak.
func (s *Store) Peak() int { return s.peak }

// RestartPeak lets Peak count from now on.
func (s *Store) RestartPeak() { s.peak = s.Used() }

// Len is the number of blocks that are here.
func (s *Store) Len() int { return s.Used() - s.coming }

// Free is the number of blocks that Expect can take: places that hold nothing and blocks that nobody reads.
func (s *Store) Free() int { return s.fresh + s.kept }

// Find returns the block up to which, from block number from on, all of the path are here; at most limit, from when none is.
func (s *Store) Find(path []trace.Span, from, limit int32) int32 {
	at := from
	for i := range path {
		sp := &path[i]
		if sp.To <= at {
			continue
		}
		n := s.shelf.nodes[sp.Key]
		if n == nil || at >= limit {
			break
		}
		if at = min(n.upTo(at), sp.To); at < sp.To {
			break
		}
	}
	return max(from, min(at, limit))
}

// Here is how many blocks of the path are here, wherever on it.
func (s *Store) Here(path []trace.Span) int { return s.shelf.Here(path) }

// Lacks appends to buf the blocks [from, to) of the path that are neither here nor on their way, in order of the path.
func (s *Store) Lacks(path []trace.Span, from, to int32, buf []trace.Span) []trace.Span {
	for i := range path {
		key, at, end := path[i].Key, max(from, path[i].From), min(to, path[i].To)
		if n := s.shelf.nodes[key]; n != nil {
			for _, r := range n.runs {
				if r.from >= end {
					break
				}
				if at < r.from {
					buf = append(buf, trace.Span{Key: key, From: at, To: r.from})
				}
				at = max(at, r.to)
			}
		}
		if at < end {
			buf = append(buf, trace.Span{Key: key, From: at, To: end})
		}
	}
	return buf
}

// Expect gives blocks that are about to be written their places, for which it evicts what it must. It takes the leading ones
// that fit, up to the first that is here or on its way already, and returns how many. What lies before them on their path is
// evicted like anything else unless it is held.
func (s *Store) Expect(span trace.Span) (taken int32) {
	to := span.To
	if n := s.shelf.nodes[span.Key]; n != nil {
		for _, r := range n.runs {
			if r.to > span.From {
				to = min(to, r.from)
				break
			}
		}
	}
	if to = min(to, span.From+int32(min(s.Free(), int(span.To-span.From)))); to <= span.From {
		return 0
	}
	taken = to - span.From
	for s.fresh < int(taken) {
		s.evict(int(taken) - s.fresh)
	}
	s.fresh -= int(taken)
	s.coming += int(taken)
	s.peak = max(s.peak, s.Used())
	n := s.shelf.node(span.Key) // an eviction may have removed it
	i := 0
	for i < len(n.runs) && n.runs[i].from < to {
		i++
	}
	n.runs = slices.Insert(n.runs, i, s.shelf.newRun(n, span.From, to, onWay, 0, Normal))
	if i+1 < len(n.runs) {
		s.shelf.join(n, i+1)
	}
	s.shelf.join(n, i)
	return taken
}

// evict evicts up to n of the blocks of the run at the head of the queue.
func (s *Store) evict(n int) {
	q := &s.shelf.queues[Normal]
	r := q.head
	m := min(int32(n), r.to-r.from)
	gone := trace.Span{Key: r.node.key, From: r.to - m, To: r.to}
	if k := len(s.evicted) - 1; k >= 0 && s.evicted[k].Key == gone.Key && s.evicted[k].From == gone.To {
		s.evicted[k].From = gone.From
	} else {
		s.evicted = append(s.evicted, gone)
	}
	r.to -= m
	s.kept -= int(m)
	s.fresh += int(m)
	if r.from == r.to {
		q.remove(r)
		s.shelf.drop(r)
	}
}

// DrainEvicted returns the blocks that were evicted since the last call, in order; of a span the last block was first. The
// slice is good until the next Expect.
func (s *Store) DrainEvicted() []trace.Span {
	e := s.evicted
	s.evicted = s.evicted[:0]
	return e
}

// Arrive makes those of the blocks that are on their way the most recently used of the store. What was written of a path
// arrives from its last span to its first.
func (s *Store) Arrive(span trace.Span) {
	for _, r := range slices.Backward(s.between(span)) {
		if r.refs == onWay {
			size := int(r.to - r.from)
			s.coming -= size
			s.kept += size
			r.refs = 0
			s.shelf.enqueue(r)
		}
	}
}

// Forget gives up the places of those of the blocks that are on their way: they will not come.
func (s *Store) Forget(span trace.Span) {
	for _, r := range s.between(span) {
		if r.refs == onWay {
			size := int(r.to - r.from)
			s.coming -= size
			s.fresh += size
			s.shelf.drop(r)
		}
	}
}

// Hold keeps the blocks [from, to) of the path from eviction, up to the first that is not here, whose number it returns.
func (s *Store) Hold(path []trace.Span, from, to int32) (held int32) {
	held = s.Find(path, from, to)
	for i := range path {
		if low, high := max(from, path[i].From), min(held, path[i].To); low < high {
			s.kept -= s.shelf.refer(nil, s.shelf.nodes[path[i].Key], low, high)
		}
	}
	return held
}

// Release ends the hold on blocks [from, to) of the path, all of which were held. Those that nobody else holds are the most
// recently used.
func (s *Store) Release(path []trace.Span, from, to int32) {
	for i := len(path) - 1; i >= 0; i-- {
		if low, high := max(from, path[i].From), min(to, path[i].To); low < high {
			s.kept += s.shelf.release(nil, s.shelf.nodes[path[i].Key], 0, low, high)
		}
	}
}

// Touch makes those of the blocks [from, to) of the path that are here the most recently used.
func (s *Store) Touch(path []trace.Span, from, to int32) {
	for i := len(path) - 1; i >= 0; i-- {
		part := trace.Span{Key: path[i].Key, From: max(from, path[i].From), To: min(to, path[i].To)}
		for _, r := range slices.Backward(s.between(part)) {
			if r.queued {
				s.shelf.queues[Normal].remove(r)
				s.shelf.enqueue(r)
			}
		}
	}
}

// Drop removes the free ones of the blocks and returns how many, and how many it left because they are held or on their way.
func (s *Store) Drop(span trace.Span) (dropped, left int) {
	for _, r := range s.between(span) {
		size := int(r.to - r.from)
		if !r.queued {
			left += size
			continue
		}
		s.shelf.queues[Normal].remove(r)
		s.shelf.drop(r)
		dropped += size
	}
	s.kept -= dropped
	s.fresh += dropped
	return dropped, left
}

// between returns the runs of the blocks of a span.
func (s *Store) between(span trace.Span) []*run {
	n := s.shelf.nodes[span.Key]
	if n == nil || span.From >= span.To {
		return nil
	}
	return s.shelf.isolate(&n.runs, span.From, span.To)
}

// Check verifies the store's invariants and returns the first that is broken: those of its queue and nodes, and that each
// place holds nothing or one block in one state.
func (s *Store) Check() error {
	queued, err := s.shelf.check()
	if err != nil {
		return err
	}
	var here, coming int
	for _, n := range s.shelf.nodes {
		for _, r := range n.runs {
			if r.refs == onWay {
				coming += int(r.to - r.from)
			} else {
				here += int(r.to - r.from)
			}
		}
	}
	if queued != s.kept || coming != s.coming || here != s.Len() {
		return fmt.Errorf("kv store: %d blocks in the queue, %d on their way and %d here, but %d, %d and %d are accounted",
			queued, coming, here, s.kept, s.coming, s.Len())
	}
	if s.fresh < 0 || s.kept < 0 || s.Used() < 0 {
		return fmt.Errorf("kv store: %d places without and %d with free blocks, of %d", s.fresh, s.kept, s.capacity)
	}
	return nil
}
