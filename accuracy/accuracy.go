// Package accuracy tells how far predictions are from what real servers did: it reads published measurements of
// serving engines, rebuilds each deployment and its load, runs the simulator on them and compares. It also fits the
// host terms of a cost profile to such measurements, around the simulator.
//
// A Case is one measured server under one load. The readers (Read, Requests, Trace) make cases; Run predicts them; Summary
// sums up the errors; a Fitter searches for the profile with the smallest ones. A StepFitter fits to measured steps,
// without the simulator.
package accuracy

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Measure is a figure that is compared.
type Measure int

// The measures: latencies in ms, throughput in output tokens per second.
const (
	TTFT       Measure = iota // mean
	TPOT                      // mean over requests of (last − first) / (output − 1)
	E2E                       // mean
	Throughput                // output tokens per second
	TTFTP99
	E2EP99
	Failed // share of requests that did not complete
	measures
)

// String is the measure's name in tables and profiles.
func (m Measure) String() string {
	return [...]string{"ttft", "tpot", "e2e", "throughput", "ttft_p99", "e2e_p99", "failed"}[m]
}

// Figures holds a value of each measure; 0 where it is not known.
type Figures [measures]float64

// Part is a stretch of a case for which figures are known: all of it, one stage of its load, or a single call.
type Part struct {
	Name string
	// From and To delimit the arrivals of its requests; To 0 is no bound.
	From, To time.Duration
	Measured Figures
	// Group names the parts of a case that a fit takes as one row, with the mean of their errors; "" is a row by itself.
	Group string
}

// whole is the name of the part that is all of a case.
const whole = "whole"

// Case is one measured server under one load.
type Case struct {
	// Source is the set that it comes from, Name tells it from the others of the set.
	Source, Name string
	Deployment   sim.Deployment
	Parts        []Part
	// Skip says why it is not predicted, Apart why it stands outside the summary; "" when it is, and does not.
	Skip, Apart string
	// Queued tells that requests waited long for room: concurrency is not the batch size there, and the figures
	// hang on the KV capacity more than on the step cost.
	Queued bool
	// Table, when set, has the step times, so that of a profile only the host terms count.
	Table *models.StepTable

	shape   [3]int // of a closed loop: input, output, clients
	capture func() (*trace.Capture, error)
	// Where parts are calls: the part of each, the median time of a measured step, and the workloads that are simulated.
	calls    map[*trace.Turn]int
	step     time.Duration
	replicas []*trace.Workload

	planned, loaded  sync.Once // each is made once, however many profiles are tried
	plan             *sim.Plan
	work             *trace.Workload
	planErr, loadErr error
}

// Plan is the case's deployment with everything looked up.
func (c *Case) Plan() (*sim.Plan, error) {
	c.planned.Do(func() {
		if c.plan, c.planErr = c.Deployment.Resolve(); c.planErr != nil {
			c.planErr = fmt.Errorf("case %s of %s: %w", c.Name, c.Source, c.planErr)
		}
	})
	return c.plan, c.planErr
}

// load is the case's work.
func (c *Case) load() (*trace.Workload, error) {
	c.loaded.Do(func() {
		capture, err := c.capture()
		if err == nil {
			err = capture.Link()
		}
		if err == nil {
			c.work, err = capture.Compile(c.outputs())
		}
		if err != nil {
			c.loadErr = fmt.Errorf("building the load of case %s of %s: %w", c.Name, c.Source, err)
			return
		}
		if c.calls != nil {
			c.replicate()
		}
	})
	return c.work, c.loadErr
}

// MoE tells whether the case's model has experts.
func (c *Case) MoE() bool {
	plan, err := c.Plan()
	return err == nil && plan.Hardware.Model.MoE.Experts > 0
}

// Select keeps the cases of an engine kind that a fit can rest on: neither those that stand apart nor those that waited
// for room. Of dense and moe models one class may be left out.
func Select(cases []*Case, engine string, dense, moe bool) []*Case {
	var kept []*Case
	for _, c := range cases {
		if c.Deployment.Engine.Kind == engine && c.Skip == "" && c.Apart == "" && !c.Queued && (c.MoE() && moe || !c.MoE() && dense) {
			kept = append(kept, c)
		}
	}
	return kept
}

// outputs is which generated tokens later prompts share: what the deployment says of a trace; published loads share none.
func (c *Case) outputs() trace.Outputs {
	if c.calls != nil {
		return c.plan.Outputs
	}
	return trace.OutputsNone
}

// Predict simulates the case and returns the figures of each part. A nil profile takes that of the deployment.
func (c *Case) Predict(ctx context.Context, profile *models.Profile) ([]Figures, error) {
	if c.calls != nil {
		return c.predictCalls(ctx, profile)
	}
	res, err := c.simulate(ctx, profile)
	if err != nil {
		return nil, err
	}
	figures := make([]Figures, len(c.Parts))
	for i, p := range c.Parts {
		figures[i] = p.sum(res.Requests)
	}
	return figures, nil
}

