package cli

import (
	"fmt"
	"io"
	"math"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
)

// serverConfig is a deployment as a server's command line or log describes it, on its way to a config file.
type serverConfig struct {
	engine   string // config key engine.kind
	settings []setting
	// unmodelled are flags that change what a real server does but not the simulation; harmless ones change neither.
	unmodelled, harmless []string
	// model is the catalogue's model, once it is known.
	model *models.Model
	// poolLine is what the log's KV pool was given in, blocks or tokens.
	poolLine string
	// oneGroup tells that vLLM's hybrid KV cache manager is off.
	oneGroup bool
	// dpAttention tells that SGLang's data parallelism is that of attention alone.
	dpAttention bool
	// acceptance is that of draft tokens by the log; assumed lists what nothing told.
	acceptance setting
	assumed    []string
}

// setting is a config key, its value as YAML, and where that was found.
type setting struct{ key, value, from string }

// set records a value. A later one for the same key counts.
func (c *serverConfig) set(key, value, from string) {
	c.drop(key)
	c.settings = append(c.settings, setting{key, value, from})
}

// drop forgets a key.
func (c *serverConfig) drop(key string) {
	c.settings = slices.DeleteFunc(c.settings, func(s setting) bool { return s.key == key })
}

// get returns the value of a key, "" where none is known.
func (c *serverConfig) get(key string) string {
	for _, s := range c.settings {
		if s.key == key {
			return s.value
		}
	}
	return ""
}

// number returns the value of a key as a number, or what to take where none is known.
func (c *serverConfig) number(key string, otherwise int) int {
	if n, err := strconv.Atoi(c.get(key)); err == nil {
		return n
	}
	return otherwise
}

// setInt records a whole number of at least least.
func (c *serverConfig) setInt(key, value, from string, least int) error {
	n, err := humanInt(value)
	if err != nil || n < least {
		return fmt.Errorf("%s %q: want a whole number from %d", from, value, least)
	}
	c.set(key, strconv.Itoa(n), from)
	return nil
}

// setShare records a number above 0 and at most 1.
func (c *serverConfig) setShare(key, value, from string) error {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || !(f > 0 && f <= 1) {
		return fmt.Errorf("%s %q: want a number above 0 and at most 1", from, value)
	}
	c.set(key, strconv.FormatFloat(f, 'g', -1, 64), from)
	return nil
}

