package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/schollz/progressbar/v3"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
	"github.com/agentsim/agentsim/trace/report"
)

// batch is the simulations of one predict command. They run in parallel and share compiled workloads; results are
// kept by index.
type batch struct {
	capture   *trace.Capture
	options   sim.Options
	jobs      int
	traces    bool    // keep results for writing traces
	events    string  // folder for sidecars of events; "" none
	sampled   bool    // sample the state of the rows over time
	accounts  bool    // tell what sessions held
	explain   string  // what is to be explained; "" nothing
	price     float64 // of an hour of a GPU; 0: not known
	rows      int
	cells     []*cell
	workloads []*compiled
	solos     []*solo
	searches  []*capSearch
	solving   string         // what number is to be found for each row, as report.Solution.Of; "" none
	limits    []report.Limit // of the runs with that number
	solves    []*solve

	slots chan struct{} // as many as simulations may run at a time
	// done and total count calls, for the progress bar.
	done, total atomic.Int64
}

// cell is one simulation. Row is its row in the table; cells of a row differ in their seeds.
type cell struct {
	given    sim.Deployment // what plan was made from
	plan     *sim.Plan
	row      int
	file     string // begins the names of its files; "" where it has none
	axes     []report.Axis
	bound    string // "none" or "all" for a cell that bounds a row
	auto     bool   // router.max_programs is to be searched for
	search   *capSearch
	solve    *solve
	workload *compiled
	solo     *solo
	result   *sim.Result
	run      *report.Run
	err      error
	why      *explanation // nil: not asked for
}

// compiled is a workload that cells share.
type compiled struct {
	outputs  trace.Outputs
	how      string // of max_context; "" when the limit does not matter
	limit    int
	workload *trace.Workload
	changed  int
}

// addBounds adds a cell with each bound of output identity for every row.
func (b *batch) addBounds() error {
	for _, c := range b.cells[:len(b.cells):len(b.cells)] {
		if c.plan.Deployment.Workload.Outputs != "inferred" || c.plan.Seed != b.firstSeed(c.row) {
			continue
		}
		for _, bound := range []string{"none", "all"} {
			given := c.given
			given.Workload.Outputs = bound
			plan, err := given.Resolve()
			if err != nil {
				return err
			}
			b.cells = append(b.cells, &cell{given: given, plan: plan, row: c.row, bound: bound, auto: c.auto})
		}
	}
	return nil
}

func (b *batch) firstSeed(row int) uint64 {
	for _, c := range b.cells {
		if c.row == row {
			return c.plan.Seed
		}
	}
	return 0
}

// run compiles the workloads and simulates all cells.
func (b *batch) run(ctx context.Context, g *Global) error {
	if err := b.compile(); err != nil {
		return err
	}
	if err := cmp.Or(b.solvable(), b.explainRows()); err != nil {
		return err
	}
	b.slots = make(chan struct{}, b.jobs)
	b.options.Progress = &b.done
	tasks := b.tasks()
	b.expect(len(b.solos) + len(b.cells))
	stop := showProgress(g, &b.done, &b.total)
	defer stop()
	var wait sync.WaitGroup
	for _, task := range tasks {
		wait.Go(func() { task(ctx) })
	}
	wait.Wait()
	return nil
}

// expect counts simulations that are to come.
func (b *batch) expect(simulations int) {
	b.total.Add(int64(simulations) * int64(len(b.workloads[0].workload.Calls)))
}

// inTurn calls f when fewer than jobs simulations run.
func (b *batch) inTurn(f func()) {
	b.slots <- struct{}{}
	defer func() { <-b.slots }()
	f()
}

// explainRows finds what is to be explained in the workload of every row.
func (b *batch) explainRows() (err error) {
	seen := map[int]bool{}
	for _, c := range b.cells {
		if b.explain == "" || seen[c.row] || c.bound != "" {
			continue
		}
		seen[c.row] = true
		if c.why, err = newExplanation(b.explain, c.workload.workload); err != nil {
			return err
		}
	}
	return nil
}

// explanations are those of the rows that were simulated to the end.
func (b *batch) explanations() []*explanation {
	var all []*explanation
	for _, c := range b.cells {
		if c.why != nil && c.err == nil {
			all = append(all, c.why)
		}
	}
	return all
}

