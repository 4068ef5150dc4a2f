package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/convert"
)

// importCommand is the flags of import.
type importCommand struct {
	source
	to, out string
	force   bool
	asJSON  bool
}

func newImport(g *Global) *cobra.Command {
	c := &importCommand{}
	cmd := &cobra.Command{
		Use:   "import FILE... -o PREFIX",
		Short: "Make a trace of what other tools have logged",
		Long: `Read logs of agents, or traces in other formats, and write them as a Dynamo request trace, PREFIX.000000.jsonl.gz and so
on, or in another format with --to. FILE is a file, a folder with all that is below it, a glob, or - for standard input. The
format is detected by content. The same files give the same bytes, in whatever order they are named.

What a format does not tell is filled by rule, and the names of the filled fields stand in each call's list "inferred" and
are counted here; --strict refuses to. Hashes of prompts are made from their text where the log has it, else so that a call
shares what it found in the cache, else not at all: the summary says which. No text gets into the trace.

Without -o nothing is written: the summary says what is in the files.

Formats:
` + describeFormats() + `

Formats of --to, besides dynamo:
` + describeTargets(),
		Example: `  agentsim import ~/.claude/projects -o traces/mine
  agentsim import ~/.codex/sessions/2026/11 --strict
  agentsim import run.jsonl --format otel --to agentic-mooncake -o run.mooncake.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, g, args) },
	}
	c.addTraceFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&c.strict, "strict", false, "refuse what a rule would have to fill")
	f.StringVar(&c.to, "to", convert.FormatDynamo, "`FORMAT` to write: "+strings.Join(targetNames(), ", "))
	f.StringVarP(&c.out, "output", "o", "", "write segments with this `PREFIX`, or with --to this file")
	f.BoolVar(&c.force, "force", false, "overwrite what is there")
	f.BoolVar(&c.asJSON, "json", false, "print the summary as JSON")
	f.Uint64Var(&c.sample.Seed, "seed", 1, "seed of what is drawn of distributions (servegen)")
	f.DurationVar(&c.sample.From, "from", 0, "where in the recorded time to begin drawing (servegen)")
	f.DurationVar(&c.sample.For, "for", 0, "for how long of the recorded time to draw (servegen; 0: to its end)")
	return cmd
}

// describeFormats has a line for each format that is read.
func describeFormats() string {
	var lines []string
	for _, f := range convert.Formats {
		lines = append(lines, described(f.Name, f.Description))
	}
	return strings.Join(lines, "\n")
}

// describeTargets has a line for each format that is written.
func describeTargets() string {
	var lines []string
	for _, t := range convert.Targets {
		lines = append(lines, described(t.Name, t.Description))
	}
	return strings.Join(lines, "\n")
}

// targetNames are the formats that are written.
func targetNames() []string {
	names := []string{convert.FormatDynamo}
	for _, t := range convert.Targets {
		names = append(names, t.Name)
	}
	return names
}

// imported is what import prints.
type imported struct {
	convert.Summary
	// Dropped counts what the written format has no place for.
	Dropped []convert.Count `json:"dropped,omitempty"`
}

func (c *importCommand) run(cmd *cobra.Command, g *Global, args []string) error {
	if names := targetNames(); !slices.Contains(names, c.to) {
		return usagef("--to %s: unknown format%s; known are %s", c.to, suggestion(c.to, names), strings.Join(names, ", "))
	}
	if c.out != "" && c.to != convert.FormatDynamo {
		if err := prepareFile("-o", c.out, c.force); err != nil {
			return err
		}
	}
	c.whole = c.to == convert.FormatDynamo // the other formats have no place for more of a row
	capture, err := c.open(cmd.Context(), g, args)
	if err != nil {
		return err
	}
	if capture.Read.Calls == 0 {
		return usagef("%s: %s, but no LLM call; 'agentsim merge SERVER --with' adds them to the trace of the calls",
			strings.Join(args, " "), counted(int64(capture.Read.Tools), "tool"))
	}
	result := imported{Summary: convert.Summarize(capture)}
	if c.out != "" {
		if err := capture.Link(); err != nil {
			return usagef("%w", err)
		}
		if result.Dropped, err = c.write(capture); err != nil {
			return err
		}
	}
	if c.asJSON {
		return printJSON(g.Stdout, result)
	}
	return result.print(g.Stdout, c.to)
}

// write writes the capture and returns what is lost.
func (c *importCommand) write(capture *trace.Capture) (lost []convert.Count, err error) {
	if c.to == convert.FormatDynamo {
		return writeCapture(c.out, capture, c.force)
	}
	err = writeStream(c.out, func(w io.Writer) error {
		lost, err = convert.Write(w, c.to, capture)
		return err
	})
	return lost, err
}

// print prints the summary.
func (r *imported) print(w io.Writer, to string) error {
	return table(w, func(w io.Writer) {
		fmt.Fprintf(w, "format\t%s\n", r.Format)
		fmt.Fprintf(w, "read\t%s of %s\n", counted(int64(r.Rows), "row"), counted(int64(r.Files), "file"))
		fmt.Fprintf(w, "calls\t%s in %s\n", grouped(int64(r.Calls)), counted(int64(r.Sessions), "session"))
		fmt.Fprintf(w, "tools\t%s\n", grouped(int64(r.Tools)))
		if r.Lost > 0 || r.Duplicates > 0 {
			fmt.Fprintf(w, "damaged or repeated\t%d rows lost, %d repeats dropped\n", r.Lost, r.Duplicates)
		}
		list := func(title string, counts []convert.Count) {
			for _, c := range counts {
				fmt.Fprintf(w, "%s\t%s: %s\n", title, c.Name, grouped(int64(c.N)))
				title = ""
			}
		}
		list("rows without a call", r.Skipped)
		list("filled by rule, in calls", r.Inferred)
		list("prompts share by, in calls", r.Sharing)
		list("no place in "+to, r.Dropped)
	})
}
