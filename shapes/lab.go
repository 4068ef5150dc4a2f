package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// lab makes workloads and runs deployments on them.
type lab struct {
	made  []work
	slots chan struct{} // one for each run at a time
	// accounts lets runs keep account of who holds KV.
	accounts bool
}

// work is a compiled workload.
type work struct {
	name, hash string
	*trace.Workload
}

func newLab() *lab { return &lab{slots: make(chan struct{}, runtime.GOMAXPROCS(0))} }

// programs is how many a workload has, over and over: as many as SWE-bench Lite has issues.
const programs = 300

// workload returns a profile with its defaults, or with what set says of it, made once.
func (l *lab) workload(profile string, set ...string) (*trace.Workload, error) {
	name := strings.Join(append([]string{profile}, set...), " ")
	for _, made := range l.made {
		if made.name == name {
			return made.Workload, nil
		}
	}
	c, err := synth.Generate(profile, synth.Options{Programs: programs, Seed: 1, Set: set})
	if err != nil {
		return nil, err
	}
	if err := c.Link(); err != nil {
		return nil, fmt.Errorf("workload %s: %w", name, err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		return nil, fmt.Errorf("workload %s: %w", name, err)
	}
	l.made = append(l.made, work{name, fingerprint(w), w})
	return w, nil
}

// hashes names the workloads that were made and what identifies them.
func (l *lab) hashes() []string {
	var lines []string
	for _, made := range l.made {
		lines = append(lines, made.hash+"  "+made.name)
	}
	return lines
}

// fingerprint hashes the lengths, times and block hashes of all calls.
func fingerprint(w *trace.Workload) string {
	h := sha256.New()
	for i := range w.Calls {
		c := &w.Calls[i]
		fields := []uint64{uint64(c.Input), uint64(c.Output), uint64(c.Turn.Start), uint64(c.Turn.End), uint64(c.Turn.Shared)}
		for _, v := range append(fields, c.Turn.Hashes...) {
			_ = binary.Write(h, binary.LittleEndian, v) // a hash takes everything
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// setup is one run: a deployment under a workload.
type setup struct {
	work       *trace.Workload
	deployment sim.Deployment
}

// outcome is what became of a setup: the run, and its figures.
type outcome struct {
	run     *sim.Result
	figures *report.Run
}

func (o *outcome) turnsPerMin() float64 { return o.figures.Throughput.TurnsPerMin.Value }
func (o *outcome) hit() float64         { return o.figures.KV.HitRate.Value }

// run simulates all setups, some at a time, and returns their outcomes in the same order.
func (l *lab) run(setups ...setup) ([]outcome, error) {
	outcomes, errs := make([]outcome, len(setups)), make([]error, len(setups))
	var wg sync.WaitGroup
	for i, s := range setups {
		wg.Go(func() {
			l.slots <- struct{}{}
			defer func() { <-l.slots }()
			outcomes[i], errs[i] = simulate(s, sim.Options{Accounts: l.accounts})
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("run %d, %s on %s: %w", i+1, setups[i].deployment.Router.Policy, setups[i].deployment.Model, err)
		}
	}
	return outcomes, nil
}

func simulate(s setup, o sim.Options) (outcome, error) {
	p, err := s.deployment.Resolve()
	if err != nil {
		return outcome{}, err
	}
	res, err := sim.Run(context.Background(), s.work, p, o)
	if err != nil {
		return outcome{}, err
	}
	return outcome{res, res.Report(nil, nil)}, nil
}

// The window in which throughput counts, in ThunderAgent's scripts: from 10 to 70 minutes after the start
// (ThunderAgent-org/ThunderAgent, examples/inference/OpenHands/README.md).
const (
	warmup = 10 * time.Minute
	window = time.Hour
)

// deploy returns a deployment of workers, as many programs at a time, and clients that wait as long as it takes.
func deploy(model string, tensor, workers, concurrency int) sim.Deployment {
	d := sim.Default()
	d.Model, d.Parallelism.Tensor, d.Workers = model, tensor, workers
	d.DType.Weights, d.DType.KV = "fp8", "bf16"
	d.Load.Mode, d.Load.Concurrency = "concurrency", concurrency
	d.Load.Warmup, d.Load.Duration = warmup, window
	d.Client.Timeout = 0
	return d
}

// served returns the deployment with a policy in front, first come first served behind.
func served(d sim.Deployment, policy string) sim.Deployment {
	d.Router = sim.Default().Router
	d.Router.Policy = policy
	return d
}
