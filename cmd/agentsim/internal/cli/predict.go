package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// predict is the flags of `agentsim predict`.
type predict struct {
	source
	solveFlags
	configs  []string
	sets     []string
	grids    []string
	short    []shortFlag
	also     string
	outDir   string
	html     string
	traces   bool
	events   bool
	json     bool
	force    bool
	strict   bool
	check    bool
	bounds   bool
	explain  string
	baseline string
	repeats  int
	jobs     int
	price    float64 // of an hour of a GPU; 0: not known

	files   []string // the arguments
	named   traffic  // by a config
	assumed []string
	varied  []string // paths of the axes with several values
}

// shortFlag is a flag for a config path. With list it takes several values and makes an axis of the grid.
type shortFlag struct {
	name, path, usage string
	list              bool
	values            []string
	value             string
}

func predictFlags() []shortFlag {
	return []shortFlag{
		{name: "model", path: "model", list: true, usage: "`NAMES` of 'agentsim models', or a Hugging Face config.json"},
		{name: "gpu", path: "gpu", list: true, usage: "`NAMES` of 'agentsim gpus' (default h100-sxm)"},
		{name: "tp", path: "parallelism.tensor", list: true, usage: "tensor parallelism, `N,N` (default: the smallest that fits)"},
		{name: "workers", path: "workers", list: true, usage: "number of workers, `N,N`"},
		{name: "router", path: "router.policy", list: true, usage: "routing policies, `NAMES`: round-robin, least-loaded, sticky, kv, thunderagent, ...; 'agentsim config --policies' tells what each does"},
		{name: "concurrency", path: "load.concurrency", list: true, usage: "root programs that live at a time, `N,N`; sets load.mode"},
		{name: "rate", path: "load.rate", list: true, usage: "root programs per second, `R,R`, Poisson; sets load.mode"},
		{name: "kv-preset", path: "kv.preset", list: true, usage: "whose rules KV tiers below the GPUs follow, `NAMES`: vllm, lmcache, hicache, kvbm"},
		{name: "host-kv", path: "kv.host.capacity", list: true, usage: "host memory for the KV of each worker, `SIZES` such as 0,200GiB,1TiB, or x2 for twice the KV of its GPUs"},
		{name: "disk-kv", path: "kv.disk.capacity", list: true, usage: "space on drives for the KV of each worker, below the host's, `SIZES`"},
		{name: "kv-policy", path: "kv.policy", list: true, usage: "what is done with the KV of sessions, `NAMES`: lru, offload-on-tool, prefetch-before-return, all, ...; 'agentsim config --kv-policies' tells what each does"},
		{name: "mode", path: "load.mode", usage: "arrival `MODE`: recorded, closed, concurrency, poisson, rollout"},
		{name: "speed", path: "load.speed", usage: "divide arrivals and gaps by `X`"},
		{name: "max-gap", path: "load.max_gap", usage: "longest `TIME` between turns, such as 60s"},
		{name: "human-gap", path: "load.human_gap", usage: "gaps that people took, `HOW`: recorded, drop, or cap=60s"},
		{name: "warmup", path: "load.warmup", usage: "`TIME` before the measured window"},
		{name: "duration", path: "load.duration", usage: "`TIME` that the measured window takes (default: the whole run)"},
		{name: "start", path: "load.start", usage: "`HOW` programs begin at concurrency: ramp, or snapshot (at random turns)"},
		{name: "ramp", path: "load.ramp", usage: "`TIME` over which the first programs begin at concurrency, instead of all at once"},
		{name: "max-context", path: "workload.max_context", usage: "calls longer than the model takes, `HOW`: reject, truncate or split"},
		{name: "outputs", path: "workload.outputs", list: true, usage: "generated tokens that later prompts share, `HOW`: inferred, none or all"},
		{name: "seed", path: "seed", usage: "seed `N` of everything random"},
	}
}

