package replay

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Limits beyond which a run should not be trusted.
const (
	maxLag       = 5 * time.Millisecond // p99 of the client's own lateness
	onTime       = time.Millisecond     // a timer cannot do better under load
	maxCPU       = 0.8
	maxErrors    = 0.01 // lost requests that are few enough to leave the figures as they are
	maxOff       = 0.01 // of prompt and output tokens
	maxPerEvent  = 1.05 // tokens in an event, or gaps of events are no gaps of tokens
	minProcessor = time.Second
)

// About is what a report says of a replay besides what was measured.
type About struct {
	Name   string
	Config json.RawMessage
	Salt   string
	// Overhead is the tokens that the server adds to every prompt.
	Overhead int
	SLO      report.SLO
	Servers  []report.Server
	Warnings []string
}

// Report sums a result up.
func (r *Result) Report(about About) *report.Run {
	requests := make([]report.Request, len(r.Rows), r.Plan.Calls)
	for i := range r.Rows {
		requests[i] = r.Rows[i].Request
	}
	for range r.Unsent() {
		requests = append(requests, report.Request{Turn: -1, Worker: -1, Arrival: report.None, Admitted: report.None,
			FirstToken: report.None, End: report.None, Hit: trace.Unknown, Computed: trace.Unknown})
	}
	live := r.live(about)
	in := report.Input{Name: about.Name, Config: about.Config, Workload: r.describe(), Requests: requests, Programs: r.programs(),
		End: r.End, Window: r.Window, SLO: about.SLO, Replay: live, Warnings: append(about.Warnings, r.warnings()...)}
	if r.perEvent() <= maxPerEvent {
		in.Gaps = r.Gaps
	}
	run := report.Build(in)
	if r.Interrupted {
		run.Status = report.RunInterrupted
	}
	return run
}

// describe sums up what was planned.
func (r *Result) describe() report.Workload {
	s := r.Plan.Summary()
	loop := int64(r.Plan.Options.Loop)
	return report.Workload{Programs: int64(r.Plan.Programs), Sessions: int64(r.Plan.Sessions), Turns: int64(r.Plan.Calls),
		InputTokens: loop * s.InputTokens, OutputTokens: loop * s.OutputTokens}
}

// live is the part of the report that only a replay has.
func (r *Result) live(about About) *report.Replay {
	o := &r.Plan.Options
	l := &report.Replay{Timing: o.Timing, Speed: report.Known(o.Speed), Salt: about.Salt, Stopped: r.Stopped,
		Prompts: r.prompts.report(), Outputs: r.outputs.report(), Failures: r.failures, Resent: r.resent, Retries: r.retries,
		DroppedFields: r.Dropped, Servers: about.Servers, CPUShare: r.cpuShare()}
	if r.tokens > 0 {
		l.TokensPerEvent = report.Known(r.perEvent())
	}
	var lag, slip, connect []time.Duration
	for i := range r.Rows {
		row := &r.Rows[i]
		late := max(0, row.Arrival-row.Due)
		lag = append(lag, late)
		if late > onTime {
			l.Late++
		}
		if row.Held {
			l.Held++
		}
		if o.Timing == plan.Recorded && row.Planned >= 0 {
			slip = append(slip, max(0, row.Ready-row.Planned))
		}
		if row.Connected >= row.Arrival {
			connect = append(connect, row.Connected-row.Arrival)
		}
	}
	l.LagMs, l.SlipMs, l.ConnectMs = report.DistributionMs(lag), report.DistributionMs(slip), report.DistributionMs(connect)
	l.FromSend = r.latency(func(row *Row) time.Duration { return row.Arrival })
	l.FromDue = r.latency(func(row *Row) time.Duration { return min(row.Arrival, row.Due) })
	if o.Timing == plan.Recorded || o.Timing == plan.Strict {
		from := r.latency(func(row *Row) time.Duration { return row.Planned })
		l.FromPlan = &from
	}
	if s := r.Plan.Summary(); s.InputTokens > 0 {
		l.EndlessHitRate = report.Known(float64(s.Hits) / float64(s.InputTokens))
		l.EndlessPromptHitRate = report.Known(float64(s.PromptHits) / float64(s.InputTokens))
	}
	l.Doubts = r.doubts(l, about)
	return l
}

// latency is that of completed requests from a beginning, which a negative time says is not known.
func (r *Result) latency(from func(*Row) time.Duration) report.PlanLatency {
	var ttft, e2e []time.Duration
	for i := range r.Rows {
		row := &r.Rows[i]
		at := from(row)
		if row.Status != report.Completed || at < 0 {
			continue
		}
		e2e = append(e2e, row.End-at)
		if row.FirstToken >= 0 {
			ttft = append(ttft, row.FirstToken-at)
		}
	}
	return report.PlanLatency{TTFT: report.DistributionMs(ttft), E2E: report.DistributionMs(e2e)}
}

// perEvent is the tokens of an event of a stream; 1 where servers do not tell.
func (r *Result) perEvent() float64 {
	if r.events == 0 {
		return 1
	}
	return float64(r.tokens) / float64(r.events)
}

