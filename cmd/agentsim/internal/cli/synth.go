package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
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
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		return err
	}
	if dir := filepath.Dir(out); dir != "." {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making the output folder: %w", err)
		}
	}
	options := trace.WriterOptions{}
	if force {
		options.Existing = trace.ReplaceExisting
	}
	writer, err := trace.NewWriter(out, options)
	if errors.Is(err, fs.ErrExist) {
		return usagef("%w; take another prefix or --force", err)
	}
	if err != nil {
		return err
	}
	for rec := range sim.RecordedTrace(w) {
		if err := writer.Write(rec); err != nil {
			writer.Discard()
			return err
		}
	}
	if err := writer.Close(); err != nil {
		return err
	}
	fmt.Fprintf(g.Stderr, "wrote %d calls of %d programs\n", len(w.Calls), len(w.Programs))
	return nil
}