// finished counts the cells that were simulated to the end.
func (b *batch) finished() int {
	n := 0
	for _, c := range b.cells {
		if c.err == nil && c.run != nil {
			n++
		}
	}
	return n
}

// compile builds each distinct workload once.
func (b *batch) compile() error {
	for _, c := range b.cells {
		want := compiled{outputs: c.plan.Outputs}
		if how := c.plan.Deployment.Workload.MaxContext; how != "reject" {
			want.how, want.limit = how, c.plan.MaxModelLen
		}
		for _, w := range b.workloads {
			if w.outputs == want.outputs && w.how == want.how && w.limit == want.limit {
				c.workload = w
			}
		}
		if c.workload == nil {
			if err := b.build(&want); err != nil {
				return usagef("%w", err)
			}
			c.workload = &want
			b.workloads = append(b.workloads, &want)
		}
		if !c.plan.Serves(c.workload.workload) {
			return usagef("deployment %q: models: no call of the trace is left to serve", c.plan.Name)
		}
	}
	return nil
}

func (b *batch) build(w *compiled) (err error) {
	capture := b.capture
	if w.how != "" {
		if capture, w.changed, err = capture.LimitContext(w.limit, w.how); err != nil {
			return err
		}
		if err = capture.Link(); err != nil {
			return err
		}
	}
	w.workload, err = capture.Compile(w.outputs)
	return err
}

// tasks lists what can run in parallel: the programs alone where slowdowns mean something, the searches for caps, and the
// cells. A cell waits for the others, which therefore come first. Nothing waits in its turn.
func (b *batch) tasks() []func(context.Context) {
	var cells, solos []func(context.Context)
	for _, c := range b.cells {
		c.solo, c.search, c.solve = b.soloOf(c), b.searchOf(c), b.solveOf(c)
		cells = append(cells, func(ctx context.Context) { b.simulate(ctx, c) })
	}
	for _, s := range b.solos {
		solos = append(solos, func(ctx context.Context) {
			defer close(s.done)
			b.inTurn(func() { s.times, s.err = sim.Solo(ctx, s.workload, s.plan, b.options) })
		})
	}
	for _, s := range b.searches {
		solos = append(solos, func(ctx context.Context) { b.searchCap(ctx, s) })
	}
	for _, s := range b.solves {
		solos = append(solos, func(ctx context.Context) { b.solveFor(ctx, s) })
	}
	return append(solos, cells...)
}

// simulate runs a cell and turns its result into a report row.
func (b *batch) simulate(ctx context.Context, c *cell) {
	var result *sim.Result
	err := cmp.Or(c.useCap(), c.useSolution())
	if err == nil {
		options := b.options
		if c.why != nil {
			c.why.watch(&options)
		}
		if b.sampled && c.bound == "" && c.plan.Seed == b.firstSeed(c.row) {
			options.Samples = maxSamples
		}
		options.Accounts = b.accounts
		b.inTurn(func() { result, err = b.runCell(ctx, c, options) })
	}
	config, encodeErr := yaml.MarshalWithOptions(c.plan.Deployment, yaml.JSON())
	if c.err = cmp.Or(err, encodeErr); c.err != nil {
		c.run = report.FailedRun(c.plan.Name, json.RawMessage(config), c.err)
		c.run.Axes = c.axes
		if errors.Is(c.err, context.Canceled) {
			c.run.Status = report.RunInterrupted
		}
		return
	}
	if c.why != nil {
		c.why.finish(c.plan.Name, result.Scheduler != nil)
	}
	times, soloErr := c.alone()
	c.run = result.Report(json.RawMessage(config), times)
	c.run.Axes = c.axes
	if b.price > 0 {
		c.run.SetPrice(b.price)
	}
	if soloErr != nil {
		c.run.Warnings = append(c.run.Warnings, fmt.Sprintf("slowdowns are not known: %v", soloErr))
	}
	if c.solve != nil {
		c.run.Solution = c.solve.solution
	}
	if c.search != nil {
		c.run.Warnings = append(c.run.Warnings, c.search.note)
	}
	if n := c.workload.changed; n > 0 {
		c.run.Warnings = append(c.run.Warnings, fmt.Sprintf("%d calls were longer than %d tokens and were changed (workload.max_context %s)",
			n, c.workload.limit, c.workload.how))
	}
	if b.traces {
		c.result = result
	}
}

