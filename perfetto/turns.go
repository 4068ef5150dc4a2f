package perfetto

import (
	"fmt"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// drawing is a session whose turns and tools are being drawn.
type drawing struct {
	*picture
	program *program
	session *session
	tools   []tool
	// arrows that leave and reach calls and stages of calls, by call.
	leaving, arriving, migrating, migrated map[int32][]uint64
}

// drawTurns draws the session's calls and tools, in order of time.
func (p *picture) drawTurns(g *program, s *session, group uint64) {
	d := &drawing{picture: p, program: g, session: s, tools: p.plan.tools(s),
		leaving: map[int32][]uint64{}, arriving: map[int32][]uint64{}, migrating: map[int32][]uint64{}, migrated: map[int32][]uint64{}}
	toolArrows := d.connect()
	turns, tools := p.rows(group, "turns", rankTurns), p.rows(group, "tools", rankTools)
	next := 0
	for n := s.first; n <= s.last; n++ {
		// A tool that begins with a call comes after the call that asked for it, and before the one that takes its result.
		for ; next < len(d.tools); next++ {
			t := &d.tools[next]
			if n < s.last && (t.Start > p.calls[n].start || t.Start == p.calls[n].start && t.from >= n) {
				break
			}
			d.drawTool(t, tools, toolArrows[next])
		}
		if n < s.last && p.calls[n].shown {
			d.drawCall(n, turns)
		}
	}
}

// through is the arrows into and out of a tool.
type through struct{ in, out []uint64 }

// connect makes the arrows between the calls and tools of the session: a call to its tools and on to the next call, or
// straight to it where no tool is known, and the worker that a session leaves to the one where it goes on.
func (d *drawing) connect() []through {
	type pair struct{ from, to int32 }
	linked := map[pair]bool{}
	list := make([]through, len(d.tools))
	for i := range d.tools {
		t := &d.tools[i]
		if !d.sees(t.Start, t.End) {
			continue
		}
		if t.from >= 0 && d.calls[t.from].shown {
			id := d.arrow()
			d.leaving[t.from] = append(d.leaving[t.from], id)
			list[i].in = []uint64{id}
		}
		if t.to >= 0 && d.calls[t.to].shown {
			id := d.arrow()
			d.arriving[t.to] = append(d.arriving[t.to], id)
			list[i].out = []uint64{id}
			linked[pair{t.from, t.to}] = len(list[i].in) > 0
		}
	}
	for n := d.session.first; n < d.session.last; n++ {
		c := &d.calls[n]
		for _, dep := range c.Deps {
			from := d.index[dep.Turn]
			if f := &d.calls[from]; f.session != c.session || !f.shown || !c.shown || linked[pair{from, n}] {
				continue
			}
			if from > n {
				d.Dropped++
				continue
			}
			id := d.arrow()
			d.leaving[from] = append(d.leaving[from], id)
			d.arriving[n] = append(d.arriving[n], id)
		}
		if n > d.session.first && d.moved(n-1, n) {
			id := d.arrow()
			d.migrating[n-1] = append(d.migrating[n-1], id)
			d.migrated[n] = append(d.migrated[n], id)
		}
	}
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
	}
	return name + " error", catError
}

func (d *drawing) drawTool(t *tool, rows *rows, arrows through) {
	if !d.sees(t.Start, t.End) || d.Worker != "" && len(arrows.in)+len(arrows.out) == 0 {
		return
	}
	e := event{track: rows.take(t.Start, t.End), at: t.Start, categories: []string{catTool}, ends: arrows.in, starts: arrows.out}
	name := t.Class
	if t.inferred {
		name, e.categories[0] = t.Class+" (inferred)", catInferred
	}
	var bad string
	if e.name, bad = status(name, t.Status); bad != "" {
		e.categories = append(e.categories, bad)
	}
	var a args
	a.tool(d.plan, d.session, t)
	e.args = a
	d.slice(&e, t.End)
}

