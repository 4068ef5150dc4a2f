package perfetto

import (
	"cmp"
	"context"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
)

// sidecar draws the events of a run as they are read.
type sidecar struct {
	*picture
	file *events.File
	// offset is added to times of the run to have those of the capture.
	offset   time.Duration
	last     time.Duration
	workers  []engine
	fleet    fleet
	deciding deciding
	// drawn are the sessions in scope, by ID; those whose KV was told of have a residence.
	drawn      map[string]int32
	residences map[string]*residence
	requests   map[string]int32 // calls in scope by ID, once that matters
	remote     gauges           // the remote tier, and its links
	links      linkUse
}

// drawEvents draws what the source's sidecar tells and notes when sessions were paused.
func (p *picture) drawEvents(ctx context.Context, file *events.File) (trace.ReadReport, error) {
	s := &sidecar{picture: p, file: file, workers: make([]engine, len(file.Header.Workers)),
		offset: time.Duration(file.Header.EpochMs-p.capture.Epoch) * time.Millisecond}
	s.fleet.group = p.top
	s.deciding = deciding{sidecar: s, open: map[string]opened{}}
	s.drawn, s.residences = map[string]int32{}, map[string]*residence{}
	for n := range p.sessions {
		if p.sessions[n].shown && p.sessions[n].inside {
			s.drawn[p.sessions[n].ID] = int32(n)
		}
	}
	s.remote = gauges{picture: p, group: p.top, rank: rankRemote}
	s.links = linkUse{gauges{picture: p, group: p.top, rank: rankRemote + 1}, map[string]time.Duration{}}
	report, err := file.Read(ctx, s.draw)
	s.deciding.close()
	for i := range s.workers {
		s.workers[i].close()
	}
	s.links.close()
	return report, err
}

// draw draws one event.
func (s *sidecar) draw(e *events.Event) error {
	at := e.At + s.offset
	s.last = at
	start := at
	switch {
	case e.Step != nil:
		start -= e.Step.Took
	case e.Transfer != nil:
		start -= e.Transfer.Took
	case e.Link != nil:
		start -= e.Link.Took
	}
	if e.Decision != nil { // pauses matter to the sessions even where the decision itself is out of scope
		s.deciding.draw(at, e.Decision)
		return nil
	}
	if !s.sees(start, at) {
		return nil
	}
	switch {
	case e.Step != nil:
		s.engine(e.Step.Worker, func(w *engine) { w.step(start, at, e.Step) })
	case e.KV != nil:
		s.engine(e.KV.Worker, func(w *engine) { w.blocks(at, e.KV) })
	case e.Preemption != nil:
		s.engine(e.Preemption.Worker, func(w *engine) { w.preemption(at, e.Preemption) })
	case e.Fault != nil:
		s.engine(e.Fault.Worker, func(w *engine) { w.fault(at, e.Fault) })
	case e.Gauge != nil:
		s.engine(e.Gauge.Worker, func(w *engine) { w.reading(at, e.Gauge) })
	case e.Programs != nil && !s.noCounters:
		s.fleet.sample(s.picture, at, e.Programs)
	case e.Tier != nil:
		s.tier(at, e.Tier)
	case e.Residency != nil && !s.noCounters:
		if r := s.residence(e.Residency.Session); r != nil {
			r.sample(at, e.Residency)
		}
	case e.Action != nil:
		if r := s.residence(e.Action.Session); r != nil {
			r.action(at, e.Action)
		}
	case e.Transfer != nil:
		s.engine(e.Transfer.Worker(), func(w *engine) { w.transfer(start, at, e.Transfer, s.waitingFor(start, e.Transfer)) })
	case e.Link != nil && e.Link.Worker < 0:
		s.links.draw(start, at, e.Link)
	case e.Link != nil:
		s.engine(e.Link.Worker, func(w *engine) { w.links.draw(start, at, e.Link) })
	}
	return nil
}

// tier sets the counter of what a tier holds.
func (s *sidecar) tier(at time.Duration, e *events.Tier) {
	i := level(e.Level)
	switch {
	case i == len(levels):
	case e.Worker < 0:
		s.remote.set(at, levels[i].counter, "blocks", float64(e.Used))
	default:
		s.engine(e.Worker, func(w *engine) { w.set(at, levels[i].counter, "blocks", float64(e.Used)) })
	}
}

