package sim

import (
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// toolTimes learns how long tools take, by name, from one turn of a session to the next.
type toolTimes struct {
	tools map[string]*durations
	calls map[uint64]toolCall // by session
}

// toolCall is a tool that runs.
type toolCall struct {
	name  string
	since time.Duration
}

// durations are the latest times that a tool took, in order of length; ring has them in order of time.
type durations struct {
	sorted, ring []time.Duration
	next         int
}

const maxDurations = 256

func newToolTimes() *toolTimes {
	return &toolTimes{tools: map[string]*durations{}, calls: map[uint64]toolCall{}}
}

// of is the times that tools of a name took; nil when none has returned yet.
func (t *toolTimes) of(name string) *durations { return t.tools[name] }

// called notes that a session calls a tool.
func (t *toolTimes) called(now time.Duration, session uint64, name string) {
	t.calls[session] = toolCall{name, now}
}

// returned notes that a session's next call has come.
func (t *toolTimes) returned(now time.Duration, session uint64) {
	call, ok := t.calls[session]
	if !ok {
		return
	}
	delete(t.calls, session)
	d := t.tools[call.name]
	if d == nil {
		d = new(durations)
		t.tools[call.name] = d
	}
	d.add(now - call.since)
}

// programEnded forgets the calls of a program's sessions: nothing returns any more.
func (t *toolTimes) programEnded(inst *instance, w *trace.Workload) {
	if t == nil {
		return
	}
	for key := range inst.sessions(w) {
		delete(t.calls, key)
	}
}

// median is that of the durations kept, 0 of none.
func (d *durations) median() time.Duration {
	if d == nil || len(d.sorted) == 0 {
		return 0
	}
	return d.sorted[len(d.sorted)/2]
}

// add keeps a duration, in the place of the oldest when there are many.
func (d *durations) add(took time.Duration) {
	if len(d.ring) == maxDurations {
		old := d.ring[d.next]
		i, _ := slices.BinarySearch(d.sorted, old)
		d.sorted = slices.Delete(d.sorted, i, i+1)
		d.ring[d.next] = took
	} else {
		d.ring = append(d.ring, took)
	}
	d.next = (d.next + 1) % maxDurations
	i, _ := slices.BinarySearch(d.sorted, took)
	d.sorted = slices.Insert(d.sorted, i, took)
}

// mean is that of the durations kept, 0 of none.
func (d *durations) mean() time.Duration {
	if d == nil || len(d.ring) == 0 {
		return 0
	}
	sum := time.Duration(0)
	for _, took := range d.ring {
		sum += took / time.Duration(len(d.ring))
	}
	return sum
}
