package report

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// SideBySideSchema names the JSON form of a SideBySide.
const SideBySideSchema = "agentsim.compare.v1"

// SideBySide is runs of the same work beside each other: a recording, predictions, replays.
type SideBySide struct {
	Schema  string     `json:"schema"`
	Version string     `json:"version,omitempty"`
	Inputs  []Compared `json:"inputs"`
	Metrics []Row      `json:"metrics"`
	// Turns compare calls one by one, the first input's with those of each other that has a trace.
	Turns []TurnErrors `json:"turns"`
	// Differences say in what the work differs. Then figures do not compare.
	Differences []string `json:"differences"`
	Notes       []string `json:"notes"`
}

// Compared is one of the runs. Label is what it is called: A, B, C.
type Compared struct {
	Label  string `json:"label"`
	Kind   string `json:"kind"`
	Source string `json:"source"`
	*Run   `json:"run"`
}

// Row is a metric of all inputs. Times are in seconds. Ratios and Errors are against the first input: value/first, and
// value/first − 1, but the plain difference of a share. A figure that is not known is null.
type Row struct {
	Name   string   `json:"metric"`
	Unit   string   `json:"unit,omitempty"` // s, share, or none
	Values []Figure `json:"values"`
	Ratios []Figure `json:"ratios"`
	Errors []Figure `json:"errors"`

	metric Metric
}

// sideMetrics are the rows, in order.
func sideMetrics() []Metric {
	var list []Metric
	add := func(name string, of func(*Run) Figure) { list = append(list, Metric{Name: name, of: of}) }
	times := func(name string, of func(*Run) Distribution, inMs bool) {
		for _, q := range []struct {
			name string
			of   func(Distribution) Figure
		}{
			{"mean", func(d Distribution) Figure { return d.Mean }},
			{"p50", func(d Distribution) Figure { return d.P50 }},
			{"p90", func(d Distribution) Figure { return d.P90 }},
			{"p99", func(d Distribution) Figure { return d.P99 }},
		} {
			list = append(list, Metric{Name: name + " " + q.name, seconds: true, of: func(r *Run) Figure {
				if inMs {
					return inSeconds(q.of(of(r)))
				}
				return q.of(of(r))
			}})
		}
	}
	add("requests done", func(r *Run) Figure { return Known(r.Requests.Completed) })
	times("TTFT", func(r *Run) Distribution { return r.LatencyMs.TTFT }, true)
	times("TPOT", func(r *Run) Distribution { return r.LatencyMs.TPOT }, true)
	times("ITL", func(r *Run) Distribution { return r.LatencyMs.ITL }, true)
	times("request", func(r *Run) Distribution { return r.LatencyMs.E2E }, true)
	times("program", func(r *Run) Distribution { return r.Programs.MakespanS }, false)
	add("programs/h", programsPerHour.of)
	add("requests/s", requestsPerS.of)
	add("output tok/s", outputTokensPerS.of)
	list = append(list, turnsPrice, programPrice, hitRate, Metric{Name: "paused mean", seconds: true, of: pausedMean.of})
	add("pauses", func(r *Run) Figure {
		if r.Scheduler == nil {
			return Figure{}
		}
		return Known(r.Scheduler.Pauses)
	})
	return list
}

// rareMetric tells that a metric is left out where it is 0 in all runs.
func rareMetric(name string) bool { return name == "paused mean" || name == "pauses" }

// NewSideBySide compares runs with the first of them. There is at least one.
func NewSideBySide(inputs []Compared) *SideBySide {
	s := &SideBySide{Schema: SideBySideSchema, Inputs: inputs, Turns: []TurnErrors{}, Differences: []string{}, Notes: []string{}}
	for _, m := range sideMetrics() {
		if row := newRow(m, inputs); row != nil {
			s.Metrics = append(s.Metrics, *row)
		}
	}
	for i := range inputs[1:] {
		s.Differences = append(s.Differences, workDiffers(&inputs[0], &inputs[i+1])...)
	}
	for _, in := range inputs {
		if fault := in.Run.loss(); fault != "" {
			s.Notes = append(s.Notes, in.Label+" "+fault)
		}
		if in.Run.Replay != nil && len(in.Run.Replay.Doubts) > 0 {
			s.Notes = append(s.Notes, in.Label+" should not be trusted: "+strings.Join(in.Run.Replay.Doubts, "; "))
		}
	}
	return s
}

