package inspect

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace/report"
)

// parts is how many equal parts the time of a trace is cut into.
const parts = 60

// OverTime is how much of a trace was there at a time.
type OverTime struct {
	// PartS is the length in seconds of each of the parts of the trace over which Series.Means are taken.
	PartS report.Figure `json:"part_s"`
	// Starts is how many turns start in a second; its peak is that of a part.
	Starts Series `json:"turns_per_s"`
	// Programs live from the start of their first call to the end of their last; calls run from start to end.
	Programs Series `json:"programs"`
	Calls    Series `json:"calls"`
	// WorkingSet is not known where calls tell no ends and share nothing.
	WorkingSet Series `json:"working_set_tokens,omitzero"`
	// AbovePool is the share of time for which the working set is larger than one worker's room.
	AbovePool report.Figure `json:"above_pool,omitzero"`
}

// Series is a quantity over time. Mean is that over all of it.
type Series struct {
	Peak  report.Figure   `json:"peak"`
	Mean  report.Figure   `json:"mean,omitzero"`
	Means []report.Figure `json:"means,omitempty"`
}

// overTime measures how much there is at a time. Working is the working set.
func (t *trail) overTime(working steps, pool int64) *OverTime {
	var programs, calls steps
	from, to := t.spans[0].start, t.spans[0].end
	for _, p := range t.w.Programs {
		first, last := t.spans[p.First].start, t.spans[p.First].end
		for _, s := range t.spans[p.First:p.Last] {
			calls = append(calls, step{s.start, 1}, step{s.end, -1})
			first, last = min(first, s.start), max(last, s.end)
		}
		programs = append(programs, step{first, 1}, step{last, -1})
		from, to = min(from, first), max(to, last)
	}
	programs.sort()
	calls.sort()
	part := max((to-from+parts-1)/parts, 1)
	o := &OverTime{PartS: report.Known(part.Seconds()), Starts: t.starts(from, part), Programs: programs.series(from, part),
		Calls: calls.series(from, part), WorkingSet: working.series(from, part)}
	switch {
	case o.WorkingSet.Mean.Value == 0: // no call tells its end, and none needs again what another had
		o.WorkingSet = Series{}
	case pool > 0:
		o.AbovePool = working.above(pool)
	}
	return o
}

// starts counts the turns that start in each part of the time from a start on, per second.
func (t *trail) starts(from, part time.Duration) (s Series) {
	counts := make([]int64, parts)
	for _, ran := range t.spans {
		counts[min(int((ran.start-from)/part), parts-1)]++
	}
	rate := func(n int64, of time.Duration) report.Figure { return report.Known(float64(n) / of.Seconds()) }
	for _, n := range counts {
		s.Means = append(s.Means, rate(n, part))
	}
	s.Peak, s.Mean = rate(slices.Max(counts), part), rate(int64(len(t.spans)), parts*part)
	return s
}

// steps are the changes of a quantity over time, in order of time once sorted.
type steps []step

type step struct {
	at     time.Duration
	change int64
}

// sort orders changes by time; increases come first, so that what ends as something else begins counts beside it.
func (s steps) sort() {
	slices.SortFunc(s, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.change, a.change)) })
}

// each calls f with every stretch of time in which the quantity keeps its value, in order.
func (s steps) each(f func(from, to time.Duration, value int64)) {
	var value int64
	for i := range s {
		if i > 0 && s[i].at > s[i-1].at {
			f(s[i-1].at, s[i].at, value)
		}
		value += s[i].change
	}
}

// length is the time between the first and the last change.
func (s steps) length() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].at - s[0].at
}

// level returns the quantity's peak and its mean over time.
func (s steps) level() (l Series) {
	var value, peak int64
	for i := range s {
		value += s[i].change
		peak = max(peak, value)
	}
	var area float64
	s.each(func(from, to time.Duration, value int64) { area += float64((to - from).Seconds() * float64(value)) })
	l.Peak, l.Mean = report.Known(peak), report.Known(area/s.length().Seconds())
	return l
}

// series adds the means over the parts that follow a time, each as long as given.
func (s steps) series(start, part time.Duration) Series {
	l := s.level()
	area := make([]float64, parts)
	s.each(func(from, to time.Duration, value int64) {
		for from < to {
			i := min(int((from-start)/part), parts-1)
			end := to
			if i < parts-1 {
				end = min(to, start+time.Duration(i+1)*part)
			}
			area[i] += float64((end - from).Seconds() * float64(value))
			from = end
		}
	})
	for _, a := range area {
		l.Means = append(l.Means, report.Known(a/part.Seconds()))
	}
	return l
}

// above is the share of time in which the quantity is above a limit.
func (s steps) above(limit int64) report.Figure {
	var over time.Duration
	s.each(func(from, to time.Duration, value int64) {
		if value > limit {
			over += to - from
		}
	})
	return report.Known(over.Seconds() / s.length().Seconds())
}
