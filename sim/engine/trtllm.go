package engine

// promised is the number of blocks that running requests will still take, at most, until they end. Under TensorRT-LLM's
// default policy GUARANTEED_NO_EVICT (cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp) a waiting request, first
// come first served, is admitted when its own prompt and longest output fit beside these, less what it shares with
// running requests; so nothing that runs ever lacks a block. Otherwise the steps here are those of vLLM. Batch waiting,
// the balance of attention data-parallel ranks and MAX_UTILIZATION are not simulated.
func (v *vllm) promised() int32 {
	blocks := int32(0)
	left := func(r *Request) int32 { return v.blocksFor(r.allTokens()) + v.StateBlocks - int32(v.kv.Held(&r.table)) }
	for r := v.running.head; r != nil; r = r.next {
		blocks += left(r)
	}
	if v.Source == nil {
		return blocks
	}
	for _, l := range []*list{&v.loads.list, &v.waiting} { // those that hold blocks already
		for r := l.head; r != nil; r = r.next {
			if r.guest == nil && v.kv.Held(&r.table) > 0 {
				blocks += left(r)
			}
		}
	}
	return blocks
}
