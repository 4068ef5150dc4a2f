package sim

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/router/policyfile"
)

// TestUsePolicyFile: every part of a file sets the keys that it says, and no others.
func TestUsePolicyFile(t *testing.T) {
	for _, c := range []struct {
		name, text, keys, notes string
		change                  func(r *Router)
	}{
		{"the program scheduler", `
request_classifier: {type: thunderagent, parameters: {pause_threshold: 0.5, buffer_per_program: 100}}
worker_selection: {aggregated: a, instances: [{name: a, type: thunderagent}]}`,
			// The target follows from the threshold: 0.8 would be above it.
			"router.policy router.thunderagent.gates router.thunderagent.parameters.buffer_per_program router.thunderagent.parameters.pause_target " +
				"router.thunderagent.parameters.pause_threshold router.thunderagent.preset", "",
			func(r *Router) {
				r.Policy = "thunderagent"
				r.ThunderAgent.Parameters = map[string]any{"pause_threshold": 0.5, "pause_target": 0.5, "buffer_per_program": 100}
			}},
		{"the scorer alone", `worker_selection: {aggregated: a, instances: [{name: a, type: thunderagent}]}`,
			"router.policy router.thunderagent.gates", "",
			func(r *Router) { r.Policy, r.ThunderAgent.Gates = "thunderagent", "none" }},
		{"costs", `
worker_selection:
  aggregated: warm
  instances:
    - name: warm
      type: dynamo-default-cost-fn
      parameters: {prefill_load_scale: 4, router_temperature: 0.5, disk_cache_hit_weight: 0.1, shared_cache_multiplier: 0.5, seed: 3}`,
			"router.disk_cache_hit_weight router.policy router.prefill_load_scale router.temperature", "shared_cache_multiplier seed",
			func(r *Router) { r.PrefillLoadScale, r.Temperature, r.DiskCacheHitWeight = 4, 0.5, 0.1 }},
		{"another policy", `worker_selection: {aggregated: a, instances: [{name: a, type: lmetric}]}`,
			"router.policy", "", func(r *Router) { r.Policy = "lmetric" }},
		{"an instance that is not chosen", `worker_selection: {instances: [{name: a, type: lmetric}]}`,
			"", "", func(*Router) {}},
		{"queues", `
default_policy_family: f
uncached_isl_buckets: [{min_tokens: 0, bucket: short}, {min_tokens: 1000, bucket: long}]
policy_classes:
  - {name: a, policy_family: f, cache_bucket: short, quantum: 10, prefill_busy_threshold: 0, busy_worker_ratio: 0.5, request_queue_limit_per_worker: 3}
  - {name: b, policy_family: f, cache_bucket: long, quantum: 20, queue_policy: wspt, prefill_busy_threshold_frac: 2, raw_isl_token_queue_limit_per_worker: 4, cached_token_queue_limit_per_worker: 5}`,
			"router.busy_worker_ratio router.default_policy_family router.policy_classes router.queue_policy router.queue_threshold " +
				"router.queue_threshold_tokens router.uncached_isl_buckets", "",
			func(r *Router) {
				r.DefaultFamily, r.Buckets = "f", []router.Bucket{{MinTokens: 0, Name: "short"}, {MinTokens: 1000, Name: "long"}}
				r.Classes = []router.Class{
					{Name: "a", Family: "f", Bucket: "short", Policy: "fcfs", Quantum: 10, ThresholdTokens: new(int64(0)), BusyWorkerRatio: new(0.5),
						RequestLimit: new(int64(3))},
					{Name: "b", Family: "f", Bucket: "long", Policy: "wspt", Quantum: 20, Threshold: new(2.0), TokenLimit: new(int64(4)), CachedLimit: new(int64(5))},
				}
			}},
	} {
		f, err := policyfile.Parse("f.yaml", []byte(c.text))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, want := Default(), Default()
		keys, notes, err := got.Router.UsePolicyFile(f)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		c.change(&want.Router)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if set := strings.Join(slices.Sorted(maps.Keys(keys)), " "); set != c.keys {
			t.Errorf("%s: sets %s, want %s", c.name, set, c.keys)
		}
		said := strings.Join(notes, "\n")
		for _, word := range strings.Fields(c.notes) {
			if !strings.Contains(said, word) {
				t.Errorf("%s: the notes %q do not speak of %s", c.name, said, word)
			}
		}
		if c.notes == "" && said != "" {
			t.Errorf("%s: notes %q", c.name, said)
		}
		got.Model, got.Parallelism.Tensor = "qwen3-14b", 1
		if _, err := got.Resolve(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestPolicyFileRefused: what is not simulated is not left out in silence.
func TestPolicyFileRefused(t *testing.T) {
	for text, want := range map[string]string{
		"request_classifier: {type: thunderagent}": "worker_selection",
		"models: {m: {default_policy_family: f, uncached_isl_buckets: [{min_tokens: 0, bucket: b}], policy_classes: [{name: a, policy_family: f, cache_bucket: b, quantum: 1}]}}": "models",
	} {
		f, err := policyfile.Parse("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		d := Default()
		if _, _, err := d.Router.UsePolicyFile(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %s", text, err, want)
		}
	}
	d := fleetOf(1, "kv", 1)
	d.Router.PolicyConfig = "file.yaml"
	if _, err := d.Resolve(); err == nil {
		t.Error("a policy file that nobody read is ignored")
	}
}