// runCell simulates a cell, and writes its events if they are asked for.
func (b *batch) runCell(ctx context.Context, c *cell, options sim.Options) (*sim.Result, error) {
	if b.events == "" || c.file == "" {
		return sim.Run(ctx, c.workload.workload, c.plan, options)
	}
	if err := os.MkdirAll(b.events, 0o755); err != nil {
		return nil, fmt.Errorf("making the output folder: %w", err)
	}
	w, err := events.Create(filepath.Join(b.events, c.file+events.Suffix), c.plan.EventsHeader(c.workload.workload.Capture.Epoch))
	if err != nil {
		return nil, err
	}
	options.Events = w.Write
	result, err := sim.Run(ctx, c.workload.workload, c.plan, options)
	if err != nil {
		w.Discard()
		return nil, err
	}
	return result, w.Close()
}

// nameFiles gives the cells whose files -o writes, of each row the one with the first seed, their names.
func (b *batch) nameFiles() {
	taken, seen := map[string]bool{}, map[int]bool{}
	for _, c := range b.cells {
		if !seen[c.row] && c.bound == "" {
			seen[c.row] = true
			c.file = unique(fileName(c.plan.Name), taken)
		}
	}
}

// maxSamples is the most samples of a run's state: about as many as a chart has pixels to show.
const maxSamples = 400

// runs are the rows of the table: of each row the cell with the first seed.
func (b *batch) runs() []*report.Run {
	runs := make([]*report.Run, b.rows)
	for _, c := range b.cells {
		if runs[c.row] == nil {
			runs[c.row] = c.run
		}
	}
	return runs
}

// evidence gathers what repeats and bounds say. A recorded baseline stands before the rows; no repeat pairs with it.
func (b *batch) evidence(recorded bool) report.Evidence {
	e := report.Evidence{FixedLoad: !b.cells[0].plan.Load.Slots(), LostRows: b.capture.Read.LostRows}
	runs := b.runs()
	metric := report.Primary(runs, e.FixedLoad)
	if !recorded && b.solving == "" { // the number that was solved for holds for all seeds
		e.Intervals = b.intervals(metric, report.Baseline(runs))
	}
	plain := report.Evidence{FixedLoad: e.FixedLoad} // the bounds are not repeated, so seeds do not count here
	winner := report.Judge(runs, plain).Winner
	for _, bound := range []string{"none", "all"} {
		bounded := make([]*report.Run, b.rows)
		for _, c := range b.cells {
			if c.bound == bound {
				bounded[c.row] = c.run
				e.Bounds = true
			}
		}
		if slices.Contains(bounded, nil) {
			continue
		}
		if report.Judge(bounded, plain).Winner != winner {
			e.Flips = append(e.Flips, "--outputs "+bound)
		}
	}
	return e
}

// intervals pairs the seeds of each row with those of the baseline; nil without repeats.
func (b *batch) intervals(metric report.Metric, baseline int) []report.Interval {
	bySeed := make([][]report.Figure, b.rows)
	for _, c := range b.cells {
		if c.bound == "" {
			bySeed[c.row] = append(bySeed[c.row], metric.Of(c.run))
		}
	}
	if len(bySeed[baseline]) < 2 {
		return nil
	}
	intervals := make([]report.Interval, b.rows)
	for row, figures := range bySeed {
		intervals[row], _ = report.PairedInterval(bySeed[baseline], figures)
	}
	return intervals
}

// failure returns an error when a run failed. The other rows stand.
func (b *batch) failure() error {
	for _, c := range b.cells {
		if c.err != nil && !errors.Is(c.err, context.Canceled) {
			return c.err
		}
	}
	return nil
}

// showProgress draws a bar on a terminal while calls end, and returns how to stop it.
func showProgress(g *Global, done, total *atomic.Int64) func() {
	return drawBar(g, total.Load(), func(bar *progressbar.ProgressBar) {
		bar.Describe("simulating")
		bar.ChangeMax64(total.Load())
		_ = bar.Set64(min(done.Load(), total.Load()))
	})
}

// drawBar draws a bar on a terminal, updated five times a second, and returns how to stop it.
func drawBar(g *Global, total int64, update func(*progressbar.ProgressBar)) func() {
	if !g.Terminal {
		return func() {}
	}
	bar := progressbar.NewOptions64(total, progressbar.OptionSetWriter(g.Stderr), progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond))
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				update(bar)
			case <-quit:
				_ = bar.Finish()
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}
