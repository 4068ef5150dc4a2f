package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// maxLogLine is the longest line of a log that is looked at, in bytes; the rest of a longer one is skipped.
const maxLogLine = 1 << 20

// logFact is a line of a server's log that tells a number.
type logFact struct {
	pattern *regexp.Regexp
	read    func(c *serverConfig, value, line string) error
}

// vllmFacts are what vLLM says at start-up, in its versions' words. Of several engines the smallest pool counts, and a
// number of blocks counts more than a number of tokens, which newer versions derive from it.
var vllmFacts = []logFact{
	{regexp.MustCompile(`# (?:GPU|CUDA|cuda) blocks: (\d+)`), (*serverConfig).logBlocks},
	{regexp.MustCompile(`num_gpu_blocks is: (\d+)`), (*serverConfig).logBlocks},
	{regexp.MustCompile(`GPU KV cache size: ([\d,]+) tokens`), (*serverConfig).logTokens},
	{regexp.MustCompile(`Chunked prefill is enabled with (max_num_batched_tokens=\d+)`), (*serverConfig).logDump},
	{regexp.MustCompile(`Defaulting max_num_batched_tokens to (\d+)`), logOption("max-num-batched-tokens")},
	{regexp.MustCompile(`Defaulting max_num_seqs to (\d+)`), logOption("max-num-seqs")},
	{regexp.MustCompile(`Maximum concurrency for ([\d,]+) tokens per request`), func(c *serverConfig, value, line string) error {
		if c.get("engine.max_model_len") != "" {
			return nil
		}
		return c.setInt("engine.max_model_len", value, line, 1)
	}},
	{regexp.MustCompile(`(?:LLM engine \(v|vLLM API server version |█ +version )(\d+\.\d+(?:\.\d+)?)`), func(c *serverConfig, value, line string) error {
		c.set("engine.version", `"`+value+`"`, line)
		return nil
	}},
	{regexp.MustCompile(`LLM engine \(v[^)]*\) with config: (.*)`), (*serverConfig).logDump},
	{regexp.MustCompile(`(?:non-default args: |args: Namespace)(.*)`), (*serverConfig).logDump},
	{regexp.MustCompile(`Per-position acceptance rate: ([\d., ]+)`), (*serverConfig).logAcceptance},
}

// sglangFacts are what SGLang says at start-up.
var sglangFacts = []logFact{
	{regexp.MustCompile(`server_args=ServerArgs\((.*)`), (*serverConfig).logDump},
	{regexp.MustCompile(`\bmax_total_num_tokens=(\d+)`), (*serverConfig).logBlocks},
	{regexp.MustCompile(`KV Cache is allocated\. .*?#tokens: (\d+)`), (*serverConfig).logBlocks},
	{regexp.MustCompile(`\bmax_total_num_tokens=.*\b(max_running_requests=\d+)`), (*serverConfig).logDump},
}

// readLog reads a server's start-up log. Lines that tell nothing are skipped; a log that tells nothing is an error.
func (c *serverConfig) readLog(r io.Reader) error {
	facts := vllmFacts
	if c.engine == "sglang" {
		facts = sglangFacts
	}
	in := bufio.NewReaderSize(r, 64<<10)
	found := false
	for n := 1; ; n++ {
		line, err := readLine(in)
		for _, f := range facts {
			if m := f.pattern.FindStringSubmatch(line); m != nil {
				found = true
				if err := f.read(c, m[1], fmt.Sprintf("line %d of the log", n)); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no start-up line of a %s server in it", c.engine)
	}
	return nil
}

// readLine reads up to a line's end, and skips what exceeds maxLogLine.
func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if room := maxLogLine - len(line); room > 0 {
			line = append(line, part[:min(len(part), room)]...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return strings.TrimRight(string(line), "\r\n"), err
		}
	}
}

// logBlocks records a KV pool in blocks; SGLang's tokens become pages in finishSGLang.
func (c *serverConfig) logBlocks(value, line string) error {
	n, err := humanInt(value)
	if err != nil {
		return fmt.Errorf("%s: %q KV blocks", line, value)
	}
	if c.poolLine == "blocks" && n >= c.number("engine.kv_blocks", 0) {
		return nil
	}
	c.poolLine = "blocks"
	return c.setInt("engine.kv_blocks", value, line, 2)
}

// logTokens records a KV pool in tokens, which finishVLLM divides by the block size.
func (c *serverConfig) logTokens(value, line string) error {
	n, err := humanInt(value)
	if err != nil {
		return fmt.Errorf("%s: a KV cache of %q tokens", line, value)
	}
	if c.poolLine == "blocks" || c.poolLine == "tokens" && n >= c.number("engine.kv_blocks", 0) {
		return nil
	}
	c.poolLine = "tokens"
	return c.setInt("engine.kv_blocks", value, line, 2)
}

// logOption reads a value as that of a vLLM flag.
func logOption(name string) func(*serverConfig, string, string) error {
	return func(c *serverConfig, value, line string) error {
		return c.readVLLMOption(option{given: line, name: name, values: []string{value}})
	}
}

// assignment is a name and its value in a dump of Python objects: name='x', name=3, or 'name': 3.
var assignment = regexp.MustCompile(`([A-Za-z_]+)'?[=:] ?('(?:[^'\\]|\\.)*'|"[^"]*"|[^,\s(){}\[\]]+)`)

// dumpNames are the names in dumps that count, as flags. Switches count when True.
var (
	vllmDumpNames = wordSet(`model model-tag tensor-parallel-size pipeline-parallel-size data-parallel-size enable-expert-parallel
		max-seq-len max-model-len max-num-seqs max-num-batched-tokens gpu-memory-utilization kv-cache-dtype quantization block-size
		enable-prefix-caching num-gpu-blocks-override scheduling-policy async-scheduling enable-lora enforce-eager`)
	sglangDumpNames = wordSet(`model-path tp-size pp-size dp-size ep-size mem-fraction-static kv-cache-dtype quantization
		chunked-prefill-size max-prefill-tokens max-running-requests page-size context-length schedule-policy
		schedule-conservativeness disable-radix-cache enable-dp-attention speculative-algorithm enable-lora enable-mixed-chunk`)
)

// logDump reads the settings that a server prints as Python objects. The first of a name counts; those within nested
// objects follow.
func (c *serverConfig) logDump(dump, line string) error {
	names, read := vllmDumpNames, c.readVLLMOption
	if c.engine == "sglang" {
		names, read = sglangDumpNames, c.readSGLangOption
	}
	seen := map[string]bool{}
	for _, m := range assignment.FindAllStringSubmatch(dump, -1) {
		name, value := strings.ReplaceAll(m[1], "_", "-"), strings.Trim(m[2], `'"`)
		if !names[name] || seen[name] {
			continue
		}
		seen[name] = true
		o := option{given: line + ", " + m[1], name: name, values: []string{value}}
		switch {
		case value == "None" || value == "":
			continue
		case value == "False" && (name == "enable-prefix-caching" || name == "async-scheduling"):
			o.name = "no-" + name
		case value == "False":
			continue
		case name == "model" || name == "model-tag" || name == "model-path":
			if c.model != nil { // the command line's, whose name is the better one
				continue
			}
			o.name = map[bool]string{true: "model-path", false: "model"}[c.engine == "sglang"]
		case name == "max-seq-len":
			o.name = "max-model-len"
		}
		if err := read(o); err != nil {
			return err
		}
	}
	return nil
}
