package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/accuracy"
	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
)

// newCalibrate is the parent of the commands that fit coefficients to measurements.
func newCalibrate(g *Global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Fit the cost model to measurements",
		Long: `Fit the cost model to measurements: kernel rates to tables of kernel times (ops), and what an engine adds to them to
tables of TTFT and TPOT (serving), to a trace of a known deployment (trace) or to an engine's log of its steps (steps).
The last three write a profile, which predict takes as cost.profile.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCalibrateOps(g), newCalibrateServing(g), newCalibrateTrace(g), newCalibrateSteps(g))
	return cmd
}

// profileFit is the flags of the commands that fit a profile, and what they share.
type profileFit struct {
	start, out, name, about string
	fit, hold               []string
	pull                    float64
	provenance              models.Provenance
}

// addFlags adds the flags; free are the coefficients that are fitted unless --fit says otherwise.
func (p *profileFit) addFlags(cmd *cobra.Command, free ...string) {
	f := cmd.Flags()
	f.StringVar(&p.start, "start", "physical", "profile to begin with; it keeps what is not fitted")
	f.StringSliceVar(&p.fit, "fit", free, "coefficients to fit, of "+strings.Join(accuracy.Terms(), ", "))
	f.StringSliceVar(&p.hold, "hold", nil, "where coefficients begin, `KEY=VALUE`, and stay unless --fit has them")
	f.Float64Var(&p.pull, "pull", 0.1, "weight of a factor's squared distance from 1, per measurement")
	f.StringVar(&p.name, "name", "fitted", "name of the profile")
	f.StringVar(&p.about, "about", "", "what the profile is, for the file, in a sentence or two")
	f.StringVar(&p.provenance.Comment, "comment", "", "what was left out or held, and why, for the file")
	f.StringVar(&p.provenance.Source, "source", "", "where the data come from, for the file (default: the arguments)")
	f.StringVar(&p.provenance.Commit, "commit", "", "their commit")
	f.StringVar(&p.provenance.Licence, "licence", "not stated", "their licence")
	f.StringVar(&p.provenance.Date, "date", "", "when they were read")
	f.StringVarP(&p.out, "output", "o", "", "write the profile to this `FILE`")
}

// begin is the profile that the search begins with, under its new name.
func (p *profileFit) begin(source string) (models.Profile, error) {
	if !(p.pull >= 0 && p.pull <= 1e6) {
		return models.Profile{}, usagef("--pull %g: want a weight from 0 to 1e6", p.pull)
	}
	for _, key := range p.fit {
		if !slices.Contains(accuracy.Terms(), key) {
			return models.Profile{}, usagef("--fit: no coefficient %q; known are %s", key, strings.Join(accuracy.Terms(), ", "))
		}
	}
	start, err := models.LookupProfile(p.start)
	if err != nil {
		return models.Profile{}, usagef("%w", err)
	}
	begun := *start
	begun.Name, begun.Source, begun.Fitted, begun.Errors, begun.Envelope = p.name, cmp.Or(p.about, source), nil, nil, nil
	for _, h := range p.hold {
		key, text, _ := strings.Cut(h, "=")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return models.Profile{}, usagef("--hold %s: want KEY=VALUE with a number", h)
		}
		if err := accuracy.Set(&begun, key, value); err != nil {
			return models.Profile{}, usagef("--hold %s: %w", h, err)
		}
	}
	return begun, nil
}

// write writes the profile with where its data come from, if a file was named.
func (p *profileFit) write(profile *models.Profile, args []string, rows int, engine, gpu string) error {
	if p.out == "" {
		return nil
	}
	p.provenance.Rows, p.provenance.Engine, p.provenance.GPU = rows, engine, gpu
	p.provenance.Source = cmp.Or(p.provenance.Source, strings.Join(args, ", "))
	profile.Fitted = []models.Provenance{p.provenance}
	text, err := yaml.Marshal(profile)
	if err != nil {
		return fmt.Errorf("encoding the profile: %w", err)
	}
	return writeFile(p.out, text)
}

// leftOut is a kind of measurements that are left out in turn.
type leftOut struct {
	name string
	key  func(*accuracy.Outcome) string
}

// fitCases fits around the simulator, prints what comes out, by groups, and writes the profile.
func (p *profileFit) fitCases(ctx context.Context, g *Global, f *accuracy.Fitter, group func(*accuracy.Outcome) string,
	leaveOut []leftOut, args []string, engine string) error {
	hide := showTrials(g, f)
	fit, err := f.Run(ctx)
	hide()
	if err != nil {
		return refusal(err)
	}
	if err := printDetermined(g.Stdout, fit.Determined); err != nil {
		return err
	}
	average, p90, err := accuracy.HostShare(ctx, f.Cases, &fit.Profile)
	if err != nil {
		return err
	}
	fmt.Fprintf(g.Stdout, "host share of step: mean %.1f%%, p90 %.1f%% over the cases\n\n", 100*average, 100*p90)
	profile := fit.Profile
	groups := accuracy.GroupBy(fit.Outcomes, group)
	for _, group := range groups {
		profile.Errors = append(profile.Errors, accuracy.FitErrors(group.Name, group.Outcomes, false)...)
	}
	if err := accuracy.WriteTable(g.Stdout, "fitted", groups); err != nil {
		return err
	}
	for _, out := range leaveOut {
		held, err := f.LeaveOut(ctx, out.key)
		hide()
		if err != nil {
			return err
		}
		var groups []accuracy.Group
		for _, h := range held {
			groups = append(groups, accuracy.Group{Name: h.Name, Outcomes: h.Outcomes})
			profile.Errors = append(profile.Errors, accuracy.FitErrors(out.name+" "+h.Name, h.Outcomes, true)...)
		}
		fmt.Fprintln(g.Stdout)
		if err := accuracy.WriteTable(g.Stdout, out.name+" left out", groups); err != nil {
			return err
		}
	}
	if p.out != "" {
		if profile.Envelope, err = accuracy.Envelope(ctx, f.Cases, &fit.Profile); err != nil {
			return err
		}
	}
	return p.write(&profile, args, len(fit.Outcomes), engine, gpusOf(f.Cases))
}

// showTrials counts a fit's simulations on a terminal, and returns how to take the count off it before something is printed.
func showTrials(g *Global, f *accuracy.Fitter) (hide func()) {
	if !g.Terminal {
		return func() {}
	}
	bar := progressbar.NewOptions(-1, progressbar.OptionSetWriter(g.Stderr), progressbar.OptionSetDescription("simulating the data again and again"),
		progressbar.OptionShowCount(), progressbar.OptionSetElapsedTime(false))
	f.Trial = func() { _ = bar.Add(1) }
	return func() { _ = bar.Clear() }
}

// gpusOf names the GPUs of the cases.
func gpusOf(cases []*accuracy.Case) string {
	var gpus []string
	for _, c := range cases {
		name := c.Deployment.GPU
		if gpu, err := models.LookupGPU(name); err == nil {
			name = gpu.Name
		}
		gpus = append(gpus, name)
	}
	slices.Sort(gpus)
	return strings.Join(slices.Compact(gpus), ", ")
}

// refusal turns what data cannot tell into wrong usage, with the way out.
func refusal(err error) error {
	if unidentified := (*accuracy.UnidentifiedError)(nil); errors.As(err, &unidentified) {
		return usagef("%w (leave it out of --fit)", err)
	}
	return err
}

// printDetermined prints what the data say of each coefficient.
func printDetermined(w io.Writer, d accuracy.Determined) error {
	err := table(w, func(w io.Writer) {
		fmt.Fprint(w, "coefficient\tvalue\t")
		for _, m := range d.Measures {
			fmt.Fprintf(w, "share of %s\t", m)
		}
		fmt.Fprintln(w, "its own\t")
		for _, t := range d.Terms {
			fmt.Fprintf(w, "%s\t%.4g\t", t.Key, t.Value)
			for _, share := range t.Shares {
				fmt.Fprintf(w, "%.1f%%\t", 100*share)
			}
			fmt.Fprintf(w, "%.0f%%\t\n", 100*t.Alone)
		}
	})
	fmt.Fprintf(w, "\ncondition number %.1f; shares are elasticities: what the time changes by when the coefficient does\nerrors are mean / median / bias in %%\n\n", d.Condition)
	return err
}

func checkFolds(n int) error {
	if n < 2 || n > 100 {
		return usagef("--folds %d: want 2 to 100", n)
	}
	return nil
}

// deploymentFlags are the flags that say what was measured.
type deploymentFlags struct {
	config string
	sets   []string
}

func (d *deploymentFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&d.config, "config", "c", "", "the deployment that was measured: a `FILE` (YAML), as of predict")
	cmd.Flags().StringArrayVar(&d.sets, "set", nil, "override a config key, `path=value`")
}

// deployment reads the config file, or takes the defaults, and applies the settings.
func (d *deploymentFlags) deployment() (sim.Deployment, error) {
	measured := sim.Default()
	if d.config != "" {
		var err error
		if measured, _, err = loadConfig(d.config); err != nil {
			return measured, err
		}
	}
	for _, s := range d.sets {
		if err := set(&measured, s); err != nil {
			return measured, err
		}
	}
	return measured, nil
}
