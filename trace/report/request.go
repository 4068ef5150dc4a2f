package report

import "time"

// Status is how a request ended. Every request ends exactly once.
type Status uint8

// The ways in which a request ends.
const (
	Unfinished Status = iota // still waiting or running when the run ended, or never sent
	Completed
	Rejected // refused: too long for the model or larger than the KV cache
	Failed   // given up by the client (timeout)
)

// String returns the name used in reports.
func (s Status) String() string {
	return [...]string{"unfinished", "completed", "rejected", "failed"}[s]
}

// Request is what became of one LLM call, whether it was recorded, simulated or replayed. Times count from the start
// of the run; None marks one that does not exist.
type Request struct {
	// Turn indexes the workload's turns, Program its programs; Copy counts repeated runs of the program.
	Turn, Program int32
	Copy          uint32
	// Session numbers sessions across programs (index into the workload's sessions).
	Session int32
	Worker  int32
	Status  Status
	// Retries counts earlier attempts of the same call.
	Retries uint8

	// Arrival is when the client sent it, Admitted when an engine first scheduled it, FirstToken and End when the
	// client saw the first and the last token.
	Arrival, Admitted, FirstToken, End time.Duration
	// Held is the time that a program scheduler or a cap on programs held it, RouterQueued that in the router's queue,
	// over all attempts; None when not known.
	Held, RouterQueued time.Duration
	// Waited is the time between the end of what it waited for and Arrival, of which Tool and Human went to tools and people.
	Waited, Tool, Human time.Duration

	Input, Output int32
	// Hit is the prompt tokens found in the prefix cache at first admission; Warm is the part of Hit that was made
	// resident because the session began before the capture.
	Hit, Warm int32
	// Brought is the part of Hit that it waited for until it came from below the GPUs, Prefetched the part that had come from
	// there before it arrived.
	Brought, Prefetched int32
	// Computed is the prompt tokens computed, including those computed again after preemptions.
	Computed int32
	// ReadmitHit and Readmit are the hit and total tokens of re-admissions after preemption.
	ReadmitHit, Readmit int32
	// Recomputed tokens by cause: they had been computed before in this run.
	RecomputedEviction, RecomputedPreemption, RecomputedMigration int32
	Preemptions                                                   int32
}

// None marks a time that does not exist.
const None time.Duration = -1
