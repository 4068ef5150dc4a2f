package sim

// Outcomes counts what became of an action.
type Outcomes struct {
	// Accepted were done, Clipped in part. Deferred were put off, and are counted once more by what became of them then.
	// Refused found no room. Late were under way or over when the session went on. Wasted brought what nobody used.
	Accepted, Clipped, Deferred, Refused, Late, Wasted int64
	// Blocks is what was done, in KV blocks.
	Blocks int64
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

func (o *Outcomes) subtract(x *Outcomes) {
	for i := range outcomes {
		*o.of(i) -= *x.of(i)
	}
	o.Blocks -= x.Blocks
}

// note counts what became of an action on a session, and to how many blocks it was done.
func (k *keeper) note(do kvAction, became outcome, s *stay, blocks int32) {
	out := &k.outcomes[do]
	*out.of(became)++
	out.Blocks += int64(blocks)
	k.r.journal.acted(do, became, s, blocks)
}

// count counts an action that was done to n of wanted blocks.
func (k *keeper) count(do kvAction, s *stay, n, wanted int32) {
	switch {
	case n <= 0:
		k.note(do, refused, s, 0)
	case n < wanted:
		k.note(do, clipped, s, n)
	default:
		k.note(do, accepted, s, n)
	}
}
