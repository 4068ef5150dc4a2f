// Package events reads and writes the sidecar of a run: what is in no request's record because it is not about a request,
// such as the steps of engines, the KV blocks that kinds of programs hold, where the KV of sessions lies and moves, and the
// decisions of program schedulers.
//
// A sidecar NAME.events.jsonl.gz lies beside the trace of its run. Its first line is a Header, each further one an Event.
// Events stand in the order in which they happened, with what takes time at its end. Times are integer nanoseconds since
// the run began, as in the records' agentsim objects. Kinds of events and fields may be added under the same schema: readers
// pass over those that they do not know.
package events

import "time"

// Schema names the format in the header.
const Schema = "agentsim.events.v1"

// Suffix ends the names of sidecars; readers of traces pass such files over.
const Suffix = ".events.jsonl.gz"

// Origin is where the events come from.
type Origin string

// The origins.
const (
	Predicted Origin = "predicted" // by a simulation
	Replayed  Origin = "replayed"  // read from servers that were driven
)

// Header says what the events are of.
type Header struct {
	Schema string `json:"schema"`
	// Run is the name of the run.
	Run    string `json:"run"`
	Origin Origin `json:"origin"`
	// EpochMs is time 0 of the run as a Unix time in ms: records of the same run count from there.
	EpochMs int64 `json:"epoch_unix_ms"`
	// BlockSize is the tokens of a KV block, 0 when it is not known.
	BlockSize int      `json:"block_size,omitempty"`
	Workers   []Worker `json:"workers"`
	// Remote is the KV blocks that fit in the remote tier, 0 when there is none.
	Remote int `json:"remote_kv_blocks,omitempty"`
}

// Worker is one engine: a data-parallel rank of its own where a worker has several. Events and records name it by its
// index. What is not known is 0.
type Worker struct {
	GPUs   int    `json:"gpus,omitempty"`
	Blocks int    `json:"kv_blocks,omitempty"`
	URL    string `json:"url,omitempty"`
	// Host and Disk are the KV blocks that fit in its host's memory and on its drives, 0 when none are kept there.
	Host int `json:"host_kv_blocks,omitempty"`
	Disk int `json:"disk_kv_blocks,omitempty"`
}

// Event is one thing that happened at At; the field that is set says what.
type Event struct {
	At         time.Duration `json:"at_ns"`
	Step       *Step         `json:"step,omitempty"`
	Preemption *Preemption   `json:"preemption,omitempty"`
	KV         *KV           `json:"kv,omitempty"`
	Programs   *Programs     `json:"programs,omitempty"`
	Decision   *Decision     `json:"decision,omitempty"`
	Fault      *Fault        `json:"fault,omitempty"`
	Gauge      *Gauge        `json:"gauge,omitempty"`
	Tier       *Tier         `json:"tier,omitempty"`
	Residency  *Residency    `json:"residency,omitempty"`
	Transfer   *Transfer     `json:"transfer,omitempty"`
	Link       *Link         `json:"link,omitempty"`
	Action     *Action       `json:"action,omitempty"`
}

// Step is a step of an engine, or a run of several Steps that decode alone, follow each other without a pause and compute for
// the same requests. It ended at the event's time and began Took earlier. Counts are of all Steps together; what was
// evicted, the first of them took.
type Step struct {
	Worker int32         `json:"worker"`
	Took   time.Duration `json:"took_ns"`
	Steps  int64         `json:"steps"`
	// Running is the requests that hold KV blocks, Waiting those in the engine's queue, both once the step was scheduled.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Prefill and Decode are the tokens computed in prefills and in decodes, Output those that clients get of both.
	Prefill int64 `json:"prefill_tokens,omitempty"`
	Decode  int64 `json:"decode_tokens,omitempty"`
	Output  int64 `json:"output_tokens,omitempty"`
	// Admitted is the requests that the step began. Of their Queried tokens the prefix cache had Hit.
	Admitted int   `json:"admitted,omitempty"`
	Queried  int64 `json:"queried_tokens,omitempty"`
	Hit      int64 `json:"hit_tokens,omitempty"`
	// Evicted is the cached KV blocks that were taken for other tokens.
	Evicted int64 `json:"evicted_blocks,omitempty"`
}

