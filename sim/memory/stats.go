package memory

import "time"

// Level is where blocks lie.
type Level uint8

// The levels: a rank's own GPUs, its tiers, the remote one, and the GPUs of other ranks.
const (
	GPU Level = iota
	Host
	Disk
	Remote
	Peer
	Levels
)

func (l Level) String() string { return [...]string{"gpu", "host", "disk", "remote", "peer"}[l] }

// Cause is why blocks move.
type Cause uint8

// The causes of transfers.
const (
	Fetch    Cause = iota // a request waits for them
	Prefetch              // a request is expected
	Offload               // they may be evicted from the GPU one day, or were
	Demote                // they shall leave the GPU
	Spill                 // from a tier to the one below
	Handoff               // from prefill to decode
	Causes
)

func (c Cause) String() string {
	return [...]string{"fetch", "prefetch", "offload", "demote", "spill", "handoff"}[c]
}

// Moves sums up transfers.
type Moves struct {
	Count, Stopped int64
	// Bytes is what moved, those of stopped ones included.
	Bytes int64
	// Time is the sum of their durations.
	Time time.Duration
}

// Stats sums up what a memory has done.
type Stats struct {
	Moves [Causes]Moves
	// Read is the tokens that came to GPUs from elsewhere, by where they were, in so many Loads.
	Read, Loads [Levels]int64
	// Failed counts loads that came to nothing, Cancelled those whose request went away.
	Failed, Cancelled int64
}

func (s *Stats) moved(c Cause, bytes int64, took time.Duration) {
	s.Moves[c].Count++
	s.Moves[c].Bytes += bytes
	s.Moves[c].Time += took
}

func (s *Stats) stopped(c Cause, bytes int64, took time.Duration) {
	s.Moves[c].Stopped++
	s.Moves[c].Bytes += bytes
	s.Moves[c].Time += took
}
