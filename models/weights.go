package models

// shard counts the parameters that one GPU holds, or reads, of all layers. Norms and biases are left out: they are less
// than a thousandth.
type shard struct {
	attention int64 // projections of full, window and linear attention
	ffn       int64 // dense FFNs and shared experts
	router    int64 // and what joins a drafter's inputs: whole on every rank, in bf16
	experts   int64 // all routed experts
	embedding int64 // one of the two vocabulary matrices
}

// shard is the part of a model on one of tensor ranks, when the routed experts are spread over a group of ranks.
//
// Query heads, FFN columns and vocabulary rows are split; KV heads are split until a rank has one, then copied; the
// down-projections to a latent and the router are on every rank (vLLM's ReplicatedLinear).
func (m *Model) shard(tensor, group int) shard {
	d, t := int64(m.Hidden), int64(tensor)
	moe, dense := int64(m.MoELayers()), int64(m.Layers-m.MoELayers())
	return shard{
		attention: int64(m.Layers-m.Linear.Layers)*m.attentionParams(tensor) + int64(m.Linear.Layers)*m.linearParams(tensor),
		ffn:       3 * d * (dense*int64(m.FFN) + moe*int64(m.MoE.SharedFFN)) / t,
		router:    moe*d*int64(m.MoE.Experts) + int64(m.joined)*d*d,
		experts:   moe * int64(m.MoE.Experts) * m.expertParams() / int64(group),
		embedding: (d*int64(m.Vocab) + t - 1) / t,
	}
}

// attentionParams counts one full or window layer on one of tensor ranks.
func (m *Model) attentionParams(tensor int) int64 {
	d, heads := int64(m.Hidden), int64(m.Heads/tensor)
	if a := m.MLA; a.KVRank > 0 {
		query := int64(a.NopeDim + a.RopeDim)
		latent, up := int64(a.QRank), int64(a.QRank)
		if a.QRank == 0 {
			latent, up = 0, d
		}
		return d*latent + up*heads*query +
			d*int64(a.KVRank+a.RopeDim) + int64(a.KVRank)*heads*int64(a.NopeDim+a.ValueDim) +
			heads*int64(a.ValueDim)*d
	}
	q, kv := heads*int64(m.HeadDim), int64(max(1, m.KVHeads/tensor))*int64(m.HeadDim)
	n := 2*d*q + 2*d*kv
	if m.GatedAttention {
		n += d * q
	}
	return n
}

// linearParams counts one layer of linear attention on one of tensor ranks: projections of query, key, value, output
// gate, decay and update strength, the convolution, and the output projection.
func (m *Model) linearParams(tensor int) int64 {
	l, d := m.Linear, int64(m.Hidden)
	keys := int64(max(1, l.KeyHeads/tensor)) * int64(l.KeyDim)
	valueHeads := int64(max(1, l.ValueHeads/tensor))
	values := valueHeads * int64(l.ValueDim)
	return d*(2*keys+2*values+2*valueHeads) + (2*keys+values)*int64(l.ConvKernel) + values*d
}

// expertParams counts one routed expert of one layer.
func (m *Model) expertParams() int64 { return 3 * int64(m.Hidden) * int64(m.MoE.FFN) }

// layerBytes is the size of everything but the vocabulary matrices and the routed experts.
func (m *Model) layerBytes(s shard, weights DType) int64 {
	attention := weights
	if m.BF16Attention {
		attention = BF16
	}
	return attention.bytes(s.attention) + weights.bytes(s.ffn) + BF16.bytes(s.router)
}

// embeddings is the number of vocabulary matrices: the embedding and the output head.
func (m *Model) embeddings() int64 {
	if m.TiedEmbeddings {
		return 1
	}
	return 2
}

// Params is the number of parameters, norms and biases left out.
func (m *Model) Params() int64 {
	s := m.shard(1, 1)
	return s.attention + s.ffn + s.router + s.experts + m.embeddings()*s.embedding + m.VisionParams
}

// ActiveParams is the number of parameters that one text token uses, both vocabulary matrices included.
func (m *Model) ActiveParams() int64 {
	s := m.shard(1, 1)
	return s.attention + s.ffn + s.router + m.activeExpertParams() + m.embeddings()*s.embedding
}

// activeExpertParams counts the routed experts that one token uses, over all layers.
func (m *Model) activeExpertParams() int64 {
	return int64(m.MoELayers()) * int64(m.MoE.Active) * m.expertParams()
}

// WeightBytes is the size of the whole model, stored once. Embedding, output head and router stay bf16, and so does
// attention where the model says so.
func (m *Model) WeightBytes(weights DType) int64 {
	s := m.shard(1, 1)
	return m.layerBytes(s, weights) + weights.bytes(s.experts) + BF16.bytes(m.embeddings()*s.embedding+m.VisionParams)
}

// Summary is what a catalogue listing shows of a model.
type Summary struct {
	Name                  string `json:"name"`
	Params                int64  `json:"params"`
	ActiveParams          int64  `json:"active_params"`
	Attention             string `json:"attention"`
	MaxContext            int    `json:"max_context,omitempty"` // tokens; 0 when not known
	DType                 DType  `json:"dtype"`
	WeightBytes           int64  `json:"weight_bytes"`                       // whole model in DType
	KVBytesPerToken       int64  `json:"kv_bytes_per_token"`                 // whole model, bf16
	StateBytesPerSequence int64  `json:"state_bytes_per_sequence,omitempty"` // whole model, bf16
	Source                string `json:"source"`
}

// Summary describes the model, with bf16 KV entries.
func (m *Model) Summary() Summary {
	return Summary{
		Name:                  m.Name,
		Params:                m.Params(),
		ActiveParams:          m.ActiveParams(),
		Attention:             m.Attention(),
		MaxContext:            m.MaxContext,
		DType:                 m.DType,
		WeightBytes:           m.WeightBytes(m.DType),
		KVBytesPerToken:       m.KVBytesPerToken(BF16),
		StateBytesPerSequence: m.StateBytesPerSequence(BF16),
		Source:                m.Source,
	}
}
