package models

import (
	"fmt"
	"time"
)

// Batch is the work of one engine step on one worker rank: at most 10^7 tokens and 10^14 pairs.
type Batch struct {
	Decodes        int   // sequences that generate one token
	Prefills       int   // sequences that compute prompt tokens
	PrefillTokens  int   // prompt tokens computed, all sequences
	PrefillPairs   int64 // query-key pairs of all prefill chunks, doubled to stay whole: Σ n·(2·past + n)
	PrefillContext int64 // Σ past + n over the prefill chunks: KV tokens that their attention reads
}

// StepCost is the time of one engine step on a deployment, in µs, as a sum over resources (measured forwards are
// nearer to the sum than to the maximum; inference-sim/blis-latency-kernel):
//
//	T       = decodes + prefill tokens
//	weights = bytes of weights read / sustained bandwidth
//	          experts read: E · (1 − (1 − k/E)^(T·data))
//	compute = 2 · T · active parameters / (peak · efficiency · T/(T + knee))
//	linear  = max(weights, compute)
//	prefill = max(pairs of full layers and of windows · FLOPs per pair / (share · bf16 peak), KV read / bandwidth)
//	decode  = KV bytes of the contexts / sustained bandwidth
//	reduce  = 2 · layers · (floor + T · hidden · 2 bytes / rate), 0 without tensor parallelism
//	host    = layer_us · layers + request_us · sequences + step_us + prefill_token_us · prefill tokens
//	step    = β · (linear, prefill, decode, reduce) + host
//
// A step on a pipeline is one batch's way through all stages. With data parallelism the other ranks are taken to have
// the same number of tokens. Every coefficient is rounded to fixed point once; the rest is integer arithmetic, so a step
// costs the same everywhere. No term exceeds 4.9 hours: beyond that it saturates.
type StepCost struct {
	// weights is the time to read the weights for T tokens; the last entry holds for all larger T.
	weights      []Fixed
	compute      Fixed // the knee's share: what the first token pays beyond the others
	computeToken rate

	pair, windowPair rate // per doubled query-key pair, full and window layers
	prefillContext   rate

	reduce      Fixed
	reduceToken rate
	transfer    Fixed // between pipeline stages
	transferTok rate
	state       rate // per sequence: reading and writing its recurrent state

	host             Fixed
	hostRequest      rate
	hostPrefillToken rate

	perContext, perWindow Fixed
	window                int

	onPrefill, onDecode Fixed // constant times, of FixedSteps

	admission   time.Duration
	promptToken rate
	outputToken time.Duration

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
	c := &StepCost{estimates: full.estimates(profile)}
	full.costLinear(c, profile)
	full.costAttention(c, profile)
	full.costLinks(c, profile)
	c.host = newFixed(float64(profile.LayerUs*1e3)*float64(full.Model.Layers) + float64(profile.StepUs*1e3))
	c.hostRequest = newRate(profile.RequestUs * 1e3)
	c.hostPrefillToken = newRate(profile.PrefillTokenUs * 1e3)
	c.admission = newFixed(profile.AdmissionUs * 1e3).Duration()
	c.promptToken = newRate(profile.PromptTokenUs * 1e3)
	c.outputToken = newFixed(profile.OutputTokenUs * 1e3).Duration()
	return c, nil
}

// FixedSteps is a constant step time: prefill when the step computes prompt tokens, plus decode when it generates any.
// Requests and tokens are not delayed. Negative times count as 0.
func FixedSteps(prefill, decode time.Duration) *StepCost {
	return &StepCost{
		weights:   []Fixed{0},
		onPrefill: newFixed(float64(max(0, prefill))),
		onDecode:  newFixed(float64(max(0, decode))),
	}
}

