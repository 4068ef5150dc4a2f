package link

import (
	"math"
	"math/bits"
	"time"
)

// flow is one transfer that has not ended.
type flow struct {
	serial int64 // 0 when it is not in use
	slot   int32
	index  int // in the agenda
	over   []ID
	bytes  int64

	moving bool
	at     time.Duration // when it ends or, before it moves, begins
	rate   uint64        // in parts of a byte per second
	left   work          // at time since
	since  time.Duration // when it got this rate

	seen  bool // in the part that is being gathered
	fixed bool // it has its share, while they are given
	share uint64
}

// A byte has this many parts: the least number that 1 to 12 and 14 to 16 divide, so that so many equal shares of a whole
// number of bytes per second are whole too.
const parts = 55440

// perByte is the units of work in a byte. A transfer at a rate of 1 part of a byte per second does 1 of them in a nanosecond.
const perByte = parts * 1_000_000_000

// work is an amount of data, in units of 1/perByte byte.
type work struct{ hi, lo uint64 }

// slack is the work, of a billionth of a byte, that is not waited for: a share is rounded down to whole parts.
const slack = parts

// fixedRate is a rate in bytes/s in parts, rounded once.
func fixedRate(bytesPerS float64) uint64 {
	whole, fraction := math.Modf(bytesPerS)
	return uint64(whole)*parts + uint64(math.Round(fraction*parts))
}

// workOf is the work of moving bytes.
func workOf(bytes int64) (w work) {
	w.hi, w.lo = bits.Mul64(uint64(bytes), perByte)
	return w
}

// bytesUp is the bytes of the work, rounded up.
func (w work) bytesUp() int64 {
	q, r := bits.Div64(w.hi, w.lo, perByte)
	if r > 0 {
		q++
	}
	return int64(q)
}

// less returns the work without what is done at a rate in a time.
func (w work) less(rate uint64, d time.Duration) work {
	hi, lo := bits.Mul64(rate, uint64(d))
	lo, borrow := bits.Sub64(w.lo, lo, 0)
	hi, borrow = bits.Sub64(w.hi, hi, borrow)
	if borrow > 0 {
		return work{}
	}
	return work{hi, lo}
}

// takes is the least time after which less than the slack is left at the rate.
func (w work) takes(rate uint64) time.Duration {
	lo, borrow := bits.Sub64(w.lo, slack, 0)
	hi, borrow := bits.Sub64(w.hi, 0, borrow)
	if borrow > 0 {
		return 0
	}
	if hi >= rate { // more than 64 bits of nanoseconds
		return Never
	}
	if q, _ := bits.Div64(hi, lo, rate); q < uint64(Never) {
		return time.Duration(q + 1)
	}
	return Never
}

// settle takes what has moved since the flow got its rate from what is left.
func (f *flow) settle(now time.Duration) {
	f.left = f.left.less(f.rate, now-f.since)
	f.since = now
}

// later is a time after t, at most Never.
func later(t, d time.Duration) time.Duration {
	if d > Never-t {
		return Never
	}
	return t + d
}

// newFlow returns a flow that is not in use.
func (n *Network) newFlow() *flow {
	if k := len(n.idle); k > 0 {
		f := n.idle[k-1]
		n.idle = n.idle[:k-1]
		return f
	}
	f := &flow{slot: int32(len(n.flows))}
	n.flows = append(n.flows, f)
	return f
}

func (f *flow) transfer() Transfer { return Transfer{f.serial, f.slot} }

// flow returns a transfer that has not ended, else nil.
func (n *Network) flow(t Transfer) *flow {
	if t.serial == 0 || int(t.slot) >= len(n.flows) || n.flows[t.slot].serial != t.serial {
		return nil
	}
	return n.flows[t.slot]
}

// agenda is a heap of the flows by what happens next.
type agenda []*flow

func (a agenda) Len() int { return len(a) }

func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].serial < a[j].serial
}

func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

func (a *agenda) Push(f any) {
	f.(*flow).index = len(*a)
	*a = append(*a, f.(*flow))
}

func (a *agenda) Pop() any {
	last := len(*a) - 1
	f := (*a)[last]
	(*a)[last], *a = nil, (*a)[:last]
	return f
}
