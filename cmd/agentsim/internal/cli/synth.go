package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/trace/synth"
)

func newSynth(g *Global) *cobra.Command {
	s := &source{}
	var out string
	var force bool
	cmd := &cobra.Command{
		Use:   "synth --profile NAME -o PREFIX",
		Short: "Make a synthetic agent workload as a trace",
		Long: `Make a synthetic agent workload and write it as a Dynamo request trace, PREFIX.000000.jsonl.gz and so on. The same
profile, parameters and seed give the same bytes; program i does not depend on how many programs there are.
"agentsim predict --profile" runs the same workload without a file. Without -o the profile is described: its parameters,
their defaults, and where these come from.

Profiles:
` + describeProfiles(),
		Example: `  agentsim synth --profile mini-swe-agent
  agentsim synth --profile claude-code --programs 500 --profile-set turns=80 -o work/claude`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.profile == "" {
				return usagef("--profile is missing; known are %s", strings.Join(synth.Profiles(), ", "))
			}
			if !slices.Contains(synth.Profiles(), s.profile) {
				return usagef("unknown profile %q%s; known are %s", s.profile, suggestion(s.profile, synth.Profiles()),
					strings.Join(synth.Profiles(), ", "))
			}
			if out == "" {
				_, err := fmt.Fprint(g.Stdout, synth.Describe(s.profile))
				return err
			}
			return writeSynth(cmd, g, s, out, force)
		},
	}
	s.addSynthFlags(cmd)
	cmd.Flags().Uint64Var(&s.seed, "seed", 1, "seed")
	cmd.Flags().StringVarP(&out, "output", "o", "", "write segments with this `PREFIX`")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite segments of the prefix")
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

// writeSynth generates the workload and writes it.
func writeSynth(cmd *cobra.Command, g *Global, s *source, out string, force bool) error {
	c, err := s.open(cmd.Context(), g, nil)
	if err != nil {
		return err
	}
	if err := c.Link(); err != nil {
		return err
	}
	if _, err := writeCapture(out, c, force); err != nil {
		return err
	}
	programs := 0
	for _, session := range c.Sessions {
		if session.Parent == "" {
			programs++
		}
	}
	fmt.Fprintf(g.Stderr, "wrote %d calls of %d programs\n", c.Read.Calls, programs)
	return nil
}