// costLinear sets the terms of the matrix products.
func (d *Deployment) costLinear(c *StepCost, profile *Profile) {
	m, p := d.Model, d.Parallelism
	s := m.shard(p.Tensor, p.Tensor*p.Data)
	bytesPerNs := d.GPU.SustainedTBs * 1e3

	always := m.layerBytes(s, d.Weights) + BF16.bytes(s.embedding) // the output head; embedding rows are few
	experts := float64(d.Weights.bytes(s.experts))
	for _, touched := range expertCoverage(m.MoE.Experts, m.MoE.Active, p.Data) {
		ns := (float64(always) + float64(experts*touched)) / bytesPerNs
		c.weights = append(c.weights, newFixed(profile.Linear*ns))
	}

	// Ranks of a data-parallel group share the experts and bring the tokens: per rank, data cancels out.
	active := s.attention + s.ffn + s.router + m.activeExpertParams()/int64(p.Tensor)
	peak, curve := d.GPU.gemm(d.Weights)
	nsPerToken := profile.Linear * 2 * float64(active) / (peak / 1e9 * curve.Efficiency)
	c.computeToken = newRate(nsPerToken)
	c.compute = newFixed(nsPerToken * curve.Knee)
}

// expertCoverage is the expected share of a layer's experts that a step reads, by tokens per rank, when each token
// picks active of them at random. It ends where all but a millionth are read; a dense model has one entry.
func expertCoverage(experts, active, ranks int) []float64 {
	if experts == 0 {
		return []float64{0}
	}
	miss := 1.0 // the share of experts that no token of one rank's picked
	step := 1.0
	for range ranks {
		step *= 1 - float64(active)/float64(experts)
	}
	coverage := []float64{0}
	for miss > 1e-6 {
		miss *= step
		coverage = append(coverage, 1-miss)
	}
	return coverage
}

// costAttention sets the terms of attention and of recurrent states.
func (d *Deployment) costAttention(c *StepCost, profile *Profile) {
	m, tensor := d.Model, d.Parallelism.Tensor
	bytesPerNs := d.GPU.SustainedTBs * 1e3
	layerBytes := float64(m.kvBytesPerLayer(d.KV, tensor))
	contextNs := layerBytes * float64(m.FullLayers()) / bytesPerNs
	c.perContext = newFixed(profile.DecodeAttention * contextNs)
	c.perWindow = newFixed(profile.DecodeAttention * layerBytes * float64(m.Window.Layers) / bytesPerNs)
	c.window = m.Window.Tokens

	// A product with the keys and one with the values; a doubled pair is half of one.
	dims := 2 * m.HeadDim
	if a := m.MLA; a.KVRank > 0 {
		dims = a.NopeDim + a.RopeDim + a.ValueDim
	}
	flopsPerDoubled := float64(m.Heads/tensor) * float64(dims)
	nsPerLayer := profile.PrefillAttention * flopsPerDoubled / (d.GPU.PrefillAttention * d.GPU.TFLOPS.BF16 * 1e3)
	c.pair = newRate(nsPerLayer * float64(m.FullLayers()))
	c.windowPair = newRate(nsPerLayer * float64(m.Window.Layers))
	c.prefillContext = newRate(profile.PrefillAttention * contextNs)

	linear := Model{Linear: m.Linear}
	c.state = newRate(profile.DecodeAttention * 2 * float64(linear.stateBytes(d.KV, tensor)) / bytesPerNs)
}

// costLinks sets the terms of communication: after attention and after the FFN of each layer an all-reduce over the
// tensor ranks, or over all data ranks' as well where the FFN has experts; between pipeline stages a transfer.
func (d *Deployment) costLinks(c *StepCost, profile *Profile) {
	m, p := d.Model, d.Parallelism
	tokenBytes := float64(m.Hidden) * 2
	moe := float64(m.MoELayers())
	tensorReduces := float64(2*m.Layers) - moe
	floor, perByte := d.GPU.allReduce(p.Tensor)
	groupFloor, groupPerByte := d.GPU.allReduce(p.Tensor * p.Data)
	groupPerByte *= float64(p.Data) // every rank's tokens
	c.reduce = newFixed(profile.Communication * (float64(tensorReduces*floor) + float64(moe*groupFloor)))
	c.reduceToken = newRate(profile.Communication * tokenBytes * (float64(tensorReduces*perByte) + float64(moe*groupPerByte)))

	const hopNs = 10_000 // aiconfigurator's point-to-point latency
	hops := float64(p.Pipeline - 1)
	c.transfer = newFixed(hops * hopNs)
	c.transferTok = newRate(hops * tokenBytes / d.GPU.slowestLink(p.GPUs()))
}

