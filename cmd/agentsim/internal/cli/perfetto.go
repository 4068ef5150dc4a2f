package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/perfetto"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
	"github.com/agentsim/agentsim/trace/report"
)

// perfettoCommand is the flags of `agentsim perfetto`.
type perfettoCommand struct {
	source
	perfetto.Options
	out, form   string
	events      []string
	force, json bool
	strict      bool
	open        bool
	listen      string
	urlFile     string
}

func newPerfetto(g *Global) *cobra.Command {
	c := &perfettoCommand{}
	c.details = true
	cmd := &cobra.Command{
		Use:   "perfetto TRACE... | LABEL=TRACE...",
		Short: "Write a timeline for ui.perfetto.dev",
		Long: `Write a timeline of a trace, recorded, predicted or replayed, for ui.perfetto.dev: every turn with its stages, tools, waits,
the workers' steps, counters, what the program scheduler did, where KV lies and moves, and arrows between what waits for what.

  agentsim perfetto day1.jsonl.gz
  agentsim perfetto out#thunderagent --open
  agentsim perfetto recorded=day1.jsonl.gz predicted=out#kv -o both.pftrace.gz
  agentsim perfetto day1.jsonl.gz --session job7:root --from 10m --to 15m

TRACE is what predict takes, or a folder that predict -o DIR --traces wrote; DIR#NAME picks a run of several. Steps, KV use
and decisions come from the events that predict --events writes, which are found beside the trace. Of a run with tiers below
the GPUs they tell in each session's group at which level its KV lies and what the KV policy did to it, and with each worker
its transfers, tiers and links. With labels, traces lie side by side in one file.

A session's turns are named in order. Categories tell what is what, and Perfetto filters and sums by them: turn, stage, tool
(reported), tool_inferred, tool_time and human_time (between turns), paused, held, transfer, kv_action, error, cancelled, and
critical, the chain of turns and waits that decides when a program ends.

Nothing leaves the machine: --open lets the page at ui.perfetto.dev, which runs in the browser, fetch the file from this
machine, once.

Exit codes: 0 done; 1 failed; 2 wrong usage or input; 3 done, but rows of the trace were lost; 130 interrupted.`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), g, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&c.out, "output", "o", "", "`FILE` to write; .gz compresses it, .json is Chrome's format (default: the trace's name and .pftrace, here)")
	f.StringVar(&c.form, "format", "", "pftrace, or json for other viewers (default: by the name of FILE)")
	f.BoolVar(&c.force, "force", false, "overwrite FILE")
	f.StringVar(&c.Session, "session", "", "only the session `ID`, its subagents and the workers that served them")
	f.StringVar(&c.Worker, "worker", "", "only this worker, by `NUMBER` or id, and the turns that it served")
	f.DurationVar(&c.From, "from", 0, "only what is later, since the start of the trace (such as 90s or 1h5m)")
	f.DurationVar(&c.To, "to", 0, "only what is earlier")
	f.BoolVar(&c.NoStages, "no-stages", false, "leave out prefill wait, prefill and decode")
	f.BoolVar(&c.NoCounters, "no-counters", false, "leave out counters")
	f.BoolVar(&c.AbsoluteTime, "absolute-time", false, "Unix times in place of times since the start of each trace")
	f.StringArrayVar(&c.events, "events", nil, "`[LABEL=]FILE` with the events of a run, or none (default: beside its trace)")
	f.StringVar(&c.source.format, "trace-format", "", "trace format: "+formatNames()+" (default: detect)")
	f.IntVar(&c.blockSize, "trace-block-size", 0, "tokens per hash of Mooncake traces (default: 512)")
	f.BoolVar(&c.open, "open", false, "serve FILE to ui.perfetto.dev until it was fetched, and print the link")
	f.StringVar(&c.listen, "listen", perfettoAddress, "with --open: `ADDRESS` to serve at; ui.perfetto.dev takes no other")
	f.StringVar(&c.urlFile, "url-file", "", "with --open: write the file's URL to `FILE`")
	f.BoolVar(&c.json, "json", false, "print the summary as JSON")
	f.BoolVar(&c.strict, "strict", false, "fail when rows of the trace were lost")
	return cmd
}

