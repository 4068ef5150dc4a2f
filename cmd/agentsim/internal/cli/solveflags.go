package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace/report"
)

// solveFlags say which number `agentsim predict` is to find for each row, and within which limits.
type solveFlags struct {
	of          string // programs or gpus; "" for none
	maxSlowdown float64
	maxTTFT     time.Duration
	minInSLO    float64
	limits      []report.Limit
}

func (s *solveFlags) addSolveFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.of, "solve", "", "find `WHAT` of each row within the limits: programs, the most that live at a time, or gpus, the fewest workers for the load")
	f.Float64Var(&s.maxSlowdown, "max-slowdown", 0, "limit of --solve: nine of ten programs take at most `X` times what they take alone, such as 1.5")
	f.DurationVar(&s.maxTTFT, "max-ttft", 0, "limit of --solve: p99 of the `TIME` to the first token, such as 5s")
	f.Float64Var(&s.minInSLO, "min-in-slo", 0, "limit of --solve: least `SHARE` of requests within slo.ttft and slo.itl, such as 0.95")
}

// checkSolve reads the flags.
func (s *solveFlags) checkSolve(cmd *cobra.Command) error {
	if s.of != "" && s.of != report.SolvePrograms && s.of != report.SolveGPUs {
		return usagef("--solve %s: want programs or gpus", s.of)
	}
	for _, l := range []struct {
		flag string
		fine bool
		want string
		of   report.Limit
	}{
		{"max-slowdown", s.maxSlowdown >= 1 && s.maxSlowdown <= 1e6, "1 (as fast as alone) or more", report.MaxSlowdown(s.maxSlowdown)},
		{"max-ttft", s.maxTTFT > 0, "a time above 0", report.MaxTTFT(s.maxTTFT)},
		{"min-in-slo", s.minInSLO > 0 && s.minInSLO <= 1, "a share above 0 and up to 1", report.MinInSLO(s.minInSLO)},
	} {
		switch {
		case !cmd.Flags().Changed(l.flag):
			continue
		case s.of == "":
			return usagef("--%s goes with --solve programs or --solve gpus", l.flag)
		case !l.fine:
			return usagef("--%s %s: want %s", l.flag, cmd.Flags().Lookup(l.flag).Value, l.want)
		}
		s.limits = append(s.limits, l.of)
	}
	if s.of != "" && len(s.limits) == 0 {
		return usagef("--solve %s needs a limit: --max-slowdown, --max-ttft or --min-in-slo", s.of)
	}
	return nil
}

// solved refuses values for what is solved for. Given are the config keys that flags give values.
func (p *predict) solved(given map[string]bool) error {
	switch mode := p.mode(); {
	case p.of == "":
		return nil
	case p.baseline != "":
		return usagef("--solve and --baseline exclude each other: of a recording nothing can be solved")
	case p.of == report.SolveGPUs && given["workers"]:
		return usagef("--solve gpus finds the number of workers; leave --workers out (--tp gives each its GPUs)")
	case p.of == report.SolveGPUs:
		given["workers"] = true // so that none is assumed
		return nil
	case given["load.concurrency"]:
		return usagef("--solve programs finds the concurrency; leave --concurrency (load.concurrency) out")
	case given["load.rate"] || given["load.mode"] || mode != "" && mode != "concurrency":
		return usagef("--solve programs keeps a number of programs alive (load.mode concurrency); leave other arrivals out, or use --solve gpus")
	}
	p.sets = append(p.sets, "load.mode=concurrency", "load.concurrency=1")
	return nil
}

// solvable tells what makes it impossible to solve for a deployment.
func (p *predict) solvable(d *sim.Deployment) error {
	switch {
	case p.of == "":
		return nil
	case d.Router.MaxPrograms == "auto":
		return usagef("--solve and router.max_programs auto exclude each other: both search")
	case p.minInSLO > 0 && d.SLO.TTFT == 0 && d.SLO.ITL == 0:
		return usagef("--min-in-slo: slo.ttft and slo.itl are 0, which is no bound")
	case d.Load.Mode == "concurrency" && d.Load.Duration == 0:
		least := fmt.Sprintf("%d (or each once)", leastPrograms)
		if d.Load.Programs > 0 {
			least = strconv.Itoa(d.Load.Programs)
		}
		p.assume("a number is tried on %d programs for each that lives at a time, at least %s; the trace's over and over (load.programs)",
			programsPerSlot, least)
	}
	return nil
}
