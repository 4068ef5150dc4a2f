package cli

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/trace/compare"
	"github.com/agentsim/agentsim/trace/report"
)

// compareCommand is the flags of `agentsim compare`.
type compareCommand struct {
	source
	html   string
	json   bool
	force  bool
	strict bool
}

// maxCompared is the most inputs: each has a letter.
const maxCompared = 26

func newCompare(g *Global) *cobra.Command {
	c := &compareCommand{}
	cmd := &cobra.Command{
		Use:   "compare A B [C...]",
		Short: "Put recordings, predictions and replays of the same work side by side",
		Long: `Put recordings, predictions and replays of the same work side by side: A is what the others are compared with.

  agentsim compare replayed predicted#kv
  agentsim compare day1.jsonl.gz predicted#1 predicted#2 replayed --html page.html

An input is a folder that predict or replay wrote (-o), its report.json, or a trace, which is told by content. Where a report
has several runs, DIR#NAME picks one by its name, or by its number from 1.

Where A and another have traces (those of predict with --traces), their calls are matched by session and request id, else by
their place in the session, and the errors of each phase are told: MAPE and median are of the absolute errors, bias is the mean
of the signed ones, B/A - 1. Errors of hit tokens are points of the prompt.

Requests that failed are named. Up to 1 % of them leave the figures as they are; more make the rest other work.

Exit codes: 0 done; 2 wrong usage or input; 3 done, but these are not runs of the same work, and why; 130 interrupted.`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), g, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	c.addTraceFlags(cmd)
	f.StringVar(&c.html, "html", "", "write a page with charts and tables to `FILE`; it needs no other file and no network")
	f.BoolVar(&c.json, "json", false, "print JSON instead of the tables")
	f.BoolVar(&c.force, "force", false, "overwrite the page of --html")
	f.BoolVar(&c.strict, "strict", false, "exit 1 instead of 3 when these are not runs of the same work")
	return cmd
}

// run is the command.
func (c *compareCommand) run(ctx context.Context, g *Global, args []string) error {
	if len(args) < 2 || len(args) > maxCompared {
		return usagef("compare wants 2 to %d runs, not %d: folders of predict or replay (DIR#NAME for one run of several), report.json files or traces", maxCompared, len(args))
	}
	out := output{html: c.html, force: c.force}
	if err := out.prepare(); err != nil {
		return err
	}
	sides := make([]*side, len(args))
	inputs := make([]report.Compared, len(args))
	for i, arg := range args {
		s, err := c.read(ctx, g, arg)
		if err != nil {
			return err
		}
		s.Label = string(rune('A' + i))
		sides[i], inputs[i] = s, s.Compared
	}
	result := report.NewSideBySide(inputs)
	result.Version = version()
	for _, s := range sides {
		if s.workload == nil {
			result.Notes = append(result.Notes, s.Label+" is not compared turn by turn: "+s.noTrace)
		}
	}
	for _, s := range sides[1:] {
		if sides[0].workload == nil || s.workload == nil {
			continue
		}
		turns := compare.Turns(sides[0].workload, s.workload)
		turns.Base, turns.Label = sides[0].Label, s.Label
		result.Turns = append(result.Turns, turns)
	}
	return c.finish(g, result)
}

// finish prints and writes the comparison.
func (c *compareCommand) finish(g *Global, result *report.SideBySide) error {
	if c.html != "" {
		var page bytes.Buffer
		if err := report.WriteSideBySideHTML(&page, result); err != nil {
			return err
		}
		if err := writeFile(c.html, page.Bytes()); err != nil {
			return err
		}
	}
	var err error
	if c.json {
		err = result.Write(g.Stdout)
	} else {
		err = report.WriteSideBySide(g.Stdout, result, report.TableOptions{Width: g.Width})
	}
	if err != nil || len(result.Differences) == 0 {
		return err
	}
	return untrusted("comparison", result.Differences, c.strict)
}
