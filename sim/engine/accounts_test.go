package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// owners is the number of owners of random workloads, nobody included.
const owners = 4

// turn is a time at which an owner begins to do something else.
type turn struct {
	at    time.Duration
	owner kvcache.Owner
	state kvcache.State
}

// own gives the requests of a workload owners, who change their states at random times of its run.
func (w *workload) own(r *rand.Rand, ends []time.Duration) {
	for range r.IntN(10) {
		state := kvcache.Tool + kvcache.State(r.IntN(int(kvcache.States-kvcache.Tool)))
		w.turns = append(w.turns, turn{randomTime(r, ends), kvcache.Owner(1 + r.IntN(owners-1)), state})
	}
}

func (e *Engine) setState(now time.Duration, o kvcache.Owner, s kvcache.State) {
	if e.Accounts() != nil {
		e.Accounts().SetState(now, o, s)
	}
}

// newOwned returns an engine whose accounts have the owners of a random workload.
func newOwned(w *workload, cost *models.StepCost, o Options) (*Engine, error) {
	kv := w.kv
	kv.Events, kv.Accounting = true, w.outside == nil // the twin of pins does not tell whom they are for
	e, err := New(o, cost, kv, nil)
	if err == nil && kv.Accounting {
		for range owners - 1 {
			e.Accounts().Open()
		}
	}
	return e, err
}

// holdings is who holds how many blocks in a twin at present, and has held them for how long.
type holdings struct {
	count  func() (blocks [owners][kvcache.States]int) // set by the twin
	at     time.Duration                               // up to which held goes
	states [owners]kvcache.State
	held   [owners]kvcache.Holding
}

func newHoldings() *holdings {
	h := new(holdings)
	for i := range h.states {
		h.states[i] = kvcache.Other
	}
	return h
}

// pass lets time pass.
func (h *holdings) pass(now time.Duration) {
	for o, counts := range h.count() {
		for s, n := range counts {
			h.held[o][s] = h.held[o][s].Plus(int64(n), now-h.at)
		}
	}
	h.at = now
}

func (h *holdings) setState(now time.Duration, o kvcache.Owner, s kvcache.State) {
	h.pass(now)
	h.states[o] = s
}

// heir is who owns a block of owner o that a request of another one takes from the free queue or puts there.
func heir(states *[owners]kvcache.State, o, by kvcache.Owner) kvcache.Owner {
	if s := states[o]; by != 0 && (s == kvcache.Ended || s == kvcache.EndedSubagent) {
		return by
	}
	return o
}

// compareHoldings compares the accounts of an engine up to a time with what its twin has seen.
func compareHoldings(e *Engine, at time.Duration, want [owners]kvcache.Holding) error {
	if e.Accounts() == nil {
		return nil
	}
	for o := range kvcache.Owner(owners) {
		if got := e.Accounts().Of(at, o); got != want[o] {
			return fmt.Errorf("at %v owner %d has held %v, of the twin %v", at, o, got, want[o])
		}
	}
	return nil
}
