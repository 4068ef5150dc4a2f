package router

import (
	"fmt"
	"strings"
	"time"
)

// Settings choose and tune a policy; the zero value is round-robin. Names and defaults of the kv policy are those of
// Dynamo's KvRouterConfig; start from Defaults to have them.
type Settings struct {
	// Policy is round-robin, random, power-of-two, least-loaded, sticky or kv; "" is round-robin.
	Policy string `yaml:"policy"`

	// OverlapScoreCredit is the number of prefill blocks forgiven for each leading prompt block that a worker holds.
	// At 0 the router keeps no index and wants no KV events.
	OverlapScoreCredit float64 `yaml:"overlap_score_credit"`
	// OverlapScoreCreditDecay takes credit from workers with more prefill load than the least loaded one, measured in
	// prompts of this request's size; 0 takes none.
	OverlapScoreCreditDecay float64 `yaml:"overlap_score_credit_decay"`
	// PrefillLoadScale weighs blocks to prefill against blocks held for decoding.
	PrefillLoadScale float64 `yaml:"prefill_load_scale"`
	// DecodeActiveRequestWeight is the cost, in blocks, of each active request.
	DecodeActiveRequestWeight float64 `yaml:"decode_active_request_weight"`
	// Temperature above 0 draws the worker from a softmax of the costs, scaled to their range.
	Temperature float64 `yaml:"temperature"`
	// AssumeKVReuse counts a block once however many active requests of a worker have it in their prompts.
	AssumeKVReuse bool `yaml:"assume_kv_reuse"`
	// EventDelay is the time from the end of an engine step until its KV events count.
	EventDelay time.Duration `yaml:"event_delay"`
}

// Defaults returns Dynamo's default settings for a policy.
func Defaults(policy string) Settings {
	return Settings{
		Policy:             policy,
		OverlapScoreCredit: 1,
		PrefillLoadScale:   1,
		AssumeKVReuse:      true,
	}
}

// policies are in the order in which they are listed to users; the first is the default.
var policies = []struct {
	name string
	pick pickFunc
}{
	{"round-robin", (*Router).pickRoundRobin},
	{"random", (*Router).pickRandom},
	{"power-of-two", (*Router).pickPowerOfTwo},
	{"least-loaded", (*Router).pickLeastLoaded},
	{"sticky", (*Router).pickSticky},
	{"kv", (*Router).pickKV},
}

// Policies returns the names of all policies.
func Policies() []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.name
	}
	return names
}

// Bounds that keep costs finite and memory in proportion.
const (
	maxWorkers    = 1 << 14
	maxBlockSize  = 1 << 20
	maxWeight     = 1e6
	maxEventDelay = time.Hour
)

// check returns the policy's pick function, or the first setting that is out of range.
func (s Settings) check(workers, blockSize int) (pickFunc, error) {
	if workers < 1 || workers > maxWorkers {
		return nil, fmt.Errorf("workers: %d is not within 1..%d", workers, maxWorkers)
	}
	if blockSize < 1 || blockSize > maxBlockSize {
		return nil, fmt.Errorf("engine.block_size: %d tokens is not within 1..%d", blockSize, maxBlockSize)
	}
	for _, weight := range []struct {
		key   string
		value float64
	}{
		{"overlap_score_credit", s.OverlapScoreCredit},
		{"overlap_score_credit_decay", s.OverlapScoreCreditDecay},
		{"prefill_load_scale", s.PrefillLoadScale},
		{"decode_active_request_weight", s.DecodeActiveRequestWeight},
		{"temperature", s.Temperature},
	} {
		if !(weight.value >= 0 && weight.value <= maxWeight) { // false for NaN too
			return nil, fmt.Errorf("router.%s: %v is not within 0..%g", weight.key, weight.value, maxWeight)
		}
	}
	if s.EventDelay < 0 || s.EventDelay > maxEventDelay {
		return nil, fmt.Errorf("router.event_delay: %v is not within 0s..%v", s.EventDelay, maxEventDelay)
	}
	if s.Policy == "" {
		return policies[0].pick, nil
	}
	for _, p := range policies {
		if p.name == s.Policy {
			return p.pick, nil
		}
	}
	return nil, fmt.Errorf("router.policy: unknown policy %q, want one of %s", s.Policy, strings.Join(Policies(), ", "))
}
