package main

import (
	"fmt"
)

// Steps a minute of four workers that all prefill and decode, and of one, two and three of them that only prefill for the others.
var splitSteps = []float64{214.9, 87.05, 160.10, 183.15}

func splits() []study {
	return []study{
		{name: "prefill and decode apart: mini-SWE-agent, four workers of GLM-4.6 fp8, TP8 on 8 H100",
			source: "arXiv 2602.13692, figure 7b, four units; which model, and how many programs, is not known: 24 and 48 for each worker",
			run:    split},
	}
}

// split compares four workers with the same four of which some only prefill. Agents find nearly all of their prompts in a cache
// that they reach; where prefill and decode are apart, all of them must fit the caches of the former, and answers are computed again.
func split(l *lab) (list []check, err error) {
	w, err := l.workload("mini-swe-agent")
	if err != nil {
		return nil, err
	}
	for _, programs := range []int{96, 192} {
		var setups []setup
		for prefill := range splitSteps {
			d := served(glm(4, programs), "kv")
			d.Disaggregation.PrefillWorkers = prefill
			setups = append(setups, setup{w, d})
		}
		o, err := l.run(setups...)
		if err != nil {
			return nil, err
		}
		all := o[0].turnsPerMin()
		list = append(list, shown(fmt.Sprintf("%d programs: aggregated, steps/min", programs), splitSteps[0], all, number))
		for prefill := 1; prefill < len(o); prefill++ {
			what := fmt.Sprintf("%d programs: p:d %d:%d / aggregated", programs, prefill, len(o)-prefill)
			published, simulated := splitSteps[prefill]/splitSteps[0], o[prefill].turnsPerMin()/all
			if programs == 96 { // aggregated wins
				list = append(list, within(what, published, simulated, 0, 1, times))
			} else {
				list = append(list, near(what, published, simulated, 0.3, times))
			}
			moved := o[prefill].figures.Disaggregation.TTFT.Transfer.MeanMs.Value
			list = append(list, shown(what+": transfer in the mean, ms", nan, moved, number))
		}
		list = append(list, within(fmt.Sprintf("%d programs: p:d 1:3 / 2:2", programs), splitSteps[1]/splitSteps[2], o[1].turnsPerMin()/o[2].turnsPerMin(), 0, 0.9, times))
	}
	return list, nil
}
