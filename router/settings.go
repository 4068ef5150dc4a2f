package router

import (
	"fmt"
	"strings"
	"time"
)

// Settings choose and tune a policy; the zero value is round-robin. Names and defaults are those of Dynamo's
// KvRouterConfig without its router_ prefixes; start from Defaults to have them.
type Settings struct {
	// Policy is one of Policies, by that name or by Dynamo's; "" is round-robin.
	Policy string `yaml:"policy"`
	// Preset replaces settings of the kv cost: load-aware or agentic, as Dynamo's flags of these names do; kv or ""
	// leaves them as they are.
	Preset string `yaml:"preset"`

	// OverlapScoreCredit is the number of prefill blocks forgiven for each leading prompt block that a worker holds.
	// At 0 the router keeps no index and wants no KV events.
	OverlapScoreCredit float64 `yaml:"overlap_score_credit"`
	// OverlapScoreCreditDecay takes credit from workers with more prefill load than the least loaded one, measured in
	// prompts of this request's size; 0 takes none.
	OverlapScoreCreditDecay float64 `yaml:"overlap_score_credit_decay"`
	// HostCacheHitWeight and DiskCacheHitWeight are the prefill blocks forgiven for each further one that a tier of the
	// worker holds.
	HostCacheHitWeight float64 `yaml:"host_cache_hit_weight"`
	DiskCacheHitWeight float64 `yaml:"disk_cache_hit_weight"`
	// PrefillLoadScale weighs blocks to prefill against blocks held for decoding.
	PrefillLoadScale float64 `yaml:"prefill_load_scale"`
	// DecodeActiveRequestWeight is the cost, in blocks, of each active request.
	DecodeActiveRequestWeight float64 `yaml:"decode_active_request_weight"`
	// Temperature above 0 draws the worker from a softmax of the costs, scaled to their range.
	Temperature float64 `yaml:"temperature"`

	// UseKVEvents keeps the index by what engines report; else the router takes it that a worker holds each prompt
	// sent there for TTL.
	UseKVEvents bool          `yaml:"use_kv_events"`
	TTL         time.Duration `yaml:"ttl"`
	// PredictedTTL, beside KV events, takes it that a worker holds each prompt sent there for that long; 0 does not.
	PredictedTTL time.Duration `yaml:"predicted_ttl"`
	// EventDelay is the time from the end of an engine step until its KV events count.
	EventDelay time.Duration `yaml:"event_delay"`

	// TrackActiveBlocks and TrackPrefillTokens book prompt blocks and uncached prompt tokens of active requests,
	// TrackOutputBlocks also what they generate.
	TrackActiveBlocks  bool `yaml:"track_active_blocks"`
	TrackPrefillTokens bool `yaml:"track_prefill_tokens"`
	TrackOutputBlocks  bool `yaml:"track_output_blocks"`
	// AssumeKVReuse counts a block once however many active requests of a worker have it in their prompts.
	AssumeKVReuse bool `yaml:"assume_kv_reuse"`

	Queue     `yaml:",inline"`
	Rejection `yaml:",inline"`

	// SessionAffinity keeps sessions on the worker where they were.
	SessionAffinity SessionAffinity `yaml:"session_affinity"`
}

// Defaults returns Dynamo's default settings for a policy.
func Defaults(policy string) Settings {
	return Settings{
		Policy:             policy,
		Preset:             "kv",
		OverlapScoreCredit: 1,
		HostCacheHitWeight: 0.75,
		DiskCacheHitWeight: 0.25,
		PrefillLoadScale:   1,
		UseKVEvents:        true,
		TTL:                2 * time.Minute,
		TrackActiveBlocks:  true,
		TrackPrefillTokens: true,
		AssumeKVReuse:      true,
		Queue:              Queue{Policy: "fcfs"},
		SessionAffinity:    SessionAffinity{Mode: "off", TTL: 30 * time.Minute},
	}
}

// Effective returns the settings with the preset applied and with the affinity that the policy implies.
func (s Settings) Effective() Settings {
	switch s.Preset {
	case "load-aware": // --load-aware
		s.OverlapScoreCredit, s.UseKVEvents, s.PredictedTTL = 0, false, 0
	case "agentic": // --agentic, for blocks of 16 tokens
		s.OverlapScoreCredit, s.PrefillLoadScale, s.DecodeActiveRequestWeight = 2, 4, 64
	}
	if p, ok := lookPolicy(s.Policy); ok && p.affine && !s.SessionAffinity.on() {
		s.SessionAffinity.Mode = "soft"
		if s.SessionAffinity.TTL == 0 {
			s.SessionAffinity.TTL = 30 * time.Minute
		}
	}
	return s
}

// policy is one way to choose a worker.
type policy struct {
	name string
	also string // another name, of Dynamo with or without its dynamo- prefix
	does string // for users, in one line
	pick pickFunc
	// index and footprint tell what the policy looks at: resident blocks, distinct blocks of active requests.
	index, footprint bool
	// weigh sets score.cost, in the units of the policy; nil for policies without costs.
	weigh func(r *Router, q *Request)
	// affine policies need session affinity. One that moves decides itself whether to follow it.
	affine, moves bool
}

