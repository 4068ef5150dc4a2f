package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace/report"
)

// Held is the KV blocks that a session held in all engines in the measured part of a run. Copy is that of its program.
type Held struct {
	Program, Session int32
	Copy             uint32
	Blocks           kvcache.Holding
}

// holdings tell the accounts of the engines what the sessions are doing, and add up what these held. They change nothing;
// nil ones do nothing.
type holdings struct {
	r        *run
	sessions map[uint64]*holder
	all      []*holder   // in order of their first request
	owners   [][]*holder // by engine and owner; of owner 0 nil
}

// holder is a session that has sent a request to an engine.
type holder struct {
	Held
	key    uint64
	owned  []owned
	waits  kvcache.State // while it is not paused
	paused bool
}

// owned is the owner that a holder is in an engine.
type owned struct {
	worker int32
	owner  kvcache.Owner
}

func newHoldings(r *run) *holdings {
	h := &holdings{r: r, sessions: map[uint64]*holder{}, owners: make([][]*holder, r.plan.Ranks)}
	for i := range h.owners {
		h.owners[i] = []*holder{nil}
	}
	return h
}

// placed notes that a request goes to an engine, and tells it for whom.
func (h *holdings) placed(l *live) {
	if h == nil {
		return
	}
	s := h.sessions[l.Session]
	if s == nil {
		s = &holder{Held: Held{Program: l.inst.program, Session: h.r.w.Calls[l.call].Session, Copy: l.inst.copy},
			key: l.Session, waits: kvcache.Other}
		h.sessions[l.Session], h.all = s, append(h.all, s)
	}
	q, worker := l.at()
	q.Owner = h.owner(s, worker)
}

// owner is who a session is in an engine.
func (h *holdings) owner(s *holder, worker int32) kvcache.Owner {
	for _, o := range s.owned {
		if o.worker == worker {
			return o.owner
		}
	}
	o := h.r.engines[worker].Accounts().Open()
	s.owned = append(s.owned, owned{worker, o})
	h.owners[worker] = append(h.owners[worker], s)
	return o
}

// set says what a session is doing from now on. One that has ended stays so, whatever comes late.
func (h *holdings) set(s *holder, waits kvcache.State, paused bool) {
	if s.waits < kvcache.EndedSubagent {
		s.waits, s.paused = waits, paused
	}
	state := s.waits
	if s.paused {
		state = kvcache.Paused
	}
	for _, o := range s.owned {
		h.r.engines[o.worker].Accounts().SetState(h.r.now, o.owner, state)
	}
}

// arrived notes that a session has sent its next request, if it has sent any before.
func (h *holdings) arrived(l *live) {
	if h == nil {
		return
	}
	if s := h.sessions[l.Session]; s != nil {
		h.set(s, kvcache.Other, s.paused)
	}
}

// ended notes that a call has ended, and with the last one its session.
func (h *holdings) ended(inst *instance, call int32) {
	if h == nil {
		return
	}
	c := &h.r.w.Calls[call]
	s := h.sessions[sessionKey(inst, c.Session)]
	_, tool := h.r.toolOf(call)
	switch {
	case s == nil:
	case h.r.endsSession(call):
		h.end(s)
	case tool:
		h.set(s, kvcache.Tool, s.paused)
	default:
		h.set(s, kvcache.Other, s.paused)
	}
}

func (h *holdings) end(s *holder) {
	if h.r.parents[s.Session] != s.Session {
		h.set(s, kvcache.EndedSubagent, false)
	} else {
		h.set(s, kvcache.Ended, false)
	}
}

// waiting notes for what a session waits before its next call: for what takes the longest, and a call of a tool as soon as
// nobody keeps it waiting.
func (h *holdings) waiting(inst *instance, call int32, p *progress) {
	if h == nil {
		return
	}
	s := h.sessions[sessionKey(inst, h.r.w.Calls[call].Session)]
	if s == nil {
		return
	}
	switch other := p.waited - p.tool - p.human; {
	case p.human > 0 && p.human >= p.tool && p.human >= other:
		h.set(s, kvcache.Human, s.paused)
	case p.tool > 0 && p.tool >= other:
		h.set(s, kvcache.Tool, s.paused)
	}
}

