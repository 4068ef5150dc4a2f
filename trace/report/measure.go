package report

import "time"

// measure computes the figures of one window, and returns the latencies behind them.
func measure(in Input, window Window) (Measures, samples) {
	var m Measures
	var done completions
	s := newSamples(len(in.Requests))
	first, last := None, in.End
	for i := range in.Requests {
		r := &in.Requests[i]
		if r.Arrival >= 0 && (first < 0 || r.Arrival < first) {
			first = r.Arrival
		}
		last = max(last, r.Arrival, r.End)
		if r.Status == Completed && window.Contains(r.End) {
			done.addRequest(r, in.SLO)
		}
		if window.Contains(r.Arrival) {
			m.Requests.add(r.Status)
			if r.Status == Completed {
				s.add(r)
			}
		}
	}
	m.LatencyMs = s.latency()
	for i := range in.Programs {
		if p := &in.Programs[i]; p.Completed && window.Contains(p.Last) {
			done.addProgram(p, in.SLO)
		}
	}
	m.Programs = measurePrograms(in.Programs, window, in.Rollout)

	if window == (Window{}) {
		window = Window{From: max(first, 0), To: last}
	}
	if length := window.To - window.From; length > 0 {
		m.DurationS = Seconds(length)
		m.Throughput = done.throughput(length, in.SLO, in.GPUs)
	}
	return m, s
}

func (c *Requests) add(s Status) {
	c.Total++
	switch s {
	case Completed:
		c.Completed++
	case Rejected:
		c.Rejected++
	case Failed:
		c.Failed++
	default:
		c.Unfinished++
	}
}

// samples holds latencies of completed requests in ms, sorted once latency has been called.
type samples struct {
	ttft, tpot, e2e, queue, held, router []float64
	// backwards counts the latencies that were negative.
	backwards int
}

func newSamples(n int) samples {
	return samples{
		ttft: make([]float64, 0, n), tpot: make([]float64, 0, n),
		e2e: make([]float64, 0, n), queue: make([]float64, 0, n),
		held: make([]float64, 0, n), router: make([]float64, 0, n),
	}
}

func (s *samples) add(r *Request) {
	s.e2e = s.span(s.e2e, r.Arrival, r.End, 1)
	s.queue = s.span(s.queue, r.Arrival, r.Admitted, 1)
	if r.Held >= 0 {
		s.held = append(s.held, r.Held.Seconds()*1000)
	}
	if r.RouterQueued >= 0 {
		s.router = append(s.router, r.RouterQueued.Seconds()*1000)
	}
	if r.Output >= 1 {
		s.ttft = s.span(s.ttft, r.Arrival, r.FirstToken, 1)
	}
	if r.Output >= 2 {
		s.tpot = s.span(s.tpot, r.FirstToken, r.End, r.Output-1)
	}
}

// span appends (to − from)/parts in ms, if both times exist.
func (s *samples) span(list []float64, from, to time.Duration, parts int32) []float64 {
	switch {
	case from < 0 || to < 0:
		return list
	case to < from:
		s.backwards++
		return list
	}
	return append(list, float64(to-from)/(1e6*float64(parts)))
}

func (s *samples) latency() Latency {
	for _, list := range [][]float64{s.ttft, s.tpot, s.e2e, s.queue, s.held, s.router} {
		sortFloats(list)
	}
	return Latency{
		TTFT:        distribution(s.ttft),
		TPOT:        distribution(s.tpot),
		E2E:         distribution(s.e2e),
		Queue:       distribution(s.queue),
		Held:        distribution(s.held),
		RouterQueue: distribution(s.router),
	}
}

// completions adds up what was completed in a window.
type completions struct {
	requests, programs         int64
	inputTokens, outputTokens  int64
	goodRequests, goodPrograms int64
	// cannotJudge tells that a completed request lacks a time that the SLO bounds.
	cannotJudge bool
}

func (c *completions) addRequest(r *Request, slo SLO) {
	c.requests++
	c.inputTokens += int64(r.Input)
	c.outputTokens += int64(r.Output)

	// A request without tokens has no first token that could be late, one with a single token no gap.
	judgeTTFT := slo.TTFT > 0 && r.Output >= 1
	judgeTPOT := slo.ITL > 0 && r.Output >= 2
	if judgeTTFT && (r.Arrival < 0 || r.FirstToken < 0) || judgeTPOT && (r.FirstToken < 0 || r.End < 0) {
		c.cannotJudge = true
		return
	}
	lateFirst := judgeTTFT && r.FirstToken-r.Arrival > slo.TTFT
	slow := judgeTPOT && (r.End-r.FirstToken)/time.Duration(r.Output-1) > slo.ITL
	if !lateFirst && !slow {
		c.goodRequests++
	}
}

func (c *completions) addProgram(p *Program, slo SLO) {
	c.programs++
	if p.Last-p.First <= slo.Program {
		c.goodPrograms++
	}
}

