package sim

import (
	"fmt"
	"time"

	"github.com/agentsim/agentsim/trace/report"
)

// Fault takes a worker away at a time, or brings it back with an empty cache.
type Fault struct {
	At     time.Duration `yaml:"at"`
	Worker int           `yaml:"worker"`
	// Action is remove or return.
	Action string `yaml:"action"`
}

func (d *Deployment) checkFaults() error {
	for i, f := range d.Faults {
		key := fmt.Sprintf("faults[%d]", i)
		switch {
		case f.At < 0 || f.At > longest:
			return bad(key+".at", "%v is out of range, want 0s to %v", f.At, longest)
		case f.Worker < 0 || f.Worker >= d.Workers:
			return bad(key+".worker", "%d is none of the workers 0 to %d", f.Worker, d.Workers-1)
		case f.Action != "remove" && f.Action != "return":
			return bad(key+".action", "%q is unknown, want remove or return", f.Action)
		}
	}
	return nil
}

// strike does what a fault says to all ranks of a worker.
func (s *service) strike(f Fault) {
	ranks := s.plan.Parallelism.Data
	for rank := f.Worker * ranks; rank < (f.Worker+1)*ranks; rank++ {
		if down := f.Action == "remove"; down != s.down[rank] {
			s.down[rank] = down
			if down {
				s.lose(rank)
			} else {
				s.regain(rank)
			}
		}
	}
	for _, d := range s.desks {
		if d.prefill != nil {
			s.placePrefill(d, d.prefill.Drain(s.now))
		}
		s.place(d, d.router.Drain(s.now))
	}
}

// lose takes a rank from all desks and fails what runs there; clients try again while they have retries left.
func (s *service) lose(rank int) {
	if rank >= s.plan.decodeRanks() {
		s.prefillers--
	}
	for _, d := range s.desks {
		of, number := s.routerOf(d, rank)
		of.Remove(number)
		if d.table != nil {
			d.table.RemoveWorker(s.now, rank)
		}
	}
	if s.memory != nil {
		s.memory.Lose(s.now, rank)
	}
	for _, l := range s.lives { // in order of their slots
		switch _, at := l.at(); {
		case int(at) != rank:
		case l.background && !l.Left():
			s.engines[rank].Cancel(s.now, &l.Request)
		case l.seq != 0 && l.inEngine():
			s.client.lost(l)
		}
	}
	if s.prefillers == 0 && s.plan.prefill != nil {
		s.prefillWhereDecoded()
	}
}

// regain brings a rank back.
func (s *service) regain(rank int) {
	s.engines[rank].Flush(s.now)
	if s.memory != nil {
		s.memory.Regain(rank)
	}
	for _, ev := range s.engines[rank].Events() {
		s.client.cached(ev)
	}
	if rank >= s.plan.decodeRanks() {
		s.prefillers++
	}
	for _, d := range s.desks {
		of, number := s.routerOf(d, rank)
		of.Add(number)
		if d.table != nil {
			s.setCapacity(d, rank, 0)
		}
	}
}

// lost is a call whose worker is gone.
func (r *run) lost(l *live) {
	if !r.fail(l, "its worker is gone (faults)") {
		r.result.WorkerLost++
	}
}

// fail ends a request that its client or its worker gave up, and sends it again if there are retries left. It tells
// whether there were.
func (r *run) fail(l *live, why string) (again bool) {
	if r.options.Observe != nil {
		r.tell(l, Event{What: Failed, Why: why})
	}
	rec := &r.requests[l.record]
	rec.Status, rec.End = report.Failed, r.now
	l.stay(r.now)
	rec.Held, rec.RouterQueued = rec.Held+l.held, rec.RouterQueued+l.queued
	r.copyCounts(l, rec)
	inst, call, retries, record := l.inst, l.call, rec.Retries, l.record
	session := l.Session
	r.abandon(l)
	r.holdings.failed(session)
	if int(retries) < r.plan.Client.Retries {
		r.resend(call, inst, record, retries+1)
		return true
	}
	inst.lost = true
	r.callEnded(inst, call, r.now)
	return false
}