func newPredict(g *Global) *cobra.Command {
	p := &predict{short: predictFlags()}
	cmd := &cobra.Command{
		Use:   "predict [TRACE...]",
		Short: "Simulate a trace on one or more deployments and compare them",
		Long: `Simulate recorded agent work on one or more deployments and say which is better, by how much, and why.

TRACE is a file, a folder, a glob, a segment prefix, or - for standard input; plain or gzip. Known formats are
detected by content: Dynamo request traces, Mooncake, agentic Mooncake, WEKA, and plain arrival lists. --profile makes
a synthetic workload instead.

A deployment is a YAML file (-c), the defaults, or flags over either. Every key can be an axis of a grid:

  agentsim predict day1.jsonl.gz --model qwen3-14b --workers 4 --router round-robin,kv
  agentsim predict traces/ --model minimax-m2.5 --grid engine.kv_blocks=x0.5,x1,x2
  agentsim predict run -c prod.yaml -c candidate.yaml --repeats 5 -o out --traces

Flags with several values, such as NAMES or N,N, make an axis each, as --grid does. The first row is the baseline that
the others are compared with. With only a trace and a model, the policies round-robin, sticky and kv are compared on two
workers; what was assumed is printed. "agentsim config" lists every key of a deployment. --explain tells why one session,
request or program fared as it did in each row.

--solve asks the other way round: how many programs may live at a time, or how few GPUs serve the load, within limits?

  agentsim predict traces/ --model minimax-m2.5 --router kv,thunderagent --solve programs --max-slowdown 1.5
  agentsim predict traces/ -c prod.yaml --tp 2,4,8 --solve gpus --concurrency 64 --max-ttft 5s --gpu-hour-price 2.50

Each number is tried by a run, in which no request may be lost; the table has the run with the number found. The slowdown of
a program is its time over that alone on an idle worker. With --repeats the mean over the seeds has to keep the limits.

Exit codes: 0 done; 1 a run failed; 2 wrong usage, config or input; 3 done, but the result should not be trusted, and
why; 130 interrupted.`,
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), g, cmd, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVarP(&p.configs, "config", "c", nil, "deployment `FILE` (YAML), or one of aisimulate; repeat for more rows")
	for i := range p.short {
		s := &p.short[i]
		if s.list {
			f.StringSliceVar(&s.values, s.name, nil, s.usage)
		} else {
			f.StringVar(&s.value, s.name, "", s.usage)
		}
	}
	f.StringArrayVar(&p.sets, "set", nil, "override a config key: `path=value`")
	f.StringArrayVar(&p.grids, "grid", nil, "try several values of a config key: `path=v1,v2`")
	f.StringVar(&p.also, "also", "", "each deployment once more with the keys of `FILE` over its own, such as the hints of 'agentsim inspect --suggest-hints'")
	p.addTraceFlags(cmd)
	p.addSynthFlags(cmd)
	f.StringVar(&p.baseline, "baseline", "", "\"recorded\" adds what the trace itself measured as the first row")
	f.IntVar(&p.repeats, "repeats", 1, "runs with further seeds, for an interval on the differences")
	p.addSolveFlags(cmd)
	f.Float64Var(&p.price, "gpu-hour-price", 0, "what an hour of one GPU costs, `PRICE` in any currency, for the cost of 1000 turns and of a program")
	f.BoolVar(&p.bounds, "bounds", false, "also run with --outputs none and all, and say if another row wins")
	f.StringVarP(&p.outDir, "output", "o", "", "write report.json and the resolved configs into `DIR`")
	f.StringVar(&p.html, "html", "", "write a page with charts and tables to `FILE`; it needs no other file and no network")
	f.BoolVar(&p.traces, "traces", false, "with -o: also write each run's predicted trace")
	f.BoolVar(&p.events, "events", false, "with -o: also write each run's engine steps, KV use and transfers, preemptions and scheduler decisions (NAME.events.jsonl.gz)")
	f.StringVar(&p.explain, "explain", "", "`WHAT` to explain instead of the table: the id of a session or request, the number of a program (from 0), or the program scheduler's busiest tick (tick) or the one at a time (tick=1234s)")
	f.BoolVar(&p.json, "json", false, "print report.json instead of the table; with --explain, that as JSON")
	f.BoolVar(&p.force, "force", false, "overwrite results of -o and --html")
	f.BoolVar(&p.strict, "strict", false, "exit 1 instead of 3 when the result should not be trusted")
	f.BoolVar(&p.check, "check", false, "verify conservation laws at every event (slow)")
	f.IntVar(&p.jobs, "jobs", 0, "simulations at a time (default: one per processor)")
	return cmd
}