// drawCall draws a call with its stages inside.
func (d *drawing) drawCall(n int32, rows *rows) {
	c := &d.calls[n]
	e := event{track: rows.take(c.start, c.end), at: c.start, categories: []string{catTurn},
		starts: append(d.picture.leaving[n], d.leaving[n]...), ends: append(d.picture.arriving[n], d.arriving[n]...)}
	name := fmt.Sprintf("turn %d", n-d.session.first+1)
	if r := run(c.Turn); r != nil && c.Status != "" && r.Status == "rejected" {
		name += " rejected"
	}
	var bad string
	if e.name, bad = status(name, c.Status); bad != "" {
		e.categories = append(e.categories, bad)
	}
	var a args
	a.turn(c, d.capture.Epoch)
	if c.critical {
		e.categories = append(e.categories, catCritical)
		a.real("critical_share", d.program.critical.share(c.took()))
	}
	if len(d.migrated[n]) > 0 {
		was, _ := servedBy(d.calls[n-1].Turn)
		a.text("migrated_from_worker", was.String())
	}
	e.args = a
	var stages []stage
	if !d.noStages {
		stages = c.stages()
	}
	if len(stages) == 0 {
		e.starts, e.ends = append(e.starts, d.migrating[n]...), append(e.ends, d.migrated[n]...)
	}
	d.begin(&e)
	if c.Compaction {
		d.mark(&e, "compaction", catCompaction, c.start)
	}
	d.drawStages(n, e.track, stages)
	if c.Final {
		d.mark(&e, "session final", catFinal, c.end)
	}
	d.end(e.track, c.end)
}

// mark draws an instant inside a call.
func (d *drawing) mark(e *event, name, category string, at time.Duration) {
	var a args
	a.text("session_id", d.session.ID)
	d.instant(&event{track: e.track, at: at, name: name, categories: []string{category}, args: a})
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

// The names of stages.
const (
	stageWait    = "prefill wait"
	stagePrefill = "prefill"
	stageDecode  = "decode"
)

// stages returns the parts of a call that the trace tells: the wait, the prefill up to the first token, and the decode
// from there on. Sums of rounded times do not lead out of the call.
func (c *call) stages() []stage {
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
	var list []stage
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

func (d *drawing) drawStages(n int32, track uint64, stages []stage) {
	c := &d.calls[n]
	arrived, token := false, c.firstToken == trace.NoTime
	for i, s := range stages {
		if !token && s.start >= c.firstToken {
			token = true
			d.drawFirstToken(c, track)
		}
		e := event{track: track, at: s.start, name: s.name, categories: []string{catStage}}
		if i == len(stages)-1 {
			e.starts = d.migrating[n]
		}
		if !arrived && (s.name != stageWait || i == len(stages)-1) {
			e.ends, arrived = d.migrated[n], true
		}
		var a args
		a.id("request_id", c.ID)
		a.text("inferred", s.inferred)
		switch det := c.Detail; {
		case s.name == stagePrefill:
			a.count("cached_tokens", int64(c.Cached))
			a.number("input_tokens", int64(c.Input))
		case s.name == stageDecode:
			a.number("output_tokens", int64(c.Output))
			if det != nil {
				a.ms("avg_itl_ms", det.ITL)
			}
		case det != nil:
			a.count("queue_depth", det.QueueDepth)
		}
		e.args = a
		d.begin(&e)
		if s.held > 0 {
			d.slice(&event{track: track, at: s.start, name: "held", categories: []string{catHeld}}, s.start+s.held)
		}
		d.end(track, s.end)
	}
	if !token && !d.noStages {
		d.drawFirstToken(c, track)
	}
}

func (d *drawing) drawFirstToken(c *call, track uint64) {
	var a args
	a.id("request_id", c.ID)
	a.ms("ttft_ms", c.TTFT)
	d.instant(&event{track: track, at: c.firstToken, name: "first token", categories: []string{catFirstToken}, args: a})
}
