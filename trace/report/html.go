package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// WriteHTML writes a report as one HTML file that needs nothing else: no script, no other file, no network. Its charts are
// throughput, cache hits, re-prefilling and TTFT along the number in which the runs differ, or by run, and the state of
// each run that has a Series over time; its tables have the figures of all runs. The same report gives the same bytes.
func WriteHTML(w io.Writer, r *Report) error { return newPage(r).write(w) }

// write writes the page, all of it or none.
func (p *page) write(w io.Writer) error {
	var buf bytes.Buffer
	if err := pageTemplate.Execute(&buf, p); err != nil {
		return fmt.Errorf("make the HTML page: %w", err)
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write the HTML page: %w", err)
	}
	return nil
}

// page is what the template shows.
type page struct {
	Title   string
	Facts   []string
	Verdict *Verdict
	Legend  []legendEntry
	Sweep   string // the axis of Plots
	Plots   []*plot
	// SweepNotes stand below Plots, Notes below Bars.
	SweepNotes []string
	Bars       []*bars
	Notes      []string
	// States are open at first where they are few.
	States  []stateCharts
	Open    bool
	Tables  []sheet
	Remarks []string
	Configs []config
	More    string // how many configs are left out
}

// legendEntry explains a line, an area or a part of a bar.
type legendEntry struct {
	Class, Marks, Name string
	IsLine             bool
}

// config is the configuration of one run.
type config struct{ Name, Text string }

// The most runs of which the page has what takes much room.
const (
	maxStates  = 24
	maxOpen    = 6
	maxConfigs = 24
	maxBars    = 48
)

func newPage(r *Report) *page {
	p := &page{Title: "agentsim report", Verdict: r.Verdict, Facts: facts(r)}
	if len(r.Runs) == 0 {
		return p
	}
	if s := sweepOf(r.Runs); s != nil {
		p.addSweep(s, r.Runs)
	} else {
		p.addBars(r.Runs)
	}
	p.addShares(r.Runs)
	p.addStates(r.Runs)
	p.Open = len(p.States) <= maxOpen
	p.Tables = tables(r.Runs)
	p.Remarks = remarks(r.Runs)
	p.addConfigs(r.Runs)
	return p
}

// facts is what the page says of the work first.
func facts(r *Report) []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, printable(fmt.Sprintf(format, args...))) }
	if t := r.Trace; t != nil {
		if len(t.Files) > 0 {
			add("trace: %s", few(t.Files))
		}
		if t.Format != "" {
			add("format: %s", t.Format)
		}
	}
	if len(r.Runs) > 0 {
		if w := r.Runs[0].Workload; w.Turns > 0 {
			add("%d programs, %d sessions, %d turns", w.Programs, w.Sessions, w.Turns)
			add("%s prompt and %s output tokens", number(float64(w.InputTokens)), number(float64(w.OutputTokens)))
		}
		add("%s", plural(len(r.Runs), "run"))
	}
	if r.Version != "" {
		add("agentsim %s", r.Version)
	}
	return list
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// remarks are the warnings and approximations of all runs, each once.
func remarks(runs []*Run) []string {
	var list []string
	seen := map[string]bool{}
	for _, r := range runs {
		for _, text := range append(append([]string{}, r.Warnings...), r.Approximations...) {
			if !seen[text] {
				list = append(list, printable(text))
			}
			seen[text] = true
		}
	}
	return list
}

func (p *page) addConfigs(runs []*Run) {
	for i, r := range runs {
		if i == maxConfigs {
			p.More = fmt.Sprintf("The configurations of %s more are in report.json.", plural(len(runs)-i, "run"))
			return
		}
		var text bytes.Buffer
		if len(r.Config) > 0 && json.Indent(&text, r.Config, "", "  ") == nil {
			p.Configs = append(p.Configs, config{r.label(), strings.ToValidUTF8(text.String(), "\ufffd")})
		}
	}
}
