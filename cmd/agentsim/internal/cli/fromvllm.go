package cli

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/models"
)

// flagValue is what needs no quotes in YAML.
var flagValue = regexp.MustCompile(`^[a-z][a-z0-9./-]*$`)

// vllmFlags are the flags of `vllm serve` with a config key of the same meaning, whose value is a whole number.
var vllmFlags = map[string]struct {
	key   string
	least int
}{
	"tensor-parallel-size":    {"parallelism.tensor", 1},
	"pipeline-parallel-size":  {"parallelism.pipeline", 1},
	"max-num-seqs":            {"engine.max_num_seqs", 1},
	"max-num-batched-tokens":  {"engine.max_num_batched_tokens", 1},
	"block-size":              {"engine.block_size", 1},
	"num-gpu-blocks-override": {"engine.kv_blocks", 2},
}

var vllmShort = map[string]string{"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size",
	"ep": "enable-expert-parallel", "sc": "speculative-config", "q": "quantization", "h": "help"}

// vllmSwitches are flags of vLLM without a value; any of them may have "no-" before.
var vllmSwitches = wordSet(`enable-prefix-caching enable-expert-parallel enable-chunked-prefill enforce-eager
	trust-remote-code disable-log-requests enable-log-requests disable-log-stats enable-auto-tool-choice enable-reasoning enable-lora
	disable-custom-all-reduce enable-sleep-mode skip-tokenizer-init disable-sliding-window use-v2-block-manager
	disable-frontend-multiprocessing enable-request-id-headers enable-prompt-tokens-details enable-force-include-usage
	enable-server-load-tracking disable-fastapi-docs async-scheduling enable-eplb enable-dbo enable-prompt-embeds
	disable-uvicorn-access-log allow-credentials return-tokens-as-token-ids language-model-only disable-hybrid-kv-cache-manager
	data-parallel-hybrid-lb data-parallel-external-lb headless disable-cascade-attn calculate-kv-scales
	disable-chunked-mm-input enable-log-outputs disable-async-output-proc use-tqdm-on-load enable-return-routed-experts`)

// vllmHarmless are flags of vLLM that change nothing of what is simulated.
var vllmHarmless = wordSet(`host port uds api-key served-model-name trust-remote-code download-dir tokenizer tokenizer-mode
	tokenizer-revision revision code-revision chat-template chat-template-content-format tool-call-parser tool-parser-plugin
	enable-auto-tool-choice enable-reasoning reasoning-parser response-role disable-log-requests enable-log-requests disable-log-stats
	uvicorn-log-level log-config-file max-log-len seed load-format safetensors-load-strategy model-loader-extra-config
	distributed-executor-backend generation-config override-generation-config ssl-keyfile ssl-certfile ssl-ca-certs root-path
	middleware allowed-origins allowed-methods allowed-headers allow-credentials enable-request-id-headers enable-prompt-tokens-details
	enable-force-include-usage enable-server-load-tracking disable-fastapi-docs disable-uvicorn-access-log
	disable-frontend-multiprocessing api-server-count guided-decoding-backend structured-outputs-config
	return-tokens-as-token-ids prefix-caching-hash-algo enable-chunked-prefill use-v2-block-manager swap-space
	worker-use-ray ray-workers-use-nsight otlp-traces-endpoint collect-detailed-traces show-hidden-metrics-for-version
	hf-token config-format use-tqdm-on-load enable-log-outputs max-logprobs task runner limit-mm-per-prompt
	language-model-only kv-events-config data-parallel-address data-parallel-rpc-port master-addr master-port device dtype
	max-parallel-loading-workers ignore-patterns logits-processors max-seq-len-to-capture shutdown-timeout`)

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

func newModelsFromVLLM(g *Global) *cobra.Command {
	return newFromServer(g, "from-vllm", "vllm", `  agentsim models from-vllm "vllm serve Qwen/Qwen3-14B -tp 2 --max-num-seqs 128"
  agentsim models from-vllm --log vllm.log > deployment.yaml
  agentsim predict trace.jsonl -c deployment.yaml`)
}

