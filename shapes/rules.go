package main

import (
	"fmt"

	"github.com/agentsim/agentsim/router"
)

func rules() []study {
	return []study{
		{name: "equal: KV capacity that never binds, one worker", source: "what must be: no policy has anything to decide", quick: true, run: equal},
		{name: "gates none: ThunderAgent's scorer without its table", source: "what must be: the same run, request by request", quick: true, run: gatesNone},
		{name: "fall: hit rate of vLLM with the load, mini-SWE-agent, GLM-4.6 fp8", source: "two nodes and four pods: from over 90% to almost 0 within 2 to 3 times the load",
			run: fall},
		{name: "tools: Continuum with short regular tools and with stochastic ones, GLM-4.6 fp8, 96 programs",
			source: "arXiv 2602.13692, figure 4: ahead of vLLM on SWE-bench (213 to 140), behind on HLE (3.1 to 4.8), whose tools take up to hundreds of seconds",
			run:    tools,
			missed: map[string]string{stochastic + ": Continuum / vLLM": lease}},
	}
}

func equal(l *lab) ([]check, error) {
	w, err := l.workload("mini-swe-agent")
	if err != nil {
		return nil, err
	}
	d := glm(1, 24)
	d.Engine.KVBlocks = "1000000"
	var setups []setup
	policies := router.Policies()
	for _, policy := range policies {
		setups = append(setups, setup{w, served(d, policy)})
	}
	o, err := l.run(setups...)
	if err != nil {
		return nil, err
	}
	low, high := o[0].turnsPerMin(), o[0].turnsPerMin()
	for i := range o {
		low, high = min(low, o[i].turnsPerMin()), max(high, o[i].turnsPerMin())
	}
	return []check{within(fmt.Sprintf("fastest / slowest of %d policies", len(policies)), nan, high/low, 1, 1.005, func(x float64) string { return fmt.Sprintf("%.4f", x) })}, nil
}

func gatesNone(l *lab) ([]check, error) {
	w, err := l.workload("mini-swe-agent")
	if err != nil {
		return nil, err
	}
	open := served(glm(2, 96), "thunderagent")
	open.Router.ThunderAgent.Gates = "none"
	unseen := served(glm(2, 96), "thunderagent")
	unseen.Router.Unlabelled = 1 // the table sees no request
	o, err := l.run(setup{w, open}, setup{w, unseen})
	if err != nil {
		return nil, err
	}
	a, b := o[0].run.Requests, o[1].run.Requests
	different := max(len(a), len(b)) - min(len(a), len(b))
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			different++
		}
	}
	return []check{within(fmt.Sprintf("requests that differ, of %d", len(a)), nan, float64(different), 0, 0, number)}, nil
}

// fall looks for the most programs with a hit rate above 90 % and the fewest with one below 10 %.
func fall(l *lab) ([]check, error) {
	w, err := l.workload("mini-swe-agent")
	if err != nil {
		return nil, err
	}
	var setups []setup
	var loads []int
	for n := 24; n <= 96; n += 8 {
		loads = append(loads, n)
		setups = append(setups, setup{w, served(glm(1, n), "kv")})
	}
	o, err := l.run(setups...)
	if err != nil {
		return nil, err
	}
	var list []check
	last, first := 0, 0
	for i, n := range loads {
		hit := o[i].hit()
		list = append(list, shown(fmt.Sprintf("%d programs: hit rate", n), nan, hit, percent))
		if hit > 0.9 {
			last = n
		} else if hit < 0.1 && first == 0 {
			first = n
		}
	}
	return append(list, within("load at 10% / load at 90%", nan, float64(first)/float64(last), 1, 3, times)), nil
}

const stochastic = "tools of 20 s in the mean, σ 2.51"

const lease = "the lease here is that of Continuum's paper, which weighs the distribution of a tool's times; its preview pins where their " +
	"mean is below 2 s, and may be what was measured"

// tools checks the leases of Continuum's paper rather than its preview, which ignores the spread of a tool's times.
func tools(l *lab) ([]check, error) {
	var list []check
	for _, c := range []struct {
		what, profile, tool  string
		published, low, high float64
	}{
		{"tools of 0.5 s each", "mini-swe-agent", "tool=0.5:0.5", 213.0 / 140, 1.05, none},
		{"tools of 5 s each", "mini-swe-agent", "tool=5:5", nan, 1.05, none},
		{stochastic, "openhands", "tool=20", 3.1 / 4.8, 0, 1},
	} {
		w, err := l.workload(c.profile, c.tool)
		if err != nil {
			return nil, err
		}
		d := glm(1, 96)
		leased := withSystem(d, fcfs)
		leased.Engine.Scheduling = "continuum"
		pinned := withSystem(d, fcfs)
		pinned.KV.Policy = "continuum"
		first := pinned
		first.Engine.Scheduling = "priority" // which lets pinned sessions go first
		o, err := l.run(setup{w, withSystem(d, fcfs)}, setup{w, leased}, setup{w, first}, setup{w, pinned})
		if err != nil {
			return nil, err
		}
		of := func(i int) float64 { return o[i].turnsPerMin() / o[0].turnsPerMin() }
		list = append(list, within(c.what+": Continuum / vLLM", c.published, of(1), c.low, c.high, times),
			within(c.what+": kv.policy continuum, pinned sessions first / vLLM", nan, of(2), 1.05, none, times),
			// In order of arrival a pin often ends before its request has its turn: it only withholds.
			within(c.what+": kv.policy continuum alone / vLLM", nan, of(3), 0, 1, times))
	}
	return list, nil
}
