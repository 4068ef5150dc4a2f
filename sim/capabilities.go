package sim

import (
	"fmt"

	"github.com/agentsim/agentsim/trace"
)

// capability is what a hint of calls needs to have an effect.
type capability struct {
	hint  string
	given func(trace.Hints) bool
	works func(*Plan) bool
	needs string
}

// capabilities are what engines and routers can do with hints. TensorRT-LLM can do nothing with any; a priority below 0
// counts as 0 in Dynamo's router queue (lib/kv-router).
var capabilities = []capability{
	{"priority above 0", func(h trace.Hints) bool { return h.Priority > 0 },
		func(p *Plan) bool { return p.ranksByPriority() || p.Router.Queue.Waits() },
		"engine.scheduling or engine.kv_eviction priority, or a threshold of the router's queue"},
	{"priority below 0", func(h trace.Hints) bool { return h.Priority < 0 }, (*Plan).ranksByPriority,
		"engine.scheduling or engine.kv_eviction priority; the router's queue takes it as 0"},
	{"strict_priority", func(h trace.Hints) bool { return h.StrictPriority > 0 },
		func(p *Plan) bool { return p.Router.Queue.Waits() }, "a threshold of the router's queue (router.queue_threshold)"},
	{"osl", func(h trace.Hints) bool { return h.OSL > 0 },
		func(p *Plan) bool { return p.Router.TrackOutputBlocks }, "router.track_output_blocks"},
	{"policy_class", func(h trace.Hints) bool { return h.PolicyClass != "" },
		func(p *Plan) bool { return len(p.Router.Classes) > 0 }, "router.policy_classes"},
	{"speculative_prefill", func(h trace.Hints) bool { return h.SpeculativePrefill },
		func(p *Plan) bool { return p.rules.any(doSpeculate) }, "kv.policy speculative-prefill"},
}

// ranksByPriority tells whether an engine looks at priorities.
func (p *Plan) ranksByPriority() bool {
	return p.Engine.Scheduling == "priority" || p.Engine.KVEviction == "priority"
}

// idleHints says which hints of a workload's calls the deployment can do nothing with.
func (p *Plan) idleHints(w *trace.Workload) []string {
	counts := make([]int, len(capabilities))
	for i := range w.Calls {
		h := p.hints(w, int32(i))
		if h == (trace.Hints{}) {
			continue
		}
		for j := range capabilities {
			if capabilities[j].given(h) {
				counts[j]++
			}
		}
	}
	var idle []string
	for i, c := range capabilities {
		if counts[i] > 0 && !c.works(p) {
			idle = append(idle, fmt.Sprintf("hint %s (%d of %d calls) has no effect: it takes %s", c.hint, counts[i], len(w.Calls), c.needs))
		}
	}
	return idle
}

// idleSettings says which settings of the program scheduler have no effect.
func (p *Plan) idleSettings() []string {
	s := p.scheduler
	if s == nil || p.Router.Queue.Waits() {
		return nil
	}
	var idle []string
	for _, jump := range []struct {
		key   string
		value float64
	}{{"soft_demote_priority_jump", s.SoftDemotePriorityJump}, {"resume_priority_boost", s.ResumePriorityBoost}} {
		if jump.value != 0 {
			idle = append(idle, fmt.Sprintf("the program scheduler's %s of %v s has no effect: requests never wait in the router's queue (router.queue_threshold)",
				jump.key, jump.value))
		}
	}
	return idle
}
