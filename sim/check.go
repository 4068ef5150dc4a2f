package sim

import (
	"errors"
	"fmt"

	"github.com/agentsim/agentsim/trace/report"
)

var errConservation = errors.New("a conservation law is broken")

// check verifies the KV pools and what the requests add up to.
func (r *run) check() error {
	for i, e := range r.engines {
		if err := e.Check(); err != nil {
			return fmt.Errorf("worker %d at %v: %w: %w", i, r.now, errConservation, err)
		}
	}
	for i, g := range r.groups {
		if err := g.Check(); err != nil {
			return fmt.Errorf("worker %d at %v: %w: %w", i, r.now, errConservation, err)
		}
	}
	if r.memory != nil {
		if err := r.memory.Check(); err != nil {
			return fmt.Errorf("at %v: %w: %w", r.now, errConservation, err)
		}
	}
	if err := r.holdings.check(); err != nil {
		return err
	}
	return r.checkStages()
}

// checkStages verifies that each request is where it is taken to be.
func (r *run) checkStages() error {
	var at [atEngine + 1]int
	gone := 0 // given up, but perhaps still in an engine
	for _, l := range r.lives {
		if l.seq != 0 {
			at[l.stage]++
		} else if l.gone {
			gone++
		}
	}
	held, queued, running := 0, 0, 0
	for _, inst := range r.gate.waiting {
		held += len(inst.kept)
	}
	for _, d := range r.desks {
		queued += d.router.Waiting()
		if d.prefill != nil {
			queued += d.prefill.Waiting()
		}
	}
	for _, e := range r.engines {
		running += e.Waiting() + e.Running()
	}
	routed, placed := at[atPrefillRouter]+at[atRouter], at[atPrefill]+at[atEngine]
	if sum := at[atGate] + at[atTable] + routed + placed; sum != r.inFlight || held != at[atGate] || queued != routed ||
		running < placed || running > placed+gone {
		return fmt.Errorf("at %v: %w: %d requests are in flight, of which %d should be at the gate, %d at program schedulers, %d at routers and %d at engines; the gate has %d, routers %d, engines %d",
			r.now, errConservation, r.inFlight, at[atGate], at[atTable], routed, placed, held, queued, running)
	}
	return nil
}

// checkRequests verifies that every request has ended, and that each prompt token of those that were not preempted
// was found or computed once.
func (r *run) checkRequests() error {
	for i := range r.requests {
		q := &r.requests[i]
		if q.Status == report.Unfinished && r.inFlight == 0 {
			return fmt.Errorf("%w: request %d has not ended", errConservation, q.Turn)
		}
		if q.Brought+q.Prefetched > max(q.Hit, 0) || q.Brought < 0 {
			return fmt.Errorf("%w: request %d found %d tokens cached, but %d were fetched and %d prefetched", errConservation, q.Turn, q.Hit, q.Brought, q.Prefetched)
		}
		prompts := q.Input // to be found or computed
		if r.plan.prefill != nil && r.result.Handovers[i].Worker >= 0 {
			prompts = 2*q.Input - r.result.Handovers[i].Found
		}
		if q.Status == report.Completed && q.Preemptions == 0 && q.Hit+q.Computed != prompts {
			return fmt.Errorf("%w: request %d found %d and computed %d of %d prompt tokens", errConservation, q.Turn, q.Hit, q.Computed, prompts)
		}
	}
	return nil
}
