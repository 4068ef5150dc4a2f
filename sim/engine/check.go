package engine

import "fmt"

// Check verifies the engine's invariants: each prefilling or decoding request holds exactly the blocks of its tokens,
// and with speculation of drafts, one that waits those of what it has loaded, no more than MaxSeqs run, and the aggregates equal sums over the batch.
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
	if err := e.checkLoads(&generated); err != nil {
		return err
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

// checkLoads verifies what waiting requests hold, and adds up what they have generated.
func (e *Engine) checkLoads(generated *progress) error {
	blocks, lodged := 0, 0
	for _, l := range []*list{&e.waiting, &e.loads.list} {
		for r := l.head; r != nil; r = r.next {
			generated.add(r, 0, int64(r.generated))
			want := 0
			if r.loaded > 0 {
				want = int(e.blocksFor(r.loaded))
				if r.guest == nil {
					want += int(e.StateBlocks)
				}
			}
			if held := e.kv.Held(&r.table); held != want {
				return fmt.Errorf("engine: request %d waits with %d blocks for %d tokens, want %d", r.ID, held, r.loaded, want)
			}
			if blocks += want; r.guest != nil {
				lodged++
			}
		}
	}
	if blocks != e.loads.blocks || lodged != e.loads.lodged {
		return fmt.Errorf("engine: waiting requests and %d guests hold %d blocks, but %d and %d are accounted", lodged, blocks, e.loads.lodged, e.loads.blocks)
	}
	return nil
}
