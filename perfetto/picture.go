package perfetto

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// picture draws one source on a timeline.
type picture struct {
	*timeline
	*plan
	*view
	noStages, noCounters bool

	top    uint64   // the source's group
	groups []uint64 // of the sessions, 0 where there is none yet
	depths []int32
	// arriving and leaving are the arrows between calls of different sessions, by call.
	arriving, leaving map[int32][]uint64
	// brought are the arrows to stages of calls from the transfers that they waited for.
	brought map[stageOf][]uint64
	// countsPrograms and showsWorkers tell that a sidecar told of these.
	countsPrograms, showsWorkers bool
	// pauses are the times that sessions were paused, by their ID.
	pauses map[string][]interval
}

// maxNesting is how deep groups lie inside each other. Deeper subagents lie beside their parents.
const maxNesting = 32

// The places of tracks among their siblings, by what is on them.
const (
	rankScheduler = int32(iota) << 24
	rankCounters
	rankWorkers
	rankPaused
	rankTurns
	rankWaits
	rankTools
	rankKV
	rankSessions
)

// rows are the tracks of the lanes of one kind, made when something is on them.
type rows struct {
	timeline *timeline
	parent   uint64
	name     string
	rank     int32
	lanes    lanes
	ids      []uint64
}

// take returns the track for something between two times, which come in order of start.
func (r *rows) take(start, end time.Duration) uint64 { return r.track(r.lanes.take(start, end)) }

// track returns the track of a lane.
func (r *rows) track(lane int) uint64 {
	if lane == len(r.ids) {
		name := r.name
		if lane > 0 {
			name = fmt.Sprintf("%s %d", name, lane+1)
		}
		r.ids = append(r.ids, r.timeline.row(r.parent, name, r.rank+int32(lane)))
	}
	return r.ids[lane]
}

func (p *picture) rows(parent uint64, name string, rank int32) *rows {
	return &rows{timeline: p.timeline, parent: parent, name: name, rank: rank}
}

// drawPrograms draws all programs and their sessions.
func (p *picture) drawPrograms(ctx context.Context) error {
	p.crossArrows()
	d := &drawing{picture: p}
	for i := range p.programs {
		if err := ctx.Err(); err != nil {
			return err
		}
		g := &p.programs[i]
		for n := g.first; n < g.last; n++ {
			if p.sessions[n].shown {
				p.drawSession(d, g, n)
			}
		}
	}
	return nil
}

// crossArrows prepares the arrows between sessions: from a call to the subagents that it spawned, from their last calls
// to the one that they join, and whatever else a trace says waits for something.
func (p *picture) crossArrows() {
	p.arriving, p.leaving = map[int32][]uint64{}, map[int32][]uint64{}
	for n := range p.calls {
		to := &p.calls[n]
		for _, d := range to.Deps {
			at := p.index[d.Turn]
			from := &p.calls[at]
			if from.session == to.session || !from.shown || !to.shown {
				continue
			}
			if cmp.Or(cmp.Compare(from.start, to.start), cmp.Compare(from.session, to.session)) > 0 {
				p.Dropped++ // the viewer takes no arrow against time
				continue
			}
			id := p.arrow()
			p.leaving[at] = append(p.leaving[at], id)
			p.arriving[int32(n)] = append(p.arriving[int32(n)], id)
		}
	}
}

// drawSession draws a session without its subagents.
func (p *picture) drawSession(d *drawing, g *program, n int32) {
	s, group, kind := &p.sessions[n], p.groupOf(n), catProgram
	if s.parent >= 0 {
		kind = catSession
	}
	if p.depths[n] < maxNesting {
		p.drawExtent(g, s, group, kind)
	}
	if !s.inside {
		return
	}
	if pauses := p.pauses[s.ID]; len(pauses) > 0 {
		p.drawPauses(s, group, pauses)
	}
	p.drawWaits(g, s, group)
	d.drawTurns(g, s, group)
}

// groupOf is the group of a session, which is made, as those above it, when it is first asked for.
func (p *picture) groupOf(n int32) uint64 {
	if p.groups[n] != 0 {
		return p.groups[n]
	}
	s, parent := &p.sessions[n], p.top
	if s.parent >= 0 {
		parent = p.groupOf(s.parent)
		p.depths[n] = p.depths[s.parent] + 1
	}
	p.groups[n] = parent
	if p.depths[n] < maxNesting {
		p.groups[n] = p.group(parent, cmp.Or(s.ID, "(no session)"), rankSessions+n, "")
	}
	return p.groups[n]
}

// drawExtent draws the session, with all below it, as one slice.
func (p *picture) drawExtent(g *program, s *session, group uint64, kind string) {
	name := kind
	if kind == catSession {
		name = "subagent"
	}
	e := p.event(group, s.start, name, kind)
	e.text("session_id", s.ID)
	e.text("parent_session_id", s.Parent)
	e.text("class", s.Class)
	e.number("turns", int64(s.last-s.first))
	e.given("reported_tools", int64(len(s.Tools)))
	var input, output, failed int64
	for _, c := range p.calls[s.first:s.last] {
		input, output = input+int64(c.Input), output+int64(c.Output)
		if c.Status != "" && c.Status != "ok" {
			failed++
		}
	}
	e.number("input_tokens", input)
	e.number("output_tokens", output)
	e.given("failed_turns", failed)
	if kind == catProgram {
		e.number("sessions", int64(g.last-g.first))
		e.critical(&g.critical)
	}
	p.slice(e, s.end)
}

func (p *picture) drawPauses(s *session, group uint64, pauses []interval) {
	rows := p.rows(group, "paused", rankPaused)
	for _, v := range pauses {
		if p.sees(v.start, v.end) {
			e := p.event(rows.take(v.start, v.end), v.start, "paused", catPaused)
			e.text("session_id", s.ID)
			p.slice(e, v.end)
		}
	}
}
