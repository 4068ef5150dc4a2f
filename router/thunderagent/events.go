package thunderagent

import "time"

// Kind is what was decided.
type Kind string

// The kinds of events.
const (
	Admitted Kind = "admit"         // a request goes out
	Deferred Kind = "defer"         // a request is held
	Paused   Kind = "pause"         // a program lost its worker
	Marked   Kind = "mark"          // a program is to be paused when its request ends
	Resumed  Kind = "resume"        // a paused program has a worker again
	Forced   Kind = "forced-resume" // a held request goes out because it waited too long
	Expired  Kind = "expire"        // an idle program is forgotten
	Migrated Kind = "migrate"       // a session's request was sent to another worker than the one before
	Restored Kind = "rollback"      // a request was aborted, and its program is as it was before
)

// Reason says why.
type Reason string

// The reasons of events and releases.
const (
	Fits           Reason = "fits"            // new program, room on the worker
	SameWorker     Reason = "same worker"     // known program, unchecked
	NoCapacity     Reason = "no capacity"     // none is published yet
	LastRequest    Reason = "last request"    // final: never held
	RoomAgain      Reason = "room again"      // below the resume ceiling
	TimedOut       Reason = "timed out"       // held for resume_timeout
	FitsNowhere    Reason = "fits nowhere"    // no worker has room for it
	PinFull        Reason = "pin full"        // its hard pin has no room, or is gone
	BehindPaused   Reason = "behind paused"   // new program, and others are paused
	ProgramPaused  Reason = "program paused"  // its program is paused
	OverThreshold  Reason = "over threshold"  // the worker is used beyond pause_threshold
	MarkedBefore   Reason = "marked before"   // its turn has ended
	IdleTooLong    Reason = "idle too long"   // for session_retention
	TableFull      Reason = "table full"      // makes place for a new program
	OtherWorker    Reason = "other worker"    // resumed or placed elsewhere
	RequestAborted Reason = "request aborted" // before its end
)

// Event is one decision and the figures behind it, in tokens.
type Event struct {
	At      time.Duration
	Kind    Kind
	Reason  Reason
	Session uint64
	Request *Request // nil when the decision is about a program without one
	Worker  int32    // the one in question, of those where it fits nowhere the one with the most room; -1 for none
	// Size of the program, without its buffer.
	Size int64
	// Used, Capacity and Room are the worker's before the decision, 0 without one. Room is what is left below the limit in
	// question, negative beyond it: the admit ceiling, for pauses and marks the threshold, for resumes their ceiling.
	Used, Capacity, Room int64
}

// Observe has f called with every decision from now on, in order. f must not call the table.
func (t *Table) Observe(f func(Event)) { t.observe = f }

// tell reports an event about the program of e; room is what the limit in question leaves.
func (t *Table) tell(now time.Duration, kind Kind, why Reason, e *entry, r *Request, w int32, limit float64) {
	if t.observe == nil {
		return
	}
	ev := Event{At: now, Kind: kind, Reason: why, Session: e.session, Request: r, Worker: w, Size: t.size(e)}
	if t.alive(w) {
		ev.Used, ev.Capacity = t.Used(int(w)), t.workers[w].capacity
		ev.Room = share(ev.Capacity, limit) - ev.Used
	}
	t.observe(ev)
}
