package sim

import (
	"maps"
	"slices"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/router/policyfile"
	"github.com/agentsim/agentsim/router/thunderagent"
)

// PolicyKeys are the config keys that a router policy file sets, and what in it each of them comes from.
type PolicyKeys map[string]string

// UsePolicyFile sets the router as a policy file of Dynamo says. It returns the keys that it has set, and notes of what
// the file says to no effect here. The ranges of values are left to Deployment.Resolve.
func (r *Router) UsePolicyFile(f *policyfile.File) (PolicyKeys, []string, error) {
	if len(f.Models) > 0 {
		return nil, nil, bad("models", "one model is served here; move its policy_classes to the top of the file")
	}
	keys := PolicyKeys{}
	if f.ThunderAgent != nil && (f.Selection == nil || f.Selection.Type != policyfile.TypeThunderAgent) {
		return nil, nil, bad("request_classifier", "type thunderagent is simulated together with a worker_selection of that type only")
	}
	var notes []string
	if f.Selection != nil {
		notes = r.useSelection(f.Selection, keys)
	}
	switch {
	case f.ThunderAgent != nil:
		if err := r.useClassifier(f.ThunderAgent, keys); err != nil {
			return nil, nil, err
		}
	case f.Selection != nil && f.Selection.Type == policyfile.TypeThunderAgent: // it chooses workers and holds nothing
		keys["router.thunderagent.gates"] = "worker_selection without a request_classifier"
		r.ThunderAgent.Gates = "none"
	}
	if f.Profile != nil {
		r.useProfile(f.Profile, keys)
	}
	return keys, notes, nil
}

// useSelection sets the policy and its costs.
func (r *Router) useSelection(s *policyfile.Selection, keys PolicyKeys) (notes []string) {
	const from = "worker_selection"
	r.Policy, keys["router.policy"] = router.PolicyName(s.Type), from
	for _, w := range []struct {
		key   string
		value *float64
		to    *float64
	}{
		{"overlap_score_credit", s.Cost.OverlapScoreCredit, &r.OverlapScoreCredit},
		{"overlap_score_credit_decay", s.Cost.OverlapScoreCreditDecay, &r.OverlapScoreCreditDecay},
		{"host_cache_hit_weight", s.Cost.HostCacheHitWeight, &r.HostCacheHitWeight},
		{"disk_cache_hit_weight", s.Cost.DiskCacheHitWeight, &r.DiskCacheHitWeight},
		{"prefill_load_scale", s.Cost.PrefillLoadScale, &r.PrefillLoadScale},
		{"decode_active_request_weight", s.Cost.DecodeActiveRequestWeight, &r.DecodeActiveRequestWeight},
		{"temperature", s.Cost.RouterTemperature, &r.Temperature},
	} {
		if w.value != nil {
			*w.to, keys["router."+w.key] = *w.value, from
		}
	}
	if s.Cost.SharedCacheMultiplier != nil {
		notes = append(notes, "shared_cache_multiplier has no effect: routers do not count what a remote tier holds")
	}
	if s.Cost.Seed != nil {
		notes = append(notes, "the seed of worker_selection has no effect: config key seed is that of everything random")
	}
	return notes
}

// useClassifier sets the parameters that the file has, and those that follow from them.
func (r *Router) useClassifier(t *policyfile.ThunderAgent, keys PolicyKeys) error {
	const from = "request_classifier"
	native, err := thunderagent.Preset("dynamo-native")
	if err != nil {
		return err
	}
	keys["router.thunderagent.preset"], keys["router.thunderagent.gates"] = from, from
	r.ThunderAgent.Preset, r.ThunderAgent.Gates = "", "on" // the first preset is that
	parameters := map[string]any{}
	maps.Copy(parameters, r.ThunderAgent.Parameters)
	for _, p := range []struct {
		key             string
		value, standard any
	}{
		{"pause_threshold", t.PauseThreshold, native.PauseThreshold},
		{"pause_target", t.PauseTarget, native.PauseTarget},
		{"resume_hysteresis", t.ResumeHysteresis, native.ResumeHysteresis},
		{"resume_timeout_seconds", t.ResumeTimeoutSeconds, native.ResumeTimeout},
		{"session_retention_seconds", t.SessionRetentionSeconds, native.SessionRetention},
		{"scheduler_interval_seconds", t.SchedulerIntervalSeconds, native.SchedulerInterval},
		{"acting_token_weight", t.ActingTokenWeight, native.ActingTokenWeight},
		{"acting_decay_tau_seconds", t.ActingDecayTauSeconds, native.ActingDecayTau},
		{"buffer_per_program", t.BufferPerProgram, int(native.BufferPerProgram)},
		{"max_tracked_requests", t.MaxTrackedRequests, native.MaxTrackedRequests},
		{"shared_prefix_budget", t.SharedPrefixBudget, native.SharedPrefixBudget},
	} {
		if p.value != p.standard || slices.Contains(t.Given, p.key) {
			parameters[p.key], keys["router.thunderagent.parameters."+p.key] = p.value, from
		}
	}
	if len(parameters) > 0 {
		r.ThunderAgent.Parameters = parameters
	}
	return nil
}

// useProfile sets the queues.
func (r *Router) useProfile(p *policyfile.Profile, keys PolicyKeys) {
	const from = "policy_classes"
	for _, key := range []string{"queue_policy", "queue_threshold", "queue_threshold_tokens", "busy_worker_ratio",
		"default_policy_family", "uncached_isl_buckets", "policy_classes"} {
		keys["router."+key] = from
	}
	r.DefaultFamily, r.Buckets, r.Classes = p.DefaultFamily, nil, nil
	for _, b := range p.Buckets {
		r.Buckets = append(r.Buckets, router.Bucket{MinTokens: int64(b.MinTokens), Name: b.Name})
	}
	for _, c := range p.Classes {
		r.Classes = append(r.Classes, router.Class{
			Name: c.Name, Family: c.Family, Bucket: c.Bucket, Policy: c.QueuePolicy, Quantum: int64(c.Quantum),
			Threshold: c.PrefillBusyThresholdFrac, ThresholdTokens: limit(c.PrefillBusyThreshold), BusyWorkerRatio: c.BusyWorkerRatio,
			RequestLimit: limit(c.RequestQueueLimitPerWorker), TokenLimit: limit(c.RawISLTokenQueueLimitPerWorker),
			CachedLimit: limit(c.CachedTokenQueueLimitPerWorker),
		})
	}
}

// limit is a limit that may not exist.
func limit(n *int) *int64 {
	if n == nil {
		return nil
	}
	return new(int64(*n))
}
