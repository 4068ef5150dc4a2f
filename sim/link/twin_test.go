package link

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// fluid is the slow and obvious twin of Network: exact rational amounts, all rates found anew at every event by raising
// them all together until a link is full, and no agenda.
type fluid struct {
	now   time.Duration
	links []fluidLink
	flows []*fluidFlow // in order of starts
	ended []int        // by their place in flows
}

type fluidLink struct {
	rate  *big.Rat // bytes/ns
	bytes int64
	busy  time.Duration
}

type fluidFlow struct {
	over  []ID
	bytes int64
	begin time.Duration
	left  *big.Rat // bytes
	rate  *big.Rat
	state state
}

type state int

const (
	waiting state = iota
	moving
	done
)

// unwaited is the least that is waited for: a billionth of a byte.
var unwaited = big.NewRat(1, 1e9)

func (s *fluid) start(now time.Duration, bytes int64, latency time.Duration, over []ID) {
	s.goTo(now)
	f := &fluidFlow{bytes: bytes, begin: now + latency, left: new(big.Rat).SetInt64(bytes), rate: new(big.Rat)}
	for _, id := range over {
		if !slices.Contains(f.over, id) {
			f.over = append(f.over, id)
		}
	}
	s.flows = append(s.flows, f)
	s.goTo(now)
}

func (s *fluid) cancel(now time.Duration, i int) (moved int64) {
	s.goTo(now)
	f := s.flows[i]
	if f.state == done {
		return 0
	}
	f.state = done
	part := new(big.Rat).Sub(new(big.Rat).SetInt64(f.bytes), f.left)
	moved = new(big.Int).Quo(part.Num(), part.Denom()).Int64()
	s.count(f, moved)
	return moved
}

func (s *fluid) count(f *fluidFlow, moved int64) {
	for _, id := range f.over {
		s.links[id].bytes += moved
	}
}

// due is when a flow begins to move or ends, at the rate it has now.
func (f *fluidFlow) due(now time.Duration) time.Duration {
	switch {
	case f.state == done:
		return Never
	case f.state == waiting:
		return f.begin
	case f.left.Cmp(unwaited) < 0:
		return now
	}
	// The least whole time in which more than left - unwaited moves.
	t := new(big.Rat).Quo(new(big.Rat).Sub(f.left, unwaited), f.rate)
	q := new(big.Int).Quo(t.Num(), t.Denom())
	return now + time.Duration(q.Int64()) + 1
}

// share raises the rates of all flows together; those over a link that gets full stay where they are.
func (s *fluid) share() {
	var rising []*fluidFlow
	for _, f := range s.flows {
		if f.state == moving {
			f.rate.SetInt64(0)
			rising = append(rising, f)
		}
	}
	for len(rising) > 0 {
		var step *big.Rat
		full := -1
		for id := range s.links {
			room, n := s.room(ID(id)), int64(0)
			for _, f := range rising {
				if slices.Contains(f.over, ID(id)) {
					n++
				}
			}
			if n == 0 {
				continue
			}
			if each := room.Quo(room, new(big.Rat).SetInt64(n)); full < 0 || each.Cmp(step) < 0 {
				step, full = each, id
			}
		}
		for _, f := range rising {
			f.rate.Add(f.rate, step)
		}
		rising = slices.DeleteFunc(rising, func(f *fluidFlow) bool { return slices.Contains(f.over, ID(full)) })
	}
}

// room is what a link has left.
func (s *fluid) room(id ID) *big.Rat {
	room := new(big.Rat).Set(s.links[id].rate)
	for _, f := range s.flows {
		if f.state == moving && slices.Contains(f.over, id) {
			room.Sub(room, f.rate)
		}
	}
	return room
}

func (s *fluid) goTo(now time.Duration) {
	for {
		s.share()
		at := Never
		for _, f := range s.flows {
			at = min(at, f.due(s.now))
		}
		if at > now {
			break
		}
		s.pass(at)
		for i, f := range s.flows {
			if f.due(s.now) > at {
				continue
			}
			if f.state == waiting && f.bytes > 0 && len(f.over) > 0 {
				f.state, f.rate = moving, big.NewRat(1, 1e9) // until the rates are found
				continue
			}
			f.state = done
			s.count(f, f.bytes)
			s.ended = append(s.ended, i)
		}
	}
	s.pass(now)
}

// pass lets time pass at the rates as they are.
func (s *fluid) pass(at time.Duration) {
	if at == s.now {
		return
	}
	d := new(big.Rat).SetInt64(int64(at - s.now))
	for id := range s.links {
		if slices.ContainsFunc(s.flows, func(f *fluidFlow) bool { return f.state == moving && slices.Contains(f.over, ID(id)) }) {
			s.links[id].busy += at - s.now
		}
	}
	for _, f := range s.flows {
		if f.state == moving {
			f.left.Sub(f.left, new(big.Rat).Mul(f.rate, d))
		}
	}
	s.now = at
}

// opBytes is the length of an operation in a script: its kind and three operands.
const opBytes = 4

