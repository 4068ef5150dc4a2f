package report

import "time"

// Series is the state of a run over time: sample i is at i times Step since the start of the run.
type Series struct {
	Step    time.Duration
	Samples []Sample
	// Capacity is the KV tokens of all workers.
	Capacity int64
}

// Sample is the state at one time. KV is in tokens of all workers together.
type Sample struct {
	// Running is KV in use by requests, Pinned kept for sessions whose tools run, Cached free but still reusable; the rest of
	// the capacity holds nothing.
	Running, Pinned, Cached int64
	// Wanted is the contexts of all sessions that have calls to come or under way, whether resident or not; Accounted is what
	// the program schedulers charge for.
	Wanted, Accounted int64
	// Programs are live, of which Held are paused by a program scheduler or kept out by a cap on programs.
	Programs, Held int64
	// Requests are running in engines or wait, anywhere.
	RequestsRunning, RequestsWaiting int64
}
