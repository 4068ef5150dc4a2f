package models

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Batch is the work of one engine step on one worker rank: at most 10^7 tokens and 10^14 pairs.
type Batch struct {
	Decodes        int   // sequences that generate a token
	Drafts         int   // draft tokens that they verify besides
	Prefills       int   // sequences that compute prompt tokens
	PrefillTokens  int   // prompt tokens computed, all sequences
	PrefillPairs   int64 // query-key pairs of all prefill chunks, doubled to stay whole: Σ n·(2·past + n)
	PrefillContext int64 // Σ past + n over the prefill chunks: KV tokens that their attention reads
}

// StepCost is the time of one engine step on a deployment, in µs, as a sum over kernels and the host (measured forwards
// are nearer to the sum than to the maximum of what different resources take; inference-sim/blis-latency-kernel). With T
// tokens and S sequences in the step, and each kernel's time as Ops has it:
//
//	products = Σ layers: query-key-value, output, gate-up, down (latents with MLA; shared experts), each for T rows
//	head     = output head for S rows, logits gathered over the tensor ranks, sampling, top-p and top-k
//	experts  = Σ MoE layers: router, and the grouped products of the experts that A tokens touch, those of all data ranks:
//	           E · (1 − (1 − k/E)^A) of the model's, in all
//	small    = Σ layers: two norms, rotary embedding, activation
//	prefill  = Σ layers: max(compute, KV read), for the pairs of full layers and of windows; with MLA also the product
//	           that expands the latents of the past
//	decode   = Σ layers: floor + per sequence and KV head + KV bytes of the contexts / rate
//	links    = Σ layers: two all-reduces over the tensor ranks; with data ranks, for experts, dispatch and combine of T
//	           tokens or an all-reduce of A
//	drafts   = with speculative decoding, the passes of the drafter; see Deployment.costDrafts
//	host     = layer_us · layers + request_us · S + step_us + prefill_token_us · prefill tokens
//	           + sync_step_us + sync_request_us · S without asynchronous scheduling
//	step     = linear · (products + head + experts + small), their arithmetic times compute,
//	           + prefill_attention · prefill + decode_attention · decode + communication · links + drafts + host
//
// The tokens that a sequence verifies are rows of all products, the output head's too; attention reads its context once
// for all of them.
//
// A step on a pipeline is one batch's way through all stages. With data parallelism the ranks share the experts and step
// together: Shared is what A decides, Own the rest. Base takes the other ranks to have the same number of tokens. Every
// coefficient is rounded to fixed point once; the rest is integer arithmetic, so a step
// costs the same everywhere. No term exceeds 2.4 hours: beyond that it saturates.
type StepCost struct {
	products, router, small, links curve // by tokens
	experts, sharedLinks           curve // by tokens of all data ranks
	head                           curve // by sequences
	ranks                          int   // data-parallel

	pair, windowPair           rate // per doubled query-key pair, full and window layers
	paddedKey, windowPaddedKey rate // per key that a chunk's padding sees
	chunkToken                 rate // set-up of tiles, per prompt token
	tail, windowTail           rate // per token of the side of the square of doubled pairs
	keyRead                    rate // per key that prefill attention reads, full layers
	expand                     rate // per key of the past: its latent is expanded
	prefillFloor               Fixed

	floor    Fixed // attention kernels, in every step
	sequence rate  // per decode
	state    rate  // per sequence: reading and writing its recurrent state

	perContext, perWindow Fixed
	window                int

	drafter *StepCost // of a pass of the drafter; nil when none drafts
	passes  int

	host             Fixed
	hostRequest      rate
	hostPrefillToken rate

	onPrefill, onDecode Fixed // constant times, of FixedSteps

	admission      time.Duration
	admissionToken rate
	outputToken    time.Duration

	profile   *Profile
	estimates []string
}

// StepCost is the cost of steps under a named profile, or under the profile in a file; see LookupProfile.
func (d *Deployment) StepCost(profile string) (*StepCost, error) {
	p, err := LookupProfile(profile)
	if err != nil {
		return nil, err
	}
	return d.StepCostOf(p)
}

// StepCostOf is the cost of steps under a profile.
func (d *Deployment) StepCostOf(profile *Profile) (*StepCost, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	if err := profile.Validate(); err != nil {
		return nil, err
	}
	full := d.WithDefaults()
	ops, err := full.GPU.Ops()
	if err != nil {
		return nil, err
	}
	ops = ops.underLoad(cmp.Or(profile.Compute, 1))
	c := &StepCost{profile: profile, estimates: full.estimates(profile), ranks: full.Parallelism.Data}
	full.costTokens(c, ops, profile)
	full.costPrefill(c, ops, profile)
	full.costDecode(c, ops, profile)
	full.costLinks(c, ops, profile)
	stepUs, requestUs := float64(full.Model.Layers)*profile.LayerUs+profile.StepUs, profile.RequestUs
	if !full.AsyncScheduling() {
		stepUs, requestUs = stepUs+profile.SyncStepUs, requestUs+profile.SyncRequestUs
	}
	c.host, c.hostRequest = newFixed(stepUs*1e3), newRate(requestUs*1e3)
	c.hostPrefillToken = newRate(profile.PrefillTokenUs * 1e3)
	c.admission = newFixed(profile.AdmissionUs * 1e3).Duration()
	c.admissionToken = newRate(profile.PromptTokenUs * 1e3)
	c.outputToken = newFixed(profile.OutputTokenUs * 1e3).Duration()
	return c, full.costDrafts(c, profile)
}