// run is the command.
func (p *predict) run(ctx context.Context, g *Global, cmd *cobra.Command, args []string) error {
	if p.repeats < 1 || p.repeats > 1000 || p.jobs < 0 {
		return usagef("--repeats wants 1 to 1000, --jobs at least 1")
	}
	if cmd.Flags().Changed("gpu-hour-price") && !(p.price > 0 && p.price <= 1e6) {
		return usagef("--gpu-hour-price %v: want a price above 0 and up to 1e6", p.price)
	}
	if err := p.checkSolve(cmd); err != nil {
		return err
	}
	if p.jobs == 0 {
		p.jobs = runtime.GOMAXPROCS(0)
	}
	if p.baseline != "" && p.baseline != "recorded" {
		return usagef("--baseline %s: only \"recorded\" is known", p.baseline)
	}
	if p.profile == "" && (cmd.Flags().Changed("programs") || len(p.params) > 0) {
		return usagef("--programs and --profile-set go with --profile; --set load.programs=N runs N programs of a trace")
	}
	if p.traces && p.outDir == "" {
		return usagef("--traces needs an output folder: -o DIR")
	}
	if p.events && p.outDir == "" {
		return usagef("--events needs an output folder: -o DIR")
	}
	deployments, err := p.deployments()
	if err != nil {
		return err
	}
	p.seed = deployments[0].Seed
	out := output{dir: p.outDir, html: p.html, force: p.force}
	if err := out.prepare(); err != nil {
		return err
	}
	args = p.useTraffic(args)
	p.files = args
	capture, err := p.open(ctx, g, args)
	if err != nil {
		return err
	}
	b, err := p.newBatch(capture, deployments)
	if err != nil {
		return err
	}
	for _, a := range p.assumed {
		fmt.Fprintln(g.Stderr, "assumed:", a)
	}
	if err := b.run(ctx, g); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return p.finish(g, out, b)
	}
	if b.finished() == 0 {
		return &exitError{exitInterrupted, errors.New("interrupted; nothing was finished")}
	}
	if err := p.finish(g, out, b); err != nil && exitCode(err) == exitFailed {
		return err
	}
	return &exitError{exitInterrupted, fmt.Errorf("interrupted; %d of %d simulations were finished", b.finished(), len(b.cells))}
}

// deployments builds the rows: each config file, or the defaults, with all flags and grid axes applied.
func (p *predict) deployments() ([]sim.Deployment, error) {
	bases := []sim.Deployment{}
	files := []string{""}
	if len(p.configs) > 0 {
		files = p.configs
	}
	for _, file := range p.configs {
		d, t, err := loadConfig(file)
		if err != nil {
			return nil, err
		}
		if err := p.addTraffic(file, t); err != nil {
			return nil, err
		}
		if d.Name == "" && len(p.configs) > 1 {
			d.Name = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".yaml"), ".yml")
		}
		bases = append(bases, d)
	}
	if len(bases) == 0 {
		bases = append(bases, sim.Default())
	}
	axes, err := p.axes()
	if err != nil {
		return nil, err
	}
	var all []sim.Deployment
	for i, base := range bases {
		for _, s := range p.sets {
			if err := set(&base, s); err != nil {
				return nil, err
			}
		}
		for i := range p.short {
			if s := &p.short[i]; !s.list && s.value != "" {
				if err := set(&base, s.path+"="+s.value); err != nil {
					return nil, err
				}
			}
		}
		cells, err := expand(base, axes)
		if err != nil {
			return nil, err
		}
		for j := range cells {
			if err := p.usePolicyFile(&cells[j], files[i]); err != nil {
				return nil, err
			}
		}
		all = append(all, cells...)
	}
	for i := range all {
		if all[i].Name == "" {
			all[i].Name = all[i].Router.Policy
		}
	}
	if p.also != "" {
		return addAlso(all, p.also)
	}
	return all, nil
}

