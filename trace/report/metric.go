package report

import (
	"math"
	"slices"
)

// Metric is a figure by which runs are compared.
type Metric struct {
	// Name is what the figure is called in a sentence: "programs per hour".
	Name string
	// LowerIsBetter tells the direction; seconds and share whether the figure is a time or a share of 1.
	LowerIsBetter  bool
	seconds, share bool
	// best is how a sentence says that a run is the best: "completes the most programs per hour".
	best string
	of   func(*Run) Figure
}

// Of returns the run's figure.
func (m Metric) Of(r *Run) Figure { return m.of(r) }

// The metrics that Primary chooses from.
var (
	programsPerHour = Metric{
		Name: "programs per hour", best: "completes the most programs per hour",
		of: func(r *Run) Figure { return r.Throughput.ProgramsPerHour },
	}
	requestsPerS = Metric{
		Name: "requests per second", best: "completes the most requests per second",
		of: func(r *Run) Figure { return r.Throughput.RequestsPerS },
	}
	turnsPerMin = Metric{
		Name: "turns per minute", best: "completes the most turns per minute",
		of: func(r *Run) Figure { return r.Throughput.TurnsPerMin },
	}
	meanMakespan = Metric{
		Name: "mean program time", best: "has the lowest mean program time", LowerIsBetter: true, seconds: true,
		of: func(r *Run) Figure { return r.Programs.MakespanS.Mean },
	}
	meanE2E = Metric{
		Name: "mean request time", best: "has the lowest mean request time", LowerIsBetter: true, seconds: true,
		of: func(r *Run) Figure { return inSeconds(r.LatencyMs.E2E.Mean) },
	}
)

// Further metrics of tables and sentences.
var (
	ttftP50 = Metric{
		Name: "TTFT p50", LowerIsBetter: true, seconds: true,
		of: func(r *Run) Figure { return inSeconds(r.LatencyMs.TTFT.P50) },
	}
	ttftP99 = Metric{
		Name: "p99 TTFT", LowerIsBetter: true, seconds: true,
		of: func(r *Run) Figure { return inSeconds(r.LatencyMs.TTFT.P99) },
	}
	tpotP50 = Metric{
		Name: "TPOT p50", LowerIsBetter: true, seconds: true,
		of: func(r *Run) Figure { return inSeconds(r.LatencyMs.TPOT.P50) },
	}
	outputTokensPerS = Metric{
		Name: "output tokens per second", of: func(r *Run) Figure { return r.Throughput.OutputTokensPerS },
	}
	pausedMean = Metric{
		Name: "paused time", LowerIsBetter: true, seconds: true, of: func(r *Run) Figure { return r.Programs.PausedS.Mean },
	}
	doneHalf = doneMetric("time to 50% of programs", func(d Distribution) Figure { return d.P50 })
	done90   = doneMetric("time to 90% of programs", func(d Distribution) Figure { return d.P90 })
	done99   = doneMetric("time to 99% of programs", func(d Distribution) Figure { return d.P99 })
	doneLast = doneMetric("time to the last program", func(d Distribution) Figure { return d.Max })

	preemptions    = Metric{Name: "preemptions", LowerIsBetter: true, of: func(r *Run) Figure { return r.Preemptions }}
	inSLO          = Metric{Name: "in SLO", share: true, of: goodShare}
	hitRate        = Metric{Name: "hit rate", share: true, of: func(r *Run) Figure { return r.KV.HitRate }}
	acceptedDrafts = Metric{Name: "accepted draft tokens per step", of: (*Run).acceptedPerStep}
	brought        = Metric{Name: "fetched", share: true, of: broughtShare}
	idleKV         = Metric{Name: "KV held idle", LowerIsBetter: true, of: heldIdle}
	movedKV        = Metric{Name: "KV moved", LowerIsBetter: true, of: movedGB}
	transferShare  = Metric{Name: "transfer of KV", LowerIsBetter: true, share: true, of: (*Run).transferShare}
	reprefillShare = Metric{
		Name: "re-prefilling", LowerIsBetter: true, share: true, of: func(r *Run) Figure { return r.KV.ReprefillTimeShare },
	}
)

// acceptedPerStep is not known without speculative decoding.
func (r *Run) acceptedPerStep() Figure {
	if r.Speculation == nil {
		return Figure{}
	}
	return r.Speculation.AcceptedPerStep
}