// engine calls draw with a worker that is in scope.
func (s *sidecar) engine(n int32, draw func(*engine)) {
	if !s.draws(place{index: n}) {
		return
	}
	w := &s.workers[n]
	if w.picture == nil {
		s.showsWorkers = true
		w.open(s.picture, n, s.file.Header.Workers[n])
	}
	draw(w)
}

// fleet is the counters of a whole run.
type fleet struct {
	group                      uint64
	live, paused, held, queued *gauge
}

func (f *fleet) sample(p *picture, at time.Duration, e *events.Programs) {
	if f.live == nil {
		p.countsPrograms = true
		f.live = p.gauge(f.group, "programs live", "", rankCounters)
		f.paused = p.gauge(f.group, "programs paused", "", rankCounters+1)
		f.held = p.gauge(f.group, "requests held", "", rankCounters+2)
		f.queued = p.gauge(f.group, "requests queued at routers", "", rankCounters+3)
	}
	f.live.set(at, float64(e.Live))
	f.paused.set(at, float64(e.Paused))
	f.held.set(at, float64(e.Held))
	f.queued.set(at, float64(e.Queued))
}

// deciding draws the decisions of program schedulers.
type deciding struct {
	*sidecar
	group uint64
	rows  map[string]uint64
	open  map[string]opened // pauses, by session
}

// opened is a pause that has not ended.
type opened struct {
	at    time.Duration
	arrow uint64 // 0 when its decision is not drawn
}

// What decisions do to a session.
var (
	pausing  = map[string]bool{"pause": true, "defer": true}
	resuming = map[string]bool{"resume": true, "forced-resume": true, "admit": true, "expire": true, "rollback": true}
)

// draw draws a decision, with an arrow from a pause to its end.
func (d *deciding) draw(at time.Duration, e *events.Decision) {
	_, known := d.drawn[e.Session]
	drawn := d.sees(at, at) && (known || d.Session == "" && d.Worker == "")
	var starts, ends []uint64
	pause, paused := d.open[e.Session]
	switch {
	case pausing[e.What] && !paused:
		pause.at = at
		if drawn {
			pause.arrow = d.arrow()
			starts = []uint64{pause.arrow}
		}
		d.open[e.Session] = pause
	case resuming[e.What] && paused:
		delete(d.open, e.Session)
		d.pauses[e.Session] = append(d.pauses[e.Session], interval{pause.at, at})
		if drawn && pause.arrow > 0 {
			ends = []uint64{pause.arrow}
		}
	}
	if !drawn {
		return
	}
	what := cmp.Or(e.What, "(not told)")
	out := d.event(d.row(what), at, what, catDecision)
	out.starts, out.ends = starts, ends
	out.text("why", e.Why)
	out.text("session_id", e.Session)
	out.id("request_id", e.Request)
	out.count("worker", int64(e.Worker))
	out.number("size_tokens", e.Size)
	if e.Capacity > 0 {
		out.number("used_tokens", e.Used)
		out.number("capacity_tokens", e.Capacity)
		out.number("room_tokens", e.Room)
	}
	if len(starts)+len(ends) == 0 {
		d.instant(out)
	} else {
		d.slice(out, at) // Chrome's arrows need slices, however short
	}
}

// row is the track of a kind of decision.
func (d *deciding) row(what string) uint64 {
	if d.group == 0 {
		d.group = d.picture.group(d.top, "program scheduler", rankScheduler, "")
		d.rows = map[string]uint64{}
	}
	if _, ok := d.rows[what]; !ok {
		if len(d.rows) >= maxDecisions {
			what = "others"
		}
		if _, ok := d.rows[what]; !ok {
			d.rows[what] = d.picture.row(d.group, what, int32(len(d.rows)))
		}
	}
	return d.rows[what]
}

// maxDecisions bounds the kinds of decisions that get a track each. There are nine.
const maxDecisions = 32

// close ends the pauses that the run did not.
func (d *deciding) close() {
	for session, pause := range d.open { // each has a list of its own: the order does not matter
		d.pauses[session] = append(d.pauses[session], interval{pause.at, max(pause.at, d.last)})
	}
}