// axes gathers the grid: list flags in a fixed order, then --grid in the order given.
func (p *predict) axes() ([]axis, error) {
	var axes []axis
	given := map[string]bool{}
	for i := range p.short {
		s := &p.short[i]
		if len(s.values) == 0 {
			continue
		}
		axes = append(axes, axis{s.path, s.values})
		given[s.path] = true
	}
	if err := p.impliedMode(given); err != nil {
		return nil, err
	}
	for _, g := range p.grids {
		a, err := parseAxis(g)
		if err != nil {
			return nil, err
		}
		axes = append(axes, a)
		given[a.path] = true
	}
	for _, s := range p.sets {
		path, _, _ := strings.Cut(s, "=")
		given[path] = true
	}
	if err := p.solved(given); err != nil {
		return nil, err
	}
	switch policyGiven := given["router.policy"] || given["router.policy_config"]; {
	case len(p.configs) > 0 || policyGiven:
	case slices.ContainsFunc(axes, func(a axis) bool { return strings.HasPrefix(a.path, "kv.") }): // they are what is compared
		p.sets = append([]string{"router.policy=kv"}, p.sets...)
		p.assume("the router policy kv (--router)")
	default:
		axes = append(axes, axis{"router.policy", []string{"round-robin", "sticky", "kv"}})
		p.assume("the policies round-robin, sticky and kv are compared (--router)")
	}
	for _, a := range axes {
		if len(a.values) > 1 {
			p.varied = append(p.varied, a.path)
		}
		if a.path == "router.policy" && len(a.values) > 1 && len(p.configs) == 0 && !given["workers"] {
			p.sets = append([]string{"workers=2"}, p.sets...)
			p.assume("2 workers (--workers)")
		}
	}
	return axes, nil
}

// mode is the arrival mode of --mode.
func (p *predict) mode() string {
	for i := range p.short {
		if p.short[i].name == "mode" {
			return p.short[i].value
		}
	}
	return ""
}

// impliedMode sets the arrival mode that --concurrency or --rate stands for.
func (p *predict) impliedMode(given map[string]bool) error {
	mode := p.mode()
	for _, f := range []struct{ flag, implied string }{{"concurrency", "concurrency"}, {"rate", "poisson"}} {
		switch flag, implied := f.flag, f.implied; {
		case !given["load."+flag]:
		case given["load.concurrency"] && given["load.rate"]:
			return usagef("--concurrency and --rate exclude each other: programs at a time, or programs per second")
		case mode != "" && mode != implied:
			return usagef("--%s goes with --mode %s, not with --mode %s", flag, implied, mode)
		default:
			p.sets = append(p.sets, "load.mode="+implied)
		}
	}
	return nil
}

// newBatch settles what depends on the trace and resolves every deployment.
func (p *predict) newBatch(capture *trace.Capture, deployments []sim.Deployment) (*batch, error) {
	if err := capture.Link(); err != nil {
		return nil, usagef("%w", err)
	}
	b := &batch{capture: capture, options: sim.Options{Check: p.check}, jobs: p.jobs, traces: p.traces, sampled: p.html != "", explain: p.explain,
		price: p.price, solving: p.of, limits: p.limits}
	for i := range deployments {
		d := &deployments[i]
		p.assumeLoad(capture, d)
		if d.Model == "" {
			p.assumeModel(capture, d)
		}
		if err := p.solvable(d); err != nil {
			return nil, err
		}
		tensor, point := d.Parallelism.Tensor, p.point(d)
		if p.also != "" && point != nil {
			point = append(point, report.Axis{Key: "also", Value: []string{"-", filepath.Base(p.also)}[i%2]}) // they take turns
		}
		for r := range p.repeats {
			seeded := *d
			seeded.Seed += uint64(r)
			seeded.Router.PolicyConfig = "" // it is applied
			auto := seeded.Router.MaxPrograms == "auto"
			if auto { // searched for later
				seeded.Router.MaxPrograms = "none"
			}
			plan, err := seeded.Resolve()
			if err != nil {
				return nil, p.unresolved(deployments, d, err)
			}
			if tensor == 0 && r == 0 {
				p.assume("tensor parallelism %d for %s on %s, the smallest that fits (--tp)", plan.Parallelism.Tensor, d.Model, d.GPU)
			}
			b.cells = append(b.cells, &cell{given: seeded, plan: plan, row: i, axes: point, auto: auto})
		}
	}
	b.rows = len(deployments)
	b.accounts = slices.ContainsFunc(b.cells, func(c *cell) bool { return c.plan.KeepsKV() })
	if p.bounds {
		if err := b.addBounds(); err != nil {
			return nil, usagef("%w", err)
		}
	}
	b.nameFiles()
	if p.events {
		b.events = p.outDir
	}
	return b, nil
}

// point is the values that a row has on the axes of the grid; none when rows come from several files, whose names
// tell them apart.
func (p *predict) point(d *sim.Deployment) []report.Axis {
	if len(p.configs) > 1 {
		return nil
	}
	var point []report.Axis
	walkValues(reflect.ValueOf(*d), func(path string, v reflect.Value) {
		if slices.Contains(p.varied, path) {
			point = append(point, report.Axis{Key: path, Value: fmt.Sprint(v.Interface())})
		}
	})
	return point
}

