package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// What a Solution is a number of.
const (
	SolvePrograms = "programs" // the most that live at a time
	SolveGPUs     = "gpus"     // the fewest that serve the load
)

// Solution is the largest number of live programs, or the smallest number of GPUs, that a search found to keep some limits.
// The run that has it is the one with that number; where no number keeps them, the one with 1 program or the most GPUs.
type Solution struct {
	// Of is SolvePrograms or SolveGPUs.
	Of     string  `json:"of"`
	Limits []Limit `json:"limits"`
	// Number is the answer; 0 where no number keeps the limits.
	Number int `json:"number"`
	// Seeds is how many runs each number was tried with. The mean of their figures has to keep the limits.
	Seeds int `json:"seeds"`
	// Tried is what was tried, by number.
	Tried []Trial `json:"tried"`
}

// Limit bounds a figure of a run.
type Limit struct {
	// Metric is p90 slowdown, p99 TTFT (in seconds), or requests in SLO (a share), of which Value is the least.
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
}

// MaxSlowdown bounds the p90 slowdown of programs.
func MaxSlowdown(most float64) Limit { return Limit{slowdownP90.Name, most} }

// OfSlowdown tells that the limit is one on the slowdown, which programs of several calls have alone.
func (l Limit) OfSlowdown() bool { return l.Metric == slowdownP90.Name }

// MaxTTFT bounds the p99 TTFT.
func MaxTTFT(most time.Duration) Limit { return Limit{ttftP99.Name, most.Seconds()} }

// MinInSLO bounds the share of requests that complete within the SLO.
func MinInSLO(least float64) Limit { return Limit{requestsInSLO.Name, least} }

// Trial is a number that was tried.
type Trial struct {
	Number int `json:"number"`
	// Figures are those that Solution.Limits bound, in the same order, means over the seeds.
	Figures []Figure `json:"figures"`
	// Lost counts requests that failed, were left unfinished, or were refused for the load, over all seeds. With any the
	// number does not hold.
	Lost int64 `json:"lost"`
	// Holds tells that all limits are kept.
	Holds bool `json:"holds"`
}

// figure is the one of limit i; not known where a file left it out.
func (p *Trial) figure(i int) Figure {
	if i >= len(p.Figures) {
		return Figure{}
	}
	return p.Figures[i]
}

var (
	slowdownP90 = Metric{
		Name: "p90 slowdown", LowerIsBetter: true, of: func(r *Run) Figure { return r.Programs.Slowdown.P90 },
	}
	requestsInSLO = Metric{Name: "requests in SLO", share: true, of: goodShare}
)

// metric is the one that is bounded.
func (l Limit) metric() Metric {
	for _, m := range []Metric{slowdownP90, ttftP99, requestsInSLO} {
		if m.Name == l.Metric {
			return m
		}
	}
	return Metric{Name: l.Metric, of: func(*Run) Figure { return Figure{} }} // of another version
}

// mean is the mean of the bounded figure, known where it is known of all runs.
func (l Limit) mean(runs []*Run) Figure {
	sum := 0.0
	for _, r := range runs {
		f := l.metric().Of(r)
		if !f.Known {
			return Figure{}
		}
		sum += f.Value
	}
	return ratio(sum, float64(len(runs)))
}

// keeps tells that a figure is within the limit.
func (l Limit) keeps(f Figure) bool {
	if l.metric().LowerIsBetter {
		return f.Known && f.Value <= l.Value
	}
	return f.Known && f.Value >= l.Value
}

// Try adds what came of a number: its runs, one for each seed, and how many requests they refused for the load. It is an
// error when a bounded figure is not known, which no number would change.
func (s *Solution) Try(number int, runs []*Run, refused int64) (Trial, error) {
	p := Trial{Number: number, Lost: refused}
	for _, r := range runs {
		q := r.lost()
		p.Lost += q.Failed + q.Unfinished
	}
	p.Holds = p.Lost == 0
	for _, l := range s.Limits {
		mean := l.mean(runs)
		if !mean.Known && p.Lost == 0 {
			return p, fmt.Errorf("%s not known with %s", l.Metric, s.count(number))
		}
		p.Figures = append(p.Figures, mean)
		p.Holds = p.Holds && l.keeps(mean)
	}
	at, _ := slices.BinarySearchFunc(s.Tried, number, func(q Trial, n int) int { return cmp.Compare(q.Number, n) })
	s.Tried = slices.Insert(s.Tried, at, p)
	return p, nil
}

// count prints a number of what is solved for.
func (s *Solution) count(n int) string {
	if s.Of == SolveGPUs {
		return plural(n, "GPU")
	}
	return plural(n, "program")
}

// open tells that the answer is the most that was tried: more might do.
func (s *Solution) open() bool {
	return s.Of == SolvePrograms && len(s.Tried) > 0 && s.Number == s.Tried[len(s.Tried)-1].Number
}

