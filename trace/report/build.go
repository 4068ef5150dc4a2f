package report

import (
	"encoding/json"
	"fmt"
	"time"
)

// Input is everything that Build makes a Run from. What is left zero or unknown is absent from the report.
type Input struct {
	Name     string
	Axes     []Axis
	GPUs     int
	Config   json.RawMessage
	Workload Workload
	Requests []Request
	// Rejections and Failures say why requests of the whole run were rejected or failed.
	Rejections, Failures []Loss
	Programs             []Program
	// Rollout tells that all programs begin at the start of the run.
	Rollout bool
	// Gaps are the gaps between output tokens of the requests that arrived in Window; nil when not known.
	Gaps      *Gaps
	Workers   []Worker
	Cost      *Cost
	KV        KV // without the figures that Build fills
	Scheduler *Scheduler
	// Replay is nil where no live server answered.
	Replay *Replay
	// Speculation is nil without speculative decoding.
	Speculation *Speculation
	// Disaggregation is nil where all workers prefill and decode.
	Disaggregation *Disaggregation
	// Window is the measured part of the run.
	Window Window
	// End is when the run stopped, if that was later than the last end of a request.
	End                      time.Duration
	SLO                      SLO
	Warnings, Approximations []string
}

// Program is what became of one program, all its sessions together. A negative time (None) is not known.
type Program struct {
	Index int32
	Copy  uint32
	// First is the first arrival, Last the last end; Completed means that every request completed.
	First, Last time.Duration
	Completed   bool
	// Partial tells that it began at a later turn than its first, so that its times are not those of a whole program.
	Partial bool
	// Where the time went.
	Model, Tool, Human, Paused, Queued time.Duration
	// Solo is the makespan of the same program alone on an idle worker; 0 when not known.
	Solo time.Duration
}

// Window is the measured part of a run, From ≤ t < To. The zero Window is the whole run.
type Window struct{ From, To time.Duration }

// Contains tells whether a time is in the window.
func (w Window) Contains(t time.Duration) bool {
	return w == Window{} || w.From <= t && t < w.To
}

// overlap is how much of from to to lies in the window.
func (w Window) overlap(from, to time.Duration) time.Duration {
	if w != (Window{}) {
		from, to = max(from, w.From), min(to, w.To)
	}
	return max(0, to-from)
}

// SLO bounds the times of what counts as goodput; a bound of 0 is none.
type SLO struct {
	TTFT time.Duration
	// ITL bounds the TPOT of each request: its mean gap, not single gaps.
	ITL time.Duration
	// Program bounds the makespan.
	Program time.Duration
}

// Build computes a Run. The requests should pass CheckRequests.
//
// A request belongs to the measured window when it arrived in it, a program when its first request did. Latencies
// are those of completed requests; Requests has the count of the others. Throughput counts completions in the window,
// so that long requests which straddle its borders are not lost.
func Build(in Input) *Run {
	run := &Run{
		Name:           in.Name,
		Status:         RunDone,
		Axes:           in.Axes,
		GPUs:           in.GPUs,
		Config:         in.Config,
		Workload:       in.Workload,
		Cost:           in.Cost,
		KV:             in.KV,
		Scheduler:      in.Scheduler,
		Replay:         in.Replay,
		Speculation:    in.Speculation,
		Disaggregation: in.Disaggregation,
		Workers:        in.Workers,
		Warnings:       append([]string{}, in.Warnings...),
		Approximations: append([]string{}, in.Approximations...),
	}
	measures, latencies := measure(in, in.Window)
	run.Measures = measures
	run.LatencyMs.ITL = in.Gaps.distributionMs()
	if in.Window != (Window{}) {
		run.WindowS = []Figure{Known(in.Window.From.Seconds()), Known(in.Window.To.Seconds())}
		whole, _ := measure(in, Window{})
		run.Whole = &whole
	}
	lost := &run.whole().Requests
	lost.Rejections, lost.Failures = in.Rejections, in.Failures
	fillReuse(run, in.Requests, in.Window)
	run.KV.WorkingSetTokens = workingSet(in.Requests, in.Window)
	run.Aliases = aliases(run, &in, latencies)
	if latencies.backwards > 0 {
		run.Warnings = append(run.Warnings, fmt.Sprintf(
			"%d latencies are negative and left out: the clocks of the source disagree", latencies.backwards))
	}
	return run
}

// FailedRun is the Run of a deployment that gave no figures, for its place among the others.
func FailedRun(name string, config json.RawMessage, err error) *Run {
	return &Run{
		Name: name, Status: RunFailed, Error: err.Error(), Config: config,
		Warnings: []string{}, Approximations: []string{},
	}
}