// cpuShare is the share of the processors that the client used; unknown for short runs.
func (r *Result) cpuShare() report.Figure {
	if r.CPU == 0 || r.End < minProcessor {
		return report.Figure{}
	}
	return report.Known(r.CPU.Seconds() / r.End.Seconds() / float64(runtime.GOMAXPROCS(0)))
}

// doubts are the reasons not to trust the run, as clauses.
func (r *Result) doubts(l *report.Replay, about About) []string {
	var d []string
	add := func(format string, args ...any) { d = append(d, fmt.Sprintf(format, args...)) }
	if n := r.Plan.Workload.Capture.Read.LostRows; n > 0 {
		d = append(d, report.RowsLost(n))
	}
	late := l.LagMs.P99.Value > float64(maxLag)/1e6
	switch {
	case late && l.Held > 0 && r.Plan.Options.Timing == plan.ASAP: // held is what was asked for
	case late && l.Held > 0:
		add("the client, not the server, limited it: %d requests were held back by --max-in-flight, 1%% for more than %.1f ms", l.Held, l.LagMs.P99.Value)
	case late:
		add("the client, not the server, limited it: 1%% of requests were sent more than %.1f ms after they were due", l.LagMs.P99.Value)
	}
	if l.CPUShare.Value > maxCPU {
		add("the client used %.0f%% of its processors", 100*l.CPUShare.Value)
	}
	if lost := r.lost(); float64(lost) > maxErrors*float64(r.Plan.Calls) {
		add("%s", r.losses())
	}
	if off := r.prompts.share(); off > maxOff {
		add("servers counted %.1f%% more or fewer prompt tokens than recorded", 100*off)
	}
	if off := r.outputs.share(); off > maxOff {
		add("servers generated %.1f%% more or fewer tokens than recorded", 100*off)
	}
	if n := r.warm(about.Overhead); n > 0 {
		add("the first request of a program found %d tokens in the cache that no other can have put there: it was warm (take another --salt)", n)
	}
	for i := range about.Servers {
		if about.Servers[i].Restarted {
			add("server %s was restarted", about.Servers[i].URL)
		}
	}
	if n := r.Unsent(); n > 0 && r.Stopped != "" && !r.Timed {
		add("%s", r.unsent())
	}
	return d
}

// lost counts the requests that failed, and those that were not sent because their session had ended with a failure.
func (r *Result) lost() int {
	if r.Stopped != "" {
		return r.Failed
	}
	return r.Failed + r.Unsent()
}

// losses says what lost is made of.
func (r *Result) losses() string {
	text := fmt.Sprintf("%d of %d requests failed (%s)", r.Failed, len(r.Rows), failureNames(r.failures))
	if n := r.lost() - r.Failed; n > 0 {
		text += fmt.Sprintf(", and %d were not sent, because their session had ended with a failure", n)
	}
	return text
}

// unsent says why requests were not sent when the replay was stopped.
func (r *Result) unsent() string {
	return fmt.Sprintf("%d of %d requests were not sent: %s", r.Unsent(), r.Plan.Calls, r.Stopped)
}

func failureNames(list []report.Failure) string {
	names := make([]string, len(list))
	for i, f := range list {
		names[i] = fmt.Sprintf("%d %s", f.Count, f.Kind)
	}
	return strings.Join(names, ", ")
}

// warnings say what figures lack.
func (r *Result) warnings() []string {
	var w []string
	add := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	if n := r.streamed + r.whole - r.cancelled - r.outputs.requests; n > 0 {
		add("%d answers do not tell their output tokens: events of the stream are counted instead", n)
	}
	if r.cancelled > 0 {
		add("requests cancelled by the client, as in the recording: %d; they count as completed, with the tokens that came", r.cancelled)
	}
	if p := r.perEvent(); p > maxPerEvent {
		add("events hold %.2f tokens each: gaps between tokens are not known, only their mean (TPOT)", p)
	}
	if r.unsteady {
		add("the replay was never steady: when the first program had ended all others had begun, so that the whole is measured")
	}
	if r.whole > 0 {
		add("%d answers came in one piece though a stream was asked for: they have no time of a first token", r.whole)
	}
	if r.tooManyHits > 0 {
		add("%d answers tell more cached tokens than their prompt has", r.tooManyHits)
	}
	for _, field := range r.Dropped {
		add("the server refuses %s: it was left out", field)
	}
	if lost := r.lost(); lost > 0 && float64(lost) <= maxErrors*float64(r.Plan.Calls) {
		add("%s: too few to change the figures", r.losses())
	}
	if r.Timed && r.Unsent() > 0 {
		add("%s", r.unsent())
	}
	for _, f := range r.failures {
		if f.Kind == string(client.FailStopped) {
			add("requests cut off when the replay ended: %d; they count as unfinished", f.Count)
		} else {
			add("failed requests: %d, %s: %s", f.Count, f.Kind, f.Example)
		}
	}
	return w
}
