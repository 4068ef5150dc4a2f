package trace

import "time"

// Detail is what a row tells of a call beyond what simulations and replays need. ReadDetailed keeps it.
type Detail struct {
	// CallerID is the caller's own id of the call.
	CallerID string
	// PrefillWait is the time from the call's start to that of its prefill, Prefill the time from there to the first token,
	// ITL the mean gap between tokens, KVTransfer an estimate of how long its KV was on the way. NoTime is not told.
	PrefillWait, Prefill, ITL, KVTransfer time.Duration
	// HitRate is the share of the prompt that the router expected in the worker's cache, QueueDepth the requests that waited
	// there. Negative is not told.
	HitRate    float64
	QueueDepth int64
	// Workers and data-parallel ranks; nil is not told.
	Workers *Worker
	// FinishReason is what the client was told, Backend the engine's reason.
	FinishReason, Backend string
	// JSON texts as they stand in the row, "" for none.
	StopReason, Choices, Compaction, KVHints, AgentHeaders string
	// Run is what agentsim wrote of the call; nil for rows of others.
	Run *RunDetail
}

// RunDetail is the Extension of a row of a predicted or replayed run. Negative times and counts are not told.
type RunDetail struct {
	// Status is how the call ended; Copy counts the runs of its program.
	Status string
	Copy   uint32
	Worker int32
	// Arrival is the call's start since the run began, Planned, Ready and Due are those of a replay.
	Arrival, Planned, Ready, Due time.Duration
	// Held is the part of the time up to the prefill for which a program scheduler or a cap on programs held the call.
	Held time.Duration
	// Gap is the time between what the call waited for and its start.
	Gap           Gap
	Hit, Computed int64
	Preemptions   int64
	// Inferred names the fields of the call that the run's own input did not tell.
	Inferred []string
}

// detail returns what a row tells of its call. What makes no sense is not told.
func (p *rowParser) detail(rec *Record) *Detail {
	r := rec.Request
	d := &Detail{CallerID: r.XRequestID, HitRate: -1, QueueDepth: known(r.QueueDepth), Workers: r.Worker}
	for _, f := range []struct {
		from *float64
		to   *time.Duration
	}{{r.PrefillWaitTimeMs, &d.PrefillWait}, {r.PrefillTimeMs, &d.Prefill}, {r.AvgITLMs, &d.ITL}, {r.KVTransferLatencyMs, &d.KVTransfer}} {
		var err error
		if *f.to, err = optionalMs("", f.from); err != nil {
			*f.to = NoTime
		}
	}
	if r.KVHitRate != nil {
		d.HitRate = *r.KVHitRate
	}
	if f := r.FinishReason; f != nil {
		d.FinishReason, d.Backend = p.name(f.FinishReason), p.name(f.Backend)
		d.StopReason, d.Choices = string(f.StopReason), string(f.Choices)
	}
	if a := rec.AgentContext; a != nil {
		d.Compaction, d.KVHints, d.AgentHeaders = string(a.Compaction), string(a.KVHints), string(a.AgentHeaders)
	}
	if x := r.Agentsim; x != nil {
		d.Run = x.detail()
		d.Run.Status = p.name(d.Run.Status)
	}
	return d
}

func (x *Extension) detail() *RunDetail {
	d := &RunDetail{Status: x.Status, Copy: x.Copy, Worker: Unknown, Hit: known(x.HitTokens), Computed: known(x.ComputedTokens),
		Preemptions: x.Preemptions, Inferred: x.Inferred}
	if x.Worker != nil && *x.Worker >= 0 && *x.Worker <= maxTokens {
		d.Worker = int32(*x.Worker)
	}
	for _, f := range []struct {
		from *int64
		to   *time.Duration
	}{{x.ArrivalNs, &d.Arrival}, {x.PlannedNs, &d.Planned}, {x.ReadyNs, &d.Ready}, {x.DueNs, &d.Due}, {x.HeldNs, &d.Held},
		{x.ToolNs, &d.Gap.Tool}, {x.HumanNs, &d.Gap.Human}, {x.WaitedNs, &d.Gap.Other}} {
		*f.to = NoTime
		if f.from != nil && *f.from >= 0 && *f.from <= MaxDurationMs*1e6 {
			*f.to = time.Duration(*f.from)
		}
	}
	g := &d.Gap
	g.Tool, g.Human, g.Other = max(g.Tool, 0), max(g.Human, 0), max(g.Other, 0)
	g.Other = max(g.Other-g.Tool-g.Human, 0)
	return d
}

// known returns the value, or Unknown.
func known(v *int64) int64 {
	if v == nil || *v < 0 {
		return Unknown
	}
	return *v
}