func (c *completions) throughput(length time.Duration, slo SLO, gpus int) Throughput {
	perS := func(n int64) Figure { return ratio(float64(n), length.Seconds()) }
	perMin := func(n int64) Figure { return ratio(float64(n), length.Minutes()) }
	perHour := func(n int64) Figure { return ratio(float64(n), length.Hours()) }
	t := Throughput{
		RequestsPerS:     perS(c.requests),
		OutputTokensPerS: perS(c.outputTokens),
		InputTokensPerS:  perS(c.inputTokens),
		TurnsPerMin:      perMin(c.requests),
		ProgramsPerHour:  perHour(c.programs),
	}
	if gpus > 0 {
		t.OutputTokensPerSPerGPU = Known(t.OutputTokensPerS.Value / float64(gpus))
	}
	if (slo.TTFT > 0 || slo.ITL > 0) && !c.cannotJudge {
		t.GoodputRequestsPerS = perS(c.goodRequests)
	}
	if slo.Program > 0 {
		t.GoodputProgramsPerHour = perHour(c.goodPrograms)
	}
	return t
}

// measurePrograms sums up the programs that began in the window.
func measurePrograms(programs []Program, window Window, rollout bool) ProgramMeasures {
	var m ProgramMeasures
	var makespan, slowdown, done, model, tool, human, paused, queued []float64
	add := func(list *[]float64, d time.Duration) {
		if d >= 0 {
			*list = append(*list, d.Seconds())
		}
	}
	for i := range programs {
		p := &programs[i]
		if !window.Contains(p.First) {
			continue
		}
		m.Total++
		if !p.Completed {
			continue
		}
		m.Completed++
		if rollout {
			add(&done, p.Last)
		}
		if p.Partial {
			continue
		}
		add(&model, p.Model)
		add(&tool, p.Tool)
		add(&human, p.Human)
		add(&paused, p.Paused)
		add(&queued, p.Queued)
		if p.First < 0 || p.Last < p.First {
			continue
		}
		add(&makespan, p.Last-p.First)
		if p.Solo > 0 {
			slowdown = append(slowdown, float64(p.Last-p.First)/float64(p.Solo))
		}
	}
	m.MakespanS, m.Slowdown, m.DoneS = NewDistribution(makespan), NewDistribution(slowdown), NewDistribution(done)
	m.ModelS, m.ToolS, m.HumanS = NewDistribution(model), NewDistribution(tool), NewDistribution(human)
	m.PausedS, m.QueuedS = NewDistribution(paused), NewDistribution(queued)
	m.Fairness = fairness(slowdown)
	return m
}

// fairness is Jain's index of 1/slowdown.
func fairness(slowdowns []float64) Figure {
	var sum, squares float64
	for _, s := range slowdowns {
		x := 1 / s
		sum += x
		squares += float64(x * x)
	}
	return ratio(sum*sum, float64(len(slowdowns))*squares)
}

// fillReuse sets the KV figures and the preemptions that follow from the window's requests.
func fillReuse(run *Run, requests []Request, window Window) {
	var brought, prefetched int64
	var prompts, hits, warm, computed, readmitHits, readmits, preemptions int64
	var eviction, preemption, migration int64
	var counted, unknown, engine int64
	for i := range requests {
		r := &requests[i]
		if !window.Contains(r.Arrival) {
			continue
		}
		// Only an admitted request can hit. Recordings tell of no admission, but of completion.
		switch {
		case r.Admitted < 0 && r.Status != Completed:
		case r.Hit < 0:
			unknown++
		default:
			counted++
			prompts += int64(r.Input)
			hits += int64(r.Hit)
			warm += int64(r.Warm)
			brought += int64(r.Brought)
			prefetched += int64(r.Prefetched)
		}
		// What happened inside the engine is known only to those who saw the admission.
		if r.Admitted >= 0 && r.Computed >= 0 {
			engine++
			computed += int64(r.Computed)
			readmitHits += int64(r.ReadmitHit)
			readmits += int64(r.Readmit)
			eviction += int64(r.RecomputedEviction)
			preemption += int64(r.RecomputedPreemption)
			migration += int64(r.RecomputedMigration)
			preemptions += int64(r.Preemptions)
		}
	}
	kv := &run.KV
	if counted > 0 {
		kv.PromptTokens, kv.HitTokens, kv.WarmTokens = Known(prompts), Known(hits), Known(warm)
		kv.HitRate = ratio(float64(hits), float64(prompts))
	}
	if len(kv.Tiers) > 0 {
		kv.FetchedTokens, kv.PrefetchedTokens = Known(brought), Known(prefetched)
	}
	if engine > 0 {
		kv.ComputedTokens = Known(computed)
		kv.ReadmissionHitRate = ratio(float64(readmitHits), float64(readmits))
		kv.Recomputed = Recomputed{Known(eviction), Known(preemption), Known(migration)}
		run.Preemptions = Known(preemptions)
	}
	if counted > 0 && unknown > 0 {
		run.Approximations = append(run.Approximations,
			countOf(unknown, counted+unknown, "request")+" do not tell their cached tokens and are left out of the hit rate")
	}
}
