package sim

import (
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/sim/engine"
)

// What happened to a call.
type What string

// What happens to a call on its way, in this order, with what a program scheduler decides about it in between
// (Options.Decisions).
const (
	Arrived    What = "arrived"      // at its frontend
	Gated      What = "held at gate" // by router.max_programs
	LetIn      What = "let in"       // by router.max_programs
	Queued     What = "router queue" // waits in it behind Ahead others
	Routed     What = "routed"       // by Choice
	Enqueued   What = "engine queue" // behind Ahead others, while Running run
	Admitted   What = "admitted"     // by the engine, or again after a preemption
	FirstToken What = "first token"  // or the next one after a preemption
	Preempted  What = "preempted"    // lost its KV blocks
	Completed  What = "completed"    // with its last token
	Leased     What = "kv pinned"    // its KV stays pinned until Until at most, while a tool runs
	Failed     What = "failed"       // Why; the client may send it again
	Denied     What = "refused"      // Why
)

// What only a Service tells of.
const (
	Progressed What = "progressed" // it has generated more tokens
	Departed   What = "departed"   // it was cancelled, and is in no engine any more
)

// Event is something that happened to a call.
type Event struct {
	At   time.Duration
	What What
	// Call is its index in the workload, Copy that of the repetition of its program.
	Call int32
	Copy uint32
	// Slot is the ID of its requests at router, program scheduler and engine, for as long as it is there.
	Slot int32
	// Worker is where it is, -1 before that is settled.
	Worker int32

	Ahead, Running int
	Choice         *router.Choice // valid during the call
	Why            string
	Until          time.Duration
	// Request is the engine's view, valid during the call; nil for calls that are refused at once.
	Request *engine.Request
	// Since is the time since the call was sent, Attempt how often it was sent before.
	Since   time.Duration
	Attempt uint8
}

// tell passes an event of a call on. Callers make sure that somebody asks, so that it costs nothing otherwise.
func (r *run) tell(l *live, e Event) {
	rec := &r.requests[l.record]
	e.At, e.Call, e.Copy, e.Slot, e.Request = r.now, l.call, l.inst.copy, l.ID, &l.Request
	e.Since, e.Attempt, e.Worker = r.now-rec.Arrival, rec.Retries, -1
	if e.Choice != nil {
		e.Worker = int32(e.Choice.Worker)
	} else if l.stage == atEngine {
		e.Worker = l.worker
	}
	r.options.Observe(e)
}
