package perfetto

import (
	"slices"
	"strconv"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// drawing is a session whose turns and tools are being drawn. One is used for all of a picture, with its lists.
type drawing struct {
	*picture
	program    *program
	session    *session
	turns      *rows
	toolRows   *rows
	tools      []tool
	callArrows []callArrows // in the order of the session's calls
	toolArrows []toolArrows // in the order of tools
	stages     []stage      // of a call
}

// callArrows are the arrows that leave and reach a call, and those that leave and reach its stages: from the worker that
// the session leaves to the one where it goes on.
type callArrows struct{ leaving, arriving, migrating, migrated []uint64 }

// toolArrows are the arrows that leave and reach a tool.
type toolArrows struct{ leaving, arriving []uint64 }

// drawTurns draws the session's calls and tools, in order of time.
func (d *drawing) drawTurns(g *program, s *session, group uint64) {
	p := d.picture
	d.program, d.session, d.tools = g, s, p.plan.tools(d.tools[:0], s)
	d.turns, d.toolRows = p.rows(group, "turns", rankTurns), p.rows(group, "tools", rankTools)
	d.connect()
	next := 0
	for n := s.first; n <= s.last; n++ {
		// A tool that begins with a call comes after the call that asked for it, and before the one that takes its result.
		for ; next < len(d.tools); next++ {
			t := &d.tools[next]
			if n < s.last && (t.Start > p.calls[n].start || t.Start == p.calls[n].start && t.from >= n) {
				break
			}
			d.drawTool(t, &d.toolArrows[next])
		}
		if n < s.last && p.calls[n].shown {
			d.drawCall(n)
		}
	}
}

// arrows returns those of a call.
func (d *drawing) arrows(n int32) *callArrows { return &d.callArrows[n-d.session.first] }

// link makes an arrow from a call to another of the session.
func (d *drawing) link(from, to int32) {
	id := []uint64{d.arrow()}
	d.arrows(from).leaving = append(d.arrows(from).leaving, id...)
	d.arrows(to).arriving = append(d.arrows(to).arriving, id...)
}

// connect makes the arrows between the calls and tools of the session: a call to its tools and on to the next call, or
// straight to it where no tool is known, and from worker to worker.
func (d *drawing) connect() {
	d.callArrows = zeros(d.callArrows, int(d.session.last-d.session.first))
	d.toolArrows = zeros(d.toolArrows, len(d.tools))
	type pair struct{ from, to int32 }
	linked := map[pair]bool{}
	for i := range d.tools {
		t := &d.tools[i]
		if !d.sees(t.Start, t.End) {
			continue
		}
		through := &d.toolArrows[i]
		if t.from >= 0 && d.calls[t.from].shown {
			through.arriving = []uint64{d.arrow()}
			d.arrows(t.from).leaving = append(d.arrows(t.from).leaving, through.arriving...)
		}
		if t.to >= 0 && d.calls[t.to].shown {
			through.leaving = []uint64{d.arrow()}
			d.arrows(t.to).arriving = append(d.arrows(t.to).arriving, through.leaving...)
			linked[pair{t.from, t.to}] = len(through.arriving) > 0
		}
	}
	for n := d.session.first; n < d.session.last; n++ {
		c := &d.calls[n]
		for _, dep := range c.Deps {
			from := d.index[dep.Turn]
			switch f := &d.calls[from]; {
			case f.session != c.session || !f.shown || !c.shown || linked[pair{from, n}]:
			case from > n:
				d.Dropped++ // the viewer takes no arrow against time
			default:
				d.link(from, n)
			}
		}
		if n > d.session.first && d.moved(n-1, n) {
			id := d.arrow()
			d.arrows(n - 1).migrating = []uint64{id}
			d.arrows(n).migrated = []uint64{id}
		}
	}
}

// zeros returns n zero values, in the room of a list that is no longer needed.
func zeros[T any](list []T, n int) []T {
	list = slices.Grow(list[:0], n)[:n]
	clear(list)
	return list
}

// moved tells whether the session went to another worker between two calls.
func (d *drawing) moved(from, to int32) bool {
	a, b := &d.calls[from], &d.calls[to]
	was, ok := servedBy(a.Turn)
	is, known := servedBy(b.Turn)
	return ok && known && was != is && a.shown && b.shown && a.end <= b.start
}

// status returns the name of an event by how it ended, and its category if that is not well.
func status(name, status string) (string, string) {
	switch status {
	case "", "ok", "succeeded", "completed":
		return name, ""
	case "cancelled":
		return name + " cancelled", catCancelled
	case "rejected":
		return name + " rejected", catError
	}
	return name + " error", catError
}

func (d *drawing) drawTool(t *tool, arrows *toolArrows) {
	if !d.sees(t.Start, t.End) || d.Worker != "" && len(arrows.leaving)+len(arrows.arriving) == 0 {
		return
	}
	name, category := t.Class, catTool
	if t.inferred {
		name, category = t.Class+" (inferred)", catInferred
	}
	name, bad := status(name, t.Status)
	e := d.event(d.toolRows.take(t.Start, t.End), t.Start, name, category)
	e.categories.add(bad)
	e.starts, e.ends = arrows.leaving, arrows.arriving
	e.tool(d.plan, d.session, t)
	d.slice(e, t.End)
}

// drawCall draws a call with its stages inside.
func (d *drawing) drawCall(n int32) {
	c, arrows := &d.calls[n], d.arrows(n)
	how := c.Status
	if r := run(c.Turn); r != nil && how != trace.Cancelled { // a replay completes what it cancels as recorded
		how = r.Status // which tells more kinds
	}
	name, bad := status("turn "+strconv.Itoa(int(n-d.session.first)+1), how)
	track := d.turns.take(c.start, c.end)
	e := d.event(track, c.start, name, catTurn)
	e.categories.add(bad)
	e.turn(c, d.capture.Epoch)
	if c.critical {
		e.categories.add(catCritical)
		e.real("critical_share", d.program.critical.share(c.took()))
	}
	if len(arrows.migrated) > 0 {
		was, _ := servedBy(d.calls[n-1].Turn)
		e.text("migrated_from_worker", was.String())
	}
	e.starts, e.ends = append(d.leaving[n], arrows.leaving...), append(d.arriving[n], arrows.arriving...)
	d.stages = d.stages[:0]
	if !d.noStages {
		d.stages = c.stages(d.stages)
	}
	if len(d.stages) == 0 {
		e.starts, e.ends = append(e.starts, arrows.migrating...), append(e.ends, arrows.migrated...)
	}
	d.begin(e)
	if c.Compaction {
		d.mark(track, c.start, "compaction", catCompaction)
	}
	d.drawStages(n, track)
	if c.Final {
		d.mark(track, c.end, "session final", catFinal)
	}
	d.end(track, c.end)
}

// mark draws an instant inside a call.
func (d *drawing) mark(track uint64, at time.Duration, name, category string) {
	e := d.event(track, at, name, category)
	e.text("session_id", d.session.ID)
	d.instant(e)
}

// stage is a part of a call.
type stage struct {
	name string
	interval
	// held is how much of it a scheduler held the request, at its beginning.
	held time.Duration
	// inferred says what about it is not told.
	inferred string
}

// stageOf names a stage of a call.
type stageOf struct {
	call int32
	name string
}

// The names of stages.
const (
	stageWait    = "prefill wait"
	stagePrefill = "prefill"
	stageDecode  = "decode"
)

// stages returns the parts of a call that the trace tells: the wait, the prefill up to the first token, and the decode
// from there on. Sums of rounded times do not lead out of the call. They are added to a list.
func (c *call) stages(list []stage) []stage {
	first := c.firstToken
	if first == trace.NoTime {
		first = c.end
	}
	wait, prefill, held := trace.NoTime, trace.NoTime, time.Duration(0)
	if d := c.Detail; d != nil {
		wait, prefill = d.PrefillWait, d.Prefill
		if d.Run != nil {
			held = max(d.Run.Held, 0)
		}
	}
	add := func(s stage, from, to time.Duration) {
		s.start, s.end = max(from, c.start), min(to, first)
		if s.end > s.start {
			s.held = min(s.held, s.end-s.start)
			list = append(list, s)
		}
	}
	switch {
	case wait != trace.NoTime:
		add(stage{name: stageWait, held: held}, c.start, c.start+wait)
		if prefill != trace.NoTime {
			add(stage{name: stagePrefill}, c.start+wait, c.start+wait+prefill)
		}
	case prefill != trace.NoTime:
		add(stage{name: stagePrefill}, first-prefill, first)
	case c.firstToken != trace.NoTime:
		add(stage{name: stagePrefill, inferred: "its wait is not told apart"}, c.start, first)
	case held > 0: // and never let go
		add(stage{name: stageWait, held: held}, c.start, c.end)
	}
	if c.firstToken != trace.NoTime && c.end > first {
		list = append(list, stage{name: stageDecode, interval: interval{first, c.end}})
	}
	return list
}

// drawStages draws the stages of a call, and its first token where the decode begins.
func (d *drawing) drawStages(n int32, track uint64) {
	c, arrows := &d.calls[n], d.arrows(n)
	arrived, token := false, c.firstToken == trace.NoTime || d.noStages
	for i, s := range d.stages {
		if !token && s.start >= c.firstToken {
			token = true
			d.drawFirstToken(c, track)
		}
		last := i == len(d.stages)-1
		e := d.event(track, s.start, s.name, catStage)
		if last {
			e.starts = arrows.migrating
		}
		if !arrived && (s.name != stageWait || last) {
			e.ends, arrived = arrows.migrated, true
		}
		e.ends = append(e.ends, d.brought[stageOf{n, s.name}]...)
		e.stage(c, &s)
		d.begin(e)
		if s.held > 0 {
			d.slice(d.event(track, s.start, "held", catHeld), s.start+s.held)
		}
		d.end(track, s.end)
	}
	if !token {
		d.drawFirstToken(c, track)
	}
}

func (d *drawing) drawFirstToken(c *call, track uint64) {
	e := d.event(track, c.firstToken, "first token", catFirstToken)
	e.id("request_id", c.ID)
	e.ms("ttft_ms", c.TTFT)
	d.instant(e)
}
