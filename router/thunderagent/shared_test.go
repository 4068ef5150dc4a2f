package thunderagent

import "testing"

// shares returns settings with a shared budget, in blocks of 16 tokens.
func shares(change func(*Settings)) Settings {
	return with(func(s *Settings) {
		s.SharedPrefixBudget, s.BlockSize = true, 16
		if change != nil {
			change(s)
		}
	})
}

// sharing brings a request pinned to w, with that many blocks of the node before tokens of its own.
func (r *rig) sharing(session uint64, w, node, blocks int32, own int32) *Request {
	r.Helper()
	return r.request(&Request{Session: session, Input: 16*blocks + own, Pin: w, Path: path(node, blocks), PromptBlocks: blocks})
}

// Each program costs a buffer of 100 and a reserve of 256; 16,384 tokens are 1,024 blocks.
const (
	sharedTokens = 16_384
	programBase  = 356
)

// A prefix that two programs of a worker have in common counts once from when both were sent, and twice again when one
// of them goes.
func TestSharedPrefixCountsOnceWhenConfirmed(t *testing.T) {
	r := newRig(t, shares(nil), 64_000)
	r.sharing(1, 0, 7, 1024, 0)
	r.used(sharedTokens + programBase)
	released, err := r.Arrive(r.now, &Request{Session: 2, Input: sharedTokens, Pin: 0, Path: path(7, 1024), PromptBlocks: 1024})
	if err != nil || len(released) != 1 {
		t.Fatal(released, err)
	}
	r.used(2 * (sharedTokens + programBase)) // not sent yet
	r.took(released)
	r.used(sharedTokens + 2*programBase)
	r.end(1, sharedTokens+50)
	r.used(sharedTokens + 50 + 2*programBase)
	r.took(r.Abort(r.now, r.running[2]))
	r.used(sharedTokens + 50 + programBase)
	// At its next turn the prompt is unconfirmed again, until it is sent.
	r.sharing(3, 0, 7, 1024, 0)
	r.used(sharedTokens + 50 + 2*programBase)
	released, err = r.Arrive(r.now, &Request{Session: 1, Input: sharedTokens, Pin: 0, Path: path(7, 1024), PromptBlocks: 1024})
	if err != nil {
		t.Fatal(err)
	}
	r.used(2 * (sharedTokens + programBase))
	r.took(released)
	r.used(sharedTokens + 2*programBase)
}

// What sharing frees lets a newcomer in.
func TestSharedPrefixMakesRoom(t *testing.T) {
	for _, test := range []struct {
		share bool
		want  string
	}{{false, "reasoning, held"}, {true, "reasoning on 0"}} {
		r := newRig(t, with(func(s *Settings) { s.SharedPrefixBudget, s.BlockSize = test.share, 16 }), 40_000)
		for session := range uint64(2) {
			r.sharing(session, 0, 7, 1024, 0)
			r.end(session, sharedTokens)
		}
		r.request(&Request{Session: 9, Input: sharedTokens, Pin: 0})
		r.is(9, test.want)
	}
}

func TestSharedPrefixIsPerWorkerAndPerPrefix(t *testing.T) {
	r := newRig(t, shares(nil), 64_000, 64_000)
	r.sharing(1, 0, 7, 1024, 0)
	r.sharing(2, 1, 7, 1024, 0)
	r.used(sharedTokens+programBase, sharedTokens+programBase)
	r.sharing(3, 0, 8, 1024, 0) // another prefix
	r.used(2*(sharedTokens+programBase), sharedTokens+programBase)
	r.sharing(4, 1, 7, 512, 100) // half of it, and 100 tokens of its own
	r.used(2*(sharedTokens+programBase), sharedTokens+100+2*programBase)
	r.RemoveWorker(r.now, 1)
	r.used(2*(sharedTokens+programBase), 0)
	if w := &r.workers[1]; len(w.shared.nodes) != 0 || w.shared.saved(&r.settings) != 0 || w.reasoning != (account{}) {
		t.Errorf("the removed worker is left with %+v", w)
	}
}

// A block costs what its dearest holder pays. Acting prefixes are weighed as a whole.
func TestSharedPrefixWithActingWeight(t *testing.T) {
	for _, weight := range []float64{0.5, 0.3, 1, 1.5} {
		r := newRig(t, shares(func(s *Settings) { s.ActingTokenWeight = weight }), 640_000)
		r.sharing(1, 0, 7, 1024, 0)
		r.end(1, sharedTokens)
		r.used(share(sharedTokens, weight) + programBase)
		r.sharing(2, 0, 7, 1024, 0)
		r.used(share(sharedTokens, max(weight, 1)) + 2*programBase)
		r.end(2, sharedTokens)
		r.used(share(sharedTokens, weight) + 2*programBase)
	}
}

// With a shared budget every request but the last must be pinned, and each turn must fit on its pin.
func TestSharedPrefixNeedsPins(t *testing.T) {
	r := newRig(t, shares(nil), 10_000, 10_000)
	q := &Request{Session: 1, Input: 100, Pin: nowhere}
	if _, err := r.Arrive(r.now, q); err == nil {
		t.Error("an unpinned request is accepted")
	}
	r.is(1, "none")
	r.sharing(1, 0, 7, 1, 0)
	r.end(1, 5000)
	r.sharing(2, 0, 8, 1, 3900)
	r.is(2, "reasoning on 0") // 5,356 + 4,272
	r.request(&Request{Session: 1, Input: 6000, Pin: 0})
	r.is(1, "reasoning, held") // 6,356 + 4,272
	r.request(&Request{Session: 1, Pin: nowhere, Final: true})
	r.is(1, "reasoning, held, 1 behind")
}

// A context that is smaller than the prompt was shares nothing: what is held is not known.
func TestSharedPrefixOfShrunkContext(t *testing.T) {
	r := newRig(t, shares(nil), 64_000)
	for session := range uint64(2) {
		r.sharing(session, 0, 7, 1024, 0)
		r.end(session, 1000)
	}
	r.used(2 * (1000 + programBase))
}
