package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
)

// explanation is why calls of one run waited, moved or were computed again, or what a program scheduler did at a tick.
type explanation struct {
	Name  string           `json:"name"`
	Calls []*explainedCall `json:"calls,omitempty"`
	Ticks []*explainedTick `json:"ticks,omitempty"`
	// Note says why there is nothing.
	Note string `json:"note,omitempty"`

	what string
	w    *trace.Workload
	copy uint32
	// calls are those asked for, and those of their sessions besides.
	calls map[int32]*explainedCall
	wants map[int32]bool
	slots map[int32]int32             // calls by the slot that they have
	after map[uint64][]explainedEvent // by session: what was decided since its last call ended
	open  map[uint64]int              // by session: calls that have arrived and not ended
	last  map[uint64]int32            // by session: the call that arrived last

	tickAt time.Duration // -1: the tick with the most decisions
	ticks  map[int]*tickWatch
	during *tickWatch // the tick under way
}

// explainedCall is a call and what happened to it, in order of time.
type explainedCall struct {
	Session string           `json:"session"`
	Request string           `json:"request"`
	Turn    int              `json:"turn"` // of its session, from 1
	Program int32            `json:"program"`
	Input   int32            `json:"input_tokens"`
	Output  int32            `json:"output_tokens"`
	Events  []explainedEvent `json:"events"`
}

// explainedEvent is one event. Figures are in tokens where their names do not say otherwise.
type explainedEvent struct {
	AtNs    int64            `json:"at_ns"`
	What    string           `json:"what"`
	Why     string           `json:"why,omitempty"`
	Worker  *int32           `json:"worker,omitempty"`
	Figures map[string]int64 `json:"figures,omitempty"`
	// Session is told where decisions about several stand together.
	Session string            `json:"session,omitempty"`
	Options []explainedOption `json:"options,omitempty"`

	text string
}

// newExplanation finds what --explain names in a workload: a session by its id, a request by its id, a program by its
// number in the trace, from 0 on; "#N" behind it is the N-th repetition. Or a tick of the program scheduler.
func newExplanation(what string, w *trace.Workload) (*explanation, error) {
	x := &explanation{what: what, w: w, tickAt: -1, calls: map[int32]*explainedCall{}, wants: map[int32]bool{}, slots: map[int32]int32{},
		after: map[uint64][]explainedEvent{}, open: map[uint64]int{}, last: map[uint64]int32{}, ticks: map[int]*tickWatch{}}
	if at, ok := strings.CutPrefix(what, "tick"); ok && (at == "" || at[0] == '=') {
		if at != "" {
			d, err := time.ParseDuration(at[1:])
			if err != nil || d < 0 {
				return nil, usagef("--explain %s: want tick, or tick= and a time such as 1234s", what)
			}
			x.tickAt = d
		}
		return x, nil
	}
	if x.find(what) {
		return x, nil
	}
	if id, n, ok := strings.Cut(what, "#"); ok {
		if copy, err := strconv.ParseUint(n, 10, 32); err == nil && x.find(id) {
			x.copy = uint32(copy)
			return x, nil
		}
	}
	var known []string
	for _, s := range w.Sessions[:min(len(w.Sessions), 10_000)] {
		known = append(known, s.ID)
	}
	return nil, usagef("--explain %s: no session, request or program number (0 to %d) of the trace, nor tick%s", what, len(w.Programs)-1, suggestion(what, known))
}

func (x *explanation) forTick() bool { return len(x.wants) == 0 }

