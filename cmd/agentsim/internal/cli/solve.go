package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// solve searches for the number that a row is to have: the most live programs, or the fewest workers, that keep the limits.
// All cells of the row take it.
type solve struct {
	cells    []*cell       // of the row, one for each seed
	done     chan struct{} // closed when the rest is there
	solution *report.Solution
	number   int // of live programs or workers that the row has in the end
	err      error
}

// What numbers are tried.
const (
	// programsPerSlot is how many programs a run has for each that lives at a time, so that at every number the same
	// share of them begins together with all others on an empty cache; and leastPrograms the fewest, if the trace has as
	// many: a p90 of fewer says little.
	programsPerSlot = 4
	leastPrograms   = 64
	// mostCopies is how many copies of a program of the trace live at a time at the most, mostWorkers how many workers
	// are tried.
	mostCopies  = 16
	mostWorkers = 1024
)

// solvable refuses a limit on what no run would tell.
func (b *batch) solvable() error {
	for _, w := range b.workloads {
		if slices.ContainsFunc(b.limits, report.Limit.OfSlowdown) && len(w.workload.Calls) == len(w.workload.Programs) {
			return usagef("--max-slowdown: the programs of the trace are single calls, which have no slowdown; bound their TTFT with --max-ttft")
		}
	}
	return nil
}

// solveOf returns the search that a cell belongs to; nil when nothing is solved for.
func (b *batch) solveOf(c *cell) *solve {
	if b.solving == "" {
		return nil
	}
	for _, s := range b.solves {
		if s.cells[0].row == c.row && s.cells[0].bound == c.bound {
			s.cells = append(s.cells, c)
			return s
		}
	}
	s := &solve{cells: []*cell{c}, done: make(chan struct{})}
	b.solves = append(b.solves, s)
	return s
}

// useSolution waits for the search and takes the number that it found.
func (c *cell) useSolution() error {
	if c.solve == nil {
		return nil
	}
	<-c.solve.done
	if c.solve.err != nil {
		return c.solve.err
	}
	plan, err := c.solve.plan(c, c.solve.number)
	if err == nil {
		c.plan = plan
	}
	return err
}

// plan is a cell's with a number of live programs or of workers. Programs of the trace are copied where there are too few.
func (s *solve) plan(c *cell, n int) (*sim.Plan, error) {
	d := c.given
	if s.solution.Of == report.SolveGPUs {
		d.Workers = n
	} else {
		d.Load.Concurrency = n
	}
	if d.Load.Mode == "concurrency" && d.Load.Duration == 0 {
		least := cmp.Or(d.Load.Programs, min(leastPrograms, len(c.workload.workload.Programs)))
		d.Load.Programs = max(least, programsPerSlot*d.Load.Concurrency)
	}
	return d.Resolve()
}

// most is the largest number to try.
func (s *solve) most(w *trace.Workload) int {
	if s.solution.Of == report.SolveGPUs {
		return mostWorkers
	}
	return min(mostCopies*len(w.Programs), 1<<24) // what load.concurrency takes
}

// solveFor finds the number of a row: the largest that keeps the limits, or the smallest. It then tries what lies beside
// it, for the figures need not go one way only.
func (b *batch) solveFor(ctx context.Context, s *solve) {
	defer close(s.done)
	first := s.cells[0]
	s.solution = &report.Solution{Of: b.solving, Limits: b.limits, Seeds: len(s.cells)}
	gpus := s.solution.Of == report.SolveGPUs
	perNumber := 1
	if gpus {
		perNumber = first.plan.Hardware.Parallelism.GPUs()
	}
	tried := map[int]bool{}
	holds := func(n int) (bool, error) {
		tried[n] = true
		runs, refused, err := b.tryNumber(ctx, s, n)
		if err != nil {
			return false, err
		}
		trial, err := s.solution.Try(n*perNumber, runs, refused)
		return trial.Holds, err
	}
	most := s.most(first.workload.workload)
	var low int
	if low, s.err = boundary(most, func(n int) (bool, error) {
		ok, err := holds(n)
		return ok != gpus, err
	}); s.err != nil {
		return
	}
	for _, n := range beside(low, most) {
		if tried[n] {
			continue
		}
		if _, s.err = holds(n); s.err != nil {
			return
		}
	}
	switch {
	case !gpus:
		s.number, s.solution.Number = max(1, low), low
	case low == most:
		s.number = most
	default:
		s.number, s.solution.Number = low+1, (low+1)*perNumber
	}
}

// boundary returns the largest number from 1 to most up to which it goes well, 0 for none: it doubles until it does not,
// and halves the rest. The number returned has been tried, and the next one too.
func boundary(most int, well func(int) (bool, error)) (int, error) {
	low, high := 0, most+1 // well at low, not at high
	for next := 1; high-low > 1; {
		ok, err := well(next)
		if err != nil {
			return 0, err
		}
		if ok {
			low = next
		} else {
			high = next
		}
		if next = low + (high-low)/2; high > most {
			next = min(2*low, most)
		}
	}
	return low, nil
}

// beside returns what else to try around a boundary between low and low + 1: the next numbers, and those an eighth away.
func beside(low, most int) []int {
	if low == 0 || low == most {
		return nil
	}
	around := []int{low - low/8, low - 1, low + 2, low + 1 + low/8}
	slices.Sort(around)
	return slices.DeleteFunc(slices.Compact(around), func(n int) bool { return n < 1 || n > most })
}

// tryNumber runs all cells of a row with a number. It returns their runs and how many calls these refused for the load.
func (b *batch) tryNumber(ctx context.Context, s *solve, n int) ([]*report.Run, int64, error) {
	runs, refused, errs := make([]*report.Run, len(s.cells)), make([]int64, len(s.cells)), make([]error, len(s.cells))
	var wait sync.WaitGroup
	for i, c := range s.cells {
		plan, err := s.plan(c, n)
		if err != nil {
			return nil, 0, fmt.Errorf("--solve %s, trying %d: %w", s.solution.Of, n, err)
		}
		times, err := c.alone()
		if err != nil {
			return nil, 0, err
		}
		b.expect(1)
		wait.Go(func() {
			b.inTurn(func() {
				var result *sim.Result
				if result, errs[i] = sim.Run(ctx, c.workload.workload, plan, b.options); errs[i] == nil {
					runs[i] = result.Report(nil, times)
					for _, r := range result.Refused {
						refused[i] += r.Calls
					}
				}
			})
		})
	}
	wait.Wait()
	var calls int64
	for _, n := range refused {
		calls += n
	}
	return runs, calls, cmp.Or(errs...)
}
