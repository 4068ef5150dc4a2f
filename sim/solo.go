package sim

import (
	"context"
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/trace"
)

// Solo returns for each program how long it takes alone on one idle worker of the deployment, with an empty cache:
// the makespan that slowdowns are relative to. Programs that do not complete have 0.
func Solo(ctx context.Context, w *trace.Workload, p *Plan, o Options) ([]time.Duration, error) {
	alone := *p
	alone.Workers, alone.Ranks = 1, 1
	alone.Router.Settings, alone.Router.Frontends = router.Settings{}, 1
	alone.Client = Client{}
	alone.Load.Mode, alone.Load.Concurrency, alone.Load.Programs = "concurrency", 1, 0
	alone.Load.Warmup, alone.Load.Duration, alone.Load.Ramp, alone.Load.Start = 0, 0, 0, "ramp"
	alone.memory, alone.rules, alone.prefill, alone.Disaggregation = nil, nil, nil, Disaggregation{}
	o.private, o.hold = true, p.Load.Mode == "recorded"
	res, err := Run(ctx, w, &alone, o)
	if err != nil {
		return nil, err
	}
	times := make([]time.Duration, len(w.Programs))
	for i := range res.Programs {
		if pr := &res.Programs[i]; pr.Completed {
			times[pr.Index] = pr.Last - pr.First
		}
	}
	return times, nil
}