// newFromServer makes the command that turns a server's command line or log into a config.
func newFromServer(g *Global, use, engine, example string) *cobra.Command {
	var gpu, logFile, version string
	name := map[string]string{"vllm": "vLLM", "sglang": "SGLang"}[engine]
	cmd := &cobra.Command{
		Use:   use + " [COMMAND]",
		Short: "Turn a " + name + " command line or start-up log into a config",
		Long: `Print the config of the deployment that a ` + name + ` command line starts, in quotes or after --. Only what differs from the
defaults is printed, each line with the flag or log line that it comes from. With --log, the server's start-up log is read as well,
which tells the KV blocks that it really has; where they differ, the log counts. Flags that no key stands for are listed on
standard error.`,
		Example: example,
		RunE: func(_ *cobra.Command, args []string) error {
			c := &serverConfig{engine: engine}
			c.set("gpu", gpu, "--gpu")
			if engine != "vllm" {
				c.set("engine.kind", engine, "the command")
			}
			if len(args) == 0 && logFile == "" {
				return usagef("%s wants a command line or --log FILE", use)
			}
			if err := c.readServer(args, logFile, version); err != nil {
				return usagef("%s: %w", use, err)
			}
			return c.write(g.Stdout, g.Stderr)
		},
	}
	f := cmd.Flags()
	f.StringVar(&gpu, "gpu", "h100-sxm", "GPU that the server runs on: a name of `agentsim gpus`")
	f.StringVar(&logFile, "log", "", "start-up log of the server")
	f.StringVar(&version, "engine-version", "", "version of the server, where neither command line nor log tells it")
	return cmd
}

// readServer reads the command line, then the log, and fills in what follows from both.
func (c *serverConfig) readServer(args []string, logFile, version string) error {
	if version != "" {
		c.set("engine.version", strconv.Quote(version), "--engine-version")
	}
	if _, err := models.LookupGPU(c.get("gpu")); err != nil {
		return err
	}
	words := args
	if len(args) == 1 {
		var err error
		if words, err = splitCommand(args[0]); err != nil {
			return err
		}
	}
	read, finish := c.readVLLM, c.finishVLLM
	if c.engine == "sglang" {
		read, finish = c.readSGLang, c.finishSGLang
	}
	if len(words) > 0 {
		if err := read(words); err != nil {
			return err
		}
	}
	if logFile != "" {
		if err := c.readLogFile(logFile); err != nil {
			return err
		}
	}
	if c.model == nil {
		return fmt.Errorf("no model is named (--model, or a %s engine's own line of the log)", c.engine)
	}
	return finish()
}

func (c *serverConfig) readLogFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("reading a server's log: %w", err)
	}
	defer f.Close()
	if err := c.readLog(f); err != nil {
		return fmt.Errorf("reading the log %s: %w", name, err)
	}
	return nil
}

// imageVersion is the version in the tag of a container image.
var imageVersion = regexp.MustCompile(`:v?(\d+\.\d+(?:\.\d+)?)`)

// serverArgs finds the arguments of a server in a command line: behind its entry point, whatever stands before, or behind
// a container image. A command line of flags alone is taken as they are (the args of a Kubernetes container).
func (c *serverConfig) serverArgs(words []string, program, verb, module, image string) ([]string, error) {
	behindImage := -1
	for i, w := range words {
		switch next := words[i+1:]; {
		case path.Base(w) == program && len(next) > 0 && next[0] == verb:
			return next[1:], nil
		case w == module:
			return next, nil
		case behindImage < 0 && strings.Contains(w, image):
			behindImage = i + 1
			if v := imageVersion.FindStringSubmatch(w[strings.Index(w, image):]); v != nil && c.engine == "vllm" {
				c.set("engine.version", strconv.Quote(v[1]), w)
			}
		}
	}
	if behindImage >= 0 {
		return words[behindImage:], nil
	}
	if len(words) > 0 && isFlag(words[0]) {
		return words, nil
	}
	return nil, fmt.Errorf("%.60q starts no %s server: want `%s %s ...` or `python -m %s ...`", strings.Join(words, " "), c.engine, program, verb, module)
}

// readVLLM reads a vLLM command line.
func (c *serverConfig) readVLLM(words []string) error {
	args, err := c.serverArgs(words, "vllm", "serve", "vllm.entrypoints.openai.api_server", "vllm-openai")
	if err != nil {
		return err
	}
	switches := map[string]bool{}
	for name := range vllmSwitches {
		switches[name], switches["no-"+name] = true, true
	}
	options, bare := parseOptions(args, switches, vllmShort)
	if len(bare) > 0 {
		if err := c.setModel(bare[0], "vllm serve"); err != nil {
			return err
		}
	}
	if len(bare) > 1 {
		return fmt.Errorf("the argument %q belongs to no flag, and the model is %q", bare[1], bare[0])
	}
	for _, o := range options {
		if err := c.readVLLMOption(o); err != nil {
			return err
		}
	}
	return nil
}

