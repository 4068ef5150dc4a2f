package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/convert"
	"github.com/agentsim/agentsim/trace/synth"
)

// source is the flags that say where the work comes from: trace files, or a synthetic profile.
type source struct {
	format    string
	blockSize int
	profile   string
	programs  int
	params    []string
	seed      uint64
	strict    bool           // refuse fields filled by rule
	sample    convert.Sample // what to draw of formats that hold distributions
	details   bool           // read what only those who show a trace need
	whole     bool           // read what only those who write a trace again need
}

func (s *source) addTraceFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.format, "format", "", "trace format: "+formatNames()+" (default: detect)")
	f.IntVar(&s.blockSize, "trace-block-size", 0, "tokens per hash of Mooncake traces (default: 512)")
}

func (s *source) addSynthFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.profile, "profile", "", "synthetic workload instead of a trace: "+strings.Join(synth.Profiles(), ", ")+
		", or the `FILE` that 'agentsim synth --fit' wrote")
	f.IntVar(&s.programs, "programs", 100, "number of synthetic programs")
	f.StringArrayVar(&s.params, "profile-set", nil, "`key=value` of the profile; 'agentsim synth --profile NAME' lists them")
}

// described is an entry of a list in a help text: a name and what it is, in lines of at most 100 characters.
func described(name, what string) string {
	return "  " + strings.ReplaceAll(wrap(name+": "+what, 96), "\n", "\n    ")
}

func formatNames() string {
	var names []string
	for _, f := range convert.Formats {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// open reads the traces, or makes the synthetic workload. Without either it makes the sample.
func (s *source) open(ctx context.Context, g *Global, args []string) (*trace.Capture, error) {
	if s.profile != "" {
		if len(args) > 0 {
			return nil, usagef("give a trace or --profile, not both")
		}
		p, err := findProfile(s.profile)
		if err != nil {
			return nil, err
		}
		return s.generate(p)
	}
	switch {
	case len(args) > 0:
	case s.programs == 0: // a command without --profile
		return nil, usagef("no trace given; name files, a folder or a segment prefix")
	default:
		return nil, usagef("no trace given; name files, a folder or a segment prefix, or take --profile %s", synth.Profiles()[0])
	}
	c, err := convert.Open(ctx, args, convert.Options{Format: s.format, BlockSize: s.blockSize, Details: s.details,
		Whole: s.whole, Strict: s.strict, Sample: s.sample, Stdin: g.Stdin})
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, usagef("reading the trace: %w", err)
	}
	reportRead(g, &c.Read)
	return c, nil
}

// generate makes the synthetic workload of a profile.
func (s *source) generate(p *synth.Profile) (*trace.Capture, error) {
	c, err := p.Generate(synth.Options{Programs: s.programs, Seed: s.seed, Set: s.params})
	if err != nil {
		return nil, usagef("--profile %s: %w", p.Name, err)
	}
	return c, nil
}

// findProfile returns the profile of a name, or of a file: a name with a slash or ending in .yaml or .yml.
func findProfile(name string) (*synth.Profile, error) {
	ext := filepath.Ext(name)
	if ext != ".yaml" && ext != ".yml" && !strings.ContainsRune(name, filepath.Separator) {
		p, err := synth.Find(name)
		if err != nil {
			return nil, usagef("--profile: unknown profile %q%s; known are %s, and files that 'agentsim synth --fit' wrote", name,
				suggestion(name, synth.Profiles()), strings.Join(synth.Profiles(), ", "))
		}
		return p, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, usagef("--profile: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, synth.MaxFile+1))
	if err != nil {
		return nil, usagef("--profile %s: %w", name, err)
	}
	p, err := synth.Read(name, text)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return p, nil
}

// reportRead says on stderr what was lost in reading.
func reportRead(g *Global, r *trace.ReadReport) {
	printWarnings(g, r)
	if r.LostRows > 0 || r.LostBytes > 0 || r.Duplicates > 0 {
		fmt.Fprintf(g.Stderr, "read %d calls; rows lost: %d (%d bytes), repeated request ids dropped: %d\n",
			r.Calls, r.LostRows, r.LostBytes, r.Duplicates)
	}
}

// printWarnings says on stderr what was damaged, and where.
func printWarnings(g *Global, r *trace.ReadReport) {
	for _, w := range r.Warnings {
		fmt.Fprintln(g.Stderr, "warning:", w)
	}
	if r.Dropped > 0 {
		fmt.Fprintf(g.Stderr, "warning: %d more\n", r.Dropped)
	}
}
