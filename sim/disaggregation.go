package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/router"
)

// Disaggregation lets some workers only prefill, and hand the KV of prompts over to those that decode, as Dynamo does with
// vLLM's NIXL connector. Both are among the Workers of the deployment, so that a comparison keeps its GPUs.
type Disaggregation struct {
	// PrefillWorkers is how many workers prefill, the last ones; 0 is aggregated serving.
	PrefillWorkers int `yaml:"prefill_workers"`
	// Mode is always, or conditional: then a decode worker is chosen first, which prefills itself what it lacks of a prompt
	// where that is at most MaxLocalPrefill tokens, or where MaxQueue requests wait for prefill already (0: however many).
	Mode            string `yaml:"mode"`
	MaxLocalPrefill int    `yaml:"max_local_prefill"`
	MaxQueue        int    `yaml:"max_queue"`
	// PrefillPolicy and DecodePolicy choose among the workers of each kind; "" is router.policy.
	PrefillPolicy string `yaml:"prefill_policy"`
	DecodePolicy  string `yaml:"decode_policy"`
	// MaxNumBatchedTokens is engine.max_num_batched_tokens of prefill workers; 0 is the same as for the others.
	MaxNumBatchedTokens int `yaml:"max_num_batched_tokens"`
}

func (d *Deployment) checkDisaggregation() error {
	x := &d.Disaggregation
	for _, r := range []struct {
		key       string
		v, lo, hi int
	}{
		{"prefill_workers", x.PrefillWorkers, 0, 1 << 13},
		{"max_local_prefill", x.MaxLocalPrefill, 0, 1 << 28},
		{"max_queue", x.MaxQueue, 0, 1 << 20},
		{"max_num_batched_tokens", x.MaxNumBatchedTokens, 0, 1 << 20},
	} {
		if r.v < r.lo || r.v > r.hi {
			return bad("disaggregation."+r.key, "%d is out of range, want %d to %d", r.v, r.lo, r.hi)
		}
	}
	const key = "disaggregation.prefill_workers"
	switch {
	case !slices.Contains([]string{"always", "conditional"}, x.Mode):
		return bad("disaggregation.mode", "%q is unknown, want always or conditional", x.Mode)
	case x.PrefillWorkers == 0:
		return nil
	case x.PrefillWorkers >= d.Workers:
		return bad(key, "%d of %d workers (workers) leave none that decodes", x.PrefillWorkers, d.Workers)
	case d.Engine.Kind == "sglang":
		return bad(key, "handing KV over is simulated for engine.kind vllm and trtllm, not for sglang")
	case !d.Engine.PrefixCaching:
		return bad(key, "handing KV over needs engine.prefix_caching")
	case x.MaxNumBatchedTokens > 0 && x.MaxNumBatchedTokens < d.Engine.MaxNumSeqs:
		return bad("disaggregation.max_num_batched_tokens", "%d is below engine.max_num_seqs %d: a step must have a token for every sequence",
			x.MaxNumBatchedTokens, d.Engine.MaxNumSeqs)
	case x.PrefillPolicy != "" && router.Describe(x.PrefillPolicy) == "":
		return bad("disaggregation.prefill_policy", "%q is unknown, want one of %s", x.PrefillPolicy, strings.Join(router.Policies(), ", "))
	case x.DecodePolicy != "" && router.Describe(x.DecodePolicy) == "":
		return bad("disaggregation.decode_policy", "%q is unknown, want one of %s", x.DecodePolicy, strings.Join(router.Policies(), ", "))
	case slices.Contains([]string{d.Router.Policy, x.PrefillPolicy, x.DecodePolicy}, "thunderagent"):
		return bad(key, "router.policy thunderagent is for aggregated serving only, as in Dynamo; want 0, or another policy")
	case d.Engine.Scheduling == "continuum" || d.Engine.Scheduling == "continuum-preview":
		return bad(key, "engine.scheduling %s pins KV where it was decoded, which is not where prompts are computed; want 0, or another scheduling", d.Engine.Scheduling)
	}
	return nil
}

// resolveDisaggregation settles the pool of prefill workers: the deployment that they would be by themselves.
func (p *Plan) resolveDisaggregation() error {
	x := p.Disaggregation
	if x.PrefillWorkers == 0 {
		return nil
	}
	if len(p.rules) > 0 {
		return bad("kv.policy", "actions on the KV of sessions are simulated for aggregated serving; want lru or none with disaggregation.prefill_workers")
	}
	d := p.Deployment
	d.Workers, d.Disaggregation, d.Faults = x.PrefillWorkers, Default().Disaggregation, nil
	d.Engine.MaxNumBatchedTokens = cmp.Or(x.MaxNumBatchedTokens, d.Engine.MaxNumBatchedTokens)
	d.Router.Settings = p.Router.prefills(x.PrefillPolicy)
	var err error
	if p.prefill, err = d.Resolve(); err != nil {
		return fmt.Errorf("workers that prefill (disaggregation.prefill_workers): %w", err)
	}
	return nil
}

// prefills are the settings of a router of prefill workers: nothing is decoded there, so no blocks are booked (Dynamo 1.3,
// disaggregated serving: track_active_blocks=false).
func (r *Router) prefills(policy string) router.Settings {
	s := r.Settings
	s.Policy = cmp.Or(policy, s.Policy)
	s = s.Effective()
	s.Preset, s.TrackActiveBlocks = "", false
	return s
}

// decodes are the settings of the routers of the workers that decode. Where prompts come to them computed, it counts neither
// what they hold of them nor what they would have to prefill (Dynamo 1.3, disaggregated serving: overlap_score_credit=0,
// assume_kv_reuse=false, track_prefill_tokens=false); with conditional disaggregation it does.
func (p *Plan) decodes() router.Settings {
	s := p.Router.Settings
	if p.prefill == nil {
		return s
	}
	s.Policy = cmp.Or(p.Disaggregation.DecodePolicy, s.Policy)
	if p.Disaggregation.Mode == "always" {
		s = s.Effective()
		s.Preset, s.OverlapScoreCredit, s.AssumeKVReuse, s.TrackPrefillTokens = "", 0, false, false
	}
	return s
}

// decodeRanks is how many of the ranks decode, the first ones.
func (p *Plan) decodeRanks() int {
	if p.prefill == nil {
		return p.Ranks
	}
	return p.Ranks - p.prefill.Ranks
}

// allBlocks is the usable KV blocks of all ranks.
func (p *Plan) allBlocks() int64 {
	blocks := int64(p.decodeRanks()) * int64(p.Blocks)
	if p.prefill != nil {
		blocks += p.prefill.allBlocks()
	}
	return blocks
}

// of returns the plan of the pool that a rank is in.
func (p *Plan) of(rank int) *Plan {
	if rank < p.decodeRanks() {
		return p
	}
	return p.prefill
}
