package cli

import (
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim"
)

// keyHelp says what each config key means, in one line.
var keyHelp = map[string]string{
	"name":                                        "label of the row",
	"model":                                       "a name of 'agentsim models', or the path of a Hugging Face config.json",
	"gpu":                                         "a name of 'agentsim gpus'",
	"workers":                                     "engine replicas",
	"parallelism.tensor":                          "GPUs that split each layer; 0 takes the smallest number that fits",
	"parallelism.pipeline":                        "stages that split the layers",
	"parallelism.data":                            "attention data-parallel ranks of a worker, each with its own KV cache",
	"parallelism.expert":                          "GPUs that hold different experts",
	"dtype.weights":                               "bf16, fp16, fp8, mxfp4, nvfp4 or int4; empty is the model's own",
	"dtype.kv":                                    "bf16, fp16 or fp8; empty is bf16",
	"engine.kind":                                 "vllm, sglang or trtllm; decides the defaults of keys that are 0 or empty",
	"engine.version":                              "engine version, for rules that changed between versions; empty is vLLM 0.19, SGLang 0.5, TensorRT-LLM 1.0",
	"engine.block_size":                           "tokens per KV block; 0 is 16 for vllm, 1 for sglang (page_size), 32 for trtllm",
	"engine.max_num_seqs":                         "most requests that run at a time; 0 is 256 for vllm, 2048 for sglang (max_running_requests) and trtllm",
	"engine.max_num_batched_tokens":               "most tokens of one step, for sglang prompt tokens (chunked_prefill_size); 0 is 8192",
	"engine.max_prefill_tokens":                   "sglang: most prompt tokens of a step, but for its first request; 0 is 16384",
	"engine.schedule_conservativeness":            "sglang: scales the output that is reserved for before a request is admitted; 0 is 1",
	"engine.max_model_len":                        "longest request in tokens; 0 is the model's own",
	"engine.gpu_memory_utilization":               "share of GPU memory that the engine takes, for sglang mem_fraction_static, for trtllm free_gpu_memory_fraction; 0 is the engine's default",
	"engine.prefix_caching":                       "keep freed KV blocks for reuse",
	"engine.scheduling":                           "fcfs; priority: by the hints of requests (vllm, sglang); continuum: oldest programs first, KV pinned while tools run, continuum-preview: the same where tools take less than 2 s (vllm); lpm: longest cached prefix first (sglang)",
	"engine.kv_eviction":                          "lru; priority: tokens of requests of low priority first (sglang)",
	"engine.async_scheduling":                     "vllm: schedule a step while the one before it runs, so that arrivals wait one step more: true, false, or auto: from 0.14 on, unless step times are fixed",
	"engine.filtered_sampling":                    "requests sample with top-p or top-k, as vLLM does by the model's generation_config.json: time for every logit",
	"engine.admission":                            "vllm: a waiting request needs blocks for its whole prompt (full) or for its first chunk (chunk); empty is full",
	"engine.speculative.method":                   "vllm: speculative decoding by ngram, eagle (EAGLE-3 too), mtp or draft_model; empty is none",
	"engine.speculative.tokens":                   "draft tokens per request and step (num_speculative_tokens); 0 is no speculative decoding",
	"engine.speculative.acceptance":               "share of drafts accepted after accepted ones, such as 0.7, or vLLM's per-position acceptance rates, such as [0.8, 0.6]",
	"engine.speculative.draft_model":              "draft_model: the model that drafts, a name of 'agentsim models' or the path of a config.json",
	"engine.kv_blocks":                            "KV blocks per rank: auto, a number, or a multiple of auto such as x0.5",
	"router.policy":                               strings.Join(router.Policies(), ", ") + "; 'agentsim config --policies' tells what each does",
	"router.policy_config":                        "a router policy file of Dynamo (--router-policy-config there), beside the config: sets policy, thunderagent and policy_classes",
	"router.preset":                               "kv: what Dynamo's flags set: load-aware (no cache credit) or agentic (credit 2, prefill scale 4, request weight 64)",
	"router.overlap_score_credit":                 "kv: prefill blocks forgiven for each prompt block that a worker holds; 0 keeps no index under any policy",
	"router.host_cache_hit_weight":                "kv: prefill blocks forgiven for each further prompt block that the worker's host tier holds",
	"router.disk_cache_hit_weight":                "kv: the same for its drives",
	"router.overlap_score_credit_decay":           "kv: takes credit from workers with more prefill load than the least loaded",
	"router.prefill_load_scale":                   "kv: weight of blocks to prefill against blocks held",
	"router.decode_active_request_weight":         "kv: cost of each active request, in blocks",
	"router.temperature":                          "kv: above 0 draws the worker from a softmax of the costs",
	"router.use_kv_events":                        "know cached blocks by what engines report; false: by what was sent there within ttl",
	"router.ttl":                                  "without KV events: how long a worker is taken to hold a prompt",
	"router.predicted_ttl":                        "with KV events: how long a prompt just sent counts as held before its events come; 0s does not",
	"router.event_delay":                          "from the end of an engine step until its KV events count",
	"router.track_active_blocks":                  "book the prompt blocks of active requests",
	"router.track_prefill_tokens":                 "book the uncached prompt tokens of requests before their first token",
	"router.track_output_blocks":                  "count the blocks that active requests generate, less as they near the output length hinted at",
	"router.assume_kv_reuse":                      "kv, thunderagent: count a block once however many active requests have it",
	"router.queue_policy":                         "order of waiting requests of equal strict priority: fcfs, wspt (shortest uncached prompt) or lcfs",
	"router.queue_threshold":                      "requests wait while all workers have more to prefill than that multiple of max_num_batched_tokens; 0 never",
	"router.queue_threshold_tokens":               "the same in tokens",
	"router.busy_worker_ratio":                    "share of workers that must be so busy; 0 is all",
	"router.default_policy_family":                "family of requests that name no other, where policy_classes divide the queue",
	"router.uncached_isl_buckets":                 "list of {min_tokens, bucket}: divides families by uncached prompt tokens",
	"router.policy_classes":                       "queues that take turns, as in Dynamo's policy file: list of {name, policy_family, cache_bucket, queue_policy, quantum, prefill_busy_threshold, prefill_busy_threshold_frac, busy_worker_ratio, request_queue_limit_per_worker, raw_isl_token_queue_limit_per_worker, cached_token_queue_limit_per_worker}",
	"router.active_decode_blocks_threshold":       "refuse requests (529) while active ones hold more than that share of every worker's KV blocks; 0 never",
	"router.active_prefill_tokens_threshold":      "the same for more than so many tokens to prefill",
	"router.active_prefill_tokens_threshold_frac": "the same for a multiple of max_num_batched_tokens",
	"router.session_affinity.mode":                "off; soft: a session stays on its worker while that is eligible; hard: always. thunderagent and soft-affinity-load-guard imply soft",
	"router.session_affinity.ttl":                 "idle time after which a session is free",
	"router.session_affinity.by_parent":           "bind a session together with the others of its parent",
	"router.max_programs":                         "programs that may send requests at a time, the others wait in order of arrival: none, a number, or auto (the best is searched for)",
	"router.thunderagent.preset":                  "version of the program scheduler: " + strings.Join(thunderagent.Presets(), ", ") + "; empty is the first",
	"router.thunderagent.gates":                   "on, or none: it holds and pauses nothing",
	"router.thunderagent.parameters":              "what differs from the preset: {pause_threshold: 0.9, scheduler_interval_seconds: 2, host_tier: true}, the latter to count kv.host in the budget; 'agentsim config --policies' lists them",
	"router.unlabelled":                           "share of programs whose requests name no session, so that the program scheduler does not see them",
	"router.frontends":                            "independent routers; a session stays on one",
	"kv.preset":                                   "whose rules the tiers follow: " + strings.Join(sim.KVPresets(), ", ") + "; sets what is empty or 0 below; empty is vllm",
	"kv.host.capacity":                            "host memory for the KV of each worker: a size such as 200GiB, or x2 for twice the KV of its GPUs; 0 is none",
	"kv.host.read":                                "rate from host to GPUs, such as 54GB/s; empty is that of the GPUs' links",
	"kv.host.write":                               "rate from GPUs to host; empty is that of kv.host.read or the links",
	"kv.host.latency":                             "time before each transfer; 0s is 10us",
	"kv.disk.capacity":                            "space on drives for the KV of each worker, below the host's",
	"kv.disk.read":                                "rate of reading from drives; empty is 7GB/s",
	"kv.disk.write":                               "rate of writing to drives; empty is 5GB/s",
	"kv.disk.latency":                             "time before each transfer; 0s is 80us",
	"kv.remote.capacity":                          "a pool for the KV of all workers, below the others",
	"kv.remote.read":                              "rate of reading from it, of all workers together; empty is 1GB/s",
	"kv.remote.write":                             "rate of writing to it; empty is that of kv.remote.read",
	"kv.remote.latency":                           "time before each transfer; 0s is 30ms",
	"kv.offload":                                  "what is written to the host and when: through (what is computed), back (what the GPU evicts), demand (what a policy demotes)",
	"kv.min_uses":                                 "through: requests that must have had a block before it is written to the host",
	"kv.spill_uses":                               "the same before it is written to the tiers below",
	"kv.chunk":                                    "tokens that are written and found together, a multiple of engine.block_size; 0 is a block",
	"kv.decoded":                                  "write what was generated, and not just prompts: true or false",
	"kv.min_fetch":                                "fewest tokens that are brought back from below the host's memory rather than computed",
	"kv.fetch":                                    "bring tokens back always, or only when that is faster than the prefill that it spares",
	"kv.policy":                                   "what is done with the KV of sessions: " + strings.Join(sim.KVPolicies(), ", ") + ", or several joined by +; 'agentsim config --kv-policies' tells what each does",
	"kv.rules":                                    "further rules: [{on: tool-start, do: pin, tool: bash*, session: root, longer_than: auto, shorter_than: 2s, ttl: 5s}]; 'agentsim config --kv-policies' lists events and actions",
	"kv.tools":                                    "where rules know from how long a tool takes: learnt (from those of its name before) or recorded (from the trace, as nobody could)",
	"disaggregation.prefill_workers":              "how many of the workers only prefill, the last ones; 0 is aggregated serving (vllm, trtllm)",
	"disaggregation.mode":                         "always, or conditional: a decode worker is chosen first, and prefills what it lacks where that is little",
	"disaggregation.max_local_prefill":            "conditional: most prompt tokens, not cached, that a decode worker prefills itself",
	"disaggregation.max_queue":                    "conditional: with so many requests waiting for prefill workers, decode workers prefill; 0: however many wait",
	"disaggregation.prefill_policy":               "router.policy among workers that prefill; empty is the same",
	"disaggregation.decode_policy":                "router.policy among workers that decode; empty is the same. With mode always it counts nothing as cached",
	"disaggregation.max_num_batched_tokens":       "engine.max_num_batched_tokens of workers that prefill; 0 is the same",
	"load.mode":                                   "recorded, closed, concurrency, poisson, or rollout (all programs begin at once); empty chooses by the trace",
	"load.concurrency":                            "root programs that live at a time",
	"load.rate":                                   "root programs per second",
	"load.programs":                               "root programs to run, the trace's over and over; 0 runs each once",
	"load.speed":                                  "divides arrivals and gaps, not service",
	"load.max_gap":                                "longest gap between turns, after speed; none",
	"load.human_gap":                              "what people took: recorded, drop, or cap=60s",
	"load.warmup":                                 "time before the measured window",
	"load.duration":                               "length of the measured window; 0s measures the whole run",
	"load.start":                                  "ramp: programs begin with their first turn; snapshot: at random turns",
	"load.ramp":                                   "time over which the first programs begin (mode concurrency); 0s: all at once",
	"client.timeout":                              "when clients give up; 0s never",
	"client.max_tokens":                           "output tokens that each call allows, which sglang and trtllm reserve KV for; 0 is what it generates",
	"client.session_final":                        "which calls tell that their session ends: recorded, last, never, or auto (recorded where the trace has any, else last)",
	"client.retries":                              "how often they try again",
	"workload.outputs":                            "generated tokens that later prompts share: inferred, or the bounds none and all",
	"workload.max_context":                        "calls longer than the model takes: reject, truncate (keep the head) or split (new chain)",
	"workload.warm_start":                         "history of sessions that began before the capture is resident where they first run",
	"models":                                      "calls to other models, by glob: serve, drop or fold (they take their recorded time)",
	"cost.profile":                                "step cost: a name of 'agentsim models profiles', fixed, or a profile file; empty follows engine.kind",
	"cost.prefill":                                "profile fixed: time of a step with any prefill, added to cost.decode",
	"cost.decode":                                 "profile fixed: time of a step with any decode",
	"hints":                                       "rules that give hints to calls, the last that matches counts: [{match: {subagent: true}, priority: 5}]; match has root, subagent, first, class, model (globs), hints are priority, strict_priority, osl, policy_class",
	"faults":                                      "workers that go (action: remove) and come back with an empty cache (return): [{at: 300s, worker: 1, action: remove}]",
	"slo.ttft":                                    "bound of the time to first token for goodput; 0s is none",
	"slo.itl":                                     "bound of a request's mean time per output token; 0s is none",
	"slo.program":                                 "bound of a program's makespan; 0s is none",
	"seed":                                        "seed of everything random",
}

