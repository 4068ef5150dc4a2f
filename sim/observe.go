package sim

import (
	"strings"
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/memory"
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
	Prefilled  What = "prefilled"    // by a worker that only prefills
	HandedOver What = "handed over"  // its prompt's KV, to the worker that decodes it, in the time Took
	FirstToken What = "first token"  // or the next one after a preemption
	Preempted  What = "preempted"    // lost its KV blocks
	Completed  What = "completed"    // with its last token
	Leased     What = "kv pinned"    // its KV stays pinned until Until at most, while a tool runs
	Fetched    What = "kv fetched"   // Tokens that it waits for have come from Why, which Took so long; none when that failed
	Failed     What = "failed"       // Why; the client may send it again
	Denied     What = "refused"      // Why
)

// What becomes of Tokens of its session's KV after it has ended, by kv.policy.
const (
	Demoted    What = "kv demoted"    // they have left the GPU
	Prefetched What = "kv prefetched" // they are back on it, from Why, which Took so long; none for the reason Why
	Dropped    What = "kv dropped"    // they are forgotten
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
	Until, Took    time.Duration
	Tokens         int32
	// Request is the engine's view, valid during the call; nil for calls that are refused at once, and after their ends.
	Request *engine.Request
	// Since is the time since the call was sent, Attempt how often it was sent before.
	Since   time.Duration
	Attempt uint8
}

// landed tells of KV that has come to a GPU for a request, or for a session that has none.
func (r *run) landed(q *engine.Request, read [memory.Levels]int32, took time.Duration) {
	e := Event{What: Fetched, Took: took}
	var from []string
	for level, tokens := range read {
		if e.Tokens += tokens; tokens > 0 {
			from = append(from, memory.Level(level).String())
		}
	}
	e.Why = strings.Join(from, " and ")
	if !q.Guest() {
		if l := r.lives[q.ID]; !l.gone {
			r.tell(l, e)
		}
	} else if s := r.keeper.stays[q.Session]; s != nil {
		e.What = Prefetched
		r.tellStay(s, e)
	}
}

// tellStay passes an event of a session that has no request on, if somebody asks: with its last call.
func (r *run) tellStay(s *stay, e Event) {
	if r.options.Observe == nil {
		return
	}
	e.At, e.Call, e.Copy, e.Slot, e.Worker = r.now, s.call, uint32(s.key>>32), -1, int32(s.worker)
	r.options.Observe(e)
}

// tell passes an event of a call on. Callers make sure that somebody asks, so that it costs nothing otherwise.
func (r *run) tell(l *live, e Event) {
	rec := &r.requests[l.record]
	q, rank := l.at()
	e.At, e.Call, e.Copy, e.Slot, e.Request = r.now, l.call, l.inst.copy, l.ID, q
	e.Since, e.Attempt, e.Worker = r.now-rec.Arrival, rec.Retries, -1
	if e.Choice != nil {
		e.Worker = int32(e.Choice.Worker)
	} else if l.inEngine() {
		e.Worker = rank
	}
	r.options.Observe(e)
}
