package kvcache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// twins drives a Pool and its slow twin through the same operations and compares them after each.
type twins struct {
	fast     *Pool
	slow     *blockPool
	paths    [][]trace.Span
	running  []*twinTable // in order of admission
	pins     []twinPin
	resident map[slot]bool // what the events so far say is cached
	order    int64
	log      []string
}

type twinTable struct {
	name string
	fast Table
	slow blockTable
	// limit is the tokens that the request may reach.
	limit int32
}

type twinPin struct {
	fast *Pin
	slow *blockTable
}

// twinOwners is the number of owners, nobody included.
const twinOwners = 4

// opBytes is the length of an operation in a script: its kind and three operands.
const opBytes = 4

// runScript interprets bytes as a pool's options, a prefix tree and operations on it. Every script is valid: operands
// are taken modulo what there is to choose from, and an operation without an object does nothing.
func runScript(script []byte) (log []string, err error) {
	if len(script) < opBytes {
		return nil, nil
	}
	o := Options{
		BlockSize:     1 + int(script[0])%4,
		Blocks:        3 + int(script[1])%22,
		PrefixCaching: script[2]%16 != 15,
		FreeTailFirst: script[2]%4 == 1,
		Events:        true,
		Accounting:    true,
	}
	fast, err := New(o)
	if err != nil {
		return nil, err
	}
	w := &twins{fast: fast, slow: newBlockPool(o), paths: randomPaths(uint64(script[3])), resident: map[slot]bool{}}
	for range twinOwners {
		w.fast.Accounts.Open()
		w.slow.states, w.slow.held = append(w.slow.states, Other), append(w.slow.held, Holding{})
	}
	w.log = append(w.log, fmt.Sprintf("%+v, paths %v", o, w.paths))
	err = operate(script[opBytes:], func(kind byte, a, b, c int32) error {
		w.pass(time.Duration(byte(a)^byte(c)) % 7)
		return w.do(kind, a, b, c)
	}, w.compare)
	return w.log, err
}

// operate does the operations of a script, with a comparison after each. A panic is an error like others.
func operate(script []byte, do func(kind byte, a, b, c int32) error, compare func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	for op := script; len(op) >= opBytes; op = op[opBytes:] {
		if err := do(op[0], int32(op[1]), int32(op[2]), int32(op[3])); err != nil {
			return err
		}
		if err := compare(); err != nil {
			return err
		}
	}
	return nil
}

// randomPaths returns paths through a prefix tree of a few nodes, the same for a seed: to the end of a node, or to
// somewhere inside it; and from there on as well, as where two outputs go on from one prompt.
func randomPaths(seed uint64) [][]trace.Span {
	r := rand.New(rand.NewPCG(seed, 1))
	var paths, whole [][]trace.Span
	for i := range 2 + r.IntN(7) {
		if i > 0 && r.IntN(4) == 0 {
			path := slices.Clone(whole[r.IntN(len(whole))])
			last := &path[len(path)-1]
			last.To -= int32(r.IntN(int(last.To - last.From)))
			paths = append(paths, path)
			continue
		}
		var path []trace.Span
		from := int32(0)
		if i > 0 && r.IntN(5) > 0 {
			path = slices.Clone(whole[r.IntN(len(whole))])
			last := &path[len(path)-1]
			if r.IntN(3) == 0 { // leave its last node before its end
				last.To -= int32(r.IntN(int(last.To - last.From)))
			}
			from = last.To
		}
		key := trace.MakeKey(trace.NodeID(1+i), uint32(r.IntN(2)))
		path = append(path, trace.Span{Key: key, From: from, To: from + 1 + int32(r.IntN(5))})
		paths, whole = append(paths, path), append(whole, path)
	}
	return paths
}

// pass lets time pass.
func (w *twins) pass(d time.Duration) {
	w.fast.Now += d
	w.slow.pass(d)
}

