package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/inspect"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// runFit makes a profile like traces, writes it and work of it, and shows how close that is.
func (s *synthCommand) runFit(cmd *cobra.Command, g *Global, args []string) error {
	switch {
	case s.profile != "":
		return usagef("--fit makes a profile of traces, --profile names one: give one of them")
	case len(s.params) > 0:
		return usagef("--profile-set goes with --profile, perhaps the file that --save writes")
	case len(args) == 0:
		return usagef("--fit: no trace given; name files, a folder or a segment prefix")
	}
	if s.save != "" {
		if ext := filepath.Ext(s.save); ext != ".yaml" && ext != ".yml" {
			return usagef("--save %s: --profile knows a file by its ending; take %s.yaml", s.save, s.save)
		}
		if err := prepareFile("--save", s.save, s.force); err != nil {
			return err
		}
	}
	c, err := s.open(cmd.Context(), g, args)
	if err != nil {
		return err
	}
	observed, err := samples(c)
	if err != nil {
		return usagef("%w", err)
	}
	p, err := fitProfile(c, observed, fitName(args[0], s.save), filepath.Base(args[0]))
	if err != nil {
		return err
	}
	if s.save != "" {
		text, err := p.YAML()
		if err != nil {
			return err
		}
		if err := writeFile(s.save, text); err != nil {
			return err
		}
	}
	if !cmd.Flags().Changed("programs") {
		s.programs = max(programsOf(c), leastMade)
	}
	made, err := s.generate(p)
	if err != nil {
		return err
	}
	like, err := samples(made)
	if err != nil {
		return err
	}
	if s.out != "" {
		if err := s.write(g, made); err != nil {
			return err
		}
	}
	alike := inspect.Compare(observed, like)
	if s.json {
		return printJSON(g.Stdout, alike)
	}
	page := &inspectPage{width: min(g.Width, 100)}
	page.line("%s: %s", p.Name, p.About)
	page.likeness(alike)
	if !c.SharedClock {
		page.paragraph("the trace does not tell when programs start: those made all start at once, but for --profile-set rate=R or --mode concurrency of predict")
	}
	_, err = io.WriteString(g.Stdout, page.text.String())
	return err
}

// leastMade is how many programs are made to compare with a trace that has fewer, so that chance does not decide.
const leastMade = 100

// samples links a capture and measures it.
func samples(c *trace.Capture) ([]inspect.Sample, error) {
	if err := c.Link(); err != nil {
		return nil, err
	}
	return inspect.Samples(c)
}

// programsOf counts the programs of a linked capture that make calls.
func programsOf(c *trace.Capture) int {
	w, err := c.Compile(trace.OutputsNone)
	if err != nil {
		return 0
	}
	return len(w.Programs)
}

// fitProfile returns a profile that is fitted to what was observed of a capture, which was read from a file.
func fitProfile(c *trace.Capture, observed []inspect.Sample, name, file string) (*synth.Profile, error) {
	about := fmt.Sprintf("fitted to %s, %s of %s (%s)", counted(int64(len(c.Sessions)), "session"), counted(int64(c.Read.Calls), "call"), file, c.Format)
	p := synth.NewProfile(name, about, c.BlockSize)
	for _, o := range observed {
		var err error
		switch o.Key {
		case "": // follows from the others
		case "compact":
			contexts := make([]synth.Context, len(o.Contexts))
			for i, c := range o.Contexts {
				contexts[i] = synth.Context(c)
			}
			err = p.FitCompact(contexts)
		case "turns":
			err = p.FitTurns(o.Values, o.Firsts)
		default:
			err = p.Fit(o.Key, o.Values)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

// fitName names a profile after the file that it is written to, else after the trace.
func fitName(trace, file string) string {
	name := filepath.Base(trace)
	if file != "" {
		name = filepath.Base(file)
	}
	name, _, _ = strings.Cut(name, ".")
	if name = fileName(name); name == "" || name == "-" {
		return "fitted"
	}
	return name[:min(len(name), 40)]
}

// likeness prints distributions of a trace beside those of work that was made like it.
func (p *inspectPage) likeness(list []inspect.Likeness) {
	rows := [][]string{{"distribution", "of", "count", "mean", "p50", "p90", "p99", "KS"}}
	for _, l := range list {
		text := report.Figure.String
		switch l.Unit {
		case "s":
			text = report.Figure.Time
		case "share":
			text = report.Figure.Share
		}
		row := func(name, of string, d *report.Distribution, distance string) []string {
			return []string{name, of, grouped(d.Count), text(d.Mean), text(d.P50), text(d.P90), text(d.P99), distance}
		}
		name := l.Name
		if l.Unit == "tokens" {
			name += ", tokens"
		}
		rows = append(rows, row(name, "trace", &l.Of, l.Distance.Share()), row("", "made", &l.Made, ""))
	}
	p.table(rows)
	p.paragraph("KS: the largest difference of the shares of values up to any limit, 0%% where both are the same")
}
