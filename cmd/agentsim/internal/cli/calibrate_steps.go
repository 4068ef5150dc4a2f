package cli

import "github.com/spf13/cobra"

func newCalibrateSteps(g *Global) *cobra.Command {
	return &cobra.Command{Use: "steps LOG..."}
}