// estimates lists why a cost is less certain than its profile.
func (d *Deployment) estimates(profile *Profile) []string {
	var why []string
	if d.GPU.Estimate {
		why = append(why, fmt.Sprintf("no profile was fitted on %s: its rates are scaled from data sheets and the H100", d.GPU.Name))
	}
	if d.Model.MoELayers() > 0 {
		why = append(why, "routing, permutation and dispatch of experts have no term of their own: a model with experts is off by 10 to 15% where it was checked")
	}
	if d.Model.MLA.KVRank > 0 || d.Model.Linear.Layers > 0 || d.Model.Window.Layers > 0 {
		why = append(why, "profile "+profile.Name+" was fitted to grouped-query attention, not to "+d.Model.Attention())
	}
	if d.Parallelism.Pipeline > 1 || d.Parallelism.Data > 1 || d.Parallelism.Tensor > 8 {
		why = append(why, "pipeline and data parallelism, and tensor parallelism beyond 8, were not checked")
	}
	return why
}

// Base is the time of a step without what depends on the contexts of its decodes: add PerContext times their sum, and
// PerWindow times the sum of what lies in their windows. It grows with every field of the batch; no tokens take no time.
func (c *StepCost) Base(b Batch) Fixed {
	tokens := int64(b.Decodes) + int64(b.PrefillTokens)
	if tokens <= 0 {
		return 0
	}
	linear, _ := c.linear(tokens)
	prefill, _ := c.prefill(b)
	return linear + prefill + c.links(tokens) + c.hostTime(b) + c.constant(b) + c.state.times(int64(b.Decodes)+int64(b.Prefills))
}

// linear is the time of the matrix products, and whether they wait for weights.
func (c *StepCost) linear(tokens int64) (time Fixed, reading bool) {
	weights := c.weights[min(tokens, int64(len(c.weights)-1))]
	compute := min(maxFixed, c.compute+c.computeToken.times(tokens))
	return max(weights, compute), weights >= compute
}

// prefill is the time of prefill attention, and whether it waits for KV: a few tokens after a long past.
func (c *StepCost) prefill(b Batch) (time Fixed, reading bool) {
	// An upper bound: no query of a window layer sees more keys than the window has.
	windowPairs := min(b.PrefillPairs, 2*int64(c.window)*int64(b.PrefillTokens))
	compute := min(maxFixed, c.pair.times(b.PrefillPairs)+c.windowPair.times(windowPairs))
	read := c.prefillContext.times(b.PrefillContext)
	return max(compute, read), read > compute
}

func (c *StepCost) links(tokens int64) Fixed {
	return min(maxFixed, c.reduce+c.reduceToken.times(tokens)+c.transfer+c.transferTok.times(tokens))
}

func (c *StepCost) hostTime(b Batch) Fixed {
	sequences := int64(b.Decodes) + int64(b.Prefills)
	return min(maxFixed, c.host+c.hostRequest.times(sequences)+c.hostPrefillToken.times(int64(b.PrefillTokens)))
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

// Estimates says, one reason each, why the cost is less certain than the profile's source claims; empty when it is not.
func (c *StepCost) Estimates() []string { return c.estimates }

// Term is one resource's share of a step.
type Term struct {
	Name     string
	Duration time.Duration
}

// Terms splits the time of a step for people to read. context is the sum of the decodes' contexts, windowed that of
// min(context, window), in tokens. Terms of no time are left out; each is rounded to the nanosecond.
func (c *StepCost) Terms(b Batch, context, windowed int64) []Term {
	tokens := int64(b.Decodes) + int64(b.PrefillTokens)
	if tokens <= 0 {
		return nil
	}
	linear, linearReads := c.linear(tokens)
	prefill, prefillReads := c.prefill(b)
	kind := func(reads bool, read, compute string) string {
		if reads {
			return read
		}
		return compute
	}
	var terms []Term
	for _, t := range []struct {
		name string
		time Fixed
	}{
		{kind(linearReads, "weights, read", "weights, computed"), linear},
		{kind(prefillReads, "prefill attention, read", "prefill attention, computed"), prefill},
		{"decode attention", scale(c.perContext, context) + scale(c.perWindow, windowed)},
		{"recurrent state", c.state.times(int64(b.Decodes) + int64(b.Prefills))},
		{"communication", c.links(tokens)},
		{"host", c.hostTime(b)},
		{"constant", c.constant(b)},
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
