package report

// Metric is a figure by which runs are ranked.
type Metric struct {
	// Name is what the figure is called in a sentence: "programs per hour".
	Name string
	// LowerIsBetter tells the direction; seconds whether the figure is a time.
	LowerIsBetter bool
	seconds       bool
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
		of: func(r *Run) Figure {
			f := r.LatencyMs.E2E.Mean
			f.Value /= 1000
			return f
		},
	}
)

// Primary returns the metric that decides between runs. Under a load that does not wait for the deployment
// (fixedLoad) every run that keeps up has the same throughput, so time decides, if all completed; otherwise
// throughput does: programs when they have several turns (and some were completed), else requests.
func Primary(runs []*Run, fixedLoad bool) Metric {
	severalTurns, allCompleted := false, true
	known := func(m Metric) bool {
		for _, r := range runs {
			if r.Status == RunDone && m.Of(r).Value == 0 {
				return false
			}
		}
		return true
	}
	for _, r := range runs {
		severalTurns = severalTurns || r.Workload.Turns > r.Workload.Programs
		allCompleted = allCompleted && r.Status == RunDone && r.incomplete() == 0 && r.Programs.Completed == r.Programs.Total
	}
	switch fixed := fixedLoad && allCompleted; {
	case fixed && severalTurns && known(meanMakespan):
		return meanMakespan
	case fixed && known(meanE2E):
		return meanE2E
	case severalTurns && known(programsPerHour):
		return programsPerHour
	case severalTurns:
		return turnsPerMin
	}
	return requestsPerS
}

// incomplete counts requests that should have completed but did not. Requests that were under way when a measured
// window closed are no fault of the deployment: outside of the window only refused and failed ones count.
func (r *Run) incomplete() int64 {
	q := r.lost()
	return q.Rejected + q.Failed + q.Unfinished
}

// lost returns the counts behind incomplete.
func (r *Run) lost() Requests {
	q := r.Requests
	if r.Whole != nil {
		q.Total = r.Whole.Requests.Total
		q.Rejected, q.Failed = r.Whole.Requests.Rejected, r.Whole.Requests.Failed
	}
	return q
}
