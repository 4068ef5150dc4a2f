package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/convert"
	"github.com/agentsim/agentsim/trace/synth"
)

// randomCapture makes sessions that grow, fork from each other, begin anew, overlap and spawn.
func randomCapture(rng *rand.Rand) *trace.Capture {
	c := &trace.Capture{BlockSize: 4, SharedClock: rng.IntN(3) > 0}
	var prompts [][]uint64
	for s := range 1 + rng.IntN(6) {
		session := &trace.Session{ID: fmt.Sprint(s)}
		if s > 0 && rng.IntN(3) == 0 {
			session.Parent = fmt.Sprint(rng.IntN(s))
		}
		at := time.Duration(rng.IntN(20))
		var prompt []uint64
		for n := range 1 + rng.IntN(5) {
			switch rng.IntN(4) {
			case 0:
				prompt = nil
			case 1:
				if len(prompts) > 0 {
					prompt = prompts[rng.IntN(len(prompts))]
				}
			}
			prompt = prompt[:rng.IntN(len(prompt)+1)]
			for range 1 + rng.IntN(4) {
				prompt = append(prompt[:len(prompt):len(prompt)], uint64(1+rng.IntN(3)))
			}
			prompts = append(prompts, prompt)
			t := &trace.Turn{ID: fmt.Sprint(s, ".", n), Start: at, End: at + time.Duration(rng.IntN(8)), TTFT: trace.NoTime,
				Input: int32(4*len(prompt) - rng.IntN(4)), Output: int32(rng.IntN(9)), Cached: trace.Unknown, Reasoning: trace.Unknown, Hashes: prompt}
			if rng.IntN(8) == 0 {
				t.End = trace.NoTime
			}
			session.Turns = append(session.Turns, t)
			at += time.Duration(rng.IntN(10))
		}
		c.Sessions = append(c.Sessions, session)
	}
	return c
}

// token is one of a prefix tree.
type token struct {
	key trace.Key
	at  int32
}

// tokens lists all tokens of a call, one by one.
func tokens(w *trace.Workload, c *trace.Call) []token {
	var list []token
	for _, span := range w.Path(c.End, c.Computed(), 1, 0, nil) {
		for at := span.From; at < span.To; at++ {
			list = append(list, token{span.Key, at})
		}
	}
	return list
}

// TestWorkingSet holds the sweep against a twin that looks at each token at each time.
func TestWorkingSet(t *testing.T) {
	for seed := range uint64(2000) {
		c := randomCapture(rand.New(rand.NewPCG(seed, 0)))
		if err := c.Link(); err != nil {
			t.Fatal(err)
		}
		w, err := c.Compile(trace.OutputsInferred)
		if err != nil {
			t.Fatal(err)
		}
		tr := newTrail(w)
		lives := map[token]span{}
		for i := range w.Calls {
			for _, tok := range tokens(w, &w.Calls[i]) {
				life, ok := lives[tok]
				if !ok {
					life = tr.spans[i]
				}
				lives[tok] = span{min(tr.spans[i].start, life.start), max(tr.spans[i].end, life.end)}
			}
		}
		calls := slices.Clone(tr.byStart)
		slices.SortFunc(calls, func(a, b int32) int { return int(tr.spans[a].start - tr.spans[b].start) })
		set, distinct := tr.workingSet(calls, newCoverage(w), newCoverage(w), 0)
		if int(distinct) != len(lives) {
			t.Fatalf("seed %d: %d distinct tokens, want %d", seed, distinct, len(lives))
		}
		set.each(func(from, to time.Duration, got int64) {
			for at := from; at < to; at++ { // in the nanosecond behind it
				want := int64(0)
				for _, life := range lives {
					if life.start <= at && at < life.end {
						want++
					}
				}
				if got != want {
					t.Fatalf("seed %d: %d tokens at %d, want %d", seed, got, at, want)
				}
			}
		})
	}
}

// TestReuse holds the hit rate of an endless cache against a twin that keeps a set of tokens.
func TestReuse(t *testing.T) {
	for seed := range uint64(1000) {
		c := randomCapture(rand.New(rand.NewPCG(seed, 1)))
		if err := c.Link(); err != nil {
			t.Fatal(err)
		}
		w, err := c.Compile(trace.Outputs(seed % 3))
		if err != nil {
			t.Fatal(err)
		}
		tr := newTrail(w)
		kept := map[token]bool{}
		var hits, prompts int64
		for _, i := range tr.byStart {
			call := &w.Calls[i]
			hit := int64(0)
			list := tokens(w, call)
			for hit < int64(call.Input)-1 && kept[list[hit]] {
				hit++
			}
			for _, tok := range list {
				kept[tok] = true
			}
			hits += hit
			prompts += int64(call.Input)
		}
		if got := tr.infinite(); got != share(hits, prompts) {
			t.Fatalf("seed %d: hit rate %v, want %d of %d", seed, got.Value, hits, prompts)
		}
	}
}

