package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// convertVLLMPool turns a KV pool as vLLM counts it into engine.kv_blocks. vLLM's hybrid KV cache manager puts layers of
// different attention into groups of equal size and counts blocks of one group, or the tokens that a request has in all
// groups together (vllm/v1/core/kv_cache_utils.py); a block here has the layers whose KV grows with the context. For
// models with one kind of layers the two are the same.
func (c *serverConfig) convertVLLMPool() {
	at := -1
	for i := range c.settings {
		if c.settings[i].key == "engine.kv_blocks" {
			at = i
		}
	}
	if at < 0 {
		return
	}
	s := &c.settings[at]
	n := c.number(s.key, 0)
	if c.model.Linear.Layers > 0 {
		c.unmodelled = append(c.unmodelled, fmt.Sprintf("%d KV %s (%s): vLLM pads the blocks of models with linear attention, engine.kv_blocks stays auto",
			n, map[bool]string{true: "tokens", false: "blocks"}[c.poolLine == "tokens"], s.from))
		c.poolLine = ""
		c.drop(s.key)
		return
	}
	layers, groups := c.model.HybridGroups()
	if c.oneGroup || !c.hybridPool() {
		layers, groups = c.model.Layers, 1
	}
	told := fmt.Sprintf("%d blocks", n)
	if c.poolLine == "tokens" {
		told = fmt.Sprintf("%d tokens", n)
		n = n / c.number("engine.block_size", 16) * groups
	}
	if full := c.model.FullLayers(); layers != full || groups > 1 {
		n = n * layers / full
		s.from += fmt.Sprintf(": %s; groups of layers: %d of %d", told, groups, layers)
	}
	s.value = strconv.Itoa(n)
}

// hybridPool tells whether the version's KV pool has groups for the model: for sliding windows from 0.10 on, for chunked
// attention from 0.19 on. Without, every layer has the whole context.
func (c *serverConfig) hybridPool() bool {
	version := strings.Trim(c.get("engine.version"), `"`)
	if version == "" {
		return true
	}
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	least := 10
	if c.model.ChunkedLayers > 0 {
		least = 19
	}
	return major != "0" || err == nil && n >= least
}
