package engine

import "fmt"

// Check verifies the engine's invariants: each prefilling or decoding request holds exactly the blocks of its tokens,
// no more than MaxSeqs run, and the aggregates equal sums over the batch.
func (e *Engine) Check() error {
	if err := e.cache.Check(); err != nil {
		return err
	}
	if e.running.size > e.MaxSeqs {
		return fmt.Errorf("engine: %d requests run, more than max_num_seqs %d", e.running.size, e.MaxSeqs)
	}
	decodes, sum := 0, int64(0)
	generated := newProgress(e.Groups)
	for r := e.running.head; r != nil; r = r.next {
		tokens := int(r.computed)
		if r.state == decoding {
			decodes++
			sum += r.base
			tokens = int(r.base + e.kv.Step)
			generated.add(r, 1, r.base+e.kv.Step-int64(r.Input)+1)
		} else {
			generated.add(r, 0, int64(r.generated))
		}
		want := (tokens+e.kv.BlockSize-1)/e.kv.BlockSize + int(e.StateBlocks)
		if held := e.kv.Held(&r.table); held != want {
			return fmt.Errorf("engine: request %d holds %d blocks for %d tokens, want %d", r.ID, held, tokens, want)
		}
	}
	for r := e.waiting.head; r != nil; r = r.next {
		generated.add(r, 0, int64(r.generated))
	}
	inFlight := int64(0) // the first step in flight is in the tables already
	if e.busy && e.decodes > 0 {
		inFlight = 1
	}
	for g := range generated.tokens {
		if n := e.progress.tokens[g] + inFlight*e.progress.decodes[g]; n != generated.tokens[g] || e.progress.decodes[g] != generated.decodes[g] {
			return fmt.Errorf("engine: group %d has %d tokens of %d decodes, the requests have %d of %d",
				g+1, n, e.progress.decodes[g], generated.tokens[g], generated.decodes[g])
		}
	}
	if decodes != len(e.finish) || sum != e.baseSum {
		return fmt.Errorf("engine: aggregates count %d decodes with base sum %d, the batch has %d with %d", len(e.finish), e.baseSum, decodes, sum)
	}
	return e.style.check()
}
