package cli

import (
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/models/fit"
)

func newCalibrateOps(g *Global) *cobra.Command {
	var out string
	from := fit.Aiconfigurator()
	cmd := &cobra.Command{
		Use:   "ops DIR",
		Short: "Fit kernel rates to tables of kernel times",
		Long: `Fit the floors and rates of a GPU's kernels (matrix products, attention, experts, collectives) to the kernel tables of
aiconfigurator as CSV files in DIR, and print how far the formulas are from the tables: the median and the 90 % quantile
of the absolute logarithmic error (0.05 is about 5 %), and the median of the signed one, above 0 where the prediction is
too long. "held out" is the error on shapes that the fit did not see: each half predicted from the other.

With -o the rates are written as YAML, in the form of the catalogue's.`,
		Example: `  agentsim calibrate ops aic-h100-ops -o ops.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("calibrate ops wants one folder with kernel tables")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			ops, kernels, err := fit.Ops(args[0], from)
			if err != nil {
				return usagef("%w", err)
			}
			if err := printKernels(g.Stdout, kernels); err != nil || out == "" {
				return err
			}
			text, err := yaml.Marshal([]*models.Ops{ops})
			if err != nil {
				return fmt.Errorf("encoding the rates: %w", err)
			}
			return writeFile(out, text)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "write the rates to this `FILE`")
	f.StringVar(&from.GPU, "gpu", from.GPU, "`GPU` that the tables were measured on: a name of 'agentsim gpus'")
	f.StringVar(&from.Source, "source", from.Source, "where the tables come from, for the file")
	f.StringVar(&from.Commit, "commit", from.Commit, "their commit")
	f.StringVar(&from.Licence, "licence", from.Licence, "their licence")
	f.StringVar(&from.Engine, "engine", from.Engine, "the engine whose kernels they are")
	f.StringVar(&from.Date, "date", from.Date, "when they were read")
	return cmd
}

// printKernels prints each kernel's parameters and errors.
func printKernels(w io.Writer, kernels []*fit.Kernel) error {
	for _, k := range kernels {
		fmt.Fprintf(w, "%s\n", k.Name)
		err := table(w, func(w io.Writer) {
			for _, p := range k.Params {
				fmt.Fprintf(w, "  %s\t%g\t%s\n", p.Key, p.Value, p.Unit)
			}
		})
		if err != nil {
			return err
		}
		err = table(w, func(w io.Writer) {
			fmt.Fprintln(w, "  rows\tmedian\tp90\tbias\t")
			for _, e := range append(k.Errors, k.HeldOut) {
				fmt.Fprintf(w, "  %d\t%.3f\t%.3f\t%+.3f\t%s\n", e.Rows, e.Median, e.P90, e.Bias, e.Name)
			}
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return nil
}
