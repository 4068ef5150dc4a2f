package kvcache

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

// blockStore is the slow and obvious twin of Store: every block is an entry of a map, and the free ones are listed by last use.
type blockStore struct {
	capacity int
	blocks   map[slot]*storedBlock
	free     []slot // the first is evicted next
	evicted  []slot
}

type storedBlock struct {
	coming bool
	holds  int
}

// slots lists the blocks [from, to) of a path.
func slots(path []trace.Span, from, to int32) []slot {
	var list []slot
	for _, s := range path {
		for at := max(from, s.From); at < min(to, s.To); at++ {
			list = append(list, slot{s.Key, at})
		}
	}
	return list
}

// countOf counts the blocks of a path that are there.
func countOf(path []trace.Span, there func(slot) bool) (n int) {
	for _, s := range slots(path, 0, path[len(path)-1].To) {
		if there(s) {
			n++
		}
	}
	return n
}

// blocksOf lists the blocks of one span.
func blocksOf(s trace.Span) []slot { return slots([]trace.Span{s}, s.From, s.To) }

func (b *blockStore) here(s slot) bool { return b.blocks[s] != nil && !b.blocks[s].coming }

func (b *blockStore) find(path []trace.Span, from, limit int32) int32 {
	at := from
	for _, s := range slots(path, from, limit) {
		if !b.here(s) {
			break
		}
		at++
	}
	return at
}

func (b *blockStore) expect(span trace.Span) (taken int32) {
	lacking := blocksOf(span)
	if i := slices.IndexFunc(lacking, func(s slot) bool { return b.blocks[s] != nil }); i >= 0 {
		lacking = lacking[:i]
	}
	for _, s := range lacking {
		if len(b.blocks) == b.capacity {
			if len(b.free) == 0 {
				break
			}
			b.evicted = append(b.evicted, b.free[0])
			delete(b.blocks, b.free[0])
			b.free = b.free[1:]
		}
		b.blocks[s] = &storedBlock{coming: true}
		taken++
	}
	return taken
}

func (b *blockStore) arrive(span trace.Span) {
	for _, s := range slices.Backward(blocksOf(span)) {
		if k := b.blocks[s]; k != nil && k.coming {
			k.coming = false
			b.free = append(b.free, s)
		}
	}
}

func (b *blockStore) forget(span trace.Span) {
	for _, s := range blocksOf(span) {
		if k := b.blocks[s]; k != nil && k.coming {
			delete(b.blocks, s)
		}
	}
}

// unlist takes a block from the free ones, and tells whether it was one.
func (b *blockStore) unlist(s slot) bool {
	i := slices.Index(b.free, s)
	if i >= 0 {
		b.free = slices.Delete(b.free, i, i+1)
	}
	return i >= 0
}

func (b *blockStore) hold(path []trace.Span, from, to int32) int32 {
	to = b.find(path, from, to)
	for _, s := range slots(path, from, to) {
		b.unlist(s)
		b.blocks[s].holds++
	}
	return to
}

func (b *blockStore) release(path []trace.Span, from, to int32) {
	for _, s := range slices.Backward(slots(path, from, to)) {
		if b.blocks[s].holds--; b.blocks[s].holds == 0 {
			b.free = append(b.free, s)
		}
	}
}

func (b *blockStore) touch(path []trace.Span, from, to int32) {
	for _, s := range slices.Backward(slots(path, from, to)) {
		if b.unlist(s) {
			b.free = append(b.free, s)
		}
	}
}

func (b *blockStore) drop(span trace.Span) (dropped, left int) {
	for _, s := range blocksOf(span) {
		if b.unlist(s) {
			delete(b.blocks, s)
			dropped++
		} else if b.blocks[s] != nil {
			left++
		}
	}
	return dropped, left
}

// storeTwins drives a Store and its twin through the same operations and compares them after each.
type storeTwins struct {
	fast    *Store
	slow    *blockStore
	paths   [][]trace.Span
	coming  []trace.Span // expected, and neither arrived nor forgotten
	reading []reading
	log     []string
}

// reading is a hold.
type reading struct {
	path     []trace.Span
	from, to int32
}

// runStoreScript interprets bytes as a capacity, a prefix tree and operations on a store. Every script is valid.
func runStoreScript(script []byte) (log []string, err error) {
	if len(script) < opBytes {
		return nil, nil
	}
	capacity := 1 + int(script[1])%16
	fast, err := NewStore(capacity)
	if err != nil {
		return nil, err
	}
	w := &storeTwins{fast: fast, slow: &blockStore{capacity: capacity, blocks: map[slot]*storedBlock{}},
		paths: randomPaths(uint64(script[3]))}
	w.log = append(w.log, fmt.Sprintf("%d blocks, paths %v", capacity, w.paths))
	err = operate(script[opBytes:], w.do, w.compare)
	return w.log, err
}

