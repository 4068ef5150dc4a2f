package cli

import (
	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/accuracy"
)

// traceFit is the flags of calibrate trace.
type traceFit struct {
	profileFit
	deploymentFlags
	source
	folds int
	ttft  float64
}

func newCalibrateTrace(g *Global) *cobra.Command {
	t := &traceFit{}
	cmd := &cobra.Command{
		Use:   "trace TRACE...",
		Short: "Fit a cost profile to a trace of a known deployment",
		Long: `Fit the coefficients of a cost profile to a trace that a server recorded, or that a replay of one measured. The
deployment that served it is simulated with every call at its recorded arrival, and the coefficients are moved until the
absolute logarithms of simulated over measured TPOT and TTFT are smallest, call by call. Calls that are alike share
their weight. Factors on physical terms stay at 1 unless --fit names them, for one deployment hardly tells them from the
host's times; they are pulled to 1 and stay within 0.5 to 2.

TRACE is what predict takes, as far as it tells arrivals, first tokens and ends: Dynamo request traces do, with ttft_ms
and total_time_ms. The config says what served it (-c; its load is not used, since the trace is the load). Give
engine.kv_blocks as the server's log has it; "agentsim models from-vllm" and from-sglang make a config of a log.

Printed are each coefficient's share of TPOT and TTFT, how much of its effect no other coefficient can stand in for, the
condition number, and the errors: of the fit, and of each stretch of the trace predicted by the others. A coefficient of
the host that the trace does not tell from others is refused.`,
		Example: `  agentsim calibrate trace day1.jsonl.gz -c prod.yaml --name prod -o prod-profile.yaml
  agentsim predict day2.jsonl.gz -c prod.yaml --set cost.profile=prod-profile.yaml
  agentsim calibrate trace replay.trace -c prod.yaml --set engine.kv_blocks=12345 --fit layer_us,request_us,admission_us`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("calibrate trace wants the trace of a deployment, and the deployment: -c FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFolds(t.folds); err != nil {
				return err
			}
			start, err := t.begin("fitted by agentsim calibrate trace to TPOT and TTFT of the calls below")
			if err != nil {
				return err
			}
			measured, err := t.deployment()
			if err != nil {
				return err
			}
			capture, err := t.open(cmd.Context(), g, args)
			if err != nil {
				return err
			}
			c, err := accuracy.Trace(capture, measured, t.folds)
			if err != nil {
				return usagef("%w", err)
			}
			plan, err := c.Plan()
			if err != nil {
				return usagef("%w", err)
			}
			fitter := &accuracy.Fitter{Cases: []*accuracy.Case{c}, Start: start, Free: t.fit, Pull: t.pull, TTFT: t.ttft}
			fold := func(o *accuracy.Outcome) string { return o.Part.Name }
			return t.fitCases(cmd.Context(), g, fitter, fold, []leftOut{{"stretch", fold}}, args, plan.Engine.Kind+" "+plan.Engine.Version)
		},
	}
	t.deploymentFlags.addFlags(cmd)
	t.addTraceFlags(cmd)
	t.profileFit.addFlags(cmd, "layer_us", "request_us", "prefill_token_us", "admission_us", "prompt_token_us")
	cmd.Flags().Float64Var(&t.ttft, "ttft-weight", 1, "weight of an error in TTFT against one in TPOT")
	cmd.Flags().IntVar(&t.folds, "folds", 5, "stretches of the trace, each of which is also predicted by a fit to the others")
	return cmd
}
