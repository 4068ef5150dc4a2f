package thunderagent

import (
	"math/rand/v2"
	"testing"
	"time"
)

const (
	crowdWorkers = 64
	crowdSize    = 20_000 // mean tokens of a program
)

// crowd returns a table of programs that act on 64 workers, half full, and their requests.
func crowd(b *testing.B, programs int) (*Table, []*Request) {
	b.Helper()
	s := native()
	s.MaxTrackedRequests = programs + 1000
	table, err := New(s, make([]Capacity, crowdWorkers), Live{})
	if err != nil {
		b.Fatal(err)
	}
	fill(table, programs, 0.5)
	random := rand.New(rand.NewPCG(1, 2))
	requests := make([]*Request, programs)
	for i := range requests {
		q := &Request{Session: random.Uint64(), Input: 100, Pin: nowhere}
		requests[i] = q
		if released, err := table.Arrive(0, q); err != nil || len(released) != 1 {
			b.Fatal(released, err)
		}
		table.Sent(0, q, int32(i%crowdWorkers))
		table.Complete(0, q, random.Int32N(2*crowdSize))
	}
	return table, requests
}

// fill sets the capacities so that the programs of a crowd use that share.
func fill(t *Table, programs int, of float64) {
	for w := range crowdWorkers {
		if err := t.SetWorker(w, Capacity{Tokens: int64(float64(programs/crowdWorkers*crowdSize) / of)}); err != nil {
			panic(err)
		}
	}
}

// BenchmarkTick100k is one tick of a table with 100,000 programs: one that changes nothing, and one that in turn pauses
// a great many of them and resumes them.
func BenchmarkTick100k(b *testing.B) {
	for _, test := range []struct {
		name   string
		fullAt [2]float64
	}{
		{"quiet", [2]float64{0.5, 0.5}},
		{"churn", [2]float64{1.2, 0.5}},
	} {
		b.Run(test.name, func(b *testing.B) {
			table, _ := crowd(b, 100_000)
			worst := time.Duration(0)
			for i := 0; b.Loop(); i++ {
				fill(table, 100_000, test.fullAt[i%2])
				start := time.Now()
				table.Tick(table.next)
				worst = max(worst, time.Since(start))
			}
			b.ReportMetric(float64(worst.Microseconds())/1e3, "ms/worst")
			b.ReportMetric(float64(table.stats.PausedPeak), "paused")
		})
	}
}

// BenchmarkTurn100k is an arrival and a completion among 100,000 programs on 64 workers.
func BenchmarkTurn100k(b *testing.B) {
	table, requests := crowd(b, 100_000)
	now := time.Duration(0)
	for i := 0; b.Loop(); i++ {
		now += time.Microsecond
		q := requests[i%len(requests)]
		if _, err := table.Arrive(now, q); err != nil {
			b.Fatal(err)
		}
		table.Sent(now, q, int32(i%crowdWorkers))
		table.Complete(now, q, crowdSize)
	}
}