// timelineInput is a trace to draw and its events.
type timelineInput struct {
	label string
	paths []string
	// events is the sidecar; "" for none.
	events string
}

func (c *perfettoCommand) run(ctx context.Context, g *Global, args []string) error {
	inputs, err := c.inputs(args)
	if err != nil {
		return err
	}
	if c.From < 0 || c.To < 0 || c.To > 0 && c.To <= c.From {
		return usagef("--from %v --to %v: want 0 <= from < to", c.From, c.To)
	}
	if !c.open && (c.listen != perfettoAddress || c.urlFile != "") {
		return usagef("--listen and --url-file need --open")
	}
	if err := c.chooseOutput(inputs); err != nil {
		return err
	}
	var listener net.Listener // taken at once, or else the work may be in vain
	if c.open {
		if listener, err = c.bind(); err != nil {
			return err
		}
		defer listener.Close()
	}
	var sources []perfetto.Source
	var read trace.ReadReport
	for _, in := range inputs {
		s, err := c.read(ctx, g, in)
		if err != nil {
			return err
		}
		read.Add(&s.Capture.Read)
		sources = append(sources, s)
	}
	var summary perfetto.Summary
	err = writeStream(c.out, func(w io.Writer) error {
		var lost trace.ReadReport
		summary, lost, err = c.write(ctx, w, sources)
		printWarnings(g, &lost)
		read.Add(&lost)
		return err
	})
	switch {
	case errors.Is(err, perfetto.ErrScope):
		return usagef("%w", err)
	case err != nil:
		return err
	}
	if err := c.print(g, summary); err != nil {
		return err
	}
	if listener != nil {
		if err := c.serve(ctx, g, listener); err != nil {
			return err
		}
	}
	if read.LostRows > 0 {
		return untrusted("timeline", []string{report.RowsLost(read.LostRows)}, c.strict)
	}
	return nil
}

var labelPattern = regexp.MustCompile(`^([\pL\d._ -]{1,64})=(.+)$`)

// splitLabel splits LABEL=FILE. A file that has such a name is none.
func splitLabel(arg string) (label, rest string) {
	if _, err := os.Stat(arg); err == nil {
		return "", arg
	}
	if m := labelPattern.FindStringSubmatch(arg); m != nil {
		return m[1], m[2]
	}
	return "", arg
}

// maxTimelines bounds the traces that are drawn side by side.
const maxTimelines = 26

// inputs groups the arguments by their labels. Without labels they are the files of one trace.
func (c *perfettoCommand) inputs(args []string) ([]timelineInput, error) {
	if len(args) == 0 {
		return nil, usagef("no trace given; name files, a folder or a segment prefix, or a folder that predict -o wrote")
	}
	var inputs []timelineInput
	at := map[string]int{}
	labels := 0
	for _, arg := range args {
		label, path := splitLabel(arg)
		if label != "" {
			labels++
		}
		if _, ok := at[label]; !ok {
			at[label] = len(inputs)
			inputs = append(inputs, timelineInput{label: label})
		}
		in := &inputs[at[label]]
		in.paths = append(in.paths, path)
	}
	if labels > 0 && labels < len(args) {
		return nil, usagef("label all traces or none: %s", strings.Join(args, " "))
	}
	if len(inputs) > maxTimelines {
		return nil, usagef("%d traces side by side are more than %d", len(inputs), maxTimelines)
	}
	for i := range inputs {
		if err := inputs[i].find(); err != nil {
			return nil, err
		}
	}
	for _, arg := range c.events {
		label, path := splitLabel(arg)
		if label == "" && len(inputs) == 1 {
			label = inputs[0].label
		}
		if i, ok := at[label]; ok {
			inputs[i].events = path
		} else if len(inputs) == 1 {
			inputs[0].events = path
		} else {
			return nil, usagef("--events %s: say of which trace they are, LABEL=FILE", arg)
		}
	}
	return inputs, nil
}

