package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/accuracy"
	"github.com/agentsim/agentsim/models"
)

// servingFit is the flags of calibrate serving.
type servingFit struct {
	engine, models, start, out string
	fit, leaveOut              []string
	hold                       map[string]string
	pull, ttft                 float64
	profile                    models.Profile
	provenance                 models.Provenance
}

// leaveOutKeys are what calibrate serving can leave out.
var leaveOutKeys = []struct {
	name string
	key  func(*accuracy.Case) string
}{
	{"model", func(c *accuracy.Case) string { return c.Deployment.Model }},
	{"tensor", func(c *accuracy.Case) string { return fmt.Sprintf("tp%d", c.Deployment.Parallelism.Tensor) }},
	{"source", func(c *accuracy.Case) string { return c.Source }},
}

func newCalibrateServing(g *Global) *cobra.Command {
	s := &servingFit{}
	cmd := &cobra.Command{
		Use:   "serving DATA...",
		Short: "Fit a cost profile to measured TTFT and TPOT",
		Long: `Fit the coefficients of a cost profile to what servers measured, around the simulator: each deployment is simulated
under its load, and the coefficients are moved until the mean absolute error of TPOT and TTFT is smallest. Factors on
physical terms are pulled to 1 and stay within 0.5 to 2.

DATA is a serving table in the columns of aiconfigurator's silicon_sample.csv (closed loop, mean TTFT and TPOT by
concurrency), or a folder with the workloads.json and experiments.csv of an open-loop campaign. Rows whose requests
waited long for room in the KV cache are not fitted.

Printed are each coefficient's share of TPOT and TTFT, how much of its effect no other coefficient can stand in for, the
condition number, the host's share of the time of steps, and the errors: of the fit, and of fits that leave out one model,
tensor-parallel size or source. A coefficient of the host that the data do not tell from others is refused.`,
		Example: `  agentsim calibrate serving h100_vllm.csv open-loop/ --name my-h100-vllm -o my-h100-vllm.yaml
  agentsim calibrate serving h100_vllm.csv --models moe --fit linear,layer_us,admission_us`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("calibrate serving wants tables or folders of measurements")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd.Context(), g, args) },
	}
	f := cmd.Flags()
	f.StringVar(&s.engine, "engine", "vllm", "kind of engine whose rows are fitted")
	f.StringVar(&s.models, "models", "all", "which models: all, dense, or moe (with experts)")
	f.StringVar(&s.start, "start", "physical", "profile to begin with; it keeps what is not fitted")
	f.StringSliceVar(&s.fit, "fit", []string{"linear", "compute", "decode_attention", "communication", "layer_us", "request_us",
		"admission_us"}, "coefficients to fit, of "+strings.Join(accuracy.Terms(), ", "))
	f.StringToStringVar(&s.hold, "hold", nil, "where coefficients begin, and stay when they are not fitted, such as request_us=15")
	f.Float64Var(&s.pull, "pull", 0.1, "weight of a factor's squared distance from 1, per row")
	f.Float64Var(&s.ttft, "ttft-weight", 0.3, "weight of an error in TTFT against one in TPOT")
	f.StringSliceVar(&s.leaveOut, "leave-out", nil, "also fit without each model, tensor (size) or source")
	f.StringVar(&s.profile.Name, "name", "fitted", "name of the profile")
	f.StringVar(&s.provenance.Source, "source", "", "where the data come from, for the file (default: DATA)")
	f.StringVar(&s.provenance.Commit, "commit", "", "their commit")
	f.StringVar(&s.provenance.Licence, "licence", "not stated", "their licence")
	f.StringVar(&s.provenance.Date, "date", "", "when they were read")
	f.StringVarP(&s.out, "output", "o", "", "write the profile to this `FILE`")
	return cmd
}

