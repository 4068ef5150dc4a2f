package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/trace/convert"
	"github.com/agentsim/agentsim/trace/merge"
)

// mergeCommand is the flags of merge.
type mergeCommand struct {
	with         []string
	out          string
	ahead        time.Duration
	keepUnserved bool
	force        bool
	strict       bool
	asJSON       bool
}

func newMerge(g *Global) *cobra.Command {
	c := &mergeCommand{}
	cmd := &cobra.Command{
		Use:   "merge SERVER... --with HARNESS [--with HARNESS]... -o PREFIX",
		Short: "Make one trace of what a server and the harness of its agents recorded",
		Long: `Join recordings of one run into one trace: SERVER is what a server or a proxy recorded (a Dynamo request trace, what
'agentsim record' or 'replay' wrote, a server's OpenTelemetry spans), each HARNESS what the harness did (a transcript of Claude
Code, Codex and so on, a client's spans, or tool events alone). Each is a file, a folder, a glob or a segment prefix, in any format
that 'agentsim import' reads. The order of files and of --with is of no matter.

Every call of the server is in the result, with its times, counts, hashes, workers and status. From the harness come sessions,
their parents, tools and what prompts end with, and what the server does not tell. Where both tell something else, that is how it is
decided, and how often they differ is printed. Marks of what a rule had filled go where the harness knows it.

Calls are matched by ids: of the request, of the answer, of tool calls. The others are matched by time and token counts, on one
clock: how far the harness's is ahead is estimated, as the median over the calls with equal ids, else over those with equal token
counts, and printed with its spread. An estimate that few calls agree on is refused; then --clock-skew says how far the harness's
clock is ahead. Tools that events and a transcript both tell are taken from the events.

Calls that only the server tells stay in the session of their conversation, if the harness tells of the rest of it, else where they
were. Calls that only the harness tells are left out, or kept without hashes with --keep-unserved. Both are counted.

Without -o nothing is written: the summary says what matches.`,
		Example: `  agentsim merge traces/proxy --with ~/.claude/projects/mine -o traces/merged
  agentsim merge server.jsonl.gz --with spans.json --with tools.jsonl -o traces/merged
  agentsim merge traces/proxy --with old/transcript.jsonl --clock-skew 3.2s`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, g, args) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.with, "with", nil, "what a `HARNESS` recorded of the same run; repeatable")
	f.StringVarP(&c.out, "output", "o", "", "write segments with this `PREFIX`")
	f.DurationVar(&c.ahead, "clock-skew", 0, "how far the harnesses' clocks are ahead of the server's (default: estimate)")
	f.BoolVar(&c.keepUnserved, "keep-unserved", false, "keep calls of which only a harness tells")
	f.BoolVar(&c.force, "force", false, "overwrite what is there")
	f.BoolVar(&c.strict, "strict", false, "exit 1 instead of 3 when the result should not be trusted")
	f.BoolVar(&c.asJSON, "json", false, "print the summary as JSON")
	return cmd
}

func (c *mergeCommand) run(cmd *cobra.Command, g *Global, args []string) error {
	if len(args) == 0 || len(c.with) == 0 {
		return usagef("merge wants a server's trace, and --with for what the harness recorded; see `agentsim merge --help`")
	}
	server, err := openWhole(cmd.Context(), g, "the server's trace", args)
	if err != nil {
		return err
	}
	var harnesses []merge.Source
	for _, path := range c.with {
		h, err := openWhole(cmd.Context(), g, "--with", []string{path})
		if err != nil {
			return err
		}
		harnesses = append(harnesses, h)
	}
	o := merge.Options{KeepUnserved: c.keepUnserved}
	if cmd.Flags().Changed("clock-skew") {
		o.Ahead = &c.ahead
	}
	capture, report, err := merge.Merge(server, harnesses, o)
	if err != nil {
		return usagef("%w", err)
	}
	result := merged{Report: report}
	if c.out != "" {
		if err := capture.Link(); err != nil {
			return usagef("%w", err)
		}
		if result.Dropped, err = writeCapture(c.out, capture, c.force); err != nil {
			return err
		}
	}
	if c.asJSON {
		err = printJSON(g.Stdout, result)
	} else {
		err = result.print(g.Stdout)
	}
	if err == nil && len(report.Doubts()) > 0 {
		err = untrusted("trace", report.Doubts(), c.strict)
	}
	return err
}