// humanInt reads a whole number, also vLLM's and Python's short forms: 32k is 32,000, 32K is 32,768.
func humanInt(s string) (int, error) {
	s = strings.ReplaceAll(strings.ReplaceAll(s, ",", ""), "_", "")
	units := map[byte]float64{'k': 1e3, 'm': 1e6, 'g': 1e9, 'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}
	if n := len(s); n > 1 && units[s[n-1]] > 0 {
		f, err := strconv.ParseFloat(s[:n-1], 64)
		if f *= units[s[n-1]]; err != nil || !(math.Abs(f) < 1<<53) || f != math.Trunc(f) {
			return 0, fmt.Errorf("%q is no whole number", s)
		}
		return int(f), nil
	}
	return strconv.Atoi(s)
}

// setModel finds the model that a server calls by a Hugging Face name or a path. The end of the name may tell the format
// of the weights.
func (c *serverConfig) setModel(name, from string) error {
	m, weights, err := models.LookupCheckpoint(name)
	if err != nil && strings.Contains(name, "/") {
		if byBase, format, baseErr := models.LookupCheckpoint(path.Base(name)); baseErr == nil {
			m, weights, err = byBase, format, nil
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	c.model = m
	c.set("model", yamlString(m.Name), from+" "+name)
	if weights != "" {
		c.set("dtype.weights", string(weights), from+" "+name)
	}
	return nil
}

// setKVFormat records a KV format in a server's words.
func (c *serverConfig) setKVFormat(value, from string) {
	switch v := strings.ToLower(value); {
	case v == "auto" || v == "none":
	case v == "fp8" || v == "fp8_e4m3" || v == "fp8_e5m2":
		c.set("dtype.kv", "fp8", from+" "+value)
	case v == "bf16" || v == "bfloat16":
		c.set("dtype.kv", "bf16", from+" "+value)
	case v == "fp16" || v == "float16" || v == "half":
		c.set("dtype.kv", "fp16", from+" "+value)
	default:
		c.unmodelled = append(c.unmodelled, from+" "+value)
	}
}

// setQuantization records a format of weights in a server's words. Those that only say "as the checkpoint has it" leave
// the format to its name.
func (c *serverConfig) setQuantization(value, from string) {
	v := strings.ToLower(value)
	format := map[string]models.DType{"fp8": models.FP8, "w8a8_fp8": models.FP8, "w8a8_int8": models.FP8, "fbgemm_fp8": models.FP8,
		"ptpc_fp8": models.FP8, "modelopt": models.FP8, "modelopt_fp8": models.FP8, "modelopt_fp4": models.NVFP4, "mxfp4": models.MXFP4,
		"awq": models.INT4, "awq_marlin": models.INT4, "gptq": models.INT4, "gptq_marlin": models.INT4, "bitsandbytes": models.INT4}[v]
	switch {
	case format != "":
		c.set("dtype.weights", string(format), from+" "+value)
	case v == "none" || v == "auto" || v == "compressed-tensors":
	default:
		c.unmodelled = append(c.unmodelled, from+" "+value)
	}
}

// note records a flag without a counterpart in a config.
func (c *serverConfig) note(name, given string, harmless map[string]bool) {
	if harmless[name] {
		c.harmless = append(c.harmless, given)
	} else {
		c.unmodelled = append(c.unmodelled, given)
	}
}

// write prints the config file, less what is a default anyhow, after making sure that it resolves. What is left out goes
// to notes, one line for each kind.
func (c *serverConfig) write(w, notes io.Writer) error {
	if c.get("model") == "" {
		return usagef("no model is named")
	}
	if err := c.dropDefaults(); err != nil {
		return err
	}
	text := c.yaml()
	d := sim.Default()
	const what = "the config"
	if err := decode(&d, []byte(text), func(line, _ int) string { return fmt.Sprintf("%s, line %d", what, line) }, what); err != nil {
		return err
	}
	plan, err := d.Resolve()
	if err != nil {
		return usagef("the config that this describes cannot be simulated: %w", err)
	}
	if c.poolLine != "" {
		n := c.number("engine.kv_blocks", 0)
		fmt.Fprintf(notes, "KV blocks: %d in the log, %d predicted (%+.1f%%)\n", n, plan.Capacity.Blocks, 100*(float64(plan.Capacity.Blocks)/float64(n)-1))
	}
	for _, n := range []struct {
		what  string
		flags []string
	}{{"assumed", c.assumed}, {"not modelled", c.unmodelled}, {"no effect on the simulation", c.harmless}} {
		if len(n.flags) > 0 {
			fmt.Fprintf(notes, "%s: %s\n", n.what, strings.Join(n.flags, ", "))
		}
	}
	_, err = io.WriteString(w, text)
	return err
}

// dropDefaults removes the engine's settings that a config without them has as well.
func (c *serverConfig) dropDefaults() error {
	given, bare := sim.Default(), sim.Default()
	follows := func(key string) bool { // from other settings, where it is not set
		return strings.HasPrefix(key, "engine.") && !slices.Contains([]string{"engine.kind", "engine.version", "engine.kv_blocks"}, key)
	}
	for _, s := range c.settings {
		if err := set(&given, s.key+"="+s.value); err != nil {
			return err
		}
		if !follows(s.key) {
			if err := set(&bare, s.key+"="+s.value); err != nil {
				return err
			}
		}
	}
	plan, err := bare.Resolve()
	if err != nil {
		return nil // then write says why, unless the settings mend it
	}
	defaults := map[string]any{}
	walkValues(reflect.ValueOf(plan.Deployment), func(key string, v reflect.Value) { defaults[key] = v.Interface() })
	walkValues(reflect.ValueOf(given), func(key string, v reflect.Value) {
		if follows(key) && v.Interface() == defaults[key] {
			c.drop(key)
		}
	})
	return nil
}

// yaml prints the settings in the order of the config's keys, each with where it was found.
func (c *serverConfig) yaml() string {
	order := configKeys()
	slices.SortStableFunc(c.settings, func(a, b setting) int { return slices.Index(order, a.key) - slices.Index(order, b.key) })
	var text strings.Builder
	var groups []string
	for _, s := range c.settings {
		parts := strings.Split(s.key, ".")
		last := len(parts) - 1
		for i, group := range parts[:last] {
			if !slices.Equal(groups[:min(i+1, len(groups))], parts[:i+1]) {
				fmt.Fprintf(&text, "%s%s:\n", strings.Repeat("  ", i), group)
			}
		}
		groups = parts[:last]
		fmt.Fprintf(&text, "%-36s # %s\n", strings.Repeat("  ", last)+parts[last]+": "+s.value, oneLine(s.from))
	}
	return text.String()
}

// oneLine makes a text fit for a comment.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u0085' || r == '\u2028' || r == '\u2029' || r == '\ufeff' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "..."
	}
	return s
}

// yamlString quotes a text so that YAML reads it as such.
func yamlString(s string) string {
	if flagValue.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}
