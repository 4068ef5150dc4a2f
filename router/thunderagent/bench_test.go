package thunderagent

import (
	"fmt"
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
	for w := range crowdWorkers {
		fill(table, w, programs, 0.5)
	}
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

// fill sets the capacity of a worker so that its programs use that share.
func fill(t *Table, w, programs int, of float64) {
	if err := t.SetWorker(w, Capacity{Tokens: int64(float64(programs/crowdWorkers*crowdSize) / of)}); err != nil {
		panic(err)
	}
}

// BenchmarkTick100k is one tick of a table with 100,000 programs. In turn it pauses programs of so many workers, nearly
// half of theirs, and resumes them.
func BenchmarkTick100k(b *testing.B) {
	for _, over := range []int{0, 4, 64} {
		b.Run(fmt.Sprintf("%dof64over", over), func(b *testing.B) {
			table, _ := crowd(b, 100_000)
			for i := 0; b.Loop(); i++ {
				for w := range over {
					fill(table, w, 100_000, [2]float64{1, 0.5}[i%2])
				}
				table.Tick(table.next)
			}
			b.ReportMetric(float64(table.stats.Pauses+table.stats.Resumes)/float64(b.N), "decisions/op")
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
