package policyfile

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// thunderagent is the example of the plugin's documentation, with some values changed.
const thunderagent = `
request_classifier:
  type: thunderagent
  parameters:
    pause_threshold: 0.9
    pause_target: 0.70
    scheduler_interval_seconds: 2.5
    buffer_per_program: 64
    shared_prefix_budget: true
worker_selection:
  aggregated: agents
  instances:
    - name: agents
      type: thunderagent
      parameters: {}
`

func TestThunderAgent(t *testing.T) {
	f, err := Parse("thunderagent.yaml", []byte(thunderagent))
	if err != nil {
		t.Fatal(err)
	}
	want := &ThunderAgent{
		Given:          []string{"buffer_per_program", "pause_target", "pause_threshold", "scheduler_interval_seconds", "shared_prefix_budget"},
		PauseThreshold: 0.9, PauseTarget: 0.7, ResumeHysteresis: 0.1,
		ResumeTimeoutSeconds: 1800, SessionRetentionSeconds: 1800, SchedulerIntervalSeconds: 2.5,
		ActingTokenWeight: 1, ActingDecayTauSeconds: 1, BufferPerProgram: 64, MaxTrackedRequests: 10_000, SharedPrefixBudget: true,
	}
	if !reflect.DeepEqual(f.ThunderAgent, want) {
		t.Errorf("%+v, want %+v", f.ThunderAgent, want)
	}
	if f.Selection == nil || f.Selection.Type != TypeThunderAgent || f.Profile != nil || f.Models != nil {
		t.Errorf("selection %+v, profile %v, models %v", f.Selection, f.Profile, f.Models)
	}
}

// TestLowThreshold: what is not given does not contradict what is.
func TestLowThreshold(t *testing.T) {
	f, err := Parse("low.yaml", []byte("request_classifier: {type: thunderagent, parameters: {pause_threshold: 0.05}}"))
	if err != nil || f.ThunderAgent.PauseTarget != 0.05 || f.ThunderAgent.ResumeHysteresis != 0.05 {
		t.Errorf("%+v (%v)", f.ThunderAgent, err)
	}
}

func TestCostParameters(t *testing.T) {
	f, err := Parse("cost.yaml", []byte(`
worker_selection:
  aggregated: warm
  prefill: default
  instances:
    - {name: cold, type: thunderagent}
    - name: warm
      type: dynamo-default-cost-fn
      parameters: {overlap_score_credit: 2, router_temperature: 0.5, seed: 7}
`))
	if err != nil {
		t.Fatal(err)
	}
	credit, temperature, seed := 2.0, 0.5, 7
	want := &Selection{TypeDefaultCost, Cost{OverlapScoreCredit: &credit, RouterTemperature: &temperature, Seed: &seed}}
	if !reflect.DeepEqual(f.Selection, want) {
		t.Errorf("%+v, want %+v", f.Selection, want)
	}
}

// queues has two families in two buckets, and a class of none.
const queues = `
default_policy_family: agents
uncached_isl_buckets:
  - {min_tokens: 0, bucket: warm}
  - {min_tokens: 2048, bucket: cold}
policy_classes:
  - {name: agents-warm, policy_family: agents, cache_bucket: warm, quantum: 4096, prefill_busy_threshold_frac: 16.0}
  - {name: agents-cold, policy_family: agents, cache_bucket: cold, quantum: 1024, queue_policy: wspt}
  - {name: batch-warm, policy_family: batch, cache_bucket: warm, quantum: 512, request_queue_limit_per_worker: 0}
  - {name: batch-cold, policy_family: batch, cache_bucket: cold, quantum: 512, queue_policy: lcfs}
  - {name: urgent, quantum: 8192, prefill_busy_threshold: 100, busy_worker_ratio: 0.5}
`

