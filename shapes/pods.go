package main

import (
	"fmt"
	"time"

	"github.com/agentsim/agentsim/sim"
)

// The runs of four pods under Claude Code sessions: programs at a time, tokens a second and hit rates without and with
// ThunderAgent.
var (
	podPrograms = []int{48, 96, 128, 192, 256, 338}
	podTokens   = [2][]float64{{2014, 1541, 1151, 1065, 999, 1050}, {1972, 1536, 1382, 1342, 1438, 1538}}
	podHits     = [2][]float64{{.932, .725, .336, .043, .002, .002}, {.930, .706, .479, .309, .257, .236}}
)

// podKV is the KV blocks of a pod: 2,237,040 tokens.
const podKV = "139815"

// The published prompts have a median of 51,000 to 56,000 tokens and answers a mean of 557: claude-code with its results
// and answers stretched to that, without subagents, whose short prompts would count in the median. A hit rate of 0.002 under
// load tells that the replayed sessions share no system prompt: it is a part of each one's task.
var podWork = []string{"output=557", "result=1100", "subagents=0", "system=0", "task=13400:13400"}

// podVariant is what was changed in ThunderAgent there: tokens of acting programs decay, and a session is forgotten after
// 30 s without a request.
var podVariant = sim.ThunderAgent{Gates: "on", Parameters: map[string]any{
	"session_retention_seconds": 30, "acting_decay": map[string]any{"resume": true, "pause": true, "forced": true}}}

func pods() []study {
	return []study{{
		name:   "four pods: Qwen3-Coder-30B-A3B fp8, TP2, Claude Code sessions, tool gaps up to 10 s",
		source: "zetxqx, ThunderAgent behind a gateway: knee at a working set of 0.75 to 0.87 of KV",
		run:    fourPods,
		missed: map[string]string{
			"48 programs: output tokens/s, ThunderAgent / kv": podScorer,
			"96 programs: output tokens/s, ThunderAgent / kv": podScorer,
			"96 programs: kv hit rate":                        podGaps,
			"128 programs: kv hit rate":                       podGaps,
			"96 programs: ThunderAgent hit rate":              podGate,
			"128 programs: ThunderAgent hit rate":             podGate,
			"192 programs: ThunderAgent hit rate":             podGate,
			"256 programs: ThunderAgent hit rate":             podGate,
			"338 programs: ThunderAgent hit rate":             podGate,
		},
	}}
}

const (
	podScorer = "there one gateway chose the pods with and without the gate; here kv moves sessions to even out the load, and " +
		"policy thunderagent brings its own scorer, which leaves them where their KV is"
	podGaps = "seven of ten tools of the profile end in 24 ms and find their KV; the gaps of the replayed sessions are not published. " +
		"With tool=5:15 kv finds 70% and 60%"
	podGate = "there the gate lets in more than the KV holds: hits fall with the load that it should hold back. What it counts is " +
		"not published; here the budget is kept"
)

// onPods returns a deployment on so many pods, with KV blocks as theirs.
func onPods(pods, programs int) sim.Deployment {
	d := deploy("qwen3-30b-a3b", 2, pods, programs) // the architecture of Qwen3-Coder-30B-A3B
	d.Engine.MaxModelLen, d.Engine.KVBlocks = 262144, podKV
	d.Load.MaxGap, d.Load.Start, d.Load.Duration = "10s", "snapshot", 30*time.Minute
	return d
}

func fourPods(l *lab) ([]check, error) {
	w, err := l.workload("claude-code", podWork...)
	if err != nil {
		return nil, err
	}
	var setups []setup
	for _, n := range podPrograms {
		d := onPods(4, n)
		thunder := served(d, "thunderagent")
		thunder.Router.ThunderAgent = podVariant
		setups = append(setups, setup{w, served(d, "kv")}, setup{w, thunder})
	}
	o, err := l.run(setups...)
	if err != nil {
		return nil, err
	}
	var list []check
	below, knee := 0.0, 0.0 // the working set where the hit rate of kv falls through half of its first
	for i, n := range podPrograms {
		base, thunder := &o[2*i], &o[2*i+1]
		set := base.workingSet()
		what := func(s string) string { return fmt.Sprintf("%d programs: %s", n, s) }
		list = append(list,
			shown(what("working set / KV"), nan, set, percent),
			points(what("kv hit rate"), podHits[0][i], base.hit(), 0.1),
			points(what("ThunderAgent hit rate"), podHits[1][i], thunder.hit(), 0.1),
			lead(what("output tokens/s, ThunderAgent / kv"), podTokens[1][i]/podTokens[0][i],
				thunder.figures.Throughput.OutputTokensPerS.Value/base.figures.Throughput.OutputTokensPerS.Value))
		if half := o[0].hit() / 2; knee == 0 && i > 0 && base.hit() < half {
			before := o[2*i-2].hit()
			knee = below + (set-below)*(before-half)/(before-base.hit())
		}
		below = set
	}
	return append(list, within("knee: working set / KV where kv finds half as much", 0.81, knee, 0.75*0.75, 0.87*1.25, percent)), nil
}

// lead checks who is ahead: which side of 1 a ratio is on, where within 5 % of it nobody is.
func lead(what string, published, simulated float64) check {
	switch {
	case published > 1.05:
		return within(what, published, simulated, 1.05, none, times)
	case published < 0.95:
		return within(what, published, simulated, 0, 0.95, times)
	}
	return within(what, published, simulated, 0.95, 1.05, times)
}