// runScript interprets bytes as links and operations on a Network and its twin, and compares them after each.
func runScript(t testing.TB, script []byte) error {
	if len(script) < opBytes {
		return nil
	}
	var rates []float64
	for i := range 1 + script[0]%5 {
		rates = append(rates, float64(1+(int(script[1])*(int(i)+3)+int(script[2]))%13))
	}
	fast, slow := network(t, rates...), &fluid{}
	for _, r := range rates {
		slow.links = append(slow.links, fluidLink{rate: new(big.Rat).SetFloat64(r)})
	}
	var started []Transfer
	told, now := 0, time.Duration(0)
	for op := script[opBytes:]; len(op) >= opBytes; op = op[opBytes:] {
		kind, a, b, c := op[0], int(op[1]), int(op[2]), int(op[3])
		switch kind % 8 {
		case 0, 1, 2, 3:
			latency := time.Duration(max(0, c%64-40))
			var over []ID
			for id := range rates {
				if kind>>3&(1<<id) != 0 {
					over = append(over, ID(id))
				}
			}
			started = append(started, fast.Start(now, int64(a), latency, over...))
			slow.start(now, int64(a), latency, over)
		case 4:
			if len(started) > 0 {
				i := a % len(started)
				if got, want := fast.Cancel(now, started[i]), slow.cancel(now, i); got != want {
					return fmt.Errorf("cancelling transfer %d at %d: %d bytes had moved, twin %d", i, now, got, want)
				}
			}
		case 5, 6:
			now += time.Duration(b % 40)
		case 7:
			if at := fast.Next(); at < Never {
				now = max(now, at)
			}
		}
		if kind%8 >= 5 {
			slow.goTo(now)
			for _, e := range fast.Advance(now) {
				if told == len(slow.ended) {
					return fmt.Errorf("by %d %v ended, and of the twin nothing", now, e)
				}
				if want := started[slow.ended[told]]; e != want {
					return fmt.Errorf("by %d %v ended, of the twin %v", now, e, want)
				}
				told++
			}
			if told < len(slow.ended) {
				return fmt.Errorf("by %d transfer %v of the twin ended, and %v did not", now, slow.ended[told], started[slow.ended[told]])
			}
		}
		if err := compare(fast, slow, started); err != nil {
			return fmt.Errorf("at %d: %w", now, err)
		}
	}
	return nil
}

// compare checks that both are in the same state, shares up to their rounding, and that they are max-min fair.
func compare(n *Network, s *fluid, started []Transfer) error {
	s.share()
	for i, t := range started {
		f, g := n.flow(t), s.flows[i]
		if (f == nil) != (g.state == done) {
			return fmt.Errorf("transfer %d has ended: %v, of the twin: %v", i, f == nil, g.state == done)
		}
		if f == nil || !f.moving {
			continue
		}
		rate, _ := g.rate.Float64()
		if got := float64(f.rate) / perByte; got > rate*(1+1e-12) || got < rate*(1-1e-12) {
			return fmt.Errorf("transfer %d moves at %v bytes/ns, the twin's at %v", i, got, rate)
		}
	}
	for id := range n.links {
		got := n.Link(ID(id))
		if want := s.links[id]; got.Bytes != want.bytes || got.Busy != want.busy {
			return fmt.Errorf("link %d: %d bytes in %d, twin %d in %d", id, got.Bytes, got.Busy, want.bytes, want.busy)
		}
	}
	return checkFair(n)
}

// checkFair checks that no link gives more than it has, and that every moving flow has a link that is full, up to rounding,
// and on which no other goes faster: that is what max-min fair means.
func checkFair(n *Network) error {
	used, most := make([]uint64, len(n.links)), make([]uint64, len(n.links))
	for _, f := range n.agenda {
		for _, id := range f.over {
			if f.moving {
				used[id] += f.rate
				most[id] = max(most[id], f.rate)
			}
		}
	}
	for id, l := range n.links {
		if used[id] > l.rate {
			return fmt.Errorf("link %d gives %d of %d", id, used[id], l.rate)
		}
	}
	for _, f := range n.agenda {
		tight := func(id ID) bool {
			l := &n.links[id]
			few := uint64(len(n.agenda)) // a part for each share that was rounded down
			return used[id]+few > l.rate && f.rate+few >= most[id]
		}
		if f.moving && !slices.ContainsFunc(f.over, tight) {
			return fmt.Errorf("transfer %d could go faster than %d", f.serial, f.rate)
		}
	}
	return nil
}

// TestTwins compares the network with its slow twin on random transfers.
func TestTwins(t *testing.T) {
	scripts := 5_000
	if testing.Short() {
		scripts = 200
	}
	for seed := range scripts {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		script := make([]byte, opBytes*(2+r.IntN(30)))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		if err := runScript(t, script); err != nil {
			t.Fatalf("script %v: %v", script, err)
		}
	}
}

// FuzzTwins does the same under the fuzzer's guidance.
func FuzzTwins(f *testing.F) {
	f.Add([]byte("five transfers over some links"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > opBytes*60 {
			t.Skip("long scripts find nothing that short ones do not")
		}
		if err := runScript(t, script); err != nil {
			t.Fatal(err)
		}
	})
}