// newRow is nil for a metric that tells nothing of any run.
func newRow(m Metric, inputs []Compared) *Row {
	row := &Row{Name: m.Name, metric: m}
	switch {
	case m.seconds:
		row.Unit = "s"
	case m.share:
		row.Unit = "share"
	}
	base := m.Of(inputs[0].Run)
	tells := false
	for _, in := range inputs {
		v := m.Of(in.Run)
		tells = tells || v.Known && (v.Value != 0 || !rareMetric(m.Name))
		var quotient, off Figure
		if v.Known && base.Known {
			quotient, off = ratio(v.Value, base.Value), Known(v.Value/base.Value-1)
			if m.share {
				off = Known(v.Value - base.Value)
			}
		}
		row.Values, row.Ratios, row.Errors = append(row.Values, v), append(row.Ratios, quotient), append(row.Errors, off)
	}
	if !tells {
		return nil
	}
	return row
}

// workDiffers says in what the work of b is not that of a. Servers count a few tokens more or fewer than a recording, so that
// less than 1 % is no difference.
func workDiffers(a, b *Compared) []string {
	var of, done []string
	for _, c := range []struct {
		name string
		of   func(*Workload) int64
	}{
		{"programs", func(w *Workload) int64 { return w.Programs }},
		{"sessions", func(w *Workload) int64 { return w.Sessions }},
		{"turns", func(w *Workload) int64 { return w.Turns }},
		{"prompt tokens", func(w *Workload) int64 { return w.InputTokens }},
		{"output tokens", func(w *Workload) int64 { return w.OutputTokens }},
	} {
		if x, y := c.of(&a.Workload), c.of(&b.Workload); countsDiffer(x, y) {
			of = append(of, fmt.Sprintf("%d %s against %d", y, c.name, x))
		}
	}
	if len(of) > 0 {
		done = append(done, fmt.Sprintf("%s is other work than %s: %s", b.Label, a.Label, strings.Join(of, ", ")))
	}
	if x, y := &a.whole().Requests, &b.whole().Requests; countsDiffer(x.Total, y.Total) || math.Abs(lostShare(x)-lostShare(y)) > fewErrors {
		done = append(done, fmt.Sprintf("%s completed %s, %s %d of %d", b.Label, countOf(y.Completed, y.Total, "request"), a.Label, x.Completed, x.Total))
	}
	if x, y := a.measured(), b.measured(); x != y {
		done = append(done, fmt.Sprintf("%s measures %s, %s %s", b.Label, y, a.Label, x))
	}
	return done
}

// fewErrors is the share of requests by which the losses of two runs may differ before the rest is other work. One failed
// request in thousands is named, but changes no figure.
const fewErrors = 0.01

// lostShare is the share of requests that did not complete.
func lostShare(q *Requests) float64 { return float64(q.Total-q.Completed) / float64(max(q.Total, 1)) }

func countsDiffer(a, b int64) bool {
	return math.Abs(float64(a-b)) >= equalWithin*float64(max(a, b, 1))
}

// measured says which part of a run its figures cover.
func (r *Run) measured() string {
	if len(r.WindowS) != 2 {
		return "the whole run"
	}
	return fmt.Sprintf("from %s to %s s", number(r.WindowS[0].Value), number(r.WindowS[1].Value))
}

// Write writes it as indented JSON. The same runs give the same bytes.
func (s *SideBySide) Write(w io.Writer) error { return writeJSON(w, "comparison", s) }
