package sim

import (
	"fmt"
	"strings"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

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
	case atPrefillRouter, atRouter:
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

// rejections say why calls were rejected and what to do.
func (r *Result) rejections() []report.Loss {
	var list []report.Loss
	if n := r.TooLong; n.Calls > 0 {
		list = append(list, report.Loss{Count: n.Calls, Why: fmt.Sprintf(
			"with up to %d tokens they are longer than the %d that %s takes (--max-context truncate or split, or another model)",
			n.Tokens, r.Plan.MaxModelLen, r.Plan.Hardware.Model.Name)})
	}
	if n := r.TooLarge; n.Calls > 0 {
		list = append(list, report.Loss{Count: n.Calls, Why: fmt.Sprintf(
			"with up to %d tokens they do not fit the %d tokens of a worker's KV cache (engine.kv_blocks, --tp)",
			n.Tokens, r.Plan.Blocks*r.Plan.Engine.BlockSize)})
	}
	for _, n := range r.Refused {
		list = append(list, report.Loss{Count: n.Calls, Why: refusals[n.Why]})
	}
	return list
}

// failures say why calls failed and what to do.
func (r *Result) failures() []report.Loss {
	var list []report.Loss
	if n := r.GaveUp; n.Calls > 0 {
		why := fmt.Sprintf("clients gave up after %v s", r.Plan.Client.Timeout.Seconds())
		if rest := n.where(); rest != "" {
			why += ", " + rest
		}
		keys := "client.timeout"
		if n.ByScheduler > 0 && r.Plan.scheduler.ResumeTimeout > r.Plan.Client.Timeout.Seconds() {
			keys += fmt.Sprintf("; the scheduler lets nothing go for its waiting alone before %v s: resume_timeout_seconds of router.thunderagent.parameters",
				r.Plan.scheduler.ResumeTimeout)
		}
		list = append(list, report.Loss{Count: n.Calls, Why: why + " (" + keys + ")"})
	}
	if r.WorkerLost > 0 {
		list = append(list, report.Loss{Count: r.WorkerLost, Why: "their worker was lost (faults)"})
	}
	return list
}

// where says what held the calls whose clients gave up; "" when the engines had them all.
func (g GaveUp) where() string {
	var parts []string
	for _, at := range []struct {
		calls int64
		by    string
	}{{g.ByScheduler, "held by the scheduler"}, {g.ByCap, "held by router.max_programs"}, {g.ByRouter, "in the router's queue"}} {
		switch {
		case at.calls == 0:
		case at.calls == g.Calls:
			return "all " + at.by
		default:
			parts = append(parts, fmt.Sprintf("%d of them %s", at.calls, at.by))
		}
	}
	return strings.Join(parts, ", ")
}

// refusals say why desks refuse calls and what to do.
var refusals = map[string]string{
	router.Overloaded.String(): "all workers exceed a threshold (router.active_decode_blocks_threshold, active_prefill_tokens_threshold)",
	router.QueueFull.String():  "the router queue is at a limit of its class (router.policy_classes)",
	router.NoWorker.String():   "no worker is left (faults)",
	router.WorkerGone.String(): "the worker that they are bound to is gone (router.session_affinity, faults)",
	schedulerFull:              "the program scheduler's table is full (router.thunderagent.parameters: max_tracked_requests)",
}
