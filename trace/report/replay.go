package report

import "time"

// Replay is what only a run against live servers has: how well the client kept to its plan, what servers did to it, and
// what they say of themselves.
type Replay struct {
	// Timing is how requests were timed: recorded, closed, strict, asap or concurrency. Speed divided the recorded times.
	Timing string `json:"timing"`
	Speed  Figure `json:"speed,omitzero"`
	// Salt sets the prompts apart from those of other replays.
	Salt string `json:"salt,omitempty"`
	// Stopped says why requests of the plan were not sent.
	Stopped string `json:"stopped,omitempty"`
	// LagMs is sent − due, the client's own lateness: due is the later of the plan and the end of what a request waited
	// for. SlipMs is how far the servers pushed requests behind the plan. ConnectMs is the wait for a connection, inside
	// the latencies.
	LagMs     Distribution `json:"lag_ms,omitzero"`
	SlipMs    Distribution `json:"slip_ms,omitzero"`
	ConnectMs Distribution `json:"connect_ms,omitzero"`
	// Late counts requests more than 1 ms behind due, Held those that waited for a free place in flight.
	Late int64 `json:"late"`
	Held int64 `json:"held"`
	// FromSend, FromDue and FromPlan are the same latencies from three beginnings. LatencyMs of the run is from send; only
	// the others have the client's lateness in them, only FromPlan that which servers cause by answering late.
	FromSend PlanLatency  `json:"from_send_ms,omitzero"`
	FromDue  PlanLatency  `json:"from_due_ms,omitzero"`
	FromPlan *PlanLatency `json:"from_plan_ms,omitempty"`
	// Prompts and Outputs compare token counts that servers report with the recorded ones.
	Prompts Lengths `json:"prompt_tokens,omitzero"`
	Outputs Lengths `json:"output_tokens,omitzero"`
	// TokensPerEvent is generated tokens over events of the streams; gaps are those between events.
	TokensPerEvent Figure `json:"tokens_per_event,omitzero"`
	// Failures are counted by kind, most frequent first.
	Failures []Failure `json:"failures,omitempty"`
	// Resent counts requests that were sent twice because a server had closed the idle connection, Retries those sent again
	// without a field that it refused (DroppedFields).
	Resent        int64    `json:"resent"`
	Retries       int64    `json:"retries"`
	DroppedFields []string `json:"dropped_fields,omitempty"`
	// CPUShare is the client's use of its processors, 0 to 1.
	CPUShare Figure `json:"cpu_share,omitzero"`
	// Hits are the shares of prompt tokens that an endless cache would have held, with and without generated tokens.
	EndlessHitRate       Figure `json:"endless_hit_rate,omitzero"`
	EndlessPromptHitRate Figure `json:"endless_prompt_hit_rate,omitzero"`
	// Servers is what their metrics say.
	Servers []Server `json:"servers,omitempty"`
	// Doubts are the reasons not to trust the run.
	Doubts []string `json:"doubts,omitempty"`
}

// PlanLatency is latencies in ms from one beginning.
type PlanLatency struct {
	TTFT Distribution `json:"ttft,omitzero"`
	E2E  Distribution `json:"e2e,omitzero"`
}

// Lengths compares token counts of completed requests whose server reports them.
type Lengths struct {
	Requests int64 `json:"requests"`
	Recorded int64 `json:"recorded"`
	Reported int64 `json:"reported"`
	// Off is the sum of the differences without sign over Recorded.
	Off Figure `json:"off,omitzero"`
}

// Failure is requests that failed in the same way, and what the first of them said.
type Failure struct {
	Kind    string `json:"kind"`
	Count   int64  `json:"count"`
	Example string `json:"example,omitempty"`
}

// Server is what a server's metrics say of the time of the run. Counters are differences between the first and the last
// reading, gauges the mean and the greatest of all readings.
type Server struct {
	URL      string `json:"url"`
	Readings int64  `json:"readings"`
	// Restarted tells that a counter fell: counters of the run are then those since the restart.
	Restarted bool `json:"restarted,omitempty"`
	// HitRate is cached over queried prompt tokens.
	HitRate         Figure `json:"hit_rate,omitzero"`
	PromptTokens    Figure `json:"prompt_tokens,omitzero"`
	GeneratedTokens Figure `json:"generated_tokens,omitzero"`
	Preemptions     Figure `json:"preemptions,omitzero"`
	EnergyJ         Figure `json:"energy_j,omitzero"`
	Running         Gauge  `json:"running,omitzero"`
	Waiting         Gauge  `json:"waiting,omitzero"`
	KVUtilization   Gauge  `json:"kv_utilization,omitzero"`
	GPUUtilization  Gauge  `json:"gpu_utilization,omitzero"`
	PowerW          Gauge  `json:"power_w,omitzero"`
}

// Gauge sums up readings.
type Gauge struct {
	Mean Figure `json:"mean,omitzero"`
	Max  Figure `json:"max,omitzero"`
}

// DistributionMs sums up durations, in ms.
func DistributionMs(durations []time.Duration) Distribution {
	values := make([]float64, len(durations))
	for i, d := range durations {
		values[i] = float64(d) / 1e6
	}
	sortFloats(values)
	return distribution(values)
}