// decided notes that a program scheduler has paused a session or lets it go on.
func (h *holdings) decided(e *thunderagent.Event) {
	if h == nil {
		return
	}
	s := h.sessions[e.Session]
	if s == nil {
		return
	}
	switch e.Kind {
	case thunderagent.Paused, thunderagent.Deferred:
		h.set(s, s.waits, true)
	case thunderagent.Admitted, thunderagent.Resumed, thunderagent.Forced, thunderagent.Expired:
		h.set(s, s.waits, false)
	}
}

// failed notes that a session's request was given up, after which a program scheduler has its program back as it was.
func (h *holdings) failed(session uint64) {
	if h == nil {
		return
	}
	s, table := h.sessions[session], h.r.desk(session).table
	if s != nil && table != nil {
		p, known := table.Program(h.r.now, session)
		h.set(s, s.waits, known && p.Paused)
	}
}

// programEnded notes that all sessions of a program have ended.
func (h *holdings) programEnded(inst *instance) {
	if h == nil {
		return
	}
	for key := range inst.sessions(h.r.w) {
		if s := h.sessions[key]; s != nil {
			h.end(s)
			delete(h.sessions, key)
		}
	}
}

// check verifies that sessions are taken to be paused just when their program schedulers hold them back.
func (h *holdings) check() error {
	if h == nil {
		return nil
	}
	for _, s := range h.all {
		table := h.r.desk(s.key).table
		if table == nil || s.waits >= kvcache.EndedSubagent {
			continue
		}
		p, _ := table.Program(h.r.now, s.key)
		if held := p.Paused || p.Held; held != s.paused {
			return fmt.Errorf("%w: session %s is paused: %v, to its program scheduler: %v (%+v)", errConservation, h.r.w.Sessions[s.Session].ID, s.paused, held, p)
		}
	}
	return nil
}

// close adds what sessions have held in an engine, whose accounts have been brought up to now.
func (h *holdings) close(worker int, now time.Duration) {
	if h == nil {
		return
	}
	accounts := h.r.engines[worker].Accounts()
	for o, s := range h.owners[worker] {
		if s == nil {
			continue
		}
		s.Blocks = s.Blocks.Add(accounts.Of(now, kvcache.Owner(o)))
	}
}

// result returns what each session held, in order of their first requests.
func (h *holdings) result() []Held {
	if h == nil {
		return nil
	}
	list := make([]Held, len(h.all))
	for i, s := range h.all {
		list[i] = s.Held
	}
	return list
}

// maxHolders bounds the programs that a report names.
const maxHolders = 10

// held sums up what sessions held, in GiB·s at so many to a block and second, in all and of the programs that held most.
func (r *Result) held(gib float64) (*report.Holding, []report.Holder) {
	type program struct {
		index int32
		copy  uint32
		kvcache.Holding
	}
	var all kvcache.Holding
	var programs []program
	place := map[[2]uint32]int{}
	for _, h := range r.Held {
		key := [2]uint32{uint32(h.Program), h.Copy}
		i, ok := place[key]
		if !ok {
			i = len(programs)
			place[key], programs = i, append(programs, program{index: h.Program, copy: h.Copy})
		}
		programs[i].Holding = programs[i].Add(h.Blocks)
		all = all.Add(h.Blocks)
	}
	slices.SortStableFunc(programs, func(a, b program) int { return b.Total().Compare(a.Total()) })
	var holders []report.Holder
	for _, p := range programs[:min(len(programs), maxHolders)] {
		root := r.Workload.Sessions[r.Workload.Calls[r.Workload.Programs[p.index].First].Session].ID
		holders = append(holders, report.Holder{Program: root + copySuffix(p.copy), HeldGiBS: gibSeconds(p.Holding, gib)})
	}
	sum := gibSeconds(all, gib)
	return &sum, holders
}

func gibSeconds(h kvcache.Holding, gib float64) report.Holding {
	of := func(s kvcache.State) report.Figure { return report.Known(h[s].Seconds() * gib) }
	return report.Holding{Running: of(kvcache.Running), Pinned: of(kvcache.Pinned), Tool: of(kvcache.Tool), Human: of(kvcache.Human),
		Other: of(kvcache.Other), Paused: of(kvcache.Paused), EndedSubagent: of(kvcache.EndedSubagent), Ended: of(kvcache.Ended)}
}
