package events

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// nobody is the worker of what is no worker's.
const nobody = int32(-1)

// maxWorkers bounds the workers of a run.
const maxWorkers = 1 << 16

func (h *Header) check() error {
	switch {
	case h.Schema != Schema:
		return fmt.Errorf("schema is %.40q, want %q", h.Schema, Schema)
	case len(h.Workers) > maxWorkers:
		return fmt.Errorf("%d workers are more than %d", len(h.Workers), maxWorkers)
	case h.EpochMs < 0 || h.EpochMs > math.MaxInt64/int64(2*time.Millisecond):
		return fmt.Errorf("epoch_unix_ms is %d: not a Unix time in milliseconds", h.EpochMs)
	}
	return nil
}

// errNoKind says that an event is of no kind that is known here.
var errNoKind = errors.New("no known kind of event")

// check verifies what readers rely on: one kind, workers of the header, and counts and times that are not negative.
func (e *Event) check(workers int) error {
	kinds, worker, least := 0, nobody, int64(e.At)
	of := func(w int32, counts ...int64) {
		kinds++
		worker = max(worker, w)
		for _, n := range append(counts, int64(w)) {
			least = min(least, n)
		}
	}
	shared := func(w int32, counts ...int64) { of(max(w, 0), counts...); worker = w } // nobody's, too
	if s := e.Step; s != nil {
		of(s.Worker, int64(s.Took), s.Steps-1, int64(s.Running), int64(s.Waiting), s.Prefill, s.Decode, s.Output, int64(s.Admitted),
			s.Queried, s.Hit, s.Evicted, int64(e.At-s.Took))
	}
	if p := e.Preemption; p != nil {
		of(p.Worker)
	}
	if k := e.KV; k != nil {
		of(k.Worker, int64(k.Used), int64(k.Cached), int64(k.Root.Active), int64(k.Root.Acting), int64(k.Root.Paused),
			int64(k.Subagent.Active), int64(k.Subagent.Acting), int64(k.Subagent.Paused))
	}
	if p := e.Programs; p != nil {
		shared(nobody, int64(p.Live), int64(p.Paused), int64(p.Held), int64(p.Queued))
	}
	if d := e.Decision; d != nil {
		shared(d.Worker)
	}
	if f := e.Fault; f != nil {
		of(f.Worker)
	}
	if g := e.Gauge; g != nil {
		of(g.Worker)
	}
	if t := e.Tier; t != nil {
		shared(t.Worker, int64(t.Used))
	}
	if r := e.Residency; r != nil {
		of(r.Worker, int64(r.GPU), int64(r.Host), int64(r.Disk), int64(r.Remote))
	}
	if t := e.Transfer; t != nil {
		of(max(t.From.Worker, t.To.Worker), int64(t.Took), t.Bytes, int64(e.At-t.Took))
	}
	if l := e.Link; l != nil {
		shared(l.Worker, int64(l.Took), int64(l.Busy), int64(l.Took-l.Busy), int64(e.At-l.Took))
	}
	if a := e.Action; a != nil {
		of(a.Worker, int64(a.Blocks), int64(a.Took), int64(e.At-a.Took))
	}
	switch {
	case kinds == 0:
		return errNoKind
	case kinds > 1:
		return fmt.Errorf("%d kinds of event in one", kinds)
	case least < 0:
		return errors.New("a time or count is out of range")
	case int(worker) >= workers:
		return fmt.Errorf("worker %d is none of the %d in the header", worker, workers)
	}
	return nil
}
