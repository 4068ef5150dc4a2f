package cli

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/sim"
)

func TestSplitCommand(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{`vllm serve  x`, []string{"vllm", "serve", "x"}},
		{"vllm serve \\\n  x \\\r\n --tp 2", []string{"vllm", "serve", "x", "--tp", "2"}},
		{`--a '{"b": 1}' --c "d \"e\" $f" ''`, []string{"--a", `{"b": 1}`, "--c", `d "e" $f`, ""}},
		{`a\ b "c\d" e'f'"g"`, []string{"a b", `c\d`, "efg"}},
		{"a # b\nc d#e", []string{"a", "c", "d#e"}},
		{`a 2>&1 b`, []string{"a"}},
		{`a 2 >b`, []string{"a", "2"}},
		{`a && b`, []string{"a"}},
		{"  \n\t", nil},
	} {
		got, err := splitCommand(c.line)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %q (%v), want %q", c.line, got, err, c.want)
		}
	}
	for _, line := range []string{`a 'b`, `a "b`, `a "b\`, `a\`, strings.Repeat("a", maxCommandBytes+1)} {
		if got, err := splitCommand(line); err == nil {
			t.Errorf("%.20q: %q, want an error", line, got)
		}
	}
}

func TestHumanInt(t *testing.T) {
	for s, want := range map[string]int{"8192": 8192, "32k": 32_000, "32K": 32_768, "1.5M": 1_572_864, "486,800": 486_800, "-1": -1} {
		if got, err := humanInt(s); err != nil || got != want {
			t.Errorf("%q: %d (%v), want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "k", "1.5", "0.3k3", "1e30G", "nank", "infk", "0.1k1", "1.0001k"} {
		if got, err := humanInt(s); err == nil {
			t.Errorf("%q: %d, want an error", s, got)
		}
	}
}

// TestLongLogLines: lines beyond the limit are cut, and the next is read as usual.
func TestLongLogLines(t *testing.T) {
	log := strings.Repeat("x", maxLogLine+100) + "# GPU blocks: 11, # CPU blocks: 0\nINFO # GPU blocks: 12, # CPU blocks: 0"
	c := &serverConfig{engine: "vllm"}
	if err := c.readLog(strings.NewReader(log)); err != nil || c.get("engine.kv_blocks") != "12" {
		t.Errorf("%s blocks (%v), want 12: the first number is behind the limit", c.get("engine.kv_blocks"), err)
	}
}

// checkWritten reads back what a server's config prints: whatever is printed is a deployment that resolves.
func checkWritten(t *testing.T, c *serverConfig) {
	var text bytes.Buffer
	if c.write(&text, io.Discard) != nil {
		return
	}
	d := sim.Default()
	if err := decode(&d, text.Bytes(), func(int, int) string { return "the config" }, "the config"); err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	if _, err := d.Resolve(); err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
}

func FuzzServerCommand(f *testing.F) {
	f.Add("vllm serve Qwen/Qwen3-14B -tp 2 --max-model-len 32k --kv-cache-dtype=fp8", false)
	f.Add("A=b python -m vllm.entrypoints.openai.api_server --model 'Qwen/Qwen3-8B-FP8' \\\n --quantization awq", false)
	f.Add("sglang serve --model Qwen/Qwen3-8B --tp 8 --dp 2 --enable-dp-attention --max-total-tokens 100000 --page-size 64", true)
	f.Fuzz(func(t *testing.T, line string, sglang bool) {
		c := &serverConfig{engine: "vllm"}
		if sglang {
			c.engine = "sglang"
			c.set("engine.kind", "sglang", "the command")
		}
		c.set("gpu", "h100-sxm", "--gpu")
		if c.readServer([]string{line}, "", "") == nil {
			checkWritten(t, c)
		}
	})
}

func FuzzServerLog(f *testing.F) {
	f.Add("LLM engine (v0.19.0) with config: model='Qwen/Qwen3-8B', max_seq_len=8192, tensor_parallel_size=2, kv_cache_dtype=auto\n"+
		"GPU KV cache size: 57,600 tokens\nMaximum concurrency for 8,192 tokens per request: 7.03x", false)
	f.Add("args: Namespace(model='Qwen/Qwen3-8B', max_num_seqs=64)\n# GPU blocks: 7191, # CPU blocks: 512", false)
	f.Add("server_args=ServerArgs(model_path='Qwen/Qwen3-32B', tp_size=2, page_size=64)\nmax_total_num_tokens=400000, max_running_requests=2049", true)
	f.Fuzz(func(t *testing.T, log string, sglang bool) {
		c := &serverConfig{engine: "vllm"}
		finish := c.finishVLLM
		if sglang {
			c.engine, finish = "sglang", c.finishSGLang
			c.set("engine.kind", "sglang", "the command")
		}
		c.set("gpu", "h100-sxm", "--gpu")
		if c.readLog(strings.NewReader(log)) == nil && c.model != nil && finish() == nil {
			checkWritten(t, c)
		}
	})
}