func (c *serverConfig) readVLLMOption(o option) error {
	value := ""
	if len(o.values) > 0 {
		value = o.values[0]
	}
	if rule, ok := vllmFlags[o.name]; ok {
		return c.setInt(rule.key, value, o.given, rule.least)
	}
	name, off := strings.CutPrefix(o.name, "no-")
	on := strconv.FormatBool(!off && value != "False" && value != "false")
	switch name {
	case "model":
		return c.setModel(value, o.given)
	case "max-model-len":
		if value == "auto" || value == "-1" {
			c.unmodelled = append(c.unmodelled, o.given+" "+value)
			return nil
		}
		return c.setInt("engine.max_model_len", value, o.given, 1)
	case "gpu-memory-utilization":
		return c.setShare("engine.gpu_memory_utilization", value, o.given)
	case "kv-cache-dtype":
		c.setKVFormat(value, o.given)
	case "quantization":
		c.setQuantization(value, o.given)
	case "data-parallel-size":
		return c.setInt("parallelism.data", value, o.given, 1)
	case "enable-expert-parallel":
		c.set("parallelism.expert", "0", o.given) // finishVLLM knows how many
		if off {
			c.set("parallelism.expert", "1", o.given)
		}
	case "speculative-config":
		return c.setSpeculation(value, o.given)
	case "enable-prefix-caching":
		c.set("engine.prefix_caching", on, o.given)
	case "disable-hybrid-kv-cache-manager":
		c.oneGroup = on == "true"
	case "async-scheduling":
		c.set("engine.async_scheduling", on, o.given)
	case "scheduling-policy":
		c.set("engine.scheduling", yamlString(value), o.given)
		if value != "fcfs" {
			c.set("engine.scheduling", "fcfs", o.given)
			c.unmodelled = append(c.unmodelled, o.given+" "+value)
		}
	case "dtype":
		if value == "float32" || value == "float" {
			c.unmodelled = append(c.unmodelled, o.given+" "+value)
			return nil
		}
		c.harmless = append(c.harmless, o.given)
	default:
		harmless := vllmHarmless
		if off && name == "enable-chunked-prefill" {
			harmless = nil
		}
		c.note(name, o.given, harmless)
	}
	return nil
}

// finishVLLM fills in what vLLM's own defaults and the model decide: a server without limits takes those of the GPU, and
// data parallelism makes replicas of a dense model.
func (c *serverConfig) finishVLLM() error {
	c.finishParallelism()
	c.finishSpeculation()
	gpu, err := models.LookupGPU(c.get("gpu"))
	if err != nil {
		return err
	}
	// EngineArgs.get_batch_defaults (vllm/engine/arg_utils.py, from 0.9 on)
	seqs, tokens := 256, 2048
	if gpu.MemoryGiB >= 70 && !strings.HasPrefix(gpu.Name, "a100") {
		seqs, tokens = 1024, 8192
	}
	const from = "default of vllm serve on this GPU"
	c.convertVLLMPool()
	if c.get("engine.max_num_batched_tokens") == "" {
		c.set("engine.max_num_batched_tokens", strconv.Itoa(max(tokens, c.number("engine.max_num_seqs", 0))), from)
	}
	if c.get("engine.max_num_seqs") == "" {
		c.set("engine.max_num_seqs", strconv.Itoa(min(seqs, c.number("engine.max_num_batched_tokens", tokens))), from)
	}
	return nil
}

// finishParallelism settles what data and expert parallelism mean for the model. A server without a tensor parallelism
// has one GPU.
func (c *serverConfig) finishParallelism() {
	if c.get("parallelism.tensor") == "" {
		c.set("parallelism.tensor", "1", "not given")
	}
	tensor, data := c.number("parallelism.tensor", 1), c.number("parallelism.data", 1)
	dense := c.model.MoELayers() == 0
	for i := range c.settings {
		switch s := &c.settings[i]; {
		case s.key == "parallelism.data" && dense:
			s.key, s.from = "workers", s.from+": replicas of a dense model"
		case s.key == "parallelism.expert" && dense:
			s.value = "1"
		case s.key == "parallelism.expert" && s.value == "0":
			s.value = strconv.Itoa(tensor * data)
		}
	}
	for _, key := range []string{"parallelism.data", "parallelism.expert", "workers", "parallelism.pipeline"} {
		if c.get(key) == "1" { // the default
			c.drop(key)
		}
	}
}