// Mean is how long one of the steps took.
func (s *Step) Mean() time.Duration { return s.Took / time.Duration(s.Steps) }

// Preemption took the KV blocks from a running request, which goes back to its engine's queue. Request and session are
// named as in the run's records.
type Preemption struct {
	Worker  int32  `json:"worker"`
	Session string `json:"session"`
	Request string `json:"request"`
}

// KV is a sample of what the KV blocks of a worker hold, taken when that has changed, but at most every 100 ms. Each block
// counts once, so the parts of Root and Subagent and Cached add up to all blocks that are not empty.
type KV struct {
	Worker int32 `json:"worker"`
	// Used is the blocks that running requests or pins refer to. All others that are not empty can be evicted.
	Used int `json:"used"`
	// Root and Subagent are the blocks of sessions of these kinds, Cached those of no session that goes on.
	Root     Holding `json:"root"`
	Subagent Holding `json:"subagent"`
	Cached   int     `json:"cached"`
}

// Holding is KV blocks by the state of the sessions whose tokens they hold.
type Holding struct {
	Active int `json:"active"` // with a request at the router or at an engine
	Acting int `json:"acting"` // between two turns: a tool runs
	Paused int `json:"paused"` // held back by the program scheduler, or by a cap on programs
}

// Total is the blocks in all states.
func (h Holding) Total() int { return h.Active + h.Acting + h.Paused }

// Programs is a sample of the state of a whole run, taken like those of KV.
type Programs struct {
	// Live is the programs that have begun and not ended, Paused the sessions that the program scheduler has paused and
	// the programs that wait for a cap.
	Live   int `json:"live"`
	Paused int `json:"paused"`
	// Held is the requests that wait at program schedulers and caps, Queued those that wait in routers. Those in the
	// queues of engines are Step.Waiting.
	Held   int `json:"held"`
	Queued int `json:"queued"`
}

// Decision is one of a program scheduler. Tokens are as its table counts them.
type Decision struct {
	// What was decided: admit, defer, pause, mark, resume, forced-resume, expire, migrate or rollback; Why says for
	// which reason.
	What string `json:"what"`
	Why  string `json:"why"`
	// Session is the program's, as named in the run's records. Request is "" when the decision is about a program without one.
	Session string `json:"session"`
	Request string `json:"request,omitempty"`
	// Worker is the one in question, -1 for none: whom a pause relieves, where a resumed or migrating program goes.
	Worker int32 `json:"worker"`
	// Size is the program's. Used, Capacity and Room are the worker's before the decision; Room is what is left below the
	// limit in question, negative beyond it.
	Size     int64 `json:"size_tokens"`
	Used     int64 `json:"used_tokens,omitempty"`
	Capacity int64 `json:"capacity_tokens,omitempty"`
	Room     int64 `json:"room_tokens,omitempty"`
}

// Fault takes a worker away (remove), or brings it back with an empty cache (return).
type Fault struct {
	Worker int32  `json:"worker"`
	Action string `json:"action"`
}

// Gauge is a reading of a server's metrics. What it does not tell is nil. Those in tokens and Preemptions count since the
// server began.
type Gauge struct {
	Worker        int32    `json:"worker"`
	Running       *float64 `json:"running,omitempty"`
	Waiting       *float64 `json:"waiting,omitempty"`
	KVUtilization *float64 `json:"kv_utilization,omitempty"` // from 0 to 1
	Queried       *float64 `json:"queried_tokens,omitempty"`
	Hit           *float64 `json:"hit_tokens,omitempty"`
	Prompt        *float64 `json:"prompt_tokens,omitempty"`
	Generated     *float64 `json:"generated_tokens,omitempty"`
	Preemptions   *float64 `json:"preemptions,omitempty"`
}
