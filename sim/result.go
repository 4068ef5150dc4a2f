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
	Gaps     *report.Gaps
	// Engines is what each engine did in Window, from and to the end of the step in flight at its borders.
	Engines []engine.Stats
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
	// Series is the state over time; nil unless Options.Samples asks for it.
	Series *report.Series
}

// GaveUp counts calls whose clients gave up, in all and by what held them in the end: the program scheduler, the cap on
// programs (router.max_programs), or the router's queue.
type GaveUp struct{ Calls, ByScheduler, ByCap, ByRouter int64 }

func (g *GaveUp) add(at stage) {
	g.Calls++
	switch at {
	case atTable:
		g.ByScheduler++
	case atGate:
		g.ByCap++
	case atRouter:
		g.ByRouter++
	}
}

// Refused is how many calls a router or a program scheduler turned away for one reason.
type Refused struct {
	Why   string
	Calls int64
}

func (r *Result) refuse(why string) {
	for i := range r.Refused {
		if r.Refused[i].Why == why {
			r.Refused[i].Calls++
			return
		}
	}
	r.Refused = append(r.Refused, Refused{why, 1})
}

// Rejected sums up calls that were rejected for one reason.
type Rejected struct {
	Calls int64
	// Tokens is the prompt and output of the longest.
	Tokens int32
}

func (r *Rejected) add(c *trace.Call) {
	r.Calls++
	r.Tokens = max(r.Tokens, c.Input+c.Output)
}
