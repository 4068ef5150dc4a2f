package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Baseline returns the index of the run that the others are compared with: the first that completed all its requests,
// else the first that has figures. A run that gave up work is no yardstick for those that did it.
func Baseline(runs []*Run) int {
	if c := contenders(runs); len(c) > 0 {
		return c[0]
	}
	return 0
}

// contenders returns the indexes of the runs that completed all their requests; when there are none, of those that
// have figures at all.
func contenders(runs []*Run) []int {
	var complete, others []int
	for i, r := range runs {
		switch {
		case r.complete():
			complete = append(complete, i)
		case r.Status != RunFailed:
			others = append(others, i)
		}
	}
	if len(complete) > 0 {
		return complete
	}
	return others
}

// Best returns the index of the run that is best in the Primary metric, the first of equals, and that metric; -1 when none
// has a figure.
func Best(runs []*Run, fixedLoad bool) (int, Metric) {
	metric := Primary(runs, fixedLoad)
	if ranked := rank(runs, metric); len(ranked) > 0 {
		return ranked[0], metric
	}
	return -1, metric
}

// rank returns the contenders that have the metric (a rate of 0 is nothing to rank), best first.
func rank(runs []*Run, metric Metric) []int {
	ranked := slices.DeleteFunc(contenders(runs), func(i int) bool { return metric.Of(runs[i]).Value <= 0 })
	slices.SortStableFunc(ranked, func(a, b int) int {
		order := cmp.Compare(metric.Of(runs[a]).Value, metric.Of(runs[b]).Value)
		if metric.LowerIsBetter {
			return order
		}
		return -order
	})
	return ranked
}

// near tells that two runs are equal in the metric.
func near(a, b *Run, metric Metric) bool {
	return math.Abs(metric.Of(a).Value/metric.Of(b).Value-1) < equalWithin
}

// complete tells that the run is over and completed all that it should have.
func (r *Run) complete() bool { return r.Status == RunDone && r.incomplete() == 0 }

// incomplete counts requests that should have completed but did not. Requests that were under way when a measured
// window closed are no fault of the deployment: outside of the window only refused and failed ones count.
func (r *Run) incomplete() int64 {
	q := r.lost()
	return q.Rejected + q.Failed + q.Unfinished
}

// lost returns the counts behind incomplete.
func (r *Run) lost() Requests {
	q := r.whole().Requests
	q.Unfinished = r.Requests.Unfinished
	return q
}

// whole returns the figures of the whole run.
func (r *Run) whole() *Measures {
	if r.Whole != nil {
		return r.Whole
	}
	return &r.Measures
}

// sameWork tells that two runs left out equally many requests, so that what they took for the others compares.
func sameWork(a, b *Run) bool {
	x, y := a.lost(), b.lost()
	return a.Status == b.Status && x.Rejected == y.Rejected && x.Failed == y.Failed && x.Unfinished == y.Unfinished
}

// label is the name of a run in a sentence.
func (r *Run) label() string { return cmp.Or(printable(r.Name), "the unnamed run") }

// shortcomings says what went wrong in which runs, those with the same fault together: "every row rejected 12 of 17
// requests: ...", "kv and sticky each rejected ...". The fault is (*Run).shortcoming, or (*Run).loss without reasons.
func shortcomings(runs []*Run, of func(*Run) string) []string {
	var faults []string
	rows := map[string][]*Run{}
	for _, r := range runs {
		fault := of(r)
		if fault == "" {
			continue
		}
		if rows[fault] == nil {
			faults = append(faults, fault)
		}
		rows[fault] = append(rows[fault], r)
	}
	for i, fault := range faults {
		faults[i] = who(rows[fault], runs) + " " + fault
	}
	return faults
}

// who names some of the runs: "kv", "kv and sticky each", "every row with kv_blocks=x0.01", "every row".
func who(some, runs []*Run) string {
	switch len(some) {
	case 1:
		return names(some)
	case len(runs):
		return "every row"
	}
	for _, key := range differingAxes(runs) {
		value, _ := some[0].axis(key)
		common := func(r *Run) bool {
			v, ok := r.axis(key)
			return ok && v == value
		}
		if count(some, common) == len(some) && count(runs, common) == len(some) {
			_, last := splitKey(key)
			return "every row with " + printable(last+"="+value)
		}
	}
	return names(some) + " each"
}

func count(runs []*Run, is func(*Run) bool) int {
	n := 0
	for _, r := range runs {
		if is(r) {
			n++
		}
	}
	return n
}

// shortcoming says what went wrong in a run, as the rest of a sentence that begins with its name; "" for nothing.
func (r *Run) shortcoming() string { return r.fault(r.lost()) }

// loss is shortcoming without the reasons why requests were lost.
func (r *Run) loss() string {
	lost := r.lost()
	lost.Rejections, lost.Failures = nil, nil
	return r.fault(lost)
}

func (r *Run) fault(lost Requests) string {
	switch {
	case r.Status == RunFailed:
		return "failed: " + cmp.Or(printable(r.Error), "no reason given")
	case r.incomplete() > 0:
		programs := r.Programs
		if r.Whole != nil { // those that a window cut short are no loss
			programs = ProgramMeasures{}
		}
		return lost.describe(programs)
	case r.Status != RunDone:
		return "was interrupted"
	}
	return ""
}

// describe says what became of requests that did not complete: "rejected 8 of 412 requests, failed 3 and left 1
// unfinished". Where it is known why, the reason follows: "rejected 8 of 412 requests: prompts are too long; failed 3". Of
// programs of several requests it says how many were completed all the same.
func (c Requests) describe(programs ProgramMeasures) string {
	var parts []string
	why := false
	add := func(verb string, n int64, rest string) {
		switch {
		case n <= 0:
		case parts == nil:
			parts = append(parts, verb+" "+countOf(n, c.Total, "request")+rest)
		default:
			parts = append(parts, fmt.Sprintf("%s %d%s", verb, n, rest))
		}
	}
	explain := func(verb string, n int64, losses []Loss) {
		for _, l := range losses {
			if l.Count > 0 && l.Why != "" {
				add(verb, l.Count, ": "+printable(l.Why))
				n -= l.Count
				why = true
			}
		}
		add(verb, n, "")
	}
	explain("rejected", c.Rejected, c.Rejections)
	explain("failed", c.Failed, c.Failures)
	add("left", c.Unfinished, " unfinished")
	if p := programs; p.Completed < p.Total && p.Total < c.Total {
		parts = append(parts, "completed "+countOf(p.Completed, p.Total, "program"))
	}
	if why {
		return strings.Join(parts, "; ")
	}
	return list(parts)
}

// names lists the names of runs, not more than a few of them.
func names(runs []*Run) string {
	const most = 2
	var labels []string
	for _, r := range runs {
		labels = append(labels, r.label())
	}
	if n := len(labels); n > most+1 {
		labels = append(labels[:most], fmt.Sprintf("%d more rows", n-most))
	}
	return list(labels)
}
