package models

import "math/bits"

// product is a matrix product of a step's rows, the same in some of the layers, on one GPU.
type product struct {
	layers  int
	n, k    int // columns of the result, and of the rows
	weights DType
}

// products lists the matrix products of all layers but those of routed experts.
func (d *Deployment) products() []product {
	m, t := d.Model, d.Parallelism.Tensor
	attention := d.Weights
	if m.BF16Attention {
		attention = BF16
	}
	var list []product
	add := func(layers, n, k int, weights DType) {
		if layers > 0 && n > 0 && k > 0 {
			list = append(list, product{layers, n, k, weights})
		}
	}
	add(m.joined, m.Hidden, m.joined*m.Hidden, BF16)
	softmax, heads := m.Layers-m.Linear.Layers, m.Heads/t
	if a := m.MLA; a.KVRank > 0 {
		latent := a.KVRank + a.RopeDim
		if a.QRank > 0 {
			add(softmax, a.QRank+latent, m.Hidden, attention)
			add(softmax, heads*(a.NopeDim+a.RopeDim), a.QRank, attention)
		} else {
			add(softmax, heads*(a.NopeDim+a.RopeDim)+latent, m.Hidden, attention)
		}
		add(softmax, heads*(a.NopeDim+a.ValueDim), a.KVRank, attention)
		add(softmax, m.Hidden, heads*a.ValueDim, attention)
	} else {
		columns := heads + 2*d.kvHeads()
		if m.GatedAttention {
			columns += heads
		}
		add(softmax, columns*m.HeadDim, m.Hidden, attention)
		add(softmax, m.Hidden, heads*m.HeadDim, attention)
	}
	if l := m.Linear; l.Layers > 0 {
		valueHeads := max(1, l.ValueHeads/t)
		values := valueHeads * l.ValueDim
		add(l.Layers, 2*max(1, l.KeyHeads/t)*l.KeyDim+2*values+2*valueHeads, m.Hidden, attention)
		add(l.Layers, m.Hidden, values, attention)
	}
	for _, ffn := range []struct{ layers, width int }{{m.Layers - m.MoELayers(), m.FFN}, {m.MoELayers(), m.MoE.SharedFFN}} {
		add(ffn.layers, 2*ffn.width/t, m.Hidden, d.Weights)
		add(ffn.layers, m.Hidden, ffn.width/t, d.Weights)
	}
	return list
}

// kvHeads is the number of KV heads on one GPU.
func (d *Deployment) kvHeads() int { return max(1, d.Model.KVHeads/d.Parallelism.Tensor) }

// costTokens sets the terms that depend on the number of tokens or sequences alone, links aside.
func (d *Deployment) costTokens(c *StepCost, ops *Ops, profile *Profile) {
	m, t := d.Model, d.Parallelism.Tensor
	products := d.products()
	c.products = newCurve(func(tokens float64) (us float64) {
		for _, p := range products {
			us += float64(p.layers) * ops.productUs(d.GPU, p.weights, tokens, float64(p.n), float64(p.k))
		}
		return profile.Linear * us
	})

	vocab := float64((m.Vocab + t - 1) / t)
	c.head = newCurve(func(sequences float64) float64 {
		us := ops.productUs(d.GPU, BF16, sequences, vocab, float64(m.Hidden))
		us += ops.Sampler.Us(sequences * float64(m.Vocab) * logitBytes)
		if d.FilteredSampling && sequences > 0 {
			us += d.filterUs(sequences * float64(m.Vocab))
		}
		return profile.Linear * (us + d.gatherUs(ops, sequences*float64(m.Vocab)*2))
	})

	if layers := m.MoELayers(); layers > 0 {
		factor := profile.Linear * float64(layers)
		c.router = newCurve(func(tokens float64) float64 { return factor * d.routerUs(ops, tokens) })
		c.experts = newCurve(func(tokens float64) float64 { return factor * d.expertsUs(ops, tokens) })
	}

	// Norms read and write the residual and the layer's input; rotary embedding passes over queries and keys, the
	// activation over both halves of its input. Linear attention has a convolution and a recurrence instead of one.
	kernels, bytes := 3*m.Layers+m.Linear.Layers, 16*m.Layers*m.Hidden
	if m.MLA.KVRank == 0 {
		kernels += m.Layers
		bytes += m.Layers * 4 * (m.Heads/t + d.kvHeads()) * m.HeadDim
	}
	bytes += 6 * ((m.Layers-m.MoELayers())*m.FFN + m.MoELayers()*m.MoE.SharedFFN) / t
	if m.MoELayers() > 0 && m.MoE.SharedFFN == 0 {
		kernels -= m.MoELayers()
	}
	c.small = newCurve(func(tokens float64) float64 {
		return profile.Linear * (float64(kernels)*ops.Small.FloorUs + ops.Small.Us(tokens*float64(bytes)) - ops.Small.FloorUs)
	})
}

