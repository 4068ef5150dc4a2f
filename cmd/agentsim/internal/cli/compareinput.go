package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// side is one input of a comparison.
type side struct {
	report.Compared
	// workload is its trace; nil where there is none, and noTrace says why.
	workload *trace.Workload
	noTrace  string
}

// read finds out what an argument is and reads it.
func (c *compareCommand) read(ctx context.Context, g *Global, arg string) (*side, error) {
	file, pick, err := reportOf(arg)
	switch {
	case err != nil:
		return nil, err
	case file != "":
		return c.readRun(ctx, g, arg, file, pick)
	}
	return c.readTrace(ctx, g, arg)
}

// reportOf returns the report that an argument stands for, and the run of it that is picked (DIR#NAME); no file for
// arguments that are something else.
func reportOf(arg string) (file, pick string, err error) {
	file = arg
	if _, err := os.Stat(arg); err != nil {
		if at := strings.LastIndexByte(arg, '#'); at > 0 {
			file, pick = arg[:at], arg[at+1:]
		}
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, reportName)
	}
	isReport, err := holdsReport(file)
	if err != nil {
		return "", "", usagef("%s: %w", arg, err)
	}
	if !isReport {
		return "", "", nil
	}
	return file, pick, nil
}

// openReport reads a report and finds the run of it that is picked.
func openReport(arg, file, pick string) (rep *report.Report, at int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, usagef("%s: %w", arg, err)
	}
	defer f.Close()
	if rep, err = report.Read(f); err != nil {
		return nil, 0, usagef("%s: %w", arg, err)
	}
	at, err = pickRun(rep.Runs, arg, pick)
	return rep, at, err
}

// tracePrefix is the prefix of the trace of a run beside its report; "" for runs that have none.
func tracePrefix(file string, runs []*report.Run, at int) string {
	name := "replay"
	if runs[at].Replay == nil {
		name = traceName(runs, at)
	}
	if name == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(file), name+".trace")
}

// traceOfRun replaces a run of a report (DIR, DIR#NAME) by its trace beside it, and returns the name of the run. Other
// arguments it returns as they are.
func traceOfRun(arg string) (path, run string, err error) {
	file, pick, err := reportOf(arg)
	if err != nil || file == "" {
		return arg, "", err
	}
	rep, at, err := openReport(arg, file, pick)
	if err != nil {
		return "", "", err
	}
	run = rep.Runs[at].Name
	path = tracePrefix(file, rep.Runs, at)
	if segments, err := trace.Find([]string{path}, nil); err != nil || len(segments) == 0 {
		return "", "", usagef("%s: no trace of run %s is beside its report (predict -o DIR --traces writes one)", arg, run)
	}
	return path, run, nil
}

// holdsReport tells that a file begins as a report does. One that is not there is none.
func holdsReport(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, nil // a prefix of segments, a glob or -; the reader of traces says what is wrong with it
	}
	defer f.Close()
	tokens := json.NewDecoder(io.LimitReader(f, 4096))
	for _, want := range []json.Token{json.Delim('{'), "schema"} {
		if got, err := tokens.Token(); err != nil || got != want {
			return false, nil
		}
	}
	schema, err := tokens.Token()
	name, _ := schema.(string)
	switch {
	case err != nil || !strings.HasPrefix(name, "agentsim."):
		return false, nil
	case name != report.Schema:
		return false, errors.New("its schema is " + name + "; name a " + report.Schema + ", as predict and replay write with -o")
	}
	return true, nil
}

// readRun reads a run of a report and, where it is beside it, the run's trace.
func (c *compareCommand) readRun(ctx context.Context, g *Global, arg, file, pick string) (*side, error) {
	rep, at, err := openReport(arg, file, pick)
	if err != nil {
		return nil, err
	}
	run := rep.Runs[at]
	if run.Status == report.RunFailed {
		return nil, usagef("%s: run %s failed, there is nothing to compare: %s", arg, run.Name, run.Error)
	}
	s := &side{Compared: report.Compared{Kind: kindOf(run), Source: arg, Run: run}}
	if len(rep.Runs) > 1 && pick != run.Name {
		s.Source += " (" + run.Name + ")" // it was picked by number
	}
	prefix := tracePrefix(file, rep.Runs, at)
	if segments, err := trace.Find([]string{prefix}, nil); err != nil || len(segments) == 0 {
		s.noTrace = "no trace of it is beside its report (predict -o DIR --traces writes one)"
		return s, nil
	}
	s.workload, err = c.open(ctx, g, prefix)
	return s, err
}

// pickRun finds the run of a report that an argument names.
func pickRun(runs []*report.Run, arg, pick string) (int, error) {
	var names []string
	for i, r := range runs {
		if pick != "" && r.Name == pick || pick == "" && len(runs) == 1 {
			return i, nil
		}
		names = append(names, r.Name)
	}
	if n, err := strconv.Atoi(pick); err == nil && n >= 1 && n <= len(runs) {
		return n - 1, nil
	}
	switch {
	case len(runs) == 0:
		return 0, usagef("%s: the report has no runs", arg)
	case pick == "":
		return 0, usagef("%s: the report has %d runs; pick one with #NAME or #1 to #%d: %s", arg, len(runs), len(runs), strings.Join(names, ", "))
	}
	return 0, usagef("%s: the report has no run %q%s; it has %s", arg, pick, suggestion(pick, names), strings.Join(names, ", "))
}

func kindOf(r *report.Run) string {
	switch {
	case r.Replay != nil:
		return "replay"
	case len(r.Config) == 0:
		return "recording"
	}
	return "prediction"
}

// traceName is the name under which predict writes the trace of a run; "" for its recorded baseline.
func traceName(runs []*report.Run, at int) string {
	names := map[string]bool{}
	for i, r := range runs {
		name := ""
		if kindOf(r) != "recording" {
			name = unique(fileName(r.Name), names)
		}
		if i == at {
			return name
		}
	}
	return ""
}

// readTrace reports what a trace itself measured.
func (c *compareCommand) readTrace(ctx context.Context, g *Global, arg string) (*side, error) {
	w, err := c.open(ctx, g, arg)
	if err != nil {
		return nil, err
	}
	run := sim.Recorded(w)
	if run.LatencyMs.E2E.Count == 0 && run.LatencyMs.TTFT.Count == 0 {
		return nil, usagef("%s: the trace does not tell when a call ended, there is nothing to compare; predict or replay it first", arg)
	}
	return &side{Compared: report.Compared{Kind: "trace", Source: arg, Run: run}, workload: w}, nil
}

// open reads and compiles a trace.
func (c *compareCommand) open(ctx context.Context, g *Global, path string) (*trace.Workload, error) {
	capture, err := c.source.open(ctx, g, []string{path})
	if err != nil {
		return nil, err
	}
	if err := capture.Link(); err != nil {
		return nil, usagef("%s: %w", path, err)
	}
	w, err := capture.Compile(trace.OutputsInferred)
	if err != nil {
		return nil, usagef("%s: %w", path, err)
	}
	return w, nil
}
