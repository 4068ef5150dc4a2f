package report

import (
	"fmt"
	"slices"
)

// cost tells what the winner's p99 TTFT and paused time are against the other's.
func (c *comparison) cost(top, other int) string {
	text := ""
	a, b := ttftP99.Of(c.runs[top]), ttftP99.Of(c.runs[other])
	switch {
	case !a.Known || !b.Known || b.Value <= 0:
	case !ttftP99.differ(c.runs[top], c.runs[other]):
		text = fmt.Sprintf(", with the same p99 TTFT (%s)", c.print(ttftP99, top))
	case a.Value > b.Value:
		text = fmt.Sprintf(", at the cost of a p99 TTFT of %s against %s", c.print(ttftP99, top), c.print(ttftP99, other))
	default:
		text = fmt.Sprintf(", with a p99 TTFT of %s against %s", c.print(ttftP99, top), c.print(ttftP99, other))
	}
	switch mine, others := pausedMean.Of(c.runs[top]).Value > 0, pausedMean.Of(c.runs[other]).Value > 0; {
	case mine && others:
		text += fmt.Sprintf(", programs being paused for %s on average against %s", c.print(pausedMean, top), c.print(pausedMean, other))
	case mine:
		text += fmt.Sprintf(", programs being paused for %s on average", c.print(pausedMean, top))
	case others:
		text += fmt.Sprintf(", programs of %s being paused for %s on average", c.runs[other].label(), c.print(pausedMean, other))
	}
	return text
}

// pausing tells of the best run that pauses programs, where none of those that the sentence is about already does: what
// that brings and what it costs stand side by side, also when it does not win.
func (c *comparison) pausing(told ...int) string {
	pauses := func(i int) bool { return pausedMean.Of(c.runs[i]).Value > 0 }
	if slices.ContainsFunc(told, pauses) {
		return ""
	}
	for _, i := range c.ranked {
		if !pauses(i) {
			continue
		}
		text := fmt.Sprintf("; %s pauses programs for %s on average and has %s %s", c.runs[i].label(), c.print(pausedMean, i),
			c.print(c.metric, i), c.metric.Name)
		if ttftP99.Of(c.runs[i]).Known {
			text += ", p99 TTFT " + c.print(ttftP99, i)
		}
		return text
	}
	return ""
}

// fewLost is the share of requests that may fail in a run that is still told of for doing better than those in which none
// did. Work that was refused or is unfinished makes the rest easier.
const fewLost = 0.05

// outdone tells of the best run that lost a few requests, and so cannot win, but does better than all that can.
func (c *comparison) outdone() string {
	top := c.ranked[0]
	best := -1
	for i, r := range c.runs {
		lost := r.lost()
		failed := lost.Failed > 0 && float64(lost.Failed) <= fewLost*float64(lost.Total)
		if r.Status != RunDone || !failed || lost.Rejected+lost.Unfinished > 0 || !c.metric.differ(r, c.runs[top]) {
			continue
		}
		if c.metric.better(r, c.runs[top]) && (best < 0 || c.metric.better(r, c.runs[best])) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	r := c.runs[best]
	of := c.metric.Of(r).Value / c.metric.Of(c.runs[top]).Value
	text := moreOrLess(of-1) + " than " + c.runs[top].label()
	if of >= 2 {
		text = fmt.Sprintf("%s times as many as %s", number(of), c.runs[top].label())
	}
	return fmt.Sprintf("; of the rest %s has %s %s, %s%s%s", r.label(), c.print(c.metric, best), c.metric.Name, text,
		gpus(r, c.runs[top]), c.cost(best, top))
}
