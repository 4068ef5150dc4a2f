package sim

import "time"

// Outcomes counts what became of an action.
type Outcomes struct {
	// Accepted were done, Clipped in part. Deferred were put off, and are counted once more by what became of them then.
	// Refused found no room. Late were under way or over when the session went on. Wasted brought what nobody used.
	Accepted, Clipped, Deferred, Refused, Late, Wasted int64
	// Blocks is what was done, in KV blocks; LateBlocks what late ones had done by then, WastedBlocks what wasted ones brought.
	Blocks, LateBlocks, WastedBlocks int64
	// Took is the time from when accepted and clipped ones were wanted until they were done, a prefetch until it began.
	Took time.Duration
}

// outcome is what became of an action.
type outcome uint8

const (
	accepted outcome = iota
	clipped
	deferred
	refused
	late
	wasted
	outcomes
)

var outcomeNames = [outcomes]string{"accepted", "clipped", "deferred", "refused", "late", "wasted"}

// of is the count of an outcome.
func (o *Outcomes) of(x outcome) *int64 {
	return [outcomes]*int64{&o.Accepted, &o.Clipped, &o.Deferred, &o.Refused, &o.Late, &o.Wasted}[x]
}

// add counts an outcome, and how many blocks were how long in the doing.
func (o *Outcomes) add(x outcome, blocks int32, took time.Duration) {
	*o.of(x)++
	switch x {
	case accepted, clipped:
		o.Blocks += int64(blocks)
		o.Took += took
	case late:
		o.LateBlocks += int64(blocks)
	case wasted:
		o.WastedBlocks += int64(blocks)
	}
}

func (o *Outcomes) subtract(x *Outcomes) {
	for i := range outcomes {
		*o.of(i) -= *x.of(i)
	}
	o.Blocks -= x.Blocks
	o.LateBlocks -= x.LateBlocks
	o.WastedBlocks -= x.WastedBlocks
	o.Took -= x.Took
}

// note counts what became of an action on a session that was wanted since then, and to how many blocks it was done.
func (k *keeper) note(do kvAction, became outcome, s *stay, blocks int32, since time.Duration) {
	took := k.r.now - since
	k.outcomes[do].add(became, blocks, took)
	k.r.journal.acted(do, became, s, blocks, took)
}

// count counts an action that was wanted since then, and is done to n of wanted blocks.
func (k *keeper) count(do kvAction, s *stay, n, wanted int32, since time.Duration) {
	switch {
	case n <= 0:
		k.note(do, refused, s, 0, since)
	case n < wanted:
		k.note(do, clipped, s, n, since)
	default:
		k.note(do, accepted, s, n, since)
	}
}
