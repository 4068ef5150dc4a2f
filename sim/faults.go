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
func (r *run) strike(f Fault) {
	ranks := r.plan.Parallelism.Data
	for rank := f.Worker * ranks; rank < (f.Worker+1)*ranks; rank++ {
		if down := f.Action == "remove"; down != r.down[rank] {
			r.down[rank] = down
			if down {
				r.lose(rank)
			} else {
				r.regain(rank)
			}
		}
	}
	for _, d := range r.desks {
		r.place(d, d.router.Drain(r.now))
	}
}

// lose takes a rank from all desks and fails what runs there; clients try again while they have retries left.
func (r *run) lose(rank int) {
	for _, d := range r.desks {
		d.router.Remove(rank)
		if d.table != nil {
			d.table.RemoveWorker(r.now, rank)
		}
	}
	for _, l := range r.lives { // in order of their slots
		if l.seq != 0 && l.stage == atEngine && int(l.worker) == rank {
			if !r.fail(l, "its worker is gone (faults)") {
				r.result.WorkerLost++
			}
		}
	}
}

// regain brings a rank back.
func (r *run) regain(rank int) {
	r.engines[rank].Flush(r.now)
	r.engines[rank].Events()
	for _, d := range r.desks {
		d.router.Add(rank)
		if d.table != nil {
			// The capacity was valid when the run began.
			_ = d.table.SetWorker(rank, r.plan.tableCapacity()[rank])
		}
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
	if l.stage == atEngine {
		r.engines[l.worker].Cancel(r.now, &l.Request)
		r.touch(int(l.worker), r.now)
	}
	engine := l.stage == atEngine
	r.leave(l, false)
	r.inFlight--
	inst, call, retries, record := l.inst, l.call, rec.Retries, l.record
	if engine {
		l.gone, l.seq = true, 0 // the slot is not reused: the engine may hold the request until its step ends
	} else {
		r.freeLive(l)
	}
	if int(retries) < r.plan.Client.Retries {
		r.resend(call, inst, record, retries+1)
		return true
	}
	inst.lost = true
	r.callEnded(inst, call, r.now)
	return false
}
