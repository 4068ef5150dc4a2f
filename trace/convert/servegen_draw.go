package convert

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// outcomes is a distribution over finitely many values.
type outcomes struct{ values, below []float64 } // below: the sum of the weights up to and with the value

func (o *outcomes) empty() bool { return len(o.values) == 0 || o.below[len(o.below)-1] <= 0 }

// draw returns a value. It must not be empty.
func (o *outcomes) draw(r *rand.Rand) float64 {
	u := r.Float64() * o.below[len(o.below)-1]
	i := sort.Search(len(o.below)-1, func(i int) bool { return o.below[i] > u })
	return o.values[i]
}

// draw appends a session for each call that the client makes in the sample's time. A window gets as many calls as its rate
// says, at gaps of its family that are stretched to fill it; their lengths come from the last window before that has some.
// Each window is drawn by itself, so that what is drawn of it is the same in longer and in shorter samples.
func (c *serveGenClient) draw(sample Sample, sessions []*session, read *trace.ReadReport) ([]*session, error) {
	name := fnv.New64a()
	name.Write([]byte(c.name))
	until := time.Duration(math.MaxInt64)
	if sample.For > 0 {
		until = sample.From + sample.For
	}
	for i, w := range c.rates {
		end := w.start + serveGenWindow
		if i+1 < len(c.rates) {
			end = c.rates[i+1].start
		}
		calls := int(math.Round(w.rate * (end - w.start).Seconds()))
		if end <= sample.From || w.start >= until || calls == 0 {
			continue
		}
		at := sort.Search(len(c.lengths), func(k int) bool { return c.lengths[k].start > w.start })
		if at == 0 {
			read.Warn(fmt.Sprintf("client %s: no lengths are known for the window at %v, which has %d calls: left out", c.name, w.start, calls))
			continue
		}
		if len(sessions)+calls > maxDrawn {
			return nil, fmt.Errorf("more than %d calls: draw from a shorter time (agentsim import has --from and --for)", maxDrawn)
		}
		r := rand.New(rand.NewPCG(sample.Seed, name.Sum64()+uint64(w.start)))
		for k, start := range w.arrivals(r, calls, end) {
			t := c.lengths[at-1].call(r)
			if start < sample.From || start >= until {
				continue
			}
			t.Start, t.ID = start, fmt.Sprintf("%s-%d-%d", c.name, w.start/time.Second, k+1)
			s := &session{Session: trace.Session{ID: t.ID, Class: c.name, Final: true}}
			s.add(t, nil)
			sessions = append(sessions, s)
		}
	}
	return sessions, nil
}

// arrivals draws the times of n calls in the window.
func (w *serveGenRate) arrivals(r *rand.Rand, n int, end time.Duration) []time.Duration {
	gaps := make([]float64, n+1) // the last one is to the end of the window
	sum := 0.0
	for i := range gaps {
		switch w.family {
		case "gamma":
			gaps[i] = gamma(r, w.shape)
		case "weibull":
			gaps[i] = math.Pow(r.ExpFloat64(), 1/w.shape)
		default:
			gaps[i] = r.ExpFloat64()
		}
		sum += gaps[i]
	}
	if !(sum > 0) || math.IsInf(sum, 0) { // all gaps below the smallest float, or one beyond the largest: evenly
		for i := range gaps {
			gaps[i] = 1
		}
		sum = float64(len(gaps))
	}
	times := make([]time.Duration, n)
	passed := 0.0
	for i := range times {
		passed += gaps[i]
		times[i] = w.start + time.Duration(passed/sum*float64(end-w.start))
	}
	return times
}

// call draws a call's lengths.
func (l *serveGenLengths) call(r *rand.Rand) *trace.Turn {
	t := place{}.turn()
	t.Inferred = trace.FieldStart | trace.FieldInput | trace.FieldOutput
	input := 0.0
	for i := range l.input {
		input += max(l.input[i].draw(r), 0)
	}
	t.Input = int32(min(max(math.Round(input), 1), maxTokens))
	t.Output = int32(min(max(math.Round(l.output.draw(r)), 0), maxTokens))
	if !l.reason.empty() {
		t.Reasoning = int32(math.Round(min(max(l.reason.draw(r), 0), 1) * float64(t.Output)))
	}
	return t
}

// gamma draws from the gamma distribution with a shape and the scale 1 (Marsaglia and Tsang, 2000).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if u := r.Float64(); math.Log(u) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