func (w *storeTwins) say(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// do performs one operation on both and compares what they return. From and to may lie anywhere on the path.
func (w *storeTwins) do(kind byte, a, b, c int32) error {
	path := w.paths[int(a)%len(w.paths)]
	blocks := path[len(path)-1].To
	from := b % (blocks + 1)
	to := from + c%(blocks+1-from)
	span := path[int(b)%len(path)]
	span.From += c % (span.To - span.From)
	span.To -= c / 16 % (span.To - span.From)
	switch kind % 12 {
	case 0, 1, 2: // a write of what lacks
		for _, s := range w.fast.Lacks(path, from, to, nil) {
			if err := w.expect(s); err != nil {
				return err
			}
		}
	case 3:
		return w.expect(span)
	case 4, 5: // of a path the last span first, as the last one expected
		if k := len(w.coming); k > 0 {
			i := max(0, k-1-int(a)%3)
			w.say("arrive %v", w.coming[i])
			w.fast.Arrive(w.coming[i])
			w.slow.arrive(w.coming[i])
			w.coming = slices.Delete(w.coming, i, i+1)
		}
	case 6:
		if k := len(w.coming); k > 0 && b%3 == 0 {
			i := int(a) % k
			w.say("forget %v", w.coming[i])
			w.fast.Forget(w.coming[i])
			w.slow.forget(w.coming[i])
			w.coming = slices.Delete(w.coming, i, i+1)
		} else { // a part of something, expected or not
			w.say("arrive %v", span)
			w.fast.Arrive(span)
			w.slow.arrive(span)
		}
	case 7:
		w.say("hold %v from %d to %d", path, from, to)
		held, want := w.fast.Hold(path, from, to), w.slow.hold(path, from, to)
		w.reading = append(w.reading, reading{path, from, want})
		return same("held up to", held, want)
	case 8:
		if k := len(w.reading); k > 0 {
			r := w.reading[int(a)%k]
			w.say("release %v", r)
			w.fast.Release(r.path, r.from, r.to)
			w.slow.release(r.path, r.from, r.to)
			w.reading = slices.Delete(w.reading, int(a)%k, int(a)%k+1)
		}
	case 9, 10:
		w.say("touch %v from %d to %d", path, from, to)
		w.fast.Touch(path, from, to)
		w.slow.touch(path, from, to)
	case 11:
		w.say("drop %v", span)
		dropped, left := w.fast.Drop(span)
		wantDropped, wantLeft := w.slow.drop(span)
		return same("dropped and left", [2]int{dropped, left}, [2]int{wantDropped, wantLeft})
	}
	return nil
}

func (w *storeTwins) expect(s trace.Span) error {
	w.say("expect %v", s)
	taken, want := w.fast.Expect(s), w.slow.expect(s)
	if s.To = s.From + want; want > 0 {
		w.coming = append(w.coming, s)
	}
	return same("taken", taken, want)
}

// compare checks that both are in the same state, to the order of eviction.
func (w *storeTwins) compare() error {
	if err := w.fast.Check(); err != nil {
		return err
	}
	coming := 0
	for b := range maps.Values(w.slow.blocks) {
		if b.coming {
			coming++
		}
	}
	for _, n := range []struct {
		what       string
		fast, slow int
	}{
		{"used", w.fast.Used(), len(w.slow.blocks)},
		{"here", w.fast.Len(), len(w.slow.blocks) - coming},
		{"free", w.fast.Free(), w.slow.capacity - len(w.slow.blocks) + len(w.slow.free)},
	} {
		if err := same(n.what, n.fast, n.slow); err != nil {
			return err
		}
	}
	var evicted, free []slot
	for _, s := range w.fast.DrainEvicted() {
		evicted = append(evicted, reversed(s)...)
	}
	for r := w.fast.shelf.queues[Normal].head; r != nil; r = r.next {
		free = append(free, reversed(trace.Span{Key: r.node.key, From: r.from, To: r.to})...)
	}
	if !slices.Equal(evicted, w.slow.evicted) || !slices.Equal(free, w.slow.free) {
		return fmt.Errorf("evicted %v and free, the next to go first, %v; of the twin %v and %v", evicted, free, w.slow.evicted, w.slow.free)
	}
	w.slow.evicted = w.slow.evicted[:0]
	for _, path := range w.paths {
		if err := same(fmt.Sprintf("blocks of %v that are here", path), w.fast.Here(path), countOf(path, w.slow.here)); err != nil {
			return err
		}
	}
	return w.compareFinds(w.paths[len(w.log)%len(w.paths)])
}

// compareFinds compares what is found and what lacks of a path, from each of its blocks on.
func (w *storeTwins) compareFinds(path []trace.Span) error {
	end := path[len(path)-1].To
	for from := range end + 1 {
		limit := end - from/2
		if err := same(fmt.Sprintf("found of %v from %d", path, from), w.fast.Find(path, from, limit), w.slow.find(path, from, limit)); err != nil {
			return err
		}
		var lacking, want []slot
		for _, s := range w.fast.Lacks(path, from, limit, nil) {
			lacking = append(lacking, blocksOf(s)...)
		}
		for _, s := range slots(path, from, limit) {
			if w.slow.blocks[s] == nil {
				want = append(want, s)
			}
		}
		if !slices.Equal(lacking, want) {
			return fmt.Errorf("of %v from %d to %d lack %v, of the twin %v", path, from, limit, lacking, want)
		}
	}
	return nil
}

// reversed is the blocks of a span from the last to the first.
func reversed(s trace.Span) []slot {
	list := blocksOf(s)
	slices.Reverse(list)
	return list
}

// TestStoreTwins compares the store with its slow twin on random sequences of operations.
func TestStoreTwins(t *testing.T) { tryRandom(t, runStoreScript) }

// FuzzStoreTwins does the same under the fuzzer's guidance.
func FuzzStoreTwins(f *testing.F) { fuzz(f, runStoreScript) }