// doneMetric is how far a rollout is.
func doneMetric(name string, of func(Distribution) Figure) Metric {
	return Metric{Name: name, LowerIsBetter: true, seconds: true, of: func(r *Run) Figure { return of(r.Programs.DoneS) }}
}

func inSeconds(ms Figure) Figure {
	ms.Value /= 1000
	return ms
}

// Primary returns the metric that decides between runs. Under a load that does not wait for the deployment
// (fixedLoad) every run that keeps up has the same throughput, so time decides, if all programs completed; otherwise
// throughput does: programs when they have several turns (and some were completed), else requests. Runs that cannot
// win have no say in it. Between runs with solutions the number that was solved for decides.
func Primary(runs []*Run, fixedLoad bool) Metric {
	if s := solutionOf(runs); s != nil {
		return s.metric()
	}
	return served(runs, fixedLoad)
}

// served is the metric of how much, or how fast, runs serve.
func served(runs []*Run, fixedLoad bool) Metric {
	mean := meanTime(runs)
	allDone := !slices.ContainsFunc(contenders(runs), func(i int) bool {
		return !runs[i].complete() || runs[i].Programs.Completed != runs[i].Programs.Total
	})
	switch {
	case fixedLoad && allDone && allHave(runs, mean):
		return mean
	case severalTurns(runs) && allHave(runs, programsPerHour):
		return programsPerHour
	case severalTurns(runs):
		return turnsPerMin
	}
	return requestsPerS
}

// meanTime is the metric of how long the work takes: a program, or a request when programs are single calls or their
// times are not known.
func meanTime(runs []*Run) Metric {
	if severalTurns(runs) && allHave(runs, meanMakespan) {
		return meanMakespan
	}
	return meanE2E
}

// severalTurns tells that programs are more than single calls.
func severalTurns(runs []*Run) bool {
	return slices.ContainsFunc(runs, func(r *Run) bool { return r.Workload.Turns > r.Workload.Programs })
}

// allHave tells that all runs that can win have a figure other than 0.
func allHave(runs []*Run, m Metric) bool {
	return !slices.ContainsFunc(contenders(runs), func(i int) bool { return m.Of(runs[i]).Value == 0 })
}

// goodShare is the share of all requests that were completed within the SLO.
func goodShare(r *Run) Figure {
	good, all := r.Throughput.GoodputRequestsPerS, r.Throughput.RequestsPerS
	if !good.Known || all.Value == 0 || r.Requests.Total == 0 {
		return Figure{}
	}
	return Known(min(1, good.Value/all.Value) * float64(r.Requests.Completed) / float64(r.Requests.Total))
}

// better tells that a does better than b.
func (m Metric) better(a, b *Run) bool {
	if m.LowerIsBetter {
		return m.Of(a).Value < m.Of(b).Value
	}
	return m.Of(a).Value > m.Of(b).Value
}

// unit is the one in which the metric is told of all runs, so that tables and sentences agree; none for a rate. It suits the
// largest, or the smallest where that would vanish in it.
func (m Metric) unit(runs []*Run) timeUnit {
	if !m.seconds {
		return timeUnit{}
	}
	largest, least := 0.0, math.Inf(1)
	for _, r := range runs {
		if v := m.Of(r).Value; v > 0 {
			largest, least = max(largest, v), min(least, v)
		}
	}
	unit := unitFor(largest)
	if finer := unitFor(least); least < 0.1*unit.seconds && largest < 1000*finer.seconds {
		return finer
	}
	return unit
}

// Print formats the figure of one of the runs, in a unit that suits all of them.
func (m Metric) Print(r *Run, runs []*Run) string {
	v := m.Of(r).Value
	switch {
	case m.share:
		return percent(v)
	case !m.seconds:
		return number(v)
	}
	unit := m.unit(runs)
	return unit.text(v)
}

// differ tells that two runs differ in the metric as far as a reader cares: by 1 %, or by a point of a share.
func (m Metric) differ(a, b *Run) bool {
	x, y := m.Of(a), m.Of(b)
	switch {
	case !x.Known || !y.Known:
		return false
	case m.share:
		return math.Abs(x.Value-y.Value) >= 0.01
	}
	return y.Value > 0 && math.Abs(x.Value/y.Value-1) >= equalWithin
}