// text says what the answer is and what bounds it: "48 programs; with 49 the p90 slowdown is 1.56".
func (s *Solution) text() string {
	if len(s.Tried) == 0 {
		return ""
	}
	at := slices.IndexFunc(s.Tried, func(p Trial) bool { return p.Number == s.Number })
	beyond := at + 1
	if s.Of == SolveGPUs {
		beyond = at - 1
	}
	text := s.count(s.Number)
	switch {
	case at < 0 && s.Of == SolveGPUs:
		last := &s.Tried[len(s.Tried)-1]
		return fmt.Sprintf("not even %s: %s", s.count(last.Number), s.breaks(last))
	case at < 0:
		return "not even 1 program: " + s.breaks(&s.Tried[0])
	case beyond < 0:
		text += ", a single worker"
	case beyond == len(s.Tried):
		text += " or more: no larger number was tried"
	default:
		text += fmt.Sprintf("; with %d %s", s.Tried[beyond].Number, s.breaks(&s.Tried[beyond]))
	}
	for i := range s.Tried {
		p := &s.Tried[i]
		more := s.Of == SolvePrograms && p.Number > s.Number || s.Of == SolveGPUs && p.Number < s.Number
		switch {
		case p.Number == s.Number:
		case more && p.Holds:
			text += fmt.Sprintf(", but with %d again within the limits", p.Number)
		case !more && !p.Holds:
			text += fmt.Sprintf(", but with %d %s", p.Number, s.breaks(p))
		}
	}
	return text
}

// breaks says how far a point is from holding: "the p90 slowdown is 1.56".
func (s *Solution) breaks(p *Trial) string {
	if p.Lost > 0 {
		return fmt.Sprintf("some requests are lost (%d)", p.Lost)
	}
	for i, l := range s.Limits {
		switch f := p.figure(i); {
		case l.keeps(f):
		case l.metric().share:
			return fmt.Sprintf("only %s of %s", l.print(f.Value), l.Metric)
		default:
			return fmt.Sprintf("the %s is %s", l.Metric, l.print(f.Value))
		}
	}
	return "the limits are kept"
}

// print prints a value of the metric, with as many digits as tell it from the limit.
func (l Limit) print(v float64) string {
	m := l.metric()
	usual, scale, unit, digits := number(v), 1.0, "", 3
	switch {
	case m.share:
		usual, scale, unit, digits = percent(v), 100, "%", 2
	case m.seconds:
		usual, unit = unitFor(v).text(v), " s"
	}
	text := func(v float64, digits int) string { return strconv.FormatFloat(scale*v, 'g', digits, 64) }
	if v == l.Value || text(v, digits) != text(l.Value, digits) {
		return usual
	}
	for digits < 17 && text(v, digits) == text(l.Value, digits) {
		digits++
	}
	return text(v, digits) + unit
}

// text names the limit: "a p90 slowdown of at most 1.50".
func (l Limit) text() string {
	exact := func(v float64) string { return strconv.FormatFloat(v, 'g', 7, 64) }
	switch m := l.metric(); {
	case m.share:
		return fmt.Sprintf("at least %s%% of %s", exact(100*l.Value), l.Metric)
	case m.seconds:
		unit := unitFor(l.Value)
		return fmt.Sprintf("a %s of at most %s %s", l.Metric, exact(l.Value/unit.seconds), unit.name)
	}
	return fmt.Sprintf("a %s of at most %s", l.Metric, exact(l.Value))
}

// solutionOf is the first solution of some runs; nil where nothing was solved for. All have the same limits.
func solutionOf(runs []*Run) *Solution {
	for _, r := range runs {
		if r.Solution != nil {
			return r.Solution
		}
	}
	return nil
}

// limits names the limits: "a p90 slowdown of at most 1.5 and a p99 TTFT of at most 2 s".
func (s *Solution) limits() string {
	var texts []string
	for _, l := range s.Limits {
		texts = append(texts, l.text())
	}
	text := list(texts)
	if s.Seeds > 1 {
		text += fmt.Sprintf(", in the mean of %d seeds", s.Seeds)
	}
	return text
}

// metric is what decides between runs with solutions: programs per GPU, or GPUs.
func (s *Solution) metric() Metric {
	m := programsPerGPU
	m.best = "holds the most programs per GPU with " + s.limits()
	if s.Of == SolveGPUs {
		m = fewestGPUs
		m.best = "needs the fewest GPUs for " + s.limits()
	}
	return m
}

var (
	programsPerGPU = Metric{Name: "programs per GPU", of: func(r *Run) Figure {
		if s := r.Solution; s != nil && s.Of == SolvePrograms {
			return ratio(float64(s.Number), float64(r.GPUs))
		}
		return Figure{}
	}}
	fewestGPUs = Metric{Name: "GPUs", LowerIsBetter: true, of: func(r *Run) Figure {
		if s := r.Solution; s != nil && s.Of == SolveGPUs {
			return Known(s.Number)
		}
		return Figure{}
	}}
)

// trials is the sheet of all numbers that were tried for some runs.
func (s *Solution) trials(runs []*Run) sheet {
	g := sheet{Title: "Numbers of " + s.Of + " tried", Heads: []string{"run", s.Of}}
	for _, l := range s.Limits {
		g.Heads = append(g.Heads, l.Metric)
	}
	g.Heads = append(g.Heads, "lost", "within the limits")
	for _, r := range runs {
		if r.Solution == nil {
			continue
		}
		for _, p := range r.Solution.Tried {
			cells := []string{strconv.Itoa(p.Number)}
			for i, l := range s.Limits {
				cells = append(cells, figureText(p.figure(i), l.print))
			}
			holds := map[bool]string{true: "yes", false: "no"}[p.Holds]
			g.Rows = append(g.Rows, sheetRow{r.label(), append(cells, strconv.FormatInt(p.Lost, 10), holds)})
		}
	}
	return g
}