// find marks the calls that a name stands for, and tells whether there are any.
func (x *explanation) find(name string) bool {
	w := x.w
	program := int32(-1)
	if n, err := strconv.ParseInt(name, 10, 32); err == nil && n >= 0 && int(n) < len(w.Programs) {
		program = int32(n)
	}
	bySession, byRequest, byProgram := map[int32]bool{}, map[int32]bool{}, map[int32]bool{}
	for i := range w.Calls {
		c := &w.Calls[i]
		switch at := int32(i); {
		case w.Sessions[c.Session].ID == name:
			bySession[at] = true
		case c.Turn.ID == name:
			byRequest[at] = true
		case c.Program == program:
			byProgram[at] = true
		}
	}
	for _, found := range []map[int32]bool{bySession, byRequest, byProgram} {
		if len(found) > 0 {
			x.wants = found
			break
		}
	}
	sessions := map[int32]bool{}
	for at := range x.wants {
		sessions[w.Calls[at].Session] = true
	}
	for i := range w.Calls {
		c := &w.Calls[i]
		if !sessions[c.Session] {
			continue
		}
		turn := 1 + slices.Index(w.Sessions[c.Session].Turns, c.Turn)
		x.calls[int32(i)] = &explainedCall{Session: w.Sessions[c.Session].ID, Request: c.Turn.ID, Turn: turn, Program: c.Program,
			Input: c.Input, Output: c.Output, Events: []explainedEvent{}}
	}
	return len(x.wants) > 0
}

// watch makes the options of a run observe it.
func (x *explanation) watch(o *sim.Options) {
	o.Decisions = x.decided
	if x.forTick() {
		o.Ticks = x.ticked
	} else {
		o.Observe = x.happened
	}
}

// key is how a program scheduler calls the session of a call.
func (x *explanation) key(call int32) uint64 {
	return uint64(x.copy)<<32 | uint64(x.w.Calls[call].Session)
}

// happened keeps an event of a call that was asked for.
func (x *explanation) happened(e sim.Event) {
	if e.What == sim.Arrived {
		delete(x.slots, e.Slot)
	}
	call := x.calls[e.Call]
	if call == nil || e.Copy != x.copy {
		return
	}
	key := x.key(e.Call)
	if e.What == sim.Arrived {
		x.slots[e.Slot] = e.Call
		x.last[key] = e.Call
		call.Events = append(call.Events, x.after[key]...)
		delete(x.after, key)
		x.open[key]++
	}
	if e.Slot >= 0 && (e.What == sim.Completed || e.What == sim.Failed || e.What == sim.Denied) {
		x.open[key]--
	}
	call.Events = append(call.Events, describeEvent(&e, call))
}

// decided keeps a decision about the program of a session that was asked for: with the call that it is about, or
// between calls with the next one, whose wait it explains.
func (x *explanation) decided(e thunderagent.Event) {
	if x.during != nil {
		d := describeDecision(&e)
		d.Session = x.sessionName(e.Session)
		x.during.now.Decisions = append(x.during.now.Decisions, d)
		return
	}
	call, ok := x.last[e.Session]
	if e.Request != nil {
		if at, known := x.slots[e.Request.ID]; known && x.key(at) == e.Session {
			call, ok = at, true
		}
	}
	if !ok || x.key(call) != e.Session {
		return
	}
	d := describeDecision(&e)
	if e.Request == nil && x.open[e.Session] == 0 {
		x.after[e.Session] = append(x.after[e.Session], d)
		return
	}
	x.calls[call].Events = append(x.calls[call].Events, d)
}

// finish settles the explanation of a run that has ended.
func (x *explanation) finish(name string, scheduler bool) {
	x.Name = name
	for key, events := range x.after {
		call := x.calls[x.last[key]]
		call.Events = append(call.Events, events...)
	}
	for _, at := range slices.Sorted(maps.Keys(x.wants)) {
		x.Calls = append(x.Calls, x.calls[at])
	}
	for _, frontend := range slices.Sorted(maps.Keys(x.ticks)) {
		if t := x.ticks[frontend].best; t != nil {
			x.Ticks = append(x.Ticks, t)
		}
	}
	switch {
	case !x.forTick():
		if !slices.ContainsFunc(x.Calls, func(c *explainedCall) bool { return len(c.Events) > 0 }) {
			x.Note = "it was never sent in this run"
		}
	case !scheduler:
		x.Note = "this row has no program scheduler (router.policy thunderagent)"
	case len(x.Ticks) == 0 && x.tickAt < 0:
		x.Note = "there was no tick"
	case len(x.Ticks) == 0:
		x.Note = fmt.Sprintf("there was no tick at or after %v", x.tickAt)
	}
}
