package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// TestPins: request 0 (4 tokens) leaves its blocks pinned at 10 ms, in a cache of 10 blocks of one token; request 1
// arrives then and decodes five tokens in steps of 5 ms after its prefill of 10 ms; request 2 arrives at 11 ms. Of
// vLLM's free queue request 2 could take the 4 blocks at once.
func TestPins(t *testing.T) {
	for _, test := range []struct {
		name     string
		until    time.Duration
		input    int32 // of request 2
		session  uint64
		admitted time.Duration
		hit      int32
		early    int64
	}{
		{"no pin: the cached blocks are free", 0, 5, 3, 20 * ms, 0, 0},
		{"a pin ends with its lease: the first step boundary after it", 28 * ms, 5, 3, 30 * ms, 0, 0},
		{"with nothing running no pin keeps a request waiting", time.Second, 7, 3, 40 * ms, 0, 1},
		{"its own session goes first and finds its blocks", time.Second, 5, 1, 20 * ms, 4, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := Options{MaxSeqs: 8, MaxBatchedTokens: 64, ReserveFull: true, Ranked: true}
			kv := kvcache.Options{BlockSize: 1, Blocks: 10, PrefixCaching: true}
			e, err := New(o, models.FixedSteps(10*ms, 5*ms), kv, nil)
			if err != nil {
				t.Fatal(err)
			}
			path := node(1, 4)
			third := node(3, 9)
			if test.session == 1 {
				third = below(path, 3, 9)
			}
			coming := []*Request{
				{ID: 0, Session: 1, Path: path, Input: 4, Output: 1},
				{ID: 1, Session: 2, Path: node(2, 9), Input: 1, Output: 5, Rank: 1},
				{ID: 2, Session: test.session, Path: third, Input: test.input, Output: 1, Rank: 2},
			}
			at := []time.Duration{0, 10 * ms, 11 * ms}
			for len(coming) > 0 || e.Next() != Never {
				now := e.Next()
				if len(coming) > 0 {
					now = min(now, at[0])
				}
				if e.Next() == now {
					if finished(e.EndStep(), 0) && test.until > 0 {
						e.Pin(now, 1, 0, path, 4, test.until)
						if got := e.pins.blocks; got != 4 {
							t.Errorf("%d blocks pinned, want 4", got)
						}
					}
				}
				for ; len(coming) > 0 && at[0] == now; coming, at = coming[1:], at[1:] {
					e.Enqueue(now, coming[0])
					if coming[0].ID == 2 {
						defer func(r *Request) {
							if r.Admitted != test.admitted || r.Hit != test.hit {
								t.Errorf("admitted at %v with %d cached, want %v with %d", r.Admitted, r.Hit, test.admitted, test.hit)
							}
						}(coming[0])
					}
				}
				goOn(t, e, now)
			}
			if e.Stats.Unpinned != test.early || e.pins.blocks != 0 && test.early > 0 {
				t.Errorf("%d pins ended early and %d blocks are pinned still, want %d and none", e.Stats.Unpinned, e.pins.blocks, test.early)
			}
		})
	}
}

// goOn schedules an engine if it is at a step boundary, as an arrival may have made it.
func goOn(t *testing.T, e *Engine, now time.Duration) {
	t.Helper()
	if e.Next() == now {
		e.EndStep()
	}
	if e.Next() == Never {
		if _, err := e.Schedule(now); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Check(); err != nil {
		t.Fatal(err)
	}
}

// finished tells whether a request is among those that finished.
func finished(outcomes []Outcome, id int32) bool {
	return slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.Kind == Finished && o.Request.ID == id })
}

// Of a cache of 10 blocks request 0 leaves 4 pinned at 10 ms until 15 ms. Request 1 runs from then on until 35 ms, with 2 blocks
// at first. Request 2 of another session comes at 11 ms and needs 5 blocks, then at 12 ms the next of the pin's session, request
// 3. The pin outlives its lease, so that request 2 waits for request 1 to end and request 3 finds its 4 blocks. If request 3
// goes away at 22 ms, the pin goes with it, and request 2 is admitted at the next step boundary.
func TestPinAwaitsItsSession(t *testing.T) {
	for _, gone := range []bool{false, true} {
		o := Options{MaxSeqs: 8, MaxBatchedTokens: 64, ReserveFull: true, Ranked: true}
		e, err := New(o, models.FixedSteps(10*ms, 5*ms), kvcache.Options{BlockSize: 1, Blocks: 10, PrefixCaching: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		path := node(1, 4)
		q := []*Request{
			{ID: 0, Session: 1, Path: path, Input: 4, Output: 1},
			{ID: 1, Session: 2, Path: node(2, 9), Input: 1, Output: 4},
			{ID: 2, Session: 3, Path: node(3, 9), Input: 5, Output: 1, Rank: -pinnedFirst - 1},
			{ID: 3, Session: 1, Path: below(path, 4, 5), Input: 5, Output: 1},
		}
		script := map[time.Duration]func(now time.Duration){
			0:       func(now time.Duration) { e.Enqueue(now, q[0]) },
			10 * ms: func(now time.Duration) { e.Pin(now, 1, 0, path, 4, 15*ms); e.Enqueue(now, q[1]) },
			11 * ms: func(now time.Duration) { e.Enqueue(now, q[2]) },
			12 * ms: func(now time.Duration) { e.Enqueue(now, q[3]) },
			22 * ms: func(now time.Duration) {
				if gone {
					e.Cancel(now, q[3])
				}
			},
		}
		for now := time.Duration(0); now < 100*ms; now += ms {
			if e.Next() == now {
				e.EndStep()
			}
			if do := script[now]; do != nil {
				do(now)
			}
			goOn(t, e, now)
		}
		admitted, hit := 35*ms, int32(4)
		if gone {
			admitted, hit = 25*ms, 0
		}
		if q[2].Admitted != admitted || q[3].Hit != hit {
			t.Errorf("request 3 goes away: %v; request 2 is admitted at %v, and request 3 finds %d blocks, want %v and %d", gone, q[2].Admitted, q[3].Hit, admitted, hit)
		}
	}
}
