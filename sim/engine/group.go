package engine

import "fmt"

// Group is the attention data-parallel ranks of one worker whose model has experts on all of them. Each rank has its own
// requests, KV cache and schedule, but experts meet the tokens of all ranks in every layer, so all step together and the
// slowest sets the pace. A rank that has nothing to do takes part with a dummy batch of one token (vLLM:
// DPEngineCoreProc.run_busy_loop, execute_dummy_batch in vllm/v1/engine/core.py; SGLang: prepare_mlp_sync_batch in
// sglang/srt/managers/scheduler_dp_attn_mixin.py). When none has anything to do they rest. Padding of the smaller batches
// to the size of the largest is not simulated.
//
// The group leaps as far as each of its ranks would and the same rank stays the slowest: then all its steps are on a
// straight line too.
type Group struct {
	ranks []*Engine
	// absent is the number of ranks that are not simulated and never have anything to do.
	absent int
}

// NewGroup makes a group of size ranks. Engines have Options.Lockstep set; where there are fewer, the others stay idle.
func NewGroup(engines []*Engine, size int) *Group {
	return &Group{ranks: engines, absent: size - len(engines)}
}

// Start puts the steps that all ranks have scheduled at the same time in flight.
func (g *Group) Start() {
	tokens := int64(g.absent)
	var slowest *Engine
	for _, e := range g.ranks {
		if !e.busy {
			tokens++
			continue
		}
		tokens += e.tokens
		if slowest == nil || e.first > slowest.first || e.first == slowest.first && e.slope > slowest.slope {
			slowest = e
		}
	}
	if slowest == nil {
		return
	}
	steps := slowest.steps
	for _, e := range g.ranks {
		if e.busy && e.slope > slowest.slope { // in step number i from 0 it takes e.first + i*e.slope
			steps = min(steps, 1+int64((slowest.first-e.first)/(e.slope-slowest.slope)))
		}
		if e.busy {
			steps = min(steps, e.steps)
		}
	}
	first, slope := slowest.first+slowest.cost.Shared(tokens), slowest.slope
	for _, e := range g.ranks {
		if !e.busy {
			e.busy, e.decodes, e.shape = true, 0, shape{}
		}
		e.first, e.slope, e.steps = first, slope, steps
		for e.steps > 1 && e.tooLong() {
			e.steps /= 2
		}
	}
}

// Align cuts the leap of all ranks to that of the shortest, after one of them has got or lost a request.
func (g *Group) Align() {
	steps := g.ranks[0].steps
	for _, e := range g.ranks {
		steps = min(steps, e.steps)
	}
	for _, e := range g.ranks {
		e.steps = steps
	}
}

// Check verifies that all ranks are in the same step.
func (g *Group) Check() error {
	first := g.ranks[0]
	for i, e := range g.ranks {
		if e.busy != first.busy || e.busy && e.Next() != first.Next() {
			return fmt.Errorf("engine: rank %d of a group ends its step at %v, rank 0 at %v", i, e.Next(), first.Next())
		}
	}
	return nil
}