// find replaces a run of a report by its trace, finds the events beside a trace, and names a trace without a label.
func (in *timelineInput) find() error {
	if len(in.paths) == 1 {
		path, run, err := traceOfRun(in.paths[0])
		if err != nil {
			return err
		}
		in.paths[0], in.label = path, cmp.Or(in.label, run)
	}
	stem := traceStem(in.paths[0])
	if path := stem + events.Suffix; len(in.paths) == 1 {
		if _, err := os.Stat(path); err == nil {
			in.events = path
		}
	}
	if stem = filepath.Base(stem); stem == "-" || stem == "." || stem == string(filepath.Separator) {
		stem = "trace"
	}
	in.label = cmp.Or(in.label, stem)
	return nil
}

var segmentNumber = regexp.MustCompile(`\.\d+$`)

// traceStem is the name of a trace without what says that it is one: DIR/kv for DIR/kv.trace.000000.jsonl.gz.
func traceStem(path string) string {
	path = strings.TrimSuffix(path, ".gz")
	for _, suffix := range []string{".jsonl", ".json", ".csv", ".ndjson"} {
		path = strings.TrimSuffix(path, suffix)
	}
	return strings.TrimSuffix(segmentNumber.ReplaceAllString(path, ""), ".trace")
}

// chooseOutput decides the name and the format of the file, and refuses one that is there.
func (c *perfettoCommand) chooseOutput(inputs []timelineInput) error {
	switch c.form {
	case "", "pftrace", "json":
	default:
		return usagef("--format %s: want pftrace or json; the format of a trace is detected, or named by --trace-format", c.form)
	}
	if c.out == "" {
		var labels []string
		for _, in := range inputs {
			labels = append(labels, in.label)
		}
		c.out = fileName(strings.Join(labels, "-")) + "." + cmp.Or(c.form, "pftrace")
	}
	named := filepath.Ext(strings.TrimSuffix(c.out, ".gz")) == ".json"
	c.JSON = c.form == "json" || c.form == "" && named
	return prepareFile("-o", c.out, c.force)
}

// read reads a trace and opens its events.
func (c *perfettoCommand) read(ctx context.Context, g *Global, in timelineInput) (perfetto.Source, error) {
	capture, err := c.source.open(ctx, g, in.paths)
	if err != nil {
		return perfetto.Source{}, err
	}
	if err := capture.Link(); err != nil {
		return perfetto.Source{}, usagef("%s: %w", in.paths[0], err)
	}
	s := perfetto.Source{Label: in.label, Capture: capture}
	if in.events != "" && in.events != "none" {
		if s.Events, err = events.Open(in.events); err != nil {
			return s, usagef("reading the events: %w", err)
		}
	}
	return s, nil
}

// write draws the sources, compressed if the file's name says so.
func (c *perfettoCommand) write(ctx context.Context, w io.Writer, sources []perfetto.Source) (perfetto.Summary, trace.ReadReport, error) {
	if filepath.Ext(c.out) != ".gz" {
		return perfetto.Write(ctx, w, sources, c.Options)
	}
	gz := gzip.NewWriter(w)
	summary, lost, err := perfetto.Write(ctx, gz, sources, c.Options)
	return summary, lost, errors.Join(err, gz.Close())
}

// print says what was written.
func (c *perfettoCommand) print(g *Global, s perfetto.Summary) error {
	if c.json {
		return json.NewEncoder(g.Stdout).Encode(struct {
			File string `json:"file"`
			perfetto.Summary
		}{c.out, s})
	}
	_, err := fmt.Fprintf(g.Stdout, "%s: %d slices, %d flows, %d counters, %d instants, %d tracks; dropped %d\n",
		c.out, s.Slices, s.Arrows, s.Counters, s.Instants, s.Tracks, s.Dropped)
	if err == nil && !c.open && !c.JSON {
		_, err = fmt.Fprintln(g.Stdout, "open it at https://ui.perfetto.dev, which reads it in the browser; --open does that")
	}
	return err
}
