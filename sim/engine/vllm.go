package engine

import (
	"fmt"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// vllm is the scheduler of vLLM V1, version 0.19 (vllm/v1/core/sched/scheduler.py): running requests first, in the order
// of their admission; then waiting ones first come first served while tokens of the step's budget are left; prompts in
// chunks; a running request that gets no block preempts the last running one, which loses its blocks and goes to the
// front of the waiting ones. An engine that is Ranked admits and preempts in order of rank instead. With the policy of
// TensorRT-LLM none is ever preempted: see promised.
type vllm struct {
	*Engine
	pool    *kvcache.Pool
	noEvict bool
	blocked bool  // the waiting head did not fit, and nothing that helps it has happened since
	evicted int64 // blocks evicted until then
}

// useVLLM gives the engine a cache and a scheduler for the styles of vLLM and TensorRT-LLM.
func (e *Engine) useVLLM(kv kvcache.Options) error {
	if e.MaxSeqs < 1 || e.MaxBatchedTokens < e.MaxSeqs {
		return fmt.Errorf("engine: max_num_batched_tokens is %d and max_num_seqs %d: want batched tokens >= seqs >= 1",
			e.MaxBatchedTokens, e.MaxSeqs)
	}
	pool, err := kvcache.New(kv)
	if err != nil {
		return err
	}
	e.cache, e.kv = pool, &pool.Ledger
	e.style = &vllm{Engine: e, pool: pool, noEvict: e.Style == TRTLLM}
	return nil
}

func (v *vllm) fits(input, output int32) bool {
	tokens := int(input) + max(int(output)-1, 0) + v.Speculation.slots()
	return (tokens+v.kv.BlockSize-1)/v.kv.BlockSize+int(v.StateBlocks) <= v.kv.Blocks
}

func (v *vllm) admits() bool {
	return v.waiting.size > 0 && !v.blocked && v.running.size < v.MaxSeqs
}

func (v *vllm) freed()            { v.blocked = false }
func (v *vllm) computed(*Request) { v.blocked = false } // what it fills may be what a waiting one lacks
func (v *vllm) spare() int        { return 0 }

func (v *vllm) room() int {
	if v.noEvict {
		return v.kv.Free() - int(v.promised())
	}
	return v.kv.Free()
}

// fill fills one step: decodes, the request whose prompt is half computed, then waiting requests.
func (v *vllm) fill(now time.Duration) (models.Batch, bool, error) {
	v.resume()
	batch, preempted, stalled := v.decode(now)
	budget := v.MaxBatchedTokens - batch.Decodes - batch.Drafts
	if v.partial != nil && !stalled {
		chunk, room := v.goOn(now, &batch, budget)
		budget -= chunk
		preempted = preempted || !room
	} else if v.partial != nil {
		v.partial.chunk = 0
	}
	if preempted && v.noEvict {
		return batch, false, fmt.Errorf("worker %d at %v: a request lost its KV blocks in spite of GUARANTEED_NO_EVICT", v.Worker, now)
	}
	if (v.noEvict || v.Source != nil) && v.kv.Evicted > v.evicted {
		// What is taken was promised, so that costs the head nothing, and where a running request has a copy of what is
		// evicted the head shares it now with that. And what is evicted may come from outside, which needs less room now
		// than its next tokens would.
		v.blocked = false
	}
	if !preempted {
		v.admit(now, &batch, budget)
	}
	return batch, preempted, nil
}

// decode puts a token of each decoding request into the step. It tells whether it has preempted any for that, and whether
// some running requests sit the step out.
func (v *vllm) decode(now time.Duration) (batch models.Batch, preempted, stalled bool) {
	if v.Speculation != nil {
		return v.speculate(now)
	}
	step := v.kv.Step + 1
	need := int(v.needs[step%int64(len(v.needs))])
	if need <= v.kv.Free() {
		v.pool.Take(need)
		v.kv.Begin(now)
	} else {
		preempted, stalled = v.crowdedDecodes(now, step)
	}
	return models.Batch{Decodes: len(v.finish)}, preempted, stalled
}

// goOn puts the next chunk of the prompt that is half computed into the step, and returns by how many tokens the budget
// shrinks. When the chunk finds no room, others or the request itself are preempted.
func (v *vllm) goOn(now time.Duration, batch *models.Batch, budget int) (tokens int, room bool) {
	r, room := v.partial, true
	chunk := min(r.target-r.computed, int32(budget))
	if chunk == 0 { // drafts have taken the whole budget
		r.chunk = 0
		return 0, true
	}
	for !v.pool.GrowAhead(&r.table, r.computed+chunk, r.computed+chunk+v.Speculation.lookahead()) {
		if v.makeRoom() {
			continue
		}
		room = false
		victim := v.victim()
		if victim == r {
			v.preempt(r, now, 0)
			return tokens, false
		}
		tokens -= v.takeOut(batch, victim, 1)
		v.preempt(victim, now, 1)
	}
	v.blocked = false
	return tokens + v.addChunk(batch, r, chunk), room
}

// takeOut undoes what a decode has in the step that is being filled, the last undone of its tokens, and returns what the
// budget gets back.
func (v *vllm) takeOut(batch *models.Batch, r *Request, undone int64) int {
	batch.Decodes--
	if v.Speculation == nil {
		return 1
	}
	context := r.base + v.kv.Step - undone + int64(r.chunk)
	v.verified.context -= context
	v.verified.windowed -= min(context, int64(v.cost.Window()))
	batch.Drafts -= int(r.chunk - 1)
	n := int(r.chunk)
	r.chunk = 0
	return n
}

// crowdedDecodes gives decodes their blocks when there are too few, request by request in running order, preempting
// others. When the victim is the request itself, those behind it sit the step out.
func (v *vllm) crowdedDecodes(now time.Duration, step int64) (preempted, stalled bool) {
	for r := v.running.head; r != nil && !stalled; r = r.next {
		if r.state != decoding || step%int64(len(v.needs)) != v.residue(r) {
			continue
		}
		behind := r.next
		for v.kv.Free() == 0 && !stalled {
			if v.makeRoom() {
				continue
			}
			victim := v.victim()
			if victim.state == decoding && victim.table.Order < r.table.Order {
				v.pool.Ahead(&victim.table) // it has its place in the step already
			}
			if behind == victim {
				behind = victim.next
			}
			v.preempt(victim, now, 0)
			preempted, stalled = true, victim == r
		}
		if stalled {
			v.stall(behind)
			break
		}
		v.pool.Take(1)
	}
	v.kv.Begin(now)
	return preempted, stalled
}

// preempt takes the blocks from a running request and puts it among the waiting ones: to their front, or where its rank
// belongs. Of its tokens the last undone are those of the step that it is taken out of.
func (v *vllm) preempt(r *Request, now time.Duration, undone int32) {
	v.evacuate(r, now, undone)
	v.waitFirst(r)
	v.blocked = false
}

// admit starts waiting requests in order while the budget lasts. The first that does not fit blocks those behind.
func (v *vllm) admit(now time.Duration, batch *models.Batch, budget int) {
	size := int32(v.kv.BlockSize)
	for budget > 0 && v.admits() {
		r := v.waiting.head
		if r.loaded > 0 {
			if !v.admitLoaded(r, now, batch, &budget) {
				return
			}
			continue
		}
		v.warm(r)
		cached := v.pool.Lookup(r.Path, r.target/size)
		found := min(cached, (r.target-1)/size) // the last token is always computed
		hits := v.Speculation.usable(found)
		if tokens, coming := v.reach(now, r, hits, (r.target-1)/size); coming {
			v.setAside(r)
			continue
		} else if tokens > hits*size {
			if !v.pool.Reserve(&r.table, hits, tokens, v.reserve(r, tokens), v.StateBlocks) {
				v.block(r, found)
				return
			}
			v.setAside(r)
			v.load(now, r, hits, tokens)
			continue
		}
		chunk := min(r.target-hits*size, int32(budget))
		tokens := hits*size + chunk
		if !v.pool.Admit(&r.table, hits, tokens, v.reserve(r, tokens), v.StateBlocks) {
			v.block(r, found)
			return
		}
		r.computed = hits * size
		v.begin(r, now, cached)
		budget -= v.addChunk(batch, r, chunk)
		v.blocked = false
	}
}

// block notes that the waiting head did not fit, with found leading blocks cached, and need not be tried again while no
// decoding request fills more of them. With speculation, what fills blocks is in no list, and there are no leaps to cut short.
func (v *vllm) block(r *Request, found int32) {
	v.blocked = v.Speculation == nil && (found == (r.target-1)/int32(v.kv.BlockSize) || !v.pool.Filling(r.Path, found))
	v.evicted = v.kv.Evicted
}

// admitLoaded starts a waiting request whose first tokens were brought for it, if its next ones find room.
func (v *vllm) admitLoaded(r *Request, now time.Duration, batch *models.Batch, budget *int) bool {
	chunk := min(r.target-r.loaded, int32(*budget))
	held := v.kv.Held(&r.table)
	if v.ReserveFull && int(v.blocksFor(r.target)+v.StateBlocks)-held > v.kv.Free() || !v.pool.GrowAhead(&r.table, r.loaded+chunk, r.loaded+chunk+v.Speculation.lookahead()) {
		v.blocked = true
		return false
	}
	v.loads.blocks -= held
	r.computed = r.loaded
	v.begin(r, now, r.loaded/int32(v.kv.BlockSize))
	*budget -= v.addChunk(batch, r, chunk)
	v.blocked = false
	return true
}

// reserve is the number of blocks that a waiting request must find, those of its first tokens that are cached included.
func (v *vllm) reserve(r *Request, tokens int32) int32 {
	switch {
	case v.noEvict:
		return v.blocksFor(r.allTokens()) + v.promised()
	case v.ReserveFull:
		return v.blocksFor(r.target)
	default:
		return v.blocksFor(tokens)
	}
}

func (v *vllm) check() error {
	if v.noEvict && int(v.promised()) > v.kv.Free() {
		return fmt.Errorf("engine: running requests were promised %d more blocks, but %d are free", v.promised(), v.kv.Free())
	}
	return nil
}