func (s *servingFit) run(ctx context.Context, g *Global, args []string) error {
	fitter, err := s.fitter(args)
	if err != nil {
		return err
	}
	fit, err := fitter.Run(ctx)
	if unidentified := (*accuracy.UnidentifiedError)(nil); errors.As(err, &unidentified) {
		return usagef("%w (leave it out of --fit)", err)
	}
	if err != nil {
		return err
	}
	if err := printFit(g.Stdout, fit); err != nil {
		return err
	}
	average, p90, err := accuracy.HostShare(ctx, fitter.Cases, &fit.Profile)
	if err != nil {
		return err
	}
	fmt.Fprintf(g.Stdout, "host share of step: mean %.1f%%, p90 %.1f%% over the cases\n\n", 100*average, 100*p90)
	p := fit.Profile
	groups := accuracy.GroupBy(fit.Outcomes, func(o *accuracy.Outcome) string { return o.Case.Source + ", " + o.Case.Deployment.Model })
	for _, group := range groups {
		p.Errors = append(p.Errors, accuracy.FitErrors(group.Name, group.Outcomes, false)...)
	}
	if err := accuracy.WriteTable(g.Stdout, "fitted", groups); err != nil {
		return err
	}
	for _, name := range s.leaveOut {
		held, err := fitter.LeaveOut(ctx, fit, leaveOutKey(name))
		if err != nil {
			return err
		}
		var groups []accuracy.Group
		for _, h := range held {
			groups = append(groups, accuracy.Group{Name: h.Name, Outcomes: h.Outcomes})
			p.Errors = append(p.Errors, accuracy.FitErrors(name+" "+h.Name, h.Outcomes, true)...)
		}
		fmt.Fprintln(g.Stdout)
		if err := accuracy.WriteTable(g.Stdout, name+" left out", groups); err != nil {
			return err
		}
	}
	if s.out == "" {
		return nil
	}
	if p.Envelope, err = accuracy.Envelope(ctx, fitter.Cases, &fit.Profile); err != nil {
		return err
	}
	s.provenance.Rows, s.provenance.Engine = len(fit.Outcomes), s.engine
	s.provenance.Source = cmp.Or(s.provenance.Source, strings.Join(args, ", "))
	p.Fitted = []models.Provenance{s.provenance}
	text, err := yaml.Marshal(&p)
	if err != nil {
		return fmt.Errorf("encoding the profile: %w", err)
	}
	return writeFile(s.out, text)
}

// fitter reads the data and the flags.
func (s *servingFit) fitter(args []string) (*accuracy.Fitter, error) {
	if s.models != "all" && s.models != "dense" && s.models != "moe" {
		return nil, usagef("--models %s: want all, dense or moe", s.models)
	}
	for _, name := range s.leaveOut {
		if leaveOutKey(name) == nil {
			return nil, usagef("--leave-out %s: want model, tensor or source", name)
		}
	}
	start, err := models.LookupProfile(s.start)
	if err != nil {
		return nil, usagef("%w", err)
	}
	var cases []*accuracy.Case
	for _, path := range args {
		more, err := accuracy.Read(path)
		if err != nil {
			return nil, usagef("%w", err)
		}
		cases = append(cases, more...)
	}
	cases = accuracy.Select(cases, s.engine, s.models != "moe", s.models != "dense")
	if len(cases) == 0 {
		return nil, usagef("no rows of engine %s (models: %s) in %s", s.engine, s.models, strings.Join(args, ", "))
	}
	f := &accuracy.Fitter{Cases: cases, Start: *start, Free: s.fit, Pull: s.pull, TTFT: s.ttft}
	f.Start.Name, f.Start.Fitted, f.Start.Errors, f.Start.Envelope = s.profile.Name, nil, nil, nil
	for _, key := range slices.Sorted(maps.Keys(s.hold)) {
		value, err := strconv.ParseFloat(s.hold[key], 64)
		if err != nil {
			return nil, usagef("--hold %s=%s: want a number", key, s.hold[key])
		}
		if err := accuracy.Hold(&f.Start, key, value); err != nil {
			return nil, usagef("--hold: %w", err)
		}
	}
	f.Start.Source = "fitted by agentsim calibrate serving to mean TPOT and TTFT of the rows below"
	return f, nil
}

func leaveOutKey(name string) func(*accuracy.Case) string {
	for _, k := range leaveOutKeys {
		if k.name == name {
			return k.key
		}
	}
	return nil
}

// printFit prints what the data say of each coefficient.
func printFit(w io.Writer, fit *accuracy.Fit) error {
	err := table(w, func(w io.Writer) {
		fmt.Fprintln(w, "coefficient\tvalue\tshare of TPOT\tshare of TTFT\tits own\t")
		for _, t := range fit.Terms {
			fmt.Fprintf(w, "%s\t%.4g\t%.1f%%\t%.1f%%\t%.0f%%\t\n", t.Key, t.Value, 100*t.TPOT, 100*t.TTFT, 100*t.Alone)
		}
	})
	fmt.Fprintf(w, "\ncondition number %.1f; shares are elasticities: what the time changes by when the coefficient does\nerrors are mean / median / bias in %%\n\n", fit.Condition)
	return err
}
