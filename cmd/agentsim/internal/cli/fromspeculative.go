package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsim/agentsim/models"
)

// assumedAcceptance is taken where nothing tells how many drafts are accepted.
const assumedAcceptance = "0.7"

// setSpeculation records vLLM's --speculative-config, a JSON object.
func (c *serverConfig) setSpeculation(text, from string) error {
	var s *struct {
		Method string `json:"method"`
		Model  string `json:"model"`
		Tokens int    `json:"num_speculative_tokens"`
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("%s %.60q: want a JSON object: %w", from, text, err)
	}
	if s == nil { // null
		return nil
	}
	method := draftMethod(s.Method, s.Model)
	if !slices.Contains(models.DraftMethods(), method) {
		c.unmodelled = append(c.unmodelled, fmt.Sprintf("%s with method %s", from, method))
		return nil
	}
	if s.Tokens < 1 {
		return fmt.Errorf("%s: num_speculative_tokens is %d, want a whole number from 1", from, s.Tokens)
	}
	c.set("engine.speculative.method", string(method), from)
	c.set("engine.speculative.tokens", strconv.Itoa(s.Tokens), from)
	if method == models.DraftModel {
		m, _, err := models.LookupCheckpoint(s.Model)
		if err != nil {
			return fmt.Errorf("%s: the model that drafts: %w", from, err)
		}
		c.set("engine.speculative.draft_model", yamlString(m.Name), from)
	}
	return nil
}

// draftMethod is our name of a method in vLLM's words; without one, vLLM goes by the model's name
// (vllm/config/speculative.py).
func draftMethod(method, model string) models.DraftMethod {
	model = strings.ToLower(model)
	switch {
	case method == "" && (model == "ngram" || model == "[ngram]"):
		return models.DraftNGram
	case method == "eagle3", method == "" && strings.Contains(model, "eagle"):
		return models.DraftEAGLE
	case strings.HasSuffix(method, "mtp"), method == "" && strings.Contains(model, "mtp"):
		return models.DraftMTP
	case method == "":
		return models.DraftModel
	}
	return models.DraftMethod(method)
}

// logAcceptance records what vLLM logs while it serves. The last line counts, as caches are warm then.
func (c *serverConfig) logAcceptance(value, line string) error {
	c.acceptance = setting{"engine.speculative.acceptance", "[" + strings.Trim(value, ", ") + "]", line}
	return nil
}

// finishSpeculation settles what is accepted.
func (c *serverConfig) finishSpeculation() {
	switch {
	case c.get("engine.speculative.method") == "":
	case c.acceptance.value != "":
		c.set(c.acceptance.key, c.acceptance.value, c.acceptance.from)
	default:
		c.set("engine.speculative.acceptance", assumedAcceptance, "assumed")
		c.assumed = append(c.assumed, "engine.speculative.acceptance "+assumedAcceptance+" (a log of the server at work tells: Per-position acceptance rate)")
	}
}
