package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/sim/memory"
)

// KV is the memory for KV below the GPUs, and what is done with the KV of agents' sessions. What is 0 or empty becomes
// what the preset says.
type KV struct {
	// Preset is the software whose rules the tiers follow: one of KVPresets.
	Preset string `yaml:"preset"`
	// Host, Disk and Remote are the tiers, asked in this order.
	Host   KVTier `yaml:"host"`
	Disk   KVTier `yaml:"disk"`
	Remote KVTier `yaml:"remote"`
	// Offload says what is written to the first tier, and when: through, what a request has computed; back, what the GPU
	// evicts; or demand, what a policy demotes.
	Offload string `yaml:"offload"`
	// MinUses is how many requests must have had a block before it is written to the first tier, SpillUses before it is
	// written to those below, Chunk how many tokens are written and found together, Decoded ("true" or "false") whether
	// what was generated is written too.
	MinUses   int    `yaml:"min_uses"`
	SpillUses int    `yaml:"spill_uses"`
	Chunk     int    `yaml:"chunk"`
	Decoded   string `yaml:"decoded"`
	// MinFetch is the fewest tokens that are brought back from below the host's memory, and Fetch says when anything is:
	// always, or faster, when the transfer alone takes less time than the prefill that it spares.
	MinFetch int    `yaml:"min_fetch"`
	Fetch    string `yaml:"fetch"`
	// Policy is what is done when something happens to a session: one of KVPolicies, or several, joined by "+". Rules are
	// further ones.
	Policy string   `yaml:"policy"`
	Rules  []KVRule `yaml:"rules,omitempty"`
	// Tools is where rules know from how long a tool takes: learnt, from those of its name before; recorded, from the
	// trace, as nobody could.
	Tools string `yaml:"tools"`
}

// KVTier is a tier. Rates are per second; those of the host 0 for what the GPUs' own links do.
type KVTier struct {
	// Capacity is for one worker, of the remote tier for all: a size such as 200GiB, or x2 for twice the KV of the GPUs.
	Capacity string        `yaml:"capacity"`
	Read     string        `yaml:"read"`
	Write    string        `yaml:"write"`
	Latency  time.Duration `yaml:"latency"`
}

// none tells whether there is no such tier.
func (t *KVTier) none() bool { return t.Capacity == "" || t.Capacity == "0" || t.Capacity == "0B" }

// hostEfficiency is the share of the host link's rate that copies reach: 54 of 64 GB/s from host to device, on an H20 under
// vLLM 0.18.1. The one source is a note in a commit of gahow/agentic-kvc, by a third party and not verified: there a hit in
// host memory took 57 ms for 1k tokens and 272 ms for 64k.
const hostEfficiency = 54.0 / 64

// kvPresets are the rules of software, by name. All of them evict what was used least lately, by default or always. What is
// copied moves while the GPU computes, though LMCache by default waits for it in the step (enable_async_loading false).
// Rates of drives are those of NVMe of the fourth generation (inference-sim/inference-sim at f90a1e3a, its device classes:
// 7.0 and 5.0 GB/s, 80 us), of the remote tier those of an object store (1 GB/s, 30 ms).
var kvPresets = map[string]KV{
	"": {Offload: "through", Decoded: "true"},
	// vLLM's OffloadingConnector (vllm/v1/kv_offload, docs/features/kv_offloading_usage.md): block_size that of the GPU's
	// blocks, store_threshold 0, eviction_policy lru (or arc, which is not simulated). What was generated: see decodes.
	"vllm": {Offload: "through"},
	// LMCache (lmcache/v1/config.py at 000620e3): chunk_size 256, save_unfull_chunk and save_decode_cache false,
	// min_retrieve_tokens 0, cache_policy LRU.
	"lmcache": {Offload: "through", Chunk: 256, Decoded: "false"},
	// SGLang's HiCache (sglang/srt/server_args.py, mem_cache/hiradix_cache.py and managers/cache_controller.py): hicache_ratio
	// 2, hicache_write_policy write_through, which writes at the first use and write_through_selective at the second
	// (kv.min_uses 2); from storage no fewer than prefetch_threshold 256 tokens, from the host 10, less than a block here.
	"hicache": {Host: KVTier{Capacity: "x2"}, Offload: "through", Decoded: "true", MinFetch: 256},
	// Dynamo's KV block manager (ai-dynamo/dynamo, lib/bindings/kvbm/src/block_manager.rs): all goes to the host, to the drive
	// only what has a frequency of 2, which doubles with each use from 1 on (that it falls by 1 every 600 s is left out).
	"kvbm": {Offload: "through", SpillUses: 2, Decoded: "true"},
}

// decodes is whether vLLM's connector writes what was generated: not since PR 43797 of May 2026 (offload_prompt_only true),
// which is taken to have come with 0.23.
func (e *Engine) decodes() string { return strconv.FormatBool(!e.atLeast(23)) }

