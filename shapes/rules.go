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
