package main

import (
	"fmt"
	"time"

	"github.com/agentsim/agentsim/sim"
)

func fleets() []study {
	return []study{
		{name: "rollout: 144 programs on two nodes of 8 H100, GLM-4.6 fp8", source: "arXiv 2602.13692, table 2; gateway: program-count, the authors' own mode without scheduling", run: rollout},
		{name: "drift: two nodes under 144 programs for 90 minutes, mini-SWE-agent, GLM-4.6 fp8", source: "arXiv 2602.13692: under a sticky gateway nodes are 20% apart in 37 of 90 minutes, 51% at most",
			run: drift},
		{name: "gain over the KV router: MiniMax-M2.5, two TP4 workers on 8 H100, 128 programs", source: "ai-dynamo/dynamo, thunderagent_router README: 12 to 16% (MiniMax-M2, SWE-bench Lite)", run: minimax,
			missed: map[string]string{"KV fp8, mini-swe-agent as it is: gain": "the two workers hold 947,000 tokens, half of what 128 programs of 14,700 tokens in the mean hold, " +
				"and kv thrashes. The mean context of the published runs is not known; the sweep says where their gain lies"}},
	}
}

// rollout runs a batch of 144 programs that begin together.
func rollout(l *lab) (list []check, err error) {
	for _, r := range []struct {
		profile       string
		gateway, gain float64
	}{{"mini-swe-agent", 375.4, 1.79}, {"openhands", 69.1, 3.92}} {
		w, err := l.workload(r.profile)
		if err != nil {
			return nil, err
		}
		d := glm(2, 0)
		d.Load = sim.Default().Load
		d.Load.Mode, d.Load.Programs = "rollout", 144
		o, err := l.run(setup{w, served(d, "program-count")}, setup{w, served(d, "thunderagent")})
		if err != nil {
			return nil, err
		}
		gateway, thunder := &o[0], &o[1]
		list = append(list,
			shown(r.profile+": gateway, steps/min", r.gateway, gateway.turnsPerMin(), number),
			within(r.profile+": ThunderAgent / gateway", r.gain, thunder.turnsPerMin()/gateway.turnsPerMin(), 1.05, none, times))
	}
	return list, nil
}

// drift keeps 144 programs alive, and looks at how far the tokens that they hold on two nodes are apart.
func drift(l *lab) ([]check, error) {
	w, err := l.workload("mini-swe-agent")
	if err != nil {
		return nil, err
	}
	d := glm(2, 144)
	d.Load.Warmup, d.Load.Duration = warmup, 90*time.Minute
	o, err := l.run(setup{w, served(d, "program-count")}, setup{w, served(d, "thunderagent")})
	if err != nil {
		return nil, err
	}
	often, most := o[0].apart()
	seldom, least := o[1].apart()
	return []check{
		within("program-count: minutes with nodes 20% apart", 37.0/90, often, 0.1, 1, percent),
		within("program-count: farthest apart", 0.51, most, 0.2, 1, percent),
		within("ThunderAgent: minutes with nodes 20% apart", nan, seldom, 0, often/2, percent),
		shown("ThunderAgent: farthest apart", nan, least, percent),
	}, nil
}

// minimax sweeps the length of programs, and with it the mean context, and the number format of the KV cache.
func minimax(l *lab) ([]check, error) {
	var list []check
	type point struct{ context, gain float64 }
	for _, kv := range []string{"bf16", "fp8"} {
		var curve []point
		for _, turns := range []int{10, 14, 18, 24, 32, 0} {
			var set []string
			if turns > 0 {
				set = []string{fmt.Sprintf("turns=%d", turns)}
			}
			w, err := l.workload("mini-swe-agent", set...)
			if err != nil {
				return nil, err
			}
			d := deploy("minimax-m2.5", 4, 2, 128)
			d.DType.KV = kv
			o, err := l.run(setup{w, served(d, "kv")}, setup{w, served(d, "thunderagent")})
			if err != nil {
				return nil, err
			}
			context := 0.0
			for i := range w.Calls {
				context += float64(w.Calls[i].Input) / float64(len(w.Calls))
			}
			p := point{context, o[1].turnsPerMin()/o[0].turnsPerMin() - 1}
			what := fmt.Sprintf("KV %s, mean context %.0f: gain", kv, context)
			if c := shown(what, nan, p.gain, gain); turns > 0 {
				c.simulated += fmt.Sprintf(" (%.0f and %.0f turns/min)", o[1].turnsPerMin(), o[0].turnsPerMin())
				list = append(list, c)
			} else if kv == "fp8" {
				list = append(list, within("KV fp8, mini-swe-agent as it is: gain", 0.16, p.gain, 0.05, 0.6, gain))
			} else {
				list = append(list, shown("KV bf16, mini-swe-agent as it is: gain", 0.16, p.gain, gain))
			}
			curve = append(curve, p)
		}
		at := check{what: fmt.Sprintf("KV %s: the gain is 16%% at a mean context of", kv), simulated: "nowhere on this sweep"}
		for i := 1; i < len(curve); i++ {
			if a, b := curve[i-1], curve[i]; (a.gain-0.16)*(b.gain-0.16) <= 0 {
				at.simulated = fmt.Sprintf("%.0f tokens", a.context+(b.context-a.context)*(0.16-a.gain)/(b.gain-a.gain))
				break
			}
		}
		list = append(list, at)
	}
	return list, nil
}