// unresolved says which row an error is of, unless the first row has it already.
func (p *predict) unresolved(all []sim.Deployment, d *sim.Deployment, err error) error {
	if len(p.configs) == 1 {
		return usagef("%s: %w", p.place(p.configs[0], err), err)
	}
	if d == &all[0] && len(p.configs) == 0 {
		return usagef("%w", err)
	}
	return usagef("deployment %q: %w", d.Name, err)
}

// assume notes an assumption once.
func (p *predict) assume(format string, args ...any) {
	a := fmt.Sprintf(format, args...)
	if !slices.Contains(p.assumed, a) {
		p.assumed = append(p.assumed, a)
	}
}

// assumeLoad chooses arrivals: as recorded where the trace has one clock, else as many programs at a time as keep
// the workers busy.
func (p *predict) assumeLoad(c *trace.Capture, d *sim.Deployment) {
	if d.Load.Mode != "" {
		return
	}
	if c.SharedClock {
		d.Load.Mode = "closed"
		return
	}
	d.Load.Mode = "concurrency"
	if d.Load.Concurrency == 0 {
		d.Load.Concurrency = max(1, min(8*d.Workers, len(c.Sessions)))
	}
	p.assume("the files have no common clock, so they run %d at a time (--concurrency)", d.Load.Concurrency)
}

// assumeModel takes the model that the trace names first, if the catalogue knows it.
func (p *predict) assumeModel(c *trace.Capture, d *sim.Deployment) {
	if name := useNamedModel(c, d); name != "" {
		p.assume("model %s, as the trace names it (--model)", name)
	}
}

// useNamedModel sets the model that the trace names first and returns that name; "" if the catalogue does not know it. A
// trace names it with its organisation, and with a suffix that tells the number format of its weights.
func useNamedModel(c *trace.Capture, d *sim.Deployment) string {
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			if t.Model == "" {
				continue
			}
			name := t.Model[strings.LastIndex(t.Model, "/")+1:]
			model, weights, err := models.LookupCheckpoint(name)
			if err != nil || !slices.Contains(models.Models(), model.Name) { // a trace never names a config file
				return ""
			}
			if d.Model = name; weights != "" {
				d.Model, d.DType.Weights = model.Name, string(weights)
			}
			return t.Model
		}
	}
	return ""
}

// finish prints and writes the results.
func (p *predict) finish(g *Global, out output, b *batch) error {
	runs := b.runs()
	if p.baseline == "recorded" {
		runs = append([]*report.Run{sim.Recorded(b.workloads[0].workload)}, runs...)
	}
	verdict := report.Judge(runs, b.evidence(p.baseline != ""))
	read := &b.capture.Read
	rep := &report.Report{Version: version(), Runs: runs, Verdict: &verdict, Trace: &report.Trace{Format: b.capture.Format,
		Files: p.files, Calls: int64(read.Calls), RowsLost: int64(read.LostRows), Duplicates: int64(read.Duplicates)}}
	if err := out.write(rep, b); err != nil {
		return err
	}
	if all := b.explanations(); len(all) > 0 {
		if err := writeExplanations(g.Stdout, all, p.json, g.Width); err != nil {
			return err
		}
	} else if p.json {
		if err := report.Write(g.Stdout, rep); err != nil {
			return err
		}
	} else if err := p.print(g, runs, verdict); err != nil {
		return err
	}
	if err := b.failure(); err != nil {
		return err
	}
	if !verdict.Trusted {
		return untrusted("result", verdict.Reasons, p.strict)
	}
	return nil
}

// print writes the table, the verdict and what each run warns of.
func (p *predict) print(g *Global, runs []*report.Run, v report.Verdict) error {
	if err := report.WriteTable(g.Stdout, runs, report.TableOptions{Width: g.Width}); err != nil {
		return err
	}
	fmt.Fprintf(g.Stdout, "\n%s\n", wrap(v.Text, g.Width))
	seen := map[string]bool{}
	for _, r := range runs {
		for _, w := range append(append([]string{}, r.Warnings...), r.Approximations...) {
			if !seen[w] {
				fmt.Fprintln(g.Stderr, wrap("note: "+w, g.Width))
			}
			seen[w] = true
		}
	}
	return nil
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column > 0 && column+1+len(word) > width:
			b.WriteByte('\n')
			column = 0
		case column > 0:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
