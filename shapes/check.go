package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
)

// check is one line: a figure or a statement, as published and as simulated.
type check struct {
	what, published, simulated, allowed string
	ok                                  bool
}

// format writes a figure.
type format func(float64) string

func percent(x float64) string { return fmt.Sprintf("%.0f%%", 100*x) }
func number(x float64) string  { return fmt.Sprintf("%.4g", x) }
func times(x float64) string   { return fmt.Sprintf("%.3gx", x) }
func gain(x float64) string    { return fmt.Sprintf("%+.0f%%", 100*x) }

var nan = math.NaN() // a figure that nobody published

var none = math.Inf(1) // a bound that is not there, as high, and as -none as low

// within checks that a figure lies between low and high. Published is what others found, NaN for no figure.
func within(what string, published, simulated, low, high float64, f format) check {
	c := check{what: what, simulated: f(simulated), ok: simulated >= low && simulated <= high}
	if !math.IsNaN(published) {
		c.published = f(published)
	}
	switch {
	case low == -none && high == none:
	case low == -none:
		c.allowed = "up to " + f(high)
	case high == none:
		c.allowed = "from " + f(low)
	default:
		c.allowed = f(low) + " to " + f(high)
	}
	return c
}

// shown is a figure that is only printed.
func shown(what string, published, simulated float64, f format) check {
	return within(what, published, simulated, -none, none, f)
}

// near checks that a figure is within a share of the published one.
func near(what string, published, simulated, share float64, f format) check {
	return within(what, published, simulated, published*(1-share), published*(1+share), f)
}

// points checks that a share is within some points of the published one.
func points(what string, published, simulated, off float64) check {
	return within(what, published, simulated, max(0, published-off), min(1, published+off), percent)
}

// tally counts checks; those that are only printed do not count.
type tally struct{ ok, missed, failed int }

func (t *tally) add(u tally) {
	t.ok, t.missed, t.failed = t.ok+u.ok, t.missed+u.missed, t.failed+u.failed
}

// print writes a study's checks and the reasons why some are missed.
func (s *study) print(w io.Writer, checks []check) (sum tally) {
	fmt.Fprintf(w, "%s\n  %s\n", s.name, s.source)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tpublished\tsimulated\tallowed\t")
	var reasons []string
	for _, c := range checks {
		verdict := ""
		switch why, marked := s.missed[c.what]; {
		case c.allowed == "":
		case marked && !c.ok:
			if !slices.Contains(reasons, why) {
				reasons = append(reasons, why)
			}
			verdict = fmt.Sprintf("missed (%d)", slices.Index(reasons, why)+1)
			sum.missed++
		case marked:
			verdict = "FAIL: marked as missed, and reached"
			sum.failed++
		case c.ok:
			verdict = "ok"
			sum.ok++
		default:
			verdict = "FAIL"
			sum.failed++
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\n", c.what, c.published, c.simulated, c.allowed, verdict)
	}
	table.Flush()
	for i, why := range reasons {
		fmt.Fprintf(w, "  (%d) %s\n", i+1, why)
	}
	for _, what := range slices.Sorted(maps.Keys(s.missed)) {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.what == what }) {
			fmt.Fprintf(w, "  FAIL: there is no check %q, which is marked as missed\n", what)
			sum.failed++
		}
	}
	fmt.Fprintln(w)
	return sum
}