// logitBytes is what sampling reads and writes per logit (vLLM: conversion to fp32, softmax, exponential noise, choice).
const logitBytes = 12

// filterUs is the time to cut so many logits down to top-p and top-k. vLLM sorts them all until 0.16 (2.1 to 2.4 ms for
// 128 · 131,072 on PyTorch); from 0.17 a kernel of its own searches the threshold (0.31 ms for 64 sequences, 0.36 ms for
// 128; vllm-project/vllm pull requests 33538 and 40376).
func (d *Deployment) filterUs(logits float64) float64 {
	if d.Engine == EngineVLLM && !d.versionFrom(17) {
		return 100 + 130e-6*logits
	}
	return 260 + 6e-6*logits
}

// routerUs is the time of one MoE layer's choice of experts.
func (d *Deployment) routerUs(ops *Ops, tokens float64) float64 {
	return ops.productUs(d.GPU, BF16, tokens, float64(d.Model.MoE.Experts), float64(d.Model.Hidden)) + ops.Small.FloorUs
}

// expertsUs is the time of one MoE layer's routed experts for so many tokens of all data ranks. Each token picks experts at
// random, and every GPU has an even share of them.
func (d *Deployment) expertsUs(ops *Ops, tokens float64) float64 {
	m, p := d.Model.MoE, d.Parallelism
	touched := float64(m.Experts) * expertCoverage(m, tokens) / float64(p.Expert)
	columns := float64(m.FFN) / float64(p.Tensor*p.Data/p.Expert)
	return ops.expertsUs(d.GPU, d.Weights, tokens*float64(m.Active), 1/float64(p.Expert), touched, float64(d.Model.Hidden), columns)
}

// costPrefill sets the terms of prompt chunks.
func (d *Deployment) costPrefill(c *StepCost, ops *Ops, profile *Profile) {
	m := d.Model
	factor := profile.PrefillAttention * 1e3 // to ns
	full, window := float64(m.FullLayers()), float64(m.Window.Layers)
	heads := float64(m.Heads / d.Parallelism.Tensor)
	readUs := float64(m.kvBytesPerLayer(d.KV, d.Parallelism.Tensor)) * full / 1e6
	if a := m.MLA; a.KVRank > 0 {
		k := ops.mla(d.KV)
		c.prefillFloor = newFixed(factor * full * max(0, k.PrefillFloorUs-k.FloorUs))
		c.chunkToken = newRate(factor * full * heads * k.TokenNs * 1e-3)
		c.pair = newRate(factor * full * heads * float64(a.NopeDim+a.RopeDim+a.ValueDim) / (k.PrefillTFLOPS * 1e6))
		c.keyRead = newRate(factor * readUs / k.TBs)
		c.expand = newRate(factor * full * heads * 2 * float64(a.KVRank) * float64(a.NopeDim+a.ValueDim) / (ops.GEMMBF16.TFLOPS * 1e6))
		return
	}
	k := ops.prefill(d.KV)
	c.prefillFloor = newFixed(factor * (full + window) * max(0, k.FloorUs-ops.decode(d.KV).FloorUs))
	c.chunkToken = newRate(factor * (full + window) * heads * k.TokenNs * 1e-3)
	pairUs := heads * (4*float64(m.HeadDim)/(k.TFLOPS*1e6) + k.PairPs*1e-6)
	padding := k.Padding(heads / float64(d.kvHeads()))
	c.pair, c.windowPair = newRate(factor*full*pairUs/2), newRate(factor*window*pairUs/2)
	c.paddedKey, c.windowPaddedKey = newRate(factor*full*pairUs*padding), newRate(factor*window*pairUs*padding)
	c.tail, c.windowTail = newRate(factor*full*k.TailNs*1e-3), newRate(factor*window*k.TailNs*1e-3)
	c.keyRead = newRate(factor * readUs / ops.decode(d.KV).TBs)
}