// FixedSteps is a constant step time: prefill when the step computes prompt tokens, plus decode when it generates any.
// Requests and tokens are not delayed. Negative times count as 0.
func FixedSteps(prefill, decode time.Duration) *StepCost {
	return &StepCost{
		onPrefill: newFixed(float64(max(0, prefill))),
		onDecode:  newFixed(float64(max(0, decode))),
	}
}

// estimates lists why a cost is less certain than its profile.
func (d *Deployment) estimates(profile *Profile) []string {
	var why []string
	if d.GPU.Estimate {
		why = append(why, fmt.Sprintf("no profile was fitted on %s: its rates are scaled from data sheets and the H100", d.GPU.Name))
	}
	if d.Model.MoELayers() > 0 {
		why = append(why, "experts are taken to be picked at random and evenly; real routing is uneven")
	}
	if d.Model.MLA.KVRank > 0 || d.Model.Linear.Layers > 0 || d.Model.Window.Layers > 0 {
		why = append(why, "profile "+profile.Name+" was fitted to grouped-query attention, not to "+d.Model.Attention())
	}
	if d.Speculative.Method != "" {
		why = append(why, "no profile was fitted with speculative decoding: its steps are priced by the sizes of what drafts and verifies; a look-up of n-grams takes no time")
	}
	if d.Parallelism.Pipeline > 1 || d.Parallelism.Data > 1 || d.Parallelism.Tensor > 8 {
		why = append(why, "pipeline and data parallelism, and tensor parallelism beyond 8, were not checked")
	}
	return why
}

// Base is the time of a step without what depends on the contexts of its decodes: add PerContext times their sum, and
// PerWindow times the sum of what lies in their windows. It grows with every field of the batch; no tokens take no time.
func (c *StepCost) Base(b Batch) Fixed {
	if b.Tokens() <= 0 {
		return 0
	}
	return c.Own(b) + c.Shared(c.withOthers(b))
}

// Own is the part of Base that a data rank does by itself.
func (c *StepCost) Own(b Batch) Fixed {
	if b.Tokens() <= 0 {
		return 0
	}
	return c.own(b, b.sequences()+int64(b.Drafts)) + c.drafts(b) + c.constant(b)
}

// Shared is the time of what the data ranks of a worker do together, for so many tokens of all of them; 0 for none.
func (c *StepCost) Shared(tokens int64) Fixed {
	if tokens <= 0 {
		return 0
	}
	at := pointAt(tokens)
	return c.experts.duration(at) + c.sharedLinks.duration(at)
}

// Marginal is how much longer a step takes with one batch than with another, 0 or more, while the other data ranks go on
// with as many tokens as the latter has.
func (c *StepCost) Marginal(without, with Batch) Fixed {
	others := c.withOthers(without) - without.Tokens()
	return max(0, c.Own(with)-c.Own(without)+c.Shared(others+with.Tokens())-c.Shared(others+without.Tokens()))
}

// withOthers is the tokens of all data ranks when each has as many as the batch.
func (c *StepCost) withOthers(b Batch) int64 { return b.Tokens() * int64(max(1, c.ranks)) }

// Tokens is the number of tokens that the batch computes.
func (b *Batch) Tokens() int64 {
	return int64(b.Decodes) + int64(b.Drafts) + int64(b.PrefillTokens)
}

func (b *Batch) sequences() int64 { return int64(b.Decodes) + int64(b.Prefills) }

// own is a data rank's part of one pass through the layers, and through the output head for so many rows.
func (c *StepCost) own(b Batch, rows int64) Fixed {
	at := pointAt(b.Tokens())
	sum := c.products.duration(at) + c.router.duration(at) + c.small.duration(at) + c.links.duration(at)
	sum += c.head.duration(pointAt(rows)) + c.state.times(b.sequences())
	return sum + c.prefill(b) + c.decode(b) + c.hostTime(b)
}