// KVPresets are the names of the presets.
func KVPresets() []string { return []string{"vllm", "lmcache", "hicache", "kvbm"} }

// fillKV sets the keys of kv that follow from the preset.
func (d *Deployment) fillKV() error {
	of, ok := kvPresets[d.KV.Preset]
	if !ok {
		return bad("kv.preset", "%q is unknown, want one of %s", d.KV.Preset, strings.Join(KVPresets(), ", "))
	}
	k := &d.KV
	k.Offload = cmp.Or(k.Offload, of.Offload)
	k.MinUses = cmp.Or(k.MinUses, of.MinUses, 1)
	k.SpillUses = cmp.Or(k.SpillUses, of.SpillUses, 1)
	k.Chunk = cmp.Or(k.Chunk, of.Chunk)
	k.Decoded = cmp.Or(k.Decoded, of.Decoded, d.Engine.decodes())
	k.MinFetch = cmp.Or(k.MinFetch, of.MinFetch)
	k.Fetch = cmp.Or(k.Fetch, "always")
	k.Policy = cmp.Or(k.Policy, "lru")
	k.Tools = cmp.Or(k.Tools, "learnt")
	k.Host.Capacity = cmp.Or(k.Host.Capacity, of.Host.Capacity)
	for _, t := range []struct {
		tier        *KVTier
		read, write string
		latency     time.Duration
	}{{&k.Host, "", "", 10 * time.Microsecond}, {&k.Disk, "7GB/s", "5GB/s", 80 * time.Microsecond}, {&k.Remote, "1GB/s", "1GB/s", 30 * time.Millisecond}} {
		if t.tier.none() {
			continue
		}
		t.tier.Read, t.tier.Write = cmp.Or(t.tier.Read, t.read), cmp.Or(t.tier.Write, cmp.Or(t.tier.Read, t.write))
		t.tier.Latency = cmp.Or(t.tier.Latency, t.latency)
	}
	return d.checkKV()
}

// checkKV verifies what needs no look-up.
func (d *Deployment) checkKV() error {
	k := &d.KV
	for _, c := range []struct {
		key, v string
		of     []string
	}{
		{"kv.offload", k.Offload, []string{"through", "back", "demand"}},
		{"kv.decoded", k.Decoded, []string{"true", "false"}},
		{"kv.fetch", k.Fetch, []string{"always", "faster"}},
		{"kv.tools", k.Tools, []string{"learnt", "recorded"}},
	} {
		if !slices.Contains(c.of, c.v) {
			return bad(c.key, "%q is unknown, want %s", c.v, strings.Join(c.of, ", "))
		}
	}
	for _, r := range []struct {
		key    string
		v, max int
	}{{"kv.min_uses", k.MinUses, 1 << 20}, {"kv.spill_uses", k.SpillUses, 1 << 20}, {"kv.chunk", k.Chunk, 1 << 20}, {"kv.min_fetch", k.MinFetch, 1 << 28}} {
		if r.v < 0 || r.v > r.max {
			return bad(r.key, "%d is out of range, want 0 to %d", r.v, r.max)
		}
	}
	for _, t := range []struct {
		key  string
		tier *KVTier
	}{{"kv.host", &k.Host}, {"kv.disk", &k.Disk}, {"kv.remote", &k.Remote}} {
		if t.tier.Latency < 0 || t.tier.Latency > longest {
			return bad(t.key+".latency", "%v is out of range, want 0s to %v", t.tier.Latency, longest)
		}
		for _, rate := range []struct{ key, v string }{{t.key + ".read", t.tier.Read}, {t.key + ".write", t.tier.Write}} {
			if rate.v == "" && t.tier == &k.Host {
				continue
			}
			if _, err := parseRate(rate.v); err != nil && !t.tier.none() {
				return bad(rate.key, "%v", err)
			}
		}
	}
	if !k.Disk.none() && k.Host.none() || !k.Remote.none() && k.Host.none() {
		return bad("kv.host.capacity", "not set: what lies on a drive or in a remote tier comes by way of the host's memory")
	}
	return nil
}

// units are the sizes that config files name.
var units = []struct {
	name string
	size float64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}}

// ParseBytes reads a size such as 200GiB or 1.5TB.
func ParseBytes(s string) (float64, error) {
	number, size := s, 0.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			number, size = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !(n >= 0 && n*max(size, 1) <= 1e18):
		return 0, fmt.Errorf("%q is not a size such as 200GiB or 1.5TB", s)
	case size == 0 && n != 0:
		return 0, fmt.Errorf("%q lacks a unit, such as GiB", s)
	}
	return n * size, nil
}