// policies are in the order in which they are listed to users; the first is the default.
var policies = []policy{
	{name: "round-robin", does: "workers in turn",
		pick: (*Router).pickRoundRobin},
	{name: "random", does: "any worker",
		pick: (*Router).pickRandom},
	{name: "power-of-two", does: "of two drawn at random, the one with fewer active requests",
		pick: (*Router).pickPowerOfTwo},
	{name: "least-loaded", does: "fewest active requests",
		pick: (*Router).pickLeastLoaded},
	{name: "sticky", does: "a session's first request to the fewest active requests; later ones stay",
		also: "sticky-min-load", pick: (*Router).pickSticky},
	{name: "kv", does: "least cost of prompt tokens to compute and blocks held; tune with router.preset and the weights",
		also: "default-cost-fn", pick: (*Router).pickKV, weigh: (*Router).weigh, index: true, footprint: true},
	{name: "program-count", does: "a session's first request to the fewest sessions; later ones stay (ThunderAgent's mode default)",
		pick: (*Router).pickProgramCount},
	{name: "two-tier", does: "most of the prompt cached, unless loads differ much; else least loaded",
		also: "two-tier-cost-fn", pick: (*Router).pickTwoTier, index: true},
	{name: "lmetric", does: "least product of tokens to compute and active requests, around hot prompts",
		pick: (*Router).pickLMetric, index: true},
	{name: "soft-affinity-load-guard", does: "a session stays unless its worker is busy and another much less so",
		pick: (*Router).pickLoadGuard, affine: true, moves: true},
	{name: "thunderagent", does: "with a program scheduler that pauses programs between turns when KV runs short (router.thunderagent)",
		pick: (*Router).pickThunderAgent, weigh: (*Router).weighTokens, index: true, footprint: true, affine: true},
}

// Policies returns the names of all policies.
func Policies() []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.name
	}
	return names
}

// Describe says in one line what a policy does; "" for an unknown one.
func Describe(policy string) string {
	p, _ := lookPolicy(policy)
	return p.does
}

// PolicyName returns the name in Policies of a policy that Dynamo may call otherwise. An unknown name stays as it is.
func PolicyName(name string) string {
	if p, ok := lookPolicy(name); ok {
		return p.name
	}
	return name
}

func lookPolicy(name string) (policy, bool) {
	if name == "" {
		return policies[0], true
	}
	name = strings.TrimPrefix(name, "dynamo-")
	for _, p := range policies {
		if name == p.name || name == p.also && p.also != "" {
			return p, true
		}
	}
	return policy{}, false
}

// Bounds that keep costs finite and memory in proportion.
const (
	maxWorkers    = 1 << 14
	maxBlockSize  = 1 << 20
	maxWeight     = 1e6
	maxTokens     = 1 << 40
	maxEventDelay = time.Hour
	maxTTL        = 31_536_000 * time.Second // Dynamo's bound of the affinity's
)

// number is a setting that must lie in a range.
type number struct {
	key           string
	value, lo, hi float64
}

func checkNumbers(list ...number) error {
	for _, n := range list {
		if !(n.value >= n.lo && n.value <= n.hi) { // false for NaN too
			return fmt.Errorf("%s: %v is not within %g..%g", n.key, n.value, n.lo, n.hi)
		}
	}
	return nil
}

// span is a setting that must be a time in a range.
type span struct {
	key           string
	value, lo, hi time.Duration
}

func checkSpans(list ...span) error {
	for _, d := range list {
		if d.value < d.lo || d.value > d.hi {
			return fmt.Errorf("%s: %v is not within %v..%v", d.key, d.value, d.lo, d.hi)
		}
	}
	return nil
}

// check returns the policy, or the first setting that is out of range.
func (s *Settings) check(p Pool) (policy, error) {
	chosen, ok := lookPolicy(s.Policy)
	if !ok {
		return chosen, fmt.Errorf("router.policy: unknown policy %q, want one of %s", s.Policy, strings.Join(Policies(), ", "))
	}
	switch s.Preset {
	case "", "kv", "load-aware", "agentic":
	default:
		return chosen, fmt.Errorf("router.preset: %q is unknown, want kv, load-aware or agentic", s.Preset)
	}
	if err := p.check(); err != nil {
		return chosen, err
	}
	err := checkNumbers(
		number{"router.overlap_score_credit", s.OverlapScoreCredit, 0, maxWeight},
		number{"router.overlap_score_credit_decay", s.OverlapScoreCreditDecay, 0, maxWeight},
		number{"router.host_cache_hit_weight", s.HostCacheHitWeight, 0, maxWeight},
		number{"router.disk_cache_hit_weight", s.DiskCacheHitWeight, 0, maxWeight},
		number{"router.prefill_load_scale", s.PrefillLoadScale, 0, maxWeight},
		number{"router.decode_active_request_weight", s.DecodeActiveRequestWeight, 0, maxWeight},
		number{"router.temperature", s.Temperature, 0, maxWeight},
	)
	if err != nil {
		return chosen, err
	}
	shortest := time.Duration(0)
	if chosen.index && s.OverlapScoreCredit > 0 && !s.UseKVEvents {
		shortest = time.Millisecond
	}
	err = checkSpans(
		span{"router.ttl", s.TTL, shortest, maxTTL},
		span{"router.predicted_ttl", s.PredictedTTL, 0, maxTTL},
		span{"router.event_delay", s.EventDelay, 0, maxEventDelay},
	)
	if err != nil {
		return chosen, err
	}
	if s.PredictedTTL > 0 && !s.UseKVEvents {
		return chosen, fmt.Errorf("router.predicted_ttl: goes with router.use_kv_events; without events set router.ttl")
	}
	if err := s.Queue.check(); err != nil {
		return chosen, err
	}
	if err := s.Rejection.check(); err != nil {
		return chosen, err
	}
	return chosen, s.SessionAffinity.check()
}