func (w *twins) say(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// pick returns the n-th of the requests that decode, or of those that do not; nil when there are none.
func (w *twins) pick(n int32, decoding bool) *twinTable {
	var of []*twinTable
	for _, t := range w.running {
		if t.fast.decoding == decoding {
			of = append(of, t)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return of[int(n)%len(of)]
}

// do performs one operation on both pools and compares what they return.
func (w *twins) do(kind byte, a, b, c int32) error {
	size := int32(w.fast.BlockSize)
	path := w.paths[int(a)%len(w.paths)]
	blocks := path[len(path)-1].To
	switch kind % 21 {
	case 0, 1, 2, 3:
		return w.admit(path, blocks*size, b, c)
	case 4, 5:
		if t := w.pick(a, false); t != nil {
			tokens := max(t.slow.tokens, min(t.limit, t.slow.tokens+1+b%(2*size)))
			w.say("grow %s to %d tokens", t.name, tokens)
			return same("grow", w.fast.Grow(&t.fast, tokens), w.slow.grow(&t.slow, tokens))
		}
	case 6, 7:
		if t := w.pick(a, false); t != nil {
			w.say("%s decodes from %d tokens", t.name, t.slow.tokens)
			w.fast.StartDecode(&t.fast, t.slow.tokens)
		}
	case 8, 9, 10, 11:
		w.step()
	case 12:
		w.leap(int64(a % 9))
	case 13:
		if t := w.pick(a, true); t != nil {
			w.say("%s stops", t.name)
			w.fast.StopDecode(&t.fast)
		}
	case 14, 15:
		if len(w.running) > 0 {
			w.release(w.running[int(a)%len(w.running)])
		}
	case 16:
		if b%2 == 0 {
			slow := &blockTable{path: path, pin: true}
			hits, room := w.slow.lookup(path, b/2%(blocks+1)), w.slow.free()
			if b%3 == 0 {
				room = int(b) % (room + 1)
			}
			for w.slow.idle(path, hits) > room {
				hits--
			}
			w.slow.hold(slow, hits)
			w.say("pin path %d", int(a)%len(w.paths))
			pin, n := w.fast.Pin(path, b/2%(blocks+1), room)
			w.pins = append(w.pins, twinPin{pin, slow})
			return same("pinned", n, int(hits))
		} else if len(w.pins) > 0 {
			i := int(a) % len(w.pins)
			w.say("unpin %d", i)
			w.fast.Unpin(w.pins[i].fast)
			w.slow.release(w.pins[i].slow)
			w.pins = slices.Delete(w.pins, i, i+1)
		}
	case 17:
		n := b % (blocks + 1)
		owner := Owner(c % twinOwners)
		w.say("warm %d blocks of path %d for owner %d", n, int(a)%len(w.paths), owner)
		return same("warmed", w.fast.Warm(path, owner, n), w.slow.warm(path, owner, n))
	case 18:
		s := path[int(b)%len(path)]
		s.From += c % (s.To - s.From)
		if b%3 == 0 {
			class := Class(c/4) % classes
			w.say("%v gets class %d", s, class)
			w.fast.SetClass(s, class)
			w.slow.setClass(s, class)
			return nil
		}
		w.say("drop %v", s)
		dropped, left := w.fast.Drop(s)
		wantDropped, wantLeft := w.slow.drop(s)
		return same("dropped and left", [2]int{dropped, left}, [2]int{wantDropped, wantLeft})
	case 19:
		n := b % (blocks + 1)
		w.say("look up %d blocks of path %d", n, int(a)%len(w.paths))
		return same("hits", w.fast.Lookup(path, n), w.slow.lookup(path, n))
	case 20:
		owner, state := Owner(a%twinOwners), Tool+State(b)%(States-Tool)
		if owner == 0 {
			break
		}
		w.say("owner %d is in state %d", owner, state)
		w.fast.Accounts.SetState(w.fast.Now, owner, state)
		w.slow.states[owner] = state
	}
	return nil
}

func same[T comparable](what string, fast, slow T) error {
	if fast != slow {
		return fmt.Errorf("%s: pool says %v, twin %v", what, fast, slow)
	}
	return nil
}

// admit adds a request for the path's tokens, some fewer or a few more.
func (w *twins) admit(path []trace.Span, full, b, c int32) error {
	size := int32(w.fast.BlockSize)
	t := &twinTable{name: fmt.Sprintf("r%d", w.order+1), limit: full + 2*size}
	t.fast.Path, t.slow.path = path, path
	if c%4 == 0 {
		t.fast.Class = Class(c/4) % classes
	} else {
		t.fast.Class = Normal
	}
	t.slow.class = t.fast.Class
	t.fast.Owner = Owner(b % twinOwners)
	t.slow.owner = t.fast.Owner
	target := 1 + b%(full+size-1)
	hits := min(w.fast.Lookup(path, target/size), (target-1)/size)
	if err := same("hits", hits, min(w.slow.lookup(path, target/size), (target-1)/size)); err != nil {
		return err
	}
	tokens := min(target, hits*size+1+c%(3*size))
	reserve := target
	if c%2 == 0 {
		reserve = tokens
	}
	extra := max(0, c/16%8-5)
	w.say("owner %d: admit %s to %v with %d hits for %d of %d tokens, reserving %d, class %d, %d extra blocks",
		t.fast.Owner, t.name, path, hits, tokens, target, reserve, t.fast.Class, extra)
	ok := w.fast.Admit(&t.fast, hits, tokens, w.fast.blocksFor(reserve), extra)
	if err := same("admitted", ok, w.slow.admit(&t.slow, hits, tokens, reserve, extra)); err != nil || !ok {
		return err
	}
	w.order++
	t.fast.Order = w.order
	w.running = append(w.running, t)
	return nil
}

func (w *twins) release(t *twinTable) {
	w.say("release %s", t.name)
	w.fast.Release(&t.fast)
	w.slow.release(&t.slow)
	w.running = slices.DeleteFunc(w.running, func(o *twinTable) bool { return o == t })
}

// step lets all decoding requests grow by a token, as an engine's step does: in order of admission, and where the
// blocks do not suffice the last request goes.
func (w *twins) step() {
	size := int32(w.fast.BlockSize)
	need := 0
	for _, t := range w.running {
		if t.fast.decoding && t.slow.tokens%size == 0 {
			need++
		}
	}
	if need <= w.fast.Free() {
		w.say("step")
		w.fast.Take(need)
		w.fast.Begin(w.fast.Now)
		for _, t := range w.running {
			if t.fast.decoding {
				w.slow.fill(&t.slow, t.slow.tokens+1)
			}
		}
		return
	}
	w.say("crowded step")
	for i := 0; i < len(w.running); i++ {
		t := w.running[i]
		if !t.fast.decoding {
			continue
		}
		if t.slow.tokens%size == 0 {
			for w.fast.Free() == 0 && i < len(w.running) {
				w.release(w.running[len(w.running)-1])
			}
			if i == len(w.running) {
				break
			}
			w.fast.Take(1)
		}
		w.slow.fill(&t.slow, t.slow.tokens+1)
	}
	w.fast.Begin(w.fast.Now)
}

// leap takes up to n steps at once, as many as need no eviction.
func (w *twins) leap(n int64) {
	size := int32(w.fast.BlockSize)
	taken, steps := 0, int64(0)
	for ; steps < n; steps++ {
		need := 0
		for _, t := range w.running {
			if t.fast.decoding && (t.slow.tokens+int32(steps))%size == 0 {
				need++
			}
		}
		if taken+need > w.fast.Fresh() {
			break
		}
		taken += need
	}
	w.say("leap over %d steps", steps)
	at := w.fast.Now
	for i := range steps {
		w.fast.Begin(at + time.Duration(i))
	}
	w.fast.Now += time.Duration(steps)
	w.fast.Take(taken)
	for range steps {
		for _, t := range w.running {
			if t.fast.decoding {
				w.slow.fill(&t.slow, t.slow.tokens+1)
			}
		}
		w.slow.pass(1)
	}
}

// shrink removes operations from a failing script as long as it fails.
func shrink(script []byte, run func([]byte) ([]string, error)) []byte {
	fails := func(s []byte) bool { _, err := run(s); return err != nil }
	for n := len(script) / opBytes / 2; n > 0; n /= 2 {
		for at := opBytes; at+n*opBytes <= len(script); {
			if shorter := slices.Delete(slices.Clone(script), at, at+n*opBytes); fails(shorter) {
				script = shorter
			} else {
				at += opBytes
			}
		}
	}
	for i := range script {
		for _, v := range []byte{0, 1, 2, 3} {
			if smaller := slices.Clone(script); script[i] > v {
				if smaller[i] = v; fails(smaller) {
					script = smaller
				}
			}
		}
	}
	return script
}

// try runs a script and reports the failure of the shortest that fails as it does.
func try(t *testing.T, script []byte, run func([]byte) ([]string, error)) {
	t.Helper()
	if _, err := run(script); err == nil {
		return
	}
	script = shrink(script, run)
	log, err := run(script)
	for _, line := range log {
		t.Log(line)
	}
	t.Fatalf("script %v: %v", script, err)
}

// tryRandom runs random scripts.
func tryRandom(t *testing.T, run func([]byte) ([]string, error)) {
	t.Helper()
	scripts := 10_000
	if testing.Short() {
		scripts = 500
	}
	for seed := range scripts {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		script := make([]byte, opBytes*(2+r.IntN(60)))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		try(t, script, run)
	}
}

// fuzz runs the scripts that the fuzzer finds.
func fuzz(f *testing.F, run func([]byte) ([]string, error)) {
	f.Add([]byte("a fast pool and its slow twin do all the same things"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > opBytes*200 {
			t.Skip("long scripts find nothing that short ones do not")
		}
		try(t, script, run)
	})
}

// TestTwins compares the pool with its slow twin on random sequences of operations.
func TestTwins(t *testing.T) { tryRandom(t, runScript) }

// FuzzTwins does the same under the fuzzer's guidance.
func FuzzTwins(f *testing.F) { fuzz(f, runScript) }
