// Package plan turns a compiled workload into a schedule of live requests: when each call should be sent, and what it
// waits for.
//
//	trace.Workload ── New ──► Plan ── Start ──► Schedule ── Next, Send ──► the client
//	                                               ▲────────── Ended ────────┘
//
// A Schedule reads no clock: the caller says when things happened, so that the same answers at the same times give the
// same schedule.
package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
)

// The ways of timing a replay.
const (
	// Recorded sends a call at its recorded time, or when what it waits for has ended if that is later.
	Recorded = "recorded"
	// Closed sends a call its recorded gap after the end of what it waits for; first calls at their recorded time.
	Closed = "closed"
	// Strict sends every call at its recorded time and waits for nothing.
	Strict = "strict"
	// ASAP sends a call as soon as what it waits for has ended.
	ASAP = "asap"
	// Concurrency keeps a number of programs live at all times; gaps are those of Closed.
	Concurrency = "concurrency"
)

// Timings are the names of the ways of timing, the default first.
func Timings() []string { return []string{Recorded, Closed, Strict, ASAP, Concurrency} }

// Options say what of a workload is replayed, and when.
type Options struct {
	// Timing is one of Timings; "" is Recorded.
	Timing string
	// Speed divides arrivals and gaps; 0 is 1.
	Speed float64
	// MaxGap, where positive, is applied after Speed: it bounds the gap between the turns of a session, and in the
	// timings by recorded time the stretches in which no call of the recording ran.
	MaxGap time.Duration
	// From and To select the calls recorded in [From, To) since the capture's time zero, From becomes time zero of the
	// replay; To 0 is the end.
	From, To time.Duration
	// Sessions, where positive, keeps that many root sessions, in order of start; Share that part of them, chosen by
	// hash of the session's id. Whole programs are kept.
	Sessions int
	Share    float64
	// Loop is how often the whole is replayed; 0 is once. Repetitions get private copies of what no other program shares.
	Loop int
	// Concurrency is the programs that live at a time, with that timing.
	Concurrency int
	// Ramp is the time over which the first programs begin with that timing, evenly spread; 0 lets all begin at once.
	Ramp time.Duration
}

// loopPause separates the end of a repetition from the start of the next.
const loopPause = time.Second

// Plan is what is to be sent. It is immutable.
type Plan struct {
	Workload *trace.Workload
	Options  Options
	// Calls is the number of requests of the whole replay, Programs and Sessions count repetitions too.
	Calls, Programs, Sessions int

	order   []int32 // programs in order of beginning
	kept    []bool  // by call
	planned []time.Duration
	waits   []int32
	parents []int32 // by session: its parent, or itself
	round   time.Duration
}

// New makes the plan of a workload. Errors name the option that leaves nothing to replay or cannot be met.
func New(w *trace.Workload, o Options) (*Plan, error) {
	o.Timing = cmp.Or(o.Timing, Recorded)
	o.Speed = cmp.Or(o.Speed, 1)
	o.Loop = max(o.Loop, 1)
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("planning the replay: %w", err)
	}
	p := &Plan{Workload: w, Options: o, kept: make([]bool, len(w.Calls)), planned: make([]time.Duration, len(w.Calls)),
		waits: make([]int32, len(w.Calls)), parents: w.Parents()}
	p.choosePrograms()
	p.keepCalls()
	p.planTimes()
	if timed := o.Timing != ASAP && o.Timing != Concurrency; timed && float64(p.round)*float64(o.Loop) > float64(century) {
		return nil, fmt.Errorf("planning the replay: %d rounds at speed %g last longer than a century", o.Loop, o.Speed)
	}
	if err := p.countWaits(); err != nil {
		return nil, fmt.Errorf("planning the replay: %w", err)
	}
	if p.Calls == 0 {
		return nil, fmt.Errorf("planning the replay: no call of the trace is left (from, to or sessions select none of its %d)", len(w.Calls))
	}
	if p.Calls > maxCalls {
		return nil, fmt.Errorf("planning the replay: loop %d makes %d requests, want at most %d", o.Loop, p.Calls, maxCalls)
	}
	return p, nil
}

// maxCalls bounds the requests of a replay.
const maxCalls = 50_000_000

func (o *Options) check() error {
	switch {
	case !slices.Contains(Timings(), o.Timing):
		return fmt.Errorf("timing %q: want one of %q", o.Timing, Timings())
	case !(o.Speed > 0) || math.IsInf(o.Speed, 0):
		return fmt.Errorf("speed %v: want a positive number", o.Speed)
	case o.From < 0 || o.To < 0 || o.To > 0 && o.To <= o.From:
		return fmt.Errorf("from %v to %v: want a stretch of time that begins at 0 or later", o.From, o.To)
	case o.Share < 0 || o.Share > 1 || o.Sessions < 0:
		return fmt.Errorf("sessions: want a count, or a share between 0 and 1")
	case (o.Timing == Concurrency) != (o.Concurrency > 0):
		return fmt.Errorf("concurrency %d goes with timing %q, not %q", o.Concurrency, Concurrency, o.Timing)
	case o.Ramp < 0 || o.Ramp > 0 && o.Timing != Concurrency:
		return fmt.Errorf("ramp %v: want a time, with timing %q", o.Ramp, Concurrency)
	case o.Loop > 1e6:
		return fmt.Errorf("loop %d: want at most a million", o.Loop)
	}
	return nil
}