// prefill is the time of prefill attention.
func (c *StepCost) prefill(b Batch) Fixed {
	if b.PrefillTokens <= 0 {
		return 0
	}
	compute := c.pair.times(b.PrefillPairs) + c.paddedKey.times(b.PrefillContext) + c.chunkToken.times(int64(b.PrefillTokens)) +
		c.tail.times(squareRoot(b.PrefillPairs))
	if c.window > 0 {
		// Upper bounds: no query of a window layer sees more keys than the window has, and no chunk more than its own
		// tokens and a window.
		pairs := min(b.PrefillPairs, 2*int64(c.window)*int64(b.PrefillTokens))
		keys := min(b.PrefillContext, int64(b.PrefillTokens)+int64(c.window)*int64(b.Prefills))
		compute += c.windowPair.times(pairs) + c.windowPaddedKey.times(keys) + c.windowTail.times(squareRoot(pairs))
	}
	read := c.keyRead.times(b.PrefillContext)
	expand := c.expand.times(b.PrefillContext - int64(b.PrefillTokens))
	return min(maxFixed, c.prefillFloor+expand+max(min(maxFixed, compute), read))
}

// squareRoot rounds down, the same everywhere: IEEE 754 defines the root of a double to the last bit.
func squareRoot(n int64) int64 { return int64(math.Sqrt(float64(max(0, n)))) }

// decode is the time of decode attention without what depends on contexts; every step pays its floor.
func (c *StepCost) decode(b Batch) Fixed {
	return min(maxFixed, c.floor+c.sequence.times(int64(b.Decodes)))
}

// HostTime is the host's part of so many steps, with so many sequences and prompt tokens in all of them together.
func (c *StepCost) HostTime(steps, sequences, promptTokens int64) time.Duration {
	return (scale(c.host, steps) + c.hostRequest.times(sequences) + c.hostPrefillToken.times(promptTokens)).Duration()
}

func (c *StepCost) hostTime(b Batch) Fixed {
	return min(maxFixed, c.host+c.hostRequest.times(b.sequences())+c.hostPrefillToken.times(int64(b.PrefillTokens)))
}

func (c *StepCost) constant(b Batch) (time Fixed) {
	if b.PrefillTokens > 0 {
		time += c.onPrefill
	}
	if b.Decodes > 0 {
		time += c.onDecode
	}
	return time
}

// PerContext is the time per token of the decodes' contexts, in the layers with full attention.
func (c *StepCost) PerContext() Fixed { return c.perContext }

// PerWindow is the time per token of min(context, window) of the decodes, in the layers with windows; 0 without.
func (c *StepCost) PerWindow() Fixed { return c.perWindow }

// Window is the width of the sliding windows in tokens; 0 without.
func (c *StepCost) Window() int { return c.window }

// Profile is what the steps were priced with; nil for FixedSteps and a StepTable, which rest on no fit.
func (c *StepCost) Profile() *Profile { return c.profile }

// Estimates says, one reason each, why the cost is less certain than the profile's source claims; empty when it is not.
func (c *StepCost) Estimates() []string { return c.estimates }

// The names of terms, in the order of Terms.
const (
	TermProducts = "matrix products"
	TermExperts  = "experts"
	TermHead     = "output head"
	TermSmall    = "small kernels"
	TermPrefill  = "prefill attention"
	TermDecode   = "decode attention" // with the floor of attention kernels, which every step pays
	TermState    = "recurrent state"
	TermLinks    = "communication"
	TermDrafts   = "drafts"
	TermHost     = "host"
	TermConstant = "constant"
)

// Term is one resource's share of a step.
type Term struct {
	Name     string
	Duration time.Duration
}

// Terms splits the time of a step for people to read. context is the sum of the decodes' contexts, windowed that of
// min(context, window), in tokens. Terms of no time are left out; each is rounded to the nanosecond.
func (c *StepCost) Terms(b Batch, context, windowed int64) []Term {
	if b.Tokens() <= 0 {
		return nil
	}
	at, all := pointAt(b.Tokens()), pointAt(c.withOthers(b))
	var terms []Term
	for _, t := range []struct {
		name string
		time Fixed
	}{
		{TermProducts, c.products.duration(at)},
		{TermExperts, c.router.duration(at) + c.experts.duration(all)},
		{TermHead, c.head.duration(pointAt(b.sequences() + int64(b.Drafts)))},
		{TermSmall, c.small.duration(at)},
		{TermPrefill, c.prefill(b)},
		{TermDecode, min(maxFixed, c.decode(b)+scale(c.perContext, context)+scale(c.perWindow, windowed))},
		{TermState, c.state.times(b.sequences())},
		{TermLinks, c.links.duration(at) + c.sharedLinks.duration(all)},
		{TermDrafts, c.drafts(b)},
		{TermHost, c.hostTime(b)},
		{TermConstant, c.constant(b)},
	} {
		if t.time > 0 {
			terms = append(terms, Term{t.name, t.time.Duration()})
		}
	}
	return terms
}

// scale is n times f, at most maxFixed.
func scale(f Fixed, n int64) Fixed {
	if n > 0 && f > maxFixed/Fixed(n) {
		return maxFixed
	}
	return f * Fixed(max(0, n))
}
