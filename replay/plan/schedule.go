package plan

import (
	"container/heap"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Schedule is the state of a replay: which calls are sent, ended, or still wait. Times count from the start of the
// replay.
type Schedule struct {
	plan   *Plan
	agenda agenda
	seq    int64
	begun  int // programs
	ready  int // calls on the agenda
	// Left is the calls that are neither ended nor skipped.
	Left int
	// Live and Finished count programs.
	Live, Finished int
}

// Send is one request that is to be sent.
type Send struct {
	// Call indexes the workload's calls, Copy counts repetitions of its program.
	Call int32
	Copy uint32
	// Planned is the time that the recording asks for, or trace.NoTime. Ready is when what the call waited for had
	// ended and its gap had passed. Due is when it should be sent: the later of those that its timing heeds.
	Planned, Ready, Due time.Duration
	// Final tells that it is the last of its session.
	Final bool

	program *program
}

// program is one run of a program.
type program struct {
	index    int32
	copy     uint32
	calls    []progress
	sessions map[int32]*session
	left     int
}

// progress is how far a call is.
type progress struct {
	waits int32
	ready time.Duration
}

// session is what is left of a session's calls.
type session struct {
	unsent int
	begun  bool
	over   bool // its later calls are not sent
}

// entry is something that happens at a time: a call is due, or (call < 0) the next program begins.
type entry struct {
	at   time.Duration
	seq  int64 // for equal times: programs first, then in order
	call int32
	run  *program
}

// Start begins a replay of the plan.
func (p *Plan) Start() *Schedule {
	s := &Schedule{plan: p, Left: p.Calls}
	if p.Options.Timing == Concurrency {
		for i := range min(p.Options.Concurrency, p.Programs) {
			s.push(entry{at: time.Duration(i) * (p.Options.Ramp / time.Duration(p.Options.Concurrency)), call: -1})
		}
	} else {
		s.schedule()
	}
	return s
}

func (s *Schedule) push(e entry) {
	if e.call >= 0 {
		s.seq++
		e.seq = s.seq
		s.ready++
	}
	heap.Push(&s.agenda, e)
}

// schedule puts the next program on the agenda, in the timings in which the recording says when it begins.
func (s *Schedule) schedule() {
	p := s.plan
	if s.begun >= p.Programs {
		return
	}
	at := p.start(p.order[s.begun%len(p.order)])
	if round := s.begun / len(p.order); round > 0 {
		at += time.Duration(round) * p.round
	}
	if p.Options.Timing == ASAP {
		at = 0
	}
	s.push(entry{at: at, call: -1})
}

// start is the earliest planned time of a program's calls.
func (p *Plan) start(index int32) time.Duration {
	at := trace.NoTime
	for i := p.Workload.Programs[index].First; i < p.Workload.Programs[index].Last; i++ {
		if t := p.planned[i]; t != trace.NoTime && (at == trace.NoTime || t < at) {
			at = t
		}
	}
	if at == trace.NoTime { // no call has a time: the program's own
		at = max(0, p.scale(p.Workload.Programs[index].Start-p.Options.From))
	}
	return at
}

// Next returns when the next request is due; false when nothing is, until a call ends or the replay is over.
func (s *Schedule) Next() (time.Duration, bool) {
	for len(s.agenda) > 0 && s.agenda[0].call < 0 {
		e := heap.Pop(&s.agenda).(entry)
		s.begin(e.at)
		if s.plan.Options.Timing != Concurrency {
			s.schedule()
		}
	}
	if len(s.agenda) == 0 {
		return 0, false
	}
	return s.agenda[0].at, true
}

// Send takes the next request off the schedule; now is when it is sent. It must follow a Next that returned true.
// What waits for its dispatch may become due.
func (s *Schedule) Send(now time.Duration) Send {
	e := heap.Pop(&s.agenda).(entry)
	s.ready--
	c := &s.plan.Workload.Calls[e.call]
	send := Send{Call: e.call, Copy: e.run.copy, Planned: s.planned(e.run, e.call), Ready: s.progress(e.run, e.call).ready, Due: e.at, program: e.run}
	own := e.run.sessions[c.Session]
	own.begun = true
	own.unsent--
	send.Final = own.unsent == 0
	s.release(e.run, c, now, true)
	return send
}

// Ended lets go what waits for the end of a call.
func (s *Schedule) Ended(send Send, now time.Duration) {
	s.end(send.program, send.Call, now)
}

// EndSession says that no further call of the request's session, nor of sessions that it would have spawned, is to be
// sent. They count as ended when their turn comes.
func (s *Schedule) EndSession(send Send) {
	send.program.sessions[s.plan.Workload.Calls[send.Call].Session].over = true
}

// planned is the planned time of a call in a run of its program.
func (s *Schedule) planned(run *program, call int32) time.Duration {
	at := s.plan.planned[call]
	if at != trace.NoTime && s.plan.Options.Timing != Concurrency {
		at += time.Duration(run.copy) * s.plan.round
	}
	return at
}

func (s *Schedule) progress(run *program, call int32) *progress {
	return &run.calls[call-s.plan.Workload.Programs[run.index].First]
}

// begin starts the next program.
func (s *Schedule) begin(now time.Duration) {
	p, w := s.plan, s.plan.Workload
	index := p.order[s.begun%len(p.order)]
	pr := &w.Programs[index]
	run := &program{index: index, copy: uint32(s.begun / len(p.order)), calls: make([]progress, pr.Last-pr.First), sessions: map[int32]*session{}}
	s.begun++
	s.Live++
	for i := pr.First; i < pr.Last; i++ {
		if !p.kept[i] {
			continue
		}
		run.left++
		*s.progress(run, i) = progress{waits: p.waits[i], ready: now}
		own := run.sessions[w.Calls[i].Session]
		if own == nil {
			own = new(session)
			run.sessions[w.Calls[i].Session] = own
		}
		own.unsent++
	}
	for i := pr.First; i < pr.Last; i++ {
		if p.kept[i] && p.waits[i] == 0 {
			s.push(entry{at: s.first(run, i, now), call: i, run: run})
		}
	}
}

// first is when a call that waits for nothing is due, in a program that begins now.
func (s *Schedule) first(run *program, call int32, now time.Duration) time.Duration {
	planned := s.planned(run, call)
	switch {
	case s.plan.Options.Timing == ASAP || planned == trace.NoTime:
		return now
	case s.plan.Options.Timing == Concurrency:
		return now + planned - s.plan.start(run.index)
	}
	return max(now, planned)
}

// release satisfies the edges out of a call that count from its dispatch, or from its end.
func (s *Schedule) release(run *program, c *trace.Call, now time.Duration, dispatch bool) {
	if s.plan.Options.Timing == Strict {
		return
	}
	for _, edge := range s.plan.Workload.Successors(c) {
		if edge.OnDispatch != dispatch || !s.plan.kept[edge.To] {
			continue
		}
		at := now
		planned := s.planned(run, edge.To)
		byClock := s.plan.Options.byClock() && planned != trace.NoTime
		if !byClock {
			at += s.plan.gap(edge.Delay)
		}
		p := s.progress(run, edge.To)
		p.ready = max(p.ready, at)
		if p.waits--; p.waits > 0 {
			continue
		}
		due := p.ready
		if byClock {
			due = max(due, planned)
		}
		if s.skips(run, edge.To) {
			s.skip(run, edge.To, now)
			continue
		}
		s.push(entry{at: due, call: edge.To, run: run})
	}
}

// skips tells whether a call belongs to a session that is over, or that would have been spawned by one.
func (s *Schedule) skips(run *program, call int32) bool {
	at := s.plan.Workload.Calls[call].Session
	own := run.sessions[at]
	if own.over || own.begun {
		return own.over
	}
	for {
		parent := s.plan.parents[at]
		if parent == at {
			return false
		}
		at = parent
		if up := run.sessions[at]; up != nil && up.over {
			own.over = true
			return true
		}
	}
}

// skip ends a call that is never sent.
func (s *Schedule) skip(run *program, call int32, now time.Duration) {
	c := &s.plan.Workload.Calls[call]
	run.sessions[c.Session].unsent--
	s.release(run, c, now, true)
	s.end(run, call, now)
}

func (s *Schedule) end(run *program, call int32, now time.Duration) {
	s.release(run, &s.plan.Workload.Calls[call], now, false) // may end others that are skipped
	s.Left--
	if run.left--; run.left > 0 {
		return
	}
	s.Live--
	s.Finished++
	if s.plan.Options.Timing == Concurrency && s.begun+s.waiting() < s.plan.Programs {
		s.push(entry{at: now, call: -1})
	}
}

// waiting counts the programs that are about to begin.
func (s *Schedule) waiting() int { return len(s.agenda) - s.ready }

// agenda is a heap of entries.
type agenda []entry

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(entry)) }
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	*a = old[:len(old)-1]
	return e
}
