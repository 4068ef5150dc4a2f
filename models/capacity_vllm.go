package models

// What vLLM's profiling finds beside weights and activations, in GiB. These are the only fitted numbers of its rule.
const (
	// CUDA modules, library workspaces, fragments. The launches of vLLM 0.15.1 in kv-capacity leave 0.2 to 0.8; its logs
	// call 0.13 of that "non-torch".
	vllmRuntimeGiB = 0.3
	// The same with tensor parallelism: NCCL's and the custom all-reduce's buffers. 0.55 to 0.8 in the same launches.
	vllmRuntimeTensorGiB = 0.6
	// From 0.18 on, with the workspace of the fused all-reduce and norm: 2.06 to 2.2 in logs of 0.19 on H100
	// (llm-d-planner, accuracy report of v0.19.0); 0.25 with one GPU, which the number above covers.
	vllmFusedAllReduceGiB = 2.1
	// CUDA graphs, which versions from 0.21 on estimate and take from the budget (PR 30515): 0.2 to 0.8 in logs.
	vllmGraphGiB = 0.4
)

// vllmMXFP4Tile is what vLLM pads the hidden width of mxfp4 experts to a multiple of (Mxfp4MoEMethod.create_weights): the
// 2880 of gpt-oss become 3072.
const vllmMXFP4Tile = 256

// vllmErrorGiB is how far vLLM's residual may be off, in GiB: of 9 launches of dense models, and one with experts, none
// is off by more than 0.5.
const vllmErrorGiB = 0.7

// vllmMemory is the rule of vLLM's V1 engine (vllm/v1/worker/gpu_worker.py, determine_available_memory):
//
//	budget   = total · gpu_memory_utilization
//	residual = peak of a step of max_num_batched_tokens tokens and of sampling max_num_seqs of them
//	           + table of the rotary embedding + runtime (+ CUDA graphs from 0.21 on)
//	KV       = budget − weights − residual
func (d *Deployment) vllmMemory(m *Memory) {
	runtime := vllmRuntimeGiB
	if d.Parallelism.Tensor > 1 {
		runtime = vllmRuntimeTensorGiB
		if d.versionFrom(18) {
			runtime = vllmFusedAllReduceGiB
		}
	}
	if d.versionFrom(21) {
		runtime += vllmGraphGiB
	}
	m.Budget = gibBytes(d.GPU.VisibleGiB * d.MemoryUtilization)
	m.Residual = d.vllmActivations() + d.ropeBytes() + gibBytes(runtime)
	// The experts' kernels are not known: those of DeepGEMM, for one, take about twice the memory of Triton's.
	m.Error = gibBytes(vllmErrorGiB) + d.vllmExpertWorkspace()
}

// vllmActivations is the largest amount of temporary memory, in bytes, that vLLM's profile run has at any time. It
// compiles the model, runs max_num_batched_tokens tokens through it, then samples for max_num_seqs of them: the last is
// what binds unless the batch is small. The encoders of a model for images run before, with less.
func (d *Deployment) vllmActivations() int64 {
	m := d.Model
	tokens := int64(d.MaxBatchedTokens)
	// The residual stream and a layer's input, in 2 bytes each, live throughout.
	stream := tokens * 4 * int64(m.Hidden)
	// Gate and up projections and their product.
	ffn := tokens * 6 * int64(max(m.FFN, m.MoE.SharedFFN)) / int64(d.Parallelism.Tensor)
	sampler := int64(min(d.MaxNumSeqs, d.MaxBatchedTokens)) * int64(m.Vocab) * d.vllmSamplerBytes()
	peak := max(ffn, sampler)
	experts := d.vllmExpertWorkspace()
	if !d.versionFrom(12) {
		return stream + max(peak, experts)
	}
	// From 0.12 on the experts' workspace stays (PR 27532), and the compiler tries kernels that rotate queries and keys
	// together (PR 26682; in 0.11.1 already) on inputs of its own, of which a table as large as the model's is one.
	return stream + experts + max(peak, d.ropeBytes())
}

// vllmExpertWorkspace is what the routed experts' kernels write to, in bytes: for each expert of a token, 2 bytes for the
// wider of the activation and the output, and for the wider of gate and up together and the output
// (TritonExperts.workspace_shapes).
func (d *Deployment) vllmExpertWorkspace() int64 {
	m, p := d.Model, d.Parallelism
	if m.MoELayers() == 0 {
		return 0
	}
	ffn, hidden := int64(m.MoE.FFN)/int64(max(1, p.Tensor*p.Data/p.Expert)), int64(m.Hidden)
	return int64(d.MaxBatchedTokens) * int64(m.MoE.Active) * 2 * (max(ffn, hidden) + max(2*ffn, hidden))
}

// vllmSamplerBytes is the temporary memory of sampling, in bytes per logit. The sum of each list is what logs of H100
// launches show with 1,024 sequences, for vocabularies from 49,000 to 256,000: 38 up to 0.16, 14 later.
func (d *Deployment) vllmSamplerBytes() int64 {
	const logits, float32s = 2, 4
	if d.versionFrom(17) {
		// Top-k and top-p without sorting: probabilities and random numbers.
		return logits + float32s + 4 + 4
	}
	// torch.sort: sorted values and indices, the indices it starts from, and as much again as values and indices for the
	// radix sort.
	return logits + float32s + (4 + 8) + 8 + (4 + 8)
}
