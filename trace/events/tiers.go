package events

import "time"

// The levels at which KV blocks lie: on the GPUs of a worker, in the memory of its host, on its drives, and in the remote tier
// that all workers share.
const (
	GPU    = "gpu"
	Host   = "host"
	Disk   = "disk"
	Remote = "remote"
)

// Tier is a sample of the KV blocks that a tier below the GPUs holds, taken like those of KV. Blocks on their way to it count.
type Tier struct {
	// Worker is whose tier it is, -1 for the remote one.
	Worker int32  `json:"worker"`
	Level  string `json:"level"`
	Used   int    `json:"used"`
}

// Residency is a sample of where the KV of a session lies: the blocks of its latest prompt and answer on the GPUs and in the
// tiers of the worker on which it ran last. It is taken like those of KV where KV can move: with tiers, a policy, or prefill
// and decode apart. A block counts at each level at which it lies, and one that sessions share for each of them. A session that
// has ended has none: what is left of its KV is nobody's.
type Residency struct {
	Session string `json:"session"`
	Worker  int32  `json:"worker"`
	GPU     int    `json:"gpu"`
	Host    int    `json:"host,omitempty"`
	Disk    int    `json:"disk,omitempty"`
	Remote  int    `json:"remote,omitempty"`
}

// Place is a level of a worker, which is -1 for the remote one.
type Place struct {
	Worker int32  `json:"worker"`
	Level  string `json:"level"`
}

// Transfer moved KV from one place to another. It ended at the event's time and began Took earlier.
type Transfer struct {
	// Cause is fetch (a request waits for it), prefetch (one is expected), offload (the GPUs may lose it one day, or have), demote (it
	// shall leave the GPUs), spill (from a tier to the one below) or handoff (from prefill to decode).
	Cause string `json:"cause"`
	From  Place  `json:"from"`
	To    Place  `json:"to"`
	// Session is whose KV it is, "" for nobody's. Request is the one that waits for it, "" for none.
	Session string `json:"session,omitempty"`
	Request string `json:"request,omitempty"`
	// Bytes is what moved, in one that was stopped too.
	Bytes int64         `json:"bytes"`
	Took  time.Duration `json:"took_ns"`
	// Outcome is done, or stopped: what it was for has gone.
	Outcome string `json:"outcome"`
}

// Worker is the one to which it went, or from which where that is nobody's.
func (t *Transfer) Worker() int32 {
	if t.To.Worker >= 0 {
		return t.To.Worker
	}
	return t.From.Worker
}

// The outcomes of transfers.
const (
	Done    = "done"
	Stopped = "stopped"
)

// Link is what a link did in the time Took before the event: for Busy of it anything moved.
type Link struct {
	// Worker is whose link it is, -1 for those of the remote tier.
	Worker int32         `json:"worker"`
	Name   string        `json:"name"`
	Took   time.Duration `json:"took_ns"`
	Busy   time.Duration `json:"busy_ns"`
}

// Action is what became of something that a policy wanted to be done with the KV of a session.
type Action struct {
	// What was wanted: pin, demote, prefetch, drop, evict-last, evict-first or speculate.
	What string `json:"what"`
	// Outcome is accepted, clipped (done in part), deferred (put off), refused (there was no room, or nothing to do it to), late
	// (the session went on before) or wasted (nobody used what it brought).
	Outcome string `json:"outcome"`
	Session string `json:"session"`
	Worker  int32  `json:"worker"`
	// Blocks is the KV blocks to which it was done; Took is since when it was wanted.
	Blocks int32         `json:"blocks"`
	Took   time.Duration `json:"took_ns,omitzero"`
}
