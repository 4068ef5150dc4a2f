package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

// synthCommand is the flags of `agentsim synth`.
type synthCommand struct {
	source
	fit   bool
	save  string
	out   string
	json  bool
	force bool
}

func newSynth(g *Global) *cobra.Command {
	s := &synthCommand{}
	cmd := &cobra.Command{
		Use:   "synth --profile NAME|FILE -o PREFIX | synth --fit TRACE... --save FILE",
		Short: "Make a synthetic agent workload as a trace, of a profile or like a trace",
		Long: `Make a synthetic agent workload and write it as a Dynamo request trace, PREFIX.000000.jsonl.gz and so on. The same
profile, parameters and seed give the same bytes; program i does not depend on how many programs there are.
"agentsim predict --profile" runs the same workload without a file. Without -o the profile is described: its parameters,
their defaults, and where these come from.

--fit makes a profile like a trace of any format that predict reads: turns, prompts and their growth, outputs, tools and
people between turns, subagents, prompts in common, rewrites and compactions, arrivals. Distributions are kept as
log-normal ones where these are close, else as quantiles, and each is drawn by itself: what goes together in the trace, such
as long answers with long waits, does not in the profile. But sessions that begin long may have turns of their own. --save
writes it as a file for --profile. A table shows how close as many programs as the trace has, at least 100 (or --programs),
come to it, in what was fitted and, at its end, in what follows. KS is the Kolmogorov-Smirnov distance: the largest difference
of the shares of values up to any limit, 0% the same.

Profiles:
` + describeProfiles(),
		Example: `  agentsim synth --profile mini-swe-agent
  agentsim synth --profile claude-code --programs 500 --profile-set turns=80 -o work/claude
  agentsim synth --fit day1.jsonl.gz --save day1.yaml
  agentsim predict --profile day1.yaml --programs 1000 --model qwen3-14b --workers 4`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.fit {
				return s.runFit(cmd, g, args)
			}
			return s.run(cmd.Context(), g, args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&s.fit, "fit", false, "make a profile like the traces, and show how close it is")
	f.StringVar(&s.save, "save", "", "with --fit: write the profile to `FILE`, which ends in .yaml")
	f.BoolVar(&s.json, "json", false, "with --fit: print the table as JSON")
	s.addTraceFlags(cmd)
	s.addSynthFlags(cmd)
	f.Uint64Var(&s.seed, "seed", 1, "seed")
	f.StringVarP(&s.out, "output", "o", "", "write segments with this `PREFIX`")
	f.BoolVar(&s.force, "force", false, "overwrite what is there")
	return cmd
}

// describeProfiles has a line for each profile: the first of its description.
func describeProfiles() string {
	var lines []string
	for _, name := range synth.Profiles() {
		first, _, _ := strings.Cut(synth.Describe(name), "\n")
		lines = append(lines, "  "+first)
	}
	return strings.Join(lines, "\n")
}

// run describes a profile, or writes what is made of it.
func (s *synthCommand) run(ctx context.Context, g *Global, args []string) error {
	switch {
	case len(args) > 0:
		return usagef("unexpected argument %q; --fit makes a profile like a trace", args[0])
	case s.save != "" || s.json:
		return usagef("--save and --json go with --fit")
	case s.profile == "":
		return usagef("--profile is missing; known are %s", strings.Join(synth.Profiles(), ", "))
	}
	p, err := findProfile(s.profile)
	if err != nil {
		return err
	}
	if s.out == "" {
		if len(s.params) > 0 {
			return usagef("--profile-set goes with -o; without -o the profile is described with its defaults")
		}
		_, err := fmt.Fprint(g.Stdout, p.Describe())
		return err
	}
	c, err := s.generate(p)
	if err != nil {
		return err
	}
	if err := c.Link(); err != nil {
		return err
	}
	return s.write(g, c)
}

// write writes a linked workload.
func (s *synthCommand) write(g *Global, c *trace.Capture) error {
	if _, err := writeCapture(s.out, c, s.force); err != nil {
		return err
	}
	fmt.Fprintf(g.Stderr, "wrote %d calls of %d programs\n", c.Read.Calls, programsOf(c))
	return nil
}
