package sim

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Report builds the report of a run. Solo, where not nil, is what Solo returned for the workload and deployment.
func (r *Result) Report(config json.RawMessage, solo []time.Duration) *report.Run {
	if solo != nil {
		for i := range r.Programs {
			r.Programs[i].Solo = solo[r.Programs[i].Index]
		}
	}
	in := report.Input{
		Name: r.Plan.Name, Config: config, Workload: describe(r.Workload),
		Requests: r.Requests, Programs: r.Programs, Gaps: r.Gaps, Window: r.Window, End: r.End,
		GPUs:           r.Plan.Workers * r.Plan.Hardware.Parallelism.GPUs(),
		SLO:            report.SLO(r.Plan.SLO),
		Rejections:     r.rejections(),
		Failures:       r.failures(),
		Rollout:        r.Plan.Load.Mode == "rollout",
		Workers:        r.workers(),
		Cost:           r.cost(),
		KV:             r.kv(),
		Scheduler:      r.scheduler(),
		Speculation:    r.speculation(),
		Disaggregation: r.disaggregation(),
		Warnings:       r.warnings(),
		Approximations: r.approximations(),
	}
	run := report.Build(in)
	run.Series = r.Series
	return run
}

// describe sums up a workload.
func describe(w *trace.Workload) report.Workload {
	d := report.Workload{Programs: int64(len(w.Programs)), Sessions: int64(len(w.Sessions)), Turns: int64(len(w.Calls)),
		Inferred: map[string]int64{}}
	for i := range w.Calls {
		c := &w.Calls[i]
		d.InputTokens += int64(c.Input)
		d.OutputTokens += int64(c.Output)
		fields := c.Turn.Inferred
		if c.Cut > 0 {
			fields |= trace.FieldCut
		}
		for _, name := range fields.Names() {
			d.Inferred[name]++
		}
	}
	return d
}

// length is that of the measured window, or of the whole run.
func (r *Result) length() time.Duration {
	if r.Window != (report.Window{}) {
		return r.Window.To - r.Window.From
	}
	return r.End
}

// workers reports each engine, in the measured window. Utilizations are of its own KV blocks.
func (r *Result) workers() []report.Worker {
	requests := make([]int64, len(r.Engines))
	hits := make([]int64, len(r.Engines))
	for i := range r.Requests {
		if q := &r.Requests[i]; q.Worker >= 0 && r.Window.Contains(q.Arrival) {
			requests[q.Worker]++
			hits[q.Worker] += int64(q.Hit)
		}
	}
	r.countPrefills(requests, hits)
	workers := make([]report.Worker, len(r.Engines))
	for i := range r.Engines {
		s := &r.Engines[i]
		blocks := float64(r.Plan.of(i).Blocks)
		workers[i] = report.Worker{ID: int32(i), Requests: report.Known(requests[i]), BusyS: report.Seconds(s.Busy),
			Steps: report.Known(s.Steps), PrefillTokens: report.Known(s.PrefillTokens), DecodeTokens: report.Known(s.DecodeTokens),
			HitTokens: report.Known(hits[i]), Preemptions: report.Known(s.Preemptions), EvictedBlocks: report.Known(s.Evicted),
			PeakUtilization: report.Known(float64(s.PeakUsed) / blocks)}
		if blockSeconds := blocks * r.length().Seconds(); blockSeconds > 0 {
			workers[i].MeanUtilization = report.Known(s.Occupancy.Used / blockSeconds)
		}
		workers[i].Links = r.linksOf(i)
	}
	return workers
}

// kv sums up the KV caches of all workers in the measured window.
func (r *Result) kv() report.KV {
	var busy, again time.Duration
	var evicted, pins, cut int64
	var o engine.Occupancy
	peak := 0.0
	for i := range r.Engines {
		s := &r.Engines[i]
		busy += s.Busy
		again += s.Recompute
		evicted += s.Evicted
		pins += s.Pinned
		cut += s.Unpinned
		o.Add(s.Occupancy)
		peak = max(peak, float64(s.PeakUsed)/float64(r.Plan.of(i).Blocks))
	}
	p := r.Plan
	blocks := float64(p.allBlocks()) / float64(p.Ranks)
	par := p.Hardware.Parallelism
	gibPerBlock := float64(p.Capacity.KVBytesPerToken) * float64(p.Engine.BlockSize) * float64(max(1, par.Tensor)*max(1, par.Pipeline)) / (1 << 30)
	out := r.Workload.OutputBlocks(p.Engine.BlockSize)
	kv := report.KV{
		CapacityTokens:  report.Known(p.allBlocks() * int64(p.Engine.BlockSize)),
		EvictedBlocks:   report.Known(evicted),
		PeakUtilization: report.Known(peak),
		IdleGiBS:        report.Known(o.Cached * gibPerBlock),
		ResidentGiBS:    report.Known((o.Used + o.Cached) * gibPerBlock),
		OutputBlocks:    &report.OutputBlocks{Known: out.Known, Inferred: out.Inferred, Unknown: out.Unknown},
	}
	if length := r.length(); length > 0 {
		kv.MeanUtilization = report.Known(o.Used / blocks / length.Seconds() / float64(p.Ranks))
	}
	if r.Held != nil {
		kv.HeldGiBS, kv.Holders = r.held(gibPerBlock)
	}
	kv.Tiering = r.tiering()
	perBlock := float64(p.Engine.BlockSize)
	kv.SpaceTime = report.NewSpaceTime(o.Time.Seconds()*blocks*perBlock, o.Decode()*perBlock, o.Prefill*perBlock, o.Recompute*perBlock,
		(o.Cached+o.Pinned)*perBlock)
	if p.continuum() {
		kv.Pins, kv.CutPins = report.Known(pins), report.Known(cut)
	}
	if s := r.Scheduler; s != nil && s.Ticks > 0 {
		kv.AccountedTokens = report.Known(s.UsedPeak)
	}
	if busy > 0 {
		kv.ReprefillTimeShare = report.Known(again.Seconds() / busy.Seconds())
	}
	return kv
}

