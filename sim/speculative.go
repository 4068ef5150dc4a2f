package sim

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/engine"
)

// Speculative is speculative decoding, in the words of vLLM's speculative_config. Without a method, or with 0 tokens,
// there is none.
type Speculative struct {
	// Method is ngram, eagle (EAGLE-3 too), mtp or draft_model.
	Method string `yaml:"method"`
	// Tokens is num_speculative_tokens.
	Tokens     int        `yaml:"tokens"`
	Acceptance Acceptance `yaml:"acceptance"`
	// DraftModel is a catalogue name or the path of a config.json, for method draft_model.
	DraftModel string `yaml:"draft_model"`
}

// Acceptance is how often drafts are accepted: "0.7", the share of drafts accepted among those whose predecessors were, or
// for each draft the share of steps in which it was accepted, "[0.8, 0.6]": what vLLM logs as per-position acceptance rate.
type Acceptance string

// UnmarshalYAML takes a number or a list of numbers as it stands; what is wrong with it shows when it is used.
func (a *Acceptance) UnmarshalYAML(text []byte) error {
	s := strings.Trim(strings.TrimSpace(string(text)), `"'`)
	if items, ok := strings.CutPrefix(s, "- "); ok { // a list with a line for each
		s = "[" + strings.ReplaceAll(items, "\n- ", ", ") + "]"
	}
	*a = Acceptance(s)
	return nil
}

// shares returns for each of n drafts the share of steps in which it and those before it are accepted.
func (a Acceptance) shares(n int) ([]float64, error) {
	const key = "engine.speculative.acceptance"
	if a == "" {
		return nil, bad(key, "not set: it decides what speculative decoding is worth, and differs between workloads; a server logs it (vLLM: Per-position acceptance rate)")
	}
	list, isList := strings.CutPrefix(string(a), "[")
	list = strings.TrimSuffix(list, "]")
	var shares []float64
	for word := range strings.SplitSeq(list, ",") {
		share, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(share >= 0 && share <= 1) {
			return nil, bad(key, "%q is not a share from 0 to 1, or a list of them such as [0.8, 0.6]", string(a))
		}
		shares = append(shares, share)
	}
	switch {
	case !isList && len(shares) == 1:
		for len(shares) < n {
			shares = append(shares, shares[0]*shares[len(shares)-1])
		}
	case len(shares) != n:
		return nil, bad(key, "%d shares for %d tokens (engine.speculative.tokens)", len(shares), n)
	case !slices.IsSortedFunc(shares, func(a, b float64) int { return cmp.Compare(b, a) }):
		return nil, bad(key, "%s rises: a draft is accepted only after those before it", string(a))
	}
	return shares, nil
}

// on tells whether there is speculative decoding.
func (s *Speculative) on() bool { return s.Method != "" && s.Tokens > 0 }

// stepTokens is the most tokens of a step of vLLM: a model that drafts by itself has one more token of each sequence to
// compute, for which room is kept (max_num_new_slots_for_drafting in vllm/config/speculative.py).
func (p *Plan) stepTokens() int {
	if s := &p.Engine.Speculative; s.on() && models.DraftMethod(s.Method) == models.DraftModel {
		return p.Engine.MaxNumBatchedTokens - p.Engine.MaxNumSeqs
	}
	return p.Engine.MaxNumBatchedTokens
}

// resolveSpeculative checks the settings of speculative decoding, looks up the drafting model and fills in what the engine
// needs.
func (p *Plan) resolveSpeculative() (models.Speculative, error) {
	s := &p.Engine.Speculative
	switch {
	case s.Method == "" && *s != (Speculative{}):
		return models.Speculative{}, bad("engine.speculative.method", "not set, want one of %v", models.DraftMethods())
	case !s.on():
		return models.Speculative{}, nil
	case p.Engine.Kind != "vllm":
		return models.Speculative{}, bad("engine.speculative", "simulated for engine.kind vllm, not for %s", p.Engine.Kind)
	}
	of := models.Speculative{Method: models.DraftMethod(s.Method), Tokens: s.Tokens}
	if s.DraftModel != "" {
		draft, err := models.Lookup(s.DraftModel)
		if err != nil {
			return of, bad("engine.speculative.draft_model", "%v", err)
		}
		of.Draft = draft
	}
	if left := p.stepTokens(); left < p.Engine.MaxNumSeqs {
		return of, bad("engine.max_num_batched_tokens", "%d leave %d for a step, as %s takes one of each of the %d sequences (engine.max_num_seqs): a step must have a token for every sequence",
			p.Engine.MaxNumBatchedTokens, left, s.Method, p.Engine.MaxNumSeqs)
	}
	shares, err := s.Acceptance.shares(s.Tokens)
	if err != nil {
		return of, err
	}
	p.speculation = &engine.Speculation{Tokens: s.Tokens, Acceptance: shares,
		Model: of.Method != models.DraftNGram, Hidden: of.Method.Hidden()}
	return of, nil
}
