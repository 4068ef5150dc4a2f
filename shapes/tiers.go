package main

import (
	"fmt"
	"maps"
	"time"

	"github.com/agentsim/agentsim/sim"
)

// The runs of one of those pods with 400 GiB of host memory: programs at a time, and output tokens a second without a gate,
// with ThunderAgent's budget that of the GPUs, and that of the host's memory.
var (
	hostPrograms = []int{32, 64, 128, 192, 256}
	hostTokens   = [3][]float64{{560, 565, 567, 366, 288}, {578, 636, 635, 551, 516}, {554, 566, 579, 569, 533}}
)

func tiers() []study {
	return []study{
		{name: "host tier: one pod with 400 GiB of host memory, Claude Code sessions, by programs", source: hostSource, run: hostTier,
			missed: map[string]string{"192 programs: gate of both / no gate": "there the budget is the host's memory. Here, as in Dynamo's service, it is that and the " +
				"GPUs' KV, which all the programs fit in, though the host has copies of what the GPUs have"}},
		{name: "growing host tier: one pod, 128 programs", source: hostSource, quick: true, run: growingTier},
		{name: "slow offload: mini-SWE-agent, GLM-4.6 fp8, TP8 on 8 H100, LMCache", source: paper + ", figure 7a; at 5.64 GB/s, what ai-dynamo/dynamo PR 10202 " +
			"measured for moving KV between H100s", quick: true, run: slowOffload,
			missed: map[string]string{"24 programs: LMCache / vLLM": "LMCache stops the step to copy what it saves (enable_async_loading and use_layerwise false); here copies move beside it"}},
	}
}

const hostSource = "zetxqx, ThunderAgent behind a gateway, a CPU tier of 3.9 times the KV of the GPUs; hit rate .002 and 2.12x without it"

// pod is one pod, with so much host memory. Its KV is fp8: 48 KiB a token.
func pod(programs int, host string) sim.Deployment {
	d := onPods(1, programs)
	d.DType.KV, d.KV.Host.Capacity = "fp8", host
	return d
}

// gated puts ThunderAgent before a pod, with the host's memory in its budget or without.
func gated(d sim.Deployment, host bool) sim.Deployment {
	d = served(d, "thunderagent")
	d.Router.ThunderAgent = podVariant
	d.Router.ThunderAgent.Parameters = maps.Clone(podVariant.Parameters)
	d.Router.ThunderAgent.Parameters["host_tier"] = host
	return d
}

func outputTokens(o *outcome) float64 { return o.figures.Throughput.OutputTokensPerS.Value }

// ahead is how far one outcome is ahead of another.
func ahead(one, of *outcome) float64 { return outputTokens(one) / outputTokens(of) }

func hostTier(l *lab) ([]check, error) {
	w, err := l.workload("claude-code", podWork...)
	if err != nil {
		return nil, err
	}
	var setups []setup
	for _, n := range hostPrograms {
		for _, host := range []string{"0", "400GiB"} {
			d := pod(n, host)
			setups = append(setups, setup{w, served(d, "kv")}, setup{w, gated(d, false)})
		}
		setups = append(setups, setup{w, gated(pod(n, "400GiB"), true)})
	}
	o, err := l.run(setups...)
	if err != nil {
		return nil, err
	}
	var list []check
	for i, n := range hostPrograms {
		bare, bareGated, open, gpus, both := &o[5*i], &o[5*i+1], &o[5*i+2], &o[5*i+3], &o[5*i+4]
		what := func(s string) string { return fmt.Sprintf("%d programs: %s", n, s) }
		published := func(system int) float64 { return hostTokens[system][i] / hostTokens[0][i] }
		list = append(list, shown(what("working set / KV of the GPUs"), nan, bare.workingSet(), percent),
			shown(what("hit rate without gate and host tier"), nan, bare.hit(), percent),
			shown(what("hit rate without gate"), nan, open.hit(), percent),
			shown(what("no gate, output tokens/s"), hostTokens[0][i], outputTokens(open), number),
			shown(what("gate / no gate, without a host tier"), nan, ahead(bareGated, bare), times))
		if open.workingSet() < 3.9 { // the tier holds it
			list = append(list, within(what("gate of the GPUs / no gate"), published(1), ahead(gpus, open), 1, 0.8*ahead(bareGated, bare), times))
		} else {
			list = append(list, within(what("gate of the GPUs / no gate"), published(1), ahead(gpus, open), 1.2, none, times))
		}
		list = append(list, lead(what("gate of both / no gate"), published(2), ahead(both, open)))
	}
	return list, nil
}

// growingTier makes the host tier larger, from none to what holds all programs.
func growingTier(l *lab) ([]check, error) {
	w, err := l.workload("claude-code", podWork...)
	if err != nil {
		return nil, err
	}
	sizes := []string{"0", "x1", "x2", "x3", "x4"}
	var setups []setup
	for _, size := range sizes {
		d := pod(128, size)
		d.Load.Warmup, d.Load.Duration = 5*time.Minute, 15*time.Minute
		setups = append(setups, setup{w, served(d, "kv")}, setup{w, gated(d, false)})
	}
	o, err := l.run(setups...)
	if err != nil {
		return nil, err
	}
	first := ahead(&o[1], &o[0])
	list := []check{shown("working set / KV of the GPUs", nan, o[0].workingSet(), percent),
		within("ThunderAgent / kv without a host tier", 2.12, first, 1.5, none, times)}
	for i, size := range sizes[1:] {
		base, thunder := &o[2*i+2], &o[2*i+3]
		// One that is too small for all holds what a gate lets in, and nothing without: the gain may even grow a little.
		high := 1.2 * first
		if base.workingSet() < float64(i+1) {
			high = 0.5 * first
		}
		list = append(list, within(fmt.Sprintf("ThunderAgent / kv with %s the GPUs' KV", size), nan, ahead(thunder, base), 1, high, times))
	}
	return list, nil
}

// slowOffload reads and writes the host's memory at the rate that KV moved between machines.
func slowOffload(l *lab) ([]check, error) {
	w, err := l.workload("mini-swe-agent")
	if err != nil {
		return nil, err
	}
	var setups []setup
	for _, n := range panelA.programs {
		plain := served(glm(1, n), "kv")
		plain.Load.Duration = 30 * time.Minute
		always := plain
		always.KV.Preset, always.KV.Host.Capacity, always.KV.Host.Read = "lmcache", "1TB", "5.64GB/s"
		faster := always
		faster.KV.Fetch = "faster"
		setups = append(setups, setup{w, plain}, setup{w, always}, setup{w, faster})
	}
	o, err := l.run(setups...)
	if err != nil {
		return nil, err
	}
	published := []float64{111, 54, 62, 40}
	var list []check
	for i, n := range panelA.programs {
		plain, always, faster := &o[3*i], &o[3*i+1], &o[3*i+2]
		of := func(o *outcome) float64 { return o.turnsPerMin() / plain.turnsPerMin() }
		what := func(s string) string { return fmt.Sprintf("%d programs: %s", n, s) }
		list = append(list, shown(what("LMCache, steps/min"), published[i], always.turnsPerMin(), number),
			within(what("LMCache / vLLM"), published[i]/panelA.throughput[fcfs][i], of(always), 0, 0.95, times),
			// What is written stays on the GPUs until it is, which tells where KV is just enough.
			within(what("LMCache that fetches only what is faster / vLLM"), nan, of(faster), 0.9, none, times))
	}
	return list, nil
}