func (c *Case) simulate(ctx context.Context, profile *models.Profile) (*sim.Result, error) {
	resolved, err := c.Plan()
	if err != nil {
		return nil, err
	}
	work, err := c.load()
	if err != nil {
		return nil, err
	}
	return c.simulateWork(ctx, work, resolved, profile)
}

func (c *Case) simulateWork(ctx context.Context, w *trace.Workload, resolved *sim.Plan, profile *models.Profile) (*sim.Result, error) {
	plan := *resolved
	if err := c.price(&plan, profile); err != nil {
		return nil, fmt.Errorf("case %s of %s: %w", c.Name, c.Source, err)
	}
	res, err := sim.Run(ctx, w, &plan, sim.Options{})
	if err != nil {
		return nil, fmt.Errorf("case %s of %s: %w", c.Name, c.Source, err)
	}
	return res, nil
}

// price gives the plan the step cost of a profile; nil is the deployment's own.
func (c *Case) price(plan *sim.Plan, profile *models.Profile) (err error) {
	if profile == nil && c.Table == nil {
		return nil // Resolve has done it
	}
	if profile == nil {
		if profile, err = models.LookupProfile(plan.Deployment.Cost.Profile); err != nil {
			return err
		}
	}
	if c.Table != nil {
		plan.Cost, err = c.Table.StepCost(profile)
	} else {
		plan.Cost, err = plan.Hardware.StepCostOf(profile)
	}
	return err
}

// sum computes the figures of the requests that arrived in the part and completed. Throughput is what a closed loop of
// such requests makes, since the measured sets give no other: output tokens of a client / time of a request.
func (p *Part) sum(requests []report.Request) Figures {
	var ttft, e2e []float64
	var tpot, tokens float64
	decoded, failed := 0, 0
	for i := range requests {
		q := &requests[i]
		if q.Arrival < p.From || p.To > 0 && q.Arrival >= p.To {
			continue
		}
		one, ok := figuresOf(q)
		if !ok {
			failed++
			continue
		}
		ttft = append(ttft, one[TTFT])
		e2e = append(e2e, one[E2E])
		tokens += float64(q.Output)
		if q.Output > 1 {
			tpot += one[TPOT]
			decoded++
		}
	}
	var f Figures
	if failed > 0 {
		f[Failed] = float64(failed) / float64(failed+len(ttft))
	}
	if len(ttft) == 0 {
		return f
	}
	f[TTFT], f[E2E] = report.Mean(ttft), report.Mean(e2e)
	if decoded > 0 {
		f[TPOT] = tpot / float64(decoded)
	}
	f[Throughput] = closedLoop(tokens/float64(len(ttft)), f)
	slices.Sort(ttft)
	slices.Sort(e2e)
	f[TTFTP99], f[E2EP99] = report.Quantile(ttft, 0.99), report.Quantile(e2e, 0.99)
	return f
}

// figuresOf are the figures of one request; ok tells that it completed with a first token.
func figuresOf(q *report.Request) (f Figures, ok bool) {
	if q.Status != report.Completed || q.FirstToken == report.None {
		return f, false
	}
	f[TTFT], f[E2E] = ms(q.FirstToken-q.Arrival), ms(q.End-q.Arrival)
	if q.Output > 1 {
		f[TPOT] = ms(q.End-q.FirstToken) / float64(q.Output-1)
	}
	return f, true
}

// closedLoop is the output tokens per second of one client that sends its next request when the last has ended.
func closedLoop(output float64, f Figures) float64 {
	return 1e3 * output / (f[TTFT] + (output-1)*f[TPOT])
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// Outcome is the prediction of one part of a case.
type Outcome struct {
	Case      *Case
	Part      *Part
	Predicted Figures
}

// Error is (predicted − measured) / measured; NaN when either is not known.
func (o *Outcome) Error(m Measure) float64 {
	if o.Part.Measured[m] <= 0 || o.Predicted[m] <= 0 {
		return math.NaN()
	}
	return o.Predicted[m]/o.Part.Measured[m] - 1
}

// Run predicts all cases but those to skip, several at a time. Outcomes are in the order of the cases. A nil profile takes
// that of each deployment. It fails with the first case, in their order, that cannot be simulated.
func Run(ctx context.Context, cases []*Case, profile *models.Profile) ([]Outcome, error) {
	cases = slices.DeleteFunc(slices.Clone(cases), func(c *Case) bool { return c.Skip != "" })
	figures := make([][]Figures, len(cases))
	errs := make([]error, len(cases))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(len(cases), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				figures[i], errs[i] = cases[i].Predict(ctx, profile)
			}
		})
	}
	for i := range cases {
		next <- i
	}
	close(next)
	wg.Wait()
	var outcomes []Outcome
	for i, c := range cases {
		if errs[i] != nil {
			return nil, errs[i]
		}
		for j := range c.Parts {
			outcomes = append(outcomes, Outcome{c, &c.Parts[j], figures[i][j]})
		}
	}
	return outcomes, nil
}
