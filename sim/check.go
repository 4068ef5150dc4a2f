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
	running := r.kept()
	for _, e := range r.engines {
		running += e.Waiting() + e.Running()
	}
	if r.inFlight > running {
		return fmt.Errorf("at %v: %w: %d requests are in flight but desks and engines hold %d", r.now, errConservation, r.inFlight, running)
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
		if q.Status == report.Completed && q.Preemptions == 0 && q.Hit+q.Computed != q.Input {
			return fmt.Errorf("%w: request %d found %d and computed %d of %d prompt tokens", errConservation, q.Turn, q.Hit, q.Computed, q.Input)
		}
	}
	return nil
}
