package sim

// kvHelp says in a line what the names of kv's policies, presets, events and actions stand for, and whose they are.
var kvHelp = map[string]string{
	// Policies.
	"none":                   "nothing below the GPUs: tiers are left out, too",
	"lru":                    "each tier keeps what was used last, as today's engines do; no event counts",
	"continuum":              "pin a session's KV on the GPU while its tool runs, as long as that pays (arXiv 2511.02230)",
	"offload-on-tool":        "move the KV that is the session's alone to the host when its tool takes longer than the way out and back",
	"prefetch-before-return": "offload-on-tool, and have the KV back on the GPU when the tool returns",
	"evict-subagents":        "drop what a subagent alone had when it ends",
	"kvcr":                   "move a session's KV from the worker on which it was when it goes on elsewhere (Dynamo's kv.fetch, KVCR)",
	"speculative-prefill":    "compute what is known of the next prompt, the answer without its reasoning, while the tool runs (Dynamo's hint)",
	"all":                    "prefetch-before-return, kvcr, evict-subagents, pins for short tools; also demote on pause, evict reasoning first, drop at compaction and end",
	// Presets.
	"vllm":    "what is computed is written through to the host, from vLLM 0.23 on only prompts (its OffloadingConnector)",
	"lmcache": "only prompts are written, in whole chunks of 256 tokens (LMCache's chunk_size, save_decode_cache)",
	"hicache": "a host tier of twice the KV of the GPUs, below it prompts are fetched from 256 tokens on (SGLang's hicache_ratio, prefetch_threshold)",
	"kvbm":    "all is written to the host, to drives what a second request has had (the filter of Dynamo's KV block manager)",
	// Events.
	"tool-start":     "a turn has ended with a call of a tool",
	"turn-end":       "a turn has ended without one, and others follow",
	"tool-due":       "the tool is about to return: as long before as the session's KV takes to the host and back",
	"tool-return":    "the session's next request has come",
	"thinking-end":   "a turn has ended that reasoned",
	"pause":          "the program scheduler has paused the program",
	"resume":         "the session goes on on another worker than before, or after a pause",
	"subagent-start": "the first request of a subagent has come",
	"subagent-end":   "the last request of a subagent has ended",
	"compaction":     "the first turn after the context was summarized",
	"session-end":    "the last request of a root session has ended",
	"worker-lost":    "the worker on which the session was is gone",
	// Actions.
	"pin":         "keep the session's KV on the GPU for ttl, or until running requests need the room",
	"unpin":       "end that",
	"demote":      "move what is the session's alone to the host, and free the GPU of it",
	"prefetch":    "bring it back to the GPU, and pin it there for ttl",
	"drop":        "forget what is the session's alone, on the GPU and in the worker's tiers",
	"evict-last":  "evict the session's KV after all other",
	"evict-first": "evict what is the session's alone before all other",
	"fetch":       "let its next request bring KV from the worker on which it was before",
	"move":        "fetch it, and drop what is the session's alone where it was, once the request runs",
	"speculate":   "compute what is known of the next prompt before it comes",
}

// DescribeKV says in a line what a name of KVPolicies, KVPresets, KVEvents or KVActions stands for; "" for an unknown one.
func DescribeKV(name string) string { return kvHelp[name] }
