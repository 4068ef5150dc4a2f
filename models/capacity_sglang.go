package models

import "math"

// What SGLang finds missing before it loads the weights, in GiB: a CUDA context, and with tensor parallelism the buffers
// of NCCL and of the custom all-reduce. The second is what one launch leaves over (vLLM issue 21348, Qwen3-235B in fp8 on
// four H100).
const (
	sglangContextGiB = 0.5
	sglangTensorGiB  = 2.0
	sglangErrorGiB   = 1.0
)

// sglangMemory is SGLang's rule (sglang/srt/model_executor/model_runner.py, profile_max_num_token):
//
//	KV = found · mem_fraction_static − weights
//
// where found is what is free before the weights are loaded. Activations and CUDA graphs live in the rest.
func (d *Deployment) sglangMemory(m *Memory) {
	missing := sglangContextGiB
	if d.Parallelism.Tensor > 1 {
		missing = sglangTensorGiB
	}
	m.Budget = gibBytes(d.GPU.VisibleGiB * d.MemoryUtilization)
	m.Residual = gibBytes(missing*d.MemoryUtilization) + d.ropeBytes()
	m.Error = gibBytes(sglangErrorGiB)
}

// sglangMemFraction is SGLang's default of mem_fraction_static (sglang/srt/server_args.py, _handle_gpu_memory_settings):
// all but 512 MiB, 1.5 MiB per token of a prefill chunk, 2 MiB per sequence of the largest CUDA graph and 128 MiB per GPU
// of the worker, and but 10 GiB on GPUs of more than 60 GiB; with data-parallel attention, 3 MiB more per rank and
// sequence of the graph, 4.5 if that has more than 300.
func (d *Deployment) sglangMemFraction() float64 {
	p := d.Parallelism
	mib := d.GPU.MemoryGiB * 1024
	graph := sglangGraphSequences(mib, p.Tensor)
	reserved := 512 + 1.5*float64(max(d.MaxBatchedTokens, 2048)) + 2*graph + 1024*float64(p.Tensor*p.Pipeline)/8
	if p.Data > 1 {
		perRank := 3.0
		if graph > 300 {
			perRank = 4.5
		}
		reserved += perRank * graph * float64(p.Data)
	}
	if mib > 60*1024 {
		reserved = max(reserved, 10*1024)
	}
	return max(0.1, math.Round((mib-reserved)/mib*1000)/1000)
}

// sglangGraphSequences is SGLang's default of cuda_graph_max_bs.
func sglangGraphSequences(mib float64, tensor int) float64 {
	few := tensor < 4
	switch {
	case mib < 20*1024:
		return 8
	case mib < 35*1024:
		if few {
			return 24
		}
		return 80
	case mib < 60*1024:
		if few {
			return 32
		}
		return 160
	case mib < 160*1024 && few:
		return 256
	}
	return 512
}
