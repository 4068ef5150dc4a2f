package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/convert"
	"github.com/agentsim/agentsim/trace/validate"
)

// validateCommand is the flags of `agentsim validate`.
type validateCommand struct {
	json, strict bool
}

func newValidate(g *Global) *cobra.Command {
	c := &validateCommand{}
	cmd := &cobra.Command{
		Use:   "validate TRACE...",
		Short: "Say what is wrong with a trace, where, and what to do about it",
		Long: `Say what is wrong with a Dynamo request trace, where, and what to do about it. Errors are what Dynamo's own loader refuses;
warnings are what is accepted and suspicious all the same. Traces of other formats are read as predict reads them, and the
first error is told.

Exit codes: 0 no errors; 1 failed, or with --strict: warnings; 2 errors, or wrong usage; 3 no errors, but rows are lost (damaged
files, lines that are not JSON, rows that the recorder could not write); 130 interrupted.`,
		Example: `  agentsim validate traces/day1
  agentsim validate traces/day1 --json --strict`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), g, args) },
	}
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON instead of text")
	cmd.Flags().BoolVar(&c.strict, "strict", false, "exit 1 when there are warnings or lost rows")
	return cmd
}

// maxHead is as much of standard input as a reader looks at before it reads, in bytes.
const maxHead = 4 << 20

func (c *validateCommand) run(ctx context.Context, g *Global, args []string) error {
	if len(args) == 0 {
		return usagef("no trace given; name files, a folder or a segment prefix")
	}
	// What is looked at to tell the format must be there for the reader of it.
	in := *g
	if g.Stdin != nil {
		in.Stdin = bufio.NewReaderSize(g.Stdin, maxHead)
	}
	segments, err := trace.Find(args, in.Stdin)
	if err != nil {
		return err
	}
	format, err := convert.Detect(ctx, segments)
	if err != nil {
		return err
	}
	if format != convert.FormatDynamo {
		return c.runForeign(ctx, &in, args, format)
	}
	report, err := validate.Check(ctx, segments, nil)
	if err != nil {
		return err
	}
	if c.json {
		err = printJSON(g.Stdout, report)
	} else {
		printValidation(g.Stdout, report)
	}
	switch {
	case err != nil:
		return err
	case report.Errors > 0:
		return usagef("%d errors: Dynamo's loader refuses this trace", report.Errors)
	case report.LostRows > 0:
		return untrusted("trace", []string{fmt.Sprintf("%d rows of it are lost", report.LostRows)}, c.strict)
	case report.Warnings > 0 && c.strict:
		return &exitError{exitFailed, fmt.Errorf("%d warnings", report.Warnings)}
	}
	return nil
}

// runForeign reads a trace of another format as far as it takes to find what is wrong.
func (c *validateCommand) runForeign(ctx context.Context, g *Global, args []string, format string) error {
	if c.json {
		return usagef("--json is for Dynamo request traces; this one is %s", format)
	}
	s := source{}
	capture, err := s.open(ctx, g, args)
	if err != nil {
		return err
	}
	if err := capture.Link(); err != nil {
		return usagef("%w", err)
	}
	if _, err := capture.Compile(trace.OutputsInferred); err != nil {
		return usagef("%w", err)
	}
	fmt.Fprintf(g.Stdout, "%s: %d calls of %d sessions: no errors\n", format, capture.Read.Calls, len(capture.Sessions))
	switch read := capture.Read; {
	case read.LostRows > 0 || read.LostBytes > 0:
		return untrusted("trace", []string{fmt.Sprintf("%d rows of it are lost", read.LostRows)}, c.strict)
	case len(read.Warnings) > 0 && c.strict:
		return &exitError{exitFailed, errors.New("there are warnings")}
	}
	return nil
}

// printValidation prints what was found, by rule.
func printValidation(w io.Writer, r *validate.Report) {
	for _, f := range r.Found {
		fmt.Fprintf(w, "%s: %s (%d): %s\n", f.Severity, f.Name, f.Count, f.Remedy)
		for _, p := range f.Places {
			fmt.Fprintf(w, "  %v: %s\n", p, p.Message)
		}
		if more := f.Count - len(f.Places); more > 0 {
			fmt.Fprintf(w, "  and %d more\n", more)
		}
	}
	fmt.Fprintf(w, "%d rows of %d files: %d requests of %d sessions, %d tool rows, %d payload rows; %d errors, %d warnings\n",
		r.Rows, r.Files, r.Requests, r.Sessions, r.Tools, r.Payloads, r.Errors, r.Warnings)
}