func newConfig(g *Global) *cobra.Command {
	var asYAML, policies, kvPolicies bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "List the keys of a deployment, their defaults and meaning",
		Long: `List the keys of a deployment with their defaults. They are set in a YAML file (predict -c FILE), by --set path=value, or
tried in turn by --grid path=v1,v2. With --yaml the defaults are printed as a file to start from, with --policies what the
values of router.policy do, and the presets and parameters of the program scheduler; with --kv-policies what those of
kv.policy and kv.preset do, and the events and actions of kv.rules.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if policies {
				return printPolicies(g.Stdout)
			}
			if kvPolicies {
				return printKVPolicies(g.Stdout)
			}
			if !g.Screen { // a line a key, for grep
				return printConfig(g.Stdout, asYAML, math.MaxInt)
			}
			return printConfig(g.Stdout, asYAML, g.Width)
		},
	}
	cmd.Flags().BoolVar(&policies, "policies", false, "list routing policies and the program scheduler's presets")
	cmd.Flags().BoolVar(&asYAML, "yaml", false, "print a config file with the defaults")
	cmd.Flags().BoolVar(&kvPolicies, "kv-policies", false, "list KV policies, and the events and actions of their rules")
	cmd.MarkFlagsMutuallyExclusive("yaml", "policies", "kv-policies")
	return cmd
}

func printConfig(w io.Writer, asYAML bool, width int) error {
	d := sim.Default()
	text, err := yaml.Marshal(d)
	if err != nil {
		return fmt.Errorf("encoding the defaults: %w", err)
	}
	if asYAML {
		_, err = w.Write(text)
		return err
	}
	return tableWithin(w, width, func(w io.Writer) {
		fmt.Fprintln(w, "key\tdefault\tmeaning")
		walkValues(reflect.ValueOf(d), func(path string, v reflect.Value) {
			def := fmt.Sprint(v.Interface())
			if v.IsZero() && (v.Kind() == reflect.String || v.Kind() == reflect.Map) {
				def = "-"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", path, def, keyHelp[path])
		})
	})
}

// printPolicies lists routing policies, the presets of the program scheduler, and its parameters in each.
func printPolicies(w io.Writer) error {
	err := table(w, func(w io.Writer) {
		fmt.Fprintln(w, "router.policy\twhere a request goes")
		for _, name := range router.Policies() {
			fmt.Fprintf(w, "%s\t%s\n", name, router.Describe(name))
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	presets := thunderagent.Presets()
	err = table(w, func(w io.Writer) {
		fmt.Fprintln(w, "router.thunderagent.preset\twhose program scheduler")
		for _, name := range presets {
			fmt.Fprintf(w, "%s\t%s\n", name, thunderagent.DescribePreset(name))
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	return table(w, func(w io.Writer) {
		fmt.Fprintf(w, "router.thunderagent.parameters\t%s\n", strings.Join(presets, "\t"))
		columns := make([]reflect.Value, len(presets))
		for i, name := range presets {
			s, _ := thunderagent.Preset(name) // it is listed
			columns[i] = reflect.ValueOf(s)
		}
		walkKeys(columns[0].Type(), "", func(path string, _ reflect.Type, index []int) {
			if path == "block_size" { // follows engine.block_size
				return
			}
			fmt.Fprint(w, path)
			for _, c := range columns {
				fmt.Fprintf(w, "\t%v", c.FieldByIndex(index))
			}
			fmt.Fprintln(w)
		})
	})
}

// printKVPolicies lists policies and presets of kv, and the events and actions of rules.
func printKVPolicies(w io.Writer) error {
	for i, list := range []struct {
		head, means string
		names       []string
	}{{"kv.policy", "what is done with the KV of sessions", sim.KVPolicies()}, {"kv.preset", "whose rules tiers follow", sim.KVPresets()},
		{"kv.rules: on", "when it happens", sim.KVEvents()}, {"kv.rules: do", "what is done", sim.KVActions()}} {
		if i > 0 {
			fmt.Fprintln(w)
		}
		err := table(w, func(w io.Writer) {
			fmt.Fprintf(w, "%s\t%s\n", list.head, list.means)
			for _, name := range list.names {
				fmt.Fprintf(w, "%s\t%s\n", name, sim.DescribeKV(name))
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// walkValues calls each with the path and value of every key, in the order of walkKeys.
func walkValues(v reflect.Value, each func(path string, v reflect.Value)) {
	walkKeys(v.Type(), "", func(path string, _ reflect.Type, index []int) { each(path, v.FieldByIndex(index)) })
}