// speculation sums up the draft tokens of all workers in the measured window.
func (r *Result) speculation() *report.Speculation {
	if r.Plan.speculation == nil {
		return nil
	}
	sum := new(report.Speculation)
	for i := range r.Engines {
		d := &r.Engines[i].Drafts
		sum.Steps += d.Steps
		sum.DraftTokens += d.Tokens
		sum.AcceptedTokens += d.Accepted
	}
	if sum.Steps > 0 {
		sum.AcceptedPerStep = report.Known(float64(sum.AcceptedTokens) / float64(sum.Steps))
	}
	return sum
}

// scheduler reports what the program schedulers did in the whole run.
func (r *Result) scheduler() *report.Scheduler {
	s := r.Scheduler
	if s == nil {
		return nil
	}
	out := &report.Scheduler{Pauses: s.Pauses, Marks: s.Marks, Resumes: s.Resumes, ForcedResumes: s.ForcedResumes,
		Migrations: s.Migrations, PausedPeak: s.PausedPeak, Expired: s.Expired, PausedS: report.Seconds(s.Paused)}
	if s.Deferred > 0 {
		out.Starvation.LongestWaitS = report.Seconds(s.LongestWait)
	}
	if c, ok := s.Waits.Correlation(); ok {
		out.Starvation.SizeWaitCorrelation = report.Known(c)
	}
	if s.Ticks > 0 {
		out.Tokens = report.AccountedUsage{AccountedPeak: report.Known(s.UsedPeak), MaxOver: report.Known(s.MaxOver)}
		for _, c := range r.Plan.tableCapacity() {
			out.Tokens.Capacity.Value += float64(r.Plan.scheduler.Budget(c))
			out.Tokens.Capacity.Known = c.Tokens > 0
		}
	}
	return out
}

// warnings say what was left out of the run, and what was asked of it that it cannot do.
func (r *Result) warnings() []string {
	var w []string
	if r.Dropped > 0 {
		w = append(w, fmt.Sprintf("%d calls are to models that this deployment does not serve (config key models)", r.Dropped))
	}
	w = append(w, r.Plan.idleRules(r.Workload)...)
	w = append(w, r.Plan.idleHints(r.Workload)...)
	w = append(w, r.Plan.idleSettings()...)
	if room := r.Plan.Blocks * r.Plan.Engine.BlockSize; room < r.Plan.MaxModelLen {
		w = append(w, fmt.Sprintf("the KV cache holds %d tokens, fewer than the longest context of %d: the engine starts only with a lower engine.max_model_len, and longer calls are rejected here",
			room, r.Plan.MaxModelLen))
	}
	return w
}

// approximations say what the figures rest on.
func (r *Result) approximations() []string {
	a := r.Plan.Cost.Estimates()
	switch r.Plan.Engine.Kind {
	case "sglang":
		a = append(a, "SGLang schedules a step while the one before runs; here it schedules after it, as with --disable-overlap-schedule")
	case "trtllm":
		a = append(a, "no steps of TensorRT-LLM were measured: its scheduling is simulated, with step times fitted to another engine")
	}
	if r.Plan.StateBlocks > 0 {
		a = append(a, fmt.Sprintf("window and recurrent layers are charged to the KV pool as %d blocks for each running request", r.Plan.StateBlocks))
	}
	if c := r.Plan.Capacity; r.Plan.AutoBlocks {
		if off := float64(c.HighBlocks-c.LowBlocks) / 2 / float64(c.Blocks); off > 0.05 {
			a = append(a, fmt.Sprintf("the KV capacity of %d tokens per worker is known to ±%.0f%%; see what that means with --grid engine.kv_blocks=x%.2f,x1,x%.2f",
				c.Tokens, 100*off, 1-off, 1+off))
		}
	}
	forks := r.Workload.ForkTokens
	if share := float64(forks) / float64(describe(r.Workload).InputTokens); share >= 0.001 { // less moves no figure
		a = append(a, fmt.Sprintf("two prompts that part within a block of the trace count as parting where it begins: up to %d more prompt tokens (%.1f%%) may be shared",
			forks, 100*share))
	}
	a = append(a, r.Plan.kvApproximations()...)
	if r.Plan.prefill != nil {
		a = append(a, "a prefill worker counts the last block of a prompt, where that is not full, as free before it is read")
	}
	if r.Plan.lockstep() {
		a = append(a, "data-parallel ranks step together at the pace of the slowest, without padding the smaller batches")
	}
	return a
}
