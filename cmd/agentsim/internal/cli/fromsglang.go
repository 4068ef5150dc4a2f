package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

// sglangFlags are the flags of SGLang's server with a config key of the same meaning, whose value is a whole number.
var sglangFlags = map[string]struct {
	key   string
	least int
}{
	"tp-size":              {"parallelism.tensor", 1},
	"pp-size":              {"parallelism.pipeline", 1},
	"dp-size":              {"parallelism.data", 1},
	"ep-size":              {"parallelism.expert", 1},
	"max-running-requests": {"engine.max_num_seqs", 1},
	"chunked-prefill-size": {"engine.max_num_batched_tokens", 1},
	"max-prefill-tokens":   {"engine.max_prefill_tokens", 1},
	"page-size":            {"engine.block_size", 1},
	"context-length":       {"engine.max_model_len", 1},
}

var sglangShort = map[string]string{"tp": "tp-size", "tensor-parallel-size": "tp-size", "pp": "pp-size", "pipeline-parallel-size": "pp-size",
	"dp": "dp-size", "data-parallel-size": "dp-size", "ep": "ep-size", "expert-parallel-size": "ep-size", "model": "model-path"}

// sglangSwitches are flags of SGLang without a value.
var sglangSwitches = wordSet(`trust-remote-code enable-dp-attention disable-radix-cache disable-cuda-graph enable-torch-compile
	enable-metrics log-requests skip-tokenizer-init enable-ep-moe enable-deepep-moe enable-mixed-chunk disable-overlap-schedule
	enable-two-batch-overlap enable-hierarchical-cache skip-server-warmup disable-custom-all-reduce enable-lora
	enable-cache-report show-time-cost disable-chunked-prefix-cache enable-multimodal enable-mscclpp enable-nccl-nvls
	enable-symm-mem enable-dp-lm-head disable-shared-experts-fusion cuda-graph-bs-all enable-memory-saver disable-fast-image-processor
	enable-eplb enable-p2p-check triton-attention-reduce-in-fp32 allow-auto-truncate`)

// sglangHarmless are flags of SGLang that change nothing of what is simulated.
var sglangHarmless = wordSet(`host port api-key served-model-name trust-remote-code tokenizer-path tokenizer-mode revision
	chat-template tool-call-parser reasoning-parser log-level log-level-http log-requests log-requests-level enable-metrics
	random-seed load-format download-dir skip-server-warmup warmups watchdog-timeout dist-timeout nccl-init-addr dist-init-addr
	enable-cache-report show-time-cost grammar-backend skip-tokenizer-init decode-log-interval stream-interval file-storage-path
	dtype device bucket-time-to-first-token bucket-e2e-request-latency model-loader-extra-config`)

func newModelsFromSGLang(g *Global) *cobra.Command {
	return newFromServer(g, "from-sglang", "sglang", `  agentsim models from-sglang "python -m sglang.launch_server --model-path Qwen/Qwen3-14B --tp 2"
  agentsim models from-sglang --log sglang.log > deployment.yaml`)
}

// readSGLang reads an SGLang command line.
func (c *serverConfig) readSGLang(words []string) error {
	args, err := c.serverArgs(words, "sglang", "serve", "sglang.launch_server", "lmsysorg/sglang")
	if err != nil {
		return err
	}
	options, bare := parseOptions(args, sglangSwitches, sglangShort)
	if len(bare) > 0 {
		return fmt.Errorf("the argument %q belongs to no flag", bare[0])
	}
	for _, o := range options {
		if err := c.readSGLangOption(o); err != nil {
			return err
		}
	}
	return nil
}

func (c *serverConfig) readSGLangOption(o option) error {
	value := ""
	if len(o.values) > 0 {
		value = o.values[0]
	}
	if rule, ok := sglangFlags[o.name]; ok {
		if o.name == "chunked-prefill-size" && value == "-1" {
			c.unmodelled = append(c.unmodelled, o.given+" -1")
			return nil
		}
		return c.setInt(rule.key, value, o.given, rule.least)
	}
	switch o.name {
	case "model-path":
		return c.setModel(value, o.given)
	case "mem-fraction-static":
		return c.setShare("engine.gpu_memory_utilization", value, o.given)
	case "kv-cache-dtype":
		c.setKVFormat(value, o.given)
	case "quantization":
		c.setQuantization(value, o.given)
	case "enable-ep-moe", "enable-deepep-moe":
		c.set("parallelism.expert", "0", o.given)
	case "enable-dp-attention":
		c.dpAttention = true
	case "disable-radix-cache":
		c.set("engine.prefix_caching", "false", o.given)
	case "max-total-tokens":
		return c.setInt("engine.kv_blocks", value, o.given, 2) // finishSGLang divides by the page
	case "schedule-policy":
		switch value {
		case "fcfs", "lpm":
			c.set("engine.scheduling", value, o.given)
		default:
			c.unmodelled = append(c.unmodelled, o.given+" "+value)
		}
	case "schedule-conservativeness":
		if f, err := strconv.ParseFloat(value, 64); err != nil || !(f > 0 && f <= 100) {
			return fmt.Errorf("%s %q: want a number above 0 and at most 100", o.given, value)
		}
		c.set("engine.schedule_conservativeness", value, o.given)
	default:
		c.note(o.name, o.given, sglangHarmless)
	}
	return nil
}

// finishSGLang fills in what follows from several flags. With data-parallel attention tp counts all GPUs; without it, data
// parallelism makes replicas.
func (c *serverConfig) finishSGLang() error {
	if data := c.number("parallelism.data", 1); data > 1 {
		tensor := c.number("parallelism.tensor", 1)
		switch {
		case !c.dpAttention:
			for i := range c.settings {
				if s := &c.settings[i]; s.key == "parallelism.data" {
					s.key, s.from = "workers", s.from+": replicas"
				}
			}
		case tensor%data != 0:
			return fmt.Errorf("--dp-size %d does not divide --tp-size %d, although attention is data-parallel", data, tensor)
		default:
			c.set("parallelism.tensor", strconv.Itoa(tensor/data), "tp over dp, with --enable-dp-attention")
		}
	}
	c.finishParallelism()
	page := c.number("engine.block_size", 1)
	for i := range c.settings {
		if s := &c.settings[i]; s.key == "engine.kv_blocks" {
			s.value = strconv.Itoa(c.number(s.key, 0) / page)
		}
	}
	return nil
}
