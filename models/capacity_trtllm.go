package models

// What TensorRT-LLM has beside weights and KV, in GiB (aiconfigurator, systems/h100_sxm.yaml: other_mem and the NCCL
// buffers of 2 ranks, and of 4 or more). No launch is known to compare with.
const (
	trtllmOtherGiB = 3.5
	trtllmNCCL2GiB = 342.0 / 1024
	trtllmNCCLGiB  = 392.0 / 1024
	trtllmErrorGiB = 1.5
)

// trtllmMemory is TensorRT-LLM's rule (kv_cache_config.free_gpu_memory_fraction):
//
//	KV = fraction · (total − weights − activations and other memory)
func (d *Deployment) trtllmMemory(m *Memory) {
	other := trtllmOtherGiB
	switch t := d.Parallelism.Tensor; {
	case t == 2:
		other += trtllmNCCL2GiB
	case t > 2:
		other += trtllmNCCLGiB
	}
	m.Residual = gibBytes(other)
	free := m.Total - m.Weights - m.Residual
	m.Budget = m.Weights + m.Residual + int64(float64(free)*d.MemoryUtilization)
	m.Error = gibBytes(trtllmErrorGiB)
}
