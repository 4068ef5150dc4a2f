// Package policyfile reads router policy files of NVIDIA's Dynamo, which its frontend takes as --router-policy-config:
// what holds requests back (request_classifier), who chooses workers (worker_selection), and the router's queues
// (policy_classes).
//
// Keys, defaults and ranges are those of ai-dynamo/dynamo 1.5 and 1.6 (lib/kv-router/src/scheduling/policy_config.rs and
// worker_selection_config.rs, plugin dynamo-default-cost-fn) and of the plugin thunderagent-dynamo-policy (config.rs).
package policyfile

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// The types of a request classifier and of worker selection that mean more than their name.
const (
	TypeThunderAgent = "thunderagent"
	TypeDefaultCost  = "dynamo-default-cost-fn"
)

// selectionTypes are the types of worker selection. Only TypeDefaultCost takes parameters.
var selectionTypes = []string{TypeThunderAgent, TypeDefaultCost, "dynamo-two-tier-cost-fn", "dynamo-sticky-min-load",
	"dynamo-soft-affinity-load-guard", "lmetric"}

// builtIn is the name of the selection that needs no instance.
const builtIn = "default"

// File is a router policy file.
type File struct {
	// ThunderAgent has the parameters of a request_classifier of that type; nil without a classifier.
	ThunderAgent *ThunderAgent
	// Selection chooses workers of aggregated serving; nil is Dynamo's built-in choice.
	Selection *Selection
	// Profile is the queues of all models but those in Models; nil is one queue of the frontend's options.
	Profile *Profile
	Models  map[string]*Profile
}

// ThunderAgent has the parameters of the program scheduler, by their names in the file.
type ThunderAgent struct {
	// Given are the names that the file has, in order of the alphabet. The other parameters have their defaults.
	Given []string

	PauseThreshold           float64 // share of a worker's KV above which programs are paused
	PauseTarget              float64 // share down to which they are
	ResumeHysteresis         float64 // share below PauseThreshold up to which programs resume
	ResumeTimeoutSeconds     float64 // longest wait of a held request
	SessionRetentionSeconds  float64 // idle time after which a program is forgotten
	SchedulerIntervalSeconds float64 // from one decision to the next
	ActingTokenWeight        float64 // weight of a program's tokens while its tools run
	ActingDecayTauSeconds    float64 // half-life of such tokens when a held request is forced in
	BufferPerProgram         int     // tokens kept free for each program
	MaxTrackedRequests       int     // bound on requests, and on programs
	SharedPrefixBudget       bool    // count a prefix that programs share once per worker
}

// Selection is the worker selection of aggregated serving.
type Selection struct {
	// Type is TypeThunderAgent, TypeDefaultCost, or another of Dynamo's policies.
	Type string
	// Cost has the parameters of TypeDefaultCost.
	Cost Cost
}

// Cost overrides the router's options of the same names; nil leaves an option as it is.
type Cost struct {
	OverlapScoreCredit, OverlapScoreCreditDecay *float64
	PrefillLoadScale, DecodeActiveRequestWeight *float64
	HostCacheHitWeight, DiskCacheHitWeight      *float64
	SharedCacheMultiplier, RouterTemperature    *float64
	Seed                                        *int
}

// Bounds on a file, and on what it says, that leave room for anything plausible. The YAML parser takes quadratic time on
// deep nesting.
const (
	maxBytes    = 64 << 10
	maxBrackets = 500
	maxWeight   = 1e6
	maxSeconds  = 10 * 365 * 86400.0
	maxTokens   = 1 << 40
	maxTracked  = 1 << 24
	least       = 1e-9 // of what must be positive: a nanosecond
)

// Open reads the policy file at a path.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a router policy file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading router policy file %s: %w", path, err)
	}
	return Parse(path, text)
}

// Parse reads a policy file's text. Errors begin with name, line and column.
func Parse(name string, text []byte) (*File, error) {
	if len(text) > maxBytes || strings.Count(string(text), "[")+strings.Count(string(text), "{") > maxBrackets {
		return nil, fmt.Errorf("%s: more than %d KiB or %d brackets is no router policy file", name, maxBytes>>10, maxBrackets)
	}
	r := &reader{file: name}
	top := r.document(text, "default_policy_family", "uncached_isl_buckets", "policy_classes", "models", "request_classifier", "worker_selection")
	f := &File{}
	if top.has("request_classifier") {
		f.ThunderAgent = readClassifier(top)
	}
	if top.has("worker_selection") {
		f.Selection = readSelection(top)
	}
	if top.has("default_policy_family") || top.has("uncached_isl_buckets") || top.has("policy_classes") {
		f.Profile = readProfile(top)
	}
	if top.has("models") {
		f.Models = readModels(top)
	}
	if r.err == nil && len(top.values) == 0 {
		r.err = fmt.Errorf("%s: sets nothing, want request_classifier, worker_selection, policy_classes or models", name)
	}
	if r.err != nil {
		return nil, r.err
	}
	return f, nil
}