func TestQueues(t *testing.T) {
	f, err := Parse("queues.yaml", []byte(queues+`
models:
  other/model:
    default_policy_family: one
    uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
    policy_classes: [{name: only, policy_family: one, cache_bucket: all, quantum: 1}]
`))
	if err != nil {
		t.Fatal(err)
	}
	frac, none, threshold, ratio := 16.0, 0, 100, 0.5
	want := &Profile{
		DefaultFamily: "agents",
		Buckets:       []Bucket{{"warm", 0}, {"cold", 2048}},
		Classes: []Class{
			{Name: "agents-warm", Family: "agents", Bucket: "warm", QueuePolicy: "fcfs", Quantum: 4096, PrefillBusyThresholdFrac: &frac},
			{Name: "agents-cold", Family: "agents", Bucket: "cold", QueuePolicy: "wspt", Quantum: 1024},
			{Name: "batch-warm", Family: "batch", Bucket: "warm", QueuePolicy: "fcfs", Quantum: 512, RequestQueueLimitPerWorker: &none},
			{Name: "batch-cold", Family: "batch", Bucket: "cold", QueuePolicy: "lcfs", Quantum: 512},
			{Name: "urgent", QueuePolicy: "fcfs", Quantum: 8192, PrefillBusyThreshold: &threshold, BusyWorkerRatio: &ratio},
		},
	}
	if !reflect.DeepEqual(f.Profile, want) {
		t.Errorf("%+v, want %+v", f.Profile, want)
	}
	if m := f.Models["other/model"]; m == nil || m.Classes[0].Name != "only" {
		t.Errorf("models %+v", f.Models)
	}
}