// parseRate reads a rate such as 54GB/s, in bytes per second.
func parseRate(s string) (float64, error) {
	rest, ok := strings.CutSuffix(s, "/s")
	n, err := ParseBytes(rest)
	if !ok || err != nil || n < 1e3 || n > 1e14 {
		return 0, fmt.Errorf("%q is not a rate such as 54GB/s, from 1KB/s to 100TB/s", s)
	}
	return n, nil
}

// resolveKV looks up and computes what the memory of the deployment needs; nil when there is neither a tier nor a policy
// that moves KV.
func (p *Plan) resolveKV() error {
	k := &p.KV
	rules, err := k.rules()
	if err != nil {
		return err
	}
	p.rules = rules
	gpus := float64(p.Hardware.Parallelism.GPUs()) / float64(p.Parallelism.Data)
	g := p.Hardware.GPU
	o := &memory.Options{BlockSize: int32(p.Engine.BlockSize), BlockBytes: int64(math.Round(p.blockBytes())),
		Network: gpus * g.NodeLinkGBs * 1e9, Near: gpus * g.LinkGBs * 1e9, Latency: 10 * time.Microsecond,
		MinUses: int32(k.MinUses), SpillUses: int32(k.SpillUses), Decoded: k.Decoded == "true", MinFetch: int32(k.MinFetch), FromPeers: rules.any(doFetch) || rules.any(doMove),
		Writing: map[string]memory.Writing{"through": memory.Through, "back": memory.Back, "demand": memory.OnDemand}[k.Offload]}
	if k.Chunk%p.Engine.BlockSize != 0 {
		return bad("kv.chunk", "%d is no multiple of engine.block_size %d", k.Chunk, p.Engine.BlockSize)
	}
	o.Chunk = int32(k.Chunk / p.Engine.BlockSize)
	if k.Fetch == "faster" {
		o.Worth = p.worthFetching
	}
	nodes := max(1, g.Domain/p.Hardware.Parallelism.GPUs()) * p.Parallelism.Data
	o.Node = func(rank int) int { return rank / nodes }
	for _, t := range []struct {
		key   string
		from  *KVTier
		to    *memory.Tier
		ranks float64
	}{{"kv.host", &k.Host, &o.Host, float64(p.Parallelism.Data)}, {"kv.disk", &k.Disk, &o.Disk, float64(p.Parallelism.Data)}, {"kv.remote", &k.Remote, &o.Remote, 1}} {
		if err := p.resolveTier(t.key, t.from, t.to, t.ranks); err != nil {
			return err
		}
	}
	link := gpus * g.HostLinkGBs * 1e9 * hostEfficiency
	o.Host.Read, o.Host.Write = cmp.Or(o.Host.Read, link), cmp.Or(o.Host.Write, link)
	if k.Policy == "none" {
		o.Host.Blocks, o.Disk.Blocks, o.Remote.Blocks = 0, 0, 0
		p.rules = nil
	}
	if o.Host.Blocks == 0 && len(p.rules) == 0 && p.Disaggregation.PrefillWorkers == 0 {
		return nil
	}
	if p.Engine.Kind == "sglang" {
		return bad("kv", "tiers and policies are simulated for engine.kind vllm and trtllm, not for sglang")
	}
	if !p.Engine.PrefixCaching {
		return bad("kv", "tiers and policies need engine.prefix_caching")
	}
	p.memory = o
	return nil
}

// blockBytes is the size of a KV block on all GPUs of a rank.
func (p *Plan) blockBytes() float64 {
	par := p.Hardware.Parallelism
	return float64(p.Capacity.KVBytesPerToken) * float64(p.Engine.BlockSize) * float64(max(1, par.Tensor)*max(1, par.Pipeline))
}

// resolveTier computes a tier for each of n ranks that share it.
func (p *Plan) resolveTier(key string, from *KVTier, to *memory.Tier, n float64) error {
	if from.none() {
		return nil
	}
	bytes := 0.0
	if times, ok := strings.CutPrefix(from.Capacity, "x"); ok {
		f, err := strconv.ParseFloat(times, 64)
		if err != nil || !(f > 0 && f <= 1e6) {
			return bad(key+".capacity", "%q is not a multiple such as x2", from.Capacity)
		}
		bytes = f * float64(p.Blocks) * p.blockBytes() * n
	} else {
		var err error
		if bytes, err = ParseBytes(from.Capacity); err != nil {
			return bad(key+".capacity", "%v", err)
		}
	}
	blocks := bytes / n / p.blockBytes()
	if blocks < 1 || blocks > 1<<30 {
		return bad(key+".capacity", "%s are %.0f blocks of KV for a rank, want 1 to %d", from.Capacity, blocks, 1<<30)
	}
	to.Blocks, to.Latency = int(blocks), from.Latency
	if from.Read != "" { // checked before
		to.Read, _ = parseRate(from.Read)
		to.Write, _ = parseRate(from.Write)
		to.Read, to.Write = to.Read/n, to.Write/n
	}
	return nil
}