// readClassifier reads request_classifier.
func readClassifier(top group) *ThunderAgent {
	g := top.group("request_classifier", "type", "parameters")
	g.oneOf("type", "", TypeThunderAgent)
	p := g.group("parameters", "pause_threshold", "pause_target", "resume_hysteresis", "resume_timeout_seconds",
		"session_retention_seconds", "scheduler_interval_seconds", "acting_token_weight", "acting_decay_tau_seconds",
		"buffer_per_program", "max_tracked_requests", "shared_prefix_budget")
	t := &ThunderAgent{Given: keys(p.values), PauseThreshold: p.number("pause_threshold", 0.95, 0, 1)}
	// Both lie on or below the threshold, so that what is paused for room is not resumed into it at once.
	t.PauseTarget = p.number("pause_target", min(0.80, t.PauseThreshold), 0, 1)
	t.ResumeHysteresis = p.number("resume_hysteresis", min(0.10, t.PauseThreshold), 0, 1)
	p.notAbove("pause_target", t.PauseTarget, "pause_threshold", t.PauseThreshold)
	p.notAbove("resume_hysteresis", t.ResumeHysteresis, "pause_threshold", t.PauseThreshold)
	t.ResumeTimeoutSeconds = p.number("resume_timeout_seconds", 1800, least, maxSeconds)
	t.SessionRetentionSeconds = p.number("session_retention_seconds", 1800, least, maxSeconds)
	t.SchedulerIntervalSeconds = p.number("scheduler_interval_seconds", 5, least, maxSeconds)
	t.ActingTokenWeight = p.number("acting_token_weight", 1, least, maxWeight)
	t.ActingDecayTauSeconds = p.number("acting_decay_tau_seconds", 1, least, maxSeconds)
	t.BufferPerProgram = p.whole("buffer_per_program", 100, 0, maxTokens)
	t.MaxTrackedRequests = p.whole("max_tracked_requests", 10_000, 1, maxTracked)
	t.SharedPrefixBudget = p.flag("shared_prefix_budget", false)
	return t
}

// readSelection reads worker_selection. Choices for the roles of disaggregated serving are checked and left out.
func readSelection(top group) *Selection {
	roles := []string{"aggregated", "prefill", "decode", "encode"}
	g := top.group("worker_selection", append(roles, "instances")...)
	instances := map[string]*Selection{builtIn: nil}
	for _, i := range g.groups("instances", "name", "type", "parameters") {
		name := i.identifier("name")
		if _, known := instances[name]; known && name == builtIn {
			i.fail("name", "%q is Dynamo's built-in selection", name)
		} else if known {
			i.fail("name", "a second instance %q", name)
		}
		instances[name] = readInstance(i)
	}
	if len(g.values) == 0 {
		top.fail("worker_selection", "empty, want an instance or a choice")
	}
	for _, role := range roles {
		if chosen := g.text(role, builtIn); !slices.Contains(keys(instances), chosen) {
			g.fail(role, "%q is no instance, want one of %s", chosen, strings.Join(keys(instances), ", "))
		}
	}
	return instances[g.text("aggregated", builtIn)]
}

// readInstance reads one of worker_selection's instances.
func readInstance(i group) *Selection {
	s := &Selection{Type: i.oneOf("type", "", selectionTypes...)}
	if s.Type != TypeDefaultCost {
		i.group("parameters") // they take none
		return s
	}
	weights := map[string]**float64{
		"overlap_score_credit": &s.Cost.OverlapScoreCredit, "overlap_score_credit_decay": &s.Cost.OverlapScoreCreditDecay,
		"prefill_load_scale": &s.Cost.PrefillLoadScale, "decode_active_request_weight": &s.Cost.DecodeActiveRequestWeight,
		"host_cache_hit_weight": &s.Cost.HostCacheHitWeight, "disk_cache_hit_weight": &s.Cost.DiskCacheHitWeight,
		"shared_cache_multiplier": &s.Cost.SharedCacheMultiplier, "router_temperature": &s.Cost.RouterTemperature,
	}
	p := i.group("parameters", append(keys(weights), "seed")...)
	for _, key := range keys(weights) {
		*weights[key] = p.optionalNumber(key, 0, maxWeight)
	}
	s.Cost.Seed = p.optionalWhole("seed", 0, 1<<53)
	return s
}