// TestRefusals changes one line of a good file. Each error says where, what and what would do.
func TestRefusals(t *testing.T) {
	for _, c := range []struct{ file, old, new, want string }{
		{thunderagent, "pause_target: 0.70", "pause_target: 0.95", "6:5: request_classifier.parameters.pause_target: 0.95 is above pause_threshold, want 0 to 0.9"},
		{thunderagent, "pause_target: 0.70", "pause_target: -1", `6:5: request_classifier.parameters.pause_target: "-1" is not a number from 0 to 1`},
		{thunderagent, "pause_target: 0.70", "resume_hysteresis: 0.91", "6:5: request_classifier.parameters.resume_hysteresis: 0.91 is above pause_threshold, want 0 to 0.9"},
		{thunderagent, "pause_target: 0.70", "pause_target:", "6:5: request_classifier.parameters.pause_target: no value"},
		{thunderagent, "pause_target: 0.70", `pause_target: "0.7"`, `"0.7" is not a number`},
		{thunderagent, "pause_target: 0.70", "pause_target: .nan", "is not a number from 0 to 1"},
		{thunderagent, "pause_target: 0.70", "pause_target: [0.7]", "pause_target: want one value"},
		{thunderagent, "2.5", "0", `7:5: request_classifier.parameters.scheduler_interval_seconds: "0" is not a number from 1e-09 to`},
		{thunderagent, "64", "64.5", `8:5: request_classifier.parameters.buffer_per_program: "64.5" is not a whole number from 0 to`},
		{thunderagent, "true", "yes", `"yes" is not true or false`},
		{thunderagent, "buffer_per_program", "buffer", `8:5: unknown key "request_classifier.parameters.buffer", want pause_threshold, `},
		{thunderagent, "type: thunderagent\n  parameters:\n", "type: rank_balanced\n  parameters:\n", `3:3: request_classifier.type: "rank_balanced" is unknown, want thunderagent`},
		{thunderagent, "aggregated: agents", "aggregated: agent", `11:3: worker_selection.aggregated: "agent" is no instance, want one of agents, default`},
		{thunderagent, "name: agents", "name: default", `13:7: worker_selection.instances[0].name: "default" is Dynamo's built-in selection`},
		{thunderagent, "type: thunderagent\n      parameters: {}", "type: magic", `worker_selection.instances[0].type: "magic" is unknown, want thunderagent or dynamo-default-cost-fn`},
		{thunderagent, "parameters: {}", "parameters: {seed: 1}", `15:20: unknown key "worker_selection.instances[0].parameters.seed", want none`},
		{thunderagent, "worker_selection", "request_classifier", "10:1: "}, // a repeated key
		{thunderagent, "request_classifier:", "classifier:", `2:1: unknown key "classifier", want default_policy_family, `},

		{queues, "min_tokens: 0", "min_tokens: 1", "4:6: uncached_isl_buckets[0].min_tokens: the first bucket begins at 1, want 0"},
		{queues, "min_tokens: 2048", "min_tokens: 0", "5:6: uncached_isl_buckets[1].min_tokens: 0, want more than the 0 of the bucket before"},
		{queues, "bucket: cold}", "bucket: warm}", `a second bucket "warm"`},
		{queues, "quantum: 4096", "quantum: 0", `policy_classes[0].quantum: "0" is not a whole number from 1 to`},
		{queues, "quantum: 4096, ", "", "policy_classes[0].quantum: missing"},
		{queues, "queue_policy: wspt", "queue_policy: edf", `8:83: policy_classes[1].queue_policy: "edf" is unknown, want fcfs or wspt or lcfs`},
		{queues, "cache_bucket: cold, quantum: 1024", "cache_bucket: hot, quantum: 1024", `policy_classes[1].cache_bucket: "hot" is no bucket of uncached_isl_buckets`},
		{queues, "cache_bucket: cold, quantum: 1024", "cache_bucket: warm, quantum: 1024", `family "agents" has a class for bucket "warm" already: "agents-warm"`},
		{queues, "name: batch-cold, policy_family: batch, cache_bucket: cold, ", "name: batch-cold, ", `family "batch" has classes for 1 of 2 buckets, want all`},
		{queues, "cache_bucket: cold, quantum: 1024", "quantum: 1024", "policy_classes[1].cache_bucket: missing"},
		{queues, "name: urgent", "name: batch", `class "batch" of no family has the name of a family`},
		{queues, "name: urgent", "name: batch-warm", `policy_classes[4].name: a second class "batch-warm"`},
		{queues, "name: urgent", "name: very urgent", `"very urgent" is no name`},
		{queues, "prefill_busy_threshold: 100, ", "", "busy_worker_ratio: no worker is ever busy without prefill_busy_threshold or prefill_busy_threshold_frac"},
		{queues, "busy_worker_ratio: 0.5", "busy_worker_ratio: 16.0", `"16.0" is not a number from 1e-09 to 1`},
		{queues, "default_policy_family: agents", "default_policy_family: agent", `2:1: default_policy_family: no class is of family "agent"`},
		{queues, "default_policy_family: agents\n", "", "default_policy_family: missing"},

		{"", "", "", "sets nothing, want request_classifier"},
		{"", "", "worker_selection: {}", "1:1: worker_selection: empty"},
		{"", "", "- a", "want a group of keys"},
		{"", "", "a: &x b\nc: *x", `1:1: unknown key "a"`},
		{"", "", "request_classifier: *x", "request_classifier: want a group of keys"},
		{"", "", "a: 1\n---\nb: 2", "more than one YAML document"},
		{"", "", "a: [", "1:4: "},
		{"", "", strings.Repeat("[", 501), "more than 64 KiB or 500 brackets"},
	} {
		text := strings.Replace(c.file, c.old, c.new, 1)
		if text == c.file && c.file != "" {
			t.Errorf("%q is not in the file", c.old)
		}
		_, err := Parse("policy.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "policy.yaml:") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s -> %s:\ngot  %v\nwant %s", c.old, c.new, err, c.want)
		}
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(queues), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Open(path); err != nil || len(f.Profile.Classes) != 5 {
		t.Errorf("%+v (%v)", f, err)
	}
	if _, err := Open(path + "x"); err == nil || !strings.Contains(err.Error(), "reading a router policy file: ") {
		t.Errorf("a missing file: %v", err)
	}
}

// FuzzParse: no text makes the reader panic, and what it accepts keeps the rules.
func FuzzParse(f *testing.F) {
	f.Add(thunderagent)
	f.Add(queues)
	f.Add("worker_selection: {instances: [{name: a, type: dynamo-default-cost-fn, parameters: {seed: 1}}]}")
	f.Add("? a\n: b")
	f.Add("models: {a: {<<: *b}}")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse("fuzz.yaml", []byte(text))
		if err != nil {
			return
		}
		if a := file.ThunderAgent; a != nil && !(a.PauseTarget <= a.PauseThreshold && a.ResumeHysteresis <= a.PauseThreshold && a.SchedulerIntervalSeconds > 0) {
			t.Errorf("accepted %+v", a)
		}
		profiles := []*Profile{file.Profile}
		for _, p := range file.Models {
			profiles = append(profiles, p)
		}
		for _, p := range profiles {
			if p != nil && (len(p.Buckets) == 0 || len(p.Classes) < len(p.Buckets) || p.Buckets[0].MinTokens != 0) {
				t.Errorf("accepted %+v", p)
			}
		}
	})
}
