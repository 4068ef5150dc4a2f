// Package thunderagent is the ThunderAgent program scheduler (arXiv 2602.13692) as Dynamo builds it: admission control
// in front of the router, whose unit is the program, a session with its tool gaps, and not the request.
//
// A program holds KV on the worker to which it is assigned, while it reasons (a request of it runs) and while it acts
// (a tool runs and the KV waits for the next turn). The table charges each worker with the tokens of its programs, plus
// a buffer for each. Every few seconds, at a tick, it looks at the sums. Where they pass pause_threshold of the
// worker's capacity, acting programs are paused, smallest first, until pause_target is met, and reasoning ones are
// marked, to be paused at the end of their turn. A paused program has no worker and no charge: its next request is held
// until a tick finds room below pause_threshold - resume_hysteresis, on any worker, or until resume_timeout has passed.
// A new program enters at once when it fits and nobody is paused; a running one is never checked at its next turn.
//
// The table only decides. Pausing moves no KV and tells no engine: what was cached leaves when something else needs
// the room, and a resumed program may still find it.
//
// The reference is Dynamo's native plugin (lib/router-plugins/builtin/src/thunderagent, commit 227ce2e4), [N] in the
// comments; [Y] is Dynamo's Python service (components/src/dynamo/thunderagent_router), [U] the authors' own proxy
// (ThunderAgent-org/ThunderAgent, a7eef77) and [P] the paper. Their differences are Settings. Where the reference leaves
// an order to a hash map, ties go to the lower session id and the lower worker; of equal times, to what came first.
//
// Time is an argument, there is no clock, no goroutine and no random number, so the same code serves a simulation and a
// live server. A Table is not safe for concurrent use. Each frontend has its own, and thinks it owns all capacity.
package thunderagent

import (
	"errors"
	"fmt"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Request is one request of a session. The caller fills the exported fields before Arrive and leaves them, and the
// spans of Path, alone until Complete or Abort. Requests without a session do not come here: they are load that the
// table does not see ([U] puts them all into one program; a caller can give them one session).
type Request struct {
	// ID is the caller's.
	ID int32
	// Session names the program. Each session is a program of its own: a parent and its subagents are not merged, and a
	// paused parent does not stop its children.
	Session uint64
	// Input is the number of prompt tokens.
	Input int32
	// Final tells that the session ends with this request; see Settings.Final.
	Final bool
	// Pin is the only worker that may serve the request, -1 for any.
	Pin int32
	// Path holds the prompt's KV blocks, the first PromptBlocks of it, for Settings.SharedPrefixBudget. The table
	// keeps it beyond the request.
	Path         []trace.Span
	PromptBlocks int32

	tracked  bool // between Arrive and the end
	begun    bool // prior is valid: the request has changed its program
	released bool
	prior    state         // the program as it was before, to roll back to
	held     bool          // was deferred
	heldAt   time.Duration // since when, if held
}

// Release is a request that may go to the router now.
type Release struct {
	Request *Request
	// Worker is where the request must go: its own Pin, or the assigned worker under the placement "pin". -1 for any.
	Worker int32
	// Target is where it should go if the router agrees, -1 for no wish. Sent tells where it went.
	Target int32
	// PriorityJump is how much earlier the router's queue should take the request to have arrived. A negative one has no
	// effect there (Dynamo clamps it to 0); an engine may honour it.
	PriorityJump time.Duration
	// Held is how long the table kept the request.
	Held time.Duration
	// Forced tells that the request waited for resume_timeout and goes without regard to capacity.
	Forced bool
	// Swallowed tells that no engine is to be called: answer the request, and do not report its end.
	Swallowed bool
	Reason    Reason
}

// Live is what only the engines know, and what changes with every token: it is asked for, never reported.
type Live struct {
	// Worker returns the sum of generated tokens over the requests that Sent put on the worker, from then until Complete
	// or Abort, less final ones that were forwarded.
	Worker func(worker int) int64
	// Request returns the tokens that a released request has generated so far.
	Request func(*Request) int32
}

// ErrRequestLimit is the error of Arrive when max_tracked_requests are in the table. Dynamo answers HTTP 529.
var ErrRequestLimit = errors.New("too many requests")

// Table is the state of one scheduler.
type Table struct {
	settings  Settings
	interval  time.Duration
	timeout   time.Duration
	retention time.Duration
	live      Live
	observe   func(Event)

	workers  []worker
	entries  map[uint64]*entry // sessions with a program or a request
	programs []*entry          // those with a program, in no order
	paused   []*entry          // those whose program is paused, in no order
	deferred list              // those whose request is held, longest first
	idle     list              // those that act and have no request, longest first
	requests int

	next  time.Duration // of the next tick; none until the first request
	out   []Release
	stats Stats

	loads  []int64        // scratch of measure
	groups [3][]candidate // scratch of choose
	chosen []candidate
}

// none stands for no time in times that may be missing; nowhere for no worker.
const (
	none    = time.Duration(-1)
	nowhere = int32(-1)
)

// New returns the table of a fleet. Capacities are by worker, which is one (worker, data-parallel rank) pair; errors
// name the setting and what it may be. Live may be zero: then a request counts its prompt only until it ends.
func New(s Settings, capacity []Capacity, live Live) (*Table, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if live.Worker == nil {
		live.Worker = func(int) int64 { return 0 }
	}
	if live.Request == nil {
		live.Request = func(*Request) int32 { return 0 }
	}
	t := &Table{
		settings:  s,
		interval:  seconds(s.SchedulerInterval),
		timeout:   seconds(s.ResumeTimeout),
		retention: seconds(s.SessionRetention),
		live:      live,
		entries:   make(map[uint64]*entry),
		deferred:  list{of: deferredLinks},
		idle:      list{of: idleLinks},
		next:      none,
	}
	for w, c := range capacity {
		if err := t.SetWorker(w, c); err != nil {
			return nil, fmt.Errorf("new thunderagent table: %w", err)
		}
	}
	return t, nil
}
