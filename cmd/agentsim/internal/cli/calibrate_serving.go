package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/accuracy"
)

// servingFit is the flags of calibrate serving.
type servingFit struct {
	profileFit
	engine, models string
	leaveOut       []string
	ttft           float64
}

// servingLeftOut are what calibrate serving can leave out.
var servingLeftOut = []leftOut{
	{"model", func(o *accuracy.Outcome) string { return o.Case.Deployment.Model }},
	{"tensor", func(o *accuracy.Outcome) string { return fmt.Sprintf("tp%d", o.Case.Deployment.Parallelism.Tensor) }},
	{"source", func(o *accuracy.Outcome) string { return o.Case.Source }},
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
		RunE: func(cmd *cobra.Command, args []string) error {
			fitter, leaveOut, err := s.fitter(args)
			if err != nil {
				return err
			}
			return s.fitCases(cmd.Context(), g, fitter, func(o *accuracy.Outcome) string {
				return o.Case.Source + ", " + o.Case.Deployment.Model
			}, leaveOut, args, s.engine)
		},
	}
	s.addFlags(cmd, "linear", "compute", "decode_attention", "communication", "layer_us", "request_us", "admission_us")
	f := cmd.Flags()
	f.StringVar(&s.engine, "engine", "vllm", "kind of engine whose rows are fitted")
	f.StringVar(&s.models, "models", "all", "which models: all, dense, or moe (with experts)")
	f.Float64Var(&s.ttft, "ttft-weight", 0.3, "weight of an error in TTFT against one in TPOT")
	f.StringSliceVar(&s.leaveOut, "leave-out", nil, "also fit without each model, tensor (size) or source")
	return cmd
}

// fitter reads the data and the flags.
func (s *servingFit) fitter(args []string) (*accuracy.Fitter, []leftOut, error) {
	if s.models != "all" && s.models != "dense" && s.models != "moe" {
		return nil, nil, usagef("--models %s: want all, dense or moe", s.models)
	}
	var leaveOut []leftOut
	for _, name := range s.leaveOut {
		i := slices.IndexFunc(servingLeftOut, func(l leftOut) bool { return l.name == name })
		if i < 0 {
			return nil, nil, usagef("--leave-out %s: want model, tensor or source", name)
		}
		leaveOut = append(leaveOut, servingLeftOut[i])
	}
	start, err := s.begin("fitted by agentsim calibrate serving to mean TPOT and TTFT of the rows below")
	if err != nil {
		return nil, nil, err
	}
	var cases []*accuracy.Case
	for _, path := range args {
		more, err := accuracy.Read(path)
		if err != nil {
			return nil, nil, usagef("%w", err)
		}
		cases = append(cases, more...)
	}
	cases = accuracy.Select(cases, s.engine, s.models != "moe", s.models != "dense")
	if len(cases) == 0 {
		return nil, nil, usagef("no rows of engine %s (models: %s) in %s", s.engine, s.models, strings.Join(args, ", "))
	}
	return &accuracy.Fitter{Cases: cases, Start: start, Free: s.fit, Pull: s.pull, TTFT: s.ttft}, leaveOut, nil
}