// byClock tells that recorded times alone decide when calls may be sent.
func (o *Options) byClock() bool { return o.Timing == Recorded || o.Timing == Strict }

// choosePrograms sets the order of programs: by start, but that of the file where slots decide.
func (p *Plan) choosePrograms() {
	w, o := p.Workload, &p.Options
	for i := range w.Programs {
		root := w.Sessions[w.Calls[w.Programs[i].First].Session].ID
		if o.Share == 0 || share(root) < o.Share {
			p.order = append(p.order, int32(i))
		}
	}
	if o.Timing != Concurrency {
		slices.SortStableFunc(p.order, func(a, b int32) int { return cmp.Compare(w.Programs[a].Start, w.Programs[b].Start) })
	}
	if o.Sessions > 0 && len(p.order) > o.Sessions {
		p.order = p.order[:o.Sessions]
	}
}

// share places a session's id evenly in [0, 1).
func share(id string) float64 {
	sum := uint64(len(id))
	for i := range len(id) {
		sum = hash.Combine(sum, uint64(id[i]))
	}
	return float64(sum>>11) / (1 << 53)
}

// keepCalls marks the calls in the window, and drops programs that have none.
func (p *Plan) keepCalls() {
	w, o := p.Workload, &p.Options
	sessions := map[int32]bool{}
	p.order = slices.DeleteFunc(p.order, func(program int32) bool {
		pr := &w.Programs[program]
		any := false
		for i := pr.First; i < pr.Last; i++ {
			at := pr.Start // of a call whose time only its dependencies tell
			if c := &w.Calls[i]; c.Offset != trace.NoTime {
				at += c.Offset
			}
			if at >= o.From && (o.To == 0 || at < o.To) {
				p.kept[i], any = true, true
				p.Calls++
				sessions[w.Calls[i].Session] = true
			}
		}
		return !any
	})
	p.Calls *= o.Loop
	p.Programs, p.Sessions = len(p.order)*o.Loop, len(sessions)*o.Loop
}

// planTimes gives each call its time: the recorded one since From, with long stretches of silence cut and divided by the
// speed. Calls without a recorded time have none.
func (p *Plan) planTimes() {
	w, o := p.Workload, &p.Options
	var timed []int32
	for i := range w.Calls {
		p.planned[i] = trace.NoTime
		if p.kept[i] && w.Calls[i].Turn.Start != trace.NoTime {
			timed = append(timed, int32(i))
		}
	}
	slices.SortStableFunc(timed, func(a, b int32) int { return cmp.Compare(w.Calls[a].Turn.Start, w.Calls[b].Turn.Start) })
	busy, cut := time.Duration(0), time.Duration(0) // busy is until when a call runs, which the speed does not change
	for _, i := range timed {
		t := w.Calls[i].Turn
		at := p.scale(t.Start-o.From) - cut
		if silence := at - busy; o.MaxGap > 0 && silence > o.MaxGap {
			cut += silence - o.MaxGap
			at = busy + o.MaxGap
		}
		p.planned[i] = at
		busy = max(busy, at+max(0, t.End-t.Start))
		p.round = max(p.round, p.planned[i])
	}
	p.round += loopPause
}

// countWaits counts the edges into each call from calls that are sent too.
func (p *Plan) countWaits() error {
	w := p.Workload
	for i := range w.Calls {
		if !p.kept[i] {
			continue
		}
		if p.Options.Timing == Strict {
			if p.planned[i] == trace.NoTime {
				return fmt.Errorf("timing strict: request %q has no recorded time; take closed or asap", w.Calls[i].Turn.ID)
			}
			continue
		}
		for _, edge := range w.Successors(&w.Calls[i]) {
			p.waits[edge.To]++
		}
	}
	return nil
}

// scale divides a recorded time by the speed.
func (p *Plan) scale(d time.Duration) time.Duration {
	if p.Options.Speed == 1 {
		return d
	}
	return time.Duration(min(math.Round(float64(d)/p.Options.Speed), float64(century)))
}

// century bounds times: a few of them together are no more than a time.Duration holds.
const century = 100 * 365 * 24 * time.Hour

// gap is how long a call waits along an edge with a recorded delay.
func (p *Plan) gap(delay time.Duration) time.Duration {
	if p.Options.Timing == ASAP {
		return 0
	}
	delay = p.scale(delay)
	if p.Options.MaxGap > 0 {
		delay = min(delay, p.Options.MaxGap)
	}
	return delay
}

// Parent returns the index of a session's parent, and whether it has one.
func (p *Plan) Parent(session int32) (int32, bool) {
	parent := p.parents[session]
	return parent, parent != session
}

// CallsOf is the number of calls of a program that are sent in one run of it.
func (p *Plan) CallsOf(program int32) int {
	n := 0
	pr := &p.Workload.Programs[program]
	for _, kept := range p.kept[pr.First:pr.Last] {
		if kept {
			n++
		}
	}
	return n
}

// Cut tells that some calls of a program are not sent.
func (p *Plan) Cut(program int32) bool {
	pr := &p.Workload.Programs[program]
	return p.CallsOf(program) < int(pr.Last-pr.First)
}
