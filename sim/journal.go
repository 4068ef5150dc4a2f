package sim

import (
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace/events"
)

// journal tells Options.Events what happens in a run. It looks on and changes nothing; a nil one does nothing.
type journal struct {
	r     *run
	steps []stepNotes // by engine
	// Samples are taken once something has happened, but not before due, and told where they differ from the last.
	due      time.Duration
	programs events.Programs
	kv       []events.KV // by engine
	trails   trails
	places   places
}

// journalStep is the least time between two samples.
const journalStep = 100 * time.Millisecond

// stepNotes is the steps in flight of an engine, and what it had done before them.
type stepNotes struct {
	events.Step
	start   time.Duration
	before  engine.Stats
	evicted int64
}

func newJournal(r *run) *journal {
	j := &journal{r: r, steps: make([]stepNotes, r.plan.Ranks), kv: make([]events.KV, r.plan.Ranks), trails: newTrails(r.plan.Ranks)}
	if r.memory != nil {
		j.places = newPlaces()
		r.memory.Ended = j.moved
	}
	for worker := range j.steps {
		j.steps[worker].Worker, j.kv[worker].Worker = int32(worker), int32(worker)
	}
	return j
}

// EventsHeader says what the events of a run of the plan are of. Its workload begins at the given Unix time in ms.
func (p *Plan) EventsHeader(epoch int64) events.Header {
	h := events.Header{Run: p.Name, Origin: events.Predicted, EpochMs: epoch, BlockSize: p.Engine.BlockSize, Workers: make([]events.Worker, p.Ranks)}
	for rank := range h.Workers {
		w := &h.Workers[rank]
		*w = events.Worker{GPUs: p.Hardware.Parallelism.GPUs() * p.Workers / p.Ranks, Blocks: p.of(rank).Blocks}
		if p.memory != nil {
			w.Host, w.Disk, h.Remote = p.memory.Host.Blocks, p.memory.Disk.Blocks, p.memory.Remote.Blocks
		}
	}
	return h
}

func (j *journal) tell(e events.Event) {
	e.At = j.r.now
	j.r.options.Events(&e)
}

// admitted notes that a request is part of the step that its engine begins.
func (j *journal) admitted(l *live) {
	if j == nil {
		return
	}
	j.trails.drop(l.Session)
	q, worker := l.at()
	if q.Preemptions > 0 {
		return
	}
	s := &j.steps[worker]
	s.Admitted++
	s.Queried += int64(q.Input)
	s.Hit += int64(q.Hit)
}

func (j *journal) preempted(l *live) {
	if j == nil {
		return
	}
	suffix := copySuffix(l.inst.copy)
	turn := j.r.w.Calls[l.call].Turn
	_, worker := l.at()
	j.tell(events.Event{Preemption: &events.Preemption{Worker: worker, Session: turn.Session.ID + suffix, Request: turn.ID + suffix}})
	j.leave(l)
}

// begin notes that an engine begins a step, if it has anything to do.
func (j *journal) begin(worker int) {
	if j == nil {
		return
	}
	s, e := &j.steps[worker], j.r.engines[worker]
	s.start, s.Running, s.Waiting = j.r.now, e.Running(), e.Waiting()
}

// firstToken counts a token that comes out of a prefill.
func (j *journal) firstToken(l *live) {
	if j != nil && l.Output > 0 {
		j.steps[l.worker].Output++
	}
}

// end tells of the steps that an engine has ended.
func (j *journal) end(worker int) {
	if j == nil {
		return
	}
	s, e := &j.steps[worker], j.r.engines[worker]
	step := s.Step
	step.Took, step.Steps = j.r.now-s.start, e.Stats.Steps-s.before.Steps
	step.Prefill, step.Decode = e.Stats.PrefillTokens-s.before.PrefillTokens, e.Stats.DecodeTokens-s.before.DecodeTokens
	step.Output += step.Decode
	step.Evicted = e.Evicted() - s.evicted
	j.tell(events.Event{Step: &step})
	s.Step = events.Step{Worker: int32(worker)}
	j.count(worker)
}

// count notes what an engine has done by now, between steps.
func (j *journal) count(worker int) {
	if j != nil {
		j.steps[worker].before, j.steps[worker].evicted = j.r.engines[worker].Stats, j.r.engines[worker].Evicted()
	}
}

// completed notes what a request leaves in the cache when it ends.
func (j *journal) completed(l *live) {
	switch {
	case j == nil:
	case j.r.endsSession(l.call) || l.inst.cut:
		j.trails.drop(l.Session)
	default:
		j.leave(l)
	}
}

func (j *journal) leave(l *live) {
	session := j.r.w.Calls[l.call].Session
	_, worker := l.at()
	j.trails.put(l.Session, int(worker), j.r.parents[session] != session, l.Path)
}

// forget drops the sessions of a program that has ended.
func (j *journal) forget(inst *instance) {
	if j == nil {
		return
	}
	for key := range inst.sessions(j.r.w) {
		j.trails.drop(key)
	}
}

func (j *journal) fault(f Fault) {
	if j == nil {
		return
	}
	ranks := j.r.plan.Parallelism.Data
	for rank := f.Worker * ranks; rank < (f.Worker+1)*ranks; rank++ {
		j.tell(events.Event{Fault: &events.Fault{Worker: int32(rank), Action: f.Action}})
	}
}

// decided tells of a decision of a program scheduler.
func (j *journal) decided(e *thunderagent.Event) {
	if j == nil {
		return
	}
	suffix := copySuffix(uint32(e.Session >> 32))
	d := &events.Decision{What: string(e.Kind), Why: string(e.Reason), Session: j.sessionID(e.Session), Worker: e.Worker,
		Size: e.Size, Used: e.Used, Capacity: e.Capacity, Room: e.Room}
	if q := e.Request; q != nil {
		if l := j.r.lives[q.ID]; q == &l.ticket { // or else it only says that the session has ended
			d.Request = j.r.w.Calls[l.call].Turn.ID + suffix
		}
	}
	j.tell(events.Event{Decision: d})
}

// sample takes the sample that is due before until, when something happens next; until then all stays as it is.
func (j *journal) sample(until time.Duration) {
	if j == nil {
		return
	}
	if at := max(j.due, j.r.now); at < until {
		j.take(at)
	}
}

// take tells of the state of the run at a time up to which nothing more happens. It looks at every request in flight and
// at every session between two turns once.
func (j *journal) take(at time.Duration) {
	if j == nil {
		return
	}
	j.due = at + journalStep
	programs := events.Programs{Live: j.r.living, Paused: len(j.r.gate.waiting)}
	if stats := j.r.schedulerStats(); stats != nil {
		programs.Paused += int(stats.PausedPrograms)
	}
	for _, l := range j.r.lives {
		switch {
		case l.seq == 0:
		case l.stage == atGate || l.stage == atTable:
			programs.Held++
		case l.stage == atPrefillRouter || l.stage == atRouter:
			programs.Queued++
		}
	}
	if programs != j.programs {
		j.programs = programs
		j.r.options.Events(&events.Event{At: at, Programs: &programs})
	}
	for worker, kv := range j.blocks(at) {
		if kv != j.kv[worker] {
			j.kv[worker] = kv
			told := kv
			j.r.options.Events(&events.Event{At: at, KV: &told})
		}
	}
	j.locate(at)
}
