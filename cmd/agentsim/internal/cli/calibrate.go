package cli

import "github.com/spf13/cobra"

// newCalibrate is the parent of the commands that fit coefficients to measurements.
func newCalibrate(g *Global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Fit the cost model to measurements",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCalibrateOps(g), newCalibrateServing(g))
	return cmd
}
