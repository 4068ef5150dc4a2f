package engine

import "fmt"

// Check verifies the engine's invariants: each prefilling or decoding request holds exactly the blocks of its tokens,
// and with speculation of drafts, no more than MaxSeqs run, and the aggregates equal sums over the batch.
func (e *Engine) Check() error {
	if err := e.cache.Check(); err != nil {
		return err
	}
	if e.running.size > e.MaxSeqs {
		return fmt.Errorf("engine: %d requests run, more than max_num_seqs %d", e.running.size, e.MaxSeqs)
	}
	decodes, sum := 0, int64(0)
	generated := newProgress(e.Groups)
	lockstep, inFlight := int64(1), int64(0)
	if e.Speculation != nil {
		lockstep = 0
	}
	if e.busy && (e.decodes > 0 || e.Speculation != nil) { // the first step in flight is in the tables already
		inFlight = 1
	}
	for r := e.running.head; r != nil; r = r.next {
		tokens := int(r.computed)
		if r.state == decoding {
			decodes++
			sum += r.base
			tokens = int(r.base + e.kv.Step)
			generated.add(r, lockstep, r.base+e.kv.Step-inFlight-int64(r.Input)+1)
		} else {
			generated.add(r, 0, int64(r.generated))
		}
		most := tokens
		if e.Speculation != nil {
			if r.state == decoding && r.chunk == 0 { // it is not in the step
				tokens--
			}
			most += e.Speculation.slots()
		}
		blocks := func(tokens int) int { return int(e.blocksFor(int32(tokens)) + e.StateBlocks) }
		if held := e.kv.Held(&r.table); held < blocks(tokens) || held > blocks(most) {
			return fmt.Errorf("engine: request %d holds %d blocks for %d tokens, want %d to %d", r.ID, held, tokens, blocks(tokens), blocks(most))
		}
	}
	for r := e.waiting.head; r != nil; r = r.next {
		generated.add(r, 0, int64(r.generated))
	}
	for g := range generated.tokens {
		if n := e.progress.tokens[g]; n != generated.tokens[g] || e.progress.decodes[g] != generated.decodes[g] {
			return fmt.Errorf("engine: group %d has %d tokens of %d decodes, the requests have %d of %d",
				g+1, n, e.progress.decodes[g], generated.tokens[g], generated.decodes[g])
		}
	}
	if e.Speculation == nil && (decodes != len(e.finish) || sum != e.baseSum) {
		return fmt.Errorf("engine: aggregates count %d decodes with base sum %d, the batch has %d with %d", len(e.finish), e.baseSum, decodes, sum)
	}
	if err := e.checkAccounts(); err != nil {
		return err
	}
	return e.style.check()
}
