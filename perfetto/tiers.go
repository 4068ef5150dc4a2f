package perfetto

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace/events"
)

// levels are where KV lies, as events and viewers name it, nearest first.
var levels = []struct{ name, short, counter string }{
	{events.GPU, "GPU", "KV on GPU"},
	{events.Host, "host", "KV in host memory"},
	{events.Disk, "disk", "KV on disk"},
	{events.Remote, "remote", "KV in remote tier"},
}

// level returns the index of a level, that behind the last one where it is none of them.
func level(name string) int {
	for i := range levels {
		if levels[i].name == name {
			return i
		}
	}
	return len(levels)
}

// residence draws where the KV of a session lies, and what was done to it on purpose, in a group in the session's.
type residence struct {
	gauges
	actions uint64
}

// residence returns that of a session, nil when it is not drawn.
func (s *sidecar) residence(id string) *residence {
	r := s.residences[id]
	if n, ok := s.drawn[id]; ok && r == nil {
		r = &residence{gauges: gauges{picture: s.picture, group: s.group(s.groupOf(n), "KV by tier", rankKV, ""), rank: 1}}
		s.residences[id] = r
	}
	return r
}

func (r *residence) sample(at time.Duration, e *events.Residency) {
	for i, blocks := range []int{e.GPU, e.Host, e.Disk, e.Remote} {
		r.set(at, levels[i].counter, "blocks", float64(blocks))
	}
}

func (r *residence) action(at time.Duration, e *events.Action) {
	if r.actions == 0 {
		r.actions = r.row(r.group, "actions", 0)
	}
	name := cmp.Or(e.What, "(not told)")
	if e.Outcome != "" && e.Outcome != "accepted" {
		name += " " + e.Outcome
	}
	out := r.event(r.actions, at, name, catAction)
	out.text("session_id", e.Session)
	out.text("outcome", e.Outcome)
	out.number("worker", int64(e.Worker))
	out.number("blocks", int64(e.Blocks))
	r.instant(out)
}

// transferRows are the tracks of the transfers in one direction.
type transferRows struct {
	rows
	lanes lateLanes
}

// The places of transfers and links among the tracks of a worker, and of the remote tier beside the counters of the run.
const (
	rankTransfers = 1 << 16
	rankLinks     = 1 << 20
	rankRemote    = rankCounters + 9
)

// transfer draws a transfer, with an arrow to the stage that waited for it, if one did.
func (w *engine) transfer(start, end time.Duration, e *events.Transfer, waiting *stageOf) {
	from, to := level(e.From.Level), level(e.To.Level)
	name := "other transfers"
	switch {
	case from == len(levels) || to == len(levels):
		from, to = len(levels), len(levels)
	case e.From.Worker != e.To.Worker && min(e.From.Worker, e.To.Worker) >= 0:
		name = "transfers from other workers to " + levels[to].short
		from = len(levels)
	default:
		name = "transfers " + levels[from].short + " to " + levels[to].short
	}
	r := w.transfers[name]
	if r == nil {
		r = &transferRows{rows: *w.rows(w.group, name, rankTransfers+int32(from*(len(levels)+1)+to)*maxLate)}
		w.transfers[name] = r
	}
	lane, ok := r.lanes.take(start, end)
	if !ok {
		w.Dropped++
		return
	}
	name, category := cmp.Or(e.Cause, "(not told)"), ""
	if e.Outcome == events.Stopped {
		name, category = name+" stopped", catCancelled
	}
	out := w.event(r.track(lane), start, name, catTransfer)
	out.categories.add(category)
	out.text("session_id", e.Session)
	out.id("request_id", e.Request)
	out.number("bytes", e.Bytes)
	if took := end - start; took > 0 {
		out.real("gb_per_s", float64(e.Bytes)/float64(took))
	}
	out.text("outcome", e.Outcome)
	if e.From.Worker != e.To.Worker {
		out.count("from_worker", int64(e.From.Worker))
		out.count("to_worker", int64(e.To.Worker))
	}
	if waiting != nil {
		id := w.arrow()
		out.starts = []uint64{id}
		w.brought[*waiting] = append(w.brought[*waiting], id)
	}
	w.slice(out, end)
}

// waitsFor is the stage of a call that begins when a transfer of a cause has come.
var waitsFor = map[string]string{"fetch": stagePrefill, "handoff": stageDecode}

// waitingFor returns the stage that waited for a transfer to the GPUs, if it is drawn and comes after that; nil for none.
func (s *sidecar) waitingFor(start time.Duration, e *events.Transfer) *stageOf {
	stage, ok := waitsFor[e.Cause]
	if !ok || e.Outcome != events.Done || e.To.Level != events.GPU || s.noStages {
		return nil
	}
	if s.requests == nil {
		s.requests = make(map[string]int32, len(s.calls))
		for n := range s.calls {
			if s.calls[n].shown {
				s.requests[s.calls[n].ID] = int32(n)
			}
		}
	}
	n, ok := s.requests[e.Request]
	if !ok {
		return nil
	}
	for _, part := range s.calls[n].stages(nil) {
		if part.name == stage && part.start >= start {
			return &stageOf{n, stage}
		}
	}
	return nil
}

// linkUse draws for how much of the time links were busy.
type linkUse struct {
	gauges
	until map[string]time.Duration // what was told reaches
}

// maxLinks bounds the links of a worker that are drawn. There are ten.
const maxLinks = 64

func (l *linkUse) draw(start, end time.Duration, e *events.Link) {
	until, ok := l.until[e.Name]
	if e.Took == 0 || !ok && len(l.until) == maxLinks {
		return
	}
	if ok && until < start {
		l.set(until, l.counter(e.Name), "%", 0)
	} else if ok {
		start = min(until, end)
	}
	l.set(start, l.counter(e.Name), "%", 100*e.Busy.Seconds()/e.Took.Seconds())
	l.until[e.Name] = end
}

func (l *linkUse) counter(name string) string { return name + " busy" }

// close ends the counters.
func (l *linkUse) close() {
	for _, name := range slices.Sorted(maps.Keys(l.until)) {
		l.set(l.until[name], l.counter(name), "%", 0)
	}
}
