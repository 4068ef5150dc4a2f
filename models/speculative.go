package models

import (
	"fmt"
)

// DraftMethod is how draft tokens are made, by vLLM's name (vllm/config/speculative.py).
type DraftMethod string

// The methods.
const (
	DraftNGram DraftMethod = "ngram"       // looked up in the text so far, on the host
	DraftEAGLE DraftMethod = "eagle"       // by a head of one dense layer; EAGLE-3 is priced as the same
	DraftMTP   DraftMethod = "mtp"         // by the model's own layer for multi-token prediction
	DraftModel DraftMethod = "draft_model" // by a smaller model
)

// DraftMethods are all of them.
func DraftMethods() []DraftMethod { return []DraftMethod{DraftNGram, DraftEAGLE, DraftMTP, DraftModel} }

// Hidden tells that the method needs the model's hidden states.
func (m DraftMethod) Hidden() bool { return m == DraftEAGLE || m == DraftMTP }

// Speculative is speculative decoding: a drafter guesses tokens, and the next step verifies them.
type Speculative struct {
	Method DraftMethod
	Tokens int    // drafts per sequence and step
	Draft  *Model // of DraftModel
}

// maxDrafts bounds the drafts of a sequence in a step.
const maxDrafts = 64

func (s *Speculative) validate() error {
	switch s.Method {
	case "":
		if *s != (Speculative{}) {
			return fmt.Errorf("engine.speculative.method is not set")
		}
		return nil
	case DraftNGram, DraftEAGLE, DraftMTP, DraftModel:
	default:
		return fmt.Errorf("engine.speculative.method is %q, want one of %v", s.Method, DraftMethods())
	}
	if s.Tokens < 1 || s.Tokens > maxDrafts {
		return fmt.Errorf("engine.speculative.tokens is %d, want 1 to %d", s.Tokens, maxDrafts)
	}
	if s.Method != DraftModel {
		if s.Draft != nil {
			return fmt.Errorf("engine.speculative.draft_model is set, but method %s has none", s.Method)
		}
		return nil
	}
	if s.Draft == nil {
		return fmt.Errorf("engine.speculative.draft_model is not set: method %s needs the model that drafts", s.Method)
	}
	if err := s.Draft.Validate(); err != nil {
		return err
	}
	if s.Draft.Window.Layers+s.Draft.Linear.Layers > 0 {
		return fmt.Errorf("engine.speculative.draft_model: drafts by %s with %s are not simulated", s.Draft.Name, s.Draft.Attention())
	}
	return nil
}

// drafter is the deployment of what drafts on the same GPUs, nil when that is the host. An EAGLE head is a dense layer of
// the model's width with projections of its own (vllm/model_executor/models/llama_eagle.py); where the model has only
// experts, as wide as those that a token uses. The layer for MTP is like the model's last (deepseek_mtp.py). Both join a
// token's embedding with the model's hidden state, and share embedding and output head with the model.
func (d *Deployment) drafter() *Deployment {
	s := d.Speculative
	if s.Method == "" || s.Method == DraftNGram {
		return nil
	}
	of := *d
	of.Speculative = Speculative{}
	if s.Method == DraftModel {
		of.Model, of.Weights = s.Draft, s.Draft.DType
		of.Parallelism.Expert = 1
		if s.Draft.MoELayers() > 0 {
			of.Parallelism.Expert = d.Parallelism.Expert
		}
		return &of
	}
	layer := *d.Model
	layer.Layers, layer.joined = 1, 2
	layer.Window, layer.Linear, layer.VisionParams = Window{}, Linear{}, 0
	layer.MoE.DenseLayers = 0
	if s.Method == DraftEAGLE {
		if layer.FFN == 0 {
			layer.FFN = layer.MoE.Active*layer.MoE.FFN + layer.MoE.SharedFFN
		}
		layer.MoE = MoE{}
		of.Weights, of.Parallelism.Expert = BF16, 1
	}
	of.Model = &layer
	return &of
}

// drafterBytesPerGPU is the size of the drafter's weights on one GPU.
func (d *Deployment) drafterBytesPerGPU() int64 {
	of := d.drafter()
	if of == nil {
		return 0
	}
	if d.Speculative.Method == DraftModel {
		return of.WeightBytesPerGPU()
	}
	s := of.Model.shard(of.Parallelism.Tensor, of.Parallelism.Tensor*of.Parallelism.Data)
	return of.Model.layerBytes(s, of.Weights) + of.Weights.bytes(s.experts)
}

// costDrafts sets the time of drafting: as many passes of the drafter as there are drafts, one after the other, on the
// same GPUs (vllm/v1/spec_decode/eagle.py, propose). The first is for all tokens of the step, the others for one of each
// sequence; each ends with the output head for one row of each sequence, reads the contexts and costs the host layer_us
// for each layer, but nothing for requests or the step. Other data ranks are taken to draft for as many tokens.
func (d *Deployment) costDrafts(c *StepCost, profile *Profile) error {
	of := d.drafter()
	if of == nil {
		return nil
	}
	kernels := *profile
	kernels.StepUs, kernels.RequestUs, kernels.SyncRequestUs, kernels.PrefillTokenUs = 0, 0, 0, 0
	drafter, err := of.StepCostOf(&kernels)
	if err != nil {
		return fmt.Errorf("engine.speculative: the drafter: %w", err)
	}
	c.drafter, c.passes = drafter, d.Speculative.Tokens
	c.perContext = min(maxFixed, c.perContext+scale(drafter.perContext, int64(c.passes)))
	return nil
}

// drafts is the time of the drafter in a step without what depends on contexts.
func (c *StepCost) drafts(b Batch) Fixed {
	if c.drafter == nil {
		return 0
	}
	pass := func(b Batch) Fixed {
		return min(maxFixed, c.drafter.own(b, b.sequences())+c.drafter.Shared(c.drafter.withOthers(b)))
	}
	return min(maxFixed, pass(b)+scale(pass(Batch{Decodes: int(b.sequences())}), int64(c.passes-1)))
}