// TestSteps holds means and times above a limit against a twin that looks at each nanosecond.
func TestSteps(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 2))
		values := make([]int64, 2000)
		var s steps
		first, last := len(values), 0
		for range 1 + rng.IntN(20) {
			from := rng.IntN(1000)
			to := from + 1 + rng.IntN(900)
			n := int64(1 + rng.IntN(9))
			s = append(s, step{time.Duration(from), n}, step{time.Duration(to), -n})
			for at := from; at < to; at++ {
				values[at] += n
			}
			first, last = min(first, from), max(last, to)
		}
		s.sort()
		part := (last - first + parts - 1) / parts
		series := s.series(time.Duration(first), time.Duration(part))
		var sum int64
		for i := range parts {
			area := int64(0)
			for at := first + i*part; at < first+(i+1)*part && at < len(values); at++ {
				area += values[at]
			}
			near(t, fmt.Sprintf("seed %d part %d", seed, i), series.Means[i], float64(area)/float64(part))
			sum += area
		}
		near(t, "mean", series.Mean, float64(sum)/float64(last-first))
		if peak := slices.Max(values); series.Peak.Value < float64(peak) {
			t.Errorf("seed %d: the peak is %v, below %d", seed, series.Peak, peak)
		}
		over := 0
		for _, v := range values {
			if v > 10 {
				over++
			}
		}
		near(t, "above", s.above(10), float64(over)/float64(last-first))
	}
}

// TestEstimateError holds the running estimate against a twin that looks at all earlier runs for each.
func TestEstimateError(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var runs []execution
		for range 2 + rng.IntN(20) {
			start := time.Duration(rng.IntN(50)) * time.Second
			runs = append(runs, execution{int32(rng.IntN(2)), span{start, start + time.Duration(1+rng.IntN(9))*time.Second}})
		}
		var off, sum float64
		for _, r := range runs {
			var known float64
			n := 0
			for _, e := range runs {
				if e.group < r.group || e.group == r.group && e.end <= r.start {
					known += (e.end - e.start).Seconds()
					n++
				}
			}
			if took := (r.end - r.start).Seconds(); n > 0 {
				off += math.Abs(known/float64(n) - took)
				sum += took
			}
		}
		if got := estimateError(runs); got.Known != (sum > 0) {
			t.Fatalf("seed %d: %+v with %v s of runs", seed, got, sum)
		} else if got.Known {
			near(t, fmt.Sprint("seed ", seed), got, off/sum)
		}
	}
}

// TestHistogram puts each value into the bin whose range it is in.
func TestHistogram(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var values []float64
		for range 1 + rng.IntN(50) {
			v := math.Round(math.Exp(20*rng.Float64()-5) * 100)
			values = append(values, v/100)
		}
		s := newSpread(slices.Clone(values))
		if len(s.Histogram) > maxBins {
			t.Fatalf("seed %d: %d bins", seed, len(s.Histogram))
		}
		for i, bin := range s.Histogram {
			to := math.Inf(1)
			if i+1 < len(s.Histogram) {
				to = s.Histogram[i+1].From.Value
			}
			want := int64(0)
			for _, v := range values {
				if (v >= bin.From.Value || i == 0) && v < to {
					want++
				}
			}
			if bin.Count != want {
				t.Fatalf("seed %d: %d values from %v to %v, want %d", seed, bin.Count, bin.From.Value, to, want)
			}
		}
	}
}

// TestDeterministic makes the same bytes of the same trace every time.
func TestDeterministic(t *testing.T) {
	var first []byte
	for range 5 {
		c, err := synth.Generate("claude-code", synth.Options{Programs: 5, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(summarise(t, c, 1000))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = text
		}
		if !bytes.Equal(text, first) {
			t.Fatal("other bytes for the same trace")
		}
	}
}

// TestDynamo reads a recorded trace: its server hit more than prompts alone explain, and less than a cache without bounds.
func TestDynamo(t *testing.T) {
	const file = "../../../shared/traces/dynamo/pi_request_trace.jsonl.gz"
	if _, err := os.Stat(file); err != nil {
		t.Skipf("the recorded trace is not here: %v", err)
	}
	c, err := convert.Open(context.Background(), []string{file}, convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := summarise(t, c, 0)
	if r := s.Reuse; !(r.Prompts.Value < r.Recorded.Value && r.Recorded.Value < r.Outputs.Value) {
		t.Errorf("hit rates are %v of prompts, %v recorded, %v of outputs too; want them to rise", r.Prompts.Share(), r.Recorded.Share(), r.Outputs.Share())
	}
}

// BenchmarkSummarise reports the turns summed up in a second.
func BenchmarkSummarise(b *testing.B) {
	for _, programs := range []int{200, 2000} {
		b.Run(fmt.Sprint(programs), func(b *testing.B) {
			turns := int64(0)
			for b.Loop() {
				b.StopTimer()
				c, err := synth.Generate("mini-swe-agent", synth.Options{Programs: programs, Seed: 1})
				if err != nil {
					b.Fatal(err)
				}
				if err := c.Link(); err != nil {
					b.Fatal(err)
				}
				runtime.GC()
				b.StartTimer()
				s, err := Summarise(context.Background(), c, 0)
				if err != nil {
					b.Fatal(err)
				}
				turns += s.Turns
			}
			b.ReportMetric(float64(turns)/b.Elapsed().Seconds(), "turns/s")
		})
	}
}