// costDecode sets the terms of decodes and of recurrent states. A sequence's context is read once however many of its
// tokens are verified, and multiplied with the queries of all of them, whichever takes longer.
func (d *Deployment) costDecode(c *StepCost, ops *Ops, profile *Profile) {
	m, t := d.Model, d.Parallelism.Tensor
	factor := profile.DecodeAttention * 1e3 // to ns
	full, window := float64(m.FullLayers()), float64(m.Window.Layers)
	bytes, rows := float64(m.kvBytesPerLayer(d.KV, t)), float64(1+d.Speculative.Tokens)
	if a := m.MLA; a.KVRank > 0 {
		k, heads := ops.mla(d.KV), float64(m.Heads/t)
		c.floor = newFixed(factor * full * k.FloorUs)
		c.sequence = newRate(factor * full * heads * k.UnitNs * 1e-3)
		read, compute := bytes/(k.TBs*1e6), rows*heads*2*float64(2*a.KVRank+a.RopeDim)/(k.DecodeTFLOPS*1e6)
		c.perContext = newFixed(factor * full * max(read, compute))
	} else {
		k := ops.decode(d.KV)
		c.floor = newFixed(factor * (full + window) * k.FloorUs)
		c.sequence = newRate(factor * (full + window) * float64(d.kvHeads()) * k.UnitNs * 1e-3)
		us := bytes / (k.TBs * 1e6)
		if rows > 1 {
			us = max(us, rows*float64(m.Heads/t)*4*float64(m.HeadDim)/(ops.prefill(d.KV).TFLOPS*1e6))
		}
		c.perContext, c.perWindow = newFixed(factor*full*us), newFixed(factor*window*us)
		c.window = m.Window.Tokens
	}
	linear := Model{Linear: m.Linear}
	c.state = newRate(factor * 2 * float64(linear.stateBytes(d.KV, t)) / (ops.Small.TBs * 1e6))
}

// costLinks sets the terms of communication: after attention and after the FFN of each layer an all-reduce over the tensor
// ranks; with data parallelism, experts get and return their tokens by all-to-alls, which last as long as the rank with the
// most tokens needs, or by all-reduces of all ranks' tokens where each expert is split over all of them; between pipeline
// stages a transfer.
func (d *Deployment) costLinks(c *StepCost, ops *Ops, profile *Profile) {
	m, p := d.Model, d.Parallelism
	moe, size := float64(m.MoELayers()), float64(m.Hidden)*2
	apart := p.Data > 1 && moe > 0 // experts are not where the tokens are
	c.links = newCurve(func(tokens float64) float64 {
		us := float64(2*m.Layers-m.MoELayers()) * d.allReduceUs(ops, p.Tensor, tokens*size)
		switch {
		case !apart:
			us += moe * d.allReduceUs(ops, p.Tensor, tokens*size)
		case p.Expert > 1:
			copies := float64(min(m.MoE.Active, p.Expert)) / float64(p.Tensor)
			us += moe * 2 * d.collectiveUs(&ops.AllToAll, p.Tensor*p.Data, tokens*size*copies, 1)
		}
		const hopUs = 10 // aiconfigurator's point-to-point latency
		us += float64(p.Pipeline-1) * (hopUs + tokens*size/(d.GPU.slowestLink(p.GPUs())*1e3))
		return profile.Communication * us
	})
	if apart && p.Expert == 1 {
		c.sharedLinks = newCurve(func(tokens float64) float64 {
			return profile.Communication * moe * d.allReduceUs(ops, p.Tensor*p.Data, tokens*size)
		})
	}
}

// allReduceUs is the time to add up a buffer over n GPUs: by the engine's own kernels on up to 8 linked GPUs, else NCCL.
func (d *Deployment) allReduceUs(ops *Ops, n int, bytes float64) float64 {
	if n <= min(8, d.GPU.Domain) {
		return d.collectiveUs(&ops.AllReduce, n, bytes, 0)
	}
	return d.collectiveUs(&ops.NCCLAllReduce, n, bytes, 2)
}

// gatherUs is the time to bring the logits of all tensor ranks together, so many bytes in all.
func (d *Deployment) gatherUs(ops *Ops, bytes float64) float64 {
	return d.collectiveUs(&ops.AllGather, d.Parallelism.Tensor, bytes, 1)
}

// collectiveUs is the time of a collective over n GPUs, 0 over one. Over more than 8 or than share a link: the floor for
// 8 grown with the logarithm of n, and the bytes, passed so many times, on the slowest link.
func (d *Deployment) collectiveUs(c *Collectives, n int, bytes, passes float64) float64 {
	switch {
	case n <= 1:
		return 0
	case n <= min(8, d.GPU.Domain):
		return c.over(n).Us(bytes)
	}
	doublings := float64(bits.Len(uint(n - 1)))
	return c.Eight.FloorUs*max(1, doublings/3) + passes*bytes*float64(n-1)/float64(n)/(d.GPU.slowestLink(n)*1e3)
}
