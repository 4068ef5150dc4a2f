package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

// Each hint, what makes it work, and what a run without that says of it.
func TestIdleHints(t *testing.T) {
	for _, test := range []struct {
		hints  trace.Hints
		name   string // how the warning begins; "" for none
		change func(*Deployment)
	}{
		{trace.Hints{Priority: 3}, "priority above 0", func(d *Deployment) { d.Engine.Scheduling = "priority" }},
		{trace.Hints{Priority: 3}, "priority above 0", func(d *Deployment) { d.Router.ThresholdTokens = 100 }},
		{trace.Hints{Priority: -3}, "priority below 0", func(d *Deployment) { d.Engine.Scheduling = "priority" }},
		{trace.Hints{StrictPriority: 1}, "strict_priority", func(d *Deployment) { d.Router.Threshold = 1 }},
		{trace.Hints{OSL: 100}, "osl", func(d *Deployment) { d.Router.TrackOutputBlocks = true }},
		{trace.Hints{SpeculativePrefill: true}, "speculative_prefill", nil},
		{trace.Hints{PolicyClass: "fast"}, "policy_class", nil},
		{trace.Hints{}, "", func(*Deployment) {}},
	} {
		w := compile(t, single("a", 100, 12, 0, test.hints), single("b", 200, 12, 1*ms, trace.Hints{}))
		d := fixed()
		d.Engine.KVBlocks = "20001" // the longest context fits
		got := mustRun(t, w, d).Report(nil, nil).Warnings
		if test.name == "" && len(got) > 0 || test.name != "" && (len(got) != 1 || !strings.HasPrefix(got[0], "hint "+test.name+" (1 of 2 calls) has no effect: ")) {
			t.Errorf("%+v: warnings are %q, want one about %q", test.hints, got, test.name)
		}
		if test.change == nil {
			continue
		}
		test.change(&d)
		if got := mustRun(t, w, d).Report(nil, nil).Warnings; len(got) > 0 {
			t.Errorf("%+v works, but the run warns %q", test.hints, got)
		}
	}
}

// The jumps of Dynamo's Python service order the router's queue, which by default nothing enters.
func TestIdleSettings(t *testing.T) {
	w := compile(t, single("a", 100, 12, 0, trace.Hints{}))
	d := fixed()
	d.Router.Policy, d.Router.ThunderAgent.Preset = "thunderagent", "dynamo-python"
	about := func(d Deployment, key string) bool {
		return slices.ContainsFunc(mustRun(t, w, d).Report(nil, nil).Warnings, func(s string) bool { return strings.Contains(s, key) })
	}
	for _, key := range []string{"soft_demote_priority_jump of -2 s", "resume_priority_boost of 1 s"} {
		queued, native := d, d
		queued.Router.Threshold = 1
		native.Router.ThunderAgent.Preset = "dynamo-native"
		if !about(d, key) || about(queued, key) || about(native, key) {
			t.Errorf("%s: warned of %v, with a queue %v, by the native plugin %v; want the first only", key, about(d, key), about(queued, key), about(native, key))
		}
	}
}
