package sim

import (
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Result is what became of a workload on a deployment.
type Result struct {
	Plan     *Plan
	Workload *trace.Workload
	Requests []report.Request
	Programs []report.Program
	// Handovers tells of each request how its prompt came to the worker that decoded it; nil for aggregated serving.
	Handovers []Handover
	Gaps      *report.Gaps
	// Engines is what each engine did in Window, from and to the end of the step in flight at its borders.
	Engines []engine.Stats
	// KVUse is what was done with KV below the GPUs in Window; nil where there are neither tiers nor a policy that moves any.
	KVUse *KVUse
	// Window is the measured part, zero for the whole run; End is when the last event happened.
	Window report.Window
	End    time.Duration
	// Dropped counts calls that the deployment does not serve, Uncalled those never sent because time was up.
	Dropped, Uncalled int
	// TooLong and TooLarge describe rejected calls: longer than the model takes, larger than the KV cache.
	TooLong, TooLarge Rejected
	// Refused counts calls that no worker took, by reason, in the order in which the reasons came up.
	Refused []Refused
	// GaveUp counts calls whose clients lost patience for good, WorkerLost those that failed with their worker.
	GaveUp     GaveUp
	WorkerLost int64
	// Scheduler sums up the program schedulers of all frontends; nil without any.
	Scheduler *thunderagent.Stats
	// Held is the KV blocks that each session held; nil unless Options.Accounts asks for it.
	Held []Held
	// Series is the state over time; nil unless Options.Samples asks for it.
	Series *report.Series
}
