package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// capSearch finds the router.max_programs with which a row is best in the metric that decides between rows: the fixed cap
// that somebody would have tuned by hand. All cells of the row take it.
type capSearch struct {
	cell *cell         // the row's with the first seed
	done chan struct{} // closed when the rest is there
	best int           // 0: no cap is better than any
	note string
	err  error
}

// searchOf returns the search that a cell waits for; nil when its cap is given.
func (b *batch) searchOf(c *cell) *capSearch {
	if !c.auto {
		return nil
	}
	for _, s := range b.searches {
		if s.cell.row == c.row {
			return s
		}
	}
	s := &capSearch{cell: c, done: make(chan struct{})}
	b.searches = append(b.searches, s)
	return s
}

// useCap waits for the search and takes the cap that it found.
func (c *cell) useCap() error {
	if c.search == nil {
		return nil
	}
	<-c.search.done
	c.plan = capped(c.plan, c.search.best)
	return c.search.err
}

// capped is a plan with a cap on its programs, 0 for none.
func capped(p *sim.Plan, limit int) *sim.Plan {
	with := *p
	with.Router.MaxPrograms = "none"
	if limit > 0 {
		with.Router.MaxPrograms = strconv.Itoa(limit)
	}
	return &with
}

// searchCap tries no cap and all powers of two, which assumes nothing of how the metric depends on the cap, and then halves
// the gaps on both sides of the best one until they are a sixteenth of it. What one round tries runs in parallel. Of
// equals the largest cap is best, and none before any.
func (b *batch) searchCap(ctx context.Context, s *capSearch) {
	defer close(s.done)
	most := mostPrograms(s.cell.plan, s.cell.workload.workload)
	tried := map[int]*report.Run{}
	next := []int{most}
	for limit := 1; limit < most; limit *= 2 {
		next = append(next, limit)
	}
	fixed := !s.cell.plan.Load.Slots()
	for {
		if s.err = b.tryCaps(ctx, s.cell, next, most, tried); s.err != nil {
			return
		}
		caps := slices.SortedFunc(maps.Keys(tried), func(x, y int) int { return cmp.Compare(y, x) })
		runs := make([]*report.Run, len(caps))
		for i, limit := range caps {
			runs[i] = tried[limit]
		}
		at, metric := report.Best(runs, fixed)
		if at < 0 {
			s.err = errors.New("router.max_programs auto: nothing is completed with any cap")
			return
		}
		if next = gaps(caps, at); len(next) > 0 {
			continue
		}
		figure := func(i int) string { return metric.Print(runs[i], runs) }
		if s.note = fmt.Sprintf("router.max_programs auto: none of %d caps tried is better than no cap (%s %s)",
			len(caps)-1, figure(0), metric.Name); at > 0 {
			s.best = caps[at]
			s.note = fmt.Sprintf("router.max_programs auto: %d at a time is the best of %d caps tried: %s %s, %s without a cap",
				s.best, len(caps)-1, figure(at), metric.Name, figure(0))
		}
		return
	}
}

// mostPrograms is how many programs are there at a time at the most: from there on a cap has no effect.
func mostPrograms(p *sim.Plan, w *trace.Workload) int {
	if p.Load.Mode == "concurrency" {
		return p.Load.Concurrency
	}
	return cmp.Or(p.Load.Programs, len(w.Programs))
}

// gaps returns what lies half way between the best of caps, which fall, and those beside it.
func gaps(caps []int, best int) []int {
	var between []int
	for _, beside := range []int{best - 1, best + 1} {
		if beside < 0 || beside == len(caps) {
			continue
		}
		if gap := caps[best] - caps[beside]; max(gap, -gap) > max(1, caps[best]/16) {
			between = append(between, caps[best]-gap/2)
		}
	}
	return between
}

// tryCaps runs a cell with some caps; that of most is none.
func (b *batch) tryCaps(ctx context.Context, c *cell, caps []int, most int, tried map[int]*report.Run) error {
	b.expect(len(caps))
	runs := make([]*report.Run, len(caps))
	var wait sync.WaitGroup
	for i, limit := range caps {
		if limit == most {
			limit = 0
		}
		wait.Go(func() {
			b.inTurn(func() {
				result, err := sim.Run(ctx, c.workload.workload, capped(c.plan, limit), b.options)
				if err != nil { // others may do
					runs[i] = report.FailedRun(c.plan.Name, nil, err)
				} else {
					runs[i] = result.Report(nil, nil)
				}
			})
		})
	}
	wait.Wait()
	for i, limit := range caps {
		tried[limit] = runs[i]
	}
	return ctx.Err()
}