// openWhole reads one recording with all that it tells; what says which one it is.
func openWhole(ctx context.Context, g *Global, what string, paths []string) (merge.Source, error) {
	c, err := convert.Open(ctx, paths, convert.Options{Whole: true, Stdin: g.Stdin})
	if err != nil {
		if ctx.Err() == nil {
			err = usagef("reading %s: %w", what, err)
		}
		return merge.Source{}, err
	}
	reportRead(g, &c.Read)
	return merge.Source{Name: strings.Join(paths, " "), Capture: c}, nil
}

// merged is what merge prints.
type merged struct {
	*merge.Report
	// Dropped counts what the written trace has no place for.
	Dropped []convert.Count `json:"dropped,omitempty"`
}

// print prints what became of the recordings.
func (r *merged) print(w io.Writer) error {
	return table(w, func(w io.Writer) {
		fmt.Fprintf(w, "server\t%s (%s): %s\n", r.Server.Name, r.Server.Format, amounts(r.Server))
		for i := range r.Harnesses {
			printHarness(w, &r.Harnesses[i])
		}
		fmt.Fprintf(w, "merged\t%s\n", amounts(r.Merged))
		fmt.Fprintf(w, "  only the server tells\t%s, %d in the session of their conversation\n", counted(int64(r.Unheard), "call"), r.Adopted)
		title := "  now told, in calls"
		for _, f := range r.Known {
			fmt.Fprintf(w, "%s\t%s: %d\n", title, f.Field, f.Calls)
			title = ""
		}
		title = "  no place in the trace"
		for _, c := range r.Dropped {
			fmt.Fprintf(w, "%s\t%s: %d\n", title, c.Name, c.N)
			title = ""
		}
	})
}

func amounts(c merge.Count) string {
	return fmt.Sprintf("%s in %s, %s", counted(int64(c.Calls), "call"), counted(int64(c.Sessions), "session"), counted(int64(c.Tools), "tool"))
}

func printHarness(w io.Writer, h *merge.HarnessReport) {
	fmt.Fprintf(w, "harness\t%s (%s): %s\n", h.Name, h.Format, amounts(h.Count))
	switch c := h.Clock; {
	case c == nil && h.Calls > 0:
		fmt.Fprintf(w, "  clock\tnone that its sessions share; its tools are left out\n")
	case c == nil:
		fmt.Fprintf(w, "  clock\tnot told; taken to be the server's\n")
	case c.Pairs == 0:
		fmt.Fprintf(w, "  clock\tahead by %v, by %s\n", c.Ahead, c.By)
	default:
		fmt.Fprintf(w, "  clock\tahead by %v, spread %v, by %d %s\n", c.Ahead.Round(time.Microsecond), c.Spread.Round(time.Microsecond), c.Pairs, c.By)
	}
	if h.Calls > 0 {
		fmt.Fprintf(w, "  matched\t%s: by id %d, tokens and time %d, input tokens and time %d, time %d\n", counted(int64(h.Matched()), "call"), h.ByID, h.ByTokens, h.ByInput, h.ByTime)
		fmt.Fprintf(w, "  only it tells\t%s, %d kept\n", counted(int64(h.Unserved), "call"), h.Kept)
	}
	title := "  differ"
	for _, d := range h.Differs {
		most := ""
		if d.Most > 0 {
			most = fmt.Sprintf(", by at most %d", d.Most)
		}
		fmt.Fprintf(w, "%s\t%s: in %s%s\n", title, d.Field, counted(int64(d.Calls), "call"), most)
		title = ""
	}
	if h.Tools > 0 {
		fmt.Fprintf(w, "  tools\t%d taken, %d told better by another, %d of no session here\n", h.Tools-h.ToolsKnown-h.ToolsLost, h.ToolsKnown, h.ToolsLost)
	}
}
